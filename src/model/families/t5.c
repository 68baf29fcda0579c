/* SPDX-License-Identifier: Apache-2.0 */
/* t5.c - the encoder of T5 and mT5: sentence-t5, gtr, instructor's base, FRIDA.
 *
 *     x = word[id]
 *     per layer: x = x + attention(RMS(x)); x = x + down(act(up(RMS(x)))), or gated
 *     score[h, i, j] = q_i k_j + table[bucket(j - i), h], without 1/sqrt(d), one table for all layers
 *
 * "gated-gelu" is the tanh form of GELU. UMT5 has a table in each layer: umt5.c. */
#include "model/families/shared_names.h"

const fl_family fl_family_t5 = {
    .name          = "t5",
    .model_types   = {"t5", "mt5"},
    .untyped_pairs = true,

    .tokenizer_class = "T5Tokenizer",

    .old_tokenizers = {"T5Tokenizer"},

    .fixed  = {FL_T5_FIXED},
    .fields = {FL_T5_FIELDS(6, 8, 2048, 32128, "relu")},

    .tensors = {FL_T5_TENSORS,
                FL_AT("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                      FL_SLOT_ATTENTION_BIAS)},
};
