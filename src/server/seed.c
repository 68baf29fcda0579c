/* SPDX-License-Identifier: Apache-2.0 */
/* seed.c - /add, /search and /items: a small semantic search over what was added.
 *
 * Role    the plainest way to use an embedding: give texts, ask for the like.
 * In/Out  {"text" | "texts", "id" | "ids", "metadata"} in, ids out; {"text" | "vector", "k", "filter"} in,
 *         items with their cosine out. Errors are {"error", "code"}.
 * Method  Texts are embedded by the first model, as any request is; then store.c makes them last, and only
 *         then the answer is sent. A search embeds its text and then runs on a worker thread.
 *         Without server.store the store is in memory, bounded, and answers say so ("store": "memory");
 *         with server.store = none the routes answer 404 and say how to get them.
 * Memory  request memory; ids that nobody gave are made of 128 random bits.
 * Threads see server.h; /add and DELETE are answered from the store's thread.
 * Proof   tests/server/test_store.py. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "server/embedding.h"
#include "server/openapi.h"
#include "server/server_internal.h"
#include "server/store.h"

enum {
    ID_BYTES_MAX = 512,
    ID_RANDOM    = 16,
    K_DEFAULT    = 10,
    K_MAX        = 1000,
    COUNTS       = 3,
    PAGE_DEFAULT = 100,
    ADDED_BYTES  = 64, /* of an answer, for a text beside its id */
    NUMBER_MAX   = 64
};

/* What a job keeps or looks for: fl_job.extra. */
typedef struct seed_work {
    fl_stored_item *items; /* [job->count] */
    fl_filter       filter;
    bool            filters;
    fl_write        write;
} seed_work;

/* ---- The store of the server ----------------------------------------------------------------------- */

int fl_seed_open(fl_server *server, fletch_error *error) {
    const char *path = fl_server_option(server, "server.store");
    return strcmp(path, "none") != 0 ? fl_store_open(&server->store, path, error) : FLETCH_OK;
}

/* Other last digits are no other space: searching goes on. */
static int check_vector_id(const fl_server *server, const fl_served *served, fletch_error *error) {
    char id[65], first[65];
    fl_served_vector_id(served, id);
    FL_TRY(fl_store_recall(server->store, "vector_id", id, first, sizeof first, error));
    if (strcmp(id, first) != 0) {
        fl_server_log_line(
            server->log, FL_LEVEL_WARNING,
            "store %s was begun under vector id %.12s and goes on under %.12s: the "
            "same text may have other bytes than before (another machine, "
            "precision, setting or version); `fletch verify %s` tells how far apart, "
            "and `fletch run --re-embed %s -o NEW` moves it",
            fl_server_option(server, "server.store"), first, id,
            fl_server_option(server, "server.store"), fl_server_option(server, "server.store"));
    }
    return FLETCH_OK;
}

int fl_seed_load(fl_server *server, fletch_error *error) {
    const fl_served *served = fl_server_model(server, NULL, 0);
    char             mark[160];
    if (server->store == NULL) {
        return FLETCH_OK;
    }
    (void)snprintf(mark, sizeof mark, "%s %s",
                   served->fingerprint[0] != '\0' ? served->fingerprint : served->id,
                   served->info.pooling);
    int status = fl_store_load(server->store, served->name, mark, served->info.dimensions, error);
    if (status == FLETCH_OK) {
        status = check_vector_id(server, served, error);
    }
    if (status == FLETCH_OK && fl_store_lasts(server->store)) {
        fl_server_log_line(server->log, FL_LEVEL_INFO, "store %s: %zu items",
                           fl_server_option(server, "server.store"), fl_store_count(server->store));
    } else if (status == FLETCH_OK) {
        fl_server_log_line(server->log, FL_LEVEL_INFO,
                           "store: in memory, at most %d MiB, what /add takes is gone when the "
                           "server ends; --server-store FILE keeps it",
                           (int)(FL_STORE_MEMORY >> 20));
    }
    return status;
}

void fl_seed_close(fl_server *server) {
    fl_store_close(server->store);
    server->store = NULL;
}

static bool has_store(fl_http_request *request) {
    if (request->server->store == NULL) {
        fl_reply_error(request, FL_HTTP_NOT_FOUND,
                       "this server keeps nothing (server.store is none): start it with "
                       "--server-store FILE");
    }
    return request->server->store != NULL;
}

