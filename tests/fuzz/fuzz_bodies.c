/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_bodies.c - any bytes as the body of every POST route of every dialect.
 *
 * The handlers are the real ones; server and library are stand-ins here, small enough to answer at once. Whatever
 * comes in: exactly one reply, an answer or an error in the dialect's own shape, JSON that the strict twin reads, no
 * byte read or written outside of the body, and the texts that reach the library are valid UTF-8 inside it.
 * The first byte chooses the route, the second some headers. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "server/batches.h"
#include "server/embedding.h"
#include "server/pull.h"
#include "server/routes.h"
#include "server/server_internal.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DIMENSIONS = 3, VOCABULARY = 1000, MAX_LENGTH = 16, BLOCKS = 4096 };

/* What one run has done so far. */
static struct {
    fl_http_request request;
    void           *blocks[BLOCKS];
    size_t          block_count;
    unsigned        headers;
    int             replies;
} run;

static char      never_read; /* a store for the routes that ask whether there is one */
static fl_server server;

static fl_served served = {.name            = "m\xC3\xB6"
                                              "del",
                           .id              = "model",
                           .info.dimensions = DIMENSIONS,
                           .info.hidden     = DIMENSIONS,
                           .info.sparse     = DIMENSIONS,
                           .info.colbert    = DIMENSIONS,
                           .info.prompt     = "",
                           .info.max_length = MAX_LENGTH,
                           .fingerprint     = "00"};

static void must(bool condition) {
    if (!condition)
        abort();
}

/* ---- The library -------------------------------------------------------------------------------- */

size_t fletch_row_bytes(size_t cols, fletch_dtype dtype) {
    return dtype == FLETCH_FLOAT32 ? cols * 4 : dtype <= FLETCH_UINT8 ? cols : (cols + 7) / 8;
}

const char *fletch_version(void) {
    return "0";
}

/* One token for every byte, within [CLS] and [SEP]. */
int fletch_vector_id(fletch_model *model, const fletch_embed_options *options, fletch_dtype dtype,
                     char out[65], fletch_error *error) {
    (void)model, (void)options, (void)dtype, (void)error;
    memset(out, 'a', 64);
    out[64] = '\0';
    return FLETCH_OK;
}

int fletch_tokenize(fletch_model *model, const char *text, size_t size,
                    const fletch_tokenize_options *options, fletch_tokens **tokens,
                    fletch_error *error) {
    (void)model, (void)options, (void)error;
    must(fl_utf8_valid_prefix(text, size) == size);
    fletch_tokens *out     = calloc(1, sizeof *out);
    size_t         count   = size + 1;
    uint32_t      *offsets = calloc(2 * count, sizeof *offsets);
    uint8_t       *special = calloc(count, 1);
    for (size_t i = 0; i < size; i++) {
        offsets[2 * i]     = (uint32_t)i;
        offsets[2 * i + 1] = (uint32_t)i + 1;
    }
    special[size] = 1;
    *out          = (fletch_tokens){.count   = count,
                                    .ids     = calloc(count, sizeof *out->ids),
                                    .offsets = offsets,
                                    .special = special};
    *tokens       = out;
    return 0;
}

void fletch_tokens_free(fletch_tokens *tokens) {
    if (tokens != NULL) {
        free((void *)(uintptr_t)tokens->ids);
        free((void *)(uintptr_t)tokens->offsets);
        free((void *)(uintptr_t)tokens->special);
        free(tokens);
    }
}

/* A chunk for every max_tokens bytes that end where a character does, or for every letter; the first one without a
 * token. */
