/* SPDX-License-Identifier: Apache-2.0 */
/* row_output.c - the last steps of a row: dense layers, layer norm, activation of scores, unit length, cut,
 * element type.
 *
 * Role    runner.c calls it once per text, after the engine has pooled.
 * In/Out  pooled float32 row [hidden * pooling modes] -> a row of the caller's matrix.
 * Method  The folder's stages run in modules.json's order. What the caller asks for comes last: cut
 *         to `columns`, then unit length. A cut by the folder's own truncate_dim is left as it is,
 *         as in sentence-transformers; a cut that the user asked for is brought back to unit
 *         length. A Normalize in front of another stage is part of the network: it always runs, and only
 *         those at the end are left out for a raw row. Sums run in a fixed order, so a row's bytes
 *         depend on the row alone.
 *         Terms of a sparse model become weights, log(1 + x), and the light ones go.
 * Memory  two scratch rows come from the staging; sorting terms takes some for the moment. Threads: no state.
 * Proof   tests/unit/test_output.c; tests/golden/test_folders.py (dense, layer norm, cut). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/number.h"
#include "runtime/row_output.h"
#include "runtime/runtime.h"

/* Room for terms that stays with a slot: texts of real models have some hundred. */
enum { TERMS_KEPT = 2048 };

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
    case FL_DENSE_TANH: return tanhf(x);
    case FL_DENSE_GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case FL_DENSE_RELU: return x > 0.0f ? x : 0.0f;
    case FL_DENSE_SIGMOID: return 1.0f / (1.0f + expf(-x));
    case FL_DENSE_IDENTITY: break;
    }
    return x;
}

/* Scores of all labels as probabilities; finite for any finite row. */
static void softmax(const float *from, uint32_t columns, float *to) {
    double top = (double)from[0], sum = 0.0;
    for (uint32_t i = 1; i < columns; i++)
        top = (double)from[i] > top ? (double)from[i] : top;
    for (uint32_t i = 0; i < columns; i++)
        sum += exp((double)from[i] - top);
    for (uint32_t i = 0; i < columns; i++)
        to[i] = (float)(exp((double)from[i] - top) / sum);
}

float fl_output_dot(const float *a, const float *b, size_t n) {
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
    for (uint32_t o = 0; o < stage->out; o++) {
        float y = fl_output_dot(stage->weight + (size_t)o * stage->in, in, stage->in);
        out[o]  = activate(stage->bias ? y + stage->bias[o] : y, stage->activation);
        if (stage->adds_row)
            out[o] += stage->residual
                          ? fl_output_dot(stage->residual + (size_t)o * stage->in, in, stage->in)
                          : in[o];
    }
}

