/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - /search: what is kept and most like a text or vector.
 *
 * Role    the other half of seed.c.
 * In/Out  {"text" | "vector", "k", "filter", "hybrid", "rerank", "group_by", "highlight", ...} in, items or documents
 *         with their scores out.
 * Method  Stages, each of which hands on what it has found, best first:
 *           embed    the text, by the first model                          its own threads
 *           find     by cosine; with "hybrid" by words too, and the two     worker
 *                    orders put together by the sums of 1 / (60 + rank)
 *           rerank   a model that reads each text together with the query   its own threads
 *           arrange  the best k, or the best chunks of the best k documents  worker
 *           passages of these, embedded, the best one of each (passages.c)    its own threads
 *           write    reads them again by key: what is gone by then is left out   worker
 *         Between stages the request waits for its turn like any other, and every stage asks its deadline.
 * Memory  request memory, which texts that go to a model count in; the reply passes its gate item by item.
 * Threads see above; a request is in one stage at a time.
 * Proof   tests/server/test_search.py, tests/server/test_store.py. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cosine.h"
#include "base/error.h"
#include "base/number.h"
#include "base/utf8.h"
#include "server/openapi.h"
#include "server/search.h"
#include "server/server_internal.h"
#include "store/word_index.h"

enum {
    K_DEFAULT          = 10,
    K_MAX              = 1000,
    COUNTS             = 3,
    GROUP_DEFAULT      = 3, /* chunks of a document */
    GROUP_MAX          = 100,
    CANDIDATES_DEFAULT = 100, /* of each order that is fused, or of documents to be found */
    RERANK_DEFAULT     = 50,  /* texts that a reranker reads */
    DEEPER             = 4,   /* times as many candidates when they are of too few documents */
    FUSION             = 60,
    CUT_NS             = 300000, /* to find the passages of a text */
    NUMBER_MAX         = 64
};

/* ---- The body ------------------------------------------------------------------------------------ */

#define AT(member) offsetof(fl_ask, member)
#define COUNT(called, index, means)                                                                \
    .name = (called), .type = FL_FIELD_INT, .offset = AT(k[index]), .min = 1, .max = K_MAX,        \
    .text = (means)
/* Closed: a min_score or an offset that nobody reads would give other items than were asked for. */
const fl_field fl_fields_seed_search[] = {
    {"text", FL_FIELD_STRING, 0, AT(source), .min = 1, .text = "What to look for."},
    {"vector", FL_FIELD_RAW, 0, AT(vector),
     .words = "\"type\":\"array\",\"items\":{\"type\":\"number\"}",
     .text  = "Or a vector with the model's dimensions."},
    {COUNT("k", 0, "How many items, or documents, 10 by default.")},
    {COUNT("top_k", 1, "Another name of k.")},
    {COUNT("limit", 2, "Another name of k.")},
    {"filter", FL_FIELD_RAW, 0, AT(filter), .words = "\"type\":[\"object\",\"null\"]",
     .text = "Only items whose metadata has all of this."},
    {"hybrid", FL_FIELD_BOOL, FL_FIELD_NULL, AT(hybrid),
     .text = "Also search by words (BM25) and fuse both rankings by reciprocal rank."},
    {"rerank", FL_FIELD_BOOL, FL_FIELD_NULL, AT(rerank),
     .text = "Reorder the results with a reranker of this server."},
    {.name   = "rerank_model",
     .type   = FL_FIELD_STRING,
     .flags  = FL_FIELD_NULL,
     .offset = AT(model),
     .text   = "Which reranker; the first by default. Implies rerank."},
    {"candidates", FL_FIELD_INT, 0, AT(candidates), .min = 1, .max = K_MAX,
     .text = "Candidates of each ranking before fusion, reranking or grouping; 100, or 50 with a "
             "reranker."},
    {"group_by", FL_FIELD_WORD, FL_FIELD_NULL, AT(group_by), .words = "document",
     .text = "Return the best k documents, with the best chunks of each."},
    {"group_size", FL_FIELD_INT, 0, AT(group_size), .min = 1, .max = GROUP_MAX,
     .text = "How many chunks of a document, 3 by default."},
    {"highlight", FL_FIELD_WORD, FL_FIELD_NULL, AT(highlight), .words = FL_WORDS_HIGHLIGHT,
     .text = "passage: the sentences of each text closest to the query; words: the positions of "
             "its words."},
    {FL_ASK_PROMPT_NAME, .text = "One of the model's prompts."},
    {.flags = FL_FIELD_CLOSED}};

