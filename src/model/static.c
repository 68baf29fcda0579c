/* SPDX-License-Identifier: Apache-2.0 */
/* static.c - static embeddings: a table whose rows are averaged, with nothing after it.
 *
 * Role    model.c calls it when the first module is a StaticEmbedding of sentence-transformers, or Stable Static
 *         Embedding's class, which has a gate behind the table (dense.c).
 * In/Out  tokenizer.json and model.safetensors -> an encoder of no layers: "embedding.weight", or
 *         model2vec's "embeddings", with "mapping" (row of each id) and "weights" (of each id).
 * Method  Stable Static Embedding's table may be of 4 bits, in a file of its own: nibbles, the first column's the
 *         higher, then a float32 for each row; q is (q / 7.5 - 1) times that. As int8 it is (2 q - 15) times a
 *         fifteenth of it.
 *         There is no config.json: the tensors say how wide and long the table is. Texts get no
 *         special tokens, and one without any token has a vector of zeros.
 * Length  sentence-transformers cuts only as tokenizer.json's block "truncation" says (lengths.c);
 *         here a text may also have only as many tokens as make 64 MiB of rows, and a longer one is
 *         cut and said to be.
 * Memory  fl_encoder.layer, so that the weights count as read. Threads: during opening only.
 * Proof   tests/golden/test_folders.py. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "hub/hub_cache.h"
#include "model/model_private.h"

enum { WIDTH_MAX = 65536, ROWS_VALUES_MAX = 1 << 24, NIBBLES_MAX = 1 << 30 };

static const fl_tensor *find(const fl_model *model, const char *name) {
    return fl_safetensors_find(model->own->weights, name);
}

static int refuse(const fl_model *model, const char *name, const fl_tensor *tensor,
                  fletch_error *error) {
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s: tensor %s of %u dimensions and dtype %s is not part of a static model.",
                   model->own->transformer, name, tensor->rank, fl_dtype_name(tensor->dtype));
}

/* A tensor with one entry an id. */
static int read_per_id(fl_model *model, const char *name, bool ids, bool *there, fl_tensor *slot,
                       fletch_error *error) {
    const fl_tensor *tensor = find(model, name);
    fl_encoder_desc *desc   = &model->encoder.desc;
    if (tensor == NULL)
        return 0;
    bool integer = tensor->dtype == FL_DTYPE_I64 || tensor->dtype == FL_DTYPE_I32;
    if (tensor->rank != 1 || tensor->shape[0] == 0 || tensor->shape[0] > UINT32_MAX ||
        (ids ? !integer : !fl_dtype_is_real(tensor->dtype)))
        return refuse(model, name, tensor, error);
    if (ids)
        desc->vocab = (uint32_t)tensor->shape[0];
    else if (tensor->shape[0] != desc->vocab)
        return fl_fail(
            error, FLETCH_EMODEL, FLETCH_NOWHERE,
            "%s: tensor %s has %llu values for %u ids: the files do not belong together.",
            model->own->transformer, name, (unsigned long long)tensor->shape[0], desc->vocab);
    *there = true;
    *slot  = *tensor;
    model->weights_bytes += tensor->bytes;
    return 0;
}

static int read_table(fl_model *model, fletch_error *error) {
    fl_encoder_desc *desc  = &model->encoder.desc;
    const char      *name  = "embedding.weight";
    const fl_tensor *table = find(model, name);
    if (table == NULL)
        table = find(model, name = "embeddings");
    if (table == NULL)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: neither tensor embedding.weight nor embeddings is present.",
                       model->own->transformer);
    if (table->rank != 2 || table->shape[0] == 0 || table->shape[1] == 0 ||
        table->shape[0] > UINT32_MAX || table->shape[1] > WIDTH_MAX ||
        (!fl_dtype_is_real(table->dtype) && table->dtype != FL_DTYPE_I8))
        return refuse(model, name, table, error);
    desc->architecture = "static";
    desc->hidden = desc->embedding = (uint32_t)table->shape[1];
    desc->vocab = desc->word_rows       = (uint32_t)table->shape[0];
    desc->positions                     = ROWS_VALUES_MAX / desc->hidden;
    model->encoder.global[FL_SLOT_WORD] = *table;
    model->weights_dtype                = fl_dtype_name(table->dtype);
    model->weights_bytes                = table->bytes;
    return 0;
}

