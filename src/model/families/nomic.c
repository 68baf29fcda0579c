/* SPDX-License-Identifier: Apache-2.0 */
/* nomic.c - NomicBERT: nomic-embed-text v1 and v1.5, arctic-embed-m-long, CodeRankEmbed.
 *
 * Post-norm, rotary positions, gated MLP down(up(x) * silu(gate(x))); fc11 is up, fc12 the gate.
 * Two dialects of config.json (GPT-2's words on the Hub, transformers 5's own) and of names. The
 * class of the Hub has base 10000 where config.json is silent, transformers' 1000: all published
 * files say it. Without auto_map it is transformers' class, which reads no fraction or scaling. */
#include "model/families/shared_names.h"

const fl_family fl_family_nomic = {
    .name        = "nomic_bert",
    .model_types = {"nomic_bert"},
    .remote_code = {"nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    .prefixes    = {"bert.", "nomic_bert."},

    .fixed = {.embed_norm       = true,
              .norm_bias        = true,
              .mlp              = FL_MLP_GLU,
              .mlm_bias         = true,
              .mlm_decoder_bias = true},

    .fields = {FL_NOMIC_FIELDS, FL_ACTIVATION("activation_function hidden_act", "silu"),
               FL_MLM_ACTIVATION("activation_function hidden_act"), FL_MLM_TIED},
    .only   = {FL_NOMIC_ONLY, {"activation_function", "swiglu|geglu"}},
    .rope   = {.theta    = "rotary_emb_base rope_theta",
               .fallback = 1000,
               .fraction = "rotary_emb_fraction",
               .trained  = "max_trained_positions",
               .stretch  = "rotary_scaling_factor"},

    .tensors = {FL_NOMIC_TENSORS, FL_AT("encoder.layers.*.mlp.fc11.", FL_LAYER_UP_W),
                FL_AT("encoder.layers.*.mlp.fc12.", FL_LAYER_GATE_W),
                FL_AT("embeddings.LayerNorm.", FL_SLOT_EMBED_NORM_W),
                FL_AT("layers.*.self_attn.q_proj.", FL_LAYER_Q_W),
                FL_AT("layers.*.self_attn.k_proj.", FL_LAYER_K_W),
                FL_AT("layers.*.self_attn.v_proj.", FL_LAYER_V_W),
                FL_AT("layers.*.self_attn.o_proj.", FL_LAYER_O_W),
                FL_AT("layers.*.post_attention_layernorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("layers.*.post_mlp_layernorm.", FL_LAYER_MLP_NORM_W), FL_LLAMA_MLP,
                FL_BERT_MLM, FL_AT("cls.predictions.transform.layer_norm.", FL_SLOT_MLM_NORM_W)},
    .head    = FL_POOLER_HEAD,
};
