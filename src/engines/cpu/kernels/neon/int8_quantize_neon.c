/* SPDX-License-Identifier: Apache-2.0 */
/* neon/int8_quantize_neon.c - rows of floats become bytes, on vectors of 4. */
#include "engines/cpu/kernels/narrow.h"
#include "engines/cpu/kernels/neon/neon.h"

FL_INLINE ivec ivec_max(ivec a, ivec b) {
    return vmaxq_s32(a, b);
}
FL_INLINE ivec ivec_over(ivec a, ivec b) {
    return vreinterpretq_s32_u32(vmaxq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
FL_INLINE int32_t ivec_highest(ivec a) {
    return vmaxvq_s32(a);
}
FL_INLINE uint32_t ivec_topmost(ivec a) {
    return vmaxvq_u32(vreinterpretq_u32_s32(a));
}

#include "engines/cpu/kernels/wide/int_quantize.h"

FL_INLINE void round_bytes(const vec y[FL_PANEL_VECS], int32_t zero, void *q) {
    int16x4_t part[FL_PANEL_VECS];
    FL_UNROLL for (size_t v = 0; v < FL_PANEL_VECS; v++) {
        part[v] = vqmovn_s32(vaddq_s32(vcvtnq_s32_f32(y[v]), vdupq_n_s32(zero)));
    }
    uint8x8_t first = vqmovun_s16(vcombine_s16(part[0], part[1]));
    vst1q_u8(q, vcombine_u8(first, vqmovun_s16(vcombine_s16(part[2], part[3]))));
}

void fl_q8_quantize_neon(const fl_quantize *z) {
    wide_quantize(z, sizeof(uint8_t), measure_bytes, round_bytes);
}
