/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_http_guard.c - the guard against headers, targets and ids that anybody may send.
 *
 * Role    libFuzzer target for src/server/guard.c and cors.c, with a stand-in for the HTTP library that deals
 *         out header lines of the input. First line: the target; then "name:value" lines.
 * Method  A slow twin reads the same lines again and says by the letter of the rules what must not pass.
 * Proof   tests/fuzz/corpus/fuzz_http_guard. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/internal.h"

enum { LINES = 256 };

struct MHD_Connection {
    size_t count;
    char  *name[LINES], *value[LINES];
};

int MHD_get_connection_values(struct MHD_Connection *mc, enum MHD_ValueKind kind,
                              MHD_KeyValueIterator each, void *user) {
    for (size_t i = 0; i < mc->count; i++) {
        (void)each(user, kind, mc->name[i], mc->value[i]);
    }
    return (int)mc->count;
}

static void must(bool truth) {
    if (!truth) {
        __builtin_trap();
    }
}

static size_t count_of(const struct MHD_Connection *mc, const char *name) {
    size_t count = 0;
    for (size_t i = 0; i < mc->count; i++) {
        count += strcasecmp(mc->name[i], name) == 0;
    }
    return count;
}

static const char *value_of(const struct MHD_Connection *mc, const char *name) {
    for (size_t i = 0; i < mc->count; i++) {
        if (strcasecmp(mc->name[i], name) == 0) {
            return mc->value[i];
        }
    }
    return NULL;
}

/* What has passed must be cut in one way only. */
static void check_passed(const struct MHD_Connection *mc, const fl_verdict *verdict) {
    const char *length = value_of(mc, "content-length");
    const char *coding = value_of(mc, "transfer-encoding");
    must(count_of(mc, "content-length") <= 1 && count_of(mc, "transfer-encoding") <= 1);
    must(count_of(mc, "host") == 1 && (length == NULL || coding == NULL));
    must(coding == NULL || (strcasecmp(coding, "chunked") == 0 && verdict->length == UINT64_MAX));
    if (length != NULL) {
        must(length[0] != '\0' && strspn(length, "0123456789") == strlen(length));
        must(strtoull(length, NULL, 10) == verdict->length);
    }
    must(mc->count <= FL_LIMIT_HEADERS);
    for (size_t i = 0; i < mc->count; i++) {
        must(strpbrk(mc->name[i], " \t:\"(),/;<=>?@[\\]{}") == NULL && mc->name[i][0] != '\0');
        for (const char *at = mc->value[i]; *at != '\0'; at++) {
            must(*at == '\t' || !iscntrl((unsigned char)*at) || (unsigned char)*at >= 0x80);
        }
    }
}

static void check_target(const char *text) {
    fl_buf      uri = {0};
    const char *path, *query;
    fl_buf_append(&uri, text, strlen(text));
    (void)fl_buf_reserve(&uri, 1);
    if (fl_guard_target(&uri, &path, &query)) {
        must((path[0] == '/' || strcmp(path, "*") == 0) && strchr(path, '?') == NULL);
        must(strlen(path) + strlen(query) <= strlen(text));
        for (const char *at = path; *at != '\0'; at++) {
            must((unsigned char)*at > 0x20 && (unsigned char)*at < 0x7F);
        }
    }
    fl_buf_free(&uri);
}

static void check_identity(const char *id, const char *parent) {
    fl_request request;
    memset(&request, 0, sizeof request);
    fl_guard_identity(&request, id, parent);
    must(request.id[0] != '\0' && strlen(request.id) <= FL_LIMIT_REQUEST_ID);
    for (const char *at = request.id; *at != '\0'; at++) {
        must(isalnum((unsigned char)*at) || strchr("._-", *at) != NULL);
    }
    must(request.trace_id[0] == '\0' || strlen(request.trace_id) == 32);
    must(strspn(request.trace_id, "0123456789abcdef") == strlen(request.trace_id));
    must((request.trace_id[0] == '\0') == (request.span_id[0] == '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct MHD_Connection mc = {0};
    fl_verdict            verdict;
    char                 *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    check_target(line != NULL ? line : "");
    while ((line = strtok_r(NULL, "\n", &rest)) != NULL && mc.count < LINES) {
        char *colon = strchr(line, ':');
        if (colon != NULL) {
            *colon             = '\0';
            mc.name[mc.count]  = line;
            mc.value[mc.count] = colon + 1;
            mc.count++;
        }
    }
    fl_guard_headers(&mc, MHD_HTTP_VERSION_1_1, &verdict);
    if (verdict.status == 0) {
        check_passed(&mc, &verdict);
    } else {
        must(verdict.status >= 400 && verdict.code != NULL && verdict.message != NULL);
    }
    check_identity(value_of(&mc, "x-request-id"), value_of(&mc, "traceparent"));
    const char *origin  = value_of(&mc, "origin");
    const char *allowed = fl_cors_allowed("https://a.example, https://b.example", origin);
    must(allowed == NULL || strcmp(allowed, "https://a.example") == 0 ||
         strcmp(allowed, "https://b.example") == 0);
    free(text);
    return 0;
}