int fl_static_open(fl_model *model, fletch_error *error) {
    char path[FL_MODEL_PATH_MAX];
    int  there = fl_file_find(path, sizeof path, model->own->base, "model_rest.safetensors", error);
    if (there > 0)
        return fl_safetensors_open(&model->own->weights, path, error);
    return there < 0 ? there
                     : fl_safetensors_open_folder(&model->own->weights, model->own->base, error);
}

/* The columns are those of the gate; the file's size says how many rows there are. */
static int unpack(fl_model *model, const char *path, const fl_buf *file, uint64_t columns,
                  fletch_error *error) {
    const size_t each = columns / 2 + sizeof(float), rows = file->size / each;
    if (columns == 0 || columns % 2 != 0 || columns > WIDTH_MAX || rows == 0 || rows > UINT32_MAX ||
        file->size % each != 0)
        return fl_fail(
            error, FLETCH_EMODEL, FLETCH_NOWHERE,
            "%s: %zu bytes are not a table of %llu columns in 4 bits with a scale per row.", path,
            file->size, (unsigned long long)columns);
    const size_t bytes = rows * (sizeof(float) + (size_t)columns);
    float       *scale = fl_alloc(bytes);
    if (scale == NULL)
        return fl_fail_nomem(error, bytes, "a table");
    const unsigned char *from = (const unsigned char *)file->data;
    int8_t              *to   = (int8_t *)(scale + rows);
    model->own->table         = scale;
    for (size_t i = 0; i < rows * (size_t)columns / 2; i++) {
        to[2 * i]     = (int8_t)(2 * (from[i] >> 4) - 15);
        to[2 * i + 1] = (int8_t)(2 * (from[i] & 15) - 15);
    }
    memcpy(scale, from + rows * (size_t)columns / 2, rows * sizeof *scale);
    for (size_t i = 0; i < rows; i++)
        scale[i] /= 15.0f;
    fl_encoder_desc *desc = &model->encoder.desc;
    desc->architecture    = "static";
    desc->hidden = desc->embedding = (uint32_t)columns;
    desc->vocab = desc->word_rows             = (uint32_t)rows;
    desc->positions                           = ROWS_VALUES_MAX / desc->hidden;
    desc->word_scale                          = true;
    model->encoder.global[FL_SLOT_WORD]       = (fl_tensor){.data  = to,
                                                            .bytes = rows * columns,
                                                            .dtype = FL_DTYPE_I8,
                                                            .rank  = 2,
                                                            .shape = {rows, columns}};
    model->encoder.global[FL_SLOT_WORD_SCALE] = (fl_tensor){.data  = scale,
                                                            .bytes = rows * sizeof *scale,
                                                            .dtype = FL_DTYPE_F32,
                                                            .rank  = 1,
                                                            .shape = {rows}};
    model->weights_dtype                      = "4 bits";
    model->weights_bytes                      = file->size;
    return 0;
}

static int read_nibbles(fl_model *model, fletch_error *error) {
    char             path[FL_MODEL_PATH_MAX];
    fl_buf           file = {0};
    const fl_tensor *gate = find(model, "dyt.alpha");
    FL_TRY(fl_path_join(path, sizeof path, model->own->base, FL_HUB_NIBBLES, error));
    int status = fl_file_read(path, NIBBLES_MAX, &file, error);
    if (status == 0)
        status =
            unpack(model, path, &file, gate != NULL && gate->rank == 1 ? gate->shape[0] : 0, error);
    fl_buf_free(&file);
    return status;
}

int fl_static_read(fl_model *model, fletch_error *error) {
    fl_encoder *encoder = &model->encoder;
    const bool  packed  = model->own->gated && find(model, "embedding.weight") == NULL;
    FL_TRY(packed ? read_nibbles(model, error) : read_table(model, error));
    FL_TRY(read_per_id(model, "mapping", true, &encoder->desc.word_map,
                       &encoder->global[FL_SLOT_WORD_MAP], error));
    FL_TRY(read_per_id(model, "weights", false, &encoder->desc.word_scale,
                       &encoder->global[FL_SLOT_WORD_SCALE], error));
    encoder->layer = fl_alloc_zero(1, sizeof *encoder->layer);
    if (encoder->layer == NULL)
        return fl_fail_nomem(error, sizeof *encoder->layer, "the layer table");
    fl_pooling_set(model, FL_POOL_MEAN, "modules.json (StaticEmbedding)");
    return 0;
}
