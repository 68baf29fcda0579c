/* SPDX-License-Identifier: Apache-2.0 */
/* neon/f32_neon.c - the kernels of wide/ on vectors of 4, and the tables of AArch64: alone, with dot
 * products for int8, and with matrix products for int8 and bf16. */
#include "engines/cpu/kernels/narrow.h"
#include "engines/cpu/kernels/neon/neon.h"
#include "engines/cpu/kernels/wide/f32_table.h"

const fl_cpu_kernels fl_cpu_kernels_neon = {
    .isa  = "neon",
    .name = "NEON, 6x16 tiles",
    FL_TABLE_F32,
    /* no int8: without dot products it would be slower than float32; no int16 in any table: smlal
     * does as many products as fmla */
    .narrow = {[FL_CPU_BF16] = {.gemm = fl_bf16_gemm_6x16_neon}},
};

const fl_cpu_kernels fl_cpu_kernels_neondot = {
    .isa  = "neondot",
    .name = "NEON with dot products, 6x16 tiles",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8] = {fl_q8_quantize_neon, fl_q8_gemm_6x16_neondot, .group = 1},
               [FL_CPU_BF16] = {.gemm = fl_bf16_gemm_6x16_neon}},
};

const fl_cpu_kernels fl_cpu_kernels_neonmm = {
    .isa  = "neonmm",
    .name = "NEON with matrix products, 6x16 tiles",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8] = {fl_q8_quantize_neon, fl_q8_gemm_6x16_neonmm, .group = 1},
               [FL_CPU_BF16] = {fl_bf16_round_ref, fl_bf16_gemm_6x16_neonmm,
                                .gemm_floats = fl_bf16_gemm_6x16_neon}},
};
