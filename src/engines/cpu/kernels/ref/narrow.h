/* SPDX-License-Identifier: Apache-2.0 */
/* ref/narrow.h - the plain kernels of narrow numbers, for the table in f32_ref.c, and what both files share.
 *
 * fmaf is a call of the C library where the compiler may not use FMA. A processor that has it gives the same
 * bits with one instruction for many lanes: loops of fmaf are compiled a second time, for those. */
#ifndef FL_ENGINES_CPU_KERNELS_REF_NARROW_H
#define FL_ENGINES_CPU_KERNELS_REF_NARROW_H

#include <stdbool.h>

#include "engines/cpu/kernels.h"
#include "engines/cpu/kernels/wide/macros.h"

#if defined(__x86_64__)
#define FL_REF_FMA     __attribute__((target("avx2,fma")))
#define FL_REF_HAS_FMA (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define FL_REF_FMA
#define FL_REF_HAS_FMA false
#endif

/* The end of a chain: sums of a panel's columns, then what is added to them (NULL: nothing). */
FL_INLINE void fl_ref_put(float *c, const float *sum, const float *bias, const float *residual) {
    for (size_t i = 0; i < FL_CPU_LANES; i++) {
        float y = bias ? sum[i] + bias[i] : sum[i];
        c[i]    = residual ? y + residual[i] : y;
    }
}

void fl_q8_quantize_ref(const fl_quantize *z);
void fl_q8_gemm_ref(const fl_gemm_narrow *g);
void fl_q16_quantize_ref(const fl_quantize *z);
void fl_q16_gemm_ref(const fl_gemm_narrow *g);
void fl_bf16_round_ref(const fl_quantize *z);   /* what tables that multiply bfloat16 must do */
void fl_bf16_gemm_ref(const fl_gemm_narrow *g); /* of float32 rows */

#endif
