/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - put the tensors of a folder into the encoder's slots, and believe none before its
 * shape fits.
 *
 * Role    model.c calls it with the descriptor made from config.json.
 * In/Out  Names of an fl_arch -> fl_encoder.global and .layer, views of the mapped files.
 * Method  A name is tried bare and with the architecture's prefix ("bert."), and a LayerNorm also
 *         as gamma / beta, as very old files have it. All names that are missing are gathered and
 *         reported in one message: a person then sees at once whether one tensor or the whole
 *         layer naming is amiss. A shape that does not follow from config.json means that one of
 *         the two lies.
 * Memory  the layer table, owned by the model. Threads: during opening only.
 * Proof   tests/unit/test_model.c. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { NAME_MAX_BYTES = 256, MISSING_SHOWN = 4, UNUSED_SHOWN = 16 };

/* The state of one resolution. */
typedef struct resolver {
    fl_model      *model;
    const fl_arch *arch;
    fletch_error  *error;
    uint32_t       found, missing;
    char           missing_names[360];
} resolver;

typedef struct shape {
    uint64_t dims[2];
    uint32_t rank;
} shape;

static shape vector(uint64_t n) {
    return (shape){{n, 0}, 1};
}

static shape matrix(uint64_t rows, uint64_t columns) {
    return (shape){{rows, columns}, 2};
}

static shape global_shape(const fl_encoder_desc *d, int slot) {
    switch ((fl_slot)slot) {
    case FL_SLOT_WORD: return matrix(d->vocab, d->hidden);
    case FL_SLOT_POSITION: return matrix((uint64_t)d->positions + d->position_offset, d->hidden);
    case FL_SLOT_TYPE: return matrix(d->types, d->hidden);
    case FL_SLOT_ATTENTION_BIAS: return matrix(d->bias_buckets, d->heads);
    case FL_SLOT_EMBED_NORM_W:
    case FL_SLOT_EMBED_NORM_B:
    case FL_SLOT_FINAL_NORM_W:
    case FL_SLOT_FINAL_NORM_B:
    case FL_SLOT_COUNT: break;
    }
    return vector(d->hidden);
}

static shape layer_shape(const fl_encoder_desc *d, int slot) {
    uint64_t q = (uint64_t)d->heads * d->head_dim, kv = (uint64_t)d->kv_heads * d->head_dim;
    switch ((fl_layer_slot)slot) {
    case FL_LAYER_Q_W: return matrix(q, d->hidden);
    case FL_LAYER_Q_B: return vector(q);
    case FL_LAYER_K_W:
    case FL_LAYER_V_W: return matrix(kv, d->hidden);
    case FL_LAYER_K_B:
    case FL_LAYER_V_B: return vector(kv);
    case FL_LAYER_O_W: return matrix(d->hidden, q);
    case FL_LAYER_UP_W:
    case FL_LAYER_GATE_W: return matrix(d->intermediate, d->hidden);
    case FL_LAYER_UP_B:
    case FL_LAYER_GATE_B: return vector(d->intermediate);
    case FL_LAYER_DOWN_W: return matrix(d->hidden, d->intermediate);
    case FL_LAYER_O_B:
    case FL_LAYER_ATTENTION_NORM_W:
    case FL_LAYER_ATTENTION_NORM_B:
    case FL_LAYER_DOWN_B:
    case FL_LAYER_MLP_NORM_W:
    case FL_LAYER_MLP_NORM_B:
    case FL_LAYER_SLOT_COUNT: break;
    }
    return vector(d->hidden);
}

/* "encoder.layer.*.output" -> "encoder.layer.7.output". */
static void expand(char out[NAME_MAX_BYTES], const char *pattern, uint32_t layer) {
    const char *star = strchr(pattern, '*');
    if (star == NULL)
        snprintf(out, NAME_MAX_BYTES, "%s", pattern);
    else
        snprintf(out, NAME_MAX_BYTES, "%.*s%u%s", (int)(star - pattern), pattern, layer, star + 1);
}

/* The name as it is, then with the prefix. */
static const fl_tensor *find_spelled(const resolver *r, const char *name) {
    const fl_tensor *tensor = fl_safetensors_find(r->model->own->weights, name);
    char             prefixed[NAME_MAX_BYTES];
    if (tensor != NULL)
        return tensor;
    snprintf(prefixed, sizeof prefixed, "%s%s", r->arch->prefix, name);
    return fl_safetensors_find(r->model->own->weights, prefixed);
}

static const fl_tensor *find(const resolver *r, const char *name) {
    const fl_tensor *tensor = find_spelled(r, name);
    const char      *norm   = strstr(name, "LayerNorm.");
    char             old[NAME_MAX_BYTES];
    if (tensor != NULL || norm == NULL)
        return tensor;
    const char *last = norm + strlen("LayerNorm.");
    snprintf(old, sizeof old, "%.*s%s", (int)(last - name), name,
             strcmp(last, "weight") == 0 ? "gamma" : "beta");
    return find_spelled(r, old);
}

static void note_missing(resolver *r, const char *name) {
    size_t used = strlen(r->missing_names);
    if (r->missing++ < MISSING_SHOWN)
        snprintf(r->missing_names + used, sizeof r->missing_names - used, "%s%s",
                 used == 0 ? "" : ", ", name);
}

