/* SPDX-License-Identifier: Apache-2.0 */
/* jina_flash.c - Jina's XLM-RoBERTa with rotary positions, as the Hub has it: jina-colbert-v2. Its
 * model_type is XLM-RoBERTa's.
 *
 * The network is jina3.c's, without adapters. */
#include "model/families/shared_names.h"

const fl_family fl_family_jina_flash = {
    .name        = "xlm-roberta with rotary positions",
    .model_types = {"xlm-roberta"},
    .mark_key    = "position_embedding_type",
    .mark_value  = "rotary",
    .remote_code = {FL_FLASH_CODE("modeling_xlm_roberta.XLMRobertaModel")},
    .only_remote = true,
    .prefixes    = {"roberta."},

    .fixed  = {FL_BIASED},
    .fields = {FL_JINA3_FIELDS},
    .only   = {{"position_embedding_type", "rotary"},
               {"lora_adaptations", "absent"},
               {"use_reg_tokens", "false"}},
    .rope   = {.theta = "rotary_emb_base", .fallback = 10000},

    .tensors = {FL_BERT_EMBEDDINGS, FL_JINA3_NORMS, FL_FLASH_LAYERS},
};