/* ---- Reading --------------------------------------------------------------------------------------- */

#define AT(member) offsetof(fl_ask, member)
#define PROMPT     FL_ASK_PROMPT_NAME, .text = "One of the model's prompts."
const fl_field fl_fields_seed_add[] = {
    {.name = "text", .type = FL_FIELD_STRING, .offset = AT(source), .min = 1, .text = "One text."},
    {"texts", FL_FIELD_INPUT, 0, AT(input), .forms = FL_INPUT_TEXTS,
     .text = "Or several: all of them are kept, or none."},
    {"id", FL_FIELD_STRING, 0, AT(id), .min = 1,
     .text = "Of the one text; an item that has it is replaced. Made when it is not given."},
    {"ids", FL_FIELD_INPUT, 0, AT(ids), .forms = FL_INPUT_TEXTS, .text = "As many as texts."},
    {"metadata", FL_FIELD_RAW, 0, AT(metadata),
     .words = "\"type\":[\"object\",\"array\",\"null\"],\"items\":{\"type\":[\"object\","
              "\"null\"]}",
     .text  = "An object that is kept with each text, or a list with one for each."},
    {PROMPT},
    {0}};

#define COUNT(called, index, means)                                                                \
    .name = (called), .type = FL_FIELD_INT, .offset = AT(k[index]), .min = 1, .max = K_MAX,        \
    .text = (means)
/* Closed: a min_score or an offset that nobody reads would give other items than were asked for. */
const fl_field fl_fields_seed_search[] = {
    {"text", FL_FIELD_STRING, 0, AT(source), .min = 1, .text = "What to look for."},
    {"vector", FL_FIELD_RAW, 0, AT(vector),
     .words = "\"type\":\"array\",\"items\":{\"type\":\"number\"}",
     .text  = "Or a vector of the model's size."},
    {COUNT("k", 0, "How many items, 10 by default.")},
    {COUNT("top_k", 1, "Another name of k.")},
    {COUNT("limit", 2, "Another name of k.")},
    {"filter", FL_FIELD_RAW, 0, AT(filter), .words = "\"type\":[\"object\",\"null\"]",
     .text = "Only items whose metadata has all of this."},
    {PROMPT},
    {.flags = FL_FIELD_CLOSED}};

static bool refuse(fl_http_request *request, const char *message) {
    fl_reply_error(request, FL_HTTP_BAD_REQUEST, "%s", message);
    return false;
}

static bool no_memory(fl_http_request *request) {
    fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
    return false;
}

#define FAULTS                                                                                     \
    .syntax = {FL_HTTP_BAD_REQUEST, ""}, .meaning = {FL_HTTP_BAD_REQUEST, ""},                     \
    .type = {FL_HTTP_CONTENT_TYPE, "expected content-type: application/json"}
/* What is kept must say what it is: a page's form cannot (see cors.c). */
static const fl_faults add_faults    = {FAULTS};
static const fl_faults search_faults = {FAULTS, .untyped = true};

static void refuse_job(fl_job *job, fl_refusal why, size_t where, const char *message) {
    (void)where;
    fl_reply_error(job->request, FL_HTTP_BAD_REQUEST,
                   why == FL_REFUSE_PROMPT ? "prompt_name: %s" : "%s", message);
}

/* Answers are written here. */
static const fl_style add_style    = {&add_faults, refuse_job, NULL, false};
static const fl_style search_style = {&search_faults, refuse_job, NULL, false};

static fl_job *read_job(fl_http_request *request, const fl_style *style, const fl_field *fields) {
    if (!has_store(request)) {
        return NULL;
    }
    fl_job *job = fl_job_read(request, style, fields);
    if (job == NULL) {
        return NULL;
    }
    job->served  = fl_server_model_at(request->server, 0);
    job->columns = job->served->info.dimensions;
    job->extra   = fl_request_alloc(request, sizeof(seed_work));
    if (job->extra == NULL) {
        (void)no_memory(request);
    }
    return job->extra != NULL ? job : NULL;
}

