/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_gemm.h - products of floats (gemm.h), whose chain is the instruction set's wide_chain: acc += Σ a b.
 *
 * bfloat16 comes this way too. A lane of a panel holds two steps of k of a column. Where an instruction
 * multiplies pairs and adds them in float32, a pair is as wide as a float, and that instruction takes the
 * place of the multiply-add. Elsewhere rows stay float32, and bf16_chain.h widens the weights. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_GEMM_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_GEMM_H

#include "engines/cpu/kernels/wide/wide.h"

FL_INLINE void tile_begin(int rows, int vecs, const fl_gemm *g, const float *c,
                          vec acc[FL_WIDE_ROWS][FL_WIDE_VECS]) {
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_UNROLL for (int v = 0; v < vecs; v++) {
            acc[r][v] = g->accumulate ? vec_load(c + (size_t)r * g->c_stride + v * FL_VEC_LANES)
                                      : vec_zero();
        }
    }
}

FL_INLINE void tile_end(int rows, int vecs, const fl_gemm *g, const tile_place *at,
                        vec acc[FL_WIDE_ROWS][FL_WIDE_VECS]) {
    if (at->bias) {
        FL_UNROLL for (int v = 0; v < vecs; v++) {
            vec bias = vec_load(at->bias + v * FL_VEC_LANES);
            FL_UNROLL for (int r = 0; r < rows; r++) {
                acc[r][v] += bias;
            }
        }
    }
    if (at->residual) {
        FL_UNROLL for (int r = 0; r < rows; r++) {
            const float *from = at->residual + (size_t)r * g->residual_stride;
            FL_UNROLL for (int v = 0; v < vecs; v++) {
                acc[r][v] += vec_load(from + v * FL_VEC_LANES);
            }
        }
    }
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_UNROLL for (int v = 0; v < vecs; v++) {
            vec_store(at->c + (size_t)r * g->c_stride + v * FL_VEC_LANES, acc[r][v]);
        }
    }
}

FL_INLINE void gemm_tile(int rows, int panels, const fl_gemm *g, const tile_place *at) {
    const float *a = (const float *)(const void *)at->a, *b = (const float *)(const void *)at->b;
    vec          acc[FL_WIDE_ROWS][FL_WIDE_VECS];
    tile_begin(rows, panels * FL_PANEL_VECS, g, at->c, acc);
    wide_chain(rows, panels, a, g->a_stride / sizeof *a, b, FL_CPU_LANES, g->b_stride / sizeof *b,
               g->k * FL_A_BYTES / sizeof *a, acc, 1, at->fetch, at->fetch_step);
    tile_end(rows, panels * FL_PANEL_VECS, g, at, acc);
}

#include "engines/cpu/kernels/wide/gemm.h"

#endif
