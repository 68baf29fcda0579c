/* SPDX-License-Identifier: Apache-2.0 */
/* lfm2_bidirectional.c - LFM2.5-Embedding, LFM2.5-ColBERT and LFM2.5-Encoder: LFM2 whose tokens look both ways, in
 * attention and in convolutions, whose middle is the token itself. The class is the Hub's. */
#include "model/families/shared_names.h"

const fl_family fl_family_lfm2_bidirectional = {
    .name        = "lfm2_bidirectional",
    .model_types = {"lfm2"},
    .remote_code = {"modeling_lfm2_bidirectional.Lfm2BidirectionalModel"},
    .only_remote = true,
    .prefixes    = {"lfm2.", "model."},

    .fixed = {FL_LFM2_FIXED, .taps_centred = true},

    .fields = {FL_LFM2_FIELDS},
    FL_LFM2_LAYERS,
    .only = {{"head_dim", "absent"}},

    .tensors = {FL_LFM2_TENSORS},
};
