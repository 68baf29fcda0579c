/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c - Llama: pre-norm RMS, grouped heads, rotary positions (plain, linear or llama3), causal
 * unless is_causal is false. */
#include "model/families/shared_names.h"

const fl_family fl_family_llama = {
    .name        = "llama",
    .model_types = {"llama"},
    .prefixes    = {"model."},

    .fixed      = {FL_LLAMA_FIXED, .distance = {{.causal = true}}},
    .causal_key = "is_causal",

    .fields = {FL_HIDDEN("hidden_size", 4096), FL_LAYERS("num_hidden_layers", 32),
               FL_HEADS("num_attention_heads", 32), FL_KV_HEADS("num_key_value_heads", 0),
               FL_HEAD_DIM("head_dim", 0), FL_MLP("intermediate_size", 11008),
               FL_VOCAB("vocab_size", 32000), FL_POSITIONS("max_position_embeddings", 2048),
               FL_EPS("rms_norm_eps", 1e-6), FL_ACTIVATION("hidden_act", "silu"),
               FL_ATTENTION_BIASES("attention_bias"), FL_MLP_BIASES("mlp_bias")},
    .rope   = {.theta = "rope_theta", .fallback = 10000, .yarn = true},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP},
    .head    = FL_LAST_TOKEN_HEAD(-1),
};
