/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/int16_avx512.c - int16 with AVX-512 BW: vpmaddwd multiplies 32 pairs and adds neighbours in 32 bits,
 * vpaddd adds them to the sums; no sum can overflow (fl_gemm). */
#define FL_ADD_PRODUCT(acc, x, y)                                                                  \
    ((acc) = (vec)((ivec)(acc) + (ivec)_mm512_madd_epi16((__m512i)(x), (__m512i)(y))))

#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/narrow.h"

enum { FL_A_BYTES = 2 };

#include "engines/cpu/kernels/wide/int_gemm.h"

void fl_q16_gemm_12x32_avx512(const fl_gemm *g) {
    wide_gemm(g);
}