static bool read_number(const fl_job *job, fl_json_in *in, float *out) {
    fl_span raw;
    char    text[NUMBER_MAX];
    double  value;
    if (fl_json_in_peek(in) != FL_JSON_NUMBER || !fl_json_in_skip(in, &raw) ||
        raw.size >= sizeof text)
        return fl_seed_refuse(job->request, "vector: expected a list of numbers");
    memcpy(text, raw.data, raw.size);
    text[raw.size] = '\0';
    if (!fl_parse_f64(text, &value))
        return fl_seed_refuse(job->request, "vector: a number is too large");
    *out = (float)value;
    return true;
}

static bool take_vector(fl_job *job) {
    fl_json_in in;
    size_t     count = 0, columns = job->columns;
    job->rows = fl_request_alloc(job->request, columns * sizeof *job->rows);
    if (job->rows == NULL)
        return fl_seed_no_memory(job->request);
    if (fl_seed_begin_raw(job, &in, job->ask.vector) != FL_JSON_ARRAY ||
        !fl_json_in_enter(&in, FL_JSON_ARRAY))
        return fl_seed_refuse(job->request, "vector: expected a list of numbers");
    for (; count <= columns && fl_json_in_item(&in); count++) {
        float value = 0;
        if (!read_number(job, &in, &value))
            return false;
        if (count < columns)
            job->rows[count] = value;
    }
    if (count != columns) {
        return fl_seed_refuse(job->request, "vector: the model's vectors have %zu dimensions",
                              columns);
    }
    return fl_vector_normalize(job->rows, columns) ||
           fl_seed_refuse(job->request, "vector: it has no direction (all zero, or too large)");
}

static bool take_filter(const fl_job *job) {
    fl_span         raw  = job->ask.filter;
    fl_search_work *work = job->extra;
    if (raw.data == NULL || fl_span_is(raw, "null"))
        return true;
    char       *text  = job->request->body + (raw.data - job->request->body);
    const char *wrong = fl_filter_read(&work->filter, text, raw.size);
    work->filters     = true;
    return wrong == NULL || fl_seed_refuse(job->request, "filter: %s", wrong);
}

/* k by any of its names; false: answered. */
static bool take_count(fl_job *job) {
    const int64_t *k     = job->ask.k;
    int64_t        found = 0;
    for (size_t i = 0; i < COUNTS; i++) {
        if (found != 0 && k[i] != 0)
            return fl_seed_refuse(job->request, "k, top_k and limit are synonyms: use one of them");
        found = k[i] != 0 ? k[i] : found;
    }
    ((fl_search_work *)job->extra)->k = found != 0 ? (size_t)found : K_DEFAULT;
    return true;
}

/* The first model that ranks, or the one that is named; false: answered. */
static bool take_reranker(fl_job *job) {
    fl_span          name   = job->ask.model;
    fl_search_work  *work   = job->extra;
    const fl_server *server = job->request->server;
    if (job->ask.rerank != 1 && name.size == 0)
        return true;
    if (name.size > 0)
        work->reranker = job->named;
    for (size_t i = 0; name.size == 0 && fl_server_model_at(server, i) != NULL; i++) {
        fl_served *served = fl_server_model_at(server, i);
        if (work->reranker == NULL && fl_served_ranks(served))
            work->reranker = served;
    }
    if (work->reranker == NULL && name.size > 0) {
        fl_reply_error(job->request, FL_HTTP_MODEL_NOT_FOUND,
                       "rerank_model: no model of this name is loaded");
        return false;
    }
    if (work->reranker == NULL || !fl_served_ranks(work->reranker)) {
        fl_reply_error(job->request, FL_HTTP_WRONG_TASK,
                       "rerank: %s; serve a reranker beside the first model, with another --model",
                       work->reranker == NULL ? "this server has no reranker"
                                              : "the model gives no scores of a query and a text");
        return false;
    }
    return true;
}

