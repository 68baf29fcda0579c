/* SPDX-License-Identifier: Apache-2.0 */
/* pull.c - models brought into the hub cache and taken out of it.
 *
 * Role    ollama.c's /api/pull and /api/delete.
 * In/Out  A hub id ("org/name", "org/name@revision", "hf.co/org/name", a bare name of sentence-transformers) to
 *         Ollama's lines of progress. Files are named where Ollama has digests of layers, which clients tell
 *         bars apart by: of small files the hub has no digest.
 * Method  A pull has a thread of its own, since it may take hours and workers are few. Who asks for a model that is
 *         being pulled joins, and hears what the first one hears. When the last of them has left, or the server ends,
 *         it stops; what came is kept, and the next pull goes on there. An error before the first file is an answer
 *         with its status; a later one is a line, as the status is said by then.
 * Memory  A pull is its thread's until `over` is set; whoever looks next frees it. Its listeners lie in the memory
 *         of their requests.
 * Threads pulls_lock guards the list and all of a pull but its name.
 * Proof   tests/server/test_pull.py. */
#include "server/pull.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/server_internal.h"

enum {
    PULLS_MAX  = 4,
    NAME_BYTES = 512,
    PATH_BYTES = 4096,
    QUIET_NS   = 60000000 /* between lines of one file, as Ollama has it */
};

static const char lines_type[] = "application/x-ndjson";

typedef struct listener {
    struct listener *next;
    fl_http_request *request;
    bool             streams, begun; /* begun: it has its first line */
    bool             timed; /* it has named a deadline; the server's own is for embedding */
} listener;

struct fl_pull {
    struct fl_pull     *next;
    fl_server          *server;
    pthread_t           thread;
    char                name[NAME_BYTES];
    char                file[NAME_BYTES]; /* that the last line was of, and when; the thread's */
    uint64_t            said_ns;
    listener *listeners FL_GUARDED_BY(fl_pulls_role);
    bool stops          FL_GUARDED_BY(fl_pulls_role); /* nobody may join */
    bool over           FL_GUARDED_BY(fl_pulls_role); /* its thread is at its end */
};

/* ---- Who may, and what ------------------------------------------------------------------------------- */

bool fl_pull_is_allowed(const fl_server *server) {
    return strcmp(fl_server_option(server, "server.allow_pull"), "true") == 0;
}

/* False: answered. */
static bool may(fl_http_request *request) {
    if (!fl_pull_is_allowed(request->server)) {
        fl_reply_error(request, FL_HTTP_PERMISSION_DENIED,
                       "this server does not pull or delete models; start it with "
                       "--server-allow-pull (server.allow_pull) to allow that");
        return false;
    }
    if (!fl_api_key_is_admin(request->key)) {
        fl_reply_error(request, FL_HTTP_PERMISSION_DENIED,
                       "this API key may not pull or delete models; mark it admin in "
                       "server.api_key_file to allow that");
        return false;
    }
    return true;
}

/* The name as a hub id, in `out`; false: answered. What could be a path, or a name of another store, is refused by its
 * letters alone: clients learn nothing of this machine's files. */
static bool take_name(fl_http_request *request, fl_span name, char out[NAME_BYTES]) {
    static const char *const hosts[] = {"hf.co/", "huggingface.co/"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        size_t size = strlen(hosts[i]);
        if (name.size > size && memcmp(name.data, hosts[i], size) == 0)
            name = (fl_span){name.data + size, name.size - size};
    }
    const char *at   = memchr(name.data, '@', name.size);
    size_t      id   = at != NULL ? (size_t)(at - name.data) : name.size;
    bool        bare = memchr(name.data, '/', id) == NULL;
    int         size = snprintf(out, NAME_BYTES, "%s%.*s", bare ? "sentence-transformers/" : "",
                                (int)(name.size < NAME_BYTES ? name.size : NAME_BYTES), name.data);
    size_t      org = strcspn(out, "/"), rest = strcspn(out + org + 1, "@");
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (size >= NAME_BYTES || strlen(out) < name.size || out[0] == '.' || org == 0 || rest == 0 ||
        strspn(out, letters) < org || strspn(out + org + 1, letters) < rest) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST,
                       "'%.*s' is not a model of the hub: write org/name or org/name@revision",
                       (int)(name.size < 200 ? name.size : 200), name.data);
        return false;
    }
    return true;
}

