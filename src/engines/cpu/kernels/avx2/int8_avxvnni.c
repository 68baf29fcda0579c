/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/int8_avxvnni.c - int8 with AVX-VNNI (256 bits): vpdpbusd on tiles of 6 x 16. The float kernels
 * of its table are those of AVX2. The prefix asks for the encoding without AVX-512. */
#include <immintrin.h>

#ifdef FL_PLAIN_DOT8 /* tests/kernels/alone has one without assembly */
#define FL_ADD_PRODUCT FL_PLAIN_DOT8
#else
#define FL_ADD_PRODUCT(acc, x, y)                                                                  \
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(x), "x"(y))
#endif

#include "engines/cpu/kernels/avx2/avx2.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 1 };

#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q8_gemm_6x16_avxvnni(const fl_gemm *g) {
    wide_gemm(g);
}
