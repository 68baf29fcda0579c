/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - whether every weight that a descriptor calls for is there, of a type and size to convert.
 *
 * Role    The engines that read slots (cpu, cuda) ask when they open, before anything is allocated: a
 *         config.json that promises more than the checkpoint holds must not be read past its end.
 * Method  A table of what each slot holds; sizes are multiplied with checks.
 * Memory  None. Threads: any.
 * Proof   tests/unit/test_engine.c, tests/cuda/test_cuda_engine.c. */
#include "base/error.h"
#include "model/encoder.h"

/* The bytes that [rows, cols] needs are there, in a type that can be converted. */
static bool holds(const fl_tensor *t, uint64_t rows, uint64_t cols) {
    uint64_t size = t->dtype == FL_DTYPE_F32                                ? 4
                    : t->dtype == FL_DTYPE_F16 || t->dtype == FL_DTYPE_BF16 ? 2
                                                                            : 0;
    uint64_t need;
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
        if (t->data == NULL && want[i].optional) {
            continue;
        }
        if (t->data == NULL || !holds(t, want[i].rows, want[i].cols)) {
            return fl_fail(
                error, FLETCH_EMODEL, layer,
                "layer %u: the %s weights are missing, of a type other than F32, F16 and "
                "BF16, or smaller than config.json says",
                layer, want[i].name);
        }
    }
    return FLETCH_OK;
}

int fl_encoder_check_sizes(const fl_encoder_desc *d, fletch_error *error) {
    if (d->layers == 0 || d->hidden == 0 || d->heads == 0 || d->head_dim == 0 ||
        d->intermediate == 0 || d->vocab == 0 || d->positions == 0)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "a size in the model's config is zero");
    if (d->attention_bias == FL_BIAS_T5_BUCKETS &&
        (d->bias_buckets < 4 || d->bias_max_distance <= d->bias_buckets / 4))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "relative attention needs at least 4 buckets and a larger max_distance");
    return FLETCH_OK;
}

int fl_encoder_check_slots(const fl_encoder *encoder, fletch_error *error) {
    const fl_encoder_desc *d = &encoder->desc;
    uint64_t hidden = d->hidden, inner = (uint64_t)d->heads * d->head_dim, mlp = d->intermediate;
    bool     positions      = d->position == FL_POSITION_LEARNED;
    const expected global[] = {{FL_SLOT_WORD, d->vocab, hidden, false, "word"},
                               {FL_SLOT_POSITION, (uint64_t)d->positions + d->position_offset,
                                hidden, !positions, "position"},
                               {FL_SLOT_TYPE, 1, hidden, !d->token_type, "token type"},
                               {FL_SLOT_EMBED_NORM_W, 1, hidden, true, "embedding norm"},
                               {FL_SLOT_EMBED_NORM_B, 1, hidden, true, "embedding norm"},
                               {FL_SLOT_ATTENTION_BIAS, d->bias_buckets, d->heads,
                                d->attention_bias == FL_BIAS_NONE, "relative attention bias"},
                               {FL_SLOT_FINAL_NORM_W, 1, hidden, !d->final_norm, "final norm"},
                               {FL_SLOT_FINAL_NORM_B, 1, hidden, true, "final norm"}};
    const expected layer[]  = {{FL_LAYER_Q_W, inner, hidden, false, "query"},
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
    int status = check_slots(encoder->global, global, sizeof global / sizeof *global, 0, error);
    for (uint32_t i = 0; status == FLETCH_OK && i < d->layers; i++) {
        status = check_slots(encoder->layer[i], layer, sizeof layer / sizeof *layer, i, error);
    }
    return status;
}
