/* SPDX-License-Identifier: Apache-2.0 */
/* result_sparse.c - weights of words: by the terms an engine finds (SPLADE), or by a layer over the tokens' rows
 * (bge-m3).
 *
 * In/Out  terms (x > 0) -> log(1 + x), once or twice; hidden rows -> relu of a layer, the heaviest of equal
 *         tokens. Then the light ones go, ids rising, and the others are the text's list.
 * Memory  sorting terms takes some for the moment. Threads: no state.
 * Proof   tests/golden/test_lists.py, test_token_heads.py, test_real_sparse.py. */
#include <math.h>
#include <stdlib.h>

#include "base/elementary.h"
#include "base/error.h"
#include "base/mem.h"
#include "results/kinds.h"
#include "results/row_stages.h"

/* Room for terms that stays with who carries batches: texts of real models have some hundred. */
enum { TERMS_KEPT = 2048 };

/* A term and its weight; of equal weights the lower id is before. */
typedef struct weighed {
    float   weight;
    int32_t id;
} weighed;

static int by_weight(const void *a, const void *b) {
    const weighed *x = a, *y = b;
    float          v = fabsf(x->weight), w = fabsf(y->weight);
    if (v > w || w > v)
        return v > w ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b) {
    const weighed *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The k heaviest of the terms, ids rising again. */
static int keep_heaviest(fl_terms *terms, uint32_t k) {
    weighed *all = fl_alloc_array(terms->count, sizeof *all);
    if (!all)
        return FLETCH_ENOMEM;
    for (uint32_t i = 0; i < terms->count; i++)
        all[i] = (weighed){terms->values[i], terms->ids[i]};
    qsort(all, terms->count, sizeof *all, by_weight);
    qsort(all, k, sizeof *all, by_id);
    for (uint32_t i = 0; i < k; i++) {
        terms->values[i] = all[i].weight;
        terms->ids[i]    = all[i].id;
    }
    terms->count = k;
    fl_free(all);
    return FLETCH_OK;
}

/* Memory of terms that is more than most texts need goes. */
static int end_terms(int status, fl_terms *terms) {
    if (terms->capacity > TERMS_KEPT)
        fl_terms_free(terms);
    return status;
}

int fl_terms_finish(fl_answer *answer, size_t text, fl_terms *terms) {
    const fl_plan *plan   = &answer->plan;
    int32_t       *ids    = NULL;
    float         *values = NULL;
    uint32_t       kept   = 0;
    int            status = FLETCH_OK;
    for (uint32_t i = 0; i < terms->count; i++) {
        float weight = fabsf(terms->values[i]); /* those of a table may be below 0 */
        if (weight > 0.0f && weight >= plan->threshold) {
            terms->values[kept] = terms->values[i];
            terms->ids[kept++]  = terms->ids[i];
        }
    }
    terms->count = kept;
    if (plan->top_k > 0 && plan->top_k < kept)
        status = keep_heaviest(terms, plan->top_k);
    fl_answer_fail(answer, text); /* what it had of an earlier batch, or its tokens' rows */
    if (status == FLETCH_OK)
        status = fl_lists_make(answer->lists, &answer->lists->list[text], terms->count, 1, &ids,
                               &values);
    for (uint32_t i = 0; status == FLETCH_OK && i < terms->count; i++) {
        ids[i]    = terms->ids[i];
        values[i] = terms->values[i];
    }
    return end_terms(status, terms);
}

static int resolve_weights(fl_answer *answer, const fletch_request *asked, bool drafts,
                           fletch_error *error) {
    const fletch_embed_options *options = asked->options;
    if (options->dimensions != 0 || !(options->threshold >= 0))
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "sparse vectors cannot be cut: leave dimensions at 0 instead of %u; "
                       "threshold must be at least 0, not %g",
                       options->dimensions, (double)options->threshold);
    answer->plan.top_k     = options->top_k;
    answer->plan.threshold = options->threshold;
    return fl_answer_make_lists(answer, asked, 1, drafts, error);
}

/* ---- By the engine's terms ------------------------------------------------------------------- */

static int resolve_terms(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    FL_TRY(resolve_weights(answer, asked, false, error));
    fl_lookup_resolve(answer, asked);
    return FLETCH_OK;
}

