/* SPDX-License-Identifier: Apache-2.0 */
/* neon/int8_dot.c - int8 with the dot products of Armv8.2: sdot adds four products of signed bytes
 * to each of four sums, and picks the four bytes of A from a lane.
 *
 * Activations are unsigned; with their top bit turned they are signed and 128 less, which the sums
 * of the columns put right (wide/int_finish.h). */
#include "engines/cpu/kernels/narrow.h"
#include "engines/cpu/kernels/neon/neon.h"
#include "engines/cpu/kernels/wide/wide.h"

enum { FL_DOT_ZERO = 128, FL_A_BYTES = 1 };

/* One group of four k: every row times lane `lane` of its a. */
#define STEP(lane)                                                                                 \
    FL_UNROLL for (int v = 0; v < 4; v++) {                                                        \
        int8x16_t y = vreinterpretq_s8_u8(vld1q_u8(b + v * 16));                                   \
        FL_UNROLL for (int r = 0; r < rows; r++) {                                                 \
            acc[r][v] = (vec)vdotq_laneq_s32((ivec)acc[r][v], y, x[r], lane);                      \
        }                                                                                          \
    }                                                                                              \
    b += (size_t)4 * FL_CPU_LANES;

/* acc[r][·] += Σ_k (a[r][k] - 128) b[k]; k a multiple of 16; `rows` is a constant, `panels` is 1. */
FL_INLINE void lane_dot(int rows, int panels, const fl_gemm *g, const tile_place *at,
                        vec acc[FL_WIDE_ROWS][4]) {
    const uint8_t *b     = at->b;
    const char    *fetch = at->fetch;
    (void)panels;
    for (size_t step = 0; step < g->k; step += 16) {
        int8x16_t x[FL_WIDE_ROWS];
        __builtin_prefetch(fetch);
        __builtin_prefetch(fetch + 2 * at->fetch_step);
        fetch += 4 * at->fetch_step;
        FL_UNROLL for (int r = 0; r < rows; r++) {
            uint8x16_t raw = vld1q_u8(at->a + (size_t)r * g->a_stride + step);
            x[r]           = vreinterpretq_s8_u8(veorq_u8(raw, vdupq_n_u8(0x80)));
        }
        STEP(0)
        STEP(1)
        STEP(2)
        STEP(3)
    }
}
#undef STEP
#define wide_dot lane_dot

#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q8_gemm_6x16_neondot(const fl_gemm *g) {
    wide_gemm(g);
}
