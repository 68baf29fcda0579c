/* SPDX-License-Identifier: Apache-2.0 */
/* eurobert.c - EuroBERT: Llama that looks both ways. */
#include "model/families/shared_names.h"

const fl_family fl_family_eurobert = {
    .name        = "eurobert",
    .model_types = {"eurobert"},
    .prefixes    = {"model."},

    .fixed = {FL_LLAMA_FIXED, .mlm_bare = true},

    .fields = {FL_EUROBERT_FIELDS, FL_BOOL(mlm_decoder_bias, "mlp_bias", false),
               FL_BOOL(mlm_tied, "tie_word_embeddings", false)},
    .rope   = {.theta = "rope_theta", .fallback = 10000, .yarn = true},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP,
                FL_AT("lm_head.", FL_SLOT_MLM_DECODER), FL_AT("lm_head.bias", FL_SLOT_MLM_BIAS)},
};
