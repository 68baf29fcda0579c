/* SPDX-License-Identifier: Apache-2.0 */
/* ref/f32_ref.c - the kernels of wide/ in plain C: the engine of last resort on a machine for which nothing faster is
 * built, and the bits that every instruction set has to give.
 *
 * gemm is written out as the chain of fused multiply-adds that kernels.h promises. How near the others are to the true
 * values is judged by tests/kernels/judge.c, which sums in double. */
#define FL_GEMM_F32 gemm_ref
#include "engines/cpu/kernels/ref/ref.h"

#include "base/half.h"
#include "engines/cpu/kernels/narrow.h"
#include "engines/cpu/kernels/wide/f32_table.h"

/* A processor that has FMA gives the same bits with one instruction for many lanes: gemm is compiled a second
 * time, for those. */
#if defined(__x86_64__)
#define FL_REF_FMA     __attribute__((target("avx2,fma")))
#define FL_REF_HAS_FMA (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#elif defined(__aarch64__)
#define FL_REF_FMA
#define FL_REF_HAS_FMA true
#else
#define FL_REF_FMA
#define FL_REF_HAS_FMA false
#endif

/* The end of a chain: sums of a panel's columns, then what is added to them (NULL: nothing). */
FL_INLINE void put(float *c, const float *sum, const float *bias, const float *residual) {
    for (size_t i = 0; i < FL_CPU_LANES; i++) {
        float y = bias ? sum[i] + bias[i] : sum[i];
        c[i]    = residual ? y + residual[i] : y;
    }
}

FL_INLINE float widened(const uint8_t *number) {
    uint16_t half;
    memcpy(&half, number, sizeof half);
    return fl_bfloat16_to_f32(half);
}

/* sum[i] += a w[i]; `fma`: the compiler may use that instruction, a constant at every call. */
FL_INLINE void add_products(float sum[FL_CPU_LANES], float a, const float w[FL_CPU_LANES],
                            bool fma) {
    for (size_t i = 0; fma && i < FL_CPU_LANES; i++)
        sum[i] = __builtin_fmaf(a, w[i], sum[i]);
    for (size_t i = 0; !fma && i < FL_CPU_LANES; i += FL_VEC_LANES)
        vec_store(sum + i, vec_fma(vec_set(a), vec_load(w + i), vec_load(sum + i)));
}

/* `halves`: weights are bfloat16, two steps of k side by side, a constant at every call. */
FL_INLINE void chains(const fl_gemm *g, bool halves, bool fma) {
    for (size_t row = 0; row < g->rows; row++) {
        for (size_t panel = 0; panel < g->panels; panel++) {
            size_t         col  = panel * FL_CPU_LANES;
            const void    *from = (const char *)g->a + row * g->a_stride;
            const uint8_t *b    = (const uint8_t *)g->b + panel * g->b_stride;
            const float   *a = from, *floats = (const float *)(const void *)b;
            float         *c = g->c + row * g->c_stride + col, sum[FL_CPU_LANES];
            for (size_t i = 0; i < FL_CPU_LANES; i++)
                sum[i] = g->accumulate ? c[i] : 0.0f;
            for (size_t k = 0; k < g->k; k++) {
                float w[FL_CPU_LANES];
                for (size_t i = 0; i < FL_CPU_LANES; i++) {
                    size_t half = (k / 2 * FL_CPU_LANES + i) * 2 + k % 2;
                    w[i]        = halves ? widened(b + 2 * half) : floats[k * FL_CPU_LANES + i];
                }
                add_products(sum, a[k], w, fma);
            }
            put(c, sum, g->bias ? g->bias + col : NULL,
                g->residual ? g->residual + row * g->residual_stride + col : NULL);
        }
    }
}

FL_REF_FMA static void chains_fma(const fl_gemm *g, bool halves) {
    halves ? chains(g, true, true) : chains(g, false, true);
}

static void gemm_ref(const fl_gemm *g) {
    FL_REF_HAS_FMA ? chains_fma(g, false) : chains(g, false, false);
}

void fl_bf16_gemm_ref(const fl_gemm *g) {
    FL_REF_HAS_FMA ? chains_fma(g, true) : chains(g, true, false);
}

const fl_cpu_kernels fl_cpu_kernels_ref = {
    .isa  = "ref",
    .name = "plain C",
    FL_TABLE_F32,
    .narrow = {[FL_CPU_INT8]  = {fl_q8_quantize_ref, fl_q8_gemm_ref, .group = 1},
               [FL_CPU_INT16] = {.quantize = fl_q16_quantize_ref, .gemm = fl_q16_gemm_ref},
               [FL_CPU_BF16]  = {.gemm = fl_bf16_gemm_ref}},
};
