/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/bf16_fma.h - before avx512.h: vdpbf16ps, which multiplies 16 pairs of bfloat16 and adds both products
 * to 16 float32 sums, takes the place of the FMA. A pair is as wide as a float. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX512_BF16_FMA_H
#define FL_ENGINES_CPU_KERNELS_AVX512_BF16_FMA_H

#include <immintrin.h>

#ifdef FL_PLAIN_BF16 /* tests/kernels/alone has one without assembly */
#define FL_ADD_PRODUCT FL_PLAIN_BF16
#else
#define FL_ADD_PRODUCT(acc, x, y) __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))
#endif

#endif
