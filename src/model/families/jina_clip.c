/* SPDX-License-Identifier: Apache-2.0 */
/* jina_clip.c - the text tower of jina-clip-v1: jina.c's network in Jina's other code, the mean, unit length.
 *
 * config.json names the code's repository, whose own config.json has the sizes: they are the defaults here.
 * hf_model_config_kwargs changes them. Images are not read. */
#include "model/families/shared_names.h"

#define FL_KWARGS(key) "hf_model_config_kwargs." key

const fl_family fl_family_jina_clip = {
    .name        = "jina_clip",
    .model_types = {"jina_clip"},
    .remote_code = {"jinaai/jina-clip-implementation--modeling_clip.JinaCLIPModel"},
    .prefixes    = {"text_model.transformer."},

    .tokenizer_class = "BertTokenizer",

    .below  = "text_config",
    .above  = {"add_projections", "false"},
    .kwargs = "hf_model_config_kwargs",
    .fixed  = {FL_JINA_FIXED},

    .fields      = {FL_HIDDEN("embed_dim", 768), FL_LAYERS(FL_KWARGS("num_hidden_layers"), 12),
                    FL_HEADS(FL_KWARGS("num_attention_heads"), 12),
                    FL_MLP(FL_KWARGS("intermediate_size"), 3072),
                    FL_VOCAB(FL_KWARGS("vocab_size"), 30528),
                    FL_POSITIONS(FL_KWARGS("max_position_embeddings"), 8192),
                    FL_TYPES(FL_KWARGS("type_vocab_size"), 2, 1),
                    FL_EPS(FL_KWARGS("layer_norm_eps"), 1e-12),
                    FL_ACTIVATION(FL_KWARGS("hidden_act"), "gelu")},
    .only        = {{"hf_model_name_or_path", "=jinaai/jina-bert-flash-implementation"},
                    {"pooler_type", "mean_pooler"},
                    {"proj_type", "absent"},
                    {"default_instruction_task", "absent"},
                    {"default_lora_task", "absent"},
                    {FL_KWARGS("use_qk_norm"), "false"},
                    {FL_KWARGS("mlp_type"), "glu"},
                    {FL_KWARGS("window_size"), "absent"}},
    .own_pooling = "mean",
    .module      = "custom_st.Transformer",

    .tensors = {FL_BERT_EMBEDDINGS, FL_AT("emb_ln.", FL_SLOT_EMBED_NORM_W),
                FL_AT("encoder.layers.*.mixer.Wqkv.", FL_LAYER_Q_W, FL_LAYER_K_W, FL_LAYER_V_W),
                FL_AT("encoder.layers.*.mixer.out_proj.", FL_LAYER_O_W),
                FL_AT("encoder.layers.*.norm1.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("encoder.layers.*.mlp.gated_layers.", FL_LAYER_GATE_W, FL_LAYER_UP_W),
                FL_AT("encoder.layers.*.mlp.wo.", FL_LAYER_DOWN_W),
                FL_AT("encoder.layers.*.norm2.", FL_LAYER_MLP_NORM_W)},
};
