/* SPDX-License-Identifier: Apache-2.0 */
/* jina3_tasks.c - Jina embeddings v3 as the Hub has it: an adapter for each task, as a parametrization
 * of every matrix. Its model_type is XLM-RoBERTa's.
 *
 * model.task chooses the adapter (model/task.c); the network is jina3.c's. */
#include "model/families/shared_names.h"

#define FL_OWN(module, slot) FL_AT(module ".parametrizations.weight.original", slot)

const fl_family fl_family_jina3_tasks = {
    .name        = "jina_embeddings_v3 with adapters",
    .model_types = {"xlm-roberta"},
    .mark_key    = "position_embedding_type",
    .mark_value  = "rotary",
    .remote_code = {FL_FLASH_CODE("modeling_lora.XLMRobertaLoRA")},
    .only_remote = true,
    .prefixes    = {"roberta."},
    .module      = "custom_st.Transformer",
    .tasks       = {.names        = "lora_adaptations",
                    .rank         = "lora_rank",
                    .alpha        = "lora_alpha",
                    .instructions = "task_instructions"},

    .fixed  = {FL_BIASED},
    .fields = {FL_JINA3_FIELDS},
    .only   = {{"position_embedding_type", "rotary"}, {"use_reg_tokens", "false"}},
    .rope   = {.theta = "rotary_emb_base", .fallback = 10000},

    .tensors = {FL_JINA3_NORMS, FL_OWN("embeddings.word_embeddings", FL_SLOT_WORD),
                FL_OWN("embeddings.token_type_embeddings", FL_SLOT_TYPE),
                FL_AT("encoder.layers.*.mixer.Wqkv.parametrizations.weight.original", FL_LAYER_Q_W,
                      FL_LAYER_K_W, FL_LAYER_V_W),
                FL_AT("encoder.layers.*.mixer.Wqkv.bias", FL_LAYER_Q_B, FL_LAYER_K_B, FL_LAYER_V_B),
                FL_OWN("encoder.layers.*.mixer.out_proj", FL_LAYER_O_W),
                FL_AT("encoder.layers.*.mixer.out_proj.bias", FL_LAYER_O_B),
                FL_OWN("encoder.layers.*.mlp.fc1", FL_LAYER_UP_W),
                FL_AT("encoder.layers.*.mlp.fc1.bias", FL_LAYER_UP_B),
                FL_OWN("encoder.layers.*.mlp.fc2", FL_LAYER_DOWN_W),
                FL_AT("encoder.layers.*.mlp.fc2.bias", FL_LAYER_DOWN_B)},
};
