/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_neox.c - GPT-NeoX: BMRetriever-410M and -1B, whose base is Pythia.
 *
 * Pre-norm with layer norms and biases, causal, part of each head turns; attention and MLP read the same x unless
 * use_parallel_residual is false. q, k and v are one matrix, head by head. */
#include "model/families/shared_names.h"

const fl_family fl_family_gpt_neox = {
    .name        = "gpt_neox",
    .model_types = {"gpt_neox"},
    .prefixes    = {"gpt_neox."},

    .tokenizer_class = "GPTNeoXTokenizer",

    .by_heads = true,
    .fixed    = {.norm_place = FL_NORM_PRE,
                 .final_norm = true,
                 .qkv_bias   = true,
                 .out_bias   = true,
                 .up_bias    = true,
                 .down_bias  = true,
                 .norm_bias  = true,
                 .distance   = {{.causal = true}}},

    .fields = {FL_HIDDEN("hidden_size", 6144), FL_LAYERS("num_hidden_layers", 44),
               FL_HEADS("num_attention_heads", 64), FL_MLP("intermediate_size", 24576),
               FL_VOCAB("vocab_size", 50432), FL_POSITIONS("max_position_embeddings", 2048),
               FL_EPS("layer_norm_eps", 1e-5), FL_ACTIVATION("hidden_act", "gelu"),
               FL_BOOL(parallel, "use_parallel_residual", true)},
    .only   = {{"attention_bias", "true"}, {"is_causal", "true"}},
    .rope   = {.theta             = "rotary_emb_base rope_theta",
               .fallback          = 10000,
               .fraction          = "rotary_pct",
               .fraction_fallback = 0.25},

    .tensors = {FL_AT("embed_in.weight", FL_SLOT_WORD),
                FL_AT("final_layer_norm.", FL_SLOT_FINAL_NORM_W),
                FL_AT("layers.*.input_layernorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("layers.*.attention.query_key_value.", FL_LAYER_Q_W, FL_LAYER_K_W,
                      FL_LAYER_V_W),
                FL_AT("layers.*.attention.dense.", FL_LAYER_O_W),
                FL_AT("layers.*.post_attention_layernorm.", FL_LAYER_MLP_NORM_W),
                FL_AT("layers.*.mlp.dense_h_to_4h.", FL_LAYER_UP_W),
                FL_AT("layers.*.mlp.dense_4h_to_h.", FL_LAYER_DOWN_W)},
};
