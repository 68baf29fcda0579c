/* SPDX-License-Identifier: Apache-2.0 */
/* arch.c - the list of architectures, and what their config.json files have in common.
 *
 * Role    model.c hands over config.json; the file of the architecture it names fills the
 *         descriptor.
 * Method  Keys that are absent take transformers' defaults. Sizes are bounded before anything is
 *         computed from them. A switch that changes the maths and that no engine knows is refused
 *         by name: a vector that is nearly right is worse than none.
 * Memory  none. Threads: pure functions.
 * Proof   tests/unit/test_model.c; tests/golden/test_folders.py. */
#include "model/arch.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

/* Bounds far above any model in use; products of two stay below 2^48. */
enum {
    WIDTH_MAX     = 65536,
    LAYERS_MAX    = 1024,
    HEADS_MAX     = 1024,
    MLP_MAX       = 1 << 20,
    VOCAB_MAX     = 1 << 24,
    POSITIONS_MAX = 1 << 24
};

static const fl_arch *const architectures[] = {&fl_arch_bert, &fl_arch_mpnet};

static const struct {
    const char   *name;
    fl_activation activation;
} activations[] = {
    {"gelu", FL_ACT_GELU_ERF},
    {"gelu_python", FL_ACT_GELU_ERF},
    {"gelu_new", FL_ACT_GELU_TANH},
    {"gelu_pytorch_tanh", FL_ACT_GELU_TANH},
    {"gelu_fast", FL_ACT_GELU_TANH},
    {"gelu_python_tanh", FL_ACT_GELU_TANH},
    {"gelu_accurate", FL_ACT_GELU_TANH},
    {"silu", FL_ACT_SILU},
    {"swish", FL_ACT_SILU},
    {"relu", FL_ACT_RELU},
};

void fl_arch_refuse(fl_json_reader *config, const char *key, const char *value) {
    if (config->status == 0)
        config->status =
            fl_fail(config->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                    "%s: %s \"%.60s\" is not supported; it changes the vectors, so the model "
                    "is refused rather than approximated.",
                    config->source, key, value);
}

void fl_arch_refuse_if_true(fl_json_reader *config, const char *key) {
    if (fl_json_bool(config, key, false))
        fl_arch_refuse(config, key, "true");
}

static uint32_t read_size(fl_json_reader *config, const char *key, uint32_t fallback,
                          uint32_t max) {
    return (uint32_t)fl_json_int(config, key, fallback, 1, max);
}

static fl_activation read_activation(fl_json_reader *config) {
    const char *name = fl_json_string(config, "hidden_act", "gelu");
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(activations[i].name, name) == 0)
            return activations[i].activation;
    fl_arch_refuse(config, "hidden_act", name);
    return FL_ACT_GELU_ERF;
}

static float read_eps(fl_json_reader *config) {
    double eps = fl_json_double(config, "layer_norm_eps", 1e-12);
    if (config->status == 0 && !(eps >= 0 && eps < 1))
        config->status = fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: layer_norm_eps %g is outside 0..1.", config->source, eps);
    return (float)eps;
}

/* Switches of PretrainedConfig that would make another network of the same tensors. */
static void refuse_switches(fl_json_reader *config) {
    fl_arch_refuse_if_true(config, "is_decoder");
    fl_arch_refuse_if_true(config, "add_cross_attention");
    const char *position = fl_json_string(config, "position_embedding_type", "absolute");
    if (strcmp(position, "absolute") != 0)
        fl_arch_refuse(config, "position_embedding_type", position);
    fl_json *pruned =
        fl_json_has(config, "pruned_heads") ? fl_json_object(config, "pruned_heads") : NULL;
    if (pruned != NULL && json_object_object_length(pruned) > 0)
        fl_arch_refuse(config, "pruned_heads", "not empty");
    if (fl_json_has(config, "quantization_config"))
        fl_arch_refuse(config, "quantization_config", "present");
    /* auto_map points to Python code in some repository: the network is what that code says. */
    fl_json_reader map = {
        .object = fl_json_has(config, "auto_map") ? fl_json_object(config, "auto_map") : NULL,
        .source = config->source,
        .error  = config->error};
    const char *code = fl_json_string(&map, "AutoModel", NULL);
    if (code == NULL)
        code = fl_json_string(&map, "AutoConfig", NULL);
    if (code != NULL)
        fl_arch_refuse(config, "auto_map (remote code)", code);
    if (config->status == 0)
        config->status = map.status;
}

void fl_arch_common(fl_encoder_desc *desc, fl_json_reader *config, const fl_arch_sizes *defaults) {
    desc->hidden       = read_size(config, "hidden_size", defaults->hidden, WIDTH_MAX);
    desc->layers       = read_size(config, "num_hidden_layers", defaults->layers, LAYERS_MAX);
    desc->heads        = read_size(config, "num_attention_heads", defaults->heads, HEADS_MAX);
    desc->intermediate = read_size(config, "intermediate_size", defaults->intermediate, MLP_MAX);
    desc->vocab        = read_size(config, "vocab_size", defaults->vocab, VOCAB_MAX);
    desc->positions =
        read_size(config, "max_position_embeddings", defaults->positions, POSITIONS_MAX);
    desc->activation = read_activation(config);
    desc->norm_eps   = read_eps(config);
    refuse_switches(config);
    if (config->status == 0 && desc->hidden % desc->heads != 0)
        config->status = fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: hidden_size %u is no multiple of num_attention_heads %u.",
                                 config->source, desc->hidden, desc->heads);
    if (config->status != 0)
        return;
    desc->kv_heads        = desc->heads;
    desc->head_dim        = desc->hidden / desc->heads;
    desc->attention_scale = 1.0f / sqrtf((float)desc->head_dim);
}

int fl_arch_describe(const fl_arch **arch, fl_encoder_desc *desc, fl_json_reader *config) {
    const char *model_type = fl_json_string(config, "model_type", NULL);
    if (config->status != 0)
        return config->status;
    if (model_type == NULL)
        return fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s has no model_type: is this a Hugging Face model folder?",
                       config->source);
    memset(desc, 0, sizeof *desc);
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(architectures[i]->model_type, model_type) == 0) {
            *arch              = architectures[i];
            desc->architecture = (*arch)->model_type;
            (*arch)->describe(desc, config);
            return config->status;
        }
    return fl_fail(config->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: model_type \"%.60s\" is not supported; fletch knows bert and mpnet.",
                   config->source, model_type);
}
