/* SPDX-License-Identifier: Apache-2.0 */
/* gemma2.c - Gemma 2: bge-multilingual-gemma2. Gemma 3 without norms of queries and keys, one RoPE for
 * all layers, every second of which sees a window; scores are capped, s = cap tanh(s / cap).
 *
 * The cap of logits is of no vector. transformers lets use_bidirectional_attention look back alone: true is
 * refused. */
#include "model/families/shared_names.h"

const fl_family fl_family_gemma2 = {
    .name           = "gemma2",
    .model_types    = {"gemma2"},
    .prefixes       = {"model."},
    .old_tokenizers = {"GemmaTokenizer"},

    .tokenizer_class = "GemmaTokenizer",
    .scale_embedding = true,

    .fixed = {.norm       = FL_NORM_RMS_PLUS_ONE,
              .norm_place = FL_NORM_PRE,
              .final_norm = true,
              .mlp        = FL_MLP_GLU,
              .extra_norm = FL_EXTRA_NORM_BRANCH,
              .distance   = {{.causal = true}}},

    .fields = {FL_HIDDEN("hidden_size", 2304), FL_LAYERS("num_hidden_layers", 26),
               FL_HEADS("num_attention_heads", 8), FL_KV_HEADS("num_key_value_heads", 4),
               FL_HEAD_DIM("head_dim", 256), FL_MLP("intermediate_size", 9216),
               FL_POSITIONS("max_position_embeddings", 8192), FL_EPS("rms_norm_eps", 1e-6),
               FL_VOCAB("vocab_size", 256000),
               FL_ACTIVATION("hidden_activation", "gelu_pytorch_tanh"),
               FL_ATTENTION_BIASES("attention_bias"),
               FL_REAL(score_cap, "attn_logit_softcapping", 50, 1e-3, 1e9),
               FL_INVERSE_ROOT(attention_scale, "query_pre_attn_scalar", 256)},
    .only   = {{"is_causal", "true"},
               {"attn_logit_softcapping", "=*"},
               {"final_logit_softcapping", "*"}},
    .rope   = {.theta = "rope_theta", .fallback = 10000},
    .window = {.window         = "sliding_window",
               .fallback       = 4096,
               .every          = "sliding_window_pattern",
               .every_fallback = 2,
               .shift          = 1},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_MLP,
                FL_AT("layers.*.post_attention_layernorm.", FL_LAYER_ATTENTION_EXTRA_W),
                FL_AT("layers.*.pre_feedforward_layernorm.", FL_LAYER_MLP_NORM_W),
                FL_AT("layers.*.post_feedforward_layernorm.", FL_LAYER_MLP_EXTRA_W)},
    .head    = FL_LAST_TOKEN_HEAD(0),
};
