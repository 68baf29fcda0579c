/* SPDX-License-Identifier: Apache-2.0 */
/* amx/int8_amx.c - int8 with AMX: tdpbusd multiplies a tile of 16 rows x 64 bytes by one of 64 x 16,
 * 16,384 multiply-adds.
 *
 * Sums     go through memory to AVX-512, which finishes them as VNNI does (wide/int_finish.h).
 * Asking   Linux gives tile registers to a process that asks (fl_os_amx), once, for all its
 *          threads; dispatch.c asks before it offers this table.
 * Proof    fl-kernels test -o gemm_q8 on a machine that has AMX. */
#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 1 };

#include "engines/cpu/kernels/wide/int_finish.h"

#define FL_TILE_SUM int32_t
#define FL_TILE_DOT _tile_dpbusd

FL_INLINE void tile_finish(const fl_gemm *g, const tile_place *at, size_t p, size_t r,
                           const int32_t *sums) {
    int_finish(g, at, at->b + p * g->b_stride, (int)r, 0, p * FL_CPU_LANES, ivec_load(sums));
}

#include "engines/cpu/kernels/amx/tiles.h"

void fl_q8_gemm_32x32_amx(const fl_gemm *g) {
    tile_gemm(g);
}