int fletch_chunk(fletch_model *model, const char *text, size_t size,
                 const fletch_chunk_options *options, fletch_chunks **chunks, fletch_error *error) {
    (void)model;
    must(fl_utf8_valid_prefix(text, size) == size);
    if (options->max_tokens > MAX_LENGTH || options->overlap >= MAX_LENGTH) {
        *error = (fletch_error){FLETCH_EINVAL, FLETCH_NOWHERE, "the size"};
        return FLETCH_EINVAL;
    }
    size_t    count = 0, letters = 0;
    size_t   *offsets = calloc(2 * size + 1, sizeof *offsets);
    size_t   *chars   = calloc(2 * size + 1, sizeof *chars);
    uint32_t *tokens  = calloc(size + 1, sizeof *tokens);
    for (size_t at = 0; at < size; count++) {
        unsigned length;
        (void)fl_utf8_decode(text + at, &length);
        size_t end             = at + options->max_tokens < size
                                     ? fl_utf8_before(text, at + options->max_tokens + 1)
                                     : size;
        end                    = end > at ? end : at + length;
        offsets[2 * count]     = at;
        offsets[2 * count + 1] = end;
        chars[2 * count]       = letters;
        chars[2 * count + 1]   = letters += fl_utf8_count(text + at, end - at);
        tokens[count]          = count > 0;
        at                     = end;
    }
    *chunks  = calloc(1, sizeof **chunks);
    **chunks = (fletch_chunks){count, offsets, chars, tokens};
    return FLETCH_OK;
}

void fletch_chunks_free(fletch_chunks *chunks) {
    if (chunks != NULL) {
        free((void *)(uintptr_t)chunks->offsets);
        free((void *)(uintptr_t)chunks->chars);
        free((void *)(uintptr_t)chunks->tokens);
        free(chunks);
    }
}

const char *fletch_label_at(const fletch_model *model, size_t index) {
    (void)model;
    return index < served.info.labels ? "la\"bel" : NULL;
}

const char *fletch_token_text(const fletch_model *model, int32_t id) {
    (void)model;
    return id < VOCABULARY ? "\"##\\" : NULL;
}

int64_t fletch_decode(const fletch_model *model, const int32_t *ids, size_t count, int skip,
                      char *text, size_t capacity, fletch_error *error) {
    (void)model, (void)skip;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= VOCABULARY) {
            error->code = FLETCH_EINVAL;
            return FLETCH_EINVAL;
        }
    }
    if (capacity > count) {
        memset(text, 'x', count);
        text[count] = '\0';
    }
    return (int64_t)count;
}

static void plain_error(fl_http_reply *reply, fl_http_code code, const char *message) {
    (void)code;
    fl_buf_puts(&reply->body, "{\"error\":");
    fl_json_quote(&reply->body, message, strlen(message));
    fl_buf_puts(&reply->body, "}");
    reply->type = "application/json";
}

const fl_dialect fl_dialect_plain = {"plain", plain_error};

/* ---- The store ---------------------------------------------------------------------------------- */

static bool is_text(const char *text, size_t size) {
    return text != NULL && fl_utf8_valid_prefix(text, size) == size;
}

static bool is_object(const char *text, size_t size) {
    fl_json     *json = NULL;
    fletch_error error;
    bool         good = fl_json_parse(&json, text, size, size + 1, 0, "", &error) == 0 &&
                fl_json_is(json, FL_JSON_OBJECT);
    fl_json_free(json);
    return good;
}

/* Ids that may be kept, texts inside the body, metadata that SQLite will read, rows of length 1. */
void fl_store_write(fl_store *store, fl_write *write) {
    fletch_error error = {0};
    (void)store;
    must(write->item_count > 0);
    for (size_t i = 0; i < write->item_count; i++) {
        fl_stored_item *item = &write->items[i];
        double          sum  = 0;
        for (size_t k = 0; k < DIMENSIONS; k++)
            sum += (double)item->row[k] * (double)item->row[k];
        must(sum > 0.999 && sum < 1.001 && is_text(item->id, item->id_size) && item->id_size > 0);
        must(item->id_size <= 512 && is_text(item->text, item->text_size) && item->text_size > 0);
        must(item->metadata == NULL || is_object(item->metadata, item->metadata_size));
        item->key = (int64_t)(i / 2);
    }
    write->done(write, &error);
}

