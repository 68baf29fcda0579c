/* SPDX-License-Identifier: Apache-2.0 */
/* avx2/f32_activation.c - GELU (exact erf, tanh), SiLU and ReLU over a strip of columns, in place.
 *
 * GELU   gelu(x) = max(x, 0) - g(|x|) with g(t) = t Φ(-t), a smooth bump that is 0.17 at most and
 * below
 *        1.1e-7 past t = 5.5. One polynomial of degree 16 in u = 2t/5.5 - 1 replaces erf: no
 *        division, no exponential, no branch; |error| <= 4e-7 with float32 rounding
 *        (lab/cpu/fit.py).
 * Speed  Horner's rule is one long chain, so four vectors go through it together. */
#include "engines/cpu/kernels/avx2/avx2.h"

enum { GELU_DEGREE = 16, WIDE = 4 };

static const float gelu_poly[GELU_DEGREE + 1] = {
    8.194380440e-03f,  -6.057775021e-02f, 1.912619025e-01f,  -3.086897731e-01f, 1.789810508e-01f,
    2.605161667e-01f,  -6.286078095e-01f, 4.592227638e-01f,  1.525606513e-01f,  -5.440987349e-01f,
    2.695963085e-01f,  2.308406681e-01f,  -2.537055314e-01f, -3.640803695e-02f, 9.689594805e-02f,
    -8.053500787e-04f, -1.517681964e-02f};

/* x[i] = f(x[i]) for `WIDE` vectors at once. */
typedef void (*wide_fn)(__m256 x[WIDE]);

FL_INLINE void gelu_erf(__m256 x[WIDE]) {
    const __m256 sign = _mm256_set1_ps(-0.0f), top = _mm256_set1_ps(5.5f);
    __m256       u[WIDE], p[WIDE];
    FL_UNROLL for (int i = 0; i < WIDE; i++) {
        __m256 t = _mm256_min_ps(_mm256_andnot_ps(sign, x[i]), top);
        u[i]     = _mm256_fmsub_ps(t, _mm256_set1_ps(2.0f / 5.5f), _mm256_set1_ps(1.0f));
        p[i]     = _mm256_set1_ps(gelu_poly[GELU_DEGREE]);
    }
    FL_UNROLL for (int c = GELU_DEGREE - 1; c >= 0; c--) {
        __m256 next = _mm256_broadcast_ss(gelu_poly + c);
        FL_UNROLL for (int i = 0; i < WIDE; i++) {
            p[i] = _mm256_fmadd_ps(p[i], u[i], next);
        }
    }
    FL_UNROLL for (int i = 0; i < WIDE; i++) {
        x[i] = _mm256_sub_ps(_mm256_max_ps(_mm256_setzero_ps(), x[i]), p[i]); /* NaN stays */
    }
}

/* x / (1 + e^-z): SiLU has z = x, tanh-GELU z = 2 √(2/π) (x + 0.044715 x³). */
FL_INLINE __m256 gate(__m256 x, __m256 z) {
    __m256 e = fl_avx2_exp(_mm256_xor_ps(z, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

FL_INLINE void gelu_tanh(__m256 x[WIDE]) {
    FL_UNROLL for (int i = 0; i < WIDE; i++) {
        __m256 square = _mm256_mul_ps(x[i], x[i]);
        __m256 z      = _mm256_fmadd_ps(square, _mm256_set1_ps(2.0f * 0.79788456f * 0.044715f),
                                        _mm256_set1_ps(2.0f * 0.79788456f));
        x[i]          = gate(x[i], _mm256_mul_ps(z, x[i]));
    }
}

FL_INLINE void silu(__m256 x[WIDE]) {
    FL_UNROLL for (int i = 0; i < WIDE; i++) {
        x[i] = gate(x[i], x[i]);
    }
}

FL_INLINE void relu(__m256 x[WIDE]) {
    FL_UNROLL for (int i = 0; i < WIDE; i++) {
        x[i] = _mm256_max_ps(_mm256_setzero_ps(), x[i]);
    }
}

/* Two rows x 16 columns at a time; an odd last row goes through beside itself. */
FL_INLINE void strip(wide_fn f, float *x, size_t stride, size_t rows, size_t cols) {
    for (size_t r = 0; r < rows; r += 2) {
        float *row = x + r * stride, *below = r + 1 < rows ? row + stride : row;
        for (size_t c = 0; c < cols; c += FL_CPU_LANES) {
            __m256 v[WIDE] = {_mm256_loadu_ps(row + c), _mm256_loadu_ps(row + c + 8),
                              _mm256_loadu_ps(below + c), _mm256_loadu_ps(below + c + 8)};
            f(v);
            _mm256_storeu_ps(row + c, v[0]);
            _mm256_storeu_ps(row + c + 8, v[1]);
            _mm256_storeu_ps(below + c, v[2]);
            _mm256_storeu_ps(below + c + 8, v[3]);
        }
    }
}

void fl_f32_gelu_erf_avx2(float *x, size_t stride, size_t rows, size_t cols) {
    strip(gelu_erf, x, stride, rows, cols);
}
void fl_f32_gelu_tanh_avx2(float *x, size_t stride, size_t rows, size_t cols) {
    strip(gelu_tanh, x, stride, rows, cols);
}
void fl_f32_silu_avx2(float *x, size_t stride, size_t rows, size_t cols) {
    strip(silu, x, stride, rows, cols);
}
void fl_f32_relu_avx2(float *x, size_t stride, size_t rows, size_t cols) {
    strip(relu, x, stride, rows, cols);
}
