/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - find the channels of x that are large in every text, so that bytes suffice, and what
 * the errors of rounding are weighed by.
 *
 * Role     engine.c calls it once when it opens with precision=int8.
 * Why      Trained encoders keep a few channels of the residual stream at ten times the size of the
 *          others, whatever the text. A row's scale must reach them, so all others would be left
 *          with a handful of steps: four fifths of the error of plain int8 on all-MiniLM-L6-v2. And
 *          every text has the special tokens, which are all that an empty or one-word text has.
 * Method   The packed engine runs a few texts of arbitrary ids between the model's special tokens.
 *          The mean square of every channel in front of every product is taken: a channel r times
 *          the median is divided by r^0.65 on its way into bytes and its weights are multiplied by
 *          that: the load is split between both. The rows of the first 32 tokens are kept, as the
 *          products see them: witnesses of what rounding the weights does (quant.c). Then all
 *          matrices are packed once more. Ids that mean nothing do as well as English: what is
 *          looked for lies in the weights.
 * Bytes    The ids are always the same and one thread runs them: the same model gives the same
 *          gains and weights on every start.
 * Memory   32 rows of every product while it runs: 2 MB for all-MiniLM-L6-v2.
 * Proof    tests/golden/test_precision.py. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "engines/cpu/cpu_engine.h"

/* Arbitrary ids of each text, the witnesses first, and special tokens on a side at most. */
static const uint32_t lengths[] = {0, 1, 2, 4, 15, 32, 64, 128};
enum { LONGEST = 128, FRAME_MOST = 16 };

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

void fl_cpu_watch_rows(const fl_engine *engine, size_t layer, size_t at, const float *x,
                       size_t stride, size_t row, size_t rows, size_t n) {
    const fl_cpu_watch *watch = engine->watch;
    size_t              token = watch->tokens + row;
    for (size_t r = 0; r < rows; r++, token++, x += stride) {
        double *squares = watch->squares + layer * 2 * engine->hidden16 + at;
        float  *kept    = watch->rows + (layer * watch->each + at) * FL_CPU_WITNESSES + token;
        for (size_t i = 0; at < 2 * engine->hidden16 && i < n; i++) {
            squares[i] += (double)x[i] * (double)x[i];
        }
        for (size_t i = 0; token < FL_CPU_WITNESSES && i < n; i++) {
            kept[i * FL_CPU_WITNESSES] = x[i];
        }
    }
}

/* One text through all layers, alone. */
static void run_ids(fl_engine *e, const int32_t *ids, uint32_t tokens, float *row) {
    uint32_t     cu[2]  = {0, tokens};
    float *const rows[] = {row};
    fl_batch     batch  = {.ids = ids, .cu = cu, .texts = 1, .tokens = tokens, .rows = rows};
    fl_cpu_block block  = {.first = 0, .last = 1, .tokens = tokens};
    e->batch            = &batch;
    e->plan.order[0]    = 0;
    fl_cpu_run_block(e, &block, 0, 1);
    e->batch = NULL;
    e->watch->tokens += tokens;
}

static uint32_t put_special(const int32_t *special, uint32_t count, uint32_t vocab, int32_t *ids) {
    uint32_t put = 0;
    for (uint32_t i = 0; i < count && put < FRAME_MOST; i++) {
        if (special[i] >= 0 && (uint32_t)special[i] < vocab) {
            ids[put++] = special[i];
        }
    }
    return put;
}

static void run_texts(fl_engine *e, const fl_engine_options *options, float *row) {
    int32_t  ids[LONGEST + 2 * FRAME_MOST];
    uint64_t state = 88172645463325252U;
    atomic_store(&e->bad_text, UINT32_MAX);
    for (size_t text = 0; text < sizeof lengths / sizeof *lengths; text++) {
        uint32_t count = put_special(options->before, options->before_count, e->desc.vocab, ids);
        for (uint32_t i = 0; i < lengths[text]; i++) {
            ids[count++] = draw(&state, e->desc.vocab);
        }
        count += put_special(options->after, options->after_count, e->desc.vocab, ids + count);
        if (count > 0) {
            run_ids(e, ids, count < e->max_length ? count : (uint32_t)e->max_length, row);
        }
    }
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

/* The witnesses of a layer as its products see them, and their products within eights of channels. */
static void finish_layer(fl_engine *e, size_t layer, double *sorted) {
    const fl_cpu_watch *watch   = e->watch;
    const double       *squares = watch->squares + layer * 2 * e->hidden16;
    float              *rows    = watch->rows + layer * watch->each * FL_CPU_WITNESSES;
    float              *gram    = watch->gram + layer * watch->each * FL_CPU_GRAM;
    for (size_t place = 0; place < 2; place++) {
        const fl_cpu_layer *at   = &e->layers[layer];
        float              *gain = (float *)(uintptr_t)(place == 0 ? at->qkv_gain : at->up_gain);
        float              *x    = rows + place * e->hidden16 * FL_CPU_WITNESSES;
        choose_gains(squares + place * e->hidden16, e->desc.hidden, sorted, gain);
        for (size_t i = 0; i < e->hidden16 * FL_CPU_WITNESSES; i++) {
            x[i] *= gain[i / FL_CPU_WITNESSES];
        }
    }
    for (size_t i = 0; i < watch->each * FL_CPU_GRAM; i++) {
        const float *one = rows + i / FL_CPU_GRAM * FL_CPU_WITNESSES;
        const float *other =
            rows +
            (i / FL_CPU_GRAM / FL_CPU_GRAM * FL_CPU_GRAM + i % FL_CPU_GRAM) * FL_CPU_WITNESSES;
        for (size_t t = 0; t < FL_CPU_WITNESSES; t++) {
            gram[i] += one[t] * other[t];
        }
    }
}

static int calibrate(fl_engine *engine, const fl_encoder *encoder, const fl_engine_options *options,
                     float *row, double *sorted, fletch_error *error) {
    run_texts(engine, options, row);
    for (size_t i = 0; i < engine->desc.layers; i++) {
        finish_layer(engine, i, sorted);
    }
    return fl_cpu_pack_again(engine, encoder, error);
}

int fl_cpu_calibrate(fl_engine *engine, const fl_encoder *encoder, const fl_engine_options *options,
                     fletch_error *error) {
    size_t  hidden16 = engine->hidden16, layers = engine->desc.layers;
    size_t  each   = 2 * hidden16 + engine->inner + engine->mlp16;
    size_t  bytes  = layers * each * FL_CPU_WITNESSES * sizeof(float);
    float  *row    = fl_alloc_array(fl_encoder_width(encoder), sizeof *row);
    double *sorted = fl_alloc_array(hidden16, sizeof *sorted);

    fl_cpu_watch watch = {.squares = fl_alloc_zero(layers * 2 * hidden16, sizeof(double)),
                          .rows    = fl_alloc_aligned(bytes, 64),
                          .gram    = fl_alloc_zero(layers * each * FL_CPU_GRAM, sizeof(float)),
                          .each    = each};
    int          status;
    if (row && sorted && watch.squares && watch.rows && watch.gram) {
        memset(watch.rows, 0, bytes);
        engine->watch = &watch;
        status        = calibrate(engine, encoder, options, row, sorted, error);
        engine->watch = NULL;
        fl_pages_release(engine->arena, engine->arena_bytes); /* as if nothing had run: memory.c */
    } else {
        status = fl_fail_nomem(error, bytes, "calibrating");
    }
    fl_free(watch.gram);
    fl_free(watch.rows);
    fl_free(watch.squares);
    fl_free(sorted);
    fl_free(row);
    return status;
}
