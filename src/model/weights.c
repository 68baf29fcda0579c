/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - put the tensors of a folder into the encoder's slots, and believe none before its
 * shape fits.
 *
 * Role    model.c calls it with the descriptor made from config.json.
 * In/Out  Names of an fl_family -> fl_encoder.global and .layer, views of the mapped files.
 * Method  The prefix ("bert.") is that with which the word table is there. Each slot that the
 *         descriptor calls for takes the first of its names that exists; where slots share a tensor
 *         (Wqkv) each is a range of its rows, nothing is copied. A LayerNorm may also be spelt
 *         gamma and beta, as very old files have it. All names that are missing are gathered and
 *         reported in one message: a person then sees at once whether one tensor or the whole
 *         naming is amiss. A shape that does not follow from config.json means that one of the two
 *         lies.
 * Memory  the layer table, owned by the model. Threads: during opening only.
 * Proof   tests/unit/test_model.c; tests/golden/test_families.py. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { MISSING_SHOWN = 4, UNUSED_SHOWN = 16 };

/* The state of one resolution. */
typedef struct resolver {
    fl_model        *model;
    const fl_family *family;
    const fl_name   *names; /* [FL_NAMES_MAX] */
    const char      *prefix;
    fletch_error    *error;
    uint32_t         missing;
    char             missing_names[360];
} resolver;

bool fl_name_is_module(const fl_name *row) {
    return row->name[strlen(row->name) - 1] == '.';
}

bool fl_name_is_of_layers(const fl_name *row) {
    return strpbrk(row->name, "*?") != NULL;
}

void fl_name_spell(char out[FL_NAME_BYTES], const fl_name *row, bool bias, uint32_t layer) {
    const char *star = strpbrk(row->name, "*?"), *last = fl_name_is_module(row) ? "weight" : "";
    if (bias)
        last = "bias";
    if (star == NULL)
        snprintf(out, FL_NAME_BYTES, "%s%s", row->name, last);
    else
        snprintf(out, FL_NAME_BYTES, "%.*s%u%s%s", (int)(star - row->name), row->name,
                 *star == '*' ? layer : 0, star + 1, last);
}

static const fl_tensor *find_spelled(const resolver *r, const char *prefix, const char *name) {
    assert(prefix && name);
    char prefixed[FL_NAME_BYTES];
    snprintf(prefixed, sizeof prefixed, "%s%s", prefix, name);
    return fl_safetensors_find(r->model->own->weights, prefixed);
}

static const fl_tensor *find_under(const resolver *r, const char *prefix, const char *name) {
    const fl_tensor *tensor = find_spelled(r, prefix, name);
    const char      *norm   = strstr(name, "LayerNorm.");
    char             old[FL_NAME_BYTES];
    if (tensor != NULL || norm == NULL)
        return tensor;
    const char *last = norm + strlen("LayerNorm.");
    snprintf(old, sizeof old, "%.*s%s", (int)(last - name), name,
             strcmp(last, "weight") == 0 ? "gamma" : "beta");
    return find_spelled(r, prefix, old);
}

/* Heads stand beside the encoder that carries the prefix. */
static const fl_tensor *find(const resolver *r, const char *name) {
    const fl_tensor *tensor = find_under(r, r->prefix, name);
    return tensor != NULL || r->prefix[0] == '\0' ? tensor : find_under(r, "", name);
}

static void note_missing(resolver *r, const char *name) {
    if (r->missing++ < MISSING_SHOWN)
        fl_error_list(r->missing_names, sizeof r->missing_names, name);
}

static void shape_text(char out[FL_RANK_MAX * 24], const uint64_t *dims, uint32_t rank) {
    assert(rank <= FL_RANK_MAX);
    size_t used = 0;
    out[0]      = '\0';
    for (uint32_t i = 0; i < rank; i++)
        used += (size_t)snprintf(out + used, (size_t)FL_RANK_MAX * 24 - used, "%s%llu",
                                 i == 0 ? "" : ", ", (unsigned long long)dims[i]);
}

/* torch's convolution of each channel alone is [channels, 1, taps]. */
static void drop_middle(fl_tensor *tensor) {
    if (tensor->rank == 3 && tensor->shape[1] == 1) {
        tensor->rank     = 2;
        tensor->shape[1] = tensor->shape[2];
    }
}

