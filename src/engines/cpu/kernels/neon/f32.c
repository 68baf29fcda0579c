/* SPDX-License-Identifier: Apache-2.0 */
/* neon/f32.c - the table of the NEON kernels: those of wide/ on vectors of 4. */
#include "engines/cpu/kernels/neon/neon.h"

#include "engines/cpu/kernels/wide/f32_activation.h"
#include "engines/cpu/kernels/wide/f32_attention.h"
#include "engines/cpu/kernels/wide/f32_gemm.h"
#include "engines/cpu/kernels/wide/f32_norm.h"

const fl_cpu_kernels fl_cpu_kernels_neon = {
    .isa        = "neon",
    .name       = "NEON, 6x16 tiles",
    .gemm       = wide_gemm,
    .attention  = wide_attention,
    .layer_norm = wide_layer_norm,
    .activation = {[FL_ACT_GELU_ERF]  = wide_gelu_erf,
                   [FL_ACT_GELU_TANH] = wide_gelu_tanh,
                   [FL_ACT_SILU]      = wide_silu,
                   [FL_ACT_RELU]      = wide_relu},
};
