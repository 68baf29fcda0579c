/* SPDX-License-Identifier: Apache-2.0 */
/* maxsim.c - late interaction: the vectors of a text's tokens, and the score of a query with a document.
 *
 * Role    Models of FL_HEAD_LATE (ColBERT; model/late_interaction.c says what one is). fletch_embed_tokens gives the
 *         vectors; fletch_rerank scores with them.
 * In/Out  hidden rows of a text's tokens -> the folder's stages -> rows without the skipped tokens.
 *         score = Σ over the query's rows of the largest dot product with a row of the document.
 * Method  To rerank, the query is a request of its own, made while its parent waits with one text
 *         "running"; when its rows are there the documents are fed. A document's rows live until its score
 *         is known. Dot products are float32 in a fixed order, their sum is double, so a score depends on
 *         its two texts alone.
 * Memory  the query's rows belong to the parent. Threads: as request.h says.
 * Proof   tests/golden/test_late.py, tests/unit/test_fletch.c. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "runtime/housekeeper.h"
#include "runtime/maxsim.h"
#include "runtime/row_output.h"
#include "runtime/runtime.h"
#include "runtime/submit.h"

/* ---- Ids that the model's settings speak of --------------------------------------------------- */

/* The token that fills queries: the folder's, else the mask, else the end of a text. */
static int find_filler(fletch_model *m, fletch_error *error) {
    const fl_late *late = &m->model->late;
    if (late->expansion == 0)
        return FLETCH_OK;
    m->filler = late->filler != NULL ? fl_tokenizer_id(m->tokenizer, late->filler)
                                     : fl_tokenizer_named(m->tokenizer, FL_TOKEN_MASK);
    if (m->filler < 0 && late->filler == NULL)
        m->filler = fl_tokenizer_named(m->tokenizer, FL_TOKEN_EOS);
    if (m->filler >= 0)
        return FLETCH_OK;
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s: queries are filled up with \"%s\", which the tokenizer does not have.",
                   m->model->folder, late->filler != NULL ? late->filler : "the mask");
}

int fl_late_open(fletch_model *m, fletch_error *error) {
    const fl_late *late  = &m->model->late;
    int32_t        unk   = fl_tokenizer_named(m->tokenizer, FL_TOKEN_UNK);
    uint32_t       vocab = m->model->encoder.desc.vocab;
    m->skipped           = fl_alloc_zero(vocab, sizeof *m->skipped);
    if (m->skipped == NULL)
        return fl_fail_nomem(error, vocab * sizeof *m->skipped, "a skiplist");
    for (uint32_t i = 0; i < late->skipped_count; i++) {
        int32_t     id   = fl_tokenizer_id(m->tokenizer, late->skipped[i]);
        const char *text = id >= 0 ? fl_tokenizer_token(m->tokenizer, unk, NULL) : NULL;
        bool        lost = id == unk && text != NULL && strcmp(text, late->skipped[i]) != 0;
        if (id >= 0 && (uint32_t)id < vocab &&
            !lost) /* what is no single token is skipped by nobody */
            m->skipped[id] = true;
    }
    return find_filler(m, error);
}

const char *fl_late_document_prompt(const fletch_model *m) {
    static const char *const names[] = {"document", "passage", "corpus"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint32_t k = 0; k < m->model->prompt_count; k++)
            if (strcmp(m->model->prompts[k].name, names[i]) == 0)
                return m->model->prompts[k].text;
    return "";
}

/* ---- Rows ------------------------------------------------------------------------------------- */

/* Whether token i of a text has no row. */
static bool is_skipped(const fl_request *r, size_t i, int32_t id) {
    const fl_late *late = &r->model->model->late;
    return (i == 0 && late->skips_first) || (late->skips[r->side] && r->model->skipped[id]);
}

int fl_late_rows(fl_request *r, size_t text, float *const line[2]) {
    const fl_model   *model  = r->model->model;
    const fletch_list hidden = r->lists->list[text];
    size_t            width = model->encoder.desc.hidden, out = model->dimensions, kept = 0;
    float            *to = NULL;
    int32_t          *ids;
    for (size_t i = 0; i < hidden.count; i++)
        kept += !is_skipped(r, i, hidden.ids[i]);
    fletch_list rows   = {0};
    int         status = fl_lists_make(r->lists, &rows, kept, out, &ids, &to);
    if (status < 0)
        return status;
    for (size_t i = 0, k = 0; i < hidden.count && status == FLETCH_OK; i++) {
        if (is_skipped(r, i, hidden.ids[i]))
            continue;
        if (!fl_output_row_of(&r->output, hidden.values + i * width, (uint32_t)width, line,
                              to + k * out))
            status = FLETCH_EMODEL;
        ids[k++] = hidden.ids[i];
    }
    fl_lists_drop(r->lists, text);
    r->lists->list[text] = rows;
    return status;
}

