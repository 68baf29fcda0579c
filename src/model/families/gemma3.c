/* SPDX-License-Identifier: Apache-2.0 */
/* gemma3.c - Gemma 3's text model: EmbeddingGemma.
 *
 * x = word[id] * sqrt(hidden); RMS norms with 1 + w, four a layer and of each q and k head; layers
 * with a window but for every sixth, each kind with its own base. Looking both ways, the window
 * counts both sides. */
#include "model/families/shared_names.h"

const fl_family fl_family_gemma3 = {
    .name           = "gemma3_text",
    .model_types    = {"gemma3_text"},
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
              .qk_norm    = FL_QK_NORM_HEAD,
              .extra_norm = FL_EXTRA_NORM_BRANCH,
              .distance   = {{.causal = true}}},

    .fields = {FL_HIDDEN("hidden_size", 2304), FL_LAYERS("num_hidden_layers", 26),
               FL_HEADS("num_attention_heads", 8), FL_KV_HEADS("num_key_value_heads", 4),
               FL_HEAD_DIM("head_dim", 256), FL_MLP("intermediate_size", 9216),
               FL_POSITIONS("max_position_embeddings", 131072), FL_EPS("rms_norm_eps", 1e-6),
               FL_VOCAB("vocab_size", 262208),
               FL_ACTIVATION("hidden_activation", "gelu_pytorch_tanh"),
               FL_ATTENTION_BIASES("attention_bias"),
               FL_INVERSE_ROOT(attention_scale, "query_pre_attn_scalar", 256)},
    .only   = {{"use_bidirectional_attention", "true|false"},
               {"is_causal", "true"},
               {"rope_scaling", "absent"}},
    .rope   = {.theta          = "rope_theta",
               .fallback       = 1000000,
               .local_theta    = "rope_local_base_freq",
               .local_fallback = 10000},
    .window = {.window         = "sliding_window",
               .fallback       = 4096,
               .halved         = true,
               .every          = "sliding_window_pattern",
               .every_fallback = 6,
               .shift          = 1},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_QK_NORM, FL_LLAMA_MLP,
                FL_AT("layers.*.post_attention_layernorm.", FL_LAYER_ATTENTION_EXTRA_W),
                FL_AT("layers.*.pre_feedforward_layernorm.", FL_LAYER_MLP_NORM_W),
                FL_AT("layers.*.post_feedforward_layernorm.", FL_LAYER_MLP_EXTRA_W)},
    .head    = FL_LAST_TOKEN_HEAD(0),
};
