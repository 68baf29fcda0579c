/* SPDX-License-Identifier: Apache-2.0 */
/* pooling.c - pool the token vectors that a model gives, in the six ways of sentence-transformers.
 *
 * Role    Most .onnx files end at last_hidden_state; binding.c pools each text's own tokens, so that
 *         padding and masks do not matter.
 * In/Out  x[n, hidden] -> out[hidden * pooling_count], the modes side by side in the folder's order.
 * Skip    The first `skip` tokens are masked as sentence-transformers masks a prompt: out of max,
 *         means and last token; cls is the first token that is left; weights count positions from
 *         the text's head. A text that is all masked gives 0 (max: -1e9).
 * Proof   tests/unit/test_onnxruntime.c against plain sums; tests/golden/test_onnxruntime.py. */
#include <math.h>
#include <string.h>

#include "engines/onnxruntime/ort.h"

static void add_scaled(float *out, const float *row, size_t hidden, float weight) {
    for (size_t k = 0; k < hidden; k++)
        out[k] += row[k] * weight;
}

static void mean(const float *x, size_t hidden, uint32_t skip, uint32_t n, bool by_position,
                 float divisor, float *out) {
    memset(out, 0, hidden * sizeof *out);
    for (uint32_t i = skip; i < n; i++)
        add_scaled(out, x + i * hidden, hidden, by_position ? (float)(i + 1) : 1.0f);
    for (size_t k = 0; k < hidden; k++)
        out[k] /= divisor;
}

static void maximum(const float *x, size_t hidden, uint32_t skip, uint32_t n, float *out) {
    for (size_t k = 0; k < hidden; k++)
        out[k] = -1e9f;
    for (uint32_t i = skip; i < n; i++)
        for (size_t k = 0; k < hidden; k++) {
            float value = x[i * hidden + k];
            out[k]      = value > out[k] || isnan(value) ? value : out[k]; /* NaN must show */
        }
}

static float position_sum(uint32_t skip, uint32_t n) {
    double sum = 0.0;
    for (uint32_t i = skip; i < n; i++)
        sum += i + 1.0;
    return (float)fmax(sum, 1e-9);
}

static void one_mode(fl_pooling mode, const float *x, size_t hidden, uint32_t skip, uint32_t n,
                     float *out) {
    float count = n > skip ? (float)(n - skip) : 1e-9f;
    switch (mode) {
    case FL_POOL_CLS: memcpy(out, x + (skip < n ? skip : 0) * hidden, hidden * sizeof *out); break;
    case FL_POOL_MAX: maximum(x, hidden, skip, n, out); break;
    case FL_POOL_MEAN: mean(x, hidden, skip, n, false, count, out); break;
    case FL_POOL_MEAN_SQRT_LEN: mean(x, hidden, skip, n, false, sqrtf(count), out); break;
    case FL_POOL_WEIGHTED_MEAN: mean(x, hidden, skip, n, true, position_sum(skip, n), out); break;
    case FL_POOL_LAST_TOKEN:
    case FL_POOL_COUNT:
        memset(out, 0, hidden * sizeof *out);
        if (n > skip)
            memcpy(out, x + (size_t)(n - 1) * hidden, hidden * sizeof *out);
        break;
    }
}

bool fl_ort_pool(const fl_encoder *encoder, const float *x, uint32_t n, uint32_t skip, float *out) {
    const size_t hidden = encoder->desc.hidden;
    bool         finite = true;
    skip                = skip < n ? skip : n;
    for (uint32_t p = 0; p < encoder->pooling_count; p++)
        one_mode(encoder->pooling[p], x, hidden, skip, n, out + p * hidden);
    for (size_t k = 0; k < hidden * encoder->pooling_count; k++)
        finite = finite && isfinite(out[k]);
    return finite;
}

void fl_ort_half_to_float(const uint16_t *in, size_t count, float *out) {
    const fl_tensor view = {.data  = in,
                            .bytes = count * sizeof *in,
                            .dtype = FL_DTYPE_F16,
                            .rank  = 1,
                            .shape = {count}};
    fl_tensor_to_f32(&view, 0, count, out);
}
