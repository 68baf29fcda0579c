/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - every kernel but products in plain loops that sum in double: nearer to the true value than what it judges.
 * widen is to the bit what kernels.h says. */
#include "judge.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "engines/cpu/kernels/wide/macros.h"

FL_INLINE float widened(const uint8_t *number) {
    uint16_t half;
    memcpy(&half, number, sizeof half);
    return fl_bfloat16_to_f32(half);
}

/* The scale of column `lane`, or with `low` its least value. */
static float group_value(const fl_groups *g, const uint8_t *stretch, const uint8_t *run, bool low,
                         size_t lane) {
    size_t   at = lane + (low ? FL_CPU_LANES : 0);
    float    whole;
    uint16_t half;
    if (g->coded) {
        memcpy(&whole, stretch + at * sizeof whole, sizeof whole);
        return whole * (float)(int8_t)run[at];
    }
    memcpy(&half, run + at * sizeof half, sizeof half);
    return g->rounded && !g->half ? widened(run + at * sizeof half) : fl_half_to_f32(half);
}

/* To the type of the scales. */
static float rounded(const fl_groups *g, float w) {
    uint16_t half = g->half ? fl_half_of(w) : fl_bfloat16_of(w);
    return g->half ? fl_half_to_f32(half) : fl_bfloat16_to_f32(half);
}

static void widen_16_judge(const fl_widen *z) {
    for (size_t i = 0; i < z->steps * FL_CPU_LANES; i++) {
        uint16_t half;
        memcpy(&half, z->panel + 2 * i, sizeof half);
        z->out[i] =
            (z->groups->half ? fl_half_to_f32(half) : widened(z->panel + 2 * i)) * z->factor;
    }
}

static void widen_judge(const fl_widen *z) {
    if (z->groups->bits == 16) {
        widen_16_judge(z);
        return;
    }
    const fl_groups *g      = z->groups;
    const size_t     scales = fl_cpu_groups_scales(g);
    const size_t     bytes  = scales + fl_cpu_groups_values(g, g->run); /* of a run */
    for (size_t i = 0; i < z->steps * FL_CPU_LANES; i++) {
        size_t         step = i / FL_CPU_LANES, lane = i % FL_CPU_LANES, at = step % FL_CPU_STRETCH;
        const uint8_t *stretch = z->panel + fl_cpu_groups_bytes(g, step - at);
        const uint8_t *run     = stretch + fl_cpu_groups_floats(g) + at / g->run * bytes;
        const uint8_t *q       = run + scales + at % g->run * g->bits / 8 * FL_CPU_LANES + lane;
        int            nibble  = step % 2 == 0 ? *q & 15 : *q >> 4;
        int            value   = g->bits == 8 ? (int8_t)*q : g->least ? nibble : nibble - 8;
        value -= g->zero ? (int8_t)run[2 * FL_CPU_LANES + lane] : 0;
        float w   = (float)value * group_value(g, stretch, run, false, lane);
        w         = g->least ? w + group_value(g, stretch, run, true, lane) : w;
        w         = g->rounded ? rounded(g, w) : w;
        z->out[i] = w * z->factor;
    }
}

enum { KEYS = 8 };

/* The scores of `count` keys from the j-th on, as every kernel rounds them: sums side by side, so that
 * none waits for its last addition. */
FL_INLINE void scores(const fl_attention *at, const float *q, size_t j, size_t count,
                      const float *bias, double *out) {
    const float *k         = at->k + j * at->kv_stride;
    double       sum[KEYS] = {0};
    for (size_t c = 0; c < at->d; c++)
        for (size_t i = 0; i < count; i++)
            sum[i] += (double)q[c] * (double)k[i * at->kv_stride + c];
    for (size_t i = 0; i < count; i++) {
        double s   = sum[i] + (bias ? (double)bias[j + i] : 0.0);
        double cap = (double)at->cap;
        out[i]     = (double)(float)(cap > 0 ? cap * tanh(s / cap) : s);
    }
}

/* From key j on, at most KEYS and none behind the last; how many. */
static size_t next_scores(const fl_attention *at, const float *q, size_t j, size_t high,
                          const float *bias, double *out) {
    if (high - j >= KEYS) {
        scores(at, q, j, KEYS, bias, out);
        return KEYS;
    }
    scores(at, q, j, 1, bias, out);
    return 1;
}

/* Scores are computed twice, for the largest and for the weights: the scratch, which holds the sums of
 * the values in double, need not grow with the text. */
static void attention_row(const fl_attention *at, size_t head, size_t row) {
    const float *q     = at->q + head * at->q_head + row * at->q_stride;
    float       *out   = at->out + head * at->out_head + row * at->out_stride;
    size_t       i     = at->first + row;
    size_t       low   = i > at->before ? i - at->before : 0;
    size_t       high  = at->n - i > at->after ? i + at->after + 1 : at->n;
    const float *bias  = at->bias ? at->bias + head * at->bias_head + (ptrdiff_t)row * at->bias_row
                                  : NULL; /* of key 0 */
    double      *value = (double *)(void *)at->scratch, top = -INFINITY, sum = 0.0, s[KEYS];
    for (size_t j = low, count; j < high; j += count) {
        count = next_scores(at, q, j, high, bias, s);
        for (size_t key = 0; key < count; key++)
            top = fmax(top, s[key]);
    }
    for (size_t c = 0; c < at->d; c++)
        value[c] = 0.0;
    for (size_t j = low, count; j < high; j += count) {
        count = next_scores(at, q, j, high, bias, s);
        for (size_t key = 0; key < count; key++) {
            double weight = (double)(float)exp(s[key] - top);
            sum += weight;
            for (size_t c = 0; c < at->d; c++)
                value[c] += weight * (double)at->v[(j + key) * at->kv_stride + c];
        }
    }
    for (size_t c = 0; c < at->d; c++)
        out[c] = (float)(value[c] / sum);
}

