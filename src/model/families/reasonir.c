/* SPDX-License-Identifier: Apache-2.0 */
/* reasonir.c - ReasonIR-8B, by code of the Hub: Llama that looks both ways. */
#include "model/families/shared_names.h"

const fl_family fl_family_reasonir = {
    .name        = "reasonir",
    .model_types = {"llama"},
    .remote_code = {"*.ReasonIRModel"},
    .only_remote = true,
    .prefixes    = {"model."},

    .tokenizer_class = "LlamaTokenizer",

    .fixed  = {FL_LLAMA_FIXED},
    .fields = {FL_LLAMA_FIELDS},
    .rope   = {.theta = "rope_theta", .fallback = 10000},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP},
};
