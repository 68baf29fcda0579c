/* SPDX-License-Identifier: Apache-2.0 */
/* peak.h - loops of nothing but multiply-adds: the 100 % of every share in the benchmark's tables.
 *
 * Role     peak.c runs them on many threads, engine.c on the one that it measures.
 * Method   Twelve independent chains hide the latency of the units; nothing is read from memory.
 *          fp32   one vfmadd a chain and step: 8 multiply-adds.
 *          int16  what exact 13-bit products need: vpmaddwd, then an addition in 32 bits: 16.
 *          int8   what exact byte products need: two vpmaddubsw added in 16 bits, widened by
 *                 vpmaddwd, added in 32 bits: 64. More than the same share of fp32 is no wonder:
 *                 bytes are several times as many a register. So each precision has its own 100 %.
 * In/Out   Steps -> multiply-adds done. x86 with AVX2 and FMA only; machines that multiply bytes by
 *          an instruction of their own (VNNI, AMX) can pass 100 % of int8. */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

#include <immintrin.h>
#include <stdint.h>

enum { PEAK_CHAINS = 12 };

__attribute__((target("avx2,fma"))) static inline double peak_fp32(long steps) {
    __m256 a[PEAK_CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
    for (int i = 0; i < PEAK_CHAINS; i++) {
        a[i] = _mm256_set1_ps((float)i);
    }
    for (long step = 0; step < steps; step++) {
        _Pragma("GCC unroll 12") for (int i = 0; i < PEAK_CHAINS; i++) {
            a[i] = _mm256_fmadd_ps(a[i], x, y);
        }
    }
    for (int i = 0; i < PEAK_CHAINS; i++) {
        __asm__ volatile("" : "+x"(a[i])); /* the results count as used */
    }
    return 8.0 * PEAK_CHAINS * (double)steps;
}

__attribute__((target("avx2,fma"))) static inline double peak_int16(long steps) {
    __m256i a[PEAK_CHAINS], x = _mm256_set1_epi16(3), y = _mm256_set1_epi16(5);
    for (int i = 0; i < PEAK_CHAINS; i++) {
        a[i] = _mm256_set1_epi32(i);
    }
    for (long step = 0; step < steps; step++) {
        _Pragma("GCC unroll 12") for (int i = 0; i < PEAK_CHAINS; i++) {
            __asm__("" : "+x"(x)); /* computed every time */
            a[i] = _mm256_add_epi32(a[i], _mm256_madd_epi16(x, y));
        }
    }
    for (int i = 0; i < PEAK_CHAINS; i++) {
        __asm__ volatile("" : "+x"(a[i]));
    }
    return 16.0 * PEAK_CHAINS * (double)steps;
}

__attribute__((target("avx2,fma"))) static inline double peak_int8(long steps) {
    __m256i a[PEAK_CHAINS], x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(5);
    __m256i one = _mm256_set1_epi16(1);
    for (int i = 0; i < PEAK_CHAINS; i++) {
        a[i] = _mm256_set1_epi32(i);
    }
    for (long step = 0; step < steps; step++) {
        _Pragma("GCC unroll 12") for (int i = 0; i < PEAK_CHAINS; i++) {
            __asm__("" : "+x"(x));
            __m256i first = _mm256_maddubs_epi16(x, y);
            __asm__("" : "+x"(x));
            __m256i both = _mm256_add_epi16(first, _mm256_maddubs_epi16(x, y));
            a[i]         = _mm256_add_epi32(a[i], _mm256_madd_epi16(both, one));
        }
    }
    for (int i = 0; i < PEAK_CHAINS; i++) {
        __asm__ volatile("" : "+x"(a[i]));
    }
    return 64.0 * PEAK_CHAINS * (double)steps;
}

typedef double (*peak_loop)(long steps);

/* By name: "fp32", "int16", "int8"; bf16 is multiplied as fp32. NULL for another one. */
static inline peak_loop peak_of(const char *name) {
    switch (name[0] == 'i' ? name[3] : name[0]) {
    case 'f':
    case 'b': return peak_fp32;
    case '1': return peak_int16;
    case '8': return peak_int8;
    default: return NULL;
    }
}

#endif
