/* SPDX-License-Identifier: Apache-2.0 */
/* row_stages.c - the last steps of a row: dense layers, layer norm, activation of scores, unit length, cut,
 * element type.
 *
 * Role    The kinds whose results are rows end with it, a text at a time, after the engine has pooled.
 * In/Out  pooled float32 row [hidden * pooling modes] -> a row of the caller's matrix.
 * Method  The folder's stages run in modules.json's order. What the caller asks for comes last: cut
 *         to `columns`, then unit length. A cut by the folder's own truncate_dim is left as it is,
 *         as in sentence-transformers; a cut that the user asked for is brought back to unit
 *         length. A Normalize in front of another stage is part of the network: it always runs, and only
 *         those at the end are left out for a raw row. Sums run in a fixed order, so a row's bytes
 *         depend on the row alone.
 * Memory  two scratch rows come from the staging. Threads: no state.
 * Proof   tests/unit/test_output.c; tests/golden/test_folders.py (dense, layer norm, cut). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "base/error.h"
#include "base/number.h"
#include "results/row_stages.h"

/* sentence-transformers' floor under a norm: a zero row stays zero instead of becoming NaN. */
static const double norm_floor = 1e-12;

/* Eight partial sums: with one, each addition would wait for the one before it. Every product of two
 * float32 is exact in float64. */
static double sum_of_squares(const float *row, size_t columns) {
    double part[8] = {0};
    size_t i       = 0;
    for (; i + 8 <= columns; i += 8)
        for (size_t j = 0; j < 8; j++)
            part[j] += (double)row[i + j] * (double)row[i + j];
    double sum =
        ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
    for (; i < columns; i++)
        sum += (double)row[i] * (double)row[i];
    return sum;
}

static void normalize_row(const float *from, uint32_t columns, float *to) {
    double norm  = sqrt(sum_of_squares(from, columns));
    double scale = 1.0 / (norm > norm_floor ? norm : norm_floor);
    for (uint32_t i = 0; i < columns; i++)
        to[i] = (float)((double)from[i] * scale);
}

static float activate(float x, fl_dense_activation activation) {
    switch (activation) {
    case FL_DENSE_TANH: return (float)fl_math_tanh((double)x);
    case FL_DENSE_GELU:
        return 0.5f * x * (1.0f + (float)fl_math_erf((double)x * 0.70710678118654752));
    case FL_DENSE_RELU: return x > 0.0f ? x : 0.0f;
    case FL_DENSE_SIGMOID: return 1.0f / (1.0f + (float)fl_math_exp(-(double)x));
    case FL_DENSE_IDENTITY: break;
    }
    return x;
}

/* Scores of all labels as probabilities; finite for any finite row. */
static void softmax(const float *from, uint32_t columns, float *to) {
    assert(columns > 0);
    double top = (double)from[0], sum = 0.0;
    for (uint32_t i = 1; i < columns; i++)
        top = (double)from[i] > top ? (double)from[i] : top;
    for (uint32_t i = 0; i < columns; i++)
        sum += fl_math_exp((double)from[i] - top);
    for (uint32_t i = 0; i < columns; i++)
        to[i] = (float)(fl_math_exp((double)from[i] - top) / sum);
}

