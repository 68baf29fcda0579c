/* SPDX-License-Identifier: Apache-2.0 */
/* expand.c - no gzip and no zstd, for a build with FLETCH_MINIMAL=ON on a machine without zlib and libzstd
 * (see bench/gpu/README.md). */
#include "cli/expand.h"

#include "base/error.h"

int fl_packed_fill(fl_packed *packed, fletch_error *error) {
    (void)error;
    return packed->begin < packed->end;
}

int fl_expand_open(fl_expand *expand, fl_packing packing, fletch_error *error) {
    (void)expand;
    (void)packing;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "this build expands no compressed input (FLETCH_MINIMAL)");
}

void fl_expand_close(fl_expand *expand) {
    (void)expand;
}

int64_t fl_expand_read(fl_expand *expand, fl_packed *packed, char *out, size_t room,
                       fletch_error *error) {
    (void)expand;
    (void)packed;
    (void)out;
    (void)room;
    (void)error;
    return 0;
}
