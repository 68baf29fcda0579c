/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c - the list of all route tables, and the search in it.
 *
 * Role    transport.c asks it for each request; every dialect keeps its own table beside its handlers.
 * In/Out  Method and raw path in; the row, or the methods that the path has, out.
 * Method  Linear: some forty rows, and a comparison ends at the first character that differs. Paths are
 *         compared as they came over the wire. An escaped path never equals a route, so there is no
 *         second reading of a path that a proxy in front has judged already. One exception is made: a slash
 *         at the end is taken for a slip, but not where it could be a slip of another kind (DELETE /items/
 *         with the id forgotten) and not for the operations, which proxies like to close by their exact names.
 * Memory  Static tables only. Threads: any.
 * Proof   tests/server/test_transport_paths.py. */
#include <assert.h>
#include <string.h>

#include "server/routes.h"

static const fl_route *const tables[] = {
    fl_routes_operations, fl_routes_openai, fl_routes_tei,     fl_routes_ollama,
    fl_routes_cohere,     fl_routes_voyage, fl_routes_score,   fl_routes_openapi,
    fl_routes_seed,       fl_routes_pages,  fl_routes_batches, fl_routes_load,
};

enum { OPERATIONS = 0, TABLE_COUNT = sizeof tables / sizeof tables[0] };

static bool path_matches(const fl_route *route, const char *path, size_t size, const char **tail) {
    assert(path);
    size_t own = strlen(route->path);
    if ((route->flags & FL_ROUTE_PREFIX) != 0) {
        size_t head = strcspn(route->path, "*"), end = own - head - (head < own);
        *tail = path + head;
        return head + end < size && memcmp(route->path, path, head) == 0 &&
               memcmp(route->path + own - end, path + size - end, end) == 0;
    }
    *tail = "";
    return own == size && memcmp(route->path, path, own) == 0;
}

static void allow_method(fl_buf *allow, const char *method) {
    if (allow->size > 0)
        fl_buf_puts(allow, ", ");
    fl_buf_puts(allow, method);
    if (strcmp(method, "GET") == 0)
        fl_buf_puts(allow, ", HEAD");
}

/* In the tables from `first` on; the path has `size` bytes. */
static const fl_route *find(size_t first, const char *method, const char *path, size_t size,
                            fl_buf *allow, const char **tail) {
    const char *closed = NULL; /* a path with a '*', which no longer ones share */
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t t = first; t < TABLE_COUNT; t++) {
        for (const fl_route *route = tables[t]; route->method != NULL; route++) {
            const char *rest;
            if ((closed != NULL && strcmp(route->path, closed) != 0) ||
                !path_matches(route, path, size, &rest))
                continue;
            closed = strchr(route->path, '*') != NULL ? route->path : closed;
            if (strcmp(route->method, wanted) == 0) {
                *tail = rest;
                return route;
            }
            allow_method(allow, route->method);
        }
    }
    return NULL;
}

const fl_route *fl_route_find(const char *method, const char *path, fl_buf *allow,
                              const char **tail) {
    size_t          size  = strlen(path);
    const fl_route *found = find(0, method, path, size, allow, tail);
    bool            slash = size > 2 && path[size - 1] == '/' && path[size - 2] != '/';
    if (found == NULL && allow->size == 0 && slash && strcmp(method, "DELETE") != 0)
        found = find(OPERATIONS + 1, method, path, size - 1, allow, tail);
    return found;
}

const fl_route *fl_route_at(size_t index) {
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        for (const fl_route *route = tables[t]; route->method != NULL; route++)
            if (index-- == 0)
                return route;
    }
    return NULL;
}

static const struct {
    const char       *prefix;
    const fl_dialect *dialect;
} families[] = {
    {"/v1/rerank", &fl_dialect_cohere}, {"/v1/", &fl_dialect_openai}, {"/v2/", &fl_dialect_cohere},
    {"/api/", &fl_dialect_ollama},      {"/", &fl_dialect_plain},
};

enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

const fl_dialect *fl_dialect_of(const char *path) {
    for (size_t t = 0; t < TABLE_COUNT;
         t++) { /* a known path has its dialect, whatever the method */
        for (const fl_route *route = tables[t]; route->method != NULL; route++) {
            const char *rest;
            if (path_matches(route, path, strlen(path), &rest))
                return route->dialect;
        }
    }
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        if (strncmp(families[i].prefix, path, strlen(families[i].prefix)) == 0)
            return families[i].dialect;
    return &fl_dialect_plain;
}
