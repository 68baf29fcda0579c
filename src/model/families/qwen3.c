/* SPDX-License-Identifier: Apache-2.0 */
/* qwen3.c - Qwen3: Qwen3-Embedding 0.6B to 8B and models trained from it.
 *
 * Pre-norm RMS, fewer key than query heads, heads of a width of their own, RMS norms of each q and
 * k head before the rotary positions, causal unless is_causal is false. */
#include "model/families/shared_names.h"

const fl_family fl_family_qwen3 = {
    .name        = "qwen3",
    .model_types = {"qwen3"},
    .remote_code =
        {"zeroentropy/zerank-1--modeling_zeranker.ZEConfig"}, /* is Qwen3's: pair_code.c */
    .prefixes = {"model."},

    .tokenizer_class = "Qwen2Tokenizer",

    .fixed      = {FL_LLAMA_FIXED, .qk_norm = FL_QK_NORM_HEAD, .distance = {{.causal = true}}},
    .causal_key = "is_causal",

    .fields = {FL_QWEN3_FIELDS},
    .rope   = {.theta = "rope_theta", .fallback = 10000, .yarn = true},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_QK_NORM, FL_LLAMA_NORM, FL_LLAMA_MLP},
    .head    = FL_LAST_TOKEN_HEAD(-1),
};
