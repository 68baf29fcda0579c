/* SPDX-License-Identifier: Apache-2.0 */
/* roberta.c - RoBERTa, XLM-RoBERTa, CamemBERT and data2vec's text model: multilingual-e5, bge-m3, all-distilroberta.
 *
 * jina-reranker-v2 has code of its own, which names the tensors otherwise and says no model_type.
 *
 * BERT whose positions begin after the padding's row: pad_token_id + 1. A literal pad token in a
 * text takes the padding's row and does not count. */
#include "model/families/shared_names.h"

const fl_family fl_family_roberta = {
    .name        = "roberta",
    .model_types = {"roberta", "xlm-roberta", "camembert", "data2vec-text"},
    .remote_code = {FL_FLASH_CODE("modeling_xlm_roberta.XLMRobertaModel"),
                    FL_FLASH_CODE("modeling_xlm_roberta.XLMRobertaForSequenceClassification")},
    .prefixes    = {"roberta.", "xlm-roberta.", "camembert.", "data2vec_text."},
    .padding_key = "pad_token_id",
    .padding     = 1,

    .untyped_pairs = true,

    .old_tokenizers = {"RobertaTokenizer", "XLMRobertaTokenizer"},

    .fixed = {FL_BERT_FIXED},
    .only  = {{"lora_adaptations", "absent"}, {"use_reg_tokens", "false"}},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),
               FL_VOCAB("vocab_size", 50265), FL_POSITIONS("max_position_embeddings", 512),
               FL_TYPES("type_vocab_size", 2, 1), FL_EPS("layer_norm_eps", 1e-12),
               FL_ACTIVATION("hidden_act", "gelu"), FL_MLM_TIED},

    .tensors = {FL_BERT_EMBEDDINGS, FL_BERT_POSITIONS, FL_BERT_ATTENTION, FL_BERT_MLP,
                FL_JINA3_NORMS, FL_FLASH_LAYERS, FL_ROBERTA_MLM},
    .head    = FL_CLASSIFIER_HEAD(FL_DENSE_TANH),
};
