/* SPDX-License-Identifier: Apache-2.0 */
/* ref/f32.c - every kernel in plain loops: the specification that all others are compared with, and
 * the engine of last resort on a machine for which nothing faster is built.
 *
 * gemm is the very chain of fused multiply-adds that kernels.h promises, so a fast gemm can be held
 * to its bits. The others sum in double: they are closer to the true value than what they judge. */
#include <math.h>

#include "engines/cpu/kernels.h"
#include "engines/cpu/kernels/ref/narrow.h"

static void gemm_ref(const fl_gemm *g) {
    for (size_t row = 0; row < g->rows; row++) {
        for (size_t col = 0; col < g->panels * FL_CPU_LANES; col++) {
            const float *a   = g->a + row * g->a_stride;
            const float *b   = g->b + col / FL_CPU_LANES * g->b_stride + col % FL_CPU_LANES;
            float       *c   = g->c + row * g->c_stride + col;
            float        sum = g->accumulate ? *c : 0.0f;
            for (size_t k = 0; k < g->k; k++) {
                sum = fmaf(a[k], b[k * FL_CPU_LANES], sum);
            }
            sum = g->bias ? sum + g->bias[col] : sum;
            sum = g->residual ? sum + g->residual[row * g->residual_stride + col] : sum;
            *c  = sum;
        }
    }
}

/* The scores of one row live in the scratch, so that nothing here depends on how long a text may
 * be. */
static void attention_row(const fl_attention *at, size_t row) {
    float *s   = at->scratch;
    double top = -INFINITY, sum = 0.0;
    for (size_t j = 0; j < at->n; j++) {
        double score = 0.0;
        for (size_t c = 0; c < at->d; c++) {
            score += (double)at->q[row * at->stride + c] * (double)at->k[j * at->stride + c];
        }
        score += at->bias ? (double)at->bias[(ptrdiff_t)j - (ptrdiff_t)row] : 0.0;
        s[j] = (float)score;
        top  = fmax(top, (double)s[j]);
    }
    for (size_t j = 0; j < at->n; j++) {
        s[j] = (float)exp((double)s[j] - top);
        sum += (double)s[j];
    }
    for (size_t c = 0; c < at->d; c++) {
        double value = 0.0;
        for (size_t j = 0; j < at->n; j++) {
            value += (double)s[j] * (double)at->v[j * at->stride + c];
        }
        at->out[row * at->out_stride + c] = (float)(value / sum);
    }
}

static void attention_ref(const fl_attention *at) {
    for (size_t row = 0; row < at->n; row++) {
        attention_row(at, row);
    }
}

static void layer_norm_ref(const fl_layer_norm *norm) {
    for (size_t r = 0; r < norm->rows; r++) {
        const float *x    = norm->x + r * norm->x_stride;
        float       *y    = norm->y + r * norm->y_stride;
        double       mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < norm->n; i++) {
            mean += (double)x[i];
        }
        mean /= (double)norm->n;
        for (size_t i = 0; i < norm->n; i++) {
            variance += ((double)x[i] - mean) * ((double)x[i] - mean);
        }
        double scale = 1.0 / sqrt(variance / (double)norm->n + (double)norm->eps);
        for (size_t i = 0; i < norm->n; i++) {
            y[i] = (float)(((double)x[i] - mean) * scale * (double)norm->weight[i] +
                           (double)norm->bias[i]);
        }
        for (size_t i = norm->n; i < fl_cpu_pad(norm->n); i++) {
            y[i] = 0.0f;
        }
    }
}

static double gelu_erf(double x) {
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}
static double gelu_tanh(double x) {
    return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double silu(double x) {
    return x / (1.0 + exp(-x));
}
static double relu(double x) {
    return x < 0.0 ? 0.0 : x;
} /* NaN stays */

static void each(double (*f)(double), float *x, size_t stride, size_t rows, size_t cols) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            x[r * stride + c] = (float)f((double)x[r * stride + c]);
        }
    }
}

static void gelu_erf_ref(float *x, size_t stride, size_t rows, size_t cols) {
    each(gelu_erf, x, stride, rows, cols);
}
static void gelu_tanh_ref(float *x, size_t stride, size_t rows, size_t cols) {
    each(gelu_tanh, x, stride, rows, cols);
}
static void silu_ref(float *x, size_t stride, size_t rows, size_t cols) {
    each(silu, x, stride, rows, cols);
}
static void relu_ref(float *x, size_t stride, size_t rows, size_t cols) {
    each(relu, x, stride, rows, cols);
}

const fl_cpu_kernels fl_cpu_kernels_ref = {
    .isa        = "ref",
    .name       = "plain loops",
    .gemm       = gemm_ref,
    .attention  = attention_ref,
    .layer_norm = layer_norm_ref,
    .activation = {[FL_ACT_GELU_ERF]  = gelu_erf_ref,
                   [FL_ACT_GELU_TANH] = gelu_tanh_ref,
                   [FL_ACT_SILU]      = silu_ref,
                   [FL_ACT_RELU]      = relu_ref},
    .narrow     = {[FL_CPU_INT8]  = {fl_q8_quantize_ref, fl_q8_gemm_ref, 1},
                   [FL_CPU_INT16] = {fl_q16_quantize_ref, fl_q16_gemm_ref, 0},
                   [FL_CPU_BF16]  = {NULL, fl_bf16_gemm_ref, 0}},
};
