/* SPDX-License-Identifier: Apache-2.0 */
/* expand.h - compressed bytes to plain ones, a block at a time. */
#ifndef FL_CLI_EXPAND_H
#define FL_CLI_EXPAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

typedef enum fl_packing { FL_PACKING_NONE, FL_PACKING_GZIP, FL_PACKING_ZSTD } fl_packing;

enum { FL_BLOCK = 128 * 1024 };

/* The file's bytes on their way: read a block at a time. */
typedef struct fl_packed {
    int         fd;
    const char *name;
    char       *data; /* owned [FL_BLOCK] */
    size_t      begin, end;
    uint64_t    taken; /* bytes read so far */
    bool        ended;
} fl_packed;

typedef struct fl_expand {
    fl_packing packing;
    void      *state;  /* owned; zlib's or zstd's */
    bool       inside; /* a member or frame has begun and not ended */
    bool       began;  /* there was one */
    bool       full;   /* the last read took all room: more may be ready */
} fl_expand;

/* Read once when nothing is held: 1, or 0 at the end of the file, or a negative status. */
int fl_packed_fill(fl_packed *packed, fletch_error *error);

int  fl_expand_open(fl_expand *expand, fl_packing packing, fletch_error *error);
void fl_expand_close(fl_expand *expand); /* idempotent */

/* At most `room` expanded bytes: their number, 0 at the end, negative on failure. A file that ends inside
 * its compressed data is a failure. */
int64_t fl_expand_read(fl_expand *expand, fl_packed *packed, char *out, size_t room,
                       fletch_error *error);

#endif
