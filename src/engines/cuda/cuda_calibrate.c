/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_calibrate.c - the gains of int8, from a few texts on the device in 16 bits.
 *
 * Role    cuda_engine.c has them made before the weights are converted; model/calibration.h says why
 *         they are needed.
 * In/Out  the encoder -> e->gains, a factor for every channel of x in front of qkv and of up.
 * Method  An engine of its own, in the 16-bit type and with one slot, runs the texts one by one;
 *         cuda_layers.c copies x to pinned memory in front of each of the products, and the host adds up
 *         the squares. Then that engine is closed.
 * Bytes   The texts are of four lengths, each always alone: the same library on the same device gives
 *         the same gains on every start. It need not be deterministic for that, so that a library
 *         without an algorithm for every size can still open int8.
 * State   int8 is promised (docs/providers.md), and has its cosines by it (docs/cuda.md); what it gains was
 *         measured on no device.
 * Memory  the 16-bit weights on the device, and x of all layers on the host, while it runs.
 * Threads one, that of open.
 * Proof   tests/golden/test_cuda.py; tests/cuda/test_cuda_engine.c. */
#include "base/error.h"
#include "base/mem.h"
#include "engines/cuda/cuda_engine.h"
#include "model/calibration.h"

typedef struct look {
    fl_engine *aside; /* owned: the one that runs the texts */
    double    *squares, *sorted;
    float     *floats, *row; /* one row of x, and of vectors */
    size_t     places;       /* layers * FL_CUDA_WATCHED */
} look;

static size_t rows_most(const fl_engine *aside) {
    return aside->tiers[aside->tier_count - 1].tokens;
}

/* The squares of the true tokens of one text; its tier's rows lie behind each other in `watch`. */
static void add_squares(look *l, uint32_t tokens) {
    const fl_engine *aside  = l->aside;
    size_t           hidden = aside->desc.hidden;
    size_t           rows   = aside->tiers[fl_cuda_tier_of(tokens)].tokens;
    fl_dtype         dtype  = aside->type == FL_CUDA_F16 ? FL_DTYPE_F16 : FL_DTYPE_BF16;
    for (size_t i = 0; i < l->places * tokens; i++) {
        size_t    place = i / tokens, row = place * rows + i % tokens;
        fl_tensor x = {.data = aside->watch + row * hidden * aside->element, .dtype = dtype};
        fl_tensor_to_f32(&x, 0, hidden, l->floats);
        for (size_t k = 0; k < hidden; k++)
            l->squares[place * hidden + k] += (double)l->floats[k] * (double)l->floats[k];
    }
}

static int run_texts(look *l, fletch_error *error) {
    int32_t      ids[FL_CALIBRATION_LONGEST];
    float *const rows[] = {l->row};
    uint64_t     state  = fl_calibration_seed;
    int          status = FLETCH_OK;
    for (uint32_t size = FL_CALIBRATION_SHORTEST;
         size <= FL_CALIBRATION_LONGEST && status == FLETCH_OK; size *= 2) {
        uint32_t tokens = size < l->aside->max_length ? size : l->aside->max_length;
        uint32_t cu[2]  = {0, tokens};
        fl_batch batch  = {.ids = ids, .cu = cu, .texts = 1, .tokens = tokens, .rows = rows};
        fl_calibration_ids(&state, l->aside->desc.vocab, ids, tokens);
        status = fl_cuda_forward(l->aside, 0, &batch, error);
        status = status == FLETCH_EMODEL ? FLETCH_OK : status; /* the first real text will say it */
        if (status == FLETCH_OK)
            add_squares(l, tokens);
    }
    return status;
}

static int look_on(fl_engine *e, look *l, fletch_error *error) {
    fl_engine *aside  = l->aside;
    size_t     hidden = e->desc.hidden;
    size_t     bytes  = l->places * rows_most(aside) * hidden * aside->element;
    CUcontext  popped;
    l->squares = fl_alloc_zero(l->places * hidden, sizeof *l->squares);
    l->sorted  = fl_alloc_array(hidden, sizeof *l->sorted);
    l->floats  = fl_alloc_array(hidden, sizeof *l->floats);
    l->row     = fl_alloc_array(e->width, sizeof *l->row);
    e->gains   = fl_alloc_array(l->places * hidden, sizeof *e->gains);
    if (l->squares == NULL || l->sorted == NULL || l->floats == NULL || l->row == NULL ||
        e->gains == NULL)
        return fl_fail_nomem(error, l->places * hidden * sizeof *l->squares, "choosing gains");
    CUresult result = e->cuda->cu.context_push(e->context);
    if (result == CUDA_SUCCESS) {
        result = e->cuda->cu.host_alloc((void **)&aside->watch, bytes, CU_MEMHOSTALLOC_PORTABLE);
        e->cuda->cu.context_pop(&popped);
    }
    int status = fl_cuda_check(e->cuda, result, FLETCH_EPROVIDER, error,
                               "no pinned memory to calibrate the channels");
    if (status == FLETCH_OK)
        status = run_texts(l, error);
    for (size_t i = 0; i < l->places && status == FLETCH_OK; i++)
        fl_calibration_gains(l->squares + i * hidden, hidden, l->sorted, e->gains + i * hidden);
    return status;
}

int fl_cuda_calibrate(fl_engine *e, const fl_encoder *encoder, const fl_engine_options *options,
                      fletch_error *error) {
    look              l    = {.places = (size_t)e->desc.layers * FL_CUDA_WATCHED};
    fl_engine_options wide = *options;
    wide.precision         = e->type == FL_CUDA_F16 ? "fp16" : "bf16";
    wide.deterministic     = false;
    wide.batch_texts       = 1;
    wide.batch_tokens      = FL_CALIBRATION_LONGEST;
    wide.max_length =
        e->max_length < FL_CALIBRATION_LONGEST ? e->max_length : FL_CALIBRATION_LONGEST;
    int status = fl_cuda_open_aside(&l.aside, encoder, &wide, error);
    if (status == FLETCH_OK)
        status = look_on(e, &l, error);
    fl_cuda_close(l.aside);
    fl_free(l.squares);
    fl_free(l.sorted);
    fl_free(l.floats);
    fl_free(l.row);
    return status;
}
