/* SPDX-License-Identifier: Apache-2.0 */
/* zip.h - an archive of one stored file, as numpy's .npz is: what stands before the file and after it. */
#ifndef FL_CLI_ZIP_H
#define FL_CLI_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { FL_ZIP_HEAD = 64 };

/* CRC-32 of more bytes after those of `crc` (0: none). */
uint32_t fl_zip_crc(uint32_t crc, const void *data, size_t size);

/* CRC-32 of `first` followed by bytes of `second` that are `size` long. */
uint32_t fl_zip_crc_join(uint32_t first, uint32_t second, uint64_t size);

/* The head of the file embeddings.npy of `size` bytes, and what ends the archive. */
void fl_zip_head(char out[FL_ZIP_HEAD], uint32_t crc, uint64_t size);
void fl_zip_end(fl_buf *out, uint32_t crc, uint64_t size);

#endif