/* A reader over a value that fl_fields_read has checked and left as it was sent. */
static fl_json_type begin_raw(const fl_job *job, fl_json_in *in, fl_span raw) {
    fl_json_in_begin(in, job->request->body + (raw.data - job->request->body), raw.size);
    return fl_json_in_peek(in);
}

/* The one text of the body is all of its input. */
static void take_one(fl_ask *ask) {
    ask->input.texts   = &ask->source.data;
    ask->input.lengths = &ask->source.size;
    ask->input.count   = 1;
}

/* What the library is to do with the texts; false: answered. */
static bool prepare(fl_job *job) {
    size_t most = fl_job_texts_max(job->served);
    if (job->ask.input.count > most) {
        fl_reply_header(job->request, "x-fletch-limit", "answer=%d", FL_ANSWER_MAX);
        fl_reply_error(job->request, FL_HTTP_PAYLOAD_TOO_LARGE, "at most %zu texts at once", most);
        return false;
    }
    return fl_job_fill(job);
}

static void submit(fl_job *job, fl_done_fn done) {
    fletch_error error = {0};
    if (fl_request_submit(job->request, job->served, &job->work, done, &error) < 0) {
        fl_reply_fail(job->request, &error);
    }
}

/* ---- /add ------------------------------------------------------------------------------------------ */

static bool is_good_id(const char *id, size_t size) {
    bool good = size > 0 && size <= ID_BYTES_MAX;
    for (size_t i = 0; good && i < size; i++) {
        good = (unsigned char)id[i] >= 0x20 && id[i] != 0x7F;
    }
    return good;
}

static bool make_id(fl_http_request *request, fl_stored_item *item) {
    unsigned char random[ID_RANDOM];
    char         *id = fl_request_alloc(request, 2 * sizeof random + 1);
    if (id == NULL || getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return no_memory(request);
    }
    fl_hex(random, sizeof random, id);
    item->id      = id;
    item->id_size = 2 * sizeof random;
    return true;
}

static bool take_ids(fl_job *job) {
    const fl_ask    *ask   = &job->ask;
    const seed_work *seed  = job->extra;
    size_t           given = ask->id.data != NULL ? 1 : ask->ids.count;
    bool             one   = ask->source.data != NULL;
    if (one ? ask->ids.form != 0 : ask->id.data != NULL) {
        return refuse(job->request, "id belongs to text, ids to texts");
    }
    if ((given > 0 || ask->ids.form != 0) && given != job->count) {
        return refuse(job->request, "as many ids as texts are needed");
    }
    for (size_t i = 0; i < job->count; i++) {
        fl_stored_item *item = &seed->items[i];
        if (given == 0) {
            if (!make_id(job->request, item)) {
                return false;
            }
            continue;
        }
        item->id      = ask->id.data != NULL ? ask->id.data : ask->ids.texts[i];
        item->id_size = ask->id.data != NULL ? ask->id.size : ask->ids.lengths[i];
        if (!is_good_id(item->id, item->id_size)) {
            return refuse(job->request, "an id has 1 to 512 bytes and no control characters");
        }
    }
    return true;
}

static bool take_metadata(fl_job *job) {
    static const char wrong[] = "metadata: expected an object, or a list with one for each text";
    fl_stored_item   *items   = ((seed_work *)job->extra)->items;
    fl_json_in        in;
    fl_span           raw = job->ask.metadata;
    if (raw.data == NULL) {
        return true;
    }
    fl_json_type type = begin_raw(job, &in, raw);
    if (type == FL_JSON_OBJECT || type == FL_JSON_NULL) {
        for (size_t i = 0; type == FL_JSON_OBJECT && i < job->count; i++) {
            items[i].metadata      = raw.data;
            items[i].metadata_size = raw.size;
        }
        return true;
    }
    if (type != FL_JSON_ARRAY || !fl_json_in_enter(&in, FL_JSON_ARRAY)) {
        return refuse(job->request, wrong);
    }
    size_t i = 0;
    for (; fl_json_in_item(&in); i++) {
        type = fl_json_in_peek(&in);
        if (i == job->count || (type != FL_JSON_OBJECT && type != FL_JSON_NULL) ||
            !fl_json_in_skip(&in, &raw)) {
            return refuse(job->request, wrong);
        }
        if (type == FL_JSON_OBJECT) {
            items[i].metadata      = raw.data;
            items[i].metadata_size = raw.size;
        }
    }
    return i == job->count || refuse(job->request, wrong);
}