/* Three rows, or as many as are asked for. */
static size_t find_rows(const float *row, size_t k, fl_hit *hits) {
    const size_t found = k < 3 ? k : 3;
    must(row[0] <= 1.001f && k >= 1);
    for (size_t i = 0; i < found; i++)
        hits[i] = (fl_hit){.key = (int64_t)i, .score = 0.5f};
    return found;
}

void fl_store_search_rows(fl_store *store, fl_query *queries, size_t count) {
    (void)store;
    for (size_t i = 0; i < count; i++)
        queries[i].found = find_rows(queries[i].row, queries[i].k, queries[i].hits);
}

int fl_store_search(fl_store *store, fl_search *search, fl_asker by, fletch_error *error) {
    char metadata[] = "{\"a\":1,\"b\":\"\\u0062\",\"c\":true}";
    (void)store, (void)by.over, (void)error;
    if (search->filter != NULL)
        (void)fl_filter_passes(search->filter, metadata, sizeof metadata - 1);
    search->count      = search->query != NULL ? search->query->found
                                               : find_rows(search->row, search->k, search->hits);
    search->word_count = search->words != NULL;
    if (search->words != NULL) {
        must(is_text(search->words, strlen(search->words)));
        search->word_hits[0] = (fl_hit){.key = 4, .score = 2};
    }
    return 0;
}

int fl_store_mark(fl_store *store, const char *words, int64_t key, fl_asker by, size_t *marks,
                  size_t *count, fletch_error *error) {
    (void)store, (void)key, (void)by.over, (void)error;
    must(is_text(words, strlen(words)));
    marks[0] = 0;
    marks[1] = 1;
    *count   = 1;
    return 0;
}

bool fl_store_has_words(const fl_store *store) {
    (void)store;
    return run.request.body_size % 3 > 0;
}

/* Key 2 is a chunk, 1 was dropped just now. */
int fl_store_read(fl_store *store, const char *id, size_t id_size, int64_t chunk, int64_t key,
                  fl_asker by, fl_found_fn found, void *user, fletch_error *error) {
    fl_stored_item item = {.id            = "i\"",
                           .id_size       = 2,
                           .text          = "t\n",
                           .text_size     = 2,
                           .metadata      = "{}",
                           .metadata_size = 2};
    (void)store, (void)id, (void)id_size, (void)chunk, (void)by.over;
    if (key == 1)
        return FLETCH_ENOTFOUND;
    if (key == 2)
        item.place = (fl_chunk_place){.part = true, .chunk = 3, .bytes = {7, 9}, .chars = {6, 8}};
    return found(user, &item, error);
}

int fl_store_open(fl_store **out, const char *path, fletch_error *error) {
    (void)out, (void)path, (void)error;
    return 0;
}

int fl_store_recall(const fl_store *store, const char *name, const char *value, char *out,
                    size_t size, fletch_error *error) {
    (void)store, (void)name, (void)error;
    snprintf(out, size, "%s", value);
    return 0;
}

int fl_store_load(fl_store *store, const char *model, const char *fingerprint, size_t columns,
                  const fl_coarse *coarse, fletch_error *error) {
    (void)store, (void)model, (void)fingerprint, (void)columns, (void)coarse, (void)error;
    return 0;
}

void fl_store_close(fl_store *store) {
    (void)store;
}

bool fl_pull_is_allowed(const fl_server *of) {
    (void)of;
    return true;
}

void fl_pull_begin(fl_http_request *request, fl_span name, bool streams) {
    fl_reply_error(request, FL_HTTP_BAD_REQUEST, "%.*s %d", (int)name.size, name.data, streams);
}

void fl_pull_delete(fl_http_request *request, fl_span name) {
    fl_pull_begin(request, name, false);
}

void fl_store_found(const fl_store *store, uint64_t *recalled, uint64_t *checked) {
    (void)store;
    *recalled = *checked = 0;
}

size_t fl_store_count(const fl_store *store) {
    (void)store;
    return 3;
}

bool fl_store_lasts(const fl_store *store) {
    (void)store;
    return true;
}

