/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/narrow.h - the kernels of narrow numbers, which tables of other files name: AVX-512 without VNNI takes
 * AVX2's int8 products, and all round to bfloat16 as AVX2 does. */
#ifndef FL_ENGINES_CPU_KERNELS_NARROW_H
#define FL_ENGINES_CPU_KERNELS_NARROW_H

#include "engines/cpu/kernels.h"

void fl_q8_quantize_ref(const fl_quantize *z);
void fl_q8_gemm_ref(const fl_gemm *g);
void fl_q16_quantize_ref(const fl_quantize *z);
void fl_q16_gemm_ref(const fl_gemm *g);
void fl_bf16_round_ref(const fl_quantize *z); /* what tables that multiply bfloat16 must do */
void fl_bf16_gemm_ref(const fl_gemm *g);      /* of float32 rows */

void fl_q8_quantize_avx2(const fl_quantize *z);
void fl_q8_gemm_4x16_avx2(const fl_gemm *g);
void fl_q8_gemm_6x16_avxvnni(const fl_gemm *g);
void fl_q16_quantize_avx2(const fl_quantize *z);
void fl_q16_gemm_6x16_avx2(const fl_gemm *g);
void fl_q16_gemm_6x16_avxvnni(const fl_gemm *g);
void fl_bf16_round_avx2(const fl_quantize *z);
void fl_bf16_gemm_6x16_avx2(const fl_gemm *g);

void fl_q8_quantize_avx512(const fl_quantize *z);
void fl_q8_gemm_12x32_avx512vnni(const fl_gemm *g);
void fl_q8_gemm_32x32_amx(const fl_gemm *g);
void fl_q16_quantize_avx512(const fl_quantize *z);
void fl_q16_gemm_12x32_avx512(const fl_gemm *g);
void fl_q16_gemm_12x32_avx512vnni(const fl_gemm *g);
void fl_bf16_gemm_12x32_avx512(const fl_gemm *g); /* widened */
void fl_bf16_gemm_12x32_avx512bf16(const fl_gemm *g);
void fl_bf16_gemm_32x32_amx(const fl_gemm *g);
void fl_bf16_attention_12x32_avx512bf16(const fl_attention *at);

void fl_q8_quantize_neon(const fl_quantize *z);
void fl_q8_gemm_6x16_neondot(const fl_gemm *g);
void fl_q8_gemm_6x16_neonmm(const fl_gemm *g);
void fl_bf16_gemm_6x16_neon(const fl_gemm *g); /* widened */
void fl_bf16_gemm_6x16_neonmm(const fl_gemm *g);

#endif
