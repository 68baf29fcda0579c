/* SPDX-License-Identifier: Apache-2.0 */
/* clip.c - CLIP's text tower: openai/clip-vit-*, LAION's, sentence-transformers/clip-ViT-*.
 *
 *     x = word[id] + position; per layer, causal: x = x + attention(LN(x)); x = x + mlp(LN(x))
 *     vector = projection LN(x)[end token]
 *
 * A whole CLIP's config.json has the tower's under text_config, or, very old, under text_config_dict, which
 * counts before it. Images are not read. */
#include "model/families/shared_names.h"

const fl_family fl_family_clip = {
    .name        = "clip",
    .model_types = {"clip", "clip_text_model"},
    .prefixes    = {"text_model."},

    .tokenizer_class = "CLIPTokenizer",
    .old_tokenizers  = {"CLIPTokenizer"},

    .below = "text_config_dict text_config",
    .fixed = {FL_CLIP_FIXED, .distance = {{.causal = true}}},

    .fields     = {FL_HIDDEN("hidden_size", 512), FL_LAYERS("num_hidden_layers", 12),
                   FL_HEADS("num_attention_heads", 8), FL_MLP("intermediate_size", 2048),
                   FL_VOCAB("vocab_size", 49408), FL_POSITIONS("max_position_embeddings", 77),
                   FL_EPS("layer_norm_eps", 1e-5), FL_ACTIVATION("hidden_act", "quick_gelu")},
    .end_key    = "eos_token_id",
    .end        = 49407,
    .projection = "text_projection.weight",
    .module     = "CLIPModel",

    .tensors = {FL_CLIP_TENSORS},
};
