/* SPDX-License-Identifier: Apache-2.0 */
/* amx/bf16_amx.c - bf16 with AMX: tdpbf16ps multiplies a tile of 16 rows x 32 bfloat16 by one of
 * 32 x 16 and adds in float32. Sums go through memory to AVX-512, which adds C, bias and residual.
 *
 * Proof    fl-kernels test -o gemm_bf16 on a machine that has AMX. */
#include "engines/cpu/kernels/avx512/avx512.h"

enum { FL_A_BYTES = 2 };

#include "engines/cpu/kernels/wide/int_finish.h"

#define FL_TILE_SUM float
#define FL_TILE_DOT _tile_dpbf16ps

FL_INLINE void tile_finish(const fl_gemm *g, const tile_place *at, size_t p, size_t r,
                           const float *sums) {
    size_t to = p * FL_CPU_LANES;
    float *c  = at->c + r * g->c_stride + to;
    vec    y  = vec_load(sums);
    if (g->accumulate)
        y += vec_load(c);
    if (at->bias)
        y += vec_load(at->bias + to);
    if (at->residual)
        y += vec_load(at->residual + r * g->residual_stride + to);
    vec_store(c, y);
}

#include "engines/cpu/kernels/amx/tiles.h"

void fl_bf16_gemm_32x32_amx(const fl_gemm *g) {
    tile_gemm(g);
}
