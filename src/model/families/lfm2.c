/* SPDX-License-Identifier: Apache-2.0 */
/* lfm2.c - LFM2: LFM2-ColBERT-350M and models trained from Liquid's language models.
 *
 *     conv       x += out(C conv(B X)),  [B; C; X] = in(norm(x)); conv: each channel over the last tokens
 *     attention  as Qwen3's
 *
 * Pre-norm RMS and a gated MLP as Llama's; layer_types, else full_attn_idxs, say which layers attend. */
#include "model/families/shared_names.h"

const fl_family fl_family_lfm2 = {
    .name        = "lfm2",
    .model_types = {"lfm2"},
    .prefixes    = {"model."},

    .fixed      = {FL_LFM2_FIXED, .distance = {{.causal = true}}},
    .causal_key = "is_causal",

    .fields = {FL_LFM2_FIELDS},
    FL_LFM2_LAYERS,
    .only = {{"head_dim", "absent"}},

    .tensors = {FL_LFM2_TENSORS},
};
