/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c - Llama: pre-norm RMS, grouped heads, rotary positions (plain, linear or llama3), causal
 * unless is_causal is false. */
#include "model/families/shared_names.h"

const fl_family fl_family_llama = {
    .name           = "llama",
    .model_types    = {"llama"},
    .prefixes       = {"model."},
    .old_tokenizers = {"LlamaTokenizer"},

    .fixed      = {FL_LLAMA_FIXED, .distance = {{.causal = true}}},
    .causal_key = "is_causal",

    .fields = {FL_LLAMA_FIELDS},
    .rope   = {.theta = "rope_theta", .fallback = 10000, .yarn = true},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP},
    .head    = FL_LAST_TOKEN_HEAD(-1),
};
