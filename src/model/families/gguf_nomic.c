/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_nomic.c - NomicBERT as llama.cpp writes it, with and without experts. */
#include "model/families/gguf_names.h"

#define FL_GGUF_NOMIC_FIELDS                                                                       \
    FL_GGUF_IS("nomic_bert"), FL_GGUF_SIZES, FL_GGUF_LAYER_NORM, FL_GGUF_TYPES, FL_GGUF_BOTH_WAYS, \
    {                                                                                              \
        "rope_theta", "rope.freq_base", NULL                                                       \
    }

const fl_gguf_arch fl_gguf_arch_nomic = {
    .name    = "nomic-bert",
    .fields  = {FL_GGUF_NOMIC_FIELDS},
    .tensors = {FL_GGUF_EMBEDDINGS, FL_GGUF_ATTENTION_FUSED, FL_GGUF_MLP, FL_GGUF_POST_NORMS},
};

/* Its experts have one bias together, which llama.cpp knows not and its converter leaves out. */
const fl_gguf_arch fl_gguf_arch_nomic_moe = {
    .name    = "nomic-bert-moe",
    .fields  = {FL_GGUF_NOMIC_FIELDS,
                {"num_experts", "expert_count", NULL},
                {"moe_top_k", "expert_used_count", NULL},
                {"moe_every_n_layers", "moe_every_n_layers", NULL},
                {"qkv_proj_bias", NULL, "true"},
                {"mlp_fc1_bias", NULL, "true"},
                {"mlp_fc2_bias", NULL, "true"}},
    .tensors = {FL_GGUF_EMBEDDINGS, FL_GGUF_ATTENTION_FUSED, FL_GGUF_MLP, FL_GGUF_POST_NORMS,
                FL_AT("blk.*.ffn_gate_inp.weight", FL_LAYER_ROUTER_W),
                FL_AT("blk.*.ffn_up_exps.weight", FL_LAYER_EXPERTS_UP),
                FL_AT("blk.*.ffn_down_exps.weight", FL_LAYER_EXPERTS_DOWN)},
    .lacks   = "the bias of the experts",
};
