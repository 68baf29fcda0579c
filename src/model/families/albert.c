/* SPDX-License-Identifier: Apache-2.0 */
/* albert.c - ALBERT: paraphrase-albert-small-v2, albert-base.
 *
 * BERT whose layers share one set of weights, and whose embeddings are narrower and projected, as ELECTRA's. */
#include "model/families/shared_names.h"

const fl_family fl_family_albert = {
    .name        = "albert",
    .model_types = {"albert"},
    .prefixes    = {"albert."},

    .fixed = {FL_BERT_FIXED},

    .fields = {FL_HIDDEN("hidden_size", 4096), FL_EMBEDDING("embedding_size", 128),
               FL_LAYERS("num_hidden_layers", 12), FL_HEADS("num_attention_heads", 64),
               FL_MLP("intermediate_size", 16384), FL_VOCAB("vocab_size", 30000),
               FL_POSITIONS("max_position_embeddings", 512), FL_TYPES("type_vocab_size", 2, 1),
               FL_EPS("layer_norm_eps", 1e-12), FL_ACTIVATION("hidden_act", "gelu_new")},
    .only   = {{"num_hidden_groups", "1"}, {"inner_group_num", "1"}},

    .tensors =
        {FL_BERT_EMBEDDINGS, FL_BERT_POSITIONS,
         FL_AT("encoder.embedding_hidden_mapping_in.", FL_SLOT_PROJECT_W),
         FL_AT("encoder.albert_layer_groups.?.albert_layers.0.attention.query.", FL_LAYER_Q_W),
         FL_AT("encoder.albert_layer_groups.?.albert_layers.0.attention.key.", FL_LAYER_K_W),
         FL_AT("encoder.albert_layer_groups.?.albert_layers.0.attention.value.", FL_LAYER_V_W),
         FL_AT("encoder.albert_layer_groups.?.albert_layers.0.attention.dense.", FL_LAYER_O_W),
         FL_AT("encoder.albert_layer_groups.?.albert_layers.0.attention.LayerNorm.",
               FL_LAYER_ATTENTION_NORM_W),
         FL_AT("encoder.albert_layer_groups.?.albert_layers.0.ffn.", FL_LAYER_UP_W),
         FL_AT("encoder.albert_layer_groups.?.albert_layers.0.ffn_output.", FL_LAYER_DOWN_W),
         FL_AT("encoder.albert_layer_groups.?.albert_layers.0.full_layer_layer_norm.",
               FL_LAYER_MLP_NORM_W)},
    .head = {.layers = {{.name = "pooler.", .activation = FL_DENSE_TANH}, {.name = "classifier."}}},
};