/* One object that is kept with each of many texts would be written as often. */
static bool is_bounded(const fl_job *job) {
    const fl_stored_item *items = ((const seed_work *)job->extra)->items;
    uint64_t              bytes = 0, limit = job->request->server->max_body;
    for (size_t i = 0; i < job->count; i++) {
        bytes += items[i].text_size + items[i].metadata_size;
    }
    if (bytes > limit) {
        fl_reply_header(job->request, "x-fletch-limit", "server.max_body=%llu",
                        (unsigned long long)limit);
        fl_reply_error(job->request, FL_HTTP_PAYLOAD_TOO_LARGE,
                       "texts and metadata, which is kept with each text, would take %llu bytes of "
                       "the store at once, more than server.max_body; send fewer texts at once",
                       (unsigned long long)bytes);
    }
    return bytes <= limit;
}

static int compare_keys(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* How many items the request has put: an id that it names twice is one, and the last text stays. */
static size_t count_kept(const fl_job *job) {
    const seed_work *seed = job->extra;
    int64_t         *keys = fl_request_alloc(job->request, job->count * sizeof *keys);
    size_t           kept = 1;
    if (keys == NULL) {
        return job->count;
    }
    for (size_t i = 0; i < job->count; i++) {
        keys[i] = seed->items[i].key;
    }
    qsort(keys, job->count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < job->count; i++) {
        kept += keys[i] != keys[i - 1];
    }
    return kept;
}

/* "store":"memory": what is kept is gone when the server ends. */
static void put_store(fl_http_request *request) {
    fl_buf_puts(&request->reply.body, fl_store_lasts(request->server->store)
                                          ? "\"store\":\"file\""
                                          : "\"store\":\"memory\"");
}

static void kept(fl_write *write, const fletch_error *error) {
    fl_job               *job     = write->user;
    fl_http_request      *request = job->request;
    const fl_stored_item *items   = write->items;
    fl_buf               *body    = &request->reply.body;
    if (error->code == FLETCH_ENOSPC && !fl_store_lasts(request->server->store)) {
        fl_reply_error(request, FL_HTTP_STORE_FULL, "%s", error->message);
        return;
    }
    if (error->code < 0) {
        fl_reply_fail(request, error);
        return;
    }
    fl_buf_puts(body, "{");
    put_store(request);
    fl_buf_puts(body, ",");
    if (job->ask.source.data != NULL) {
        fl_buf_puts(body, "\"id\":");
        fl_json_quote(body, items[0].id, items[0].id_size);
        fl_buf_puts(body, ",");
    }
    fl_buf_puts(body, "\"ids\":[");
    for (size_t i = 0; i < job->count; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        fl_json_quote(body, items[i].id, items[i].id_size);
    }
    fl_buf_printf(body, "],\"count\":%zu,\"model\":", count_kept(job));
    fl_json_quote(body, job->served->name, strlen(job->served->name));
    fl_buf_puts(body, ",");
    fl_job_put_details(job);
    fl_buf_puts(body, "}");
    fl_reply_json(request, 200);
}

/* False: answered. */
static bool normalize(const fl_job *job) {
    for (size_t i = 0; i < job->count; i++) {
        if (!fl_vectors_normalize(job->rows + i * job->columns, job->columns)) {
            fl_reply_error(job->request, FL_HTTP_INTERNAL,
                           "the model gave a vector without a direction for one of the texts");
            return false;
        }
    }
    return true;
}

static void embedded(fl_http_request *request, const fletch_outcome *outcome) {
    fl_job      *job    = request->work;
    seed_work   *seed   = job->extra;
    uint64_t     answer = ADDED_BYTES;
    fletch_error error  = {0};
    if (outcome->error.code < 0) {
        fl_reply_fail(request, &outcome->error);
        return;
    }
    if (!normalize(job)) {
        return;
    }
    for (size_t i = 0; i < job->count; i++) {
        seed->items[i].row = job->rows + i * job->columns;
        answer += 2 * seed->items[i].id_size + ADDED_BYTES;
    }
    if (fl_reply_go_on(request, answer, &error) < 0) { /* what is kept must be acknowledged */
        fl_reply_fail(request, &error);
        return;
    }
    seed->write = (fl_write){.request    = request,
                             .items      = seed->items,
                             .item_count = job->count,
                             .done       = kept,
                             .user       = job};
    fl_store_write(request->server->store, &seed->write);
}

static void add(fl_http_request *request) {
    fl_job *job = read_job(request, &add_style, fl_fields_seed_add);
    if (job == NULL) {
        return;
    }
    fl_ask    *ask  = &job->ask;
    seed_work *seed = job->extra;
    bool       one  = ask->source.data != NULL;
    if (one == (ask->input.form != 0)) {
        (void)refuse(request, "give text or texts");
        return;
    }
    if (ask->input.empty || (one && ask->source.size == 0)) {
        (void)refuse(request, "no text is there, or one of them is empty");
        return;
    }
    if (one) {
        take_one(ask);
    }
    if (!prepare(job)) {
        return;
    }
    seed->items = fl_request_alloc(request, job->count * sizeof *seed->items);
    if (seed->items == NULL) {
        (void)no_memory(request);
        return;
    }
    for (size_t i = 0; i < job->count; i++) {
        seed->items[i].text      = ask->input.texts[i];
        seed->items[i].text_size = ask->input.lengths[i];
    }
    if (take_ids(job) && take_metadata(job) && is_bounded(job)) {
        submit(job, embedded);
    }
}

/* ---- /search --------------------------------------------------------------------------------------- */

typedef struct found_item {
    fl_http_request *request;
    float            score;
    bool             scored, comma;
} found_item;

/* Metadata that somebody else wrote may be anything. */
static bool is_object(char *text, size_t size) {
    fl_json_in in;
    fl_json_in_begin(&in, text, size);
    return fl_json_in_peek(&in) == FL_JSON_OBJECT && fl_json_in_skip(&in, NULL) &&
           fl_json_in_end(&in);
}

/* NULL, or what is wrong with the item; then nothing of it is written. */
static const char *put_content(fl_buf *body, const fl_stored_item *item) {
    size_t start = body->size;
    if (item->damage != NULL) {
        return item->damage;
    }
    fl_buf_puts(body, ",\"text\":");
    fl_json_quote(body, item->text, item->text_size);
    fl_buf_puts(body, ",\"metadata\":");
    size_t metadata = body->size;
    if (item->metadata == NULL) {
        fl_buf_puts(body, "null");
    } else {
        fl_buf_append(body, item->metadata, item->metadata_size);
        if (!body->failed && !is_object(body->data + metadata, item->metadata_size)) {
            body->size = start;
            return "its metadata is not a JSON object";
        }
    }
    return NULL;
}

/* An item that somebody else has damaged says so in its place: the others are answered all the same. */
static void put_damage(fl_buf *body, const char *damage) {
    fl_buf_puts(body, ",\"error\":");
    fl_json_quote(body, damage, strlen(damage));
}

static void put_id(fl_buf *body, const fl_stored_item *item) {
    char id[ID_BYTES_MAX + 1];
    if (fl_utf8_valid_prefix(item->id, item->id_size) == item->id_size) {
        fl_json_quote(body, item->id, item->id_size);
        return;
    }
    (void)snprintf(id, sizeof id, "%.*s", (int)item->id_size, item->id);
    fl_utf8_make_printable(id);
    fl_json_quote(body, id, strlen(id));
}

/* As many bytes as an item's answer is likely to have. */
static uint64_t size_of(const fl_stored_item *item) {
    return item->id_size + item->text_size + item->metadata_size;
}

static int put_found(void *user, const fl_stored_item *item, fletch_error *error) {
    found_item *found = user;
    fl_buf     *body  = &found->request->reply.body;
    FL_TRY(fl_reply_go_on(found->request, size_of(item), error));
    fl_buf_puts(body, found->comma ? ",{\"id\":" : "{\"id\":");
    found->comma = true;
    put_id(body, item);
    if (found->scored) {
        fl_buf_puts(body, ",\"score\":");
        fl_put_score(body, found->score);
    } else {
        fl_buf_printf(body, ",\"created\":%" PRId64, item->created);
    }
    const char *damage = put_content(body, item);
    if (damage != NULL) {
        put_damage(body, damage);
    }
    fl_buf_puts(body, "}");
    return FLETCH_OK;
}

static void fail_read(fl_http_request *request, const fletch_error *error) {
    if (error->code == FLETCH_ENOSPC) {
        fl_reply_header(request, "x-fletch-limit", "answer=%d", FL_ANSWER_MAX);
        fl_reply_error(request, FL_HTTP_PAYLOAD_TOO_LARGE, "%s", error->message);
    } else {
        fl_reply_fail(request, error);
    }
}

/* The items of `hits`, with commas; *told of them, since one may be dropped just now. False: answered. */
static bool put_hits(fl_http_request *request, const fl_hit *hits, size_t count, bool scored,
                     size_t *told) {
    fletch_error error  = {0};
    found_item   found  = {.request = request, .scored = scored};
    int          status = FLETCH_OK;
    *told               = 0;
    for (size_t i = 0; status == FLETCH_OK && i < count; i++) {
        found.score = hits[i].score;
        status = fl_store_read(request->server->store, NULL, 0, hits[i].key, request, put_found,
                               &found, &error);
        *told += status == FLETCH_OK;
        status = status == FLETCH_ENOTFOUND ? FLETCH_OK : status;
    }
    if (status < 0) {
        fail_read(request, &error);
    }
    return status == FLETCH_OK;
}

static void run_search(fl_http_request *request) {
    fl_job      *job   = request->work;
    seed_work   *seed  = job->extra;
    fl_store    *store = request->server->store;
    fl_buf      *body  = &request->reply.body;
    size_t       k     = (size_t)job->ask.k[0], count, told;
    fletch_error error = {0};
    fl_hit      *hits  = fl_request_alloc(request, k * sizeof *hits);
    if (hits == NULL) {
        (void)no_memory(request);
        return;
    }
    size_t searched = fl_store_count(store);
    int status = fl_store_search(store, job->rows, seed->filters ? &seed->filter : NULL, request, k,
                                 hits, &count, &error);
    if (status < 0) {
        fl_reply_fail(request, &error);
        return;
    }
    fl_buf_puts(body, "{");
    put_store(request);
    fl_buf_puts(body, ",\"results\":[");
    if (!put_hits(request, hits, count, true, &told)) {
        return;
    }
    fl_buf_printf(body, "],\"count\":%zu,\"searched\":%zu,\"model\":", told, searched);
    fl_json_quote(body, job->served->name, strlen(job->served->name));
    fl_buf_puts(body, "}");
    fl_reply_json(request, 200);
}

static void search_later(const fl_job *job) {
    const seed_work *seed = job->extra;
    uint64_t         cost =
        fl_store_cost_ns(job->request->server->store, (size_t)job->ask.k[0], true, seed->filters);
    (void)fl_request_run_later(job->request, run_search, cost);
}

static void asked(fl_http_request *request, const fletch_outcome *outcome) {
    fl_job *job = request->work;
    if (outcome->error.code < 0) {
        fl_reply_fail(request, &outcome->error);
    } else if (normalize(job)) {
        search_later(job);
    }
}

static bool read_number(const fl_job *job, fl_json_in *in, float *out) {
    fl_span raw;
    char    text[NUMBER_MAX];
    double  value;
    if (fl_json_in_peek(in) != FL_JSON_NUMBER || !fl_json_in_skip(in, &raw) ||
        raw.size >= sizeof text) {
        return refuse(job->request, "vector: expected a list of numbers");
    }
    memcpy(text, raw.data, raw.size);
    text[raw.size] = '\0';
    if (!fl_parse_f64(text, &value)) {
        return refuse(job->request, "vector: a number is too large");
    }
    *out = (float)value;
    return true;
}

static bool take_vector(fl_job *job) {
    fl_json_in in;
    size_t     count = 0, columns = job->columns;
    job->rows = fl_request_alloc(job->request, columns * sizeof *job->rows);
    if (job->rows == NULL) {
        return no_memory(job->request);
    }
    if (begin_raw(job, &in, job->ask.vector) != FL_JSON_ARRAY ||
        !fl_json_in_enter(&in, FL_JSON_ARRAY)) {
        return refuse(job->request, "vector: expected a list of numbers");
    }
    for (; count <= columns && fl_json_in_item(&in); count++) {
        float value = 0;
        if (!read_number(job, &in, &value)) {
            return false;
        }
        if (count < columns) {
            job->rows[count] = value;
        }
    }
    if (count != columns) {
        fl_reply_error(job->request, FL_HTTP_BAD_REQUEST,
                       "vector: the model's vectors have %zu numbers", columns);
        return false;
    }
    return fl_vectors_normalize(job->rows, columns) ||
           refuse(job->request, "vector: it has no direction (all zero, or too large)");
}

static bool take_filter(const fl_job *job) {
    fl_span    raw  = job->ask.filter;
    seed_work *seed = job->extra;
    if (raw.data == NULL || fl_span_is(raw, "null")) {
        return true;
    }
    char       *text  = job->request->body + (raw.data - job->request->body);
    const char *wrong = fl_filter_read(&seed->filter, text, raw.size);
    seed->filters     = true;
    if (wrong != NULL) {
        fl_reply_error(job->request, FL_HTTP_BAD_REQUEST, "filter: %s", wrong);
    }
    return wrong == NULL;
}

/* k by any of its names, into the first; false: answered. */
static bool take_count(fl_job *job) {
    int64_t *k = job->ask.k, found = 0;
    for (size_t i = 0; i < COUNTS; i++) {
        if (found != 0 && k[i] != 0) {
            return refuse(job->request, "k, top_k and limit mean the same: give one of them");
        }
        found = k[i] != 0 ? k[i] : found;
    }
    k[0] = found != 0 ? found : K_DEFAULT;
    return true;
}

static void search(fl_http_request *request) {
    fl_job *job = read_job(request, &search_style, fl_fields_seed_search);
    if (job == NULL) {
        return;
    }
    fl_ask *ask = &job->ask;
    if ((ask->source.data != NULL) == (ask->vector.data != NULL)) {
        (void)refuse(request, "give text or vector");
        return;
    }
    if (ask->source.data != NULL && ask->source.size == 0) {
        (void)refuse(request, "the text is empty");
        return;
    }
    if (!take_count(job) || !take_filter(job)) {
        return;
    }
    take_one(ask);
    if (ask->vector.data != NULL) {
        if (take_vector(job)) {
            search_later(job);
        }
    } else if (prepare(job)) {
        submit(job, asked);
    }
}

/* ---- /items/{id} ----------------------------------------------------------------------------------- */

/* The id of the path, decoded; data NULL: answered. */
static fl_span path_id(fl_http_request *request) {
    fl_span id   = {NULL, strlen(request->tail)};
    char   *text = fl_request_alloc(request, id.size + 1);
    if (text == NULL) {
        (void)no_memory(request);
        return id;
    }
    memcpy(text, request->tail, id.size);
    id.size = fl_percent_decode(text, id.size);
    if (id.size == SIZE_MAX || fl_utf8_valid_prefix(text, id.size) != id.size) {
        (void)refuse(request, "the id of the path is badly escaped or no UTF-8");
        return id;
    }
    id.data = text;
    return id;
}

static int put_item(void *user, const fl_stored_item *item, fletch_error *error) {
    fl_http_request *request = user;
    fl_buf          *body    = &request->reply.body;
    FL_TRY(fl_reply_go_on(request, size_of(item), error));
    fl_buf_puts(body, "{\"id\":");
    fl_json_quote(body, item->id, item->id_size);
    const char *damage = put_content(body, item);
    if (damage != NULL) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "item %lld of the store is damaged: %s",
                       (long long)item->key, damage);
    }
    fl_buf_printf(body, ",\"created\":%" PRId64 ",\"embedding\":", item->created);
    (void)fl_json_out_floats(body, item->row, fl_store_columns(request->server->store));
    fl_buf_puts(body, "}");
    return FLETCH_OK;
}

