/* SPDX-License-Identifier: Apache-2.0 */
/* ref/q8.h - the plain int8 kernels, for the table in f32.c. */
#ifndef FL_ENGINES_CPU_KERNELS_REF_Q8_H
#define FL_ENGINES_CPU_KERNELS_REF_Q8_H

#include "engines/cpu/kernels.h"

void fl_q8_quantize_ref(const fl_quantize *z);
void fl_q8_gemm_ref(const fl_gemm_q8 *g);

#endif