static int finish_terms(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    fl_terms *terms = made->terms;
    for (uint32_t i = 0; i < terms->count; i++) {
        float weight = (float)fl_math_log1p((double)terms->values[i]);
        terms->values[i] =
            answer->of->model->log_twice ? (float)fl_math_log1p((double)weight) : weight;
    }
    int status = fl_terms_finish(answer, text, terms);
    return status == FLETCH_OK ? status : fl_result_fail(status, error);
}

const fl_result_ops fl_result_terms = {.counter = FLETCH_COUNT_SPARSE_TEXTS,
                                       .lists   = true,
                                       .cached  = true,
                                       .resolve = resolve_terms,
                                       .finish  = finish_terms};

/* ---- By the tokens' rows ---------------------------------------------------------------------- */

/* A vector by tokens has no weights of these, as FlagEmbedding leaves them out. */
int fl_token_weights_open(fl_results *r, const fl_tokenizer *tokenizer, fletch_error *error) {
    static const fl_named_token out[] = {FL_TOKEN_CLS, FL_TOKEN_EOS, FL_TOKEN_PAD, FL_TOKEN_UNK};
    uint32_t                    vocab = r->model->encoder.desc.vocab;
    r->skipped                        = fl_alloc_zero(vocab, sizeof *r->skipped);
    if (!r->skipped)
        return fl_fail_nomem(error, vocab * sizeof *r->skipped, "a skiplist");
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        int32_t id = fl_tokenizer_named(tokenizer, out[i]);
        if (id >= 0 && (uint32_t)id < vocab)
            r->skipped[id] = true;
    }
    return FLETCH_OK;
}

static int resolve_token_weights(fl_answer *answer, const fletch_request *asked,
                                 fletch_error *error) {
    const fl_model *model = answer->of->model;
    if (!model->weigher.weight)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE, "%s",
                       model->weigher_refused
                           ? model->weigher_refused
                           : "this model gives no sparse vectors: it has no SpladePooling and no "
                             "sparse_linear.pt (a plain masked language model becomes sparse by "
                             "model.pooling = splade)");
    return resolve_weights(answer, asked, true, error);
}

/* Of a text's tokens [count], by id: the heaviest of each stays. */
static uint32_t keep_heaviest_of_each(weighed *all, uint32_t count) {
    uint32_t kept = 0;
    qsort(all, count, sizeof *all, by_id);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || all[kept - 1].id != all[i].id)
            all[kept++] = all[i];
        else if (all[i].weight > all[kept - 1].weight)
            all[kept - 1].weight = all[i].weight;
    return kept;
}

/* Terms of the hidden rows in a text's list. EMODEL: a weight is not finite. */
static int weigh_tokens(const fl_answer *answer, size_t text, fl_terms *terms) {
    const fl_stage   *layer  = &answer->of->model->weigher;
    const fletch_list hidden = answer->lists->list[text];
    weighed          *all    = fl_alloc_array(hidden.count, sizeof *all);
    uint32_t          count  = 0;
    int               status = all != NULL ? FLETCH_OK : FLETCH_ENOMEM;
    for (size_t i = 0; i < hidden.count && status == FLETCH_OK; i++) {
        float weight =
            fl_row_dot(layer->weight, hidden.values + i * layer->in, layer->in) + layer->bias[0];
        if (!isfinite(weight))
            status = FLETCH_EMODEL;
        else if (weight > 0.0f && !answer->of->skipped[hidden.ids[i]])
            all[count++] = (weighed){weight, hidden.ids[i]};
    }
    count        = status == FLETCH_OK ? keep_heaviest_of_each(all, count) : 0;
    terms->count = 0;
    for (uint32_t i = 0; i < count && status == FLETCH_OK; i++)
        if (!fl_terms_add(terms, all[i].id, all[i].weight))
            status = FLETCH_ENOMEM;
    fl_free(all);
    return status;
}

static int finish_token_weights(fl_answer *answer, size_t text, const fl_made *made,
                                fletch_error *error) {
    int status = weigh_tokens(answer, text, made->terms);
    if (status == FLETCH_OK)
        status = fl_terms_finish(answer, text, made->terms);
    return status == FLETCH_OK ? status : fl_result_fail(end_terms(status, made->terms), error);
}

const fl_result_ops fl_result_token_weights = {.counter = FLETCH_COUNT_SPARSE_TEXTS,
                                               .lists   = true,
                                               .cached  = true,
                                               .resolve = resolve_token_weights,
                                               .place   = fl_place_in_list,
                                               .finish  = finish_token_weights};
