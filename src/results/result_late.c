/* SPDX-License-Identifier: Apache-2.0 */
/* result_late.c - late interaction: the vectors of a text's tokens, and the score of a query with a document.
 *
 * Role    Models of FL_HEAD_LATE (ColBERT; model/late_interaction.c says what one is).
 * In/Out  hidden rows of a text's tokens -> the folder's stages -> rows without the skipped tokens.
 *         score = Σ over the query's rows of the largest dot product with a row of the document.
 * Method  A document's rows live until its score is known. Dot products are float32 in a fixed order,
 *         their sum is double, so a score depends on its two texts alone.
 * Memory  lists of the answer, drafts where only a score is wanted. Threads: see result.h.
 * Proof   tests/golden/test_late.py, tests/unit/test_fletch.c. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "results/kinds.h"
#include "results/row_stages.h"

/* ---- Ids that the model's settings speak of --------------------------------------------------- */

/* The token that fills queries: the folder's, else the mask, else the end of a text. */
static int find_filler(fl_results *r, const fl_tokenizer *tokenizer, fletch_error *error) {
    const fl_late *late = &r->model->late;
    if (late->expansion == 0)
        return FLETCH_OK;
    r->filler = late->filler != NULL ? fl_tokenizer_id(tokenizer, late->filler)
                                     : fl_tokenizer_named(tokenizer, FL_TOKEN_MASK);
    if (r->filler < 0 && late->filler == NULL)
        r->filler = fl_tokenizer_named(tokenizer, FL_TOKEN_EOS);
    if (r->filler >= 0)
        return FLETCH_OK;
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s: queries are padded with \"%s\", which the tokenizer lacks.",
                   r->model->folder, late->filler != NULL ? late->filler : "the mask");
}

int fl_late_open(fl_results *r, const fl_tokenizer *tokenizer, fletch_error *error) {
    const fl_late *late  = &r->model->late;
    int32_t        unk   = fl_tokenizer_named(tokenizer, FL_TOKEN_UNK);
    uint32_t       vocab = r->model->encoder.desc.vocab;
    r->skipped           = fl_alloc_zero(vocab, sizeof *r->skipped);
    if (r->skipped == NULL)
        return fl_fail_nomem(error, vocab * sizeof *r->skipped, "a skiplist");
    for (uint32_t i = 0; i < late->skipped_count; i++) {
        int32_t     id   = fl_tokenizer_id(tokenizer, late->skipped[i]);
        const char *text = id >= 0 ? fl_tokenizer_token(tokenizer, unk, NULL) : NULL;
        bool        lost = id == unk && text != NULL && strcmp(text, late->skipped[i]) != 0;
        if (id >= 0 && (uint32_t)id < vocab &&
            !lost) /* what is no single token is skipped by nobody */
            r->skipped[id] = true;
    }
    return find_filler(r, tokenizer, error);
}

/* ---- Vectors ---------------------------------------------------------------------------------- */

static int resolve_vectors(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    const fl_results *of        = answer->of;
    const fl_model   *model     = of->model;
    fl_plan          *plan      = &answer->plan;
    int               normalize = asked->options->normalize;
    if (asked->options->dimensions != 0)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "token vectors cannot be cut: leave dimensions at 0 instead of %u",
                       asked->options->dimensions);
    plan->columns   = model->dimensions;
    plan->normalize = normalize > 0 || (normalize == 0 && (of->unit_tokens || of->normalize));
    plan->raw       = !plan->normalize;
    plan->side      = (uint8_t)fl_side_of(of, asked->options);
    if (plan->side == FL_SIDE_QUERY)
        answer->filled_to = model->late.expansion;
    return fl_answer_make_lists(answer, asked, plan->columns, true, error);
}

static uint32_t max_length(const fl_answer *answer, uint32_t asked) {
    const fl_late *late = &answer->of->model->late;
    if (answer->plan.side == FL_SIDE_QUERY && late->fixed)
        return late->expansion;
    return asked ? asked : late->length[answer->plan.side];
}

/* Whether token i of a text has no row. */
static bool is_skipped(const fl_answer *answer, size_t i, int32_t id) {
    const fl_late *late = &answer->of->model->late;
    return (i == 0 && late->skips_first) ||
           (late->skips[answer->plan.side] && answer->of->skipped[id]);
}

