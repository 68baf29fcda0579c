/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/int16_avxvnni.c - int16 with AVX-VNNI (256 bits): vpdpwssd is vpmaddwd and vpaddd in one. */
#include <immintrin.h>

#ifdef FL_PLAIN_PAIR8 /* tests/kernels/alone has one without assembly */
#define FL_ADD_PRODUCT FL_PLAIN_PAIR8
#else
#define FL_ADD_PRODUCT(acc, x, y)                                                                  \
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(acc) : "x"(x), "x"(y))
#endif

#include "engines/cpu/kernels/avx2/avx2.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 2 };

#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q16_gemm_6x16_avxvnni(const fl_gemm *g) {
    wide_gemm(g);
}
