/* SPDX-License-Identifier: Apache-2.0 */
/* neon/neon_tables.h - the narrow kernels that the table of f32_neon.c names. */
#ifndef FL_ENGINES_CPU_KERNELS_NEON_NEON_TABLES_H
#define FL_ENGINES_CPU_KERNELS_NEON_NEON_TABLES_H

#include "engines/cpu/kernels.h"

void fl_q8_quantize_neon(const fl_quantize *z);
void fl_q8_gemm_6x16_neondot(const fl_gemm *g);
void fl_bf16_gemm_6x16_neon(const fl_gemm *g);

#endif