/* The query's words; false: answered. */
static bool take_words(fl_job *job) {
    fl_search_work *work = job->extra;
    fl_buf          text = {0};
    if (job->ask.hybrid != 1 && job->ask.highlight != FL_WORD_WORDS)
        return true;
    if (!fl_store_has_words(job->request->server->store)) {
        fl_reply_error(
            job->request, FL_HTTP_WRONG_TASK,
            "hybrid, and words to highlight, need SQLite with FTS5, which this server lacks");
        return false;
    }
    work->word_count = fl_words_expression(job->ask.source.data, job->ask.source.size, &text);
    if (work->word_count > 0 && !text.failed) {
        char *copy = fl_request_alloc(job->request, text.size + 1);
        if (copy != NULL)
            memcpy(copy, text.data, text.size + 1);
        work->words = copy;
        text.failed = copy == NULL;
    }
    bool failed = text.failed;
    fl_buf_free(&text);
    return !failed || fl_seed_no_memory(job->request);
}

/* What is asked for beside the question itself; false: answered. */
static bool take_stages(fl_job *job) {
    const fl_ask   *ask   = &job->ask;
    fl_search_work *work  = job->extra;
    bool            reads = ask->hybrid == 1 || ask->rerank == 1 || ask->model.size > 0 ||
                 ask->highlight == FL_WORD_WORDS;
    if (ask->source.data == NULL && reads) {
        return fl_seed_refuse(job->request,
                              "hybrid, rerank and words to highlight need a text, not a vector");
    }
    if (ask->rerank == -1 && ask->model.size > 0)
        return fl_seed_refuse(job->request, "rerank_model needs rerank");
    work->grouped = ask->group_by != 0;
    if (!work->grouped && ask->group_size != 0)
        return fl_seed_refuse(job->request, "group_size needs group_by");
    work->each = ask->group_size > 0 ? (size_t)ask->group_size : GROUP_DEFAULT;
    if (!take_count(job) || !take_filter(job) || !take_reranker(job) || !take_words(job))
        return false;
    if (ask->highlight == FL_WORD_PASSAGE && work->grouped && work->k * work->each > K_MAX) {
        return fl_seed_refuse(job->request,
                              "highlight: passages of at most %d texts, and k times group_size is "
                              "%zu",
                              K_MAX, work->k * work->each);
    }
    if (ask->candidates > 0 && (size_t)ask->candidates < work->k)
        return fl_seed_refuse(job->request, "candidates: must be at least k (%zu)", work->k);
    size_t most      = work->reranker != NULL              ? RERANK_DEFAULT
                       : ask->hybrid == 1 || work->grouped ? CANDIDATES_DEFAULT
                                                           : 1;
    work->candidates = ask->candidates > 0 ? (size_t)ask->candidates
                       : work->k > most    ? work->k
                                           : most;
    return true;
}

/* ---- Stages -------------------------------------------------------------------------------------- */

static void find(fl_http_request *request);
static void arrange(fl_http_request *request);

static fl_effort effort_of(const fl_search_work *work, bool search) {
    return (fl_effort){.items  = work->candidates,
                       .search = search,
                       .words  = search ? work->word_count : 0,
                       .filter = search && work->filters};
}

void fl_search_later(fl_http_request *request, fl_route_fn stage, bool search) {
    const fl_job         *job  = request->work;
    const fl_search_work *work = job->extra;
    bool                  cuts = job->ask.highlight == FL_WORD_PASSAGE && stage != fl_search_write;
    uint64_t              cost = fl_store_cost_ns(request->server->store, effort_of(work, search));
    cost += cuts ? (uint64_t)work->k * (work->grouped ? work->each : 1) * CUT_NS : 0;
    (void)fl_request_run_later(request, stage, cost);
}

/* A text of the store on its way into request memory. */
typedef struct reading {
    fl_http_request *request;
    fl_read_text    *out;
    bool             full; /* no memory was left */
} reading;

static int keep_text(void *user, const fl_stored_item *item, fletch_error *error) {
    reading *read = user;
    if (item->damage != NULL)
        return FLETCH_OK; /* it has none, and is answered with what is wrong with it */
    char *copy = fl_request_alloc(read->request, item->text_size + 1);
    if (copy == NULL) {
        read->full = true;
        return fl_fail_nomem(error, item->text_size, "texts that were found");
    }
    memcpy(copy, item->text, item->text_size);
    read->out->text  = (fl_span){copy, item->text_size};
    read->out->place = item->place;
    read->out->place.bytes[1] =
        read->out->place.part ? item->place.bytes[1] : (int64_t)item->text_size;
    return FLETCH_OK;
}

