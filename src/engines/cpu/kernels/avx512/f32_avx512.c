/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/f32_avx512.c - the kernels of wide/ on vectors of 16, and the tables of AVX-512: alone, with
 * VNNI, with BF16 and with AMX for narrow formats. */
#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/narrow.h"
#include "engines/cpu/kernels/wide/f32_table.h"

const fl_cpu_kernels fl_cpu_kernels_avx512 = {
    .isa  = "avx512",
    .name = "AVX-512, 12x32 tiles",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8]  = {fl_q8_quantize_avx512, fl_q8_gemm_4x16_avx2, .group = 4},
               [FL_CPU_INT16] = {.quantize = fl_q16_quantize_avx512,
                                 .gemm     = fl_q16_gemm_12x32_avx512},
               [FL_CPU_BF16]  = {.gemm = fl_bf16_gemm_12x32_avx512}},
};

const fl_cpu_kernels fl_cpu_kernels_avx512vnni = {
    .isa  = "avx512vnni",
    .name = "AVX-512 with VNNI, 12x32 tiles",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8]  = {fl_q8_quantize_avx512, fl_q8_gemm_12x32_avx512vnni, .group = 1},
               [FL_CPU_INT16] = {fl_q16_quantize_avx512, fl_q16_gemm_12x32_avx512vnni,
                                 .pays = true},
               [FL_CPU_BF16]  = {.gemm = fl_bf16_gemm_12x32_avx512}},
};

const fl_cpu_kernels fl_cpu_kernels_avx512bf16 = {
    .isa  = "avx512bf16",
    .name = "AVX-512 with VNNI and BF16, 12x32 tiles",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8]  = {fl_q8_quantize_avx512, fl_q8_gemm_12x32_avx512vnni, .group = 1,
                                 .attention = fl_bf16_attention_12x32_avx512bf16},
               [FL_CPU_INT16] = {fl_q16_quantize_avx512, fl_q16_gemm_12x32_avx512vnni, 0,
                                 fl_bf16_attention_12x32_avx512bf16, .pays = true},
               [FL_CPU_BF16]  = {fl_bf16_round_avx2, fl_bf16_gemm_12x32_avx512bf16, 0,
                                 fl_bf16_attention_12x32_avx512bf16,
                                 .gemm_floats = fl_bf16_gemm_12x32_avx512}},
};

const fl_cpu_kernels fl_cpu_kernels_amx = {
    .isa  = "amx",
    .name = "AVX-512, 12x32 tiles; int8 and bf16 with AMX, 32x32 tiles",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8]  = {fl_q8_quantize_avx512, fl_q8_gemm_32x32_amx, .group = 1},
               [FL_CPU_INT16] = {fl_q16_quantize_avx512, fl_q16_gemm_12x32_avx512vnni,
                                 .pays = true},
               [FL_CPU_BF16]  = {fl_bf16_round_avx2, fl_bf16_gemm_32x32_amx,
                                 .gemm_floats = fl_bf16_gemm_12x32_avx512}},
};
