/* SPDX-License-Identifier: Apache-2.0 */
/* siglip.c - the text tower of SigLIP and of SigLIP 2 with fixed resolution: google/siglip2-*.
 *
 *     x = word[id] + position; per layer, both ways: x = x + attention(LN(x)); x = x + mlp(LN(x))
 *     vector = head LN(x)[last position]
 *
 * It was trained on texts padded to its longest, with padding attended to: a text is filled up so.
 * A whole SigLIP's config.json has the tower's under text_config. Images are not read. */
#include "model/families/shared_names.h"

const fl_family fl_family_siglip = {
    .name        = "siglip",
    .model_types = {"siglip", "siglip_text_model"},
    .prefixes    = {"text_model."},

    .tokenizer_class = "SiglipTokenizer",

    .below = "text_config",
    .fixed = {FL_CLIP_FIXED},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),
               FL_VOCAB("vocab_size", 32000), FL_POSITIONS("max_position_embeddings", 64),
               FL_EPS("layer_norm_eps", 1e-6), FL_ACTIVATION("hidden_act", "gelu_pytorch_tanh")},

    .filled     = true,
    .projection = "head.",

    .tensors = {FL_CLIP_TENSORS},
};
