/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/int8_avx512vnni.c - int8 with AVX-512 VNNI: vpdpbusd adds four products of an unsigned and a
 * signed byte to each of 16 sums, so a tile of 12 x 32 does 1,536 products in 24 instructions. */
#include <immintrin.h>

#ifdef FL_PLAIN_DOT16 /* tests/kernels/alone has one without assembly */
#define FL_ADD_PRODUCT FL_PLAIN_DOT16
#else
#define FL_ADD_PRODUCT(acc, x, y) __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))
#endif

#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 1 };

#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q8_gemm_12x32_avx512vnni(const fl_gemm *g) {
    wide_gemm(g);
}