/* GGUF's experts are [experts, rows, columns]. */
static void lay_flat(fl_tensor *tensor, uint64_t rows) {
    if (tensor->rank == 3 && tensor->shape[0] <= rows &&
        tensor->shape[0] * tensor->shape[1] == rows) {
        tensor->rank     = 2;
        tensor->shape[0] = rows;
        tensor->shape[1] = tensor->shape[2];
    }
}

/* `rows` of the whole tensor, of which `shape` may be a part. */
static int check(const resolver *r, const char *name, const fl_tensor *tensor, uint64_t rows,
                 const fl_shape *shape) {
    const uint64_t dims[] = {rows, shape->columns};
    const uint32_t rank   = shape->columns == 0 ? 1 : 2;
    char           has[FL_RANK_MAX * 24], wants[FL_RANK_MAX * 24];
    if (tensor->rank != rank || memcmp(tensor->shape, dims, rank * sizeof *dims) != 0) {
        shape_text(has, tensor->shape, tensor->rank);
        shape_text(wants, dims, rank);
        return fl_fail(
            r->error, FLETCH_EMODEL, FLETCH_NOWHERE,
            r->model->gguf
                ? "%s: tensor %s has shape [%s] but the metadata asks for [%s]."
                : "%s: tensor %s has shape [%s] but config.json asks for [%s]: the files "
                  "do not belong together.",
            r->model->own->base, name, has, wants);
    }
    if (!fl_dtype_is_real(tensor->dtype))
        return fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: tensor %s has dtype %s; weights may be F32, F16 or BF16.",
                       r->model->own->base, name, fl_dtype_name(tensor->dtype));
    return 0;
}

/* Of a tensor that `count` slots share head by head: its first row. */
static uint64_t take_heads(const resolver *r, unsigned count, unsigned part, fl_tensor *out) {
    out->run  = r->model->encoder.desc.head_dim;
    out->step = count * out->run;
    return (uint64_t)part * out->run;
}

/* [in, out] in the file. */
static void turn_over(fl_tensor *tensor) {
    tensor->across   = tensor->shape[1];
    tensor->shape[1] = tensor->shape[0];
    tensor->shape[0] = tensor->across;
}

/* One slot from one name. 1: that tensor is there; `out` is the slot's part of its rows. */
static int take(const resolver *r, const fl_name *row, unsigned part, bool bias, uint32_t number,
                const fl_layer_desc *layer, fl_tensor *out) {
    char     name[FL_NAME_BYTES];
    fl_shape shape, mine = {0};
    uint64_t rows = 0, first = 0;
    fl_name_spell(name, row, bias, number);
    const fl_tensor *tensor = find(r, name);
    if (tensor == NULL)
        return 0;
    for (unsigned i = 0; i < row->count; i++) {
        fl_encoder_shape(&r->model->encoder.desc, layer, row->slot[i] + bias, &shape);
        if (i == part) {
            first = rows;
            mine  = shape;
        }
        rows += shape.rows;
    }
    *out = *tensor;
    drop_middle(out);
    if (r->model->gguf)
        lay_flat(out, rows);
    if (r->family->across && layer != NULL && out->rank == 2)
        turn_over(out);
    FL_TRY(check(r, name, out, rows, &mine));
    const uint64_t bytes = tensor->bytes / rows;
    if (r->family->by_heads && row->count > 1)
        first = take_heads(r, row->count, part, out);
    if (!fl_tensor_in_order(out) && out->packed != NULL)
        return fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: tensor %s does not lie row after row and was quantised; take the model "
                       "that it was made from.",
                       r->model->own->base, name);
    const uint64_t skipped = out->across > 0 ? fl_dtype_bytes(out->dtype, first) : first * bytes;
    out->packed_row        = first; /* packed: what it is made of stays one */
    out->data              = (const char *)tensor->data + (tensor->packed != NULL ? 0 : skipped);
    out->bytes             = mine.rows * bytes;
    out->shape[0]          = mine.rows;
    int status =
        fl_task_adapt(r->model, r->prefix, name, tensor, first, layer == NULL, out, r->error);
    if (status == 0)
        status = fl_peft_adapt(r->model, r->prefix, name, tensor, first, out, r->error);
    return status != 0 ? status : 1;
}

