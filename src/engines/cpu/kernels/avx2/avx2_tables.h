/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/avx2_tables.h - the kernels that the tables of f32_avx2.c name; those of AVX-512 take some of them. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX2_AVX2_TABLES_H
#define FL_ENGINES_CPU_KERNELS_AVX2_AVX2_TABLES_H

#include "engines/cpu/kernels.h"

void fl_q8_quantize_avx2(const fl_quantize *z);
void fl_q8_gemm_4x16_avx2(const fl_gemm *g);
void fl_q8_gemm_6x16_avxvnni(const fl_gemm *g); /* AVX-VNNI */
void fl_q16_quantize_avx2(const fl_quantize *z);
void fl_q16_gemm_6x16_avx2(const fl_gemm *g);
void fl_q16_gemm_6x16_avxvnni(const fl_gemm *g); /* AVX-VNNI */
void fl_bf16_round_avx2(const fl_quantize *z);
void fl_bf16_gemm_6x16_avx2(const fl_gemm *g);

#endif
