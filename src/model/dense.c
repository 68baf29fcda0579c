/* SPDX-License-Identifier: Apache-2.0 */
/* dense.c - the layers that sentence-transformers puts behind pooling: Dense and LayerNorm.
 *
 * Role    modules.c for each such entry of modules.json.
 * In/Out  N_Dense/config.json and model.safetensors -> fl_stage with float32 weights.
 * Method  The weights are small (a square of the width), so they are converted and copied; the
 *         file is closed again. What would change the maths and has no place in fl_stage is
 *         refused by name.
 * Memory  stage->weight and stage->bias, owned by the model. Threads: during opening only.
 * Proof   tests/unit/test_model.c; tests/golden/test_folders.py. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { DENSE_WIDTH_MAX = 65536 };

/* The last component of a path below torch.nn, where both spellings of each class live. */
static const struct {
    const char         *name, *word; /* of torch; ours */
    fl_dense_activation activation;
} activations[] = {
    {"Identity", "identity", FL_DENSE_IDENTITY},
    {"Tanh", "tanh", FL_DENSE_TANH},
    {"GELU", "gelu", FL_DENSE_GELU},
    {"ReLU", "relu", FL_DENSE_RELU},
    {"Sigmoid", "sigmoid", FL_DENSE_SIGMOID},
};

const char *fl_dense_activation_name(fl_dense_activation activation) {
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (activations[i].activation == activation)
            return activations[i].word;
    return "";
}

bool fl_dense_activation_of(const char *path, fl_dense_activation *out) {
    const char *last = strrchr(path, '.');
    if (strncmp(path, "torch.nn.", strlen("torch.nn.")) == 0)
        for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
            if (strcmp(last + 1, activations[i].name) == 0) {
                *out = activations[i].activation;
                return true;
            }
    return false;
}

static fl_dense_activation read_activation(fl_json_reader *reader) {
    fl_dense_activation activation = FL_DENSE_IDENTITY;
    const char         *path =
        fl_json_string(reader, "activation_function", "torch.nn.modules.activation.Tanh");
    if (!fl_dense_activation_of(path, &activation))
        fl_family_refuse(reader, "activation_function", path);
    return activation;
}

/* Whether the module writes `output` instead of what it reads. */
static bool check_features(fl_json_reader *reader, const char *own, const char *fallback,
                           const char *output) {
    const char *from  = fl_json_string(reader, "module_input_name", fallback);
    const char *to    = fl_json_string(reader, "module_output_name", from);
    bool        other = output != NULL && strcmp(to, output) == 0;
    if (strcmp(from, own) != 0)
        fl_family_refuse(reader, "module_input_name", from);
    if (!other && strcmp(to, own) != 0)
        fl_family_refuse(reader, "module_output_name", to);
    return other;
}

void fl_refuse_other_features(fl_json_reader *reader, const char *own, const char *fallback) {
    check_features(reader, own, fallback, NULL);
}

int fl_dense_load(float **out, const fl_safetensors *file, const char *folder, const char *name,
                  uint64_t rows, uint64_t columns, fletch_error *error) {
    const fl_tensor *tensor = fl_safetensors_find(file, name);
    if (tensor == NULL)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: tensor %s is missing.", folder,
                       name);
    uint32_t rank = columns == 0 ? 1 : 2;
    if (tensor->rank != rank || tensor->shape[0] != rows ||
        (rank == 2 && tensor->shape[1] != columns))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: the shape of tensor %s does not fit config.json.", folder, name);
    if (!fl_dtype_is_real(tensor->dtype))
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: tensor %s has dtype %s; weights may be F32, F16 or BF16.", folder, name,
                       fl_dtype_name(tensor->dtype));
    uint64_t count = rows * (columns == 0 ? 1 : columns);
    *out           = fl_alloc_array((size_t)count, sizeof **out);
    if (*out == NULL)
        return fl_fail_nomem(error, (size_t)count * sizeof **out, "a dense layer");
    fl_tensor_to_f32(tensor, 0, count, *out);
    return 0;
}

