/* SPDX-License-Identifier: Apache-2.0 */
/* neon/f32_neon.c - the kernels of wide/ on vectors of 4, and the tables of AArch64: alone, and with dot
 * products for int8. */
#include "engines/cpu/kernels/neon/neon.h"
#include "engines/cpu/kernels/neon/neon_tables.h"

enum { FL_A_BYTES = 4 };

#include "engines/cpu/kernels/wide/f32_activation.h"
#include "engines/cpu/kernels/wide/f32_attention.h"
#include "engines/cpu/kernels/wide/f32_gemm.h"
#include "engines/cpu/kernels/wide/f32_norm.h"
#include "engines/cpu/kernels/wide/f32_rows.h"

/* What the tables have in common. */
#define FL_TABLE_F32                                                                               \
    .panels = FL_WIDE_PANELS, .gemm = wide_gemm, .attention = wide_attention,                      \
    .layer_norm = wide_layer_norm, .rms_norm = wide_rms_norm, .rotate = wide_rotate,               \
    FL_WIDE_ACTIVATIONS, FL_WIDE_GATES

const fl_cpu_kernels fl_cpu_kernels_neon = {
    .isa  = "neon",
    .name = "NEON, 6x16 tiles",
    FL_TABLE_F32,
    /* no int8: without dot products it would be slower than float32; no int16 in either table: smlal
     * does as many products as fmla */
    .narrow = {[FL_CPU_BF16] = {NULL, fl_bf16_gemm_6x16_neon, 0}},
};

const fl_cpu_kernels fl_cpu_kernels_neondot = {
    .isa  = "neondot",
    .name = "NEON with dot products, 6x16 tiles",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8] = {fl_q8_quantize_neon, fl_q8_gemm_6x16_neondot, 1},
               [FL_CPU_BF16] = {NULL, fl_bf16_gemm_6x16_neon, 0}},
};
