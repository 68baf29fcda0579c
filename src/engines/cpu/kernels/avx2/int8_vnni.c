/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/int8_vnni.c - int8 with AVX-VNNI (256 bits): vpdpbusd on tiles of 6 x 16. The float kernels
 * of its table are those of AVX2. */
#include "engines/cpu/kernels/avx2/avx2.h"

enum { FL_VEC_LANES = 8, FL_WIDE_ROWS = 6, FL_WIDE_PANELS = 1, FL_DOT_ZERO = 0 };
#define FL_WIDE_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define FL_NOINLINE     __attribute__((noinline))

typedef __m256  vec;
typedef __m256i ivec;

FL_INLINE vec vec_zero(void) {
    return _mm256_setzero_ps();
}
FL_INLINE vec vec_set(float x) {
    return _mm256_set1_ps(x);
}
FL_INLINE vec vec_load(const float *x) {
    return _mm256_loadu_ps(x);
}
FL_INLINE void vec_store(float *x, vec v) {
    _mm256_storeu_ps(x, v);
}
FL_INLINE vec vec_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}
FL_INLINE vec vec_mul(vec a, vec b) {
    return _mm256_mul_ps(a, b);
}
FL_INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
FL_INLINE ivec ivec_set(int32_t x) {
    return _mm256_set1_epi32(x);
}
FL_INLINE ivec ivec_load(const int32_t *x) {
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}
FL_INLINE ivec ivec_sub(ivec a, ivec b) {
    return _mm256_sub_epi32(a, b);
}
FL_INLINE ivec ivec_mul(ivec a, ivec b) {
    return _mm256_mullo_epi32(a, b);
}
FL_INLINE vec ivec_to_float(ivec a) {
    return _mm256_cvtepi32_ps(a);
}

/* As FL_FMA: in place. The prefix asks for the encoding without AVX-512. */
#ifndef FL_DOT8 /* tests/kernels/alone has one without assembly */
#define FL_DOT8(acc, x, y) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(x), "x"(y))
#endif

/* acc[r][·] += Σ_k a[r][k] b[k]; `rows` is a constant at every call, `panels` is 1. */
FL_INLINE void wide_dot(int rows, int panels, const uint8_t *a, size_t a_stride, const uint8_t *b,
                        size_t panel_stride, size_t k, ivec acc[FL_WIDE_ROWS][2], const char *fetch,
                        size_t fetch_step) {
    (void)panels, (void)panel_stride;
    for (size_t step = 0; step < k; step += 4, b += (size_t)4 * FL_CPU_LANES) {
        ivec low  = _mm256_loadu_si256((const __m256i *)(const void *)b);
        ivec high = _mm256_loadu_si256((const __m256i *)(const void *)(b + 32));
        _mm_prefetch(fetch, _MM_HINT_T0);
        fetch += fetch_step;
        FL_UNROLL for (int r = 0; r < rows; r++) {
            int32_t four;
            __builtin_memcpy(&four, a + (size_t)r * a_stride + step, sizeof four);
            ivec x = _mm256_set1_epi32(four);
            FL_DOT8(acc[r][0], x, low);
            FL_DOT8(acc[r][1], x, high);
        }
    }
}

#include "engines/cpu/kernels/wide/int8_gemm.h"

void fl_q8_gemm_6x16_avxvnni(const fl_gemm_q8 *g) {
    wide_gemm_q8(g);
}
