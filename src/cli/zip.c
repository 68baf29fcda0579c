/* SPDX-License-Identifier: Apache-2.0 */
/* zip.c - a zip archive that holds one file, stored, of any size.
 *
 * Role    output.c writes .npz with it.
 * Formats APPNOTE.TXT 6.3: local header, the file, its entry in the directory, and the three records that
 *         end an archive. Sizes are always in the zip64 fields, since they are known when the rows are
 *         written and the head's length must not change then. The date is the first there is, so that
 *         the same texts give the same bytes.
 * Memory  none. Proof tests/cli/test_cli_output.py reads it with numpy and zipfile. */
#include "cli/zip.h"

#include <string.h>
#include <zlib.h>

static const char name[] = "embeddings.npy";

enum {
    NAME    = sizeof name - 1,
    EXTRA   = 20, /* zip64: id, length, two sizes */
    ENTRY   = 46 + NAME + EXTRA,
    END64   = 56,
    VERSION = 45,  /* zip64 */
    DATE    = 0x21 /* 1 January 1980 */
};

_Static_assert(FL_ZIP_HEAD == 30 + NAME + EXTRA, "the rows begin on a line of 64 bytes");

typedef struct writer {
    char  *out;
    size_t at;
} writer;

static void put(writer *w, unsigned bytes, uint64_t value) {
    for (unsigned i = 0; i < bytes; i++) {
        w->out[w->at++] = (char)(value >> 8 * i & 0xff);
    }
}

/* From "version needed" to the length of the extra field: the same in head and directory. */
static void put_facts(writer *w, uint32_t crc) {
    put(w, 2, VERSION);
    put(w, 4, 0); /* no flags, stored */
    put(w, 2, 0);
    put(w, 2, DATE);
    put(w, 4, crc);
    put(w, 8, UINT64_MAX); /* both sizes: in the extra field */
    put(w, 2, NAME);
    put(w, 2, EXTRA);
}

static void put_name(writer *w, uint64_t size) {
    memcpy(w->out + w->at, name, NAME);
    w->at += NAME;
    put(w, 2, 1);
    put(w, 2, EXTRA - 4);
    put(w, 8, size);
    put(w, 8, size);
}

uint32_t fl_zip_crc(uint32_t crc, const void *data, size_t size) {
    return (uint32_t)crc32_z(crc, data, size);
}

uint32_t fl_zip_crc_join(uint32_t first, uint32_t second, uint64_t size) {
    return (uint32_t)crc32_combine(first, second, (z_off_t)size);
}

void fl_zip_head(char out[FL_ZIP_HEAD], uint32_t crc, uint64_t size) {
    writer w = {out, 0};
    put(&w, 4, 0x04034b50);
    put_facts(&w, crc);
    put_name(&w, size);
}

void fl_zip_end(fl_buf *out, uint32_t crc, uint64_t size) {
    char     end[ENTRY + END64 + 20 + 22];
    writer   w     = {end, 0};
    uint64_t entry = FL_ZIP_HEAD + size;
    put(&w, 4, 0x02014b50);
    put(&w, 2, VERSION);
    put_facts(&w, crc);
    put(&w, 8, 0); /* comment, disk, internal attributes, and half of the external ones */
    put(&w, 2, 0);
    put(&w, 4, 0); /* where its head is */
    put_name(&w, size);
    put(&w, 4, 0x06064b50);
    put(&w, 8, END64 - 12);
    put(&w, 4, VERSION << 16 | VERSION);
    put(&w, 8, 0);
    put(&w, 8, 1);
    put(&w, 8, 1);
    put(&w, 8, ENTRY);
    put(&w, 8, entry);
    put(&w, 4, 0x07064b50);
    put(&w, 4, 0);
    put(&w, 8, entry + ENTRY);
    put(&w, 4, 1);
    put(&w, 4, 0x06054b50);
    put(&w, 4, 0);
    put(&w, 4, UINT32_MAX); /* the numbers are in the zip64 record */
    put(&w, 8, UINT64_MAX);
    put(&w, 2, 0);
    fl_buf_append(out, end, w.at);
}
