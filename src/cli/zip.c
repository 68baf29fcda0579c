/* SPDX-License-Identifier: Apache-2.0 */
/* zip.c - a zip archive that holds files of any size, stored.
 *
 * Role    output.c writes .npz with it.
 * Formats APPNOTE.TXT 6.3: local header and file of each, their entries in the directory, and the three
 *         records that end an archive. Sizes and places are always in the zip64 fields, since they are
 *         known when the rows are written and the head's length must not change then. The date is the
 *         first there is, so that the same texts give the same bytes.
 * Memory  none. Proof tests/cli/test_cli_output.py reads it with numpy and zipfile. */
#include "cli/zip.h"

#include <string.h>
#include <zlib.h>

enum {
    EXTRA   = 20, /* zip64: id, length, two sizes */
    PLACED  = 28, /* and a place, in the directory */
    HEAD    = 30,
    ENTRY   = 46,
    END64   = 56,
    VERSION = 45,  /* zip64 */
    DATE    = 0x21 /* 1 January 1980 */
};

typedef struct writer {
    char  *out;
    size_t at;
} writer;

static void put(writer *w, unsigned bytes, uint64_t value) {
    for (unsigned i = 0; i < bytes; i++)
        w->out[w->at++] = (char)(value >> 8 * i & 0xff);
}

/* From "version needed" to the length of the extra field, in head and directory. */
static void put_facts(writer *w, const fl_zip_entry *entry, unsigned extra) {
    put(w, 2, VERSION);
    put(w, 4, 0); /* no flags, stored */
    put(w, 2, 0);
    put(w, 2, DATE);
    put(w, 4, entry->crc);
    put(w, 8, UINT64_MAX); /* both sizes: in the extra field */
    put(w, 2, strlen(entry->name));
    put(w, 2, extra);
}

static void put_name(writer *w, const fl_zip_entry *entry, unsigned extra) {
    size_t size = strlen(entry->name);
    memcpy(w->out + w->at, entry->name, size);
    w->at += size;
    put(w, 2, 1);
    put(w, 2, extra - 4);
    put(w, 8, entry->size);
    put(w, 8, entry->size);
}

uint32_t fl_zip_crc(uint32_t crc, const void *data, size_t size) {
    return size == 0 ? crc : (uint32_t)crc32_z(crc, data, size); /* of NULL it gives a first one */
}

uint32_t fl_zip_crc_join(uint32_t first, uint32_t second, uint64_t size) {
    return (uint32_t)crc32_combine(first, second, (z_off_t)size);
}

size_t fl_zip_head_size(const char *name) {
    return HEAD + strlen(name) + EXTRA;
}

void fl_zip_head(char out[FL_ZIP_HEAD_MAX], const fl_zip_entry *entry) {
    writer w = {out, 0};
    put(&w, 4, 0x04034b50);
    put_facts(&w, entry, EXTRA);
    put_name(&w, entry, EXTRA);
}

static size_t put_entry(fl_buf *out, const fl_zip_entry *entry) {
    char   text[ENTRY + FL_ZIP_NAME_MAX + PLACED];
    writer w = {text, 0};
    put(&w, 4, 0x02014b50);
    put(&w, 2, VERSION);
    put_facts(&w, entry, PLACED);
    put(&w, 8, 0); /* comment, disk, internal attributes, and half of the external ones */
    put(&w, 2, 0);
    put(&w, 4, UINT32_MAX); /* where its head is: in the extra field */
    put_name(&w, entry, PLACED);
    put(&w, 8, entry->at);
    fl_buf_append(out, text, w.at);
    return w.at;
}

void fl_zip_end(fl_buf *out, const fl_zip_entry *entries, size_t count) {
    char                end[END64 + 20 + 22];
    writer              w     = {end, 0};
    const fl_zip_entry *last  = &entries[count - 1];
    uint64_t            place = last->at + fl_zip_head_size(last->name) + last->size, size = 0;
    for (size_t i = 0; i < count; i++)
        size += put_entry(out, &entries[i]);
    put(&w, 4, 0x06064b50);
    put(&w, 8, END64 - 12);
    put(&w, 4, VERSION << 16 | VERSION);
    put(&w, 8, 0);
    put(&w, 8, count);
    put(&w, 8, count);
    put(&w, 8, size);
    put(&w, 8, place);
    put(&w, 4, 0x07064b50);
    put(&w, 4, 0);
    put(&w, 8, place + size);
    put(&w, 4, 1);
    put(&w, 4, 0x06054b50);
    put(&w, 4, 0);
    put(&w, 4, UINT32_MAX); /* the numbers are in the zip64 record */
    put(&w, 8, UINT64_MAX);
    put(&w, 2, 0);
    fl_buf_append(out, end, w.at);
}
