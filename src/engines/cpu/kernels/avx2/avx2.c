/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.c - the tables of the AVX2 + FMA kernels: alone, and with AVX-VNNI for integers. */
#include "engines/cpu/kernels/avx2/avx2.h"

/* What the tables have in common. */
#define FL_TABLE_F32                                                                               \
    .panels = 1, .gemm = fl_f32_gemm_6x16_avx2, .attention = fl_f32_attention_6x16_avx2,           \
    .layer_norm = fl_f32_layer_norm_avx2, .rms_norm = fl_f32_rms_norm_avx2,                        \
    .rotate     = fl_f32_rotate_avx2,                                                              \
    .activation = {[FL_ACT_GELU_ERF]  = fl_f32_gelu_erf_avx2,                                      \
                   [FL_ACT_GELU_TANH] = fl_f32_gelu_tanh_avx2,                                     \
                   [FL_ACT_SILU]      = fl_f32_silu_avx2,                                          \
                   [FL_ACT_RELU]      = fl_f32_relu_avx2}

#define FL_TABLE_GATES                                                                             \
    .gating = {[FL_ACT_GELU_ERF]  = fl_f32_gate_gelu_erf_avx2,                                     \
               [FL_ACT_GELU_TANH] = fl_f32_gate_gelu_tanh_avx2,                                    \
               [FL_ACT_SILU]      = fl_f32_gate_silu_avx2,                                         \
               [FL_ACT_RELU]      = fl_f32_gate_relu_avx2}

const fl_cpu_kernels fl_cpu_kernels_avx2 = {
    .isa  = "avx2",
    .name = "AVX2 + FMA, 6x16 tiles",
    FL_TABLE_F32,
    FL_TABLE_GATES,
    .narrow = {[FL_CPU_INT8]  = {fl_q8_quantize_avx2, fl_q8_gemm_4x16_avx2, 4},
               [FL_CPU_INT16] = {fl_q16_quantize_avx2, fl_q16_gemm_6x16_avx2, .pays = true},
               [FL_CPU_BF16]  = {NULL, fl_bf16_gemm_6x16_avx2, 0}},
};

const fl_cpu_kernels fl_cpu_kernels_avxvnni = {
    .isa  = "avxvnni",
    .name = "AVX2 + FMA + AVX-VNNI, 6x16 tiles",
    FL_TABLE_F32,
    FL_TABLE_GATES,
    .narrow = {[FL_CPU_INT8]  = {fl_q8_quantize_avx2, fl_q8_gemm_6x16_avxvnni, 1},
               [FL_CPU_INT16] = {fl_q16_quantize_avx2, fl_q16_gemm_6x16_avxvnni, .pays = true},
               [FL_CPU_BF16]  = {NULL, fl_bf16_gemm_6x16_avx2, 0}},
};
