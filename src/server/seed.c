/* SPDX-License-Identifier: Apache-2.0 */
/* seed.c - /add and /items: a small semantic search over what was added; search.c has /search.
 *
 * Role    the plainest way to use an embedding: give texts, ask for the like.
 * In/Out  {"text" | "texts", "id" | "ids", "metadata", "chunk"} in, ids out. Errors are {"error", "code"}.
 * Method  Texts are embedded by the first model, as any request is; then store.c makes them last, and only
 *         then the answer is sent. With "chunk" a worker cuts them first (add_chunks.c), and the chunks are kept.
 *         Without server.store the store is in memory, bounded, and answers say so ("store": "memory");
 *         with server.store = none the routes answer 404 and say how to get them.
 * Memory  request memory; ids that nobody gave are made of 128 random bits.
 * Threads see server.h; /add and DELETE are answered from the store's thread.
 * Proof   tests/server/test_store.py. */
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cosine.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "server/openapi.h"
#include "server/seed.h"
#include "server/server_internal.h"

enum {
    ID_RANDOM    = 16,
    PAGE_MAX     = 1000,
    PAGE_DEFAULT = 100,
    ADDED_BYTES  = 64, /* of an answer, for a text beside its id */
    SPLIT_NS     = 40  /* to cut a byte of a document */
};

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
            "store %s was created under vector id %.12s and continues under %.12s: vectors of the "
            "same text may differ (another machine, precision, setting or version); `fletch verify "
            "%s` shows by how much, and `fletch run --re-embed %s -o NEW` moves it",
            fl_server_option(server, "server.store"), first, id,
            fl_server_option(server, "server.store"), fl_server_option(server, "server.store"));
    }
    return FLETCH_OK;
}

int fl_seed_load(fl_server *server, fletch_error *error) {
    const fl_served *served = fl_server_model(server, NULL, 0);
    char             mark[160];
    if (server->store == NULL)
        return FLETCH_OK;
    if (served == NULL && fl_store_lasts(server->store)) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "server.store keeps vectors of one model: name it with --model");
    }
    if (served == NULL) {
        fl_seed_close(server);
        return FLETCH_OK;
    }
    (void)snprintf(mark, sizeof mark, "%s %s",
                   served->fingerprint[0] != '\0' ? served->fingerprint : served->id,
                   served->info.pooling);
    int status =
        fl_store_load(server->store, served->name, mark, served->info.dimensions,
                      fl_coarse_named(fl_server_option(server, "server.store_search")), error);
    if (status == FLETCH_OK)
        status = check_vector_id(server, served, error);
    if (status == FLETCH_OK && fl_store_lasts(server->store)) {
        fl_server_log_line(server->log, FL_LEVEL_INFO, "store %s: %zu items",
                           fl_server_option(server, "server.store"), fl_store_count(server->store));
    } else if (status == FLETCH_OK) {
        fl_server_log_line(server->log, FL_LEVEL_INFO,
                           "store: in memory, at most %d MiB, lost when the server stops; "
                           "--server-store FILE keeps it",
                           (int)(FL_STORE_MEMORY >> 20));
    }
    if (status == FLETCH_OK && !fl_store_has_words(server->store)) {
        fl_server_log_line(server->log, FL_LEVEL_WARNING,
                           "store: SQLite on this machine lacks FTS5, so hybrid search is off");
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
                       "this server has no store (server.store is none, or no --model is named): "
                       "start it with --server-store FILE");
    }
    return request->server->store != NULL;
}

/* ---- Reading --------------------------------------------------------------------------------------- */

#define AT(member) offsetof(fl_ask, member)
#define PROMPT     FL_ASK_PROMPT_NAME, .text = "One of the model's prompts."
static const fl_field chunk_fields[] = {
    {"by", FL_FIELD_WORD, FL_FIELD_NULL, AT(by), .words = FL_WORDS_BY,
     .text = "Chunk boundaries; default: sentences."},
    {"size", FL_FIELD_INT, FL_FIELD_NULL, AT(size), .min = 1, .max = INT32_MAX,
     .text = "Tokens per chunk, without special tokens; default: as many as the model accepts."},
    {"overlap", FL_FIELD_INT, FL_FIELD_NULL, AT(overlap), .min = 0, .max = INT32_MAX,
     .text = "Tokens that a chunk may repeat from the previous one; default 0."},
    {FL_ASK_LATE_CHUNKING,
     .text = "true: late chunking, chunk vectors are pooled from one pass over the text."},
    {.flags = FL_FIELD_CLOSED}};

