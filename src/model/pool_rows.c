/* SPDX-License-Identifier: Apache-2.0 */
/* pool_rows.c - the last hidden rows of a text become one row, in the six ways of sentence-transformers.
 *
 * Role    Engines whose network ends at the tokens' rows: the CPU's, and .onnx files that do not pool.
 * In/Out  n rows -> out[hidden * count], the modes side by side in the folder's order. The rows lie behind each
 *         other, or are entries of a table that ids choose: what a static model does to a text is no more than that.
 * Skip    The first `skip` tokens (a prompt with include_prompt = false) are masked as
 *         sentence-transformers masks them: out of max, means and the last token; cls is the first
 *         token that is left; weights count positions from the text's head. A text that is all
 *         masked gives 0 (max: -1e9), and cls its token 0, as there.
 * Proof   tests/unit/test_engine.c and test_onnxruntime.c against plain double sums. */
#include <assert.h>
#include <math.h>

#include "base/number.h"
#include "model/encoder.h"

enum { AHEAD = 3, LINE = 64 / sizeof(float) }; /* rows; floats */

static const float *row_at(const fl_rows *rows, uint32_t i) {
    return rows->x + (rows->ids ? (size_t)rows->ids[i] : i) * rows->stride;
}

/* No cache holds a whole table, and no hardware sees which entry comes next. */
static void fetch_ahead(const fl_rows *rows, uint32_t i, uint32_t n, size_t hidden) {
    if (rows->ids && i + AHEAD < n) {
        const float *row = row_at(rows, i + AHEAD);
        for (size_t k = 0; k < hidden; k += LINE)
            __builtin_prefetch(row + k);
    }
}

/* out = Σ weight(i) x[i] / divisor over i in [skip, n); weight 1 or i + 1. */
static void weighted_sum(const fl_rows *rows, size_t hidden, uint32_t skip, uint32_t n,
                         bool by_position, float divisor, float *out) {
    for (size_t k = 0; k < hidden; k++)
        out[k] = 0.0f;
    for (uint32_t i = skip; i < n; i++) {
        const float *row    = row_at(rows, i);
        float        weight = by_position ? (float)(i + 1) : 1.0f;
        fetch_ahead(rows, i, n, hidden);
        for (size_t k = 0; k < hidden; k++)
            out[k] += row[k] * weight;
    }
    for (size_t k = 0; k < hidden; k++)
        out[k] /= divisor;
}

static void maximum(const fl_rows *rows, size_t hidden, uint32_t skip, uint32_t n, float *out) {
    assert(skip <= n);
    for (size_t k = 0; k < hidden; k++)
        out[k] = -1e9f;
    for (uint32_t i = skip; i < n; i++) {
        const float *row = row_at(rows, i);
        for (size_t k = 0; k < hidden; k++) {
            float value = row[k];
            out[k]      = value > out[k] || isnan(value) ? value : out[k]; /* NaN must show */
        }
    }
}

static void copy_row(const float *x, size_t hidden, float scale, float *out) {
    for (size_t k = 0; k < hidden; k++)
        out[k] = x[k] * scale;
}

/* Σ (i + 1) over [skip, n) */
static float position_weights(uint32_t skip, uint32_t n) {
    assert(skip <= n);
    double all = (double)n * (n + 1.0) / 2.0, head = (double)skip * (skip + 1.0) / 2.0;
    return (float)fmax(all - head, 1e-9);
}

static void pool_one(fl_pooling mode, const fl_rows *rows, size_t hidden, uint32_t skip, uint32_t n,
                     float *out) {
    float count = n > skip ? (float)(n - skip) : 1e-9f;
    switch (mode) {
    case FL_POOL_CLS: copy_row(row_at(rows, skip < n ? skip : 0), hidden, 1.0f, out); break;
    case FL_POOL_MAX: maximum(rows, hidden, skip, n, out); break;
    case FL_POOL_MEAN: weighted_sum(rows, hidden, skip, n, false, count, out); break;
    case FL_POOL_MEAN_SQRT_LEN:
        weighted_sum(rows, hidden, skip, n, false, sqrtf(count), out);
        break;
    case FL_POOL_WEIGHTED_MEAN:
        weighted_sum(rows, hidden, skip, n, true, position_weights(skip, n), out);
        break;
    case FL_POOL_LAST_TOKEN:
    case FL_POOL_COUNT: copy_row(row_at(rows, n - 1), hidden, n > skip ? 1.0f : 0.0f, out); break;
    }
}

bool fl_pool_rows(const fl_pooling *modes, uint32_t count, const fl_rows *rows, size_t hidden,
                  uint32_t n, uint32_t skip, float *out) {
    skip = skip < n ? skip : n;
    for (uint32_t p = 0; p < count; p++)
        pool_one(modes[p], rows, hidden, skip, n, out + p * hidden);
    return fl_all_finite(out, hidden * count);
}