/* Fill one slot; a missing tensor is noted and passes, so that all of them are told at once. */
static int resolve(resolver *r, int slot, uint32_t number, const fl_layer_desc *layer,
                   fl_tensor *out) {
    const char *first = NULL;
    char        name[FL_NAME_BYTES];
    for (size_t i = 0; i < FL_NAMES_MAX && r->names[i].name != NULL; i++) {
        const fl_name *row = &r->names[i];
        if (fl_name_is_of_layers(row) != (layer != NULL))
            continue;
        for (unsigned part = 0; part < row->count; part++) {
            bool bias = fl_name_is_module(row) && row->slot[part] + 1 == slot;
            if (row->slot[part] != slot && !bias)
                continue;
            int status = take(r, row, part, bias, number, layer, out);
            if (status != 0)
                return status < 0 ? status : 0;
            if (first == NULL)
                fl_name_spell(name, row, bias, number);
            first = name;
        }
    }
    note_missing(r, first != NULL ? first : "a tensor without a name in this family");
    return 0;
}

/* The prefix with which the word table is there; none when it is not. */
static const char *find_prefix(const resolver *r) {
    for (size_t i = 0; i < FL_WORDS_MAX && r->family->prefixes[i] != NULL; i++)
        for (size_t k = 0; k < FL_NAMES_MAX && r->names[k].name != NULL; k++) {
            const fl_name *row    = &r->names[k];
            const char    *prefix = r->family->prefixes[i];
            if (!fl_name_is_of_layers(row) && row->slot[0] == FL_SLOT_WORD &&
                find_under(r, prefix, row->name) != NULL)
                return prefix;
        }
    return "";
}

static int resolve_all(resolver *r) {
    fl_encoder            *encoder = &r->model->encoder;
    const fl_encoder_desc *desc    = &encoder->desc;
    fl_shape               shape;
    int                    status = 0;
    for (int slot = 0; status == 0 && slot < FL_SLOT_COUNT; slot++)
        if (fl_encoder_shape(desc, NULL, slot, &shape))
            status = resolve(r, slot, 0, NULL, &encoder->global[slot]);
    for (uint32_t i = 0; status == 0 && i < desc->layers; i++)
        for (int slot = 0; status == 0 && slot < FL_LAYER_SLOT_COUNT; slot++)
            if (fl_encoder_shape(desc, &desc->layer[i], slot, &shape))
                status = resolve(r, slot, i, &desc->layer[i], &encoder->layer[i][slot]);
    if (status != 0 || r->missing == 0)
        return status;
    return fl_fail(r->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s: %u tensors of the %s architecture are missing: %s%s.", r->model->own->base,
                   r->missing, desc->architecture, r->missing_names,
                   r->missing > MISSING_SHOWN ? " …" : "");
}

/* The bytes of all slots; poolers and heads do not count. */
static uint64_t bytes_used(const fl_encoder *encoder) {
    uint64_t bytes = 0;
    for (int i = 0; i < FL_SLOT_COUNT; i++)
        bytes += encoder->global[i].bytes;
    for (uint32_t layer = 0; layer < encoder->desc.layers; layer++)
        for (int i = 0; i < FL_LAYER_SLOT_COUNT; i++)
            bytes += encoder->layer[layer][i].bytes;
    return bytes;
}

static bool holds(const fl_tensor *slot, const fl_tensor *tensor) {
    const char *at = slot->data, *first = tensor->data;
    return at != NULL && at >= first && at < first + tensor->bytes;
}

static bool is_used(const fl_encoder *encoder, const fl_tensor *tensor) {
    for (int i = 0; i < FL_SLOT_COUNT; i++)
        if (holds(&encoder->global[i], tensor))
            return true;
    for (uint32_t layer = 0; layer < encoder->desc.layers; layer++)
        for (int i = 0; i < FL_LAYER_SLOT_COUNT; i++)
            if (holds(&encoder->layer[layer][i], tensor))
                return true;
    return false;
}

/* Poolers, heads and the old position_ids are expected here; an unknown name can explain a
 * surprise. */
static void log_unused(const resolver *r, const fl_log *log) {
    const fl_safetensors *file  = r->model->own->weights;
    size_t                count = fl_safetensors_count(file), unused = 0;
    if (log == NULL || log->fn == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        const char *name = fl_safetensors_name(file, i);
        if (!is_used(&r->model->encoder, fl_safetensors_find(file, name)) &&
            unused++ < UNUSED_SHOWN)
            fl_log_write(log, FL_LOG_DEBUG, "tensor %s is not used", name);
    }
    fl_log_write(log, FL_LOG_DEBUG, "%zu of %zu tensors used", count - unused, count);
}

