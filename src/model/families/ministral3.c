/* SPDX-License-Identifier: Apache-2.0 */
/* ministral3.c - Ministral 3: Nemotron-3-Embed. Mistral with positions of the type yarn; causal unless is_causal is
 * false.
 *
 * Behind the positions that it was trained for queries grow with the logarithm of their place: texts end there. */
#include "model/families/shared_names.h"

const fl_family fl_family_ministral3 = {
    .name        = "ministral3",
    .model_types = {"ministral3"},
    .prefixes    = {"model."},

    .tokenizer_class    = "LlamaTokenizer",
    .tokenizer_as_saved = true,

    .fixed      = {FL_LLAMA_FIXED, .distance = {{.causal = true}}},
    .causal_key = "is_causal",
    .window     = {.window = "sliding_window", .always = true},

    .fields = {FL_HIDDEN("hidden_size", 4096), FL_LAYERS("num_hidden_layers", 34),
               FL_HEADS("num_attention_heads", 32), FL_KV_HEADS("num_key_value_heads", 8),
               FL_HEAD_DIM("head_dim", 128), FL_MLP("intermediate_size", 14336),
               FL_VOCAB("vocab_size", 131072), FL_POSITIONS("max_position_embeddings", 262144),
               FL_EPS("rms_norm_eps", 1e-5), FL_ACTIVATION("hidden_act", "silu")},
    .only   = {{"rope_parameters", "=*"}, {"rope_scaling", "absent"}},
    .rope   = {.theta    = "rope_theta",
               .fallback = 1e6,
               .yarn     = true,
               .growth   = "llama_4_scaling_beta"},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP},
    .head    = FL_LAST_TOKEN_HEAD(11),
};
