/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_http1.c - the reader of heads and chunks against bytes that anybody may send.
 *
 * Role    libFuzzer target for src/server/http1.c and cors.c. The first byte says how large the pieces are, the
 *         rest is what a connection brings.
 * Method  The bytes are read whole and in pieces, which must come to the same. A head that passed is read again by
 *         a slow twin that knows the letter of RFC 9112 and nothing of how the reader works; a chunked
 *         body likewise.
 * Proof   tests/fuzz/corpus/fuzz_http1. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/server_internal.h"

static void must(bool truth) {
    if (!truth)
        __builtin_trap();
}

static int read_whole(fl_http_head *head, char *data, size_t size) {
    memset(head, 0, sizeof *head);
    return fl_http_head_read(head, data, size);
}

/* Every piece in memory of its own, moved each time, so that a reader that keeps pointers is caught. */
static int read_pieces(fl_http_head *head, char **data, size_t size, size_t piece) {
    int   found = 0;
    char *now   = malloc(1);
    memset(head, 0, sizeof *head);
    for (size_t have = 0; found == 0 && have < size;) {
        size_t more  = piece < size - have ? piece : size - have;
        char  *grown = malloc(have + more);
        memcpy(grown, now, have);
        memcpy(grown + have, *data + have, more);
        free(now);
        now = grown;
        have += more;
        found = fl_http_head_read(head, now, have);
    }
    free(*data);
    *data = now;
    return found;
}

/* ---- The letter of the rules --------------------------------------------------------------------- */

static bool is_token(const char *text) {
    for (const char *at = text; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr("!#$%&'*+-.^_`|~", *at) == NULL)
            return false;
    return text[0] != '\0';
}

static const char *only(const fl_http_head *head, const char *data, const char *name) {
    const char *found = NULL;
    for (uint32_t i = 0; i < head->count; i++) {
        if (strcasecmp(data + head->field[i].name, name) == 0) {
            must(found == NULL);
            found = data + head->field[i].value;
        }
    }
    return found;
}

/* `raw` is what came, before the reader wrote its NULs. */
static void check_passed(const fl_http_head *head, const char *data, const char *raw) {
    const char *length = only(head, data, "content-length");
    const char *coding = only(head, data, "transfer-encoding");
    const char *host   = only(head, data, "host");
    must(host != NULL || head->minor == 0);
    must(length == NULL || coding == NULL);
    must(coding == NULL || (strcasecmp(coding, "chunked") == 0 && head->length == UINT64_MAX));
    must(length != NULL || coding != NULL || head->length == 0);
    if (length != NULL) {
        must(length[0] != '\0' && strspn(length, "0123456789") == strlen(length));
        must(strtoull(length, NULL, 10) == head->length);
    }
    must(is_token(data + head->method) && data[head->path] != '\0');
    must(data[head->path] == '/' || strcmp(data + head->path, "*") == 0);
    must(strchr(data + head->path, '?') == NULL);
    for (uint32_t i = 0; i < head->count; i++) {
        must(is_token(data + head->field[i].name));
        for (const char *at = data + head->field[i].value; *at != '\0'; at++)
            must(*at == '\t' || !iscntrl((unsigned char)*at));
    }
    /* Lines end in CR LF and nowhere else, and the first empty one ends the head. */
    uint32_t lines = 0;
    for (uint32_t i = 0; i < head->size; i++) {
        must(raw[i] != '\0' && (raw[i] != '\n' || raw[i - 1] == '\r'));
        must(raw[i] != '\r' || raw[i + 1] == '\n');
        lines += raw[i] == '\n';
    }
    must(lines == head->count + 2 + head->skipped);
    must(memcmp(raw + head->size - 4, "\r\n\r\n", 4) == 0);
    must(memmem(raw + 2, head->size - 3, "\r\n\r\n", 4) == NULL);
}

/* ---- Chunks -------------------------------------------------------------------------------------- */

