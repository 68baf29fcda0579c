/* SPDX-License-Identifier: Apache-2.0 */
/* ort_plan.c - a packed batch of mixed lengths becomes runs of equal or near lengths.
 *
 * Role    ONNX Runtime takes rectangles. Padding is its great loss: a padded batch of mixed texts
 *         runs at half the speed of the same texts in rectangles of their own, so that groups are
 *         formed before anything runs.
 * Method  Texts are sorted by falling length (a counting sort: no comparison, stable). A group takes
 *         texts of one length. On devices, where a run costs as much as some thousand tokens whatever
 *         is in it, a group goes on to shorter texts, with a mask, until the padding costs more than
 *         another run. Its budget of tokens also leaves every lane a group. Providers that compile
 *         a shape anew (fixed) get lengths and rows rounded up to powers of two; so there are some
 *         dozen shapes, each compiled once.
 * Memory  Sized in open for the largest batch. Threads: one plan belongs to one forward.
 * Proof   tests/unit/test_onnxruntime.c: every text once, budget held, shapes few. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "engines/onnxruntime/ort.h"

enum { FIXED_LENGTH_LEAST = 16, EIGHTHS = 8 };

int fl_ort_plan_open(fl_ort_plan *plan, uint32_t texts_max, uint32_t max_length,
                     fletch_error *error) {
    plan->texts_max  = texts_max;
    plan->max_length = max_length;
    plan->order      = fl_alloc_array(texts_max, sizeof *plan->order);
    plan->groups     = fl_alloc_array(texts_max, sizeof *plan->groups);
    plan->counts     = fl_alloc_array((size_t)max_length + 2, sizeof *plan->counts);
    if (plan->order == NULL || plan->groups == NULL || plan->counts == NULL)
        return fl_fail_nomem(error, texts_max * sizeof *plan->groups, "the plan of a batch");
    return FLETCH_OK;
}

void fl_ort_plan_close(fl_ort_plan *plan) {
    fl_free(plan->order);
    fl_free(plan->groups);
    fl_free(plan->counts);
    memset(plan, 0, sizeof *plan);
}

static uint32_t power_above(uint32_t value) {
    uint32_t power = 1;
    while (power < value && power < 1U << 30)
        power *= 2;
    return power;
}

/* The length that a run of such texts has: rounded up where shapes are to be few. */
static uint32_t run_length(const fl_ort_plan *plan, uint32_t length) {
    if (!plan->fixed)
        return length;
    uint32_t rounded = power_above(length < FIXED_LENGTH_LEAST ? FIXED_LENGTH_LEAST : length);
    return rounded < plan->max_length ? rounded : plan->max_length;
}

/* Rows of a run of this length at most. */
static uint32_t rows_for(const fl_ort_plan *plan, uint32_t length, uint32_t tokens) {
    uint32_t rows = plan->single ? 1 : tokens / length;
    rows          = rows < 1 ? 1 : rows;
    rows          = plan->rows_limit > 0 && rows > plan->rows_limit ? plan->rows_limit : rows;
    if (!plan->fixed)
        return rows;
    uint32_t power = power_above(rows);
    return power > rows ? power / 2 : power;
}

uint32_t fl_ort_plan_rows_max(const fl_ort_plan *plan) {
    uint32_t rows = rows_for(plan, 1, plan->tokens_max);
    return rows < plan->texts_max ? rows
           : plan->fixed          ? power_above(plan->texts_max)
                                  : plan->texts_max;
}

uint32_t fl_ort_plan_tokens_max(const fl_ort_plan *plan) {
    return plan->tokens_max > plan->max_length ? plan->tokens_max : plan->max_length;
}

static uint32_t length_of(const fl_batch *batch, uint32_t text) {
    return batch->cu[text + 1] - batch->cu[text];
}

static void sort_by_length(fl_ort_plan *plan, const fl_batch *batch) {
    memset(plan->counts, 0, ((size_t)plan->max_length + 2) * sizeof *plan->counts);
    for (uint32_t t = 0; t < batch->texts; t++)
        plan->counts[length_of(batch, t)]++;
    uint32_t at = 0;
    for (uint32_t length = plan->max_length + 1; length-- > 0;) {
        uint32_t count       = plan->counts[length];
        plan->counts[length] = at;
        at += count;
    }
    for (uint32_t t = 0; t < batch->texts; t++)
        plan->order[plan->counts[length_of(batch, t)]++] = t;
}

/* Texts from `first` on that share a run: as long as what is padded costs less than a run of its own
 * would, or is a small part of the run. */
static uint32_t company(const fl_ort_plan *plan, const fl_batch *batch, uint32_t first,
                        uint32_t rows_max) {
    uint32_t length = run_length(plan, length_of(batch, plan->order[first])), count = 1;
    uint64_t padding = 0;
    while (count < rows_max && first + count < batch->texts) {
        uint32_t next  = run_length(plan, length_of(batch, plan->order[first + count]));
        uint64_t part  = (uint64_t)(count + 1) * length / EIGHTHS * plan->slack;
        uint64_t limit = part > plan->run_tokens ? part : plan->run_tokens;
        padding += length - next;
        if (padding > limit)
            break;
        count++;
    }
    return count;
}

static uint32_t log2_above(uint32_t value) {
    return value <= 1 ? 0 : 32 - (uint32_t)__builtin_clz(value - 1);
}

static void count_shapes(fl_ort_plan *plan) {
    for (uint32_t i = 0; i < plan->group_count; i++) {
        uint32_t *seen = &plan->seen[log2_above(plan->groups[i].length) % FL_ORT_SHAPE_BITS];
        uint32_t  bit  = 1U << log2_above(plan->groups[i].rows) % FL_ORT_SHAPE_BITS;
        plan->compilations += (*seen & bit) == 0;
        *seen |= bit;
    }
}

void fl_ort_plan_make(fl_ort_plan *plan, const fl_batch *batch, unsigned lanes) {
    uint32_t share = lanes > 1 ? (batch->tokens + lanes - 1) / lanes : plan->tokens_max;
    uint32_t limit = share < plan->tokens_max ? share : plan->tokens_max;
    sort_by_length(plan, batch);
    plan->group_count = 0;
    for (uint32_t first = 0; first < batch->texts;) {
        fl_ort_group *group = &plan->groups[plan->group_count++];
        group->first        = first;
        group->length       = run_length(plan, length_of(batch, plan->order[first]));
        group->count        = company(plan, batch, first, rows_for(plan, group->length, limit));
        group->rows         = plan->fixed ? power_above(group->count) : group->count;
        first += group->count;
    }
    if (plan->fixed)
        count_shapes(plan);
}
