/* SPDX-License-Identifier: Apache-2.0 */
/* trace_context.c - whose trace a request belongs to: W3C's traceparent and tracestate.
 *
 * Role    admission.c calls fl_trace_context_begin for every request.
 * Method  A header that is sent twice counts as one with a comma, which no traceparent has. What is malformed is
 *         no parent: where spans are exported the trace begins here then, else there is none. tracestate is
 *         kept only with a parent and only whole.
 * Memory  The request's span, lent by otlp.c. Threads: I/O.
 * Proof   tests/server/test_otlp.py, test_transport.py. */
#include <string.h>
#include <strings.h>

#include "base/number.h"
#include "server/otlp.h"

enum { PARENT_SIZE = 55, MEMBERS_MAX = 32, PART_MAX = 256 };

static bool is_hex(const char *text, size_t size) {
    return strspn(text, "0123456789abcdef") >= size;
}

/* 00-<32 hex>-<16 hex>-<2 hex>; a later version may be longer, its first four fields are the same. */
static bool good_parent(const char *text) {
    size_t size = strlen(text);
    if (size < PARENT_SIZE || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
        !is_hex(text, 2) || !is_hex(text + 3, 32) || !is_hex(text + 36, 16) ||
        !is_hex(text + 53, 2))
        return false;
    if (strncmp(text, "ff", 2) == 0 || (strncmp(text, "00", 2) == 0 && size != PARENT_SIZE) ||
        (size > PARENT_SIZE && text[PARENT_SIZE] != '-'))
        return false;
    return strspn(text + 3, "0") < 32 && strspn(text + 36, "0") < 16;
}

/* "vendor=opaque,other=…": members are few, keys of few letters, values printable. */
static bool good_state(const char *text) {
    size_t members = 0;
    for (const char *at = text; *at != '\0';) {
        at += strspn(at, " \t,");
        size_t key  = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_-*/@");
        size_t size = strcspn(at, ",");
        if (size == 0)
            continue;
        size_t value = size > key ? size - key - 1 : 0;
        if (key == 0 || key > PART_MAX || at[key] != '=' || value == 0 || value > PART_MAX ||
            memchr(at + key + 1, '=', value) != NULL || ++members > MEMBERS_MAX)
            return false;
        for (size_t i = key + 1; i < size; i++)
            if (at[i] < 0x20 || at[i] > 0x7E)
                return false;
        at += size;
    }
    return members > 0;
}

/* Every value of a header, with commas between; false when there is none, or no room. */
static bool gather(const fl_request_full *full, const char *name, char *out, size_t capacity) {
    const char *data = full->conn->in.data;
    size_t      used = 0;
    for (uint32_t i = 0; i < full->head.count; i++) {
        if (strcasecmp(data + full->head.field[i].name, name) != 0)
            continue;
        const char *value = data + full->head.field[i].value;
        size_t      size  = strlen(value);
        if (used + size + 2 > capacity)
            return false;
        if (used > 0)
            out[used++] = ',';
        memcpy(out + used, value, size + 1);
        used += size;
    }
    return used > 0;
}

/* Ids must not be all zeros. */
static void make_id(char *out, size_t digits) {
    do {
        fl_random_hex(out, digits);
    } while (strspn(out, "0") == digits);
}

void fl_trace_context_begin(fl_request_full *full) {
    fl_http_request *request = &full->shared;
    fl_otlp         *otlp    = request->server->otlp;
    char             parent[FL_TRACE_STATE_MAX + 1];
    bool child = gather(full, "traceparent", parent, sizeof parent) && good_parent(parent);
    request->trace_id[0] = request->span_id[0] = '\0';
    if (!child && (otlp == NULL || !fl_otlp_may_begin(otlp)))
        return;
    if (child) {
        memcpy(request->trace_id, parent + 3, 32);
        request->trace_id[32] = '\0';
    } else {
        make_id(request->trace_id, 32);
    }
    bool sampled = child && (fl_hex_digit(parent[54]) & 1) != 0;
    if (otlp != NULL && fl_otlp_samples(otlp, child, sampled, request->trace_id)) {
        full->span = fl_otlp_take(otlp);
    } else if (!child) {
        request->trace_id[0] = '\0'; /* nobody will look for it */
        return;
    }
    make_id(request->span_id, 16);
    if (full->span == NULL)
        return;
    fl_otlp_span *span = full->span;
    memcpy(span->trace_id, request->trace_id, sizeof span->trace_id);
    memcpy(span->span_id, request->span_id, sizeof span->span_id);
    if (child) {
        memcpy(span->parent_id, parent + 36, 16);
        span->parent_id[16] = '\0';
        if (!gather(full, "tracestate", span->state, sizeof span->state) ||
            !good_state(span->state))
            span->state[0] = '\0';
    }
}