int fl_store_list(fl_store *store, size_t offset, size_t count, fl_asker by, fl_hit *hits,
                  size_t *found, fletch_error *error) {
    (void)store, (void)by.over, (void)error;
    *found = 0;
    while (*found < count && offset + *found < 3) {
        hits[*found] = (fl_hit){.key = (int64_t)(offset + *found)};
        ++*found;
    }
    return FLETCH_OK;
}

uint64_t fl_store_cost_ns(const fl_store *store, fl_effort effort) {
    (void)store, (void)effort;
    return 0;
}

size_t fl_store_columns(const fl_store *store) {
    (void)store;
    return DIMENSIONS;
}

void fl_batches_tell(fl_batches *batches) {
    (void)batches;
}

bool fl_request_run_later(fl_http_request *request, fl_route_fn fn, uint64_t cost_ns) {
    (void)cost_ns;
    fn(request);
    return true;
}

/* Nobody else waits. */
size_t fl_request_gather(const fl_http_request *request, fl_wanted_fn wanted,
                         fl_http_request **others, size_t most) {
    (void)request, (void)wanted, (void)others, (void)most;
    return 0;
}

void fl_request_gathered(fl_http_request *other) {
    (void)other;
}

bool fl_request_hold(fl_http_request *request, size_t bytes) {
    (void)request;
    return bytes < ((size_t)1 << 30);
}

int fl_reply_go_on(fl_http_request *request, uint64_t to_come, fletch_error *error) {
    (void)request, (void)to_come, (void)error;
    return FLETCH_OK;
}

void fl_server_log_line(fl_server_log *log, int level, const char *format, ...) {
    (void)log, (void)level, (void)format;
}

/* ---- The server --------------------------------------------------------------------------------- */

void *fl_request_alloc(fl_http_request *request, size_t size) {
    must(request == &run.request && size < ((size_t)1 << 30));
    if (run.block_count == BLOCKS)
        return NULL;
    return run.blocks[run.block_count++] = calloc(1, size > 0 ? size : 1);
}

const char *fl_request_header(const fl_http_request *request, const char *name) {
    static const char *const value[8][2] = {
        {"content-type", "application/json"}, {"accept", "application/octet-stream"},
        {"x-fletch-truncate", "left"},        {"x-fletch-dtype", "ubinary"},
        {"x-fletch-details", "true"},         {"x-fletch-prompt-name", "query"},
        {"x-fletch-dimensions", "2"},         {"x-fletch-normalize", "0"}};
    (void)request;
    for (size_t i = 0; i < 8; i++)
        if ((run.headers >> i & 1) != 0 && strcmp(value[i][0], name) == 0)
            return value[i][1];
    return NULL;
}

const char *fl_request_query(fl_http_request *request, const char *name) {
    (void)request, (void)name;
    return NULL;
}

int fl_request_over(const fl_http_request *request, fletch_error *error) {
    (void)request, (void)error;
    return FLETCH_OK;
}

size_t fl_percent_decode(char *text, size_t size) {
    (void)text;
    return size;
}

fl_served *fl_server_model(const fl_server *of, const char *name, size_t size) {
    (void)of;
    return size > 0 && name[0] == '?' ? NULL : &served;
}

fl_served *fl_server_model_at(const fl_server *of, size_t index) {
    (void)of;
    return index == 0 ? &served : NULL;
}

fl_served *fl_server_record_at(const fl_server *of, size_t index) {
    return fl_server_model_at(of, index);
}

const char *const fl_model_state_words[FL_MODEL_STATE_COUNT] = {"", "", "", "", ""};

/* It is open, and stays so. */
bool fl_request_take(fl_http_request *request, fl_served *model) {
    must(request == &run.request && model == &served);
    return true;
}

bool fl_request_look(fl_http_request *request) {
    must(request == &run.request);
    return false;
}

void fl_served_keep(fl_served *model, uint64_t ns) {
    must(model == &served);
    (void)ns;
}

bool fl_served_try_hold(fl_served *model) {
    return model == &served;
}

void fl_served_drop(fl_served *model) {
    must(model == &served);
}

