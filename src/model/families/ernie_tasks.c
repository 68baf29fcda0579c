/* SPDX-License-Identifier: Apache-2.0 */
/* ernie_tasks.c - ERNIE whose tokens have a task, as ERNIE 3.
 *
 *     x = LN(word[id] + position[0 .. n-1] + type[0] + task[0]), the rest as BERT
 *
 * transformers gives every token task 0 unless a caller does otherwise, which no pipeline does. */
#include "model/families/shared_names.h"

const fl_family fl_family_ernie_tasks = {
    .name            = "ernie",
    .model_types     = {"ernie"},
    .mark_key        = "use_task_id",
    .mark_value      = "true",
    .prefixes        = {"ernie."},
    .vocab_is_enough = true,

    .fixed  = {FL_BERT_FIXED, .task_type = true},
    .fields = {FL_BERT_FIELDS, FL_SIZE(tasks, "task_type_vocab_size", 3, 1, 65536)},

    .tensors = {FL_BERT_EMBEDDINGS, FL_AT("embeddings.task_type_embeddings.weight", FL_SLOT_TASK),
                FL_BERT_POSITIONS, FL_BERT_ATTENTION, FL_BERT_MLP, FL_BERT_MLM},
    .head    = FL_POOLER_HEAD,
};
