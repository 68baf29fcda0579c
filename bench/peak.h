/* SPDX-License-Identifier: Apache-2.0 */
/* peak.h - loops of nothing but multiply-adds: the 100 % of every share in the benchmark's tables.
 *
 * Role     peak.c runs them on many threads, engine.c on the one that it measures.
 * Method   Twelve independent chains hide the latency of the units; nothing is read from memory. Each
 *          instruction set has for each precision the instructions that its kernels multiply with:
 *          fp32   a multiply-add of floats.
 *          bf16   the same, or that of pairs of bfloat16 where there is one.
 *          int16  exact 13-bit products: vpmaddwd and an addition in 32 bits, or both in one (VNNI).
 *          int8   exact byte products: two vpmaddubsw added in 16 bits, widened by vpmaddwd, added in
 *                 32 bits; or four products and their sum in one (VNNI).
 * In/Out   Steps -> multiply-adds done. x86 with AVX2 and FMA only. AMX has no loop of its own: its
 *          row is that of the vectors beside it, which tiles can pass. */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

enum { PEAK_CHAINS = 12 };

#define PEAK_ASM(text) __asm__(text : "+v"(a[i]) : "v"(x), "v"(y))
#define PEAK_EACH      _Pragma("GCC unroll 12") for (int i = 0; i < PEAK_CHAINS; i++)
#define PEAK_LOOP(name, set, vec, products, step)                                                  \
    __attribute__((target(set))) static inline double name(long steps) {                           \
        vec a[PEAK_CHAINS], x, y;                                                                  \
        memset(&x, 0x3c, sizeof x); /* a small number of every kind */                             \
        memset(&y, 0x3c, sizeof y);                                                                \
        PEAK_EACH a[i] = x;                                                                        \
        for (long turn = 0; turn < steps; turn++) {                                                \
            PEAK_EACH {                                                                            \
                step;                                                                              \
            }                                                                                      \
        }                                                                                          \
        PEAK_EACH __asm__ volatile("" : "+v"(a[i])); /* the results count as used */               \
        return (double)(products)*PEAK_CHAINS * (double)steps;                                     \
    }
#define PEAK_FRESH(x) __asm__("" : "+v"(x)) /* computed every time */

#define PEAK_WIDE "avx512f,avx512bw,avx512vl,avx512vnni"
PEAK_LOOP(peak_fp32_256, "avx2,fma", __m256, 8, PEAK_ASM("vfmadd231ps %2, %1, %0"))
PEAK_LOOP(peak_fp32_512, PEAK_WIDE, __m512, 16, PEAK_ASM("vfmadd231ps %2, %1, %0"))
PEAK_LOOP(peak_bf16_512, PEAK_WIDE, __m512, 32, PEAK_ASM("vdpbf16ps %2, %1, %0"))
PEAK_LOOP(peak_int16_256, "avx2,fma", __m256i, 16, {
    PEAK_FRESH(x);
    a[i] = _mm256_add_epi32(a[i], _mm256_madd_epi16(x, y));
})
PEAK_LOOP(peak_int16_512, PEAK_WIDE, __m512i, 32, {
    PEAK_FRESH(x);
    a[i] = _mm512_add_epi32(a[i], _mm512_madd_epi16(x, y));
})
PEAK_LOOP(peak_int16_vnni_256, "avx2,fma", __m256i, 16, PEAK_ASM("%{vex%} vpdpwssd %2, %1, %0"))
PEAK_LOOP(peak_int16_vnni_512, PEAK_WIDE, __m512i, 32, PEAK_ASM("vpdpwssd %2, %1, %0"))
PEAK_LOOP(peak_int8_256, "avx2,fma", __m256i, 64, {
    PEAK_FRESH(x);
    __m256i first = _mm256_maddubs_epi16(x, y);
    PEAK_FRESH(x);
    __m256i both = _mm256_add_epi16(first, _mm256_maddubs_epi16(x, y));
    a[i]         = _mm256_add_epi32(a[i], _mm256_madd_epi16(both, _mm256_set1_epi16(1)));
})
PEAK_LOOP(peak_int8_vnni_256, "avx2,fma", __m256i, 32, PEAK_ASM("%{vex%} vpdpbusd %2, %1, %0"))
PEAK_LOOP(peak_int8_vnni_512, PEAK_WIDE, __m512i, 64, PEAK_ASM("vpdpbusd %2, %1, %0"))

typedef double (*peak_loop)(long steps);

enum { PEAK_FP32, PEAK_BF16, PEAK_INT16, PEAK_INT8, PEAK_PRECISIONS };

/* Best first, named as the engine names them (cpu.isa); `avx512` has the int8 of AVX2. */
static const struct peak_isa {
    const char *name;
    peak_loop   loop[PEAK_PRECISIONS];
} peak_isas[] = {
    {"amx", {peak_fp32_512, peak_bf16_512, peak_int16_vnni_512, peak_int8_vnni_512}},
    {"avx512bf16", {peak_fp32_512, peak_bf16_512, peak_int16_vnni_512, peak_int8_vnni_512}},
    {"avx512vnni", {peak_fp32_512, peak_fp32_512, peak_int16_vnni_512, peak_int8_vnni_512}},
    {"avx512", {peak_fp32_512, peak_fp32_512, peak_int16_512, peak_int8_256}},
    {"avxvnni", {peak_fp32_256, peak_fp32_256, peak_int16_vnni_256, peak_int8_vnni_256}},
    {"avx2", {peak_fp32_256, peak_fp32_256, peak_int16_256, peak_int8_256}},
};

/* What "auto" is on this machine, AMX apart; NULL: it has none of them. */
static inline const char *peak_best(void) {
    bool halved =
        __builtin_cpu_is("intel") && __builtin_cpu_supports("avxvnni"); /* src/base/cpu.h */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return NULL;
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return __builtin_cpu_supports("avx512bf16") && !halved ? "avx512bf16"
               : __builtin_cpu_supports("avx512vnni")          ? "avx512vnni"
                                                               : "avx512";
    }
    return __builtin_cpu_supports("avxvnni") ? "avxvnni" : "avx2";
}

/* NULL for an instruction set or a precision that is not in the table. */
static inline peak_loop peak_of(const char *isa, const char *precision) {
    static const char *const precisions[] = {"fp32", "bf16", "int16", "int8"};
    for (size_t i = 0; i < sizeof peak_isas / sizeof *peak_isas; i++) {
        for (size_t p = 0; p < PEAK_PRECISIONS; p++)
            if (strcmp(isa, peak_isas[i].name) == 0 && strcmp(precision, precisions[p]) == 0)
                return peak_isas[i].loop[p];
    }
    return NULL;
}

#endif