/* Weight and bias of a stage whose sizes are known. */
static int load_stage(fl_stage *stage, const char *folder, const char *layer, bool bias,
                      fletch_error *error) {
    fl_safetensors *file;
    char            name[64];
    uint64_t        columns = stage->kind == FL_STAGE_DENSE ? stage->in : 0;
    FL_TRY(fl_safetensors_open_folder(&file, folder, error));
    snprintf(name, sizeof name, "%s.weight", layer);
    int status = fl_dense_load(&stage->weight, file, folder, name, stage->out, columns, error);
    snprintf(name, sizeof name, "%s.bias", layer);
    if (status == 0 && bias)
        status = fl_dense_load(&stage->bias, file, folder, name, stage->out, 0, error);
    if (status == 0 && stage->adds_row && stage->in != stage->out)
        status = fl_dense_load(&stage->residual, file, folder, "residual.weight", stage->out,
                               stage->in, error);
    fl_safetensors_close(file);
    return status;
}

void fl_stage_free(fl_stage *stage) {
    fl_free(stage->weight);
    fl_free(stage->bias);
    fl_free(stage->residual);
    *stage = (fl_stage){.kind = FL_STAGE_DENSE};
}

int fl_module_config_read(fl_json_reader *out, char *path, const char *folder,
                          fletch_error *error) {
    FL_TRY(fl_model_read_json(out, path, folder, "config.json", error));
    return out->object != NULL ? 0
                               : fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                         "%s is missing, but modules.json names it.", path);
}

static int check_width(const char *path, int64_t has, uint32_t width, fletch_error *error) {
    if (has == width)
        return 0;
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s takes %lld dimensions but the module before it gives %u.", path,
                   (long long)has, width);
}

int fl_dense_read(fl_stage *stage, const char *folder, uint32_t width, const char *own,
                  const char *output, bool *writes_it, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_module_config_read(&reader, path, folder, error));
    int64_t in        = fl_json_int(&reader, "in_features", 0, 1, DENSE_WIDTH_MAX);
    int64_t out       = fl_json_int(&reader, "out_features", 0, 1, DENSE_WIDTH_MAX);
    bool    bias      = fl_json_bool(&reader, "bias", true);
    stage->kind       = FL_STAGE_DENSE;
    stage->activation = read_activation(&reader);
    stage->adds_row   = fl_json_bool(&reader, "use_residual", false);
    *writes_it        = check_features(&reader, own, own, output);
    int status        = reader.status;
    if (status == 0 && out == 0)
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s has no out_features.", path);
    fl_json_free(reader.object);
    if (status == 0)
        status = check_width(path, in, width, error);
    stage->in  = (uint32_t)in;
    stage->out = (uint32_t)out;
    return status != 0 ? status : load_stage(stage, folder, "linear", bias, error);
}

int fl_layer_norm_read(fl_stage *stage, const char *folder, uint32_t width, fletch_error *error) {
    assert(width > 0);
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_module_config_read(&reader, path, folder, error));
    int64_t dimension = fl_json_int(&reader, "dimension", 0, 1, DENSE_WIDTH_MAX);
    int     status    = reader.status;
    fl_json_free(reader.object);
    if (status == 0)
        status = check_width(path, dimension, width, error);
    stage->kind = FL_STAGE_LAYER_NORM;
    stage->eps  = 1e-5f; /* torch's default: the config does not carry one */
    stage->in = stage->out = (uint32_t)dimension;
    return status != 0 ? status : load_stage(stage, folder, "norm", true, error);
}

int fl_gate_read(fl_stage *stage, const fl_safetensors *file, const char *folder, uint32_t width,
                 fletch_error *error) {
    stage->kind = FL_STAGE_GATE;
    stage->in = stage->out = width;
    FL_TRY(fl_dense_load(&stage->weight, file, folder, "dyt.alpha", width, 0, error));
    FL_TRY(fl_dense_load(&stage->bias, file, folder, "dyt.bias", width, 0, error));
    return fl_dense_load(&stage->residual, file, folder, "dyt.beta", width, 0, error);
}
