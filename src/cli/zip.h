/* SPDX-License-Identifier: Apache-2.0 */
/* zip.h - an archive of stored files, as numpy's .npz is: what stands before each file and at the end. */
#ifndef FL_CLI_ZIP_H
#define FL_CLI_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { FL_ZIP_NAME_MAX = 14, FL_ZIP_HEAD_MAX = 50 + FL_ZIP_NAME_MAX };

typedef struct fl_zip_entry {
    const char *name; /* "embeddings.npy": at most FL_ZIP_NAME_MAX */
    uint32_t    crc;
    uint64_t    size;
    uint64_t    at; /* where its head begins */
} fl_zip_entry;

/* CRC-32 of more bytes after those of `crc` (0: none). */
uint32_t fl_zip_crc(uint32_t crc, const void *data, size_t size);

/* CRC-32 of `first` followed by bytes of `second` that are `size` long. */
uint32_t fl_zip_crc_join(uint32_t first, uint32_t second, uint64_t size);

/* The head of a file, and its size, which depends on the name alone. */
size_t fl_zip_head_size(const char *name);
void   fl_zip_head(char out[FL_ZIP_HEAD_MAX], const fl_zip_entry *entry);

/* What ends the archive: the directory of its files, which stand in this order. */
void fl_zip_end(fl_buf *out, const fl_zip_entry *entries, size_t count);

#endif
