/* SPDX-License-Identifier: Apache-2.0 */
/* ref/narrow.c - the kernels of narrow numbers in plain loops: what kernels.h says, word by word.
 *
 * Unlike the float kernels these are a specification to the bit: sums of products are integers, and
 * every float operation is written in the order in which all instruction sets do it. */
#include "engines/cpu/kernels/narrow.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/half.h"
#include "engines/cpu/kernels/ref/ref.h"

static float moved(const fl_quantize *z, const float *x, size_t i) {
    return z->gain ? x[i] * z->gain[i] : x[i];
}

static int32_t clamp(float value) {
    return value < 0.0f ? 0 : value > 255.0f ? 255 : (int32_t)value;
}

static void quantize_row(const fl_quantize *z, size_t r) {
    const float *x   = z->x + r * z->x_stride;
    uint8_t     *q   = (uint8_t *)z->q + r * z->q_stride;
    float        low = 0.0f, high = 0.0f;
    bool         finite = true;
    for (size_t i = 0; i < z->n; i++) {
        float y = moved(z, x, i);
        finite  = finite && isfinite(y);
        low     = y < low ? y : low;
        high    = y > high ? y : high;
    }
    float width   = high - low;
    bool  any     = width >= FL_CPU_Q8_TINY;
    float inverse = any ? 255.0f / width : 0.0f, zero = rintf(-low * inverse);
    z->scale[r] = !finite ? NAN : any ? width * (1.0f / 255.0f) : 1.0f;
    z->zero[r]  = finite ? clamp(zero) : 0;
    for (size_t i = 0; i < z->n; i++) {
        float y = moved(z, x, i);
        q[i]    = (uint8_t)(finite ? clamp(rintf(y * inverse) + zero) : 0);
    }
}

void fl_q8_quantize_ref(const fl_quantize *z) {
    for (size_t r = 0; r < z->rows; r++)
        quantize_row(z, r);
}

static const uint8_t *panel_of(const fl_gemm *g, size_t col) {
    return (const uint8_t *)g->b + col / FL_CPU_LANES * g->b_stride;
}

/* The float part of int8 and int16, for one sum. */
static void finish(const fl_gemm *g, size_t row, size_t col, int32_t sum, size_t bytes) {
    const uint8_t *tail = panel_of(g, col) + g->k * bytes * FL_CPU_LANES;
    float         *c    = g->c + row * g->c_stride + col, scale;
    memcpy(&scale, tail + col % FL_CPU_LANES * sizeof scale, sizeof scale);
    float y = ref_fma((float)sum, g->a_scale[row] * scale, g->accumulate ? *c : 0.0f);
    y       = g->bias ? y + g->bias[col] : y;
    *c      = g->residual ? y + g->residual[row * g->residual_stride + col] : y;
}

void fl_q8_gemm_ref(const fl_gemm *g) {
    for (size_t row = 0; row < g->rows; row++) {
        for (size_t col = 0; col < g->panels * FL_CPU_LANES; col++) {
            const uint8_t *a     = (const uint8_t *)g->a + row * g->a_stride;
            const uint8_t *panel = panel_of(g, col);
            int32_t        sum   = 0;
            for (size_t k = 0; k < g->k; k++) {
                size_t at = (k / 4 * FL_CPU_LANES + col % FL_CPU_LANES) * 4 + k % 4;
                sum += (a[k] - g->a_zero[row]) * (int8_t)panel[at];
            }
            finish(g, row, col, sum, sizeof *a);
        }
    }
}

static void quantize_row16(const fl_quantize *z, size_t r) {
    const float *x      = z->x + r * z->x_stride;
    int16_t     *q      = (int16_t *)(void *)((char *)z->q + r * z->q_stride);
    float        high   = 0.0f;
    bool         finite = true;
    for (size_t i = 0; i < z->n; i++) {
        float size = fabsf(moved(z, x, i));
        finite     = finite && isfinite(size);
        high       = size > high ? size : high;
    }
    bool  any     = high >= FL_CPU_Q8_TINY;
    float inverse = finite && any ? FL_CPU_Q16_MOST / high : 0.0f;
    z->scale[r]   = !finite ? NAN : any ? high * (1.0f / FL_CPU_Q16_MOST) : 1.0f;
    for (size_t i = 0; i < z->n; i++)
        q[i] = (int16_t)(finite ? rintf(moved(z, x, i) * inverse) : 0.0f);
}

void fl_q16_quantize_ref(const fl_quantize *z) {
    for (size_t r = 0; r < z->rows; r++)
        quantize_row16(z, r);
}

void fl_q16_gemm_ref(const fl_gemm *g) {
    for (size_t row = 0; row < g->rows; row++) {
        for (size_t col = 0; col < g->panels * FL_CPU_LANES; col++) {
            const void    *from = (const char *)g->a + row * g->a_stride, *panel = panel_of(g, col);
            const int16_t *a = from, *b = panel;
            int32_t        sum = 0;
            for (size_t k = 0; k < g->k; k++)
                sum += a[k] * b[(k / 2 * FL_CPU_LANES + col % FL_CPU_LANES) * 2 + k % 2];
            finish(g, row, col, sum, sizeof *a);
        }
    }
}

void fl_bf16_round_ref(const fl_quantize *z) {
    for (size_t r = 0; r < z->rows; r++) {
        uint16_t *q = (uint16_t *)(void *)((char *)z->q + r * z->q_stride);
        for (size_t i = 0; i < z->n; i++)
            q[i] = fl_bfloat16_of(z->x[r * z->x_stride + i]);
    }
}