static void get_item(fl_http_request *request) {
    fletch_error error = {0};
    if (!has_store(request)) {
        return;
    }
    fl_span id = path_id(request);
    if (id.data == NULL) {
        return;
    }
    if (fl_store_read(request->server->store, id.data, id.size, 0, request, put_item, request,
                      &error) < 0) {
        fail_read(request, &error);
    } else {
        fl_reply_json(request, 200);
    }
}

static void dropped(fl_write *write, const fletch_error *error) {
    fl_http_request *request = write->user;
    if (error->code < 0) {
        fl_reply_fail(request, error);
        return;
    }
    if (write->drop == NULL) {
        fl_buf_printf(&request->reply.body, "{\"deleted\":%zu}", write->dropped);
        fl_reply_json(request, 200);
        return;
    }
    if (write->dropped == 0) {
        fl_reply_error(request, FL_HTTP_NOT_FOUND, "no item of this id is stored");
        return;
    }
    fl_buf_puts(&request->reply.body, "{\"id\":");
    fl_json_quote(&request->reply.body, write->drop, write->drop_size);
    fl_buf_puts(&request->reply.body, ",\"deleted\":true}");
    fl_reply_json(request, 200);
}

/* id.data NULL: all. */
static void drop(fl_http_request *request, fl_span id) {
    fl_write *write = fl_request_alloc(request, sizeof *write);
    if (write == NULL) {
        (void)no_memory(request);
        return;
    }
    *write = (fl_write){.request   = request,
                        .drop      = id.data,
                        .drop_size = id.size,
                        .done      = dropped,
                        .user      = request};
    fl_store_write(request->server->store, write);
}

