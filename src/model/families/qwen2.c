/* SPDX-License-Identifier: Apache-2.0 */
/* qwen2.c - Qwen2: gte-Qwen2 and others. Llama with biases of q, k and v.
 *
 * gte-Qwen2, stella_en_1.5B and Qodo-Embed come with code of their own, which looks both ways. */
#include "model/families/shared_names.h"

const fl_family fl_family_qwen2 = {
    .name        = "qwen2",
    .model_types = {"qwen2"},
    .remote_code = {"Alibaba-NLP/gte-Qwen2-1.5B-instruct--modeling_qwen.Qwen2Model",
                    "Alibaba-NLP/gte-Qwen2-7B-instruct--modeling_qwen.Qwen2Model"},
    .prefixes    = {"model."},

    .remote_needs = {"is_causal", "false"},

    .tokenizer_class  = "Qwen2Tokenizer",
    .tokenizer_forced = true,

    .fixed      = {FL_LLAMA_FIXED, .qkv_bias = true, .distance = {{.causal = true}}},
    .causal_key = "is_causal",

    .fields = {FL_HIDDEN("hidden_size", 4096), FL_LAYERS("num_hidden_layers", 32),
               FL_HEADS("num_attention_heads", 32), FL_KV_HEADS("num_key_value_heads", 32),
               FL_HEAD_DIM("head_dim", 0), FL_MLP("intermediate_size", 22016),
               FL_VOCAB("vocab_size", 151936), FL_POSITIONS("max_position_embeddings", 32768),
               FL_EPS("rms_norm_eps", 1e-6), FL_ACTIVATION("hidden_act", "silu")},
    .rope   = {.theta = "rope_theta", .fallback = 10000, .yarn = true},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP},
    .head    = FL_LAST_TOKEN_HEAD(-1),
};
