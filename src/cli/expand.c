/* SPDX-License-Identifier: Apache-2.0 */
/* expand.c - gzip by zlib and zstd by libzstd, streaming.
 *
 * Role    stream.c reads packed files through here.
 * Method  Members of a gzip file and frames of a zstd file follow each other (`cat a.gz b.gz`, bgzip,
 *         pigz, pzstd); zero bytes after the last gzip member are padding of tapes and ignored, anything
 *         else there is an error. The end of the file inside a member is one too: a download that broke
 *         off must not pass as a short file.
 * Memory  zlib's 32 KiB window, or zstd's of at most 128 MiB. Proof tests/cli/test_cli_packed.py. */
#include "cli/expand.h"

#include <errno.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/error.h"
#include "base/mem.h"
#include "cli/cli.h"

enum { ROOM_MAX = 1 << 30, GZIP_ONLY = 16 + MAX_WBITS };

int fl_packed_fill(fl_packed *packed, fletch_error *error) {
    if (packed->begin < packed->end)
        return 1;
    if (packed->ended)
        return 0;
    if (packed->data == NULL && (packed->data = fl_alloc(FL_BLOCK)) == NULL)
        return fl_fail_nomem(error, FL_BLOCK, "the input buffer");
    const ssize_t count = fl_signals_read(packed->fd, packed->data, FL_BLOCK);
    if (count < 0)
        return fl_fail_errno(error, errno, "cannot read", packed->name);
    packed->begin = 0;
    packed->end   = (size_t)count;
    packed->ended = count == 0;
    packed->taken += (uint64_t)count;
    return count > 0;
}

static void *zlib_alloc(void *user, unsigned count, unsigned size) {
    (void)user;
    return fl_alloc_array(count, size);
}

static void zlib_free(void *user, void *block) {
    (void)user;
    fl_free(block);
}

int fl_expand_open(fl_expand *expand, fl_packing packing, fletch_error *error) {
    *expand = (fl_expand){.packing = packing};
    if (packing == FL_PACKING_GZIP) {
        z_stream *zlib = fl_alloc_zero(1, sizeof *zlib);
        if (zlib != NULL) {
            zlib->zalloc = zlib_alloc;
            zlib->zfree  = zlib_free;
            if (inflateInit2(zlib, GZIP_ONLY) != Z_OK) {
                fl_free(zlib);
                zlib = NULL;
            }
        }
        expand->state = zlib;
    } else if (packing == FL_PACKING_ZSTD) {
        expand->state = ZSTD_createDStream();
    }
    return packing == FL_PACKING_NONE || expand->state != NULL
               ? 0
               : fl_fail_nomem(error, FL_BLOCK, "expanding the input");
}

void fl_expand_close(fl_expand *expand) {
    if (expand->packing == FL_PACKING_GZIP && expand->state != NULL) {
        (void)inflateEnd(expand->state);
        fl_free(expand->state);
    } else if (expand->packing == FL_PACKING_ZSTD) {
        (void)ZSTD_freeDStream(expand->state);
    }
    *expand = (fl_expand){0};
}

static int fail_cut_off(const fl_packed *packed, const char *packing, fletch_error *error) {
    return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                   "%s: the %s data is truncated; get the file again", packed->name, packing);
}

/* Between members: 1 another one follows, 0 the end, or a negative status. */
static int next_member(fl_expand *expand, fl_packed *packed, fletch_error *error) {
    for (;;) {
        const int more = fl_packed_fill(packed, error);
        if (more <= 0)
            return more;
        if (!expand->began || packed->data[packed->begin] == '\x1f')
            break;
        if (packed->data[packed->begin] != '\0')
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                           "%s: trailing data after the gzip data", packed->name);
        packed->begin++;
    }
    expand->began = expand->inside = true;
    (void)inflateReset(expand->state);
    return 1;
}

static int64_t read_gzip(fl_expand *expand, fl_packed *packed, char *out, size_t room,
                         fletch_error *error) {
    z_stream *zlib  = expand->state;
    zlib->next_out  = (Bytef *)out;
    zlib->avail_out = (uInt)room;
    while (zlib->avail_out == room) {
        int more =
            expand->inside ? fl_packed_fill(packed, error) : next_member(expand, packed, error);
        if (more <= 0)
            return more == 0 && expand->inside ? fail_cut_off(packed, "gzip", error) : more;
        zlib->next_in    = (Bytef *)packed->data + packed->begin;
        zlib->avail_in   = (uInt)(packed->end - packed->begin);
        const int status = inflate(zlib, Z_NO_FLUSH);
        packed->begin    = packed->end - zlib->avail_in;
        expand->inside   = status != Z_STREAM_END;
        if (status == Z_MEM_ERROR)
            return fl_fail_nomem(error, FL_BLOCK, "expanding the input");
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s: corrupt gzip data: %s",
                           packed->name, zlib->msg != NULL ? zlib->msg : "not understood");
    }
    return (int64_t)(room - zlib->avail_out);
}

static int fail_zstd(const fl_packed *packed, size_t status, fletch_error *error) {
    switch (ZSTD_getErrorCode(status)) {
    case ZSTD_error_memory_allocation: return fl_fail_nomem(error, FL_BLOCK, "expanding the input");
    case ZSTD_error_frameParameter_windowTooLarge:
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                       "%s was compressed with a window of more than 128 MiB; decompress it first: "
                       "zstd -d --long=31 %s",
                       packed->name, packed->name);
    default:
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s: corrupt zstd data: %s", packed->name,
                       ZSTD_getErrorName(status));
    }
}

static int64_t read_zstd(fl_expand *expand, fl_packed *packed, char *out, size_t room,
                         fletch_error *error) {
    ZSTD_outBuffer to = {out, room, 0};
    while (to.pos == 0) {
        const int more = fl_packed_fill(packed, error);
        if (more < 0 || (more == 0 && !expand->inside))
            return more;
        ZSTD_inBuffer from   = {packed->data, packed->end, packed->begin};
        const size_t  status = ZSTD_decompressStream(expand->state, &to, &from);
        if (ZSTD_isError(status))
            return fail_zstd(packed, status, error);
        packed->begin  = from.pos;
        expand->inside = status != 0;
        if (more == 0 && to.pos == 0)
            return expand->inside ? fail_cut_off(packed, "zstd", error) : 0;
    }
    return (int64_t)to.pos;
}

int64_t fl_expand_read(fl_expand *expand, fl_packed *packed, char *out, size_t room,
                       fletch_error *error) {
    room                = room < ROOM_MAX ? room : ROOM_MAX;
    const int64_t count = expand->packing == FL_PACKING_GZIP
                              ? read_gzip(expand, packed, out, room, error)
                              : read_zstd(expand, packed, out, room, error);
    expand->full        = count == (int64_t)room;
    return count;
}