bool fl_search_read(fl_http_request *request, int64_t key, fl_read_text *out) {
    fletch_error error = {0};
    reading      read  = {.request = request, .out = out};
    *out               = (fl_read_text){0};
    int status         = fl_store_read(request->server->store, NULL, 0, FL_STORE_WHOLE, key,
                                       fl_seed_asker(request), keep_text, &read, &error);
    if (read.full)
        return fl_seed_no_memory(request);
    if (status < 0 && status != FLETCH_ENOTFOUND) {
        fl_seed_fail_read(request, &error);
        return false;
    }
    return true;
}

fl_job *fl_search_reader(fl_http_request *request, fl_served *served, size_t columns, size_t most) {
    fl_job *job = fl_request_alloc(request, sizeof *job);
    if (job == NULL) {
        (void)fl_seed_no_memory(request);
        return NULL;
    }
    job->request           = request;
    job->style             = &fl_seed_style;
    job->served            = served;
    job->columns           = columns;
    job->ask.dimensions    = FL_ASK_NONE;
    job->ask.input.form    = FL_INPUT_TEXTS;
    job->ask.input.texts   = fl_request_alloc(request, most * sizeof *job->ask.input.texts);
    job->ask.input.lengths = fl_request_alloc(request, most * sizeof *job->ask.input.lengths);
    if (job->ask.input.texts == NULL || job->ask.input.lengths == NULL) {
        (void)fl_seed_no_memory(request);
        return NULL;
    }
    return job;
}

void fl_search_add(fl_job *reader, fl_span text) {
    assert(reader);
    fl_body_input *input           = &reader->ask.input;
    input->texts[input->count]     = text.data;
    input->lengths[input->count++] = text.size;
}

/* ---- Rerank -------------------------------------------------------------------------------------- */

static void reranked(fl_http_request *request, const fletch_outcome *outcome) {
    fl_job         *job    = request->work;
    fl_search_work *work   = job->extra;
    fl_job         *reader = work->reader;
    if (outcome->error.code < 0) {
        fl_reply_fail(request, &outcome->error);
        return;
    }
    fl_ranked *order = fl_job_rank(reader);
    fl_hit    *hits  = fl_request_alloc(request, reader->count * sizeof *hits);
    work->before     = fl_request_alloc(request, reader->count * sizeof *work->before);
    if (order == NULL || hits == NULL || work->before == NULL) {
        (void)fl_seed_no_memory(request);
        return;
    }
    for (size_t i = 0; i < reader->count; i++) {
        if (!isfinite(order[i].score)) {
            fl_reply_error(request, FL_HTTP_INTERNAL,
                           "the reranker's score of one of the texts is not finite");
            return;
        }
        hits[i]         = (fl_hit){work->hits[order[i].index].key, order[i].score};
        work->before[i] = order[i].index + 1;
    }
    work->hits      = hits;
    work->hit_count = reader->count;
    fl_search_later(request, arrange, false);
}

static void rerank(fl_http_request *request) {
    fl_job         *job   = request->work;
    fl_search_work *work  = job->extra;
    fletch_error    error = {0};
    size_t          kept  = 0;
    work->hit_count       = work->hit_count < work->candidates ? work->hit_count : work->candidates;
    fl_job *reader        = fl_search_reader(request, work->reranker, 1, work->hit_count + 1);
    if (reader == NULL)
        return;
    for (size_t i = 0; i < work->hit_count; i++) {
        fl_read_text text;
        if (!fl_search_read(request, work->hits[i].key, &text))
            return;
        if (text.text.data != NULL) {
            fl_search_add(reader, text.text);
            work->hits[kept++] = work->hits[i];
        }
    }
    work->hit_count    = kept;
    work->reader       = reader;
    reader->count      = kept;
    reader->ask.source = job->ask.source;
    if (kept == 0)
        arrange(request);
    else if (fl_job_fill_scores(reader, FLETCH_ACTIVATION_SIGMOID) &&
             fl_request_submit(request, work->reranker, &reader->work, reranked, &error) < 0)
        fl_reply_fail(request, &error);
}

/* ---- Find ---------------------------------------------------------------------------------------- */

static int by_key(const void *left, const void *right) {
    const fl_hit *a = left, *b = right;
    return a->key < b->key ? -1 : a->key > b->key;
}