const fl_field fl_fields_seed_add[] = {
    {.name = "text", .type = FL_FIELD_STRING, .offset = AT(source), .min = 1, .text = "One text."},
    {"texts", FL_FIELD_INPUT, 0, AT(input), .forms = FL_INPUT_TEXTS,
     .text = "Or several: all are stored, or none."},
    {"id", FL_FIELD_STRING, 0, AT(id), .min = 1,
     .text = "The id of the one text; an item with that id is replaced. Generated by default."},
    {"ids", FL_FIELD_INPUT, 0, AT(ids), .forms = FL_INPUT_TEXTS, .text = "One id per text."},
    {"metadata", FL_FIELD_RAW, 0, AT(metadata),
     .words = "\"type\":[\"object\",\"array\",\"null\"],\"items\":{\"type\":[\"object\","
              "\"null\"]}",
     .text  = "An object stored with every text, or a list with one per text."},
    {"chunk", FL_FIELD_INNER, FL_FIELD_NULL, AT(chunk), .inner = chunk_fields,
     .text = "Split longer texts into chunks, each stored as an item under its text's id."},
    {"context", FL_FIELD_STRING, FL_FIELD_NULL, AT(context), .min = 1,
     .text = "What is embedded for each item: a template such as \"{title}\\n{chunk}\", its other "
             "words fields of the metadata."},
    {PROMPT},
    {0}};

bool fl_seed_refuse(fl_http_request *request, const char *format, ...) {
    char    message[256];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(message, sizeof message, format, list);
    va_end(list);
    fl_reply_error(request, FL_HTTP_BAD_REQUEST, "%s", message);
    return false;
}

bool fl_seed_no_memory(fl_http_request *request) {
    fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
    return false;
}

#define FAULTS                                                                                     \
    .syntax = {FL_HTTP_BAD_REQUEST, ""}, .meaning = {FL_HTTP_BAD_REQUEST, ""},                     \
    .type     = {FL_HTTP_CONTENT_TYPE, "expected content-type: application/json"},                 \
    .refusals = {[FL_REFUSE_PROMPT] = {FL_HTTP_BAD_REQUEST, "prompt_name: {message}"}}
/* What is kept must say what it is: a page's form cannot (see cors.c). */
static const fl_faults add_faults    = {FAULTS};
static const fl_faults search_faults = {FAULTS, .untyped = true};

/* Answers are written here. */
const fl_style fl_seed_style         = {&add_faults, NULL, false};
const fl_style fl_seed_style_untyped = {&search_faults, NULL, false};

fl_job *fl_seed_read(fl_http_request *request, const fl_style *style, const fl_field *fields,
                     size_t extra) {
    if (!has_store(request))
        return NULL;
    fl_job *job = fl_job_read(request, style, fields);
    if (job == NULL)
        return NULL;
    job->served  = fl_server_model_at(request->server, 0);
    job->columns = job->served->info.dimensions;
    job->extra   = fl_request_alloc(request, extra);
    if (job->extra == NULL)
        (void)fl_seed_no_memory(request);
    return job->extra != NULL ? job : NULL;
}

/* A reader over a value that fl_fields_read has checked and left as it was sent. */
fl_json_type fl_seed_begin_raw(const fl_job *job, fl_json_in *in, fl_span raw) {
    fl_json_in_begin(in, job->request->body + (raw.data - job->request->body), raw.size);
    return fl_json_in_peek(in);
}

