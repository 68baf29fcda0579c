/* SPDX-License-Identifier: Apache-2.0 */
/* neon.h - AArch64's Advanced SIMD for the kernels of wide/: vectors of 4, tiles of 6 rows x 1
 * panel.
 *
 * Tile     6 x 4 vectors are 24 accumulators; 6 registers hold four steps of A, whose lanes the
 *          FMAs pick, so that 96 FMAs need 16 loads of B and 6 of A. The two registers that are
 *          left hold B.
 * NaN      fmax and fmin return NaN when one operand is NaN. */
#ifndef FL_ENGINES_CPU_KERNELS_NEON_H
#define FL_ENGINES_CPU_KERNELS_NEON_H

#include <arm_neon.h>
#include <stddef.h>

enum { FL_VEC_LANES = 4, FL_WIDE_ROWS = 6, FL_WIDE_PANELS = 1 };
#define FL_WIDE_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef float32x4_t vec;
typedef int32x4_t   ivec;

#include "engines/cpu/kernels/wide/vector.h"

FL_INLINE vec vec_max(vec bound, vec x) {
    return vmaxq_f32(bound, x);
}
FL_INLINE vec vec_min(vec bound, vec x) {
    return vminq_f32(bound, x);
}
FL_INLINE vec vec_fma(vec a, vec b, vec c) {
    return vfmaq_f32(c, a, b);
}
FL_INLINE vec vec_round(vec a) {
    return vrndnq_f32(a);
}
/* As many signed bytes as there are lanes. */
FL_INLINE ivec ivec_bytes(const uint8_t *x) {
    uint32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)))));
}
/* And as many 16-bit numbers without a sign. */
FL_INLINE ivec ivec_halves(const uint8_t *x) {
    return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(x))));
}
/* p 2^n, n a whole number. */
FL_INLINE vec vec_scale_exponent(vec p, vec n) {
    int32x4_t power = vshlq_n_s32(vcvtnq_s32_f32(n), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), power));
}
/* By halves (lanes_sum); vaddvq adds neighbours. */
FL_INLINE float vec_sum(vec v) {
    float32x2_t s = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}
FL_INLINE float vec_highest(vec v) {
    return vmaxvq_f32(v);
}

/* One step of k: every row times lane `lane` of its a. */
#define STEP(lane)                                                                                 \
    FL_UNROLL for (int v = 0; v < 4; v++) {                                                        \
        vec y = vld1q_f32(b + v * FL_VEC_LANES);                                                   \
        FL_UNROLL for (int r = 0; r < rows; r++) {                                                 \
            acc[r][v] = vfmaq_laneq_f32(acc[r][v], y, x[r], lane);                                 \
        }                                                                                          \
    }                                                                                              \
    b += b_stride;

/* acc[r][·] += Σ_k a[r][k] b[k][0..15], k upwards; rows of b are b_stride apart. `rows` and
 * `fetching` are constants at every call, `panels` is 1. */
FL_INLINE void wide_chain(int rows, int panels, const float *a, size_t a_stride, const float *b,
                          size_t b_stride, size_t panel_stride, size_t k, vec acc[FL_WIDE_ROWS][4],
                          int fetching, const char *fetch, size_t fetch_step) {
    size_t step = 0;
    (void)panels, (void)panel_stride;
    for (; step + 4 <= k; step += 4) {
        vec x[FL_WIDE_ROWS];
        FL_UNROLL for (int r = 0; r < rows; r++) {
            x[r] = vld1q_f32(a + (size_t)r * a_stride + step);
        }
        if (fetching) { /* fetch_step is for one step of k, this loop does four */
            __builtin_prefetch(fetch);
            __builtin_prefetch(fetch + 2 * fetch_step);
            fetch += 4 * fetch_step;
        }
        STEP(0)
        STEP(1)
        STEP(2)
        STEP(3)
    }
    for (; step < k; step++) {
        vec x[FL_WIDE_ROWS];
        FL_UNROLL for (int r = 0; r < rows; r++) {
            x[r] = vld1q_dup_f32(a + (size_t)r * a_stride + step);
        }
        STEP(0)
    }
}
#undef STEP

#endif
