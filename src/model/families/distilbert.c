/* SPDX-License-Identifier: Apache-2.0 */
/* distilbert.c - DistilBERT: BERT without token types, under names of its own; eps is fixed.
 * Sinusoidal positions are stored like learnt ones. */
#include "model/families/shared_names.h"

const fl_family fl_family_distilbert = {
    .name        = "distilbert",
    .model_types = {"distilbert"},
    .prefixes    = {"distilbert."},

    .fixed = {FL_BERT_FIXED, .norm_eps = 1e-12f},

    .fields = {FL_HIDDEN("dim hidden_size", 768), FL_LAYERS("n_layers num_hidden_layers", 6),
               FL_HEADS("n_heads num_attention_heads", 12), FL_MLP("hidden_dim", 3072),
               FL_VOCAB("vocab_size", 30522), FL_POSITIONS("max_position_embeddings", 512),
               FL_ACTIVATION("activation", "gelu"), FL_MLM_ACTIVATION("activation"), FL_MLM_TIED},

    .tensors = {FL_AT("embeddings.word_embeddings.weight", FL_SLOT_WORD),
                FL_AT("embeddings.position_embeddings.weight", FL_SLOT_POSITION),
                FL_AT("embeddings.LayerNorm.", FL_SLOT_EMBED_NORM_W),
                FL_AT("transformer.layer.*.attention.q_lin.", FL_LAYER_Q_W),
                FL_AT("transformer.layer.*.attention.k_lin.", FL_LAYER_K_W),
                FL_AT("transformer.layer.*.attention.v_lin.", FL_LAYER_V_W),
                FL_AT("transformer.layer.*.attention.out_lin.", FL_LAYER_O_W),
                FL_AT("transformer.layer.*.sa_layer_norm.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("transformer.layer.*.ffn.lin1.", FL_LAYER_UP_W),
                FL_AT("transformer.layer.*.ffn.lin2.", FL_LAYER_DOWN_W),
                FL_AT("transformer.layer.*.output_layer_norm.", FL_LAYER_MLP_NORM_W),
                FL_AT("vocab_transform.", FL_SLOT_MLM_W),
                FL_AT("vocab_layer_norm.", FL_SLOT_MLM_NORM_W),
                FL_AT("vocab_projector.", FL_SLOT_MLM_DECODER),
                FL_AT("vocab_projector.bias", FL_SLOT_MLM_BIAS)},
    .head    = {.layers = {{.name = "pre_classifier.", .activation = FL_DENSE_RELU},
                           {.name = "classifier."}}},
};