/* Two orders in one by the sums of reciprocal ranks, into hits[count + other_count]; how many. */
static size_t fuse(fl_hit *hits, size_t count, const fl_hit *other, size_t other_count) {
    size_t all = count + other_count, kept = 0, best = 0;
    for (size_t i = 0; i < all; i++) {
        size_t rank = i < count ? i : i - count;
        hits[i]     = (fl_hit){i < count ? hits[i].key : other[rank].key,
                           (float)(1.0 / (double)(FUSION + rank + 1))};
    }
    if (all == 0)
        return 0;
    qsort(hits, all, sizeof *hits, by_key);
    for (size_t i = 1; i < all; i++)
        if (hits[i].key == hits[kept].key)
            hits[kept].score += hits[i].score;
        else
            hits[++kept] = hits[i];
    for (size_t i = 0; i <= kept; i++) { /* a heap in place: the front of the array is its own */
        fl_hit hit = hits[i];
        fl_hits_offer(hits, &best, all, hit);
    }
    fl_hits_sort(hits, best);
    return best;
}

/* What is looked for, `candidates` by each way; false: answered. */
static bool ask_store(fl_http_request *request, fl_search *out) {
    fl_job         *job   = request->work;
    fl_search_work *work  = job->extra;
    size_t          depth = work->candidates;
    bool            words = job->ask.hybrid == 1 && work->words != NULL;
    work->searched        = fl_store_count(request->server->store);
    *out =
        (fl_search){.row    = job->rows,
                    .words  = words ? work->words : NULL,
                    .filter = work->filters ? &work->filter : NULL,
                    .k      = depth,
                    .hits = fl_request_alloc(request, (words ? 2 : 1) * depth * sizeof *out->hits)};
    out->word_hits = words ? fl_request_alloc(request, depth * sizeof *out->hits) : NULL;
    if (out->hits == NULL || (words && out->word_hits == NULL))
        return fl_seed_no_memory(request);
    return true;
}

static void go_on(fl_http_request *request, fl_search *search) {
    fl_job         *job   = request->work;
    fl_search_work *work  = job->extra;
    fletch_error    error = {0};
    if (fl_store_search(request->server->store, search, fl_seed_asker(request), &error) < 0) {
        fl_reply_fail(request, &error);
        return;
    }
    work->hits      = search->hits;
    work->hit_count = job->ask.hybrid == 1
                          ? fuse(search->hits, search->count, search->word_hits, search->word_count)
                          : search->count;
    if (work->reranker != NULL)
        rerank(request);
    else
        arrange(request);
}

static bool reads_all_rows(const fl_http_request *request) {
    const fl_job         *job  = request->work;
    const fl_search_work *work = job->extra;
    return !work->filters;
}

/* Other searches that wait come along: the rows are read from memory once for all of them. */
static void find(fl_http_request *request) {
    enum { TOGETHER = 8 }; /* then it is arithmetic that takes the time, not memory */
    fl_http_request *all[TOGETHER] = {request};
    fl_search        searches[TOGETHER];
    fl_query         queries[TOGETHER];
    fl_asker         askers[TOGETHER];
    bool             asks[TOGETHER];
    size_t           count = 1, rows = 0;
    if (reads_all_rows(request))
        count += fl_request_gather(request, reads_all_rows, all + 1, TOGETHER - 1);
    for (size_t i = 0; i < count; i++) {
        asks[i] = ask_store(all[i], &searches[i]);
        if (asks[i] && reads_all_rows(all[i])) {
            askers[rows]      = fl_seed_asker(all[i]);
            queries[rows]     = (fl_query){.row  = searches[i].row,
                                           .user = &askers[rows],
                                           .k    = searches[i].k,
                                           .hits = searches[i].hits};
            searches[i].query = &queries[rows++];
        }
    }
    if (rows > 0)
        fl_store_search_rows(request->server->store, queries, rows);
    for (size_t i = 0; i < count; i++) {
        if (asks[i])
            go_on(all[i], &searches[i]);
        if (i > 0)
            fl_request_gathered(all[i]);
    }
}

/* ---- Arrange ------------------------------------------------------------------------------------- */

typedef struct grouping {
    fl_http_request *request;
    fl_search_work  *work;
    size_t           group; /* of the item that was read; SIZE_MAX: none has room for it */
    bool             full;
} grouping;

