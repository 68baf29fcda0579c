/* SPDX-License-Identifier: Apache-2.0 */
/* wide/bf16_chain.h - what f32_gemm.h takes for its chain when weights are bfloat16 and rows float32. A lane of a
 * panel holds two steps of k of a column, the even one in its lower half: shifted up or masked it is that weight
 * in float32. The chain of FMAs (FL_ADD_PRODUCT) is that of float32, so these are ref's bits. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_BF16_CHAIN_H
#define FL_ENGINES_CPU_KERNELS_WIDE_BF16_CHAIN_H

#include "engines/cpu/kernels/wide/wide.h"

/* acc[r][v] += Σ_k a[r][k] b[v][k], k upwards and even; `rows` and `panels` are constants at every
 * call. */
FL_INLINE void bf16_chain(int rows, int panels, const float *a, size_t a_stride, const float *b,
                          size_t b_stride, size_t panel_stride, size_t k,
                          vec acc[FL_WIDE_ROWS][FL_WIDE_VECS], int fetching, const char *fetch,
                          size_t fetch_step) {
    (void)fetching;
    for (size_t step = 0; step < k; step += 2, b += b_stride) {
        __builtin_prefetch(fetch);
        fetch += 2 * fetch_step;
        FL_UNROLL for (int odd = 0; odd < 2; odd++) {
            vec y[FL_WIDE_VECS];
            FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
                ivec pair = ivec_load(b + (size_t)(v / FL_PANEL_VECS) * panel_stride +
                                      (size_t)(v % FL_PANEL_VECS) * FL_VEC_LANES);
                y[v]      = (vec)(odd ? pair & (int32_t)0xffff0000u : pair << 16);
            }
            FL_UNROLL for (int r = 0; r < rows; r++) {
                vec x = vec_set(a[(size_t)r * a_stride + step + (size_t)odd]);
                FL_UNROLL for (int v = 0; v < panels * FL_PANEL_VECS; v++) {
                    FL_ADD_PRODUCT(acc[r][v], x, y[v]);
                }
            }
        }
    }
}

#define wide_chain bf16_chain

#endif
