/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c - what a model says by rule and the forward reads as numbers: positions, the angles of
 * RoPE, and what distance does to a score.
 *
 * Role     pack.c lets them be laid out at the head of its arena and filled once when the engine opens.
 * Method   Position, type and task rows are added into one table. Which keys a token sees needs no table; what is
 *          added to a score is spread out per head and distance; DeBERTa has the column of a distance.
 *          Tables are as long as the longest text that the engine was opened for.
 * Proof    tests/unit/test_engine*.c. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "engines/cpu/cpu_engine.h"

uint64_t fl_cpu_word_row(const fl_tensor *map, int32_t id) {
    int64_t row = id;
    if (map->data && map->dtype == FL_DTYPE_I64) {
        memcpy(&row, (const char *)map->data + (size_t)id * sizeof row, sizeof row);
    } else if (map->data) {
        int32_t narrow;
        memcpy(&narrow, (const char *)map->data + (size_t)id * sizeof narrow, sizeof narrow);
        row = narrow;
    }
    return (uint64_t)row;
}

int fl_cpu_check_word_map(const fl_encoder *encoder, fletch_error *error) {
    const fl_tensor *map = &encoder->global[FL_SLOT_WORD_MAP];
    for (uint32_t id = 0; map->data && id < encoder->desc.vocab; id++) {
        uint64_t row = fl_cpu_word_row(map, (int32_t)id);
        if (row >= encoder->desc.word_rows) {
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "the word map sends id %u to row %lld, but the word table has %u", id,
                           (long long)row, encoder->desc.word_rows);
        }
    }
    return FLETCH_OK;
}

/* ---- Layout ---------------------------------------------------------------------------------- */

static float *take(float *base, size_t *used, size_t floats) {
    assert(*used % FL_CPU_LANES == 0);
    float *place = base ? base + *used : NULL;
    *used += fl_cpu_pad(floats);
    return place;
}

size_t fl_cpu_lay_out_tables(fl_engine *e, const fl_encoder *encoder, float *base) {
    size_t used    = 0;
    bool positions = encoder->global[FL_SLOT_POSITION].data || encoder->global[FL_SLOT_TYPE].data ||
                     e->desc.task_type;
    size_t rows  = (e->max_length + 1) * (e->desc.segments ? 2 : 1);
    e->positions = positions ? take(base, &used, rows * e->embed16) : NULL;
    /* distances -(max_length - 1) … max_length - 1, and 16 that kernels may read past the end */
    e->bias_stride = fl_cpu_pad(2 * e->max_length - 1 + FL_CPU_LANES);
    for (size_t i = 0; i < FL_RULES_MAX; i++) {
        const fl_distance *rule  = &e->desc.distance[i];
        ptrdiff_t          first = fl_distance_first(rule), last = fl_distance_last(rule);
        size_t             dims = e->desc.rope[i].dims, angles = e->max_length * (dims / 2);
        fl_cpu_window     *window = &e->window[i];
        window->before            = first == -PTRDIFF_MAX ? FL_CPU_ALL : (size_t)-first;
        window->after             = last == PTRDIFF_MAX ? FL_CPU_ALL : (size_t)last;
        window->bias       = rule->bias == FL_BIAS_NONE || rule->bias == FL_BIAS_DISENTANGLED ||
                               fl_t5_by_layer(&e->desc, rule)
                                 ? NULL
                                 : take(base, &used, e->desc.heads * e->bias_stride);
        e->rope[i].dims    = dims;
        e->rope[i].trained = e->desc.rope[i].trained;
        e->rope[i].longer =
            e->desc.rope[i].longer > 0 ? &e->rope[e->desc.rope[i].longer - 1] : NULL;
        e->rope[i].cosine = dims ? take(base, &used, angles) : NULL;
        e->rope[i].sine   = dims ? take(base, &used, angles) : NULL;
    }
    if (e->relative16 > 0)
        e->column = (const int32_t *)(const void *)take(base, &used, 2 * e->max_length - 1);
    return used;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Tables are written here and read-only ever after. */
static float *mutable(const float *place) {
    return (float *)(uintptr_t)place;
}

void fl_cpu_spread_bias(const fl_engine *e, const fl_encoder *encoder, size_t rule, uint32_t layer,
                        float *out) {
    ptrdiff_t reach = (ptrdiff_t)e->max_length - 1;
    for (ptrdiff_t distance = -reach; distance <= reach; distance++) {
        for (uint32_t head = 0; head < e->desc.heads; head++) {
            size_t at = head * e->bias_stride + (size_t)(reach + distance);
            out[at]   = fl_distance_value(encoder, &e->desc.distance[rule], layer, head, distance);
        }
    }
}

/* The rows of DeBERTa's table from its end: columns rise with key - query. */
static void fill_columns(const fl_engine *e) {
    ptrdiff_t reach  = (ptrdiff_t)e->max_length - 1;
    int32_t  *column = (int32_t *)(uintptr_t)e->column + reach;
    for (ptrdiff_t distance = -reach; distance <= reach; distance++) {
        column[distance] =
            (int32_t)(fl_relative_rows(&e->desc) - 1 - fl_distance_row(&e->desc, distance));
    }
}

/* row[width] += row `index` of a table, where there is one. */
static void add_row(const fl_tensor *table, size_t index, size_t width, float *row) {
    for (size_t k = 0; table->data && k < width; k++) {
        float value;
        fl_tensor_to_f32(table, index * width + k, 1, &value);
        row[k] += value;
    }
}

/* positions[i] = position row i + offset, plus a row of the type table and the first of that of tasks;
 * behind the last one stands the row of a pad token, for architectures that do not count it. */
static void add_positions(const fl_engine *e, const fl_encoder *encoder, float *positions,
                          size_t type_row) {
    const fl_tensor *position = &encoder->global[FL_SLOT_POSITION];
    size_t           width    = e->desc.embedding;
    size_t           rows     = e->max_length + (e->desc.position_skips_pad ? 1 : 0);
    for (size_t i = 0; i < rows; i++) {
        float *row  = positions + i * e->embed16;
        size_t from = i < e->max_length ? i + e->desc.position_offset : e->desc.pad_token;
        if (position->data)
            fl_tensor_to_f32(position, from * width, width, row);
        add_row(&encoder->global[FL_SLOT_TYPE], type_row, width, row);
        add_row(&encoder->global[FL_SLOT_TASK], 0, width, row);
    }
}

void fl_cpu_fill_tables(const fl_engine *e, const fl_encoder *encoder) {
    if (e->positions)
        add_positions(e, encoder, mutable(e->positions), 0);
    if (e->positions && e->desc.segments)
        add_positions(e, encoder, mutable(e->positions) + fl_cpu_segment_row(e) * e->embed16, 1);
    if (e->column)
        fill_columns(e);
    for (size_t i = 0; i < FL_RULES_MAX; i++) {
        if (e->window[i].bias)
            fl_cpu_spread_bias(e, encoder, i, 0, mutable(e->window[i].bias));
        if (e->rope[i].dims > 0) {
            fl_rope_table(&e->desc.rope[i], 0, (uint32_t)e->max_length, mutable(e->rope[i].cosine),
                          mutable(e->rope[i].sine));
        }
    }
}
