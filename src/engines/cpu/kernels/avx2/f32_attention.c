/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/f32_attention.c - softmax(Q Kᵀ + bias) V of one head over one text.
 *
 * Method   Keys are transposed once into panels [d][16], the layout of GEMM weights, so that Q Kᵀ runs on
 *          the 6 x 16 tiles of GEMM. Six rows of scores (24 bytes per key) then stay in L1 through
 *          softmax and the product with V, whose rows are B as they lie (16 columns of V at a time).
 * Tails    Keys past n are zero in the last panel; their scores become -inf, their weights 0. */
#include "engines/cpu/kernels/avx2/avx2.h"

#include <string.h>

/* out[d][8] = rows of 8 keys transposed, 8 dimensions at a time; out rows are 16 floats apart. */
FL_INLINE void transpose_8x8(const float *const row[8], float *out) {
    __m256 r[8], t[8];
    FL_UNROLL for (int i = 0; i < 8; i++) { r[i] = _mm256_loadu_ps(row[i]); }
    FL_UNROLL for (int i = 0; i < 8; i += 2) {
        t[i]     = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    FL_UNROLL for (int i = 0; i < 8; i += 4) {
        r[i]     = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    FL_UNROLL for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + i * FL_CPU_LANES, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(out + (i + 4) * FL_CPU_LANES,
                         _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

/* panels[pad(n)/16][d][16]; keys past n are zero. */
static void pack_keys(const float *k, size_t stride, size_t n, size_t d, float *panels) {
    static const float zero[8];
    for (size_t first = 0; first < fl_cpu_pad(n); first += 8) {
        float *out = panels + first / FL_CPU_LANES * FL_CPU_LANES * d + first % FL_CPU_LANES;
        for (size_t c = 0; c < d; c += 8) {
            const float *row[8];
            FL_UNROLL for (size_t i = 0; i < 8; i++) {
                row[i] = first + i < n ? k + (first + i) * stride + c : zero;
            }
            transpose_8x8(row, out + c * FL_CPU_LANES);
        }
    }
}

/* scores[rows, pad(n)] for the queries from row `first`; padding is -inf. */
FL_INLINE void score_tile(int rows, const fl_attention *at, size_t first, const float *panels,
                          float *scores, size_t scores_stride) {
    const __m256 infinity = _mm256_set1_ps(-__builtin_inff());
    const float *q        = at->q + first * at->stride;
    for (size_t j = 0; j < at->n; j += FL_CPU_LANES, panels += FL_CPU_LANES * at->d) {
        __m256 acc[FL_CPU_TILE][2];
        fl_avx2_zero(rows, acc);
        fl_avx2_chain(rows, q, at->stride, panels, FL_CPU_LANES, at->d, acc, 0, NULL, 0);
        if (at->bias) {
            FL_UNROLL for (int r = 0; r < rows; r++) {
                /* the table is padded by 16 floats behind distance n - 1 */
                const float *bias = at->bias + (ptrdiff_t)j - (ptrdiff_t)first - r;
                acc[r][0]         = _mm256_add_ps(acc[r][0], _mm256_loadu_ps(bias));
                acc[r][1]         = _mm256_add_ps(acc[r][1], _mm256_loadu_ps(bias + 8));
            }
        }
        if (j + FL_CPU_LANES > at->n) {
            ptrdiff_t left = (ptrdiff_t)(at->n - j);
            __m256    low = fl_avx2_mask(left), high = fl_avx2_mask(left - 8);
            FL_UNROLL for (int r = 0; r < rows; r++) {
                acc[r][0] = _mm256_blendv_ps(infinity, acc[r][0], low);
                acc[r][1] = _mm256_blendv_ps(infinity, acc[r][1], high);
            }
        }
        FL_UNROLL for (int r = 0; r < rows; r++) {
            _mm256_storeu_ps(scores + (size_t)r * scores_stride + j, acc[r][0]);
            _mm256_storeu_ps(scores + (size_t)r * scores_stride + j + 8, acc[r][1]);
        }
    }
}

/* e^(s - max) in place over one row of pad(n) scores; returns 1 / sum. */
FL_INLINE float softmax_row(float *s, size_t n16) {
    __m256 top = _mm256_loadu_ps(s), top2 = _mm256_loadu_ps(s + 8);
    for (size_t j = 16; j < n16; j += 16) {
        top  = _mm256_max_ps(top, _mm256_loadu_ps(s + j));
        top2 = _mm256_max_ps(top2, _mm256_loadu_ps(s + j + 8));
    }
    const __m256 max = _mm256_set1_ps(fl_avx2_max(_mm256_max_ps(top, top2)));
    __m256       sum = _mm256_setzero_ps(), sum2 = _mm256_setzero_ps();
    for (size_t j = 0; j < n16; j += 16) {
        __m256 e  = fl_avx2_exp(_mm256_sub_ps(_mm256_loadu_ps(s + j), max));
        __m256 e2 = fl_avx2_exp(_mm256_sub_ps(_mm256_loadu_ps(s + j + 8), max));
        _mm256_storeu_ps(s + j, e);
        _mm256_storeu_ps(s + j + 8, e2);
        sum  = _mm256_add_ps(sum, e);
        sum2 = _mm256_add_ps(sum2, e2);
    }
    return 1.0f / fl_avx2_sum(_mm256_add_ps(sum, sum2));
}

FL_INLINE void rows_tile(int rows, const fl_attention *at, size_t first, const float *panels,
                         float *scores) {
    size_t n16 = fl_cpu_pad(at->n);
    float  scale[FL_CPU_TILE];
    score_tile(rows, at, first, panels, scores, n16);
    FL_UNROLL for (int r = 0; r < rows; r++) {
        scale[r] = softmax_row(scores + (size_t)r * n16, n16);
    }
    for (size_t c = 0; c < at->d; c += FL_CPU_LANES) {
        __m256 acc[FL_CPU_TILE][2];
        float *out = at->out + first * at->out_stride + c;
        fl_avx2_zero(rows, acc);
        fl_avx2_chain(rows, scores, n16, at->v + c, at->stride, at->n, acc, 0, NULL, 0);
        FL_UNROLL for (int r = 0; r < rows; r++) {
            __m256 s = _mm256_set1_ps(scale[r]);
            _mm256_storeu_ps(out + (size_t)r * at->out_stride, _mm256_mul_ps(acc[r][0], s));
            _mm256_storeu_ps(out + (size_t)r * at->out_stride + 8, _mm256_mul_ps(acc[r][1], s));
        }
    }
}

#define ROWS(rows)                                                                                 \
    static __attribute__((noinline)) void rows_##rows(const fl_attention *at, size_t first,        \
                                                      const float *panels, float *scores) {        \
        rows_tile(rows, at, first, panels, scores);                                                \
    }
ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)
#undef ROWS

void fl_f32_attention_6x16_avx2(const fl_attention *at) {
    static void (*const tiles[])(const fl_attention *, size_t, const float *, float *) = {
        NULL, rows_1, rows_2, rows_3, rows_4, rows_5, rows_6};
    float *panels = at->scratch, *scores = panels + fl_cpu_pad(at->n) * at->d;
    pack_keys(at->k, at->stride, at->n, at->d, panels);
    for (size_t first = 0; first < at->n;) {
        size_t height = fl_avx2_tile_rows(at->n - first);
        tiles[height](at, first, panels, scores);
        first += height;
    }
}
