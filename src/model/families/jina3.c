/* SPDX-License-Identifier: Apache-2.0 */
/* jina3.c - Jina embeddings v3 as transformers has it: XLM-RoBERTa with rotary positions.
 *
 * The repository of the Hub adds five adapters, one a task, as parametrizations of the weights; that
 * form is refused, since without a task it is another model. */
#include "model/families/shared_names.h"

const fl_family fl_family_jina3 = {
    .name        = "jina_embeddings_v3",
    .model_types = {"jina_embeddings_v3"},
    .prefixes    = {"roberta.", "jina_embeddings_v3."},

    .fixed = {.embed_norm = true,
              .qkv_bias   = true,
              .out_bias   = true,
              .up_bias    = true,
              .down_bias  = true,
              .norm_bias  = true},

    .fields = {FL_HIDDEN("hidden_size", 1024), FL_LAYERS("num_hidden_layers", 24),
               FL_HEADS("num_attention_heads", 16), FL_MLP("intermediate_size", 4096),
               FL_VOCAB("vocab_size", 250002), FL_POSITIONS("max_position_embeddings", 8194),
               FL_TYPES("type_vocab_size", 1, 1), FL_EPS("layer_norm_eps", 1e-5),
               FL_ACTIVATION("hidden_act", "gelu")},
    .only   = {{"position_embedding_type", "absolute|rotary"}, {"lora_adaptations", "absent"}},
    .rope   = {.theta = "rope_theta", .fallback = 20000},

    .tensors = {FL_BERT_EMBEDDINGS, FL_AT("emb_ln.", FL_SLOT_EMBED_NORM_W),
                FL_FUSED3("encoder.layers.*.mixer.Wqkv.", FL_LAYER_Q_W, FL_LAYER_K_W, FL_LAYER_V_W),
                FL_AT("encoder.layers.*.mixer.out_proj.", FL_LAYER_O_W),
                FL_AT("encoder.layers.*.mlp.fc1.", FL_LAYER_UP_W),
                FL_AT("encoder.layers.*.mlp.fc2.", FL_LAYER_DOWN_W),
                FL_AT("encoder.layers.*.norm1.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("encoder.layers.*.norm2.", FL_LAYER_MLP_NORM_W),
                FL_AT("layers.*.self_attn.q_proj.", FL_LAYER_Q_W),
                FL_AT("layers.*.self_attn.k_proj.", FL_LAYER_K_W),
                FL_AT("layers.*.self_attn.v_proj.", FL_LAYER_V_W),
                FL_AT("layers.*.self_attn.o_proj.", FL_LAYER_O_W),
                FL_AT("layers.*.mlp.fc1.", FL_LAYER_UP_W),
                FL_AT("layers.*.mlp.fc2.", FL_LAYER_DOWN_W),
                FL_AT("layers.*.post_attention_layernorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("layers.*.post_mlp_layernorm.", FL_LAYER_MLP_NORM_W)},
};