/* The group of an item by the id of its document, made when there is room for one more. */
static int find_group(void *user, const fl_stored_item *item, fletch_error *error) {
    grouping       *g    = user;
    fl_search_work *work = g->work;
    g->group             = SIZE_MAX;
    for (size_t i = 0; i < work->group_count; i++) {
        fl_span id = work->groups[i].id;
        if (id.size == item->id_size && memcmp(id.data, item->id, id.size) == 0) {
            g->group = i;
            return FLETCH_OK;
        }
    }
    if (work->group_count < work->k) {
        char *id = fl_request_alloc(g->request, item->id_size + 1);
        if (id == NULL) {
            g->full = true;
            return fl_fail_nomem(error, item->id_size, "documents");
        }
        memcpy(id, item->id, item->id_size);
        g->group               = work->group_count;
        work->groups[g->group] = (fl_found_group){.id = {id, item->id_size}};
        work->group_count++;
    }
    return FLETCH_OK;
}

/* Hit `index` as a row. */
static fl_found_row row_of(const fl_search_work *work, size_t index) {
    return (fl_found_row){.key    = work->hits[index].key,
                          .score  = work->hits[index].score,
                          .before = work->before != NULL ? work->before[index] : 0};
}

static void add_row(fl_search_work *work, size_t hit, size_t group) {
    fl_found_group *g   = &work->groups[group];
    size_t          row = work->row_count++;
    work->rows[row]     = row_of(work, hit);
    if (g->count++ == 0)
        g->first = row;
    else
        work->rows[g->last].next = row;
    g->last = row;
}

/* The candidates by documents; false: answered. */
static bool group_hits(fl_http_request *request) {
    fl_search_work *work  = ((fl_job *)request->work)->extra;
    grouping        g     = {.request = request, .work = work};
    fletch_error    error = {0};
    work->group_count = work->row_count = 0;
    for (size_t i = 0; i < work->hit_count; i++) {
        int status =
            fl_store_read(request->server->store, NULL, 0, FL_STORE_WHOLE, work->hits[i].key,
                          fl_seed_asker(request), find_group, &g, &error);
        if (g.full)
            return fl_seed_no_memory(request);
        if (status < 0 && status != FLETCH_ENOTFOUND) {
            fl_seed_fail_read(request, &error);
            return false;
        }
        if (status == FLETCH_OK && g.group != SIZE_MAX && work->groups[g.group].count < work->each)
            add_row(work, i, g.group);
    }
    return true;
}

/* False: answered. */
static bool arrange_groups(fl_http_request *request) {
    fl_search_work *work = ((fl_job *)request->work)->extra;
    size_t          most = work->k * work->each;
    size_t          rows = most < work->hit_count ? most : work->hit_count;
    work->groups         = fl_request_alloc(request, work->k * sizeof *work->groups);
    work->rows           = fl_request_alloc(request, (rows + 1) * sizeof *work->rows);
    if (work->groups == NULL || work->rows == NULL)
        return fl_seed_no_memory(request);
    return group_hits(request);
}

/* Where few documents have all the candidates, others are found farther down. Two orders are fused, and a reranker
 * reads, as far as "candidates" says and no farther. */
static bool must_go_deeper(const fl_job *job) {
    const fl_search_work *work = job->extra;
    bool fixed = job->ask.hybrid == 1 || work->reranker != NULL || job->ask.candidates > 0;
    return work->grouped && !fixed && work->group_count < work->k &&
           work->hit_count == work->candidates;
}

static bool arrange_items(fl_http_request *request) {
    fl_search_work *work = ((fl_job *)request->work)->extra;
    work->row_count      = work->hit_count < work->k ? work->hit_count : work->k;
    work->rows           = fl_request_alloc(request, (work->row_count + 1) * sizeof *work->rows);
    if (work->rows == NULL)
        return fl_seed_no_memory(request);
    for (size_t i = 0; i < work->row_count; i++)
        work->rows[i] = row_of(work, i);
    return true;
}

static void arrange(fl_http_request *request) {
    fl_job         *job  = request->work;
    fl_search_work *work = job->extra;
    if (!(work->grouped ? arrange_groups(request) : arrange_items(request)))
        return;
    if (must_go_deeper(job)) {
        work->candidates *= DEEPER;
        fl_search_later(request, find, true);
    } else if (job->ask.highlight == FL_WORD_PASSAGE) {
        fl_search_passages(request);
    } else {
        fl_search_write(request);
    }
}

/* ---- The answer ---------------------------------------------------------------------------------- */

typedef struct writing {
    fl_http_request      *request;
    const fl_search_work *work;
    const fl_found_row   *row;
    size_t                marks[2 * FL_MARKS_MAX];
    size_t                mark_count;
    bool                  marked; /* words are told */
    bool                  inside; /* a document is begun */
    float                 score;  /* of the document */
    size_t                told;
} writing;