int fl_late_score(fl_request *r, size_t text, float *score, fletch_error *error) {
    const fletch_list *query    = &r->query_rows->list[0];
    const fletch_list *document = &r->lists->list[text];
    size_t             width    = r->query_rows->columns;
    double             sum      = 0.0;
    if (document->count == 0 || query->count == 0)
        return fl_fail(error, FLETCH_EINVAL, text,
                       "text %zu has no score: every token of it or of the query is one that this "
                       "model leaves out",
                       text);
    for (size_t q = 0; q < query->count; q++) {
        const float *row = query->values + q * width;
        float        top = fl_output_dot(row, document->values, width);
        for (size_t d = 1; d < document->count; d++) {
            float next = fl_output_dot(row, document->values + d * width, width);
            top        = next > top ? next : top;
        }
        sum += (double)top;
    }
    *score = (float)(r->model->model->late.mean ? sum / (double)query->count : sum);
    fl_lists_drop(r->lists, text);
    return FLETCH_OK;
}

/* ---- The query of a request that reranks ------------------------------------------------------ */

/* The query's rows are there, or why not: its parent goes on. */
static void query_done(void *user, const fletch_outcome *outcome) {
    fl_request   *parent = user;
    fletch_model *model  = parent->model;
    fl_request   *over   = NULL;
    pthread_mutex_lock(&model->lock);
    parent->held       = false;
    parent->query_rows = outcome->lists;
    parent->tokens += outcome->tokens;
    parent->running--;
    if (outcome->error.code != FLETCH_OK) {
        fletch_error error = outcome->error;
        error.where        = FLETCH_NOWHERE;
        fl_request_end(parent, &error, &over);
    }
    fl_request_settle(parent, &over);
    if (!parent->over && parent->done)
        fl_keeper_wake(model, 0);
    else if (!parent->over)
        pthread_cond_signal(&parent->changed);
    pthread_mutex_unlock(&model->lock);
    fl_requests_deliver(model, over);
}

void fl_late_ask(fl_request *parent, fl_request **over) {
    fletch_model        *model   = parent->model;
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_request       query   = FLETCH_REQUEST_INIT;
    fletch_error         error   = {0};
    options.prompt               = parent->options.prompt;
    options.prompt_name          = "query";
    options.truncate             = parent->options.truncate;
    options.no_cache             = parent->options.no_cache;
    options.normalize            = model->model->normalize ? 1 : -1; /* as the documents are */
    query.texts =
        (fletch_texts){.count = 1, .pointers = &parent->query, .lengths = &parent->query_size};
    query.options   = &options;
    query.kind      = FLETCH_KIND_TOKENS;
    query.lane      = parent->lane;
    query.stop      = parent->stop; /* the parent is not over before query_done */
    query.stop_user = parent->stop_user;
    if (parent->deadline_ns != UINT64_MAX) {
        const uint64_t now  = fl_clock_ns(),
                       left = parent->deadline_ns > now ? parent->deadline_ns - now : 0;
        query.deadline_ms   = (uint32_t)(left / 1000000U) + 1;
    }
    parent->held = true;
    parent->running++;
    pthread_mutex_unlock(&model->lock);
    int status =
        fl_runtime_submit(model, &query, query_done, parent, &parent->query_ticket, &error);
    pthread_mutex_lock(&model->lock);
    if (status == FLETCH_OK && parent->held && parent->ended) /* before it had the ticket */
        fl_late_drop(parent, over);
    if (status == FLETCH_OK)
        return;
    parent->held = false;
    parent->running--;
    error.where = FLETCH_NOWHERE;
    fl_request_end(parent, &error, over);
}

void fl_late_drop(fl_request *parent, fl_request **over) {
    fl_request *query = fl_ticket_find(parent->model, parent->query_ticket);
    if (query)
        fl_request_end(query, &parent->error, over);
}
