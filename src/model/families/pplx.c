/* SPDX-License-Identifier: Apache-2.0 */
/* pplx.c - pplx-embed-v1, by code of the Hub: Qwen3 that looks both ways, and a module that makes whole numbers of what
 * was pooled. pplx-embed-context, which pools the chunks of a document apart, is another repository's code. */
#include "model/families/shared_names.h"

const fl_family fl_family_pplx = {
    .name        = "pplx",
    .model_types = {"bidirectional_pplx_qwen3"},
    .remote_code = {"perplexity-ai/pplx-embed-v1-0.6b--modeling.PPLXQwen3Model",
                    "perplexity-ai/pplx-embed-v1-4b--modeling.PPLXQwen3Model"},
    .module      = "st_quantize.FlexibleQuantizer",

    .tokenizer_class = "Qwen2Tokenizer",

    .fixed  = {FL_LLAMA_FIXED, .qk_norm = FL_QK_NORM_HEAD},
    .fields = {FL_QWEN3_FIELDS},
    .only   = {{"use_bidirectional_attention", "true"}},
    .rope   = {.theta = "rope_theta", .fallback = 10000},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_QK_NORM, FL_LLAMA_NORM, FL_LLAMA_MLP},
};
