/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/f32.c - the table of the AVX-512 kernels: those of wide/ on vectors of 16. */
#include "engines/cpu/kernels/avx512/avx512.h"

#include "engines/cpu/kernels/wide/f32_activation.h"
#include "engines/cpu/kernels/wide/f32_attention.h"
#include "engines/cpu/kernels/wide/f32_gemm.h"
#include "engines/cpu/kernels/wide/f32_norm.h"

const fl_cpu_kernels fl_cpu_kernels_avx512 = {
    .isa        = "avx512",
    .name       = "AVX-512, 12x32 tiles",
    .gemm       = wide_gemm,
    .attention  = wide_attention,
    .layer_norm = wide_layer_norm,
    .activation = {[FL_ACT_GELU_ERF]  = wide_gelu_erf,
                   [FL_ACT_GELU_TANH] = wide_gelu_tanh,
                   [FL_ACT_SILU]      = wide_silu,
                   [FL_ACT_RELU]      = wide_relu},
};
