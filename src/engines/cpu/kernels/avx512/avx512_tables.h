/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/avx512_tables.h - the narrow kernels that the tables of f32_avx512.c name: AVX-512 without VNNI takes
 * AVX2's int8 products, and all round to bfloat16 as AVX2 does. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX512_AVX512_TABLES_H
#define FL_ENGINES_CPU_KERNELS_AVX512_AVX512_TABLES_H

#include "engines/cpu/kernels/avx2/avx2_tables.h"

void fl_q8_quantize_avx512(const fl_quantize *z);
void fl_q8_gemm_12x32_avx512vnni(const fl_gemm *g);
void fl_q16_quantize_avx512(const fl_quantize *z);
void fl_q16_gemm_12x32_avx512(const fl_gemm *g);
void fl_q16_gemm_12x32_avx512vnni(const fl_gemm *g);
void fl_bf16_gemm_12x32_avx512(const fl_gemm *g); /* widened */
void fl_bf16_gemm_12x32_avx512bf16(const fl_gemm *g);
void fl_bf16_attention_12x32_avx512bf16(const fl_attention *at);

#endif
