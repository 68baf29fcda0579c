/* SPDX-License-Identifier: Apache-2.0 */
/* llama_bidirec.c - NVIDIA's Llama that looks both ways, by code of the Hub: llama-nemotron-embed,
 * llama-embed-nemotron.
 *
 * The rest as Llama. `pooling` and `temperature` of config.json are its classifier's (llama-nemotron-rerank; the text
 * of a pair: model/pair_code.c). */
#include "model/families/shared_names.h"

const fl_family fl_family_llama_bidirec = {
    .name           = "llama_bidirec",
    .model_types    = {"llama_bidirec"},
    .remote_code    = {"nvidia/llama-nemotron-embed-1b-v2--"
                          "llama_bidirectional_model.LlamaBidirectionalModel",
                       "nvidia/llama-nemotron-rerank-1b-v2--"
                          "llama_bidirectional_model.LlamaBidirectionalForSequenceClassification"},
    .prefixes       = {"model."},
    .old_tokenizers = {"LlamaTokenizer"},

    .fixed  = {FL_LLAMA_FIXED},
    .fields = {FL_LLAMA_FIELDS},
    .rope   = {.theta = "rope_theta", .fallback = 10000},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP},
    .head    = {.pooling_key     = "pooling",
                .pooling         = "avg",
                .temperature_key = "temperature",
                .layers          = {{.name = "score.", .unbiased = true}}},
};
