/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.c - which kinds of result a model gives: tables by its head and what is asked for.
 *
 * Role    fl_result_of. A pair that cannot be has a table all the same, whose resolve is the refusal.
 * Memory  none; static tables. Threads: no state. Proof: tests/unit/test_results.c, test_fletch.c. */
#include "results/kinds.h"

#include <assert.h>

#include "base/error.h"

static int only_scores(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    bool reranks = answer->of->model->label_count == 1;
    (void)asked;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "this model is a %s: it gives scores, not vectors. Use fletch_%s (fletch %s), "
                   "or an embedding model",
                   reranks ? "reranker" : "classifier", reranks ? "rerank" : "classify",
                   reranks ? "rerank" : "classify");
}

static int no_scores(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    (void)answer;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "this model is an embedding model, not a %s: use fletch_embed (fletch embed), "
                   "or a model such as %s",
                   asked->query ? "reranker" : "classifier",
                   asked->query ? "cross-encoder/ms-marco-MiniLM-L6-v2"
                                : "SamLowe/roberta-base-go_emotions");
}

static int only_sparse(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    (void)answer, (void)asked;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "this model gives only sparse vectors (SPLADE): use fletch_embed_sparse (fletch "
                   "embed --output-kind sparse, /embed_sparse)");
}

static int only_late(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    (void)answer, (void)asked;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "this is a late-interaction model (ColBERT): it gives a vector per token and "
                   "scores of queries with documents; use fletch_embed_tokens (fletch embed "
                   "--output-kind tokens, /embed_all) or fletch_rerank (fletch rerank, /rerank)");
}

static const fl_result_ops refuse_scores  = {.resolve = no_scores};
static const fl_result_ops refuse_vectors = {.resolve = only_scores};
static const fl_result_ops refuse_dense   = {.resolve = only_sparse};
static const fl_result_ops refuse_pooled  = {.resolve = only_late};

enum { HEADS = FL_HEAD_LATE + 1, KINDS = FLETCH_KIND_SEVERAL + 1 };

static const fl_result_ops *const kinds[HEADS][KINDS] = {
    [FL_HEAD_EMBEDDING] = {[FLETCH_KIND_DENSE]   = &fl_result_rows,
                           [FLETCH_KIND_TOKENS]  = &fl_result_tokens,
                           [FLETCH_KIND_SCORES]  = &refuse_scores,
                           [FLETCH_KIND_SPARSE]  = &fl_result_token_weights,
                           [FLETCH_KIND_SPANS]   = &fl_result_spans,
                           [FLETCH_KIND_COLBERT] = &fl_result_colbert,
                           [FLETCH_KIND_SEVERAL] = &fl_result_several},
    [FL_HEAD_SCORES]    = {[FLETCH_KIND_DENSE]   = &refuse_vectors,
                           [FLETCH_KIND_TOKENS]  = &refuse_vectors,
                           [FLETCH_KIND_SCORES]  = &fl_result_scores,
                           [FLETCH_KIND_SPARSE]  = &refuse_vectors,
                           [FLETCH_KIND_SPANS]   = &refuse_vectors,
                           [FLETCH_KIND_COLBERT] = &refuse_vectors,
                           [FLETCH_KIND_SEVERAL] = &fl_result_several},
    [FL_HEAD_SPARSE]    = {[FLETCH_KIND_DENSE]   = &refuse_dense,
                           [FLETCH_KIND_TOKENS]  = &refuse_dense,
                           [FLETCH_KIND_SCORES]  = &refuse_scores,
                           [FLETCH_KIND_SPARSE]  = &fl_result_terms,
                           [FLETCH_KIND_SPANS]   = &refuse_dense,
                           [FLETCH_KIND_COLBERT] = &refuse_dense,
                           [FLETCH_KIND_SEVERAL] = &fl_result_several},
    [FL_HEAD_LATE]      = {[FLETCH_KIND_DENSE]   = &refuse_pooled,
                           [FLETCH_KIND_TOKENS]  = &fl_result_late_vectors,
                           [FLETCH_KIND_SCORES]  = &fl_result_late_scores,
                           [FLETCH_KIND_SPARSE]  = &refuse_pooled,
                           [FLETCH_KIND_SPANS]   = &refuse_pooled,
                           [FLETCH_KIND_COLBERT] = &fl_result_late_vectors,
                           [FLETCH_KIND_SEVERAL] = &fl_result_several}};

const fl_result_ops *fl_result_of(const fl_model *model, fletch_kind kind) {
    assert((unsigned)model->head < HEADS && (unsigned)kind < KINDS);
    return kinds[model->head][kind];
}

bool fl_kind_has_lists(fletch_kind kind) {
    assert((unsigned)kind < KINDS);
    return kinds[FL_HEAD_EMBEDDING][kind]->lists;
}

fletch_kind fl_result_native(const fl_model *model) {
    assert((unsigned)model->head < HEADS);
    static const fletch_kind native[HEADS] = {[FL_HEAD_EMBEDDING] = FLETCH_KIND_DENSE,
                                              [FL_HEAD_SCORES]    = FLETCH_KIND_SCORES,
                                              [FL_HEAD_SPARSE]    = FLETCH_KIND_SPARSE,
                                              [FL_HEAD_LATE]      = FLETCH_KIND_TOKENS};
    return native[model->head];
}

const fl_head_words *fl_result_head(const fl_model *model) {
    assert((unsigned)model->head < HEADS);
    static const fl_head_words words[HEADS] = {
        [FL_HEAD_EMBEDDING] = {.name = "embedding"},
        [FL_HEAD_SCORES]    = {.name = "scores", .gives = "scores, one for each of its labels"},
        [FL_HEAD_SPARSE]    = {.name    = "sparse",
                               .gives   = "sparse vectors over its vocabulary",
                               .pooling = "splade"},
        [FL_HEAD_LATE]      = {.name = "late", .gives = "a vector a token", .pooling = "none"}};
    return &words[model->head];
}
