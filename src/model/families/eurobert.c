/* SPDX-License-Identifier: Apache-2.0 */
/* eurobert.c - EuroBERT: Llama that looks both ways. */
#include "model/families/shared_names.h"

const fl_family fl_family_eurobert = {
    .name        = "eurobert",
    .model_types = {"eurobert"},
    .prefixes    = {"model."},

    .fixed = {FL_LLAMA_FIXED, .mlm_bare = true},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_KV_HEADS("num_key_value_heads", 0),
               FL_HEAD_DIM("head_dim", 0), FL_MLP("intermediate_size", 3072),
               FL_VOCAB("vocab_size", 128256), FL_POSITIONS("max_position_embeddings", 8192),
               FL_EPS("rms_norm_eps", 1e-5), FL_ACTIVATION("hidden_act", "silu"),
               FL_ATTENTION_BIASES("attention_bias"), FL_MLP_BIASES("mlp_bias"),
               FL_BOOL(mlm_decoder_bias, "mlp_bias", false),
               FL_BOOL(mlm_tied, "tie_word_embeddings", false)},
    .rope   = {.theta = "rope_theta", .fallback = 10000, .yarn = true},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP,
                FL_AT("lm_head.", FL_SLOT_MLM_DECODER), FL_AT("lm_head.bias", FL_SLOT_MLM_BIAS)},
};