uint64_t fl_served_stays_ns(const fl_served *model) {
    (void)model;
    return UINT64_MAX;
}

uint64_t fl_served_bytes(const fl_served *model) {
    (void)model;
    return 0;
}

int fletch_row_convert(void *out, const float *row, size_t cols, fletch_dtype dtype) {
    (void)row;
    memset(out, 1, fletch_row_bytes(cols, dtype));
    return FLETCH_OK;
}

/* The first letter says which; a colon and digits behind it are dimensions, of which there may be too many. */
int fletch_output_parse(fletch_output *output, const char *name, size_t size, fletch_error *error) {
    must(output->size == sizeof *output && fl_utf8_valid_prefix(name, size) == size);
    if (size == 0 || memchr("dstc", name[0], 4) == NULL) {
        snprintf(error->message, sizeof error->message, "no \"output\"");
        return error->code = FLETCH_EINVAL;
    }
    output->kind = name[0] == 'd'   ? FLETCH_KIND_DENSE
                   : name[0] == 's' ? FLETCH_KIND_SPARSE
                   : name[0] == 't' ? FLETCH_KIND_TOKENS
                                    : FLETCH_KIND_COLBERT;
    if (size > 2 && name[1] == ':') {
        output->out.cols  = 1 + (unsigned char)name[2] % 8;
        output->out.dtype = (fletch_dtype)((unsigned char)name[size - 1] % 5);
    }
    return FLETCH_OK;
}

const fletch_prompt *fletch_prompt_at(const fletch_model *model, size_t index) {
    static const fletch_prompt query = {"query", "query: \n\xC3\xA9"};
    (void)model;
    return index == 0 ? &query : NULL;
}

const char *fl_server_option(const fl_server *of, const char *key) {
    (void)of, (void)key;
    return "right";
}

uint64_t fl_server_number(const fl_server *of, const char *key, uint64_t none) {
    (void)of, (void)key;
    return none;
}

bool fl_server_ready(const fl_server *of, const char **why) {
    (void)of, (void)why;
    return true;
}

void fl_reply_header(fl_http_request *request, const char *name, const char *format, ...) {
    (void)request, (void)name;
    char    value[256];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(value, sizeof value, format, list);
    va_end(list);
}

/* What the client would see: the type must be true. */
static void sent(int status, const char *type) {
    const fl_buf *body = &run.request.reply.body;
    run.replies++;
    must(status >= 200 && status < 600 && status != 500 && !body->failed);
    if (type != NULL && strncmp(type, "text/", 5) == 0) {
        must(fl_utf8_valid_prefix(body->data, body->size) == body->size);
    } else if (type != NULL && strcmp(type, "application/json") == 0) {
        fl_json     *json = NULL;
        fletch_error error;
        must(fl_json_parse(&json, body->data, body->size, body->size + 1, FL_JSON_UNIQUE_KEYS,
                           "reply", &error) == 0);
        fl_json_free(json);
    }
}

void fl_reply_json(fl_http_request *request, int status) {
    (void)request;
    sent(status, "application/json");
}

void fl_reply_bytes(fl_http_request *request, int status, const char *type) {
    (void)request;
    sent(status, type);
}

void fl_reply_error(fl_http_request *request, fl_http_code code, const char *format, ...) {
    char    message[640];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(message, sizeof message, format, list);
    va_end(list);
    fl_utf8_make_printable(message);
    fl_buf_clear(&request->reply.body);
    request->reply.status = fl_http_errors[code].status;
    request->route->dialect->error(&request->reply, code, message);
    sent(request->reply.status, request->reply.type);
}

void fl_reply_fail(fl_http_request *request, const fletch_error *error) {
    fl_reply_error(request, FL_HTTP_UNAVAILABLE, "%s", error->message);
}

