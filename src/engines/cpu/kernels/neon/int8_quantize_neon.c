/* SPDX-License-Identifier: Apache-2.0 */
/* neon/int8_quantize_neon.c - rows of floats become bytes, a scale and a zero each.
 *
 * Two passes over a row that is in L1: the range, then the rounding, with the operations of
 * ref/narrow.c in its order. Whether all values are finite comes out of the first pass: as integers,
 * the absolute values of infinity and NaN are greater than all others. */
#include <math.h>
#include <stdbool.h>

#include "engines/cpu/kernels/neon/neon.h"
#include "engines/cpu/kernels/neon/neon_tables.h"

FL_INLINE vec moved(const fl_quantize *z, const float *x, size_t i) {
    vec y = vld1q_f32(x + i);
    return z->gain ? vmulq_f32(y, vld1q_f32(z->gain + i)) : y;
}

static void quantize_row(const fl_quantize *z, size_t r) {
    const float *x   = z->x + r * z->x_stride;
    uint8_t     *q   = (uint8_t *)z->q + r * z->q_stride;
    vec          low = vdupq_n_f32(0.0f), high = low;
    uint32x4_t   most = vdupq_n_u32(0);
    for (size_t i = 0; i < z->n; i += FL_VEC_LANES) {
        vec y = moved(z, x, i);
        low   = vminq_f32(low, y);
        high  = vmaxq_f32(high, y);
        most  = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(y)));
    }
    bool    finite  = vmaxvq_u32(most) < 0x7f800000u;
    float   width   = finite ? vmaxvq_f32(high) - vminvq_f32(low) : 0.0f;
    bool    any     = width >= FL_CPU_Q8_TINY;
    float   inverse = any ? 255.0f / width : 0.0f;
    float   zero    = finite ? rintf(-vminvq_f32(low) * inverse) : 0.0f;
    int32_t lift    = zero > 255.0f ? 255 : (int32_t)zero;
    z->scale[r]     = !finite ? NAN : any ? width * (1.0f / 255.0f) : 1.0f;
    z->zero[r]      = lift;
    for (size_t i = 0; i < z->n; i += FL_CPU_LANES) {
        int16x4_t part[4];
        FL_UNROLL for (size_t v = 0; v < 4; v++) {
            int32x4_t n = vcvtnq_s32_f32(vmulq_n_f32(moved(z, x, i + v * FL_VEC_LANES), inverse));
            part[v]     = vqmovn_s32(vaddq_s32(n, vdupq_n_s32(lift)));
        }
        uint8x8_t first = vqmovun_s16(vcombine_s16(part[0], part[1]));
        vst1q_u8(q + i, vcombine_u8(first, vqmovun_s16(vcombine_s16(part[2], part[3]))));
    }
}

void fl_q8_quantize_neon(const fl_quantize *z) {
    for (size_t r = 0; r < z->rows; r++) {
        quantize_row(z, r);
    }
}