static void shape_text(char out[FL_RANK_MAX * 24], const uint64_t *dims, uint32_t rank) {
    size_t used = 0;
    out[0]      = '\0';
    for (uint32_t i = 0; i < rank; i++)
        used += (size_t)snprintf(out + used, (size_t)FL_RANK_MAX * 24 - used, "%s%llu",
                                 i == 0 ? "" : ", ", (unsigned long long)dims[i]);
}

static int check(const resolver *r, const char *name, const fl_tensor *tensor, shape expected) {
    char has[FL_RANK_MAX * 24], wants[FL_RANK_MAX * 24];
    if (tensor->rank != expected.rank ||
        memcmp(tensor->shape, expected.dims, expected.rank * sizeof *expected.dims) != 0) {
        shape_text(has, tensor->shape, tensor->rank);
        shape_text(wants, expected.dims, expected.rank);
        return fl_fail(
            r->error, FLETCH_EMODEL, FLETCH_NOWHERE,
            "%s: tensor %s has shape [%s] but config.json asks for [%s]: the files do not "
            "belong together.",
            r->model->own->transformer, name, has, wants);
    }
    if (tensor->dtype != FL_DTYPE_F32 && tensor->dtype != FL_DTYPE_F16 &&
        tensor->dtype != FL_DTYPE_BF16)
        return fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: tensor %s has dtype %s; weights may be F32, F16 or BF16.",
                       r->model->own->transformer, name, fl_dtype_name(tensor->dtype));
    return 0;
}

/* Fill one slot; a missing tensor is noted and passes, so that all of them are told at once. */
static int resolve(resolver *r, const char *name, shape expected, fl_tensor *slot) {
    const fl_tensor *tensor = find(r, name);
    if (tensor == NULL) {
        note_missing(r, name);
        return 0;
    }
    int status = check(r, name, tensor, expected);
    if (status != 0)
        return status;
    *slot = *tensor;
    r->found++;
    r->model->weights_bytes += tensor->bytes;
    return 0;
}

static int resolve_all(resolver *r) {
    fl_encoder            *encoder = &r->model->encoder;
    const fl_encoder_desc *desc    = &encoder->desc;
    char                   name[NAME_MAX_BYTES];
    for (size_t i = 0; i < r->arch->global_count; i++) {
        const fl_slot_name *slot = &r->arch->globals[i];
        int                 status =
            resolve(r, slot->name, global_shape(desc, slot->slot), &encoder->global[slot->slot]);
        if (status != 0)
            return status;
    }
    for (uint32_t layer = 0; layer < desc->layers; layer++)
        for (size_t i = 0; i < r->arch->layer_count; i++) {
            const fl_slot_name *slot = &r->arch->layers[i];
            expand(name, slot->name, layer);
            int status =
                resolve(r, name, layer_shape(desc, slot->slot), &encoder->layer[layer][slot->slot]);
            if (status != 0)
                return status;
        }
    if (r->missing == 0)
        return 0;
    return fl_fail(r->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s: %u tensors of the %s architecture are missing: %s%s.",
                   r->model->own->transformer, r->missing, desc->architecture, r->missing_names,
                   r->missing > MISSING_SHOWN ? " …" : "");
}

static bool is_used(const fl_encoder *encoder, const void *data) {
    for (int i = 0; i < FL_SLOT_COUNT; i++)
        if (encoder->global[i].data == data)
            return true;
    for (uint32_t layer = 0; layer < encoder->desc.layers; layer++)
        for (int i = 0; i < FL_LAYER_SLOT_COUNT; i++)
            if (encoder->layer[layer][i].data == data)
                return true;
    return false;
}

/* Poolers, heads and the old position_ids are expected here; an unknown name can explain a
 * surprise. */
static void log_unused(const resolver *r, const fl_log *log) {
    const fl_safetensors *file  = r->model->own->weights;
    size_t                count = fl_safetensors_count(file), shown = 0;
    if (log == NULL || log->fn == NULL || count == r->found)
        return;
    for (size_t i = 0; i < count && shown < UNUSED_SHOWN; i++) {
        const char *name = fl_safetensors_name(file, i);
        if (is_used(&r->model->encoder, fl_safetensors_find(file, name)->data))
            continue;
        fl_log_write(log, FL_LOG_DEBUG, "tensor %s is not used", name);
        shown++;
    }
    fl_log_write(log, FL_LOG_DEBUG, "%zu of %zu tensors used", (size_t)r->found, count);
}

int fl_weights_read(fl_model *model, const fl_arch *arch, const fl_log *log, fletch_error *error) {
    fl_encoder *encoder = &model->encoder;
    resolver    r       = {.model = model, .arch = arch, .error = error};
    int status = fl_safetensors_open_folder(&model->own->weights, model->own->transformer, error);
    if (status != 0)
        return status;
    encoder->layer = fl_alloc_zero(encoder->desc.layers, sizeof *encoder->layer);
    if (encoder->layer == NULL)
        return fl_fail_nomem(error, encoder->desc.layers * sizeof *encoder->layer,
                             "the layer table");
    status = resolve_all(&r);
    if (status != 0)
        return status;
    model->weights_dtype = fl_dtype_name(encoder->global[FL_SLOT_WORD].dtype);
    log_unused(&r, log);
    return 0;
}
