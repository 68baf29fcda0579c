/* SPDX-License-Identifier: Apache-2.0 */
/* mistral.c - Mistral: e5-mistral, SFR-Embedding. Llama whose layers see a window, unless
 * sliding_window is null. */
#include "model/families/shared_names.h"

const fl_family fl_family_mistral = {
    .name           = "mistral",
    .model_types    = {"mistral"},
    .prefixes       = {"model."},
    .old_tokenizers = {"LlamaTokenizer"},

    .tokenizer_class    = "LlamaTokenizer",
    .tokenizer_as_saved = true,

    .fixed      = {FL_LLAMA_FIXED, .distance = {{.causal = true}}},
    .causal_key = "is_causal",
    .window     = {.window = "sliding_window", .fallback = 4096, .always = true},

    .fields = {FL_HIDDEN("hidden_size", 4096), FL_LAYERS("num_hidden_layers", 32),
               FL_HEADS("num_attention_heads", 32), FL_KV_HEADS("num_key_value_heads", 8),
               FL_HEAD_DIM("head_dim", 0), FL_MLP("intermediate_size", 14336),
               FL_VOCAB("vocab_size", 32000), FL_POSITIONS("max_position_embeddings", 131072),
               FL_EPS("rms_norm_eps", 1e-6), FL_ACTIVATION("hidden_act", "silu")},
    .rope   = {.theta = "rope_theta", .fallback = 10000, .yarn = true},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP},
    .head    = FL_LAST_TOKEN_HEAD(-1),
};
