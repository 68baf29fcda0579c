/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - the shapes of tensors.def, and whether every weight that a descriptor calls for is
 * there.
 *
 * Role    weights.c asks for the shape of each slot. The engines that read slots (cpu, cuda) ask
 *         for the check when they open, before anything is allocated: a config.json that promises
 *         more than the checkpoint holds must not be read past its end.
 * Proof   tests/unit/test_engine.c, tests/cuda/test_cuda_engine.c. */
#include <assert.h>

#include "base/error.h"
#include "model/encoder.h"

bool fl_encoder_shape(const fl_encoder_desc *d, const fl_layer_desc *l, int slot, fl_shape *out) {
    assert(slot >= 0);
#define FL_GLOBAL_CASE(name, words, rows, columns, when)                                           \
    case FL_SLOT_##name:                                                                           \
        *out = (fl_shape){(rows), (columns), words};                                               \
        return (when);
#define FL_LAYER_CASE(name, words, rows, columns, when)                                            \
    case FL_LAYER_##name: *out = (fl_shape){(rows), (columns), words}; return (when);
    if (l == NULL) {
        switch ((fl_slot)slot) {
            FL_GLOBAL_TENSORS(FL_GLOBAL_CASE)
        case FL_SLOT_COUNT: break;
        }
        return false;
    }
    switch ((fl_layer_slot)slot) {
        FL_LAYER_TENSORS(FL_LAYER_CASE)
    case FL_LAYER_SLOT_COUNT: break;
    }
    return false;
}

/* The bytes that the shape needs are there, in a type that can be converted. */
static bool holds(const fl_tensor *t, const fl_shape *shape, bool ids) {
    bool     fits    = ids ? t->dtype == FL_DTYPE_I64 || t->dtype == FL_DTYPE_I32
                           : fl_dtype_is_real(t->dtype) || t->dtype == FL_DTYPE_I8;
    uint64_t columns = shape->columns == 0 ? 1 : shape->columns, need;
    return fits && !__builtin_mul_overflow(shape->rows, columns, &need) &&
           need <= UINT64_MAX / sizeof(int64_t) && fl_tensor_holds(t, need);
}

static int check_slots(const fl_encoder *encoder, const fl_layer_desc *layer, uint32_t number,
                       fletch_error *error) {
    const fl_tensor *slots = layer == NULL ? encoder->global : encoder->layer[number];
    int              count = layer == NULL ? (int)FL_SLOT_COUNT : (int)FL_LAYER_SLOT_COUNT;
    for (int i = 0; i < count; i++) {
        fl_shape shape;
        bool     needed = fl_encoder_shape(&encoder->desc, layer, i, &shape);
        if (slots[i].data == NULL && !needed)
            continue;
        if (slots[i].data == NULL ||
            !holds(&slots[i], &shape, layer == NULL && i == FL_SLOT_WORD_MAP))
            return fl_fail(error, FLETCH_EMODEL, number,
                           "layer %u: the %s weights are missing, of a type other than F32, F16 "
                           "and BF16, or smaller than config.json says",
                           number, shape.words);
    }
    return FLETCH_OK;
}

int fl_encoder_check_sizes(const fl_encoder_desc *d, fletch_error *error) {
    if (d->hidden == 0 || d->embedding == 0 || d->vocab == 0 || d->word_rows == 0 ||
        d->positions == 0 ||
        (d->layers > 0 && (d->heads == 0 || d->kv_heads == 0 || d->head_dim == 0 ||
                           d->intermediate == 0 || d->layer == NULL)))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "a size in the model's config is zero");
    if (d->layers > 0 && d->heads % d->kv_heads != 0)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%u heads cannot share %u key and value heads evenly", d->heads,
                       d->kv_heads);
    if (!d->word_map && d->vocab > d->word_rows)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "a text may have %u different ids but the word table only has %u rows",
                       d->vocab, d->word_rows);
    if (!(d->score_cap >= 0) || (d->score_cap > 0 && d->score_cap < 1e-3f))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "scores cannot be capped at %g",
                       (double)d->score_cap);
    if (d->parallel && (d->norm_place != FL_NORM_PRE || d->extra_norm != FL_EXTRA_NORM_NONE))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "attention and MLP side by side each need a norm before them");
    if (d->latents > 0 && (d->latent_heads == 0 || d->latent_dims == 0 || d->mlm))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%u latents are asked by %u heads of %u dimensions", d->latents,
                       d->latent_heads, d->latent_dims);
    for (unsigned i = 0; i < FL_RULES_MAX; i++) {
        const fl_distance *rule = &d->distance[i];
        if (rule->bias == FL_BIAS_T5_BUCKETS &&
            (i > 0 || rule->buckets < 4 || rule->max_distance <= rule->buckets / 4))
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "relative attention needs at least 4 buckets and a larger max_distance");
        if (rule->bias == FL_BIAS_DISENTANGLED &&
            (i > 0 || d->qk_norm != FL_QK_NORM_NONE || d->kv_heads != d->heads ||
             rule->max_distance == 0 || rule->buckets == 1 ||
             (rule->buckets > 0 && rule->max_distance <= rule->buckets / 2 + 1)))
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "position_buckets %u of DeBERTa's attention need a larger "
                           "max_relative_positions than %u",
                           rule->buckets, rule->max_distance);
        if (d->rope[i].dims % 2 != 0 || d->rope[i].dims > d->head_dim ||
            (d->rope[i].dims > 0 && !(d->rope[i].theta > 0)) || d->rope[i].longer > FL_RULES_MAX)
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "rotary positions turn %u of %u dimensions with theta %g; the number "
                           "must be even and the base positive",
                           d->rope[i].dims, d->head_dim, d->rope[i].theta);
    }
    for (uint32_t i = 0; i < d->layers; i++) {
        const fl_layer_desc *l = &d->layer[i];
        if (l->convolves &&
            (d->taps == 0 || fl_q_width(d) != d->hidden || d->qk_norm == FL_QK_NORM_WIDE))
            return fl_fail(error, FLETCH_EMODEL, i,
                           "layer %u convolves over %u tokens of %u channels; heads of attention "
                           "beside it must be as wide together",
                           i, d->taps, d->hidden);
        if (l->rope > FL_RULES_MAX || (l->rope > 0 && d->rope[l->rope - 1].dims == 0) ||
            l->distance >= FL_RULES_MAX ||
            (l->experts > 0 &&
             (l->experts_used == 0 || l->experts_used > l->experts || d->mlp != FL_MLP_PLAIN)))
            return fl_fail(error, FLETCH_EMODEL, i,
                           "layer %u is described by rules that do not exist", i);
    }
    return FLETCH_OK;
}

int fl_encoder_check_slots(const fl_encoder *encoder, fletch_error *error) {
    const fl_encoder_desc *d      = &encoder->desc;
    int                    status = check_slots(encoder, NULL, 0, error);
    for (uint32_t i = 0; status == FLETCH_OK && i < d->layers; i++)
        status = check_slots(encoder, &d->layer[i], i, error);
    return status;
}
