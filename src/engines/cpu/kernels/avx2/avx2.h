/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.h - what the AVX2 kernels share: the chain of FMAs over k, the cut into row tiles.
 *
 * Only files of this folder include it; they are compiled with -mavx2 -mfma. */
#ifndef FL_ENGINES_CPU_KERNELS_AVX2_H
#define FL_ENGINES_CPU_KERNELS_AVX2_H

#include <immintrin.h>
#include <stddef.h>

#include "engines/cpu/kernels.h"
#include "engines/cpu/kernels/wide/macros.h"

/* acc += x * y, in place. As an intrinsic gcc 12 folds the load of a B row into each of the six
 * FMAs and rotates accumulators through spills (87 % of peak); pinned to this form it is 96 %. */
#define FL_FMA(acc, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(x), "x"(y))

/* Rows of the next tile when `left` remain: 6 while that leaves no awkward rest, then 5s and 4s,
 * which run at the same speed per row (8 accumulators already cover 4 cycles of latency on 2
 * ports). */
FL_INLINE size_t fl_avx2_tile_rows(size_t left) {
    /* 7 = 4 + 3, 8 = 4 + 4, 9 = 5 + 4, 10 = 5 + 5, 11 = 6 + 5, 12 = 6 + 6, 13 = 5 + 4 + 4 */
    static const unsigned char first[14] = {0, 1, 2, 3, 4, 5, 6, 4, 4, 5, 5, 6, 6, 5};
    return left < 14 ? first[left] : FL_CPU_TILE;
}

/* acc[r][·] += Σ_k a[r][k] b[k][0..15], k upwards. `rows` and `fetching` are constants at every
 * call. When fetching, two lines at `fetch` are prefetched per four steps of k and it moves on by
 * fetch_step. */
FL_INLINE void fl_avx2_chain(int rows, const float *a, size_t a_stride, const float *b,
                             size_t b_stride, size_t k, __m256 acc[FL_CPU_TILE][2], int fetching,
                             const char *fetch, size_t fetch_step) {
    size_t step = 0;
    for (; step + 4 <= k; step += 4) {
        if (fetching) {
            _mm_prefetch(fetch, _MM_HINT_T0);
            _mm_prefetch(fetch + 64, _MM_HINT_T0);
            fetch += fetch_step;
        }
        FL_UNROLL for (size_t u = 0; u < 4; u++) {
            __m256 low  = _mm256_loadu_ps(b + u * b_stride);
            __m256 high = _mm256_loadu_ps(b + u * b_stride + 8);
            FL_UNROLL for (int r = 0; r < rows; r++) {
                __m256 x = _mm256_broadcast_ss(a + (size_t)r * a_stride + step + u);
                FL_FMA(acc[r][0], x, low);
                FL_FMA(acc[r][1], x, high);
            }
        }
        b += 4 * b_stride;
    }
    for (; step < k; step++) {
        __m256 low = _mm256_loadu_ps(b), high = _mm256_loadu_ps(b + 8);
        FL_UNROLL for (int r = 0; r < rows; r++) {
            __m256 x = _mm256_broadcast_ss(a + (size_t)r * a_stride + step);
            FL_FMA(acc[r][0], x, low);
            FL_FMA(acc[r][1], x, high);
        }
        b += b_stride;
    }
}

/* Each register for itself: as an intrinsic gcc 12 keeps one zero in a register throughout to copy it
 * from, and the accumulator that it drives out goes through memory at every step. */
#define FL_ZERO(acc) __asm__ volatile("vxorps %0, %0, %0" : "=x"(acc))

FL_INLINE void fl_avx2_zero(int rows, __m256 acc[FL_CPU_TILE][2]) {
    FL_UNROLL for (int r = 0; r < rows; r++) {
        FL_ZERO(acc[r][0]);
        FL_ZERO(acc[r][1]);
    }
}

FL_INLINE float fl_avx2_sum(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s        = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Lanes 0 … count-1 all ones, the others zero; count may be more than 8 or less than 0. */
FL_INLINE __m256 fl_avx2_mask(ptrdiff_t count) {
    int limit = count > 8 ? 8 : (int)count;
    return _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(_mm256_set1_epi32(limit), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}

/* The entries of this folder's table (avx2.c). */
void fl_f32_gemm_6x16_avx2(const fl_gemm *g);
void fl_f32_attention_6x16_avx2(const fl_attention *at);
void fl_f32_layer_norm_avx2(const fl_row_norm *norm);
void fl_f32_rms_norm_avx2(const fl_row_norm *norm);
void fl_f32_rotate_avx2(const fl_rotation *at);
void fl_f32_gelu_erf_avx2(float *x, size_t stride, size_t rows, size_t cols);
void fl_f32_gelu_tanh_avx2(float *x, size_t stride, size_t rows, size_t cols);
void fl_f32_silu_avx2(float *x, size_t stride, size_t rows, size_t cols);
void fl_f32_relu_avx2(float *x, size_t stride, size_t rows, size_t cols);
void fl_f32_gate_gelu_erf_avx2(const fl_gating *at);
void fl_f32_gate_gelu_tanh_avx2(const fl_gating *at);
void fl_f32_gate_silu_avx2(const fl_gating *at);
void fl_f32_gate_relu_avx2(const fl_gating *at);
void fl_q8_quantize_avx2(const fl_quantize *z);
void fl_q8_gemm_4x16_avx2(const fl_gemm *g);
void fl_q8_gemm_6x16_avxvnni(const fl_gemm *g); /* AVX-VNNI */
void fl_q16_quantize_avx2(const fl_quantize *z);
void fl_q16_gemm_6x16_avx2(const fl_gemm *g);
void fl_bf16_round_avx2(const fl_quantize *z);
void fl_bf16_gemm_6x16_avx2(const fl_gemm *g);
void fl_q16_gemm_6x16_avxvnni(const fl_gemm *g); /* AVX-VNNI */

#endif
