/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/f32_avx2.c - the kernels of wide/ on vectors of 8, and the tables of AVX2 + FMA: alone, and with AVX-VNNI
 * for integers. */
#include "engines/cpu/kernels/avx2/avx2.h"
#include "engines/cpu/kernels/narrow.h"
#include "engines/cpu/kernels/wide/f32_table.h"

const fl_cpu_kernels fl_cpu_kernels_avx2 = {
    .isa  = "avx2",
    .name = "AVX2 + FMA, 6x16 tiles",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8]  = {fl_q8_quantize_avx2, fl_q8_gemm_4x16_avx2, .group = 4},
               [FL_CPU_INT16] = {fl_q16_quantize_avx2, fl_q16_gemm_6x16_avx2, .pays = true},
               [FL_CPU_BF16]  = {.gemm = fl_bf16_gemm_6x16_avx2}},
};

const fl_cpu_kernels fl_cpu_kernels_avxvnni = {
    .isa  = "avxvnni",
    .name = "AVX2 + FMA + AVX-VNNI, 6x16 tiles",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8]  = {fl_q8_quantize_avx2, fl_q8_gemm_6x16_avxvnni, .group = 1},
               [FL_CPU_INT16] = {fl_q16_quantize_avx2, fl_q16_gemm_6x16_avxvnni, .pays = true},
               [FL_CPU_BF16]  = {.gemm = fl_bf16_gemm_6x16_avx2}},
};
