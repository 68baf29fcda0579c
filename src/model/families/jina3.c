/* SPDX-License-Identifier: Apache-2.0 */
/* jina3.c - Jina embeddings v3 as transformers has it: XLM-RoBERTa with rotary positions.
 *
 * The repository of the Hub has adapters besides: jina3_tasks.c. */
#include "model/families/shared_names.h"

const fl_family fl_family_jina3 = {
    .name        = "jina_embeddings_v3",
    .model_types = {"jina_embeddings_v3"},
    .prefixes    = {"roberta.", "jina_embeddings_v3."},

    .old_tokenizers = {"XLMRobertaTokenizer"},

    .fixed  = {FL_BIASED},
    .fields = {FL_JINA3_FIELDS, FL_MLM_TIED},
    .only   = {{"position_embedding_type", "absolute|rotary"}, {"lora_adaptations", "absent"}},
    .rope   = {.theta = "rope_theta", .fallback = 20000},

    .tensors = {FL_BERT_EMBEDDINGS, FL_JINA3_NORMS, FL_FLASH_LAYERS,
                FL_AT("layers.*.self_attn.q_proj.", FL_LAYER_Q_W),
                FL_AT("layers.*.self_attn.k_proj.", FL_LAYER_K_W),
                FL_AT("layers.*.self_attn.v_proj.", FL_LAYER_V_W),
                FL_AT("layers.*.self_attn.o_proj.", FL_LAYER_O_W),
                FL_AT("layers.*.mlp.fc1.", FL_LAYER_UP_W),
                FL_AT("layers.*.mlp.fc2.", FL_LAYER_DOWN_W),
                FL_AT("layers.*.post_attention_layernorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("layers.*.post_mlp_layernorm.", FL_LAYER_MLP_NORM_W), FL_ROBERTA_MLM},
};