static void put_passage(fl_buf *body, const fl_found_row *row) {
    fl_buf_printf(body,
                  ",\"passage\":{\"bytes\":[%" PRId64 ",%" PRId64 "],\"chars\":[%" PRId64
                  ",%" PRId64 "],\"text\":",
                  row->place.bytes[0], row->place.bytes[1], row->place.chars[0],
                  row->place.chars[1]);
    fl_json_quote(body, row->passage.data, row->passage.size);
    fl_buf_puts(body, "}");
}

/* Where the words stand in the document: a place each. The text may be another one by now than was looked at. */
static void put_marks(fl_buf *body, const writing *w, const fl_stored_item *item) {
    size_t at = 0, chars = 0;
    fl_buf_puts(body, ",\"words\":[");
    for (size_t i = 0, told = 0; i < w->mark_count; i++) {
        size_t begin = w->marks[2 * i], end = w->marks[2 * i + 1];
        if (begin < at || end > item->text_size)
            break;
        chars += fl_utf8_count(item->text + at, begin - at);
        size_t size = fl_utf8_count(item->text + begin, end - begin);
        fl_buf_printf(body,
                      "%s{\"bytes\":[%" PRId64 ",%" PRId64 "],\"chars\":[%" PRId64 ",%" PRId64 "]}",
                      told++ > 0 ? "," : "", item->place.bytes[0] + (int64_t)begin,
                      item->place.bytes[0] + (int64_t)end, item->place.chars[0] + (int64_t)chars,
                      item->place.chars[0] + (int64_t)(chars + size));
        chars += size;
        at = end;
    }
    fl_buf_puts(body, "]");
}

/* Its score, and where it stood before the reranker read it. */
static void put_score(fl_buf *body, const fl_found_row *row) {
    fl_buf_puts(body, ",\"score\":");
    fl_put_score(body, row->score);
    if (row->before > 0)
        fl_buf_printf(body, ",\"before\":%zu", row->before);
}

static void put_highlight(const writing *w, const fl_stored_item *item) {
    fl_buf *body = &w->request->reply.body;
    if (item->damage == NULL && w->row->passage.data != NULL)
        put_passage(body, w->row);
    if (item->damage == NULL && w->marked)
        put_marks(body, w, item);
}

static uint64_t size_of(const writing *w, const fl_stored_item *item) {
    enum { MARK_TEXT = 64 };
    return fl_seed_size(item) + w->row->passage.size + w->mark_count * MARK_TEXT;
}

/* An item: {"id","score","text","metadata"}, and its place where it is a chunk. */
static int put_item(void *user, const fl_stored_item *item, fletch_error *error) {
    writing *w    = user;
    fl_buf  *body = &w->request->reply.body;
    FL_TRY(fl_reply_go_on(w->request, size_of(w, item), error));
    fl_buf_puts(body, w->told++ > 0 ? ",{\"id\":" : "{\"id\":");
    fl_seed_put_id(body, item);
    put_score(body, w->row);
    if (item->place.part) {
        fl_buf_puts(body, ",");
        fl_seed_put_place(body, &item->place);
    }
    size_t      start  = body->size;
    const char *damage = fl_seed_put_text(body, item);
    damage             = damage == NULL ? fl_seed_put_metadata(body, item) : damage;
    if (damage != NULL) {
        body->size = start;
        fl_seed_put_damage(body, damage);
    } else {
        put_highlight(w, item);
    }
    fl_buf_puts(body, "}");
    return FLETCH_OK;
}

/* A chunk of a document, which the first one begins: {"id","score","metadata","chunks":[{"chunk","bytes",...}]}. */
static int put_chunk(void *user, const fl_stored_item *item, fletch_error *error) {
    writing       *w     = user;
    fl_buf        *body  = &w->request->reply.body;
    fl_chunk_place place = item->place;
    FL_TRY(fl_reply_go_on(w->request, size_of(w, item), error));
    if (!w->inside) {
        fl_buf_puts(body, w->told++ > 0 ? ",{\"id\":" : "{\"id\":");
        fl_seed_put_id(body, item);
        fl_buf_puts(body, ",\"score\":");
        fl_put_score(body, w->row->score);
        const char *damage = fl_seed_put_metadata(body, item);
        if (damage != NULL)
            fl_buf_puts(body, ",\"metadata\":null");
        fl_buf_puts(body, ",\"chunks\":[");
    }
    fl_buf_puts(body, w->inside ? ",{" : "{");
    w->inside = true;
    if (!place.part && item->damage == NULL) {
        place.bytes[1] = (int64_t)item->text_size;
        place.chars[1] = (int64_t)fl_utf8_count(item->text, item->text_size);
    }
    fl_seed_put_place(body, &place);
    put_score(body, w->row);
    const char *damage = fl_seed_put_text(body, item);
    if (damage != NULL)
        fl_seed_put_damage(body, damage);
    put_highlight(w, item);
    fl_buf_puts(body, "}");
    return FLETCH_OK;
}

