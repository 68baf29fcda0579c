/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_calibrate.c - find the channels of x that are large in every text, so that bytes suffice.
 *
 * Role     pack_cache.c calls it once when an engine packs with precision=int8.
 * Method   The packed engine runs the texts of model/calibration.h, which says why and how, and the
 *          mean square of every channel in front of every product is taken. Then the matrices
 *          concerned are packed once more, with the gains.
 * Bytes    One thread runs the texts: the same model gives the same gains on every start.
 * Memory   A few rows while it runs. Proof: tests/golden/test_precision.py. */
#include "base/error.h"
#include "base/mem.h"
#include "engines/cpu/cpu_engine.h"
#include "model/calibration.h"

/* One text of `tokens` ids through all layers, alone. */
static void run_text(fl_engine *e, uint32_t tokens, uint64_t *state) {
    int32_t      ids[FL_CALIBRATION_LONGEST];
    uint32_t     cu[2] = {0, tokens};
    fl_batch     batch = {.ids = ids, .cu = cu, .texts = 1, .tokens = tokens};
    fl_cpu_block block = {.first = 0, .last = 1, .tokens = tokens};
    fl_calibration_ids(state, e->desc.vocab, ids, tokens);
    e->batch         = &batch;
    e->plan.order[0] = 0;
    fl_cpu_run_block(e, &block, 0, 1);
    e->batch = NULL;
}

static void run_texts(fl_engine *e) {
    uint64_t state = fl_calibration_seed;
    for (uint32_t tokens = FL_CALIBRATION_SHORTEST; tokens <= FL_CALIBRATION_LONGEST; tokens *= 2)
        run_text(e, tokens < e->max_length ? tokens : (uint32_t)e->max_length, &state);
}

int fl_cpu_calibrate(fl_engine *engine, const fl_encoder *encoder, fletch_error *error) {
    size_t  hidden16 = engine->hidden16, layers = engine->desc.layers;
    double *sorted = fl_alloc_array(hidden16, sizeof *sorted);
    engine->watch  = fl_alloc_zero(layers * 2 * hidden16, sizeof *engine->watch);
    int status     = FLETCH_OK;
    if (sorted == NULL || engine->watch == NULL) {
        status = fl_fail_nomem(error, layers * 2 * hidden16 * sizeof(double), "choosing gains");
    } else {
        run_texts(engine);
        for (size_t i = 0; i < layers; i++) {
            const double *at = engine->watch + i * 2 * hidden16;
            fl_calibration_gains(at, engine->desc.hidden, sorted,
                                 (float *)(uintptr_t)engine->layers[i].qkv_gain);
            fl_calibration_gains(at + hidden16, engine->desc.hidden, sorted,
                                 (float *)(uintptr_t)engine->layers[i].up_gain);
        }
    }
    fl_pages_release(engine->arena, engine->arena_bytes); /* as if nothing had run: cpu_memory.c */
    fl_free(engine->watch);
    engine->watch = NULL;
    fl_free(sorted);
    return status == FLETCH_OK ? fl_cpu_pack_again(engine, encoder, error) : status;
}
