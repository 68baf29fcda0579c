/* SPDX-License-Identifier: Apache-2.0 */
/* voyage.c - voyage-4-nano, by code of the Hub: Qwen3 that looks both ways, whose tokens are projected before they are
 * pooled.
 *
 * The mean, the first and the last token of projected rows are projections of the same of the rows themselves: the
 * projection is done once a text, behind pooling. */
#include "model/families/shared_names.h"

const fl_family fl_family_voyage = {
    .name        = "voyage",
    .model_types = {"qwen3"},
    .remote_code = {"voyageai/voyage-4-nano--"
                    "modeling_qwen3_bidirectional.Qwen3BidirectionalModel"},
    .only_remote = true,
    .prefixes    = {"model."},
    .projection  = "linear.weight",

    .tokenizer_class = "Qwen2Tokenizer",

    .fixed  = {FL_LLAMA_FIXED, .qk_norm = FL_QK_NORM_HEAD},
    .fields = {FL_QWEN3_FIELDS},
    .only   = {{"use_bidirectional_attention", "=true"}},
    .rope   = {.theta = "rope_theta", .fallback = 10000},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_QK_NORM, FL_LLAMA_NORM, FL_LLAMA_MLP},
};
