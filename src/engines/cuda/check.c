/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - whether the kernels can run a model, and whether its weights are what it says.
 *
 * Role    engine.c asks before anything is allocated.
 * Method  A switch of the descriptor that no kernel handles is EPROVIDER and named, so that the
 *         next provider of the chain may run the model. A tensor that is missing or too small is
 *         EMODEL: no other provider could mend it.
 * Memory  none. Threads: pure functions.
 * Proof   tests/cuda/test_cuda_engine.c. */
#include "engines/cuda/check.h"
#include "base/error.h"
#include "engines/cuda/kernels/kernels.h"

enum { WIDEST_MLP = 65536 };

static const char *unhandled(const fl_encoder_desc *d) {
    if (d->norm != FL_NORM_LAYER || d->norm_place != FL_NORM_POST || d->final_norm)
        return "RMS norms, norms in front of the blocks or a final norm";
    if (d->kv_heads != d->heads)
        return "fewer key than query heads (grouped-query attention)";
    if (d->attention_mask != FL_MASK_FULL)
        return "causal attention";
    if (d->attention_bias == FL_BIAS_ALIBI)
        return "ALiBi";
    if (d->mlp != FL_MLP_PLAIN)
        return "gated MLPs";
    if (d->head_dim != 32 && d->head_dim != 64 && d->head_dim != 128)
        return "heads of a size other than 32, 64 and 128";
    if (d->hidden % 8 != 0 || d->hidden > FL_CUDA_MAX_HIDDEN)
        return "hidden sizes that are no multiple of 8, or above 4096";
    if (d->intermediate % 8 != 0 || d->intermediate > WIDEST_MLP)
        return "intermediate sizes that are no multiple of 8, or above 65536";
    return NULL;
}

static int check_desc(const fl_encoder_desc *d, fletch_error *error) {
    if (d->layers == 0 || d->hidden == 0 || d->heads == 0 || d->head_dim == 0 ||
        d->intermediate == 0 || d->vocab == 0 || d->positions == 0)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "a size in the model's config is zero");
    if (d->attention_bias == FL_BIAS_T5_BUCKETS &&
        (d->bias_buckets < 4 || d->bias_max_distance <= d->bias_buckets / 4 ||
         d->bias_max_distance > WIDEST_MLP))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "relative attention needs at least 4 buckets and a larger max_distance");
    const char *what = unhandled(d);
    return what == NULL
               ? FLETCH_OK
               : fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                         "the cuda engine does not handle %s yet; use provider.order cpu", what);
}

/* The bytes that [rows, cols] needs are there, in a type that can be converted. */
static bool holds(const fl_tensor *t, uint64_t rows, uint64_t cols) {
    bool     half = t->dtype == FL_DTYPE_F16 || t->dtype == FL_DTYPE_BF16;
    uint64_t size = t->dtype == FL_DTYPE_F32 ? 4 : half ? 2 : 0, need;
    return size > 0 && !__builtin_mul_overflow(rows, cols, &need) &&
           !__builtin_mul_overflow(need, size, &need) && t->bytes >= need;
}

typedef struct expected {
    int         slot;
    uint64_t    rows, cols;
    bool        optional;
    const char *name;
} expected;

static int check_slots(const fl_tensor *slots, const expected *want, size_t count, uint32_t layer,
                       fletch_error *error) {
    for (size_t i = 0; i < count; i++) {
        const fl_tensor *t = &slots[want[i].slot];
        if (t->data == NULL && want[i].optional)
            continue;
        if (t->data == NULL || !holds(t, want[i].rows, want[i].cols))
            return fl_fail(error, FLETCH_EMODEL, layer,
                           "layer %u: the %s weights are missing, of a type other than F32, F16 "
                           "and BF16, or smaller than config.json says",
                           layer, want[i].name);
    }
    return FLETCH_OK;
}

static int check_globals(const fl_encoder *encoder, fletch_error *error) {
    const fl_encoder_desc *d      = &encoder->desc;
    const expected         want[] = {{FL_SLOT_WORD, d->vocab, d->hidden, false, "word"},
                                     {FL_SLOT_POSITION, (uint64_t)d->positions + d->position_offset,
                                      d->hidden, d->position != FL_POSITION_LEARNED, "position"},
                                     {FL_SLOT_TYPE, 1, d->hidden, !d->token_type, "token type"},
                                     {FL_SLOT_EMBED_NORM_W, 1, d->hidden, false, "embedding norm"},
                                     {FL_SLOT_EMBED_NORM_B, 1, d->hidden, true, "embedding bias"},
                                     {FL_SLOT_ATTENTION_BIAS, d->bias_buckets, d->heads,
                                      d->attention_bias == FL_BIAS_NONE, "attention bias"}};
    return check_slots(encoder->global, want, sizeof want / sizeof *want, 0, error);
}

static int check_layer(const fl_encoder *encoder, uint32_t layer, fletch_error *error) {
    const fl_encoder_desc *d = &encoder->desc;
    uint64_t hidden = d->hidden, inner = (uint64_t)d->heads * d->head_dim, mlp = d->intermediate;
    const expected want[] = {{FL_LAYER_Q_W, inner, hidden, false, "query"},
                             {FL_LAYER_Q_B, 1, inner, true, "query bias"},
                             {FL_LAYER_K_W, inner, hidden, false, "key"},
                             {FL_LAYER_K_B, 1, inner, true, "key bias"},
                             {FL_LAYER_V_W, inner, hidden, false, "value"},
                             {FL_LAYER_V_B, 1, inner, true, "value bias"},
                             {FL_LAYER_O_W, hidden, inner, false, "attention output"},
                             {FL_LAYER_O_B, 1, hidden, true, "attention output bias"},
                             {FL_LAYER_ATTENTION_NORM_W, 1, hidden, false, "attention norm"},
                             {FL_LAYER_ATTENTION_NORM_B, 1, hidden, true, "attention norm bias"},
                             {FL_LAYER_UP_W, mlp, hidden, false, "intermediate"},
                             {FL_LAYER_UP_B, 1, mlp, true, "intermediate bias"},
                             {FL_LAYER_DOWN_W, hidden, mlp, false, "output"},
                             {FL_LAYER_DOWN_B, 1, hidden, true, "output bias"},
                             {FL_LAYER_MLP_NORM_W, 1, hidden, false, "output norm"},
                             {FL_LAYER_MLP_NORM_B, 1, hidden, true, "output norm bias"}};
    return check_slots(encoder->layer[layer], want, sizeof want / sizeof *want, layer, error);
}

int fl_cuda_check_model(const fl_encoder *encoder, fletch_error *error) {
    int status = check_desc(&encoder->desc, error);
    if (status == FLETCH_OK && encoder->layer == NULL)
        status = fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                         "the model is only an .onnx file, which the cuda engine does not read");
    if (status == FLETCH_OK)
        status = check_globals(encoder, error);
    for (uint32_t i = 0; status == FLETCH_OK && i < encoder->desc.layers; i++)
        status = check_layer(encoder, i, error);
    return status;
}
