/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/int16_avx2.c - int16 with AVX2: vpmaddwd multiplies 16 pairs and adds neighbours in 32 bits, vpaddd
 * adds them to the sums: two operations for 16 products where an FMA does eight with one. vpaddd runs
 * on ports that vpmaddwd and FMAs do not use, so the rate is 1.6 times that of FMAs at most (Zen 3). */
#define FL_ADD_PRODUCT(acc, x, y)                                                                  \
    do {                                                                                           \
        vec products;                                                                              \
        __asm__("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(x), "x"(y));                          \
        __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(products));                                  \
    } while (0)

#include "engines/cpu/kernels/avx2/avx2.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 2 };

#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q16_gemm_6x16_avx2(const fl_gemm *g) {
    wide_gemm(g);
}
