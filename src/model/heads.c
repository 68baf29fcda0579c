/* SPDX-License-Identifier: Apache-2.0 */
/* heads.c - the table of heads.h.
 *
 * Role    heads.h says it. Memory, Threads, Proof: as there. */
#include "model/heads.h"

#include <assert.h>

#include "model/model_private.h"

static int finish_late(fl_model *model, const fl_family *family, fletch_error *error) {
    (void)family;
    return fl_late_finish(model, error);
}

static const fl_head_rules rules[] = {
    [FL_HEAD_EMBEDDING] = {.encoder = "SentenceTransformer"},
    [FL_HEAD_SCORES]    = {.encoder = "CrossEncoder",
                           .no_gguf = "it is a reranker or classifier, not an embedding model",
                           .pairs   = true,
                           .weighed = true,
                           .finish  = fl_scores_read},
    [FL_HEAD_SPARSE]    = {.encoder    = "SparseEncoder",
                           .no_gguf    = "its vectors are sparse",
                           .vocabulary = true},
    [FL_HEAD_LATE]      = {.encoder = "MultiVectorEncoder",
                           .no_gguf = "it gives a vector for every token",
                           .tokens  = true,
                           .weighed = true,
                           .prompts = fl_late_prompts,
                           .finish  = finish_late}};

const fl_head_rules *fl_head_rules_of(const fl_model *model) {
    assert((size_t)model->head < sizeof rules / sizeof *rules);
    return &rules[model->head];
}
