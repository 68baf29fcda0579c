/* SPDX-License-Identifier: Apache-2.0 */
/* avx512/bf16_attention.c - softmax(Q Kᵀ + bias) V with AVX-512 BF16 in both products: twice the
 * multiply-adds of float32 an instruction (bf16_avx512.c).
 *
 * Method   attention_tiles.h, whose floats are pairs of bfloat16: of dimensions in queries and keys, of keys
 *          in weights and values. Keys and values are packed once a block, queries once a group.
 * Softmax  Scores are float32, and the sums are those of the rounded weights. A weight keeps 8 bits, so
 *          2^t takes a polynomial of degree 3 (relative error 9e-5, lab/cpu/fit.py); what is hidden, or
 *          below 2^-126, is exactly 0. */
#include "engines/cpu/kernels/avx512/bf16_fma.h"

#include "engines/cpu/kernels/avx512/avx512.h"
#include "engines/cpu/kernels/narrow.h"

#define FL_WEIGHTS_SUM(sum) vec_sum(_mm512_zextps256_ps512(_mm512_castps512_ps256(*(sum))))
#include "engines/cpu/kernels/wide/attention_tiles.h"

FL_INLINE __m256i rounded(const float *x) {
    return (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x));
}

/* Rows of floats to rows of pairs, out[rows, d / 2]. */
static void round_rows(const float *x, size_t stride, size_t rows, size_t d, float *out) {
    for (size_t r = 0; r < rows; r++, x += stride, out += d / 2)
        for (size_t i = 0; i < d; i += FL_CPU_LANES)
            _mm256_storeu_si256((__m256i *)(void *)(out + i / 2), rounded(x + i));
}

/* out[pad(n) / 2][d] = pairs of rows side by side; rows past n are zero. */
static void pair_rows(const float *x, size_t stride, size_t n, size_t d, float *out) {
    for (size_t row = 0; row < fl_cpu_pad(n); row += 2, x += 2 * stride, out += d) {
        for (size_t i = 0; i < d; i += FL_CPU_LANES) {
            __m256i even  = row < n ? rounded(x + i) : _mm256_setzero_si256();
            __m256i odd   = row + 1 < n ? rounded(x + stride + i) : _mm256_setzero_si256();
            __m512i upper = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
            _mm512_storeu_si512(out + i, _mm512_or_si512(_mm512_cvtepu16_epi32(even), upper));
        }
    }
}

/* Panels of keys [d / 2][16], and behind them the values. */
static void pack_block(const fl_attention *at, size_t begin, size_t n) {
    size_t half = at->d / 2, stride = at->kv_stride;
    float *keys = at->scratch, *values = keys + fl_cpu_pad(n) * half;
    round_rows(at->k + begin * stride, stride, n, at->d, values); /* room for them, for a moment */
    pack_keys(values, half, n, half, keys);
    pair_rows(at->v + begin * stride, stride, n, at->d, values);
}

/* t[i] = 2^t[i]; 0 below 2^-126. NaN stays. */
FL_INLINE void powers_of_2(vec t[SOFT_VECS]) {
    static const float poly[] = {1.0f, 6.951168180e-01f, 2.276449800e-01f, 7.706704736e-02f};
    vec                p[SOFT_VECS], f[SOFT_VECS];
    FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
        f[i] = _mm512_reduce_ps(t[i], _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        p[i] = vec_set(poly[3]);
    }
    FL_UNROLL for (int c = 2; c >= 0; c--) {
        vec next = vec_set(poly[c]);
        FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
            p[i] = vec_fma(p[i], f[i], next);
        }
    }
    FL_UNROLL for (int i = 0; i < SOFT_VECS; i++) {
        __mmask16 kept = _mm512_cmp_ps_mask(t[i], vec_set(-126.0f), _CMP_NLT_UQ);
        t[i]           = _mm512_maskz_scalef_ps(kept, p[i], t[i]);
    }
}

/* As pairs, from where the row's scores begin; sums are in the lower half. */
FL_INLINE vec keep_weights(float *s, size_t j, vec weights, vec sum) {
    const __m256bh ones  = (__m256bh)_mm256_set1_epi16(0x3f80);
    __m256bh       pairs = _mm512_cvtneps_pbh(weights);
    _mm256_storeu_si256((__m256i *)(void *)(s + j / 2), (__m256i)pairs);
    return _mm512_castps256_ps512(_mm256_dpbf16_ps(_mm512_castps512_ps256(sum), pairs, ones));
}

static void run_group(group *g) {
    const fl_attention *at = g->at;
    size_t half = at->d / 2, all = fl_cpu_attention_scratch(at->heads, at->rows, at->n, at->d);
    float *q = at->scratch + all - FL_CPU_SCORE_ROWS * half;
    round_rows(g->q, g->q_stride, g->rows, at->d, q);
    g->q        = q;
    g->q_stride = g->depth = half;
    g->panels              = at->scratch + g->place * half;
    g->v                   = at->scratch + g->packed * half + g->place * half;
    g->v_stride            = at->d;
    g->steps               = (g->keys + 1) / 2;
    attention_scores(g);
    attention_weights(g, powers_of_2, keep_weights);
    attention_values(g);
}

void fl_bf16_attention_12x32_avx512bf16(const fl_attention *at) {
    attention_run(at, pack_block, run_group);
}