/* What the real library checks of a text, and a row of numbers for it. */
static int take_text(fletch_request *work, size_t i, fletch_outcome *outcome) {
    float *row = work->spans != NULL ? NULL : work->out.data; /* NULL: of a kind that has none */
    for (size_t k = 0; row != NULL && k < work->out.cols; k++)
        row[i * work->out.cols + k] = (float)(i + k) / 7.0f - 1.0f;
    size_t         count  = work->ids != NULL
                                ? (size_t)(work->texts.offsets64[i + 1] - work->texts.offsets64[i])
                                : work->texts.lengths[i];
    bool           listed = work->ids != NULL || (work->are_ids != NULL && work->are_ids[i]);
    const int32_t *ids    = !listed ? NULL
                            : work->ids != NULL
                                ? work->ids + work->texts.offsets64[i]
                                : (const int32_t *)(const void *)work->texts.pointers[i];
    for (size_t k = 0; listed && k < count; k++) {
        if (ids[k] >= VOCABULARY) {
            outcome->error = (fletch_error){FLETCH_EINVAL, i, "an id outside of the vocabulary"};
            return -1;
        }
    }
    if (!listed)
        must(fl_utf8_valid_prefix(work->texts.pointers[i], count) == count);
    if (work->second != NULL) {
        must(work->second->count == work->texts.count && work->query == NULL);
        must(fl_utf8_valid_prefix(work->second->pointers[i], work->second->lengths[i]) ==
             work->second->lengths[i]);
    }
    work->options->tokens[i]    = (uint32_t)(count < MAX_LENGTH ? count : MAX_LENGTH);
    work->options->truncated[i] = count > MAX_LENGTH;
    if (count > MAX_LENGTH && work->options->truncate == FLETCH_TRUNCATE_ERROR) {
        outcome->error = (fletch_error){FLETCH_ETOOLONG, i, "too long"};
        return -1;
    }
    outcome->tokens += work->options->tokens[i];
    return 0;
}

/* As many vectors a text as it has tokens, all of them the same, or a weight of every dimension; what they
 * take was foreseen. */
static fletch_lists *make_lists(const fletch_request *work, fletch_kind kind, uint64_t *bytes) {
    static const float   values[MAX_LENGTH * DIMENSIONS];
    static const int32_t ids[DIMENSIONS];
    bool                 sparse  = kind == FLETCH_KIND_SPARSE;
    size_t               columns = sparse ? 1 : DIMENSIONS, texts = work->texts.count;
    fletch_list         *list  = calloc(texts + 1, sizeof *list);
    fletch_lists        *lists = calloc(1, sizeof *lists);
    for (size_t i = 0; i < texts; i++) {
        size_t count = sparse ? DIMENSIONS : work->options->tokens[i];
        list[i]      = (fletch_list){.count = count, .ids = ids, .values = values};
        *bytes += count * (columns + 1) * sizeof(float);
    }
    must(*bytes <= work->options->list_bytes);
    *lists = (fletch_lists){.count = texts, .columns = columns, .list = list};
    return lists;
}

static void free_lists(fletch_lists *lists) {
    if (lists != NULL) {
        free((void *)(uintptr_t)lists->list);
        free(lists);
    }
}

static void must_fit(const fletch_matrix *out, size_t texts) {
    must(out->cols >= 1 && out->cols <= DIMENSIONS && out->rows == texts);
}

/* The lists of one kind, or several outputs. */
static void make_results(fletch_request *work, fletch_outcome *outcome) {
    uint64_t bytes = 0;
    if (work->kind == FLETCH_KIND_TOKENS || work->kind == FLETCH_KIND_SPARSE)
        outcome->lists = make_lists(work, work->kind, &bytes);
    for (size_t i = 0; i < work->output_count; i++) {
        fletch_output *output = &work->outputs[i];
        if (output->kind != FLETCH_KIND_DENSE) {
            output->lists = make_lists(work, output->kind, &bytes);
        } else {
            must_fit(&output->out, work->texts.count);
            memset(output->out.data, 0, work->texts.count * output->out.stride);
        }
    }
}

