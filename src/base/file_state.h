/* SPDX-License-Identifier: Apache-2.0 */
/* file_state.h - whether a large file is what it was, without reading all of it; its hash, read once. */
#ifndef FL_BASE_FILE_STATE_H
#define FL_BASE_FILE_STATE_H

#include <stdint.h>

#include "fletch.h"

/* Without padding: it goes into keys byte by byte. */
typedef struct fl_file_state {
    uint64_t size, node;
    int64_t  written_ns, changed_ns; /* Unix time */
    uint64_t sample;                 /* checksum of some pages, from the first to the last */
} fl_file_state;

/* NULL, or why an open file cannot be told from what it may become: the system does not say when a file changed, it
 * cannot be read, or it changed a moment ago, so that its next change might get the same time. */
const char *fl_file_state_read(int fd, fl_file_state *out);

/* fl_file_sha256. That of a large file is kept in ~/.cache/fletch/sha256 and taken from there as long as the file is
 * what it was; where that folder cannot be written all of the file is read each time. */
int fl_file_sha256_kept(const char *path, char hex[65], fletch_error *error);

#endif
