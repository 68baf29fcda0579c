/* SPDX-License-Identifier: Apache-2.0 */
/* mpnet.c - MPNet: all-mpnet-base-v2, multi-qa-mpnet, paraphrase-mpnet.
 *
 *     x = LN(word[id] + position[2 .. n+1])
 *     score[h, i, j] = q_i k_j / sqrt(d) + table[bucket(j - i), h], one table for all layers
 *
 * The rest as BERT. Rows 0 and 1 of the positions are never used by a token that counts (row 1 is
 * padding). The buckets are T5's, both directions: transformers always takes 32 over 128 tokens. */
#include "model/families/shared_names.h"

const fl_family fl_family_mpnet = {
    .name        = "mpnet",
    .model_types = {"mpnet"},
    .prefixes    = {"mpnet."},
    .padding_key = "",
    .padding     = 1,

    .fixed = {FL_BERT_FIXED,
              .distance = {{.bias = FL_BIAS_T5_BUCKETS, .buckets = 32, .max_distance = 128}}},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),
               FL_POSITIONS("max_position_embeddings", 512), FL_VOCAB("vocab_size", 30527),
               FL_EPS("layer_norm_eps", 1e-12), FL_ACTIVATION("hidden_act", "gelu"), FL_MLM_TIED},
    .only   = {{"relative_attention_num_buckets", "32"}},

    .tensors = {FL_AT("embeddings.word_embeddings.weight", FL_SLOT_WORD),
                FL_AT("embeddings.position_embeddings.weight", FL_SLOT_POSITION),
                FL_AT("embeddings.LayerNorm.", FL_SLOT_EMBED_NORM_W),
                FL_AT("encoder.relative_attention_bias.weight", FL_SLOT_ATTENTION_BIAS),
                FL_AT("encoder.layer.*.attention.attn.q.", FL_LAYER_Q_W),
                FL_AT("encoder.layer.*.attention.attn.k.", FL_LAYER_K_W),
                FL_AT("encoder.layer.*.attention.attn.v.", FL_LAYER_V_W),
                FL_AT("encoder.layer.*.attention.attn.o.", FL_LAYER_O_W),
                FL_AT("encoder.layer.*.attention.LayerNorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_BERT_MLP, FL_ROBERTA_MLM},
    .head    = FL_CLASSIFIER_HEAD(FL_DENSE_TANH),
};