static void layer_norm(const fl_stage *stage, const float *in, float *out) {
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

void fl_output_store(const float *row, size_t columns, fletch_dtype dtype, void *out) {
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

bool fl_output_in_place(const fl_row_output *output, const fletch_matrix *out) {
    if (out->dtype != FLETCH_FLOAT32 || out->stride % sizeof(float) != 0)
        return false;
    if ((uintptr_t)out->data % sizeof(float) != 0)
        return false;
    for (uint32_t i = 0; i < output->model->stage_count; i++)
        if (output->model->stages[i].kind != FL_STAGE_NORMALIZE)
            return false;
    return output->columns == fl_encoder_width(&output->model->encoder);
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

bool fl_output_tokens(const fl_row_output *output, float *rows, size_t count) {
    size_t width = output->columns;
    if (!fl_all_finite(rows, count * width))
        return false;
    for (size_t i = 0; output->normalize && i < count; i++)
        normalize_row(rows + i * width, output->columns, rows + i * width);
    return true;
}

/* ---- Sparse vectors -------------------------------------------------------------------------- */

/* A term and its weight; of equal weights the lower id is before. */
typedef struct weighed {
    float   weight;
    int32_t id;
} weighed;

static int by_weight(const void *a, const void *b) {
    const weighed *x = a, *y = b;
    float          v = fabsf(x->weight), w = fabsf(y->weight);
    if (v > w || w > v)
        return v > w ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b) {
    const weighed *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The k heaviest of the terms, ids rising again. */
static int keep_heaviest(fl_terms *terms, uint32_t k) {
    weighed *all = fl_alloc_array(terms->count, sizeof *all);
    if (!all)
        return FLETCH_ENOMEM;
    for (uint32_t i = 0; i < terms->count; i++)
        all[i] = (weighed){terms->values[i], terms->ids[i]};
    qsort(all, terms->count, sizeof *all, by_weight);
    qsort(all, k, sizeof *all, by_id);
    for (uint32_t i = 0; i < k; i++) {
        terms->values[i] = all[i].weight;
        terms->ids[i]    = all[i].id;
    }
    terms->count = k;
    fl_free(all);
    return FLETCH_OK;
}

int fl_output_weights(fl_request *request, size_t text, fl_terms *terms) {
    const fletch_embed_options *options = &request->options;
    int32_t                    *ids     = NULL;
    float                      *values  = NULL;
    uint32_t                    kept    = 0;
    int                         status  = FLETCH_OK;
    for (uint32_t i = 0; i < terms->count; i++) {
        float weight = fabsf(terms->values[i]); /* those of a table may be below 0 */
        if (weight > 0.0f && weight >= options->threshold) {
            terms->values[kept] = terms->values[i];
            terms->ids[kept++]  = terms->ids[i];
        }
    }
    terms->count = kept;
    if (options->top_k > 0 && options->top_k < kept)
        status = keep_heaviest(terms, options->top_k);
    fl_lists_drop(request->lists, text); /* what it had of an earlier batch, or its tokens' rows */
    if (status == FLETCH_OK)
        status = fl_lists_make(request->lists, &request->lists->list[text], terms->count, 1, &ids,
                               &values);
    for (uint32_t i = 0; status == FLETCH_OK && i < terms->count; i++) {
        ids[i]    = terms->ids[i];
        values[i] = terms->values[i];
    }
    return status;
}

/* Memory of terms that is more than most texts need goes. */
static int end_terms(int status, fl_terms *terms) {
    if (terms->capacity > TERMS_KEPT)
        fl_terms_free(terms);
    return status;
}

int fl_output_terms(fl_request *request, size_t text, fl_terms *terms) {
    for (uint32_t i = 0; i < terms->count; i++) {
        float weight     = log1pf(terms->values[i]);
        terms->values[i] = request->output.model->log_twice ? log1pf(weight) : weight;
    }
    return end_terms(fl_output_weights(request, text, terms), terms);
}

/* Of a text's tokens [count], by id: the heaviest of each stays. */
static uint32_t keep_heaviest_of_each(weighed *all, uint32_t count) {
    uint32_t kept = 0;
    qsort(all, count, sizeof *all, by_id);
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || all[kept - 1].id != all[i].id)
            all[kept++] = all[i];
        else if (all[i].weight > all[kept - 1].weight)
            all[kept - 1].weight = all[i].weight;
    }
    return kept;
}

int fl_output_token_weights(fl_request *request, size_t text, fl_terms *terms) {
    const fletch_model *model  = request->model;
    const fl_stage     *layer  = &model->model->weigher;
    const fletch_list   hidden = request->lists->list[text];
    weighed            *all    = fl_alloc_array(hidden.count, sizeof *all);
    uint32_t            count  = 0;
    int                 status = all != NULL ? FLETCH_OK : FLETCH_ENOMEM;
    for (size_t i = 0; i < hidden.count && status == FLETCH_OK; i++) {
        float weight =
            fl_output_dot(layer->weight, hidden.values + i * layer->in, layer->in) + layer->bias[0];
        if (!isfinite(weight))
            status = FLETCH_EMODEL;
        else if (weight > 0.0f && !model->skipped[hidden.ids[i]])
            all[count++] = (weighed){weight, hidden.ids[i]};
    }
    count        = status == FLETCH_OK ? keep_heaviest_of_each(all, count) : 0;
    terms->count = 0;
    for (uint32_t i = 0; i < count && status == FLETCH_OK; i++)
        if (!fl_terms_add(terms, all[i].id, all[i].weight))
            status = FLETCH_ENOMEM;
    fl_free(all);
    if (status == FLETCH_OK)
        status = fl_output_weights(request, text, terms);
    else
        fl_lists_drop(request->lists, text); /* its rows are nobody's result */
    return end_terms(status, terms);
}

bool fl_output_row(const fl_row_output *output, const float *pooled, float *const line[2],
                   void *row) {
    return fl_output_row_of(output, pooled, fl_encoder_width(&output->model->encoder), line, row);
}

bool fl_output_row_of(const fl_row_output *output, const float *pooled, uint32_t width,
                      float *const line[2], void *row) {
    const fl_model *model = output->model;
    uint32_t        count = output->raw ? inner_stages(model) : model->stage_count;
    const float    *now   = pooled;
    bool            unit  = false; /* the last stage left a row of unit length */
    if (!fl_all_finite(pooled, width))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const fl_stage *stage = &model->stages[i];
        float          *next = next_line(now, line, stage->kind == FL_STAGE_NORMALIZE ? row : NULL);
        if (stage->kind == FL_STAGE_DENSE)
            dense(stage, now, next);
        else if (stage->kind == FL_STAGE_LAYER_NORM)
            layer_norm(stage, now, next);
        else
            normalize_row(now, width, next);
        unit  = stage->kind == FL_STAGE_NORMALIZE;
        width = stage->out;
        now   = next;
        if (stage->kind != FL_STAGE_NORMALIZE && !fl_all_finite(now, width))
            return false;
    }
    if (output->softmax || output->activation != FL_DENSE_IDENTITY) {
        float *next = next_line(now, line, row);
        for (uint32_t i = 0; i < width && !output->softmax; i++)
            next[i] = activate(now[i], output->activation);
        if (output->softmax)
            softmax(now, width, next);
        now = next;
    }
    bool cut = output->columns < width;
    if (output->normalize && (cut ? output->renormalize : !unit)) {
        float *next = next_line(now, line, row);
        normalize_row(now, output->columns, next);
        now = next;
    }
    fl_output_store(now, output->columns, output->dtype, row);
    return true;
}
