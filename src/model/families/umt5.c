/* SPDX-License-Identifier: Apache-2.0 */
/* umt5.c - the encoder of UMT5: T5's, each of whose layers has a table of relative positions.
 *
 * Published folders name T5Tokenizer, but transformers 5 takes their tokenizer.json as it is. */
#include "model/families/shared_names.h"

const fl_family fl_family_umt5 = {
    .name          = "umt5",
    .model_types   = {"umt5"},
    .untyped_pairs = true,

    .tokenizer_class    = "T5Tokenizer",
    .tokenizer_as_saved = true,

    .fixed  = {FL_T5_FIXED, .bias_by_layer = true},
    .fields = {FL_T5_FIELDS(8, 6, 1024, 250112, "gated-gelu")},

    .tensors = {FL_T5_TENSORS,
                FL_AT("encoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight",
                      FL_LAYER_ATTENTION_BIAS)},
};
