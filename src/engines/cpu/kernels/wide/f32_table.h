/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_table.h - the float32 kernels of wide/ behind an instruction set's own header, and the rows that they
 * fill of its tables. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_TABLE_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_TABLE_H

enum { FL_A_BYTES = 4 };

#include "engines/cpu/kernels/wide/f32_activation.h"
#include "engines/cpu/kernels/wide/f32_attention.h"
#include "engines/cpu/kernels/wide/f32_convolve.h"
#include "engines/cpu/kernels/wide/f32_groups.h"
#include "engines/cpu/kernels/wide/f32_norm.h"
#include "engines/cpu/kernels/wide/f32_rotate.h"

#ifndef FL_GEMM_F32 /* ref has its own */
#include "engines/cpu/kernels/wide/f32_gemm.h"
#define FL_GEMM_F32 wide_gemm
#endif

#define FL_TABLE_ACTIVATIONS(kernel)                                                               \
    {                                                                                              \
        [FL_ACT_GELU_ERF] = kernel##_gelu_erf, [FL_ACT_GELU_TANH] = kernel##_gelu_tanh,            \
        [FL_ACT_SILU] = kernel##_silu, [FL_ACT_RELU] = kernel##_relu,                              \
        [FL_ACT_QUICK_GELU] = kernel##_quick_gelu                                                  \
    }
#define FL_TABLE_F32                                                                               \
    .panels = FL_WIDE_PANELS, .gemm = FL_GEMM_F32, .widen = wide_widen,                            \
    .attention = wide_attention, .layer_norm = wide_layer_norm, .rms_norm = wide_rms_norm,         \
    .rotate = wide_rotate, .convolve = wide_convolve, .activation = FL_TABLE_ACTIVATIONS(wide),    \
    .gating = FL_TABLE_ACTIVATIONS(wide_gate)

#endif