/* ---- What the listeners hear ------------------------------------------------------------------------- */

static const struct {
    int          status;
    fl_http_code code;
} codes[] = {
    {FLETCH_EINVAL, FL_HTTP_BAD_REQUEST},        {FLETCH_ENOTFOUND, FL_HTTP_MODEL_NOT_FOUND},
    {FLETCH_EDENIED, FL_HTTP_PERMISSION_DENIED}, {FLETCH_EUNSUPPORTED, FL_HTTP_WRONG_TASK},
    {FLETCH_EBUSY, FL_HTTP_UNAVAILABLE},         {FLETCH_ENETWORK, FL_HTTP_UNAVAILABLE},
    {FLETCH_ENOSPC, FL_HTTP_STORE_FULL},
};

/* Who may pull is told the hub's or the disk's own words. */
static void refuse(fl_http_request *request, const fletch_error *error) {
    fl_http_code code = FL_HTTP_INTERNAL;
    if (error->code == FLETCH_ECANCELLED || error->code == FLETCH_EDEADLINE) {
        fl_reply_fail(request, error);
        return;
    }
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        code = codes[i].status == error->code ? codes[i].code : code;
    if (code == FL_HTTP_UNAVAILABLE)
        fl_reply_header(request, "retry-after", "10");
    fl_reply_error(request, code, "%s", error->message);
}

static void put_status(fl_buf *line, const char *status) {
    fl_buf_printf(line, "{\"status\":\"%s\"}\n", status);
}

/* A line of progress to all who listen. A client that takes none for long misses some. */
FL_REQUIRES(fl_pulls_role)
static void tell(fl_pull *pull, const char *file, uint64_t done, uint64_t total) {
    fl_buf first = {0}, line = {0}, name = {0};
    put_status(&first, "pulling manifest");
    fl_json_quote(&name, file, strlen(file));
    fl_buf_puts(&line, "{\"status\":\"pulling ");
    fl_buf_puts(&line, name.failed ? "\"" : name.data + 1); /* its first quote stands already */
    fl_buf_printf(&line, ",\"digest\":%s,\"total\":%llu,\"completed\":%llu}\n", name.data,
                  (unsigned long long)total, (unsigned long long)done);
    for (listener *one = pull->listeners; one != NULL && !name.failed; one = one->next) {
        if (one->streams && !one->begun) {
            (void)fl_reply_piece(one->request, lines_type, first.data, first.size);
            one->begun = true;
        }
        if (one->streams)
            (void)fl_reply_piece(one->request, lines_type, line.data, line.size);
    }
    fl_buf_free(&first);
    fl_buf_free(&name);
    fl_buf_free(&line);
}

/* The last thing that a listener hears. */
static void finish(const listener *one, const fletch_error *error) {
    fl_http_request *request = one->request;
    fl_buf          *body    = &request->reply.body;
    if (error->code < 0 && !one->begun) {
        refuse(request, error);
    } else if (error->code < 0) {
        fl_buf_puts(body, "{\"error\":");
        fl_json_quote(body, error->message, strlen(error->message));
        fl_buf_puts(body, "}\n");
        fl_reply_bytes(request, 200, lines_type);
    } else if (one->streams) {
        if (!one->begun)
            put_status(body, "pulling manifest");
        put_status(body, "verifying sha256 digest");
        put_status(body, "success");
        fl_reply_bytes(request, 200, lines_type);
    } else {
        put_status(body, "success");
        fl_reply_json(request, 200);
    }
}