static void attention_judge(const fl_attention *at) {
    for (size_t head = 0; head < at->heads; head++)
        for (size_t row = 0; row < at->rows; row++)
            attention_row(at, head, row);
}

static void layer_norm_judge(const fl_row_norm *norm) {
    for (size_t r = 0; r < norm->rows; r++) {
        const float *x    = norm->x + r * norm->x_stride;
        float       *y    = norm->y + r * norm->y_stride;
        double       mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < norm->n; i++)
            mean += (double)x[i];
        mean /= (double)norm->n;
        for (size_t i = 0; i < norm->n; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean);
        double scale = 1.0 / sqrt(variance / (double)norm->n + (double)norm->eps);
        for (size_t i = 0; i < norm->n; i++) {
            y[i] = (float)(((double)x[i] - mean) * scale * (double)norm->weight[i] +
                           (double)norm->bias[i]);
        }
        for (size_t i = norm->n; i < fl_cpu_pad(norm->n); i++)
            y[i] = 0.0f;
    }
}

static void rms_norm_judge(const fl_row_norm *norm) {
    for (size_t r = 0; r < norm->rows; r++) {
        const float *x      = norm->x + r * norm->x_stride;
        float       *y      = norm->y + r * norm->y_stride;
        double       square = 0.0;
        for (size_t i = 0; i < norm->n; i++)
            square += (double)x[i] * (double)x[i];
        double scale = 1.0 / sqrt(square / (double)norm->n + (double)norm->eps);
        for (size_t i = 0; i < norm->n; i++)
            y[i] = (float)((double)x[i] * scale * (double)norm->weight[i]);
        for (size_t i = norm->n; i < fl_cpu_pad(norm->n); i++)
            y[i] = 0.0f;
    }
}

static void rotate_judge(const fl_rotation *at) {
    size_t half = at->dims / 2;
    for (size_t r = 0; r < at->rows; r++) {
        const float *cosine = at->cosine + r * half, *sine = at->sine + r * half;
        float       *x = at->x + r * at->stride, *y = x + half;
        for (size_t i = 0; i < half; i++) {
            double a = (double)x[i], b = (double)y[i];
            x[i] = (float)(a * (double)cosine[i] - b * (double)sine[i]);
            y[i] = (float)(b * (double)cosine[i] + a * (double)sine[i]);
        }
    }
}

static void convolve_judge(const fl_convolution *at) {
    for (size_t r = 0; r < at->rows; r++) {
        for (size_t c = 0; c < at->cols; c++) {
            double sum = (double)at->bias[c];
            for (size_t k = 0; k < at->taps; k++) {
                size_t place =
                    at->first + r + k; /* before tokens further than the one that it meets */
                if (place >= at->before && place - at->before < at->n) {
                    sum += (double)at->weights[k * at->cols + c] *
                           (double)at->x[(place - at->before) * at->stride + c];
                }
            }
            at->out[r * at->out_stride + c] = (float)((double)at->gate[r * at->stride + c] * sum);
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
static double quick_gelu(double x) {
    return x / (1.0 + exp(-1.702 * x));
}
static double relu(double x) {
    return x < 0.0 ? 0.0 : x;
} /* NaN stays */

static void each(double (*f)(double), float *x, size_t stride, size_t rows, size_t cols) {
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            x[r * stride + c] = (float)f((double)x[r * stride + c]);
}

static void gate_each(double (*f)(double), const fl_gating *at) {
    for (size_t r = 0; r < at->rows; r++) {
        for (size_t c = 0; c < at->cols; c++) {
            double gate                 = f((double)at->gate[r * at->stride + c]);
            at->y[r * at->y_stride + c] = (float)(gate * (double)at->up[r * at->stride + c]);
        }
    }
}

#define BOTH(name)                                                                                 \
    static void name##_judge(float *x, size_t stride, size_t rows, size_t cols) {                  \
        each(name, x, stride, rows, cols);                                                         \
    }                                                                                              \
    static void gate_##name##_judge(const fl_gating *at) {                                         \
        gate_each(name, at);                                                                       \
    }
BOTH(gelu_erf)
BOTH(gelu_tanh)
BOTH(silu)
BOTH(relu)
BOTH(quick_gelu)
#undef BOTH

const fl_cpu_kernels judge = {
    .isa        = "judge",
    .widen      = widen_judge,
    .attention  = attention_judge,
    .layer_norm = layer_norm_judge,
    .rms_norm   = rms_norm_judge,
    .rotate     = rotate_judge,
    .convolve   = convolve_judge,
    .activation = {[FL_ACT_GELU_ERF]   = gelu_erf_judge,
                   [FL_ACT_GELU_TANH]  = gelu_tanh_judge,
                   [FL_ACT_SILU]       = silu_judge,
                   [FL_ACT_RELU]       = relu_judge,
                   [FL_ACT_QUICK_GELU] = quick_gelu_judge},
    .gating     = {[FL_ACT_GELU_ERF]   = gate_gelu_erf_judge,
                   [FL_ACT_GELU_TANH]  = gate_gelu_tanh_judge,
                   [FL_ACT_SILU]       = gate_silu_judge,
                   [FL_ACT_RELU]       = gate_relu_judge,
                   [FL_ACT_QUICK_GELU] = gate_quick_gelu_judge},
};
