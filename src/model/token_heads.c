/* SPDX-License-Identifier: Apache-2.0 */
/* token_heads.c - the two heads that bge-m3 has besides its pooled row: a weight and a vector for each token.
 *
 * Role    model.c calls it when everything else of a folder is read.
 * In/Out  sparse_linear and colbert_linear, a matrix and a bias each: among the model's tensors
 *         ("sparse_linear.weight"), in a file NAME.safetensors, or in NAME.pt as the hub has them.
 *         -> model->weigher and model->colbert, which any such folder then offers besides its rows; or, where
 *         model.pooling is colbert, a model of late interaction: that layer and unit length in place of the
 *         modules, the first token's row left out, a score divided by the query's rows.
 * Method  As FlagEmbedding's BGEM3FlagModel computes them. A file that cannot be read is told to who asks for
 *         its vectors: the folder's rows do not depend on it.
 * Memory  weigher, colbert and stages, owned by the model. Threads: during opening only.
 * Proof   tests/golden/test_token_heads.py. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { WIDTH_MAX = 65536 };

/* Where a layer's tensors are. */
typedef struct linear {
    fl_safetensors       *own; /* to be closed, or NULL */
    const fl_safetensors *file;
    char                  weight[48], bias[48];
} linear;

/* 1: it is there. */
static int find(const fl_model *model, const char *name, linear *out, fletch_error *error) {
    static const char *const ends[] = {"safetensors", "pt"};
    *out                            = (linear){.file = model->own->weights};
    snprintf(out->weight, sizeof out->weight, "%s.weight", name);
    snprintf(out->bias, sizeof out->bias, "%s.bias", name);
    if (fl_safetensors_find(out->file, out->weight) != NULL)
        return 1;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char path[FL_MODEL_PATH_MAX], file[48];
        snprintf(file, sizeof file, "%s.%s", name, ends[i]);
        int there = fl_file_find(path, sizeof path, model->own->transformer, file, error);
        if (there == 0)
            continue;
        FL_TRY(there);
        FL_TRY(fl_safetensors_open(&out->own, path, error));
        out->file = out->own;
        snprintf(out->weight, sizeof out->weight, "weight");
        snprintf(out->bias, sizeof out->bias, "bias");
        return 1;
    }
    return 0;
}

/* A layer of `rows` (0: as many as its matrix has) over a token's row. 1: it is there. */
static int read_linear(const fl_model *model, const char *name, uint32_t rows, fl_stage *stage,
                       fletch_error *error) {
    linear from;
    int    there = find(model, name, &from, error);
    if (there <= 0)
        return there;
    const fl_tensor *weight = fl_safetensors_find(from.file, from.weight);
    const char      *folder = model->own->transformer;
    if (rows == 0 && weight != NULL && weight->rank == 2 && weight->shape[0] <= WIDTH_MAX)
        rows = (uint32_t)weight->shape[0];
    stage->kind = FL_STAGE_DENSE;
    stage->in   = model->encoder.desc.hidden;
    stage->out  = rows;
    int status  = rows == 0 ? fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                      "%s: %s has no matrix \"weight\".", folder, name)
                            : fl_dense_load(&stage->weight, from.file, folder, from.weight, rows,
                                            stage->in, error);
    if (status == 0)
        status = fl_dense_load(&stage->bias, from.file, folder, from.bias, rows, 0, error);
    fl_safetensors_close(from.own);
    return status != 0 ? status : 1;
}

/* A layer that the folder's rows do not depend on: one that cannot be read is told to who asks for it. */
static int read_beside(fl_model *model, const char *name, uint32_t rows, fl_stage *stage,
                       const char **refused, fletch_error *error) {
    fletch_error why   = {0};
    int          there = read_linear(model, name, rows, stage, &why);
    if (there >= 0)
        return 0;
    fl_stage_free(stage);
    if (there == FLETCH_ENOMEM)
        return fl_fail(error, there, FLETCH_NOWHERE, "%s", why.message);
    return fl_model_keep(model, refused, "a message", error, "%s", why.message);
}

/* The modules' stages make way for the layer and unit length. */
static int make_late(fl_model *model, fletch_error *error) {
    enum { STAGES = 2 };
    fl_stage *stages = fl_alloc_zero(STAGES, sizeof *stages);
    if (stages == NULL)
        return fl_fail_nomem(error, STAGES * sizeof *stages, "stages");
    for (uint32_t i = 0; i < model->stage_count; i++)
        fl_stage_free(&model->stages[i]);
    fl_free(model->stages);
    model->stages      = stages;
    model->stage_count = STAGES;
    int there          = read_linear(model, "colbert_linear", 0, &stages[0], error);
    if (there <= 0)
        return there < 0 ? there
                         : fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                                   "%s: model.pooling colbert needs a colbert_linear.pt or "
                                   ".safetensors, as in bge-m3.",
                                   model->folder);
    stages[1]    = (fl_stage){.kind = FL_STAGE_NORMALIZE};
    stages[1].in = stages[1].out = model->dimensions = stages[0].out;
    model->normalize                                 = true;
    model->normalize_source.origin                   = "colbert_linear";
    model->similarity                                = "meanmaxsim";
    model->head                                      = FL_HEAD_LATE;
    model->late                                      = (fl_late){.mean = true, .skips_first = true};
    model->encoder.desc.late                         = true;
    /* An engine is told one way, and never goes it. */
    fl_pooling_set(model, FL_POOL_MEAN, "model.pooling (colbert_linear)");
    return 0;
}

int fl_token_heads_read(fl_model *model, const char *pooling, fletch_error *error) {
    bool colbert = pooling != NULL && strcmp(pooling, FL_POOLING_COLBERT) == 0;
    bool plain =
        model->own->weights != NULL && !model->is_static && model->head == FL_HEAD_EMBEDDING;
    if (!plain)
        return !colbert ? 0
                        : fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                                  "%s: model.pooling colbert is for an embedding model with a "
                                  "colbert_linear, as bge-m3.",
                                  model->folder);
    if (colbert)
        return make_late(model, error);
    FL_TRY(read_beside(model, "sparse_linear", 1, &model->weigher, &model->weigher_refused, error));
    return read_beside(model, "colbert_linear", 0, &model->colbert, &model->colbert_refused, error);
}
