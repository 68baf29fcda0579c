/* SPDX-License-Identifier: Apache-2.0 */
/* gte.c - GTE, the "new" model: gte-*-en-v1.5, gte-multilingual-base, arctic-embed-m-v2, stella.
 *
 * Post-norm, rotary positions, gated MLP whose up_gate_proj holds up first, then the gate. Two
 * spellings of one scaling: "ntk" of the Hub, "linear" with the base and factor worked out. */
#include "model/families/shared_names.h"

const fl_family fl_family_gte = {
    .name        = "gte",
    .model_types = {"gte", "new"},
    .remote_code =
        {"Alibaba-NLP/new-impl--modeling.NewModel",
         "Snowflake/snowflake-arctic-embed-m-v2.0--modeling_hf_alibaba_nlp_gte.GteModel"},
    .prefixes = {"new.", "gte."},

    .fixed = {.embed_norm       = true,
              .norm_bias        = true,
              .mlp              = FL_MLP_GLU,
              .qkv_bias         = true,
              .out_bias         = true,
              .down_bias        = true,
              .mlm_bias         = true,
              .mlm_decoder_bias = true},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),
               FL_VOCAB("vocab_size", 250048), FL_POSITIONS("max_position_embeddings", 8192),
               FL_TYPES("type_vocab_size", 1, 0), FL_EPS("layer_norm_eps", 1e-12),
               FL_ACTIVATION("hidden_act", "gelu"), FL_MLM_TIED},
    .only   = {{"position_embedding_type", "rope|absolute"},
               {"layer_norm_type", "layer_norm"},
               {"logn_attention_clip1", "false"}},
    .rope   = {.theta = "rope_theta", .fallback = 160000, .ntk = true},

    .tensors = {FL_BERT_EMBEDDINGS,
                FL_AT("encoder.layer.*.attention.qkv_proj.", FL_LAYER_Q_W, FL_LAYER_K_W,
                      FL_LAYER_V_W),
                FL_AT("encoder.layer.*.attention.q_proj.", FL_LAYER_Q_W),
                FL_AT("encoder.layer.*.attention.k_proj.", FL_LAYER_K_W),
                FL_AT("encoder.layer.*.attention.v_proj.", FL_LAYER_V_W),
                FL_AT("encoder.layer.*.attention.o_proj.", FL_LAYER_O_W),
                FL_AT("encoder.layer.*.attn_ln.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("encoder.layer.*.mlp.up_gate_proj.", FL_LAYER_UP_W, FL_LAYER_GATE_W),
                FL_AT("encoder.layer.*.mlp.down_proj.", FL_LAYER_DOWN_W),
                FL_AT("encoder.layer.*.mlp_ln.", FL_LAYER_MLP_NORM_W),
                FL_AT("layers.*.self_attn.q_proj.", FL_LAYER_Q_W),
                FL_AT("layers.*.self_attn.k_proj.", FL_LAYER_K_W),
                FL_AT("layers.*.self_attn.v_proj.", FL_LAYER_V_W),
                FL_AT("layers.*.self_attn.o_proj.", FL_LAYER_O_W),
                FL_AT("layers.*.post_attention_layernorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("layers.*.post_mlp_layernorm.", FL_LAYER_MLP_NORM_W), FL_LLAMA_MLP,
                FL_ROBERTA_MLM, FL_AT("lm_head.norm.", FL_SLOT_MLM_NORM_W)},
    .head    = FL_POOLER_HEAD,
};