bool fl_weights_uses(const fl_model *model, const fl_tensor *tensor) {
    return is_used(&model->encoder, tensor);
}

const char *fl_weights_prefix(fl_model *model, const fl_family *family) {
    return find_prefix(&(resolver){.model = model, .family = family, .names = family->tensors});
}

/* A family without names for the head has none that is known here; what is wider than the layers, or of other ids
 * than the word table's, the engine has no room for. */
static int check_mlm(const resolver *r) {
    const fl_encoder_desc *d   = &r->model->encoder.desc;
    bool                   has = false;
    for (size_t i = 0; i < FL_NAMES_MAX && r->names[i].name != NULL; i++)
        has = has ||
              (r->names[i].slot[0] == FL_SLOT_MLM_DECODER && !fl_name_is_of_layers(&r->names[i]));
    if (d->mlm && has && d->embedding > d->hidden)
        return fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: a vocabulary head that is wider (%u) than the layers (%u) is not "
                       "supported.",
                       r->model->folder, d->embedding, d->hidden);
    if (!d->mlm || (has && d->word_rows == d->vocab))
        return 0;
    return fl_fail(
        r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
        "%s: the vocabulary head of the %s architecture is not supported; SPLADE is of "
        "bert, distilbert, roberta, mpnet, electra, modernbert, gte, nomic_bert, eurobert, "
        "jina_embeddings_v3 and qwen3 by the code of SPLADE-Code.",
        r->model->own->base, d->architecture);
}

/* ALBERT projects its embeddings though they be as wide as the layers; no engine does. */
static int check_projection(const resolver *r) {
    const fl_encoder_desc *d = &r->model->encoder.desc;
    for (size_t i = 0; d->embedding == d->hidden && i < FL_NAMES_MAX && r->names[i].name != NULL;
         i++) {
        char name[FL_NAME_BYTES];
        fl_name_spell(name, &r->names[i], false, 0);
        if (!fl_name_is_of_layers(&r->names[i]) && r->names[i].slot[0] == FL_SLOT_PROJECT_W &&
            find(r, name) != NULL)
            return fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s: embeddings as wide as the layers (%u) with a projection (%s) are "
                           "not supported.",
                           r->model->own->base, d->hidden, name);
    }
    return 0;
}

/* What a file of one network alone holds besides may change the vectors. The vocabulary of a language model's output
 * does not; dense layers are stages. */
static int refuse_unused(const resolver *r) {
    const fl_safetensors *file = r->model->own->weights;
    for (size_t i = 0; i < fl_safetensors_count(file); i++) {
        const char *name = fl_safetensors_name(file, i);
        if (strcmp(name, "output.weight") != 0 && strncmp(name, "dense_", strlen("dense_")) != 0 &&
            !is_used(&r->model->encoder, fl_safetensors_find(file, name)))
            return fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s: tensor %.80s is unknown; it may change the vectors, so the model "
                           "is rejected rather than approximated.",
                           r->model->own->base, name);
    }
    return 0;
}

int fl_weights_read(fl_model *model, const fl_family *family, const fl_name *names,
                    const fl_log *log, fletch_error *error) {
    fl_encoder *encoder = &model->encoder;
    resolver    r       = {.model  = model,
                           .family = family,
                           .names  = names != NULL ? names : family->tensors,
                           .error  = error};
    encoder->layer      = fl_alloc_zero(encoder->desc.layers, sizeof *encoder->layer);
    if (encoder->layer == NULL)
        return fl_fail_nomem(error, encoder->desc.layers * sizeof *encoder->layer,
                             "the layer table");
    r.prefix = find_prefix(&r);
    FL_TRY(check_mlm(&r));
    FL_TRY(resolve_all(&r));
    FL_TRY(check_projection(&r));
    if (names != NULL)
        FL_TRY(refuse_unused(&r));
    model->weights_dtype = fl_dtype_name(encoder->global[FL_SLOT_WORD].dtype);
    model->weights_bytes = bytes_used(encoder);
    log_unused(&r, log);
    return 0;
}
