/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/int16_avx512vnni.c - int16 with AVX-512 VNNI: vpdpwssd is vpmaddwd and vpaddd in one. */
#include <immintrin.h>

#ifdef FL_PLAIN_PAIR16 /* tests/kernels/alone has one without assembly */
#define FL_ADD_PRODUCT FL_PLAIN_PAIR16
#else
#define FL_ADD_PRODUCT(acc, x, y) __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))
#endif

#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 2 };

#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q16_gemm_12x32_avx512vnni(const fl_gemm *g) {
    wide_gemm(g);
}
