/* SPDX-License-Identifier: Apache-2.0 */
/* splade_code.c - Qwen3 that looks both ways, and its output layer, which gives a weight for each
 * id: splade-code-06B.
 *
 * Code of the Hub says so; model_type is Qwen3's. The layer is the word table, or one of its own. */
#include "model/families/shared_names.h"

const fl_family fl_family_splade_code = {
    .name        = "splade_code",
    .model_types = {"qwen3"},
    .remote_code = {"splade.*"},
    .only_remote = true,
    .prefixes    = {"model."},

    .tokenizer_class = "Qwen2Tokenizer",

    .fixed  = {FL_LLAMA_FIXED, .qk_norm = FL_QK_NORM_HEAD, .mlm_bare = true},
    .fields = {FL_QWEN3_FIELDS, FL_BOOL(mlm_tied, "tie_word_embeddings", false)},
    .only   = {{"is_causal", "false"}},
    .rope   = {.theta = "rope_theta", .fallback = 10000},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_QK_NORM, FL_LLAMA_NORM, FL_LLAMA_MLP,
                FL_AT("lm_head.", FL_SLOT_MLM_DECODER)},
};
