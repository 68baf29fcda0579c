/* SPDX-License-Identifier: Apache-2.0 */
/* electra.c - ELECTRA: BERT whose embeddings may be narrower than its layers; they are normed, then
 * projected. The vocabulary head is the generator's. */
#include "model/families/shared_names.h"

const fl_family fl_family_electra = {
    .name        = "electra",
    .model_types = {"electra"},
    .prefixes    = {"electra."},

    .fixed = {FL_BERT_FIXED},

    .fields = {FL_HIDDEN("hidden_size", 256), FL_EMBEDDING("embedding_size", 128),
               FL_LAYERS("num_hidden_layers", 12), FL_HEADS("num_attention_heads", 4),
               FL_MLP("intermediate_size", 1024), FL_VOCAB("vocab_size", 30522),
               FL_POSITIONS("max_position_embeddings", 512), FL_TYPES("type_vocab_size", 2, 1),
               FL_EPS("layer_norm_eps", 1e-12), FL_ACTIVATION("hidden_act", "gelu"), FL_MLM_TIED},

    .tensors = {FL_BERT_EMBEDDINGS, FL_BERT_POSITIONS, FL_BERT_ATTENTION, FL_BERT_MLP,
                FL_AT("embeddings_project.", FL_SLOT_PROJECT_W),
                FL_AT("generator_predictions.dense.", FL_SLOT_MLM_W),
                FL_AT("generator_predictions.LayerNorm.", FL_SLOT_MLM_NORM_W),
                FL_AT("generator_lm_head.", FL_SLOT_MLM_DECODER),
                FL_AT("generator_lm_head.bias", FL_SLOT_MLM_BIAS)},
    .head    = FL_CLASSIFIER_HEAD(FL_DENSE_GELU),
};
