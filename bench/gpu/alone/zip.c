/* SPDX-License-Identifier: Apache-2.0 */
/* zip.c - no .npz, for a build with FLETCH_MINIMAL=ON on a machine without zlib (see bench/gpu/README.md). */
#include "cli/zip.h"

#include <string.h>

uint32_t fl_zip_crc(uint32_t crc, const void *data, size_t size) {
    (void)data;
    (void)size;
    return crc;
}

uint32_t fl_zip_crc_join(uint32_t first, uint32_t second, uint64_t size) {
    (void)second;
    (void)size;
    return first;
}

size_t fl_zip_head_size(const char *name) {
    return strlen(name);
}

void fl_zip_head(char out[FL_ZIP_HEAD_MAX], const fl_zip_entry *entry) {
    memcpy(out, entry->name, strlen(entry->name));
}

void fl_zip_end(fl_buf *out, const fl_zip_entry *entries, size_t count) {
    (void)out;
    (void)entries;
    (void)count;
}
