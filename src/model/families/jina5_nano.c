/* SPDX-License-Identifier: Apache-2.0 */
/* jina5_nano.c - jina-embeddings-v5-text-nano: EuroBERT with an adapter for each task (model/task.c). */
#include "model/families/shared_names.h"

const fl_family fl_family_jina5_nano = {
    .name        = "jina_embeddings_v5 that looks both ways",
    .mark_key    = "is_decoder",
    .mark_value  = "false",
    .remote_code = {"jinaai/jina-embeddings-v5-text-nano--"
                    "modeling_jina_embeddings_v5.JinaEmbeddingsV5Model"},
    FL_JINA5,

    .fixed  = {FL_LLAMA_FIXED},
    .fields = {FL_EUROBERT_FIELDS},
    .rope   = {.theta = "rope_theta", .fallback = 10000},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP},
};