/* Row `index`, read again; what was dropped just now is left out. False: answered. */
static bool put_row(writing *w, size_t index) {
    fl_http_request *request = w->request;
    fl_store        *store   = request->server->store;
    fletch_error     error   = {0};
    int              status  = FLETCH_OK;
    w->row                   = &w->work->rows[index];
    w->mark_count            = 0;
    if (w->marked &&
        w->work->words != NULL) { /* not while the item is read: it may be the same lock */
        status = fl_store_mark(store, w->work->words, w->row->key, fl_seed_asker(request), w->marks,
                               &w->mark_count, &error);
    }
    if (status == FLETCH_OK) {
        status = fl_store_read(store, NULL, 0, FL_STORE_WHOLE, w->row->key, fl_seed_asker(request),
                               w->work->grouped ? put_chunk : put_item, w, &error);
    }
    if (status < 0 && status != FLETCH_ENOTFOUND) {
        fl_seed_fail_read(request, &error);
        return false;
    }
    return true;
}

/* False: answered. */
static bool put_rows(writing *w) {
    const fl_search_work *work = w->work;
    fl_buf               *body = &w->request->reply.body;
    for (size_t i = 0; !work->grouped && i < work->row_count; i++)
        if (!put_row(w, i))
            return false;
    for (size_t g = 0; work->grouped && g < work->group_count; g++) {
        size_t row = work->groups[g].first;
        for (size_t i = 0; i < work->groups[g].count; i++, row = work->rows[row].next)
            if (!put_row(w, row))
                return false;
        if (w->inside) {
            fl_buf_puts(body, "]}");
            w->inside = false;
        }
    }
    return true;
}

void fl_search_write(fl_http_request *request) {
    const fl_job         *job  = request->work;
    const fl_search_work *work = job->extra;
    fl_buf               *body = &request->reply.body;
    writing              *w    = fl_request_alloc(request, sizeof *w);
    if (w == NULL) {
        (void)fl_seed_no_memory(request);
        return;
    }
    w->request = request;
    w->work    = work;
    w->marked  = job->ask.highlight == FL_WORD_WORDS;
    fl_buf_puts(body, "{");
    fl_seed_put_store(request);
    fl_buf_puts(body, ",\"results\":[");
    if (!put_rows(w))
        return;
    fl_buf_printf(body, "],\"count\":%zu,\"searched\":%zu,\"model\":", w->told, work->searched);
    fl_json_quote(body, job->served->name, strlen(job->served->name));
    if (work->reranker != NULL) {
        fl_buf_puts(body, ",\"reranker\":");
        fl_json_quote(body, work->reranker->name, strlen(work->reranker->name));
    }
    fl_buf_puts(body, "}");
    fl_reply_json(request, 200);
}

/* ---- The route ----------------------------------------------------------------------------------- */

static void asked(fl_http_request *request, const fletch_outcome *outcome) {
    if (outcome->error.code < 0)
        fl_reply_fail(request, &outcome->error);
    else if (fl_seed_normalize(request->work))
        fl_search_later(request, find, true);
}

void fl_seed_search(fl_http_request *request) {
    fl_job *job = fl_seed_read(request, &fl_seed_style_untyped, fl_fields_seed_search,
                               sizeof(fl_search_work));
    if (job == NULL)
        return;
    fl_ask *ask = &job->ask;
    if ((ask->source.data != NULL) == (ask->vector.data != NULL)) {
        (void)fl_seed_refuse(request, "give text or vector");
        return;
    }
    if (ask->source.data != NULL && ask->source.size == 0) {
        (void)fl_seed_refuse(request, "the text is empty");
        return;
    }
    if (!take_stages(job))
        return;
    if (ask->vector.data != NULL) {
        if (take_vector(job))
            fl_search_later(request, find, true);
        return;
    }
    fl_seed_take_one(ask);
    if (fl_job_fill(job))
        fl_seed_submit(job, asked);
}