/* The one text of the body is all of its input. */
void fl_seed_take_one(fl_ask *ask) {
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

void fl_seed_submit(fl_job *job, fl_done_fn done) {
    fletch_error error = {0};
    if (fl_request_submit(job->request, job->served, &job->work, done, &error) < 0)
        fl_reply_fail(job->request, &error);
}

_Static_assert((int)FL_STORE_READERS >= (int)FL_WORKERS_MAX, "a worker would wait for a reader");

static int request_over(const void *request, fletch_error *error) {
    return fl_request_over(request, error);
}

fl_asker fl_seed_asker(const fl_http_request *request) {
    return (fl_asker){.over = request_over, .user = request};
}

void fl_seed_fail_stopped(fl_http_request *request, fletch_error *error) {
    if (error->code == FLETCH_ECANCELLED)
        (void)fl_request_over(request, error);
    fl_reply_fail(request, error);
}

/* ---- /add ------------------------------------------------------------------------------------------ */

static bool is_good_id(const char *id, size_t size) {
    bool good = size > 0 && size <= FL_SEED_ID_MAX;
    for (size_t i = 0; good && i < size; i++)
        good = (unsigned char)id[i] >= 0x20 && id[i] != 0x7F;
    return good;
}

static bool make_id(fl_http_request *request, fl_stored_item *item) {
    unsigned char random[ID_RANDOM];
    char         *id = fl_request_alloc(request, 2 * sizeof random + 1);
    if (id == NULL || !fl_os_random(random, sizeof random))
        return fl_seed_no_memory(request);
    fl_hex(random, sizeof random, id);
    item->id      = id;
    item->id_size = 2 * sizeof random;
    return true;
}

static bool take_ids(fl_job *job) {
    const fl_ask        *ask   = &job->ask;
    const fl_seed_added *added = job->extra;
    size_t               given = ask->id.data != NULL ? 1 : ask->ids.count;
    bool                 one   = ask->source.data != NULL;
    if (one ? ask->ids.form != 0 : ask->id.data != NULL)
        return fl_seed_refuse(job->request, "use id with text, ids with texts");
    if ((given > 0 || ask->ids.form != 0) && given != added->document_count)
        return fl_seed_refuse(job->request, "there must be as many ids as texts");
    for (size_t i = 0; i < added->document_count; i++) {
        fl_stored_item *item = &added->documents[i];
        if (given == 0) {
            if (!make_id(job->request, item))
                return false;
            continue;
        }
        item->id      = ask->id.data != NULL ? ask->id.data : ask->ids.texts[i];
        item->id_size = ask->id.data != NULL ? ask->id.size : ask->ids.lengths[i];
        if (!is_good_id(item->id, item->id_size)) {
            return fl_seed_refuse(job->request,
                                  "an id has 1 to 512 bytes and no control characters");
        }
    }
    return true;
}

static bool take_metadata(fl_job *job) {
    static const char    wrong[] = "metadata: expected an object, or a list with one per text";
    const fl_seed_added *added   = job->extra;
    fl_stored_item      *items   = added->documents;
    size_t               count   = added->document_count;
    fl_json_in           in;
    fl_span              raw = job->ask.metadata;
    if (raw.data == NULL)
        return true;
    fl_json_type type = fl_seed_begin_raw(job, &in, raw);
    if (type == FL_JSON_OBJECT || type == FL_JSON_NULL) {
        for (size_t i = 0; type == FL_JSON_OBJECT && i < count; i++) {
            items[i].metadata      = raw.data;
            items[i].metadata_size = raw.size;
        }
        return true;
    }
    if (type != FL_JSON_ARRAY || !fl_json_in_enter(&in, FL_JSON_ARRAY))
        return fl_seed_refuse(job->request, wrong);
    size_t i = 0;
    for (; fl_json_in_item(&in); i++) {
        type = fl_json_in_peek(&in);
        if (i == count || (type != FL_JSON_OBJECT && type != FL_JSON_NULL) ||
            !fl_json_in_skip(&in, &raw))
            return fl_seed_refuse(job->request, wrong);
        if (type == FL_JSON_OBJECT) {
            items[i].metadata      = raw.data;
            items[i].metadata_size = raw.size;
        }
    }
    return i == count || fl_seed_refuse(job->request, wrong);
}

/* One object that is kept with each of many texts would be written as often. */
static bool is_bounded(const fl_job *job) {
    const fl_stored_item *items = ((const fl_seed_added *)job->extra)->items;
    uint64_t              bytes = 0, limit = job->request->server->max_body;
    for (size_t i = 0; i < job->count; i++)
        bytes += items[i].text_size + items[i].metadata_size + items[i].context_size;
    if (bytes > limit) {
        fl_reply_header(job->request, "x-fletch-limit", "server.max_body=%llu",
                        (unsigned long long)limit);
        fl_reply_error(
            job->request, FL_HTTP_PAYLOAD_TOO_LARGE,
            "texts and metadata, which is kept with each text or chunk, would take %llu bytes of "
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
    const fl_seed_added *added   = job->extra;
    const fl_buf        *gone    = &added->write.gone;
    size_t               dropped = gone->size / sizeof(int64_t), kept = 1;
    int64_t             *keys = fl_request_alloc(job->request, job->count * sizeof *keys);
    if (keys == NULL)
        return job->count;
    for (size_t i = 0; i < job->count; i++)
        keys[i] = added->items[i].key;
    qsort(keys, job->count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < job->count; i++)
        kept += keys[i] != keys[i - 1];
    for (size_t i = 0; i < dropped; i++) { /* chunks of a text whose id came again */
        kept -= bsearch((const int64_t *)(const void *)gone->data + i, keys, job->count,
                        sizeof *keys, compare_keys) != NULL;
    }
    return kept;
}

/* "store":"memory": what is kept is gone when the server ends. */
void fl_seed_put_store(fl_http_request *request) {
    fl_buf_puts(&request->reply.body, fl_store_lasts(request->server->store)
                                          ? "\"store\":\"file\""
                                          : "\"store\":\"memory\"");
}

/* Chunks, tokens and truncation of each text as it was sent. */
static void put_chunks(fl_buf *body, const fl_job *job) {
    static const char *const names[] = {"\"chunks\":[", "],\"tokens\":[", "],\"truncated\":["};
    const fl_seed_added     *added   = job->extra;
    const bool               late    = added->late.count > 0;
    for (size_t n = 0; n < 3; n++) {
        fl_buf_puts(body, names[n]);
        for (size_t i = 0, at = 0; i < added->document_count; i++) {
            uint64_t tokens = 0;
            bool     cut    = false;
            for (size_t end = at + added->chunks[i]; at < end; at++) {
                tokens += late ? 0 : job->tokens[at];
                cut = cut || (!late && job->truncated[at]);
            }
            tokens += late ? job->tokens[i] : 0;
            fl_buf_puts(body, i > 0 ? "," : "");
            if (n == 2)
                fl_buf_puts(body, cut ? "true" : "false");
            else
                fl_json_out_u64(body, n == 0 ? added->chunks[i] : tokens);
        }
    }
    fl_buf_puts(body, "]");
}

static void kept(fl_write *write, const fletch_error *error) {
    fl_job               *job     = write->user;
    fl_http_request      *request = job->request;
    const fl_seed_added  *added   = job->extra;
    const fl_stored_item *items   = added->documents;
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
    fl_seed_put_store(request);
    fl_buf_puts(body, ",");
    if (job->ask.source.data != NULL) {
        fl_buf_puts(body, "\"id\":");
        fl_json_quote(body, items[0].id, items[0].id_size);
        fl_buf_puts(body, ",");
    }
    fl_buf_puts(body, "\"ids\":[");
    for (size_t i = 0; i < added->document_count; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        fl_json_quote(body, items[i].id, items[i].id_size);
    }
    fl_buf_printf(body, "],\"count\":%zu,\"model\":", count_kept(job));
    fl_json_quote(body, job->served->name, strlen(job->served->name));
    fl_buf_puts(body, ",");
    if (added->chunks != NULL)
        put_chunks(body, job);
    else
        fl_job_put_details(job);
    fl_buf_puts(body, "}");
    fl_reply_json(request, 200);
}

/* False: answered. */
bool fl_seed_normalize(const fl_job *job) {
    for (size_t i = 0; i < job->count; i++) {
        if (!fl_vector_normalize(job->rows + i * job->columns, job->columns)) {
            fl_reply_error(job->request, FL_HTTP_INTERNAL,
                           "the vector of one of the texts is zero or not finite");
            return false;
        }
    }
    return true;
}

static void embedded(fl_http_request *request, const fletch_outcome *outcome) {
    fl_job        *job    = request->work;
    fl_seed_added *added  = job->extra;
    uint64_t       answer = ADDED_BYTES;
    fletch_error   error  = {0};
    if (outcome->error.code < 0) {
        fl_reply_fail(request, &outcome->error);
        return;
    }
    if (!fl_seed_normalize(job))
        return;
    for (size_t i = 0; i < job->count; i++)
        added->items[i].row = job->rows + i * job->columns;
    for (size_t i = 0; i < added->document_count; i++)
        answer += 2 * added->documents[i].id_size + ADDED_BYTES;
    if (fl_reply_go_on(request, answer, &error) < 0) { /* what is kept must be acknowledged */
        fl_reply_fail(request, &error);
        return;
    }
    added->write = (fl_write){.by         = fl_seed_asker(request),
                              .items      = added->items,
                              .item_count = job->count,
                              .done       = kept,
                              .user       = job};
    fl_store_write(request->server->store, &added->write);
}

static void add_chunks(fl_http_request *request) {
    fl_job              *job   = request->work;
    const fl_seed_added *added = job->extra;
    if (fl_split(job) && prepare(job) && is_bounded(job) &&
        (added->late.count == 0 || fl_job_take_spans(job, &added->late)))
        fl_seed_submit(job, embedded);
}

/* False: answered. */
static bool take_documents(fl_job *job) {
    const fl_body_input *input = &job->ask.input;
    fl_seed_added       *added = job->extra;
    added->document_count      = input->count;
    added->documents = fl_request_alloc(job->request, input->count * sizeof *added->documents);
    if (added->documents == NULL)
        return fl_seed_no_memory(job->request);
    for (size_t i = 0; i < input->count; i++) {
        added->documents[i].text         = input->texts[i];
        added->documents[i].text_size    = input->lengths[i];
        added->documents[i].context      = job->ask.context.data;
        added->documents[i].context_size = job->ask.context.size;
    }
    added->items = added->documents;
    return take_ids(job) && take_metadata(job);
}

static void add(fl_http_request *request) {
    fl_job *job = fl_seed_read(request, &fl_seed_style, fl_fields_seed_add, sizeof(fl_seed_added));
    if (job == NULL)
        return;
    fl_ask *ask = &job->ask;
    bool    one = ask->source.data != NULL;
    if (one == (ask->input.form != 0)) {
        (void)fl_seed_refuse(request, "give text or texts");
        return;
    }
    if (ask->input.empty || (one && ask->source.size == 0)) {
        (void)fl_seed_refuse(request, "texts must be non-empty");
        return;
    }
    if (one)
        fl_seed_take_one(ask);
    if (ask->chunk == 1 || ask->context.data != NULL) {
        if (fl_split_check(job) && take_documents(job))
            (void)fl_request_run_later(request, add_chunks, request->body_size * SPLIT_NS);
    } else if (prepare(job) && take_documents(job) && is_bounded(job)) {
        fl_seed_submit(job, embedded);
    }
}

/* ---- Items in an answer ------------------------------------------------------------------------------ */

/* Metadata that somebody else wrote may be anything. */
static bool is_object(char *text, size_t size) {
    fl_json_in in;
    fl_json_in_begin(&in, text, size);
    return fl_json_in_peek(&in) == FL_JSON_OBJECT && fl_json_in_skip(&in, NULL) &&
           fl_json_in_end(&in);
}

const char *fl_seed_put_text(fl_buf *body, const fl_stored_item *item) {
    if (item->damage == NULL) {
        fl_buf_puts(body, ",\"text\":");
        fl_json_quote(body, item->text, item->text_size);
    }
    return item->damage;
}

/* Nothing of it is written when it is wrong. */
const char *fl_seed_put_metadata(fl_buf *body, const fl_stored_item *item) {
    size_t start = body->size;
    if (item->damage != NULL)
        return item->damage;
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

/* Both, or what is wrong with one of them; then nothing of either is written. */
static const char *put_content(fl_buf *body, const fl_stored_item *item) {
    size_t      start  = body->size;
    const char *damage = fl_seed_put_text(body, item);
    damage             = damage == NULL ? fl_seed_put_metadata(body, item) : damage;
    body->size         = damage == NULL ? body->size : start;
    return damage;
}

void fl_seed_put_place(fl_buf *body, const fl_chunk_place *place) {
    fl_buf_printf(body,
                  "\"chunk\":%" PRId64 ",\"bytes\":[%" PRId64 ",%" PRId64 "],\"chars\":[%" PRId64
                  ",%" PRId64 "]",
                  place->chunk, place->bytes[0], place->bytes[1], place->chars[0], place->chars[1]);
}

/* The others are answered all the same. */
void fl_seed_put_damage(fl_buf *body, const char *damage) {
    fl_buf_puts(body, ",\"error\":");
    fl_json_quote(body, damage, strlen(damage));
}

void fl_seed_put_id(fl_buf *body, const fl_stored_item *item) {
    char id[FL_SEED_ID_MAX + 1];
    if (fl_utf8_valid_prefix(item->id, item->id_size) == item->id_size) {
        fl_json_quote(body, item->id, item->id_size);
        return;
    }
    (void)snprintf(id, sizeof id, "%.*s", (int)item->id_size, item->id);
    fl_utf8_make_printable(id);
    fl_json_quote(body, id, strlen(id));
}

uint64_t fl_seed_size(const fl_stored_item *item) {
    return item->id_size + item->text_size + item->metadata_size + item->context_size;
}

typedef struct listing {
    fl_http_request *request;
    bool             comma;
} listing;

static int put_listed(void *user, const fl_stored_item *item, fletch_error *error) {
    listing *list = user;
    fl_buf  *body = &list->request->reply.body;
    FL_TRY(fl_reply_go_on(list->request, fl_seed_size(item), error));
    fl_buf_puts(body, list->comma ? ",{\"id\":" : "{\"id\":");
    list->comma = true;
    fl_seed_put_id(body, item);
    fl_buf_printf(body, ",\"created\":%" PRId64, item->created);
    if (item->place.part) {
        fl_buf_puts(body, ",");
        fl_seed_put_place(body, &item->place);
    }
    const char *damage = put_content(body, item);
    if (damage != NULL)
        fl_seed_put_damage(body, damage);
    fl_buf_puts(body, "}");
    return FLETCH_OK;
}

void fl_seed_fail_read(fl_http_request *request, const fletch_error *error) {
    if (error->code == FLETCH_ENOSPC) {
        fl_reply_header(request, "x-fletch-limit", "answer=%d", FL_ANSWER_MAX);
        fl_reply_error(request, FL_HTTP_PAYLOAD_TOO_LARGE, "%s", error->message);
    } else {
        fl_reply_fail(request, error);
    }
}

/* ---- /items/{id} ----------------------------------------------------------------------------------- */

/* The id of the path, decoded; data NULL: answered. */
static fl_span path_id(fl_http_request *request) {
    fl_span id   = {NULL, strlen(request->tail)};
    char   *text = fl_request_alloc(request, id.size + 1);
    if (text == NULL) {
        (void)fl_seed_no_memory(request);
        return id;
    }
    memcpy(text, request->tail, id.size);
    id.size = fl_percent_decode(text, id.size);
    if (id.size == SIZE_MAX || fl_utf8_valid_prefix(text, id.size) != id.size) {
        (void)fl_seed_refuse(request, "the id in the path is badly escaped or not UTF-8");
        return id;
    }
    id.data = text;
    return id;
}

static void put_context(fl_buf *body, const fl_stored_item *item) {
    if (item->context != NULL && item->damage == NULL) {
        fl_buf_puts(body, ",\"context\":");
        fl_json_quote(body, item->context, item->context_size);
    }
}

typedef struct reading {
    fl_http_request *request;
    int64_t          chunk; /* which is read */
} reading;

/* A whole item, or a chunk among those of its document, which the first one begins. */
static int put_item(void *user, const fl_stored_item *item, fletch_error *error) {
    reading         *read    = user;
    fl_http_request *request = read->request;
    fl_buf          *body    = &request->reply.body;
    const char      *damage  = NULL;
    FL_TRY(fl_reply_go_on(request, fl_seed_size(item), error));
    if (read->chunk <= 0) {
        fl_buf_puts(body, "{\"id\":");
        fl_json_quote(body, item->id, item->id_size);
    }
    if (read->chunk == 0) {
        damage = fl_seed_put_metadata(body, item);
        put_context(body, item);
        fl_buf_puts(body, item->place.late ? ",\"late_chunking\":true" : "");
        fl_buf_printf(body, ",\"created\":%" PRId64 ",\"chunks\":[", item->created);
    }
    if (read->chunk >= 0) {
        fl_buf_puts(body, read->chunk > 0 ? ",{" : "{");
        fl_seed_put_place(body, &item->place);
        damage = damage == NULL ? fl_seed_put_text(body, item) : damage;
    } else {
        damage = put_content(body, item);
        put_context(body, item);
        fl_buf_printf(body, ",\"created\":%" PRId64, item->created);
    }
    if (damage != NULL) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "item %lld of the store is damaged: %s",
                       (long long)item->key, damage);
    }
    fl_buf_puts(body, ",\"embedding\":");
    (void)fl_json_out_floats(body, item->row, fl_store_columns(request->server->store));
    fl_buf_puts(body, "}");
    return FLETCH_OK;
}

/* An id is that of a whole item, or of a document in chunks. */
static int read_item(fl_http_request *request, fl_span id, fletch_error *error) {
    fl_store *store  = request->server->store;
    reading   read   = {.request = request, .chunk = FL_STORE_WHOLE};
    int       status = fl_store_read(store, id.data, id.size, read.chunk, 0, fl_seed_asker(request),
                                     put_item, &read, error);
    if (status != FLETCH_ENOTFOUND)
        return status;
    do {
        read.chunk++;
        status = fl_store_read(store, id.data, id.size, read.chunk, 0, fl_seed_asker(request),
                               put_item, &read, error);
    } while (status == FLETCH_OK);
    if (status == FLETCH_ENOTFOUND && read.chunk > 0) { /* it has no more */
        fl_buf_puts(&request->reply.body, "]}");
        status = FLETCH_OK;
    }
    return status;
}

static void get_item(fl_http_request *request) {
    fletch_error error = {0};
    if (!has_store(request))
        return;
    fl_span id = path_id(request);
    if (id.data == NULL)
        return;
    if (read_item(request, id, &error) < 0)
        fl_seed_fail_read(request, &error);
    else
        fl_reply_json(request, 200);
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
        fl_reply_error(request, FL_HTTP_NOT_FOUND, "no item with this id");
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
        (void)fl_seed_no_memory(request);
        return;
    }
    *write = (fl_write){.by        = fl_seed_asker(request),
                        .drop      = id.data,
                        .drop_size = id.size,
                        .done      = dropped,
                        .user      = request};
    fl_store_write(request->server->store, write);
}

static void drop_item(fl_http_request *request) {
    if (!has_store(request))
        return;
    fl_span id = path_id(request);
    if (id.data != NULL)
        drop(request, id);
}

/* ---- /items ---------------------------------------------------------------------------------------- */

static void drop_all(fl_http_request *request) {
    if (has_store(request))
        drop(request, (fl_span){0});
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
    size_t       found;
    fletch_error error = {0};
    fl_hit      *hits  = fl_request_alloc(request, (size_t)want->limit * sizeof *hits);
    if (hits == NULL) {
        (void)fl_seed_no_memory(request);
        return;
    }
    if (fl_store_list(request->server->store, (size_t)want->offset, (size_t)want->limit,
                      fl_seed_asker(request), hits, &found, &error) < 0) {
        fl_reply_fail(request, &error);
        return;
    }
    fl_buf_puts(body, "{");
    fl_seed_put_store(request);
    fl_buf_printf(body, ",\"count\":%zu,\"offset\":%" PRId64 ",\"limit\":%" PRId64 ",\"items\":[",
                  fl_store_count(request->server->store), want->offset, want->limit);
    listing list   = {.request = request};
    int     status = FLETCH_OK;
    for (size_t i = 0; status == FLETCH_OK && i < found; i++) {
        status = fl_store_read(request->server->store, NULL, 0, FL_STORE_WHOLE, hits[i].key,
                               fl_seed_asker(request), put_listed, &list, &error);
        status = status == FLETCH_ENOTFOUND ? FLETCH_OK : status; /* dropped just now */
    }
    if (status < 0) {
        fl_seed_fail_read(request, &error);
        return;
    }
    fl_buf_puts(body, "]}");
    fl_reply_json(request, 200);
}

static void list_items(fl_http_request *request) {
    page *want = request->work = fl_request_alloc(request, sizeof *want);
    if (want == NULL) {
        (void)fl_seed_no_memory(request);
        return;
    }
    want->limit = PAGE_DEFAULT;
    if (has_store(request) && take_number(request, "offset", 0, INT32_MAX, &want->offset) &&
        take_number(request, "limit", 1, PAGE_MAX, &want->limit)) {
        uint64_t cost =
            fl_store_cost_ns(request->server->store, (fl_effort){.items = (size_t)want->limit});
        (void)fl_request_run_later(request, put_page, cost);
    }
}

const fl_route fl_routes_seed[] = {
    {"POST", "/add", &fl_dialect_plain, add, 0},
    {"POST", "/search", &fl_dialect_plain, fl_seed_search, 0},
    {"GET", "/items", &fl_dialect_plain, list_items, 0},
    {"DELETE", "/items", &fl_dialect_plain, drop_all, 0},
    {"GET", "/items/", &fl_dialect_plain, get_item, FL_ROUTE_PREFIX | FL_ROUTE_BLOCKING},
    {"DELETE", "/items/", &fl_dialect_plain, drop_item, FL_ROUTE_PREFIX},
    {0}};
