/* SPDX-License-Identifier: Apache-2.0 */
/* modernbert.c - ModernBERT: gte-modernbert, modernbert-embed, granite-embedding-r2.
 *
 * Pre-norm, the first attention without one; every third layer sees all, the others a window on
 * both sides, with a base of their own. Wi holds the activated half first. */
#include "model/families/shared_names.h"

const fl_family fl_family_modernbert = {
    .name        = "modernbert",
    .model_types = {"modernbert"},
    .prefixes    = {"model."},

    .llama_as_saved = true, /* ruri-v3 */

    .fixed = {.norm_place = FL_NORM_PRE, .embed_norm = true, .final_norm = true, .mlp = FL_MLP_GLU},
    .first_layer_unnormed = true,

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 22),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 1152),
               FL_POSITIONS("max_position_embeddings", 8192), FL_EPS("norm_eps", 1e-5),
               FL_VOCAB("vocab_size", 50368), FL_ACTIVATION("hidden_activation", "gelu"),
               FL_BOOL(norm_bias, "norm_bias", false), FL_ATTENTION_BIASES("attention_bias"),
               FL_MLP_BIASES("mlp_bias"), FL_BOOL(mlm_bias, "classifier_bias", false),
               FL_BOOL(mlm_decoder_bias, "decoder_bias", true),
               FL_MLM_ACTIVATION("classifier_activation"), FL_MLM_TIED},
    .only   = {{"position_embedding_type", "absolute|sans_pos"}, {"rope_scaling", "absent"}},
    .rope   = {.theta          = "global_rope_theta",
               .fallback       = 160000,
               .local_theta    = "local_rope_theta",
               .local_fallback = 10000},
    .window = {.window         = "local_attention",
               .fallback       = 128,
               .halved         = true,
               .every          = "global_attn_every_n_layers",
               .every_fallback = 3},

    .tensors = {FL_AT("embeddings.tok_embeddings.weight", FL_SLOT_WORD),
                FL_AT("embeddings.norm.", FL_SLOT_EMBED_NORM_W),
                FL_AT("final_norm.", FL_SLOT_FINAL_NORM_W),
                FL_AT("layers.*.attn_norm.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("layers.*.attn.Wqkv.", FL_LAYER_Q_W, FL_LAYER_K_W, FL_LAYER_V_W),
                FL_AT("layers.*.attn.Wo.", FL_LAYER_O_W),
                FL_AT("layers.*.mlp_norm.", FL_LAYER_MLP_NORM_W),
                FL_AT("layers.*.mlp.Wi.", FL_LAYER_GATE_W, FL_LAYER_UP_W),
                FL_AT("layers.*.mlp.Wo.", FL_LAYER_DOWN_W), FL_AT("head.dense.", FL_SLOT_MLM_W),
                FL_AT("head.norm.", FL_SLOT_MLM_NORM_W), FL_AT("decoder.", FL_SLOT_MLM_DECODER),
                FL_AT("decoder.bias", FL_SLOT_MLM_BIAS)},
    .head    = {.pooling_key = "classifier_pooling",
                .layers      = {{.name           = "head.dense.",
                                 .activation     = FL_DENSE_GELU,
                                 .activation_key = "classifier_activation",
                                 .bias_key       = "classifier_bias"},
                                {"head.norm.", FL_STAGE_LAYER_NORM, .bias_key = "norm_bias"},
                                {.name = "classifier."}}},
};
