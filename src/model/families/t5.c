/* SPDX-License-Identifier: Apache-2.0 */
/* t5.c - the encoder of T5 and mT5: sentence-t5, gtr, instructor's base, FRIDA.
 *
 *     x = word[id]
 *     per layer: x = x + attention(RMS(x)); x = x + down(act(up(RMS(x)))), or gated
 *     score[h, i, j] = q_i k_j + table[bucket(j - i), h], without 1/sqrt(d), one table for all layers
 *
 * "gated-gelu" is the tanh form of GELU. UMT5 has a table in each layer: another model_type, refused. */
#include "model/families/shared_names.h"

const fl_family fl_family_t5 = {
    .name          = "t5",
    .model_types   = {"t5", "mt5"},
    .untyped_pairs = true,

    .tokenizer_class = "T5Tokenizer",

    .old_tokenizers = {"T5Tokenizer"},

    .fixed = {.norm            = FL_NORM_RMS,
              .norm_place      = FL_NORM_PRE,
              .final_norm      = true,
              .attention_scale = 1,
              .distance        = {{.bias = FL_BIAS_T5_BUCKETS}}},

    .fields = {FL_HIDDEN("d_model hidden_size", 512), FL_LAYERS("num_layers num_hidden_layers", 6),
               FL_HEADS("num_heads num_attention_heads", 8), FL_HEAD_DIM("d_kv", 64),
               FL_MLP("d_ff", 2048), FL_VOCAB("vocab_size", 32128),
               FL_POSITIONS("max_position_embeddings", 512), FL_EPS("layer_norm_epsilon", 1e-6),
               FL_SIZE(distance[0].buckets, "relative_attention_num_buckets", 32, 4, 4096),
               FL_SIZE(distance[0].max_distance, "relative_attention_max_distance", 128, 2, 65536),
               FL_GATED_WORD("feed_forward_proj", "relu")},

    .tensors = {FL_AT("shared.weight", FL_SLOT_WORD),
                FL_AT("encoder.embed_tokens.weight", FL_SLOT_WORD),
                FL_AT("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                      FL_SLOT_ATTENTION_BIAS),
                FL_AT("encoder.final_layer_norm.", FL_SLOT_FINAL_NORM_W),
                FL_AT("encoder.block.*.layer.0.layer_norm.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("encoder.block.*.layer.0.SelfAttention.q.", FL_LAYER_Q_W),
                FL_AT("encoder.block.*.layer.0.SelfAttention.k.", FL_LAYER_K_W),
                FL_AT("encoder.block.*.layer.0.SelfAttention.v.", FL_LAYER_V_W),
                FL_AT("encoder.block.*.layer.0.SelfAttention.o.", FL_LAYER_O_W),
                FL_AT("encoder.block.*.layer.1.layer_norm.", FL_LAYER_MLP_NORM_W),
                FL_AT("encoder.block.*.layer.1.DenseReluDense.wi.", FL_LAYER_UP_W),
                FL_AT("encoder.block.*.layer.1.DenseReluDense.wi_0.", FL_LAYER_GATE_W),
                FL_AT("encoder.block.*.layer.1.DenseReluDense.wi_1.", FL_LAYER_UP_W),
                FL_AT("encoder.block.*.layer.1.DenseReluDense.wo.", FL_LAYER_DOWN_W)},
};