/* The hidden rows in a text's list become the vectors of its tokens. */
static int finish_rows(fl_answer *answer, size_t text, float *const line[2]) {
    const fl_model   *model  = answer->of->model;
    const fletch_list hidden = answer->lists->list[text];
    size_t            width = model->encoder.desc.hidden, out = model->dimensions, kept = 0;
    float            *to = NULL;
    int32_t          *ids;
    for (size_t i = 0; i < hidden.count; i++)
        kept += !is_skipped(answer, i, hidden.ids[i]);
    fletch_list rows   = {0};
    int         status = fl_lists_make(answer->lists, &rows, kept, out, &ids, &to);
    if (status < 0)
        return status;
    for (size_t i = 0, k = 0; i < hidden.count && status == FLETCH_OK; i++) {
        if (is_skipped(answer, i, hidden.ids[i]))
            continue;
        if (!fl_row_stages(model, &answer->plan, hidden.values + i * width, (uint32_t)width, line,
                           to + k * out))
            status = FLETCH_EMODEL;
        ids[k++] = hidden.ids[i];
    }
    fl_lists_drop(answer->lists, text);
    answer->lists->list[text] = rows;
    return status;
}

static int finish_vectors(fl_answer *answer, size_t text, const fl_made *made,
                          fletch_error *error) {
    int status = finish_rows(answer, text, made->line);
    return status == FLETCH_OK ? status : fl_result_fail(status, error);
}

const fl_result_ops fl_result_late_vectors = {.counter    = FLETCH_COUNT_TOKEN_TEXTS,
                                              .lists      = true,
                                              .cached     = true,
                                              .resolve    = resolve_vectors,
                                              .max_length = max_length,
                                              .place      = fl_place_in_list,
                                              .finish     = finish_vectors};

/* ---- Scores ----------------------------------------------------------------------------------- */

/* The documents' vectors are made and let go. */
static int resolve_scores(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    if (!asked->query)
        return fl_result_of(answer->of->model, FLETCH_KIND_DENSE)->resolve(answer, asked, error);
    FL_TRY(fl_check_scores(asked, 1, error));
    if (asked->options->activation > FLETCH_ACTIVATION_NONE)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "scores by late interaction are sums of similarities: neither sigmoid nor "
                       "softmax is defined for them; leave the activation at its default");
    answer->plan.side      = FL_SIDE_DOCUMENT;
    answer->plan.columns   = answer->of->model->dimensions;
    answer->plan.normalize = answer->of->model->normalize;
    answer->lists          = fl_lists_new(asked->texts.count, answer->plan.columns, 0, true, error);
    return answer->lists ? FLETCH_OK : FLETCH_ENOMEM;
}

static float score_of(const fletch_list *query, const fletch_list *document, size_t width,
                      bool mean) {
    double sum = 0.0;
    for (size_t q = 0; q < query->count; q++) {
        const float *row = query->values + q * width;
        float        top = fl_row_dot(row, document->values, width);
        for (size_t d = 1; d < document->count; d++) {
            float next = fl_row_dot(row, document->values + d * width, width);
            top        = next > top ? next : top;
        }
        sum += (double)top;
    }
    return (float)(mean ? sum / (double)query->count : sum);
}

static int finish_scores(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    FL_TRY(finish_vectors(answer, text, made, error));
    const fletch_list *query    = &answer->query->list[0];
    const fletch_list *document = &answer->lists->list[text];
    if (document->count == 0 || query->count == 0)
        return fl_fail(error, FLETCH_EINVAL, text,
                       "text %zu has no score: the model skips every token of it or of the query",
                       text);
    float score =
        score_of(query, document, answer->query->shown.columns, answer->of->model->late.mean);
    memcpy(fl_answer_row(answer, text), &score, sizeof score); /* it may stand anywhere */
    fl_lists_drop(answer->lists, text);
    return FLETCH_OK;
}

const fl_result_ops fl_result_late_scores = {.counter     = FLETCH_COUNT_SCORED_TEXTS,
                                             .query_first = true,
                                             .resolve     = resolve_scores,
                                             .max_length  = max_length,
                                             .place       = fl_place_in_list,
                                             .finish      = finish_scores};