static void drop_item(fl_http_request *request) {
    if (!has_store(request)) {
        return;
    }
    fl_span id = path_id(request);
    if (id.data != NULL) {
        drop(request, id);
    }
}

/* ---- /items ---------------------------------------------------------------------------------------- */

static void drop_all(fl_http_request *request) {
    if (has_store(request)) {
        drop(request, (fl_span){0});
    }
}

/* A number of the query between `min` and `max`; false: answered. */
static bool take_number(fl_http_request *request, const char *name, int64_t min, int64_t max,
                        int64_t *out) {
    const char *text = fl_request_query(request, name);
    if (text != NULL && (!fl_parse_i64(text, out) || *out < min || *out > max)) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST,
                       "%s: expected a number from %" PRId64 " to %" PRId64, name, min, max);
        return false;
    }
    return true;
}

typedef struct page {
    int64_t offset, limit;
} page;

static void put_page(fl_http_request *request) {
    const page  *want = request->work;
    fl_buf      *body = &request->reply.body;
    size_t       found, told;
    fletch_error error = {0};
    fl_hit      *hits  = fl_request_alloc(request, (size_t)want->limit * sizeof *hits);
    if (hits == NULL) {
        (void)no_memory(request);
        return;
    }
    if (fl_store_list(request->server->store, (size_t)want->offset, (size_t)want->limit, request,
                      hits, &found, &error) < 0) {
        fl_reply_fail(request, &error);
        return;
    }
    fl_buf_puts(body, "{");
    put_store(request);
    fl_buf_printf(body, ",\"count\":%zu,\"offset\":%" PRId64 ",\"limit\":%" PRId64 ",\"items\":[",
                  fl_store_count(request->server->store), want->offset, want->limit);
    if (put_hits(request, hits, found, false, &told)) {
        fl_buf_puts(body, "]}");
        fl_reply_json(request, 200);
    }
}

static void list_items(fl_http_request *request) {
    page *want = request->work = fl_request_alloc(request, sizeof *want);
    if (want == NULL) {
        (void)no_memory(request);
        return;
    }
    want->limit = PAGE_DEFAULT;
    if (has_store(request) && take_number(request, "offset", 0, INT32_MAX, &want->offset) &&
        take_number(request, "limit", 1, K_MAX, &want->limit)) {
        uint64_t cost = fl_store_cost_ns(request->server->store, (size_t)want->limit, false, false);
        (void)fl_request_run_later(request, put_page, cost);
    }
}

const fl_route fl_routes_seed[] = {
    {"POST", "/add", &fl_dialect_plain, add, 0},
    {"POST", "/search", &fl_dialect_plain, search, 0},
    {"GET", "/items", &fl_dialect_plain, list_items, 0},
    {"DELETE", "/items", &fl_dialect_plain, drop_all, 0},
    {"GET", "/items/", &fl_dialect_plain, get_item, FL_ROUTE_PREFIX | FL_ROUTE_BLOCKING},
    {"DELETE", "/items/", &fl_dialect_plain, drop_item, FL_ROUTE_PREFIX},
    {0}};
