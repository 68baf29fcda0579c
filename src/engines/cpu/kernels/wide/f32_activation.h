/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_activation.h - GELU (exact erf, tanh, quick), SiLU and ReLU over a strip of columns in place,
 * for every width of vector.
 *
 * GELU     gelu(x) = max(x, 0) - g(|x|) with g(t) = t Φ(-t), a smooth bump that is 0.17 at most and
 *          below 1.1e-7 past t = 5.5. One polynomial of degree 16 in u = 2t/5.5 - 1 replaces erf:
 *          no division, no exponential, no branch; |error| <= 4e-7 with float32 rounding
 *          (lab/cpu/fit.py).
 * Speed    Horner's rule is one long chain, so several vectors go through it together. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_ACTIVATION_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_ACTIVATION_H

#include "engines/cpu/kernels/wide/wide_exp.h"

enum {
    GELU_DEGREE = 16,
    STRIP_ROWS  = FL_PANEL_VECS < 4 ? 4 / FL_PANEL_VECS : 2, /* rows at a time */
    STRIP_VECS  = STRIP_ROWS * FL_PANEL_VECS
};

static const float gelu_poly[GELU_DEGREE + 1] = {
    8.194380440e-03f,  -6.057775021e-02f, 1.912619025e-01f,  -3.086897731e-01f, 1.789810508e-01f,
    2.605161667e-01f,  -6.286078095e-01f, 4.592227638e-01f,  1.525606513e-01f,  -5.440987349e-01f,
    2.695963085e-01f,  2.308406681e-01f,  -2.537055314e-01f, -3.640803695e-02f, 9.689594805e-02f,
    -8.053500787e-04f, -1.517681964e-02f};

/* x[i] = f(x[i]) for STRIP_VECS vectors at once. */
typedef void (*strip_fn)(vec x[STRIP_VECS]);

FL_INLINE void strip_gelu_erf(vec x[STRIP_VECS]) {
    vec u[STRIP_VECS], p[STRIP_VECS];
    FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
        vec t = vec_min(vec_abs(x[i]), vec_set(5.5f));
        u[i]  = vec_fma(t, vec_set(2.0f / 5.5f), vec_set(-1.0f));
        p[i]  = vec_set(gelu_poly[GELU_DEGREE]);
    }
    FL_UNROLL for (int c = GELU_DEGREE - 1; c >= 0; c--) {
        vec next = vec_set(gelu_poly[c]);
        FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
            p[i] = vec_fma(p[i], u[i], next);
        }
    }
    FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
        x[i] = vec_max(vec_zero(), x[i]) - p[i]; /* NaN stays */
    }
}

/* x / (1 + e^-z): SiLU has z = x, quick GELU 1.702 x, tanh-GELU z = 2 √(2/π) (x + 0.044715 x³). */
FL_INLINE vec gate(vec x, vec z) {
    return x / (vec_set(1.0f) + wide_exp(-z));
}

FL_INLINE void strip_gelu_tanh(vec x[STRIP_VECS]) {
    FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
        vec z = vec_fma(x[i] * x[i], vec_set(2.0f * 0.79788456f * 0.044715f),
                        vec_set(2.0f * 0.79788456f));
        x[i]  = gate(x[i], z * x[i]);
    }
}

FL_INLINE void strip_silu(vec x[STRIP_VECS]) {
    FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
        x[i] = gate(x[i], x[i]);
    }
}

FL_INLINE void strip_quick_gelu(vec x[STRIP_VECS]) {
    FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
        x[i] = gate(x[i], vec_set(1.702f) * x[i]);
    }
}

FL_INLINE void strip_relu(vec x[STRIP_VECS]) {
    FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
        x[i] = vec_max(vec_zero(), x[i]);
    }
}

/* STRIP_ROWS rows x 16 columns at a time. Where fewer rows are left, the last one goes through more
 * than once: all are read before one is written. */
FL_INLINE void strip(strip_fn f, float *x, size_t stride, size_t rows, size_t cols) {
    for (size_t r = 0; r < rows; r += STRIP_ROWS) {
        for (size_t c = 0; c < cols; c += FL_CPU_LANES) {
            float *at[STRIP_VECS];
            vec    v[STRIP_VECS];
            FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
                size_t row = r + (size_t)i / FL_PANEL_VECS;
                at[i]      = x + (row < rows ? row : rows - 1) * stride + c +
                        (size_t)i % FL_PANEL_VECS * FL_VEC_LANES;
                v[i] = vec_load(at[i]);
            }
            f(v);
            FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
                vec_store(at[i], v[i]);
            }
        }
    }
}

/* The same with the activation as a gate; y may be the place of gate or up. */
FL_INLINE void gate_strip(strip_fn f, const fl_gating *at) {
    for (size_t r = 0; r < at->rows; r += STRIP_ROWS) {
        for (size_t c = 0; c < at->cols; c += FL_CPU_LANES) {
            size_t row[STRIP_VECS], col[STRIP_VECS];
            vec    v[STRIP_VECS];
            FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
                size_t next = r + (size_t)i / FL_PANEL_VECS;
                row[i]      = next < at->rows ? next : at->rows - 1;
                col[i]      = c + (size_t)i % FL_PANEL_VECS * FL_VEC_LANES;
                v[i]        = vec_load(at->gate + row[i] * at->stride + col[i]);
            }
            f(v);
            FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
                v[i] *= vec_load(at->up + row[i] * at->stride + col[i]);
            }
            FL_UNROLL for (int i = 0; i < STRIP_VECS; i++) {
                vec_store(at->y + row[i] * at->y_stride + col[i], v[i]);
            }
        }
    }
}

#define BOTH(name)                                                                                 \
    static void wide_##name(float *x, size_t stride, size_t rows, size_t cols) {                   \
        strip(strip_##name, x, stride, rows, cols);                                                \
    }                                                                                              \
    static void wide_gate_##name(const fl_gating *at) {                                            \
        gate_strip(strip_##name, at);                                                              \
    }
BOTH(gelu_erf)
BOTH(gelu_tanh)
BOTH(silu)
BOTH(relu)
BOTH(quick_gelu)
#undef BOTH

#endif
