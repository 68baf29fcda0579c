/* SPDX-License-Identifier: Apache-2.0 */
/* jina5.c - jina-embeddings-v5-text-small: Qwen3 with an adapter for each task (model/task.c). */
#include "model/families/shared_names.h"

const fl_family fl_family_jina5 = {
    .name        = "jina_embeddings_v5",
    .remote_code = {"jinaai/jina-embeddings-v5-text-small--"
                    "modeling_jina_embeddings_v5.JinaEmbeddingsV5Model"},
    FL_JINA5,

    .tokenizer_class = "Qwen2Tokenizer",

    .fixed  = {FL_LLAMA_FIXED, .qk_norm = FL_QK_NORM_HEAD, .distance = {{.causal = true}}},
    .fields = {FL_QWEN3_FIELDS},
    .rope   = {.theta = "rope_theta", .fallback = 10000},

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_QK_NORM, FL_LLAMA_NORM, FL_LLAMA_MLP},
};