/* Let those go who have left, or whose deadline has passed. */
FL_REQUIRES(fl_pulls_role) static void let_go(fl_pull *pull) {
    for (listener **at = &pull->listeners; *at != NULL;) {
        listener    *one   = *at;
        fletch_error error = {0};
        bool         left  = atomic_load(&one->request->cancelled) || one->timed;
        if (left && fl_request_over(one->request, &error) < 0) {
            *at = one->next;
            finish(one, &error);
        } else {
            at = &one->next;
        }
    }
}

/* ---- The thread ---------------------------------------------------------------------------------------- */

static int on_progress(void *user, const char *file, uint64_t done, uint64_t total) {
    fl_pull *pull = user;
    uint64_t now  = fl_clock_ns();
    fl_pulls_lock(pull->server);
    bool same = strcmp(pull->file, file) == 0;
    if (total > 0 && /* else the hub is still asked what there is */
        (!same || done == total || now - pull->said_ns >= QUIET_NS)) {
        (void)snprintf(pull->file, sizeof pull->file, "%s", file);
        pull->said_ns = now;
        tell(pull, file, done, total);
    }
    let_go(pull);
    pull->stops = pull->listeners == NULL || atomic_load(&pull->server->state) != FL_READY;
    bool stops  = pull->stops;
    fl_pulls_unlock(pull->server);
    return stops;
}

static void *run(void *arg) {
    fl_pull     *pull   = arg;
    fl_server   *server = pull->server;
    fletch_error error  = {0};
    uint64_t     begin  = fl_clock_ns();
    if (fl_folder_exists(pull->name) || fl_file_exists(pull->name)) { /* it would be meant */
        (void)fl_fail(&error, FLETCH_EINVAL, FLETCH_NOWHERE, "'%.200s' is not a model of the hub",
                      pull->name);
    } else {
        (void)fletch_hub_pull(server->config, pull->name, on_progress, pull, NULL, 0, &error);
    }
    if (error.code == FLETCH_ECANCELLED) {
        (void)snprintf(
            error.message, sizeof error.message, "%s; the partial download is kept, pull again",
            atomic_load(&server->state) == FL_READY ? "no client is waiting for it any more"
                                                    : "the server is shutting down");
    }
    fl_server_log_line(
        server->log, error.code < 0 ? FL_LEVEL_WARNING : FL_LEVEL_INFO, "pull of %s: %s, %.2f s",
        pull->name, error.code < 0 ? error.message : "done", (double)(fl_clock_ns() - begin) / 1e9);
    fl_pulls_lock(server);
    while (pull->listeners != NULL) {
        listener *one   = pull->listeners;
        pull->listeners = one->next;
        finish(one, &error);
    }
    pull->over = true;
    fl_pulls_unlock(server);
    return NULL;
}

/* Free the pulls that are over; how many are not. A thread that is over needs the lock no more. */
FL_REQUIRES(fl_pulls_role)
static size_t sweep(fl_server *server) {
    size_t count = 0;
    for (fl_pull **at = &server->pulls; *at != NULL;) {
        fl_pull *pull = *at;
        if (pull->over) {
            *at = pull->next;
            pthread_join(pull->thread, NULL);
            fl_free(pull);
        } else {
            at = &pull->next;
            count++;
        }
    }
    return count;
}

FL_UNCHECKED void fl_pulls_close(fl_server *server) {
    for (fl_pull *pull; (pull = server->pulls) != NULL;) {
        server->pulls = pull->next;
        pthread_join(pull->thread, NULL);
        fl_free(pull);
    }
}

/* ---- What the routes ask --------------------------------------------------------------------------------- */

FL_REQUIRES(fl_pulls_role) static fl_pull *find(const fl_server *server, const char *name) {
    fl_pull *pull = server->pulls;
    while (pull != NULL && (pull->over || pull->stops || strcmp(pull->name, name) != 0))
        pull = pull->next;
    return pull;
}

