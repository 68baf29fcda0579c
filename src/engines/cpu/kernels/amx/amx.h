/* SPDX-License-Identifier: Apache-2.0 */
/* amx.h - the kernels that need tile registers, for the table in avx512/f32_avx512.c and for dispatch.c. */
#ifndef FL_ENGINES_CPU_KERNELS_AMX_H
#define FL_ENGINES_CPU_KERNELS_AMX_H

#include "engines/cpu/kernels.h"

void fl_q8_gemm_32x32_amx(const fl_gemm *g);
void fl_bf16_gemm_32x32_amx(const fl_gemm *g);

#endif