/* Documents with spans: each has one at least, inside of it and between characters. A row for each. */
static void take_spans(const fletch_request *work) {
    size_t row = 0;
    for (size_t d = 0; d < work->texts.count; d++) {
        must(work->span_counts[d] > 0);
        for (size_t i = 0; i < work->span_counts[d]; i++, row++) {
            const char       *text = work->texts.pointers[d];
            const fletch_span span = work->spans[row];
            must(span.begin < span.end && span.end <= work->texts.lengths[d]);
            must(fl_utf8_valid_prefix(text + span.begin, span.end - span.begin) ==
                 span.end - span.begin);
            memset((char *)work->out.data + row * work->out.stride, 0, work->out.stride);
        }
    }
    must(row == work->out.rows);
}

/* Half of the bodies find a sparse model. */
bool fl_served_is_late(const fl_served *model) {
    (void)model;
    return false;
}

bool fl_served_ranks(const fl_served *model) {
    return model->info.labels == 1;
}

bool fl_served_is_sparse(const fl_served *model) {
    must(model == &served);
    return run.request.body_size % 2 == 1;
}

int fl_request_submit(fl_http_request *request, fl_served *model, fletch_request *work,
                      fl_done_fn done, fletch_error *error) {
    (void)error;
    must(model == &served && work->size == sizeof *work);
    must_fit(&work->out, work->kind == FLETCH_KIND_SPANS ? work->out.rows : work->texts.count);
    fletch_outcome outcome = {0};
    if (work->kind == FLETCH_KIND_SPANS)
        take_spans(work);
    for (size_t i = 0; i < work->texts.count && take_text(work, i, &outcome) == 0; i++) {
    }
    if (outcome.error.code == FLETCH_OK)
        make_results(work, &outcome);
    done(request, &outcome);
    free_lists(outcome.lists);
    for (size_t i = 0; i < work->output_count; i++)
        free_lists(work->outputs[i].lists);
    return 0;
}

/* ---- The run ------------------------------------------------------------------------------------ */

static const fl_route *find(const fl_route *table, const char *path) {
    while (strcmp(table->path, path) != 0)
        table++;
    return table;
}

/* From 236 on documents in chunks, /score and the routes of the store, so that the corpus of the others stays what it
 * is. */
static const fl_route *choose(unsigned index) {
    if (index >= 240)
        return &fl_routes_seed[index & 1]; /* /add, /search */
    if (index >= 238)
        return &fl_routes_score[0];
    if (index >= 236)
        return index == 237 ? &fl_routes_voyage[0] : find(fl_routes_tei, "/embed_chunks");
    static const fl_route *const tables[] = {fl_routes_openai, fl_routes_tei, fl_routes_ollama,
                                             fl_routes_cohere};
    const fl_route              *posts[64];
    size_t                       count = 0;
    for (size_t t = 0; t < 4; t++) {
        for (const fl_route *route = tables[t]; route->method != NULL; route++) {
            bool own = strcmp(route->path, "/embed_chunks") == 0;
            if (strcmp(route->method, "POST") == 0 && !own && count < 64)
                posts[count++] = route;
        }
    }
    return posts[index % count];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    memset(&run, 0, sizeof run);
    run.headers           = data[1] ^ 1u; /* most inputs are JSON */
    run.request.route     = choose(data[0]);
    const char *path      = run.request.route->path; /* each route has a model that it can use */
    bool        ranks     = strstr(path, "rerank") != NULL || strstr(path, "score") != NULL;
    served.info.labels    = ranks ? 1 : strcmp(path, "/predict") == 0 ? 3 : 0;
    run.request.body_size = size - 2;
    run.request.body      = malloc(size - 1);
    memcpy(run.request.body, data + 2, size - 2);
    run.request.body[size - 2] = '\0';
    run.request.tail           = "";
    run.request.server         = &server;
    memcpy(&server.store, &(void *){&never_read}, sizeof server.store);
    run.request.route->handler(&run.request);
    must(run.replies == 1);
    fl_buf_free(&run.request.reply.body);
    free(run.request.body);
    for (size_t i = 0; i < run.block_count; i++)
        free(run.blocks[i]);
    return 0;
}
