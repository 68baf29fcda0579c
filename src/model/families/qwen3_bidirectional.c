/* SPDX-License-Identifier: Apache-2.0 */
/* qwen3_bidirectional.c - Qwen3 that looks both ways and does nothing else, by code of the Hub:
 * Giga-Embeddings-instruct 480M and 3B of 0826, BidirLM-0.6B and -1.7B.
 *
 * BidirLM's name also stands for models trained from Gemma 3, which have keys that Qwen3 has not. */
#include "model/families/shared_names.h"

const fl_family fl_family_qwen3_bidirectional = {
    .name        = "qwen3_bidirec",
    .model_types = {"qwen3_bidirec", "bidirlm"},
    .remote_code = {"*.Qwen3BidirectionalModel", "modeling_bidirlm.*"},
    .only_remote = true,
    .prefixes    = {"model."},

    .tokenizer_class = "Qwen2Tokenizer",

    .fixed  = {FL_LLAMA_FIXED, .qk_norm = FL_QK_NORM_HEAD},
    .fields = {FL_QWEN3_FIELDS},
    .only   = {{"is_causal", "false"},
               {"query_pre_attn_scalar", "absent"},
               {"hidden_activation", "absent"},
               {"sliding_window_pattern", "absent"}},
    .rope   = {.theta = "rope_theta", .fallback = 10000},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_QK_NORM, FL_LLAMA_NORM, FL_LLAMA_MLP},
};