/* The body and where it ends, read by the letter; SIZE_MAX: not whole, or refused. */
static size_t slow_chunks(const char *data, size_t size, char *body, size_t *count) {
    size_t at = 0;
    *count    = 0;
    for (;;) {
        const char *end = memmem(data + at, size - at, "\r\n", 2);
        if (end == NULL || !isxdigit((unsigned char)data[at]))
            return SIZE_MAX;
        char              *rest;
        unsigned long long chunk = strtoull(data + at, &rest, 16); /* the data ends in NUL */
        if (*rest != ';' && *rest != '\r')
            return SIZE_MAX;
        at = (size_t)(end - data) + 2;
        if (chunk == 0)
            break;
        if (chunk > size - at || size - at - chunk < 2 || memcmp(data + at + chunk, "\r\n", 2) != 0)
            return SIZE_MAX;
        memcpy(body + *count, data + at, chunk);
        *count += chunk;
        at += chunk + 2;
    }
    for (;;) {
        const char *end = memmem(data + at, size - at, "\r\n", 2);
        if (end == NULL)
            return SIZE_MAX;
        bool empty = end == data + at;
        at         = (size_t)(end - data) + 2;
        if (empty)
            return at;
    }
}

static int read_chunks(const char *data, size_t size, size_t piece, char *body, size_t *count,
                       size_t *used) {
    fl_http_chunks chunks = {0};
    int            found  = FL_CHUNK_MORE;
    *count = *used = 0;
    for (size_t have = 0; found == FL_CHUNK_MORE && have < size;) {
        have += piece < size - have ? piece : size - have;
        do {
            size_t      through = 0, part = 0;
            const char *at = NULL;
            found = fl_http_chunks_read(&chunks, data + *used, have - *used, &through, &at, &part);
            if (found == FL_CHUNK_DATA) {
                must(at >= data && at + part <= data + have && part > 0);
                memcpy(body + *count, at, part);
                *count += part;
            }
            *used += through;
        } while (found == FL_CHUNK_DATA);
        must(found < 0 || found == FL_CHUNK_END || *used == have);
    }
    return found;
}

static void check_chunks(const char *data, size_t size, size_t piece) {
    char  *body[3] = {malloc(size + 1), malloc(size + 1), malloc(size + 1)};
    size_t count[3], used[2];
    int    whole  = read_chunks(data, size, size, body[0], &count[0], &used[0]);
    int    pieces = read_chunks(data, size, piece, body[1], &count[1], &used[1]);
    must(whole == pieces && count[0] == count[1] && memcmp(body[0], body[1], count[0]) == 0);
    if (whole == FL_CHUNK_END) {
        must(used[0] == used[1] && slow_chunks(data, size, body[2], &count[2]) == used[0]);
        must(count[0] == count[2] && memcmp(body[0], body[2], count[0]) == 0);
    }
    for (int i = 0; i < 3; i++)
        free(body[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fl_http_head whole, pieces;
    if (size < 2)
        return 0;
    size_t piece = (size_t)data[0] % 40 + 1;
    data++;
    size--;
    char *one = malloc(size + 1), *raw = malloc(size + 1), *two = malloc(size);
    memcpy(one, data, size);
    memcpy(raw, data, size);
    memcpy(two, data, size);
    one[size] = raw[size] = '\0';
    int found             = read_whole(&whole, one, size);
    must(found == read_pieces(&pieces, &two, size, piece) || found < 0);
    if (found == 1) {
        must(whole.size == pieces.size && whole.count == pieces.count &&
             whole.length == pieces.length);
        check_passed(&whole, one, raw);
        if (whole.chunked)
            check_chunks(raw + whole.size, size - whole.size, piece);
        const char *origin  = fl_http_header(&whole, one, "origin");
        const char *allowed = fl_cors_allowed("https://a.example, https://b.example", origin);
        must(allowed == NULL || strcmp(allowed, "https://a.example") == 0 ||
             strcmp(allowed, "https://b.example") == 0);
    } else {
        must(found == 0 || (found <= -400 && found > -600 && whole.fault != NULL));
    }
    check_chunks(raw, size, piece);
    free(one);
    free(raw);
    free(two);
    return 0;
}
