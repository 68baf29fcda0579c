/* SPDX-License-Identifier: Apache-2.0 */
/* pool_rows.c - the last hidden rows of a text become one row, in the six ways of sentence-transformers.
 *
 * Role    Engines whose network ends at the tokens' rows: the CPU's, and .onnx files that do not pool.
 * In/Out  x[n, stride] -> out[hidden * count], the modes side by side in the folder's order.
 * Skip    The first `skip` tokens (a prompt with include_prompt = false) are masked as
 *         sentence-transformers masks them: out of max, means and the last token; cls is the first
 *         token that is left; weights count positions from the text's head. A text that is all
 *         masked gives 0 (max: -1e9), and cls its token 0, as there.
 * Proof   tests/unit/test_engine.c and test_onnxruntime.c against plain double sums. */
#include <math.h>

#include "base/number.h"
#include "model/encoder.h"

/* out = Σ weight(i) x[i] / divisor over i in [skip, n); weight 1 or i + 1. */
static void weighted_sum(const float *x, size_t stride, size_t hidden, uint32_t skip, uint32_t n,
                         bool by_position, float divisor, float *out) {
    for (size_t k = 0; k < hidden; k++) {
        out[k] = 0.0f;
    }
    for (uint32_t i = skip; i < n; i++) {
        const float *row    = x + i * stride;
        float        weight = by_position ? (float)(i + 1) : 1.0f;
        for (size_t k = 0; k < hidden; k++) {
            out[k] += row[k] * weight;
        }
    }
    for (size_t k = 0; k < hidden; k++) {
        out[k] /= divisor;
    }
}

static void maximum(const float *x, size_t stride, size_t hidden, uint32_t skip, uint32_t n,
                    float *out) {
    for (size_t k = 0; k < hidden; k++) {
        out[k] = -1e9f;
    }
    for (uint32_t i = skip; i < n; i++) {
        for (size_t k = 0; k < hidden; k++) {
            float value = x[i * stride + k];
            out[k]      = value > out[k] || isnan(value) ? value : out[k]; /* NaN must show */
        }
    }
}

static void copy_row(const float *x, size_t hidden, float scale, float *out) {
    for (size_t k = 0; k < hidden; k++) {
        out[k] = x[k] * scale;
    }
}

/* Σ (i + 1) over [skip, n) */
static float position_weights(uint32_t skip, uint32_t n) {
    double all = (double)n * (n + 1.0) / 2.0, head = (double)skip * (skip + 1.0) / 2.0;
    return (float)fmax(all - head, 1e-9);
}

static void pool_one(fl_pooling mode, const float *x, size_t stride, size_t hidden, uint32_t skip,
                     uint32_t n, float *out) {
    float count = n > skip ? (float)(n - skip) : 1e-9f;
    switch (mode) {
    case FL_POOL_CLS: copy_row(x + (skip < n ? skip : 0) * stride, hidden, 1.0f, out); break;
    case FL_POOL_MAX: maximum(x, stride, hidden, skip, n, out); break;
    case FL_POOL_MEAN: weighted_sum(x, stride, hidden, skip, n, false, count, out); break;
    case FL_POOL_MEAN_SQRT_LEN:
        weighted_sum(x, stride, hidden, skip, n, false, sqrtf(count), out);
        break;
    case FL_POOL_WEIGHTED_MEAN:
        weighted_sum(x, stride, hidden, skip, n, true, position_weights(skip, n), out);
        break;
    case FL_POOL_LAST_TOKEN:
    case FL_POOL_COUNT:
        copy_row(x + (size_t)(n - 1) * stride, hidden, n > skip ? 1.0f : 0.0f, out);
        break;
    }
}

bool fl_pool_rows(const fl_pooling *modes, uint32_t count, const float *x, size_t stride,
                  size_t hidden, uint32_t n, uint32_t skip, float *out) {
    skip = skip < n ? skip : n;
    for (uint32_t p = 0; p < count; p++) {
        pool_one(modes[p], x, stride, hidden, skip, n, out + p * hidden);
    }
    return fl_all_finite(out, hidden * count);
}
