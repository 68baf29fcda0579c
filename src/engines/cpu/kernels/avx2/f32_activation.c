/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/f32_activation.c - activations, gates, norms and rotary positions of wide/ on vectors of 8. */
#include "engines/cpu/kernels/avx2/vec.h"

#include "engines/cpu/kernels/wide/f32_activation.h"
#include "engines/cpu/kernels/wide/f32_norm.h"
#include "engines/cpu/kernels/wide/f32_rows.h"

#define BOTH(name)                                                                                 \
    void fl_f32_##name##_avx2(float *x, size_t stride, size_t rows, size_t cols) {                 \
        wide_##name(x, stride, rows, cols);                                                        \
    }                                                                                              \
    void fl_f32_gate_##name##_avx2(const fl_gating *at) {                                          \
        wide_gate_##name(at);                                                                      \
    }
BOTH(gelu_erf)
BOTH(gelu_tanh)
BOTH(silu)
BOTH(relu)
#undef BOTH

void fl_f32_layer_norm_avx2(const fl_row_norm *norm) {
    wide_layer_norm(norm);
}

void fl_f32_rms_norm_avx2(const fl_row_norm *norm) {
    wide_rms_norm(norm);
}

void fl_f32_rotate_avx2(const fl_rotation *at) {
    wide_rotate(at);
}
