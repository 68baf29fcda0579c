/* SPDX-License-Identifier: Apache-2.0 */
/* rescue.c - a text that overflowed a narrow format, once more in float32.
 *
 * Role    cuda_forward.c calls it for each text whose row came out not finite, before the row is given.
 * Why     fp16 ends at 65504. A model that was trained in float32 or bfloat16 may pass that in one
 *         text of a million, and neither NaN nor a lost text is an answer.
 * Method  A second engine on the same device, in fp32, from the same checkpoint, with one slot for
 *         one text of the greatest length: opened when the first text needs it, and kept. A text
 *         that is not finite in fp32 either is the model's fault, and fails.
 * State   The promise of fp16 (docs/providers.md) needs it, not a figure: without it such a text has no vector.
 * Memory  float32 weights and a small arena on the device, within what cuda.memory_limit leaves
 *         beside the first engine and the device has free; where there is no room the text fails
 *         and is told so. It is the one thing that forward allocates besides graphs.
 * Threads any slot's; one text at a time, under a lock.
 * Proof   tests/cuda/test_cuda_faults.c: a model whose fp16 overflows, and NaN that stays. */
#include "base/error.h"
#include "engines/cuda/cuda_engine.h"

static int fail_text(const fl_engine *e, uint32_t i, fletch_error *error) {
    return fl_fail(
        error, FLETCH_EMODEL, i,
        "the vector of a text is not finite: the weights hold NaN or infinite values, or "
        "overflow %s. Run `fletch model verify` or pull the model again",
        e->precision);
}

static int open_rescue(fl_engine *e, fletch_error *error) {
    uint64_t          used = fl_cuda_resident(e), limit = e->options.memory_limit;
    fl_engine_options wide = {.provider      = "cuda",
                              .device        = e->options.device,
                              .threads       = e->options.threads,
                              .batch_tokens  = e->max_length,
                              .batch_texts   = 1,
                              .max_length    = e->max_length,
                              .precision     = "fp32",
                              .deterministic = e->deterministic,
                              .config        = e->options.config,
                              .trace         = e->trace,
                              .log           = e->log};
    if (e->rescue != NULL)
        return FLETCH_OK;
    if (limit > 0) /* 1: nothing is left, as the error will say */
        wide.memory_limit = limit > used ? limit - used : 1;
    int status = fl_cuda_open_aside(&e->rescue, e->encoder, &wide, error);
    if (status == FLETCH_OK)
        fl_log_write(e->log, FL_LOG_WARNING,
                     "cuda: a text is not finite in %s; such texts are rerun in fp32, which takes "
                     "%.1f MB more of %s. provider.precision bf16 or fp32 avoids it",
                     e->precision, (double)fl_cuda_resident(e->rescue) / 1e6, e->name);
    return status;
}

static int run_alone(fl_engine *e, const fl_batch *batch, uint32_t i, fletch_error *error) {
    uint32_t cu[2]  = {0, batch->cu[i + 1] - batch->cu[i]};
    fl_batch one    = {.ids       = batch->ids + batch->cu[i],
                       .cu        = cu,
                       .texts     = 1,
                       .tokens    = cu[1],
                       .pool_skip = batch->pool_skip != NULL ? batch->pool_skip + i : NULL,
                       .segment   = batch->segment != NULL ? batch->segment + i : NULL,
                       .rows      = batch->rows + i};
    int      status = fl_cuda_forward(e->rescue, 0, &one, error);
    if (status == FLETCH_OK && e->options.fp32_retries != NULL)
        atomic_fetch_add_explicit(e->options.fp32_retries, 1, memory_order_relaxed);
    return status == FLETCH_EMODEL ? fail_text(e->rescue, i, error) : status;
}

int fl_cuda_rescue(fl_engine *e, const fl_batch *batch, uint32_t i, fletch_error *error) {
    fletch_error why;
    if (e->aside || e->type == FL_CUDA_F32)
        return fail_text(e, i, error);
    pthread_mutex_lock(&e->rescue_lock);
    int status = open_rescue(e, &why);
    if (status == FLETCH_OK)
        status = run_alone(e, batch, i, error);
    else
        status = fl_fail(error, FLETCH_EMODEL, i,
                         "the vector of a text is not finite in %s, and the fp32 engine for a "
                         "rerun cannot be opened: %.300s",
                         e->precision, why.message);
    pthread_mutex_unlock(&e->rescue_lock);
    return status;
}
