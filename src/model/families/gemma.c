/* SPDX-License-Identifier: Apache-2.0 */
/* gemma.c - Gemma 1. Llama with norms of 1 + w, x = word[id] * sqrt(hidden) and heads of a width of their
 * own. Gemma 2 caps its scores: another model_type, refused. */
#include "model/families/shared_names.h"

const fl_family fl_family_gemma = {
    .name           = "gemma",
    .model_types    = {"gemma"},
    .prefixes       = {"model."},
    .old_tokenizers = {"GemmaTokenizer"},

    .tokenizer_class = "GemmaTokenizer",
    .scale_embedding = true,
    .causal_key      = "use_bidirectional_attention",
    .causal_inverted = true,

    .fixed = {.norm       = FL_NORM_RMS_PLUS_ONE,
              .norm_place = FL_NORM_PRE,
              .final_norm = true,
              .mlp        = FL_MLP_GLU,
              .distance   = {{.causal = true}}},

    .fields = {FL_HIDDEN("hidden_size", 3072), FL_LAYERS("num_hidden_layers", 28),
               FL_HEADS("num_attention_heads", 16), FL_KV_HEADS("num_key_value_heads", 16),
               FL_HEAD_DIM("head_dim", 256), FL_MLP("intermediate_size", 24576),
               FL_POSITIONS("max_position_embeddings", 8192), FL_EPS("rms_norm_eps", 1e-6),
               FL_VOCAB("vocab_size", 256000), FL_ACTIVATION("hidden_act", "gelu_pytorch_tanh"),
               FL_ATTENTION_BIASES("attention_bias")},
    .only   = {{"use_bidirectional_attention", "true|false"},
               {"is_causal", "true"},
               {"hidden_activation", "gelu_pytorch_tanh"}},
    .rope   = {.theta = "rope_theta", .fallback = 10000, .yarn = true},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP},
    .head    = FL_LAST_TOKEN_HEAD(0),
};
