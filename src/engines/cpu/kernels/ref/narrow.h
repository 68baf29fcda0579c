/* SPDX-License-Identifier: Apache-2.0 */
/* ref/narrow.h - the plain kernels of narrow numbers, for the table in f32_ref.c. */
#ifndef FL_ENGINES_CPU_KERNELS_REF_NARROW_H
#define FL_ENGINES_CPU_KERNELS_REF_NARROW_H

#include "engines/cpu/kernels.h"

void fl_q8_quantize_ref(const fl_quantize *z);
void fl_q8_gemm_ref(const fl_gemm *g);
void fl_q16_quantize_ref(const fl_quantize *z);
void fl_q16_gemm_ref(const fl_gemm *g);
void fl_bf16_round_ref(const fl_quantize *z); /* what tables that multiply bfloat16 must do */
void fl_bf16_gemm_ref(const fl_gemm *g);      /* of float32 rows; in f32_ref.c */

#endif
