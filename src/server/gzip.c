/* SPDX-License-Identifier: Apache-2.0 */
/* gzip.c - a large reply made smaller for a client that accepts it.
 *
 * Role    http_request.c hands over a reply that stands, on a worker, before its connection is woken.
 * Method  zlib's fastest level: vectors as text lose about half, and more work gains little. Nothing here may
 *         fail a reply: where there is no memory, no gain or nobody waiting any more, it goes out as it is.
 *         Below server.compress, and for who does not ask, none of this runs.
 * Memory  A second buffer of at most the reply's size, counted as a reply; the first is freed.
 * Threads A worker. Proof tests/server/test_gzip.py. */
#include <assert.h>
#include <string.h>
#include <strings.h>
#define ZLIB_CONST
#include <zlib.h>

#include "base/mem.h"
#include "server/server_internal.h"

enum { FASTEST = 1, GZIP = 16 + MAX_WBITS, MEMORY = 8, STEP = 1 << 20 };

/* Whether an item of Accept-Encoding ("gzip;q=0.5") has a weight above 0. */
static bool is_wanted(const char *item, size_t size) {
    const char *weight = memchr(item, ';', size);
    if (weight == NULL)
        return true;
    const char *end = item + size;
    for (; weight < end && *weight != '='; weight++) {
    }
    for (; weight < end; weight++) /* any digit but 0 in "=0.5" */
        if (*weight >= '1' && *weight <= '9')
            return true;
    return false;
}

bool fl_gzip_accepted(const char *accept) {
    bool any = false;
    for (const char *at = accept; at != NULL && *at != '\0';) {
        at += strspn(at, ", \t");
        size_t size = strcspn(at, ","), name = strcspn(at, ",; \t");
        if ((name == 4 && strncasecmp(at, "gzip", 4) == 0) ||
            (name == 6 && strncasecmp(at, "x-gzip", 6) == 0))
            return is_wanted(at, size);
        any |= name == 1 && *at == '*' && is_wanted(at, size);
        at += size;
    }
    return any;
}

static void *zlib_alloc(void *user, unsigned count, unsigned size) {
    (void)user;
    return fl_alloc_array(count, size);
}

static void zlib_free(void *user, void *block) {
    (void)user;
    fl_free(block);
}

bool fl_gzip_pack(const fl_http_request *request, const void *data, size_t size, fl_buf *out) {
    assert(data || size == 0);
    z_stream zlib   = {.zalloc = zlib_alloc, .zfree = zlib_free};
    int      status = Z_OK;
    size_t   room   = size - 1; /* as many would be no gain */
    if (size == 0 || !fl_buf_reserve(out, size) ||
        deflateInit2(&zlib, FASTEST, Z_DEFLATED, GZIP, MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    zlib.next_in  = (const Bytef *)data;
    zlib.next_out = (Bytef *)out->data;
    for (size_t taken = 0, step;
         status == Z_OK && (request == NULL || fl_request_over(request, NULL) == FLETCH_OK);
         taken += step) {
        step           = size - taken < STEP ? size - taken : STEP;
        size_t free    = room - zlib.total_out;
        zlib.avail_in  = (uInt)step;
        zlib.avail_out = (uInt)(free < UINT32_MAX ? free : UINT32_MAX);
        status         = deflate(&zlib, taken + step == size ? Z_FINISH : Z_NO_FLUSH);
        status         = zlib.avail_in == 0 ? status : Z_BUF_ERROR;
    }
    out->size = zlib.total_out;
    (void)deflateEnd(&zlib);
    return status == Z_STREAM_END;
}
