/* SPDX-License-Identifier: Apache-2.0 */
/* nomic_moe.c - NomicBERT with experts: nomic-embed-text-v2-moe.
 *
 * Every second layer sends each token to 2 of 8 plain MLPs, by probabilities that are not made to
 * add up to one anew; one bias for all. w1 and w2 are both [experts * intermediate, hidden]. */
#include "model/families/shared_names.h"

const fl_family fl_family_nomic_moe = {
    .name        = "nomic_bert with experts",
    .model_types = {"nomic_bert"},
    .mark_key    = "num_experts",
    .mark_value  = "*",
    .remote_code = {"nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    .prefixes    = {"bert.", "nomic_bert."},

    .fixed = {.embed_norm = true, .norm_bias = true},

    .fields = {FL_NOMIC_FIELDS, FL_ACTIVATION("activation_function hidden_act", "gelu")},
    .only = {FL_NOMIC_ONLY, {"num_shared_experts", "0"}, {"moe_normalize_expert_weights", "false"}},
    .rope = {.theta    = "rotary_emb_base rope_theta",
             .fallback = 10000,
             .fraction = "rotary_emb_fraction",
             .trained  = "max_trained_positions",
             .stretch  = "rotary_scaling_factor"},
    .experts = {.count = "num_experts", .used = "moe_top_k", .every = "moe_every_n_layers"},

    .tensors = {FL_NOMIC_TENSORS, FL_AT("encoder.layers.*.mlp.fc1.", FL_LAYER_UP_W),
                FL_AT("encoder.layers.*.mlp.router.layer.weight", FL_LAYER_ROUTER_W),
                FL_AT("encoder.layers.*.mlp.experts.mlp.w1", FL_LAYER_EXPERTS_UP),
                FL_AT("encoder.layers.*.mlp.experts.mlp.w2", FL_LAYER_EXPERTS_DOWN),
                FL_AT("encoder.layers.*.mlp.experts.bias", FL_LAYER_DOWN_B)},
};
