/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - find the channels of x that are large in every text, so that bytes suffice.
 *
 * Role     engine.c calls it once when it opens with precision=int8.
 * Why      Trained encoders keep a few channels of the residual stream at ten times the size of the
 *          others, whatever the text. A row's scale must reach them, so all others would be left
 *          with a handful of steps: four fifths of the error of plain int8 on all-MiniLM-L6-v2.
 * Method   The packed engine runs a few texts of arbitrary ids and the mean square of every channel
 *          in front of every product is taken. A channel r times the median is divided by r^0.65 on
 *          its way into bytes and its weights are multiplied by that: the load is split between both.
 *          Then the matrices concerned are packed once more. Ids that mean nothing do as well as
 *          English: what is looked for lies in the weights.
 * Bytes    The ids are always the same and one thread runs them: the same model gives the same
 *          gains on every start.
 * Memory   A few rows while it runs. Proof: tests/golden/test_precision.py. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "engines/cpu/cpu_engine.h"

enum { LONGEST = 64 };

/* How much of a channel's excess the weights take over. Of 0.35, 0.5, 0.65 and 0.8 the one with the
 * best mean and worst cosine on all-MiniLM-L6-v2. */
static const double share = 0.65;

/* An arbitrary id: xorshift from a fixed seed. */
static int32_t draw(uint64_t *state, uint32_t vocab) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (int32_t)((*state >> 20) % vocab);
}

/* One text of `tokens` ids through all layers, alone. */
static void run_text(fl_engine *e, uint32_t tokens, uint64_t *state, float *row) {
    int32_t      ids[LONGEST];
    uint32_t     cu[2]  = {0, tokens};
    float *const rows[] = {row};
    fl_batch     batch  = {.ids = ids, .cu = cu, .texts = 1, .tokens = tokens, .rows = rows};
    fl_cpu_block block  = {.first = 0, .last = 1, .tokens = tokens};
    for (uint32_t i = 0; i < tokens; i++) {
        ids[i] = draw(state, e->desc.vocab);
    }
    e->batch         = &batch;
    e->plan.order[0] = 0;
    fl_cpu_run_block(e, &block, 0, 1);
    e->batch = NULL;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* gain[i] = (median / size)^share for channels above the median, 1 for the others. Sizes are root mean
 * squares; `sorted` is room for them. */
static void choose_gains(const double *squares, size_t n, double *sorted, float *gain) {
    memcpy(sorted, squares, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_size);
    double median = sorted[n / 2];
    for (size_t i = 0; i < n; i++) {
        /* also false when something is not a number */
        gain[i] = squares[i] > median && median > 0.0 && squares[i] < INFINITY
                      ? (float)pow(median / squares[i], share / 2.0)
                      : 1.0f;
    }
}

static void run_texts(fl_engine *e, float *row) {
    uint64_t state = 88172645463325252U;
    atomic_store(&e->bad_text, UINT32_MAX);
    for (uint32_t tokens = 8; tokens <= LONGEST; tokens *= 2) {
        run_text(e, tokens < e->max_length ? tokens : (uint32_t)e->max_length, &state, row);
    }
}

int fl_cpu_calibrate(fl_engine *engine, const fl_encoder *encoder, fletch_error *error) {
    size_t  hidden16 = engine->hidden16, layers = engine->desc.layers;
    float  *row    = fl_alloc_array(fl_encoder_width(encoder), sizeof *row);
    double *sorted = fl_alloc_array(hidden16, sizeof *sorted);
    engine->watch  = fl_alloc_zero(layers * 2 * hidden16, sizeof *engine->watch);
    int status     = FLETCH_OK;
    if (row == NULL || sorted == NULL || engine->watch == NULL) {
        status = fl_fail_nomem(error, layers * 2 * hidden16 * sizeof(double), "choosing gains");
    } else {
        run_texts(engine, row);
        for (size_t i = 0; i < layers; i++) {
            const double *at = engine->watch + i * 2 * hidden16;
            choose_gains(at, engine->desc.hidden, sorted,
                         (float *)(uintptr_t)engine->layers[i].qkv_gain);
            choose_gains(at + hidden16, engine->desc.hidden, sorted,
                         (float *)(uintptr_t)engine->layers[i].up_gain);
        }
    }
    fl_pages_release(engine->arena, engine->arena_bytes); /* as if nothing had run: memory.c */
    fl_free(engine->watch);
    engine->watch = NULL;
    fl_free(sorted);
    fl_free(row);
    return status == FLETCH_OK ? fl_cpu_pack_again(engine, encoder, error) : status;
}
