/* SPDX-License-Identifier: Apache-2.0 */
/* bert.c - BERT: MiniLM, bge, e5, gte, mxbai, arctic-embed and the others of that shape.
 *
 *     x = LN(word[id] + position[0 .. n-1] + type[0])
 *     per layer: x = LN(x + attention(x)); x = LN(x + down(act(up(x))))
 *
 * ERNIE is the same unless its tokens have a task, too: ernie_tasks.c. The pooler is not used for embeddings; the
 * vocabulary head is, by SPLADE. */
#include "model/families/shared_names.h"

const fl_family fl_family_bert = {
    .name            = "bert",
    .model_types     = {"bert", "ernie"},
    .prefixes        = {"bert.", "ernie."},
    .vocab_is_enough = true,

    .fixed = {FL_BERT_FIXED},
    .only  = {{"use_task_id", "false"}},

    .fields = {FL_BERT_FIELDS},

    .tensors = {FL_BERT_EMBEDDINGS, FL_BERT_POSITIONS, FL_BERT_ATTENTION, FL_BERT_MLP, FL_BERT_MLM},
    .head    = FL_POOLER_HEAD,
};