FL_REQUIRES(fl_pulls_role)
static int start(fl_server *server, const char *name, listener *first, fletch_error *error) {
    if (sweep(server) >= PULLS_MAX) {
        return fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE, "%d models are being pulled; try later",
                       PULLS_MAX);
    }
    fl_pull *pull = fl_alloc_zero(1, sizeof *pull);
    if (pull == NULL)
        return fl_fail_nomem(error, sizeof *pull, "a pull");
    pull->server    = server;
    pull->listeners = first;
    memcpy(pull->name, name, strlen(name) + 1);
    int status = fl_thread_start(&pull->thread, "pull", run, pull, error);
    if (status < 0) {
        fl_free(pull);
        return status;
    }
    pull->next    = server->pulls;
    server->pulls = pull;
    return FLETCH_OK;
}

void fl_pull_begin(fl_http_request *request, fl_span name, bool streams) {
    fl_server   *server = request->server;
    char         id[NAME_BYTES];
    fletch_error error = {0};
    if (!may(request) || !take_name(request, name, id))
        return;
    listener *one = fl_request_alloc(request, sizeof *one);
    if (one == NULL) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
        return;
    }
    one->request = request;
    one->streams = streams;
    one->timed   = fl_request_header(request, "x-fletch-deadline-ms") != NULL;
    fl_pulls_lock(server);
    fl_pull *under_way = find(server, id);
    if (under_way != NULL) {
        one->next            = under_way->listeners;
        under_way->listeners = one;
    } else {
        (void)start(server, id, one, &error);
    }
    fl_pulls_unlock(server);
    if (error.code < 0)
        refuse(request, &error);
}

/* A model of the cache. */
typedef struct search {
    const fl_server *server;
    char             id[NAME_BYTES];
    bool             there, served;
} search;

static bool is_same_folder(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

static int on_entry(void *user, const fletch_hub_entry *entry) {
    search          *find = user;
    bool             same = strcmp(entry->id, find->id) == 0;
    const fl_served *served;
    find->there |= same;
    for (size_t i = 0; same && (served = fl_server_record_at(find->server, i)) != NULL; i++) {
        char path[PATH_BYTES];
        int  state = atomic_load(&served->state);
        find->served |= state != FL_MODEL_CLOSED && state != FL_MODEL_FAILED &&
                        fletch_hub_path(find->server->config, served->id, path, sizeof path,
                                        NULL) == FLETCH_OK &&
                        is_same_folder(path, entry->path);
    }
    return 0;
}

/* Any revision of it. */
FL_REQUIRES(fl_pulls_role) static bool is_pulled(const fl_server *server, const char *id) {
    size_t size = strlen(id);
    for (const fl_pull *pull = server->pulls; pull != NULL; pull = pull->next) {
        bool same = strncmp(pull->name, id, size) == 0 &&
                    (pull->name[size] == '\0' || pull->name[size] == '@');
        if (same && !pull->over)
            return true;
    }
    return false;
}

void fl_pull_delete(fl_http_request *request, fl_span name) {
    fl_server   *server = request->server;
    char         asked[NAME_BYTES];
    uint64_t     freed = 0;
    fletch_error error = {0};
    if (!may(request) || !take_name(request, name, asked))
        return;
    search found = {.server = server};
    (void)snprintf(found.id, sizeof found.id, "%.*s", (int)strcspn(asked, "@"), asked);
    if (fletch_hub_list(server->config, on_entry, &found, &error) < 0) {
        refuse(request, &error);
        return;
    }
    fl_pulls_lock(server);
    bool pulled = is_pulled(server, found.id);
    fl_pulls_unlock(server);
    if (found.served || pulled) {
        fl_reply_error(request, FL_HTTP_CONFLICT, "model '%s' is being %s", asked,
                       found.served ? "served" : "pulled");
        return;
    }
    if (!found.there) {
        fl_reply_error(request, FL_HTTP_MODEL_NOT_FOUND, "model '%s' not found", asked);
        return;
    }
    if (fletch_hub_remove(server->config, asked, &freed, &error) < 0) {
        refuse(request, &error);
        return;
    }
    fl_server_log_line(server->log, FL_LEVEL_INFO, "deleted %s, %llu bytes", asked,
                       (unsigned long long)freed);
    fl_reply_bytes(request, 200, NULL);
}
