/* SPDX-License-Identifier: Apache-2.0 */
/* roberta_prelayernorm.c - RoBERTa with its norms in front of the blocks: efficient_mlm.
 *
 *     per layer: x = x + attention(LN(x)); x = x + down(act(up(LN(x)))); a norm behind the last */
#include "model/families/shared_names.h"

const fl_family fl_family_roberta_prelayernorm = {
    .name        = "roberta-prelayernorm",
    .model_types = {"roberta-prelayernorm"},
    .prefixes    = {"roberta_prelayernorm."},
    .padding_key = "pad_token_id",
    .padding     = 1,

    .untyped_pairs = true,

    .old_tokenizers = {"RobertaTokenizer"},

    .fixed = {FL_BERT_FIXED, .norm_place = FL_NORM_PRE, .final_norm = true},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),
               FL_VOCAB("vocab_size", 50265), FL_POSITIONS("max_position_embeddings", 512),
               FL_TYPES("type_vocab_size", 2, 1), FL_EPS("layer_norm_eps", 1e-12),
               FL_ACTIVATION("hidden_act", "gelu"), FL_MLM_TIED},

    .tensors = {FL_BERT_EMBEDDINGS, FL_BERT_POSITIONS,
                FL_AT("encoder.layer.*.attention.LayerNorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_BERT_HEADS,
                FL_AT("encoder.layer.*.intermediate.LayerNorm.", FL_LAYER_MLP_NORM_W),
                FL_AT("encoder.layer.*.intermediate.dense.", FL_LAYER_UP_W),
                FL_AT("encoder.layer.*.output.dense.", FL_LAYER_DOWN_W),
                FL_AT("LayerNorm.", FL_SLOT_FINAL_NORM_W), FL_ROBERTA_MLM},
    .head    = FL_CLASSIFIER_HEAD(FL_DENSE_TANH),
};