float fl_row_dot(const float *a, const float *b, size_t n) {
    float  part[8] = {0};
    size_t i       = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            part[j] += a[i + j] * b[i + j];
    float sum =
        ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void dense(const fl_stage *stage, const float *in, float *out) {
    assert(stage->weight && in != out);
    for (uint32_t o = 0; o < stage->out; o++) {
        float y = fl_row_dot(stage->weight + (size_t)o * stage->in, in, stage->in);
        out[o]  = activate(stage->bias ? y + stage->bias[o] : y, stage->activation);
        if (stage->adds_row)
            out[o] += stage->residual
                          ? fl_row_dot(stage->residual + (size_t)o * stage->in, in, stage->in)
                          : in[o];
    }
}

bool fl_row_layer(const fl_stage *stage, const float *row, float *out) {
    dense(stage, row, out);
    return fl_all_finite(out, stage->out);
}

static void layer_norm(const fl_stage *stage, const float *in, float *out) {
    assert(stage->in == stage->out && stage->weight);
    double mean = 0.0, variance = 0.0;
    for (uint32_t i = 0; i < stage->in; i++)
        mean += (double)in[i];
    mean /= stage->in;
    for (uint32_t i = 0; i < stage->in; i++)
        variance += ((double)in[i] - mean) * ((double)in[i] - mean);
    double scale = 1.0 / sqrt(variance / stage->in + (double)stage->eps);
    for (uint32_t i = 0; i < stage->in; i++) {
        double y = ((double)in[i] - mean) * scale * (double)stage->weight[i];
        out[i]   = (float)(stage->bias ? y + (double)stage->bias[i] : y);
    }
}

/* rintf rounds ties to even, as torch does. */
static void whole(const fl_stage *stage, const float *in, float *out) {
    for (uint32_t i = 0; i < stage->in; i++)
        out[i] = rintf(127.0f * (float)fl_math_tanh((double)in[i]));
}

static void gate(const fl_stage *stage, const float *in, float *out) {
    for (uint32_t i = 0; i < stage->in; i++)
        out[i] = stage->residual[i] *
                 (float)fl_math_tanh((double)(stage->weight[i] * in[i] + stage->bias[i]));
}

static int8_t to_int8(float x) {
    float clamped = x > 1.0f ? 1.0f : x < -1.0f ? -1.0f : x;
    return (int8_t)lrintf(clamped * 127.0f);
}

/* One bit per dimension, the first in the highest bit; `flip` makes ubinary into binary. */
static void pack_bits(const float *row, size_t columns, uint8_t flip, uint8_t *out) {
    for (size_t i = 0; i < columns; i += 8) {
        unsigned byte = 0;
        for (size_t j = 0; j < 8; j++)
            byte = byte << 1 | (i + j < columns && row[i + j] > 0.0f);
        out[i / 8] = (uint8_t)(byte ^ flip);
    }
}

size_t fletch_row_bytes(size_t cols, fletch_dtype dtype) {
    switch (dtype) {
    case FLETCH_FLOAT32: return cols <= SIZE_MAX / sizeof(float) ? cols * sizeof(float) : 0;
    case FLETCH_INT8:
    case FLETCH_UINT8: return cols;
    case FLETCH_BINARY:
    case FLETCH_UBINARY: return cols / 8 + (cols % 8 != 0);
    }
    return 0;
}

void fl_row_store(const float *row, size_t columns, fletch_dtype dtype, void *out) {
    assert(row && out);
    switch (dtype) {
    case FLETCH_FLOAT32:
        if (out != row)
            memcpy(out, row, columns * sizeof *row);
        return;
    case FLETCH_INT8:
        for (size_t i = 0; i < columns; i++)
            ((int8_t *)out)[i] = to_int8(row[i]);
        return;
    case FLETCH_UINT8:
        for (size_t i = 0; i < columns; i++)
            ((uint8_t *)out)[i] = (uint8_t)(to_int8(row[i]) + 128);
        return;
    case FLETCH_BINARY: pack_bits(row, columns, 0x80, out); return;
    case FLETCH_UBINARY: pack_bits(row, columns, 0, out); return;
    }
}

bool fl_row_in_place(const fl_model *model, const fl_plan *plan, const fletch_matrix *out) {
    if (out->dtype != FLETCH_FLOAT32 || out->stride % sizeof(float) != 0)
        return false;
    if ((uintptr_t)out->data % sizeof(float) != 0)
        return false;
    for (uint32_t i = 0; i < model->stage_count; i++)
        if (model->stages[i].kind != FL_STAGE_NORMALIZE)
            return false;
    return plan->columns == fl_encoder_width(&model->encoder);
}

/* Where the stage after `now` writes: to the other line, but a row that lies where it is wanted stays
 * there, for a stage that may work in place. */
static float *next_line(const float *now, float *const line[2], void *in_place) {
    if (now == in_place)
        return in_place;
    return now == line[0] ? line[1] : line[0];
}

/* The stages up to the last that is not a Normalize. */
static uint32_t inner_stages(const fl_model *model) {
    uint32_t count = model->stage_count;
    while (count > 0 && model->stages[count - 1].kind == FL_STAGE_NORMALIZE)
        count--;
    return count;
}

bool fl_row_units(const fl_plan *plan, float *rows, size_t count) {
    assert(plan->columns > 0);
    size_t width = plan->columns;
    if (!fl_all_finite(rows, count * width))
        return false;
    for (size_t i = 0; plan->normalize && i < count; i++)
        normalize_row(rows + i * width, plan->columns, rows + i * width);
    return true;
}

bool fl_row_stages(const fl_model *model, const fl_plan *plan, const float *pooled, uint32_t width,
                   float *const line[2], void *row) {
    assert(row && width > 0 && plan->columns > 0);
    uint32_t     count = plan->raw ? inner_stages(model) : model->stage_count;
    const float *now   = pooled;
    bool         unit  = false; /* the last stage left a row of unit length … */
    bool         ready = false; /* … or whole numbers that are int8 as they are */
    if (!fl_all_finite(pooled, width))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const fl_stage *stage = &model->stages[i];
        float          *next = next_line(now, line, stage->kind == FL_STAGE_NORMALIZE ? row : NULL);
        if (stage->kind == FL_STAGE_DENSE)
            dense(stage, now, next);
        else if (stage->kind == FL_STAGE_WHOLE)
            whole(stage, now, next);
        else if (stage->kind == FL_STAGE_GATE)
            gate(stage, now, next);
        else if (stage->kind == FL_STAGE_LAYER_NORM)
            layer_norm(stage, now, next);
        else
            normalize_row(now, width, next);
        unit  = stage->kind == FL_STAGE_NORMALIZE;
        ready = stage->kind == FL_STAGE_WHOLE;
        width = stage->out;
        now   = next;
        if (stage->kind != FL_STAGE_NORMALIZE && !fl_all_finite(now, width))
            return false;
    }
    if (plan->softmax || plan->activation != FL_DENSE_IDENTITY) {
        float *next = next_line(now, line, row);
        for (uint32_t i = 0; i < width && !plan->softmax; i++)
            next[i] = activate(now[i], (fl_dense_activation)plan->activation);
        if (plan->softmax)
            softmax(now, width, next);
        now = next;
    }
    bool cut = plan->columns < width;
    if (plan->normalize && (cut ? plan->renormalize : !unit)) {
        float *next = next_line(now, line, row);
        normalize_row(now, plan->columns, next);
        now   = next;
        ready = false;
    }
    if (ready && plan->dtype == FLETCH_INT8) {
        for (uint32_t i = 0; i < plan->columns; i++)
            ((int8_t *)row)[i] = (int8_t)now[i];
        return true;
    }
    fl_row_store(now, plan->columns, (fletch_dtype)plan->dtype, row);
    return true;
}

int fl_row_finish(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    assert(made->row && !answer->ops->lists);
    const fl_model *model = answer->of->model;
    return fl_row_stages(model, &answer->plan, made->row, fl_encoder_width(&model->encoder),
                         made->line, fl_answer_row(answer, text))
               ? FLETCH_OK
               : fl_result_fail(FLETCH_EMODEL, error);
}

int fl_result_fail(int status, fletch_error *error) {
    assert(status < 0);
    if (status != FLETCH_EMODEL)
        return fl_lists_refuse(status, FLETCH_NOWHERE, error);
    return fl_fail(
        error, status, FLETCH_NOWHERE,
        "the result of a text is not finite: the weights or a Dense or LayerNorm module hold "
        "NaN or infinite values, or overflow float32. Run `fletch model verify` or pull the "
        "model again");
}
