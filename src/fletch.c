/* SPDX-License-Identifier: Apache-2.0 */
/* fletch.c - the public functions: check what the caller passed, then call the room that does it.
 *
 * Role    Everything here is declared in include/fletch.h, whose comments are the contract; the
 *         configuration's functions live in src/config beside the option table.
 * Threads As the header says; no state here.
 * Proof   tests/unit/test_fletch.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "hub/hub.h"
#include "requests/chunks.h"
#include "requests/open_model.h"
#include "requests/submit.h"
#include "requests/tokens.h"
#include "requests/wait.h"
#include "results/row_stages.h"
#include "session/canary.h"
#include "session/describe.h"
#include "session/devices.h"
#include "session/gguf_write.h"
#include "session/open.h"
#include "session/vector_id.h"

const char *fletch_version(void) {
    return FLETCH_VERSION;
}

const char *fletch_status_text(int status) {
    switch (status) {
    case FLETCH_OK: return "no error";
#define STATUS_TEXT(name, value, text)                                                             \
    case FLETCH_##name: return text;
        FLETCH_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default: return "unknown status";
    }
}

const char *fletch_status_name(int status) {
    switch (status) {
    case FLETCH_OK: return "OK";
#define STATUS_NAME(name, value, text)                                                             \
    case FLETCH_##name: return #name;
        FLETCH_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default: return "UNKNOWN";
    }
}

/* A mistake of the caller's. */
static int __attribute__((format(printf, 2, 3)))
refuse(fletch_error *error, const char *format, ...) {
    char    message[sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "%s", message);
}

/* No struct will ever be this large: a larger size is memory that nobody initialised. */
static const size_t struct_bytes_max = 1 << 16;

/* Fill the caller's struct, which may be older or newer than ours: what both know; the rest of a newer one is
 * zero. Its size becomes the bytes that were filled. */
static void give_struct(void *theirs, const void *own, size_t own_size) {
    size_t size;
    memcpy(&size, theirs, sizeof size);
    size_t filled = size < own_size ? size : own_size;
    memset((char *)theirs + filled, 0, size - filled);
    memcpy(theirs, own, filled);
    memcpy(theirs, &filled, sizeof filled);
}

static bool has_size(const size_t *size) {
    return *size >= sizeof *size && *size <= struct_bytes_max;
}

/* Copy the caller's options over the defaults: min(sizes) bytes; a longer
 * struct is from a later header and is fine as long as what this library does
 * not know is zero. */
static int copy_options(void *own, size_t own_size, const void *theirs, fletch_error *error) {
    size_t size = 0;
    if (!theirs)
        return FLETCH_OK;
    memcpy(&size, theirs, sizeof size);
    if (size < sizeof size || size > struct_bytes_max)
        return refuse(error, "the options have no size; initialise them with the …_INIT macro");
    for (size_t i = own_size; i < size; i++)
        if (((const unsigned char *)theirs)[i] != 0)
            return fl_fail(error, FLETCH_EUNSUPPORTED, i,
                           "the options set a field unknown to fletch %s; use a newer library",
                           FLETCH_VERSION);
    memcpy(own, theirs, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    return FLETCH_OK;
}

/* An enum of the caller's is any int: one that a later header adds must not be
 * read as the default. */
static int check_truncate(fletch_truncate how, fletch_error *error) {
    if ((int)how >= FLETCH_TRUNCATE_DEFAULT && (int)how <= FLETCH_TRUNCATE_ERROR)
        return FLETCH_OK;
    return refuse(error, "truncate is %d; use FLETCH_TRUNCATE_…", (int)how);
}

int fletch_row_convert(void *out, const float *row, size_t cols, fletch_dtype dtype) {
    if (!out || !row || fletch_row_bytes(cols, dtype) == 0 || !fl_all_finite(row, cols))
        return FLETCH_EINVAL;
    fl_row_store(row, cols, dtype, out);
    return FLETCH_OK;
}

static int open_model(fletch_model **model, const char *name, const fletch_config *config,
                      fl_depth depth, fletch_error *error) {
    if (!model)
        return refuse(error, "fletch_open: model is NULL");
    fl_error_clear(error);
    return fl_session_open(model, name, config, depth, error);
}

int fletch_open(fletch_model **model, const char *folder_or_id, const fletch_config *config,
                fletch_error *error) {
    return open_model(model, folder_or_id, config, FL_DEPTH_ENGINE, error);
}

int fletch_open_tokenizer(fletch_model **model, const char *folder_or_id,
                          const fletch_config *config, fletch_error *error) {
    return open_model(model, folder_or_id, config, FL_DEPTH_TOKENIZER, error);
}

void fletch_close(fletch_model *model) {
    fl_session_close(model);
}

size_t fletch_dimensions(const fletch_model *model) {
    return model ? model->results.dimensions : 0;
}

static int check_activation(fletch_activation how, fletch_error *error) {
    if ((int)how >= FLETCH_ACTIVATION_DEFAULT && (int)how <= FLETCH_ACTIVATION_SOFTMAX)
        return FLETCH_OK;
    return refuse(error, "activation is %d; use FLETCH_ACTIVATION_…", (int)how);
}

static int check_texts(const fletch_texts *texts, fletch_error *error) {
    int forms = (texts->pointers != NULL) + (texts->offsets32 != NULL) + (texts->offsets64 != NULL);
    if (texts->count > 0 && forms != 1)
        return refuse(error,
                      "exactly one of texts->pointers, offsets32, offsets64 must be set, not %d",
                      forms);
    return FLETCH_OK;
}

static int check_matrix(const fletch_matrix *out, size_t rows, fletch_error *error) {
    if (rows > 0 && !out->data)
        return refuse(error, "the matrix is NULL");
    if (out->rows < rows)
        return refuse(error, "the matrix has %zu rows for %zu texts", out->rows, rows);
    size_t row_bytes = fletch_row_bytes(out->cols, out->dtype);
    if (row_bytes == 0)
        return refuse(error, "the matrix has no columns or an unknown dtype %d", (int)out->dtype);
    if (out->stride < row_bytes)
        return refuse(error, "the stride of %zu bytes is less than a row of %zu bytes", out->stride,
                      row_bytes);
    if (rows > 0 && rows - 1 > (PTRDIFF_MAX - row_bytes) / out->stride)
        return refuse(error, "%zu rows at a stride of %zu bytes are larger than memory", rows,
                      out->stride);
    return FLETCH_OK;
}

/* The kind, and what it needs besides texts. */
static int check_kind(const fletch_request *request, fletch_error *error) {
    bool pairs = request->query || request->second;
    if ((unsigned)request->kind > FLETCH_KIND_SEVERAL)
        return refuse(error, "the kind is %d; use FLETCH_KIND_…", (int)request->kind);
    if (pairs && (request->kind != FLETCH_KIND_SCORES || request->ids || request->are_ids))
        return refuse(error, "a query or second texts need FLETCH_KIND_SCORES and texts");
    if (request->query && request->second)
        return refuse(error, "second texts exclude a query");
    if (request->second && request->second->count != request->texts.count)
        return refuse(error, "%zu texts, but %zu second texts: the numbers must match",
                      request->texts.count, request->second->count);
    return request->second ? check_texts(request->second, error) : FLETCH_OK;
}

/* Rows that a request fills: one a text, or one a span. */
static int count_rows(const fletch_request *request, size_t *rows, fletch_error *error) {
    *rows = request->texts.count;
    if ((request->spans != NULL) != (request->kind == FLETCH_KIND_SPANS))
        return refuse(error, "spans need FLETCH_KIND_SPANS, and the reverse");
    if (request->kind != FLETCH_KIND_SPANS)
        return FLETCH_OK;
    if (!request->span_counts || request->ids || request->are_ids || request->options->status)
        return refuse(error,
                      "spans need span_counts and documents as text, without options.status");
    *rows = 0;
    for (size_t i = 0; i < request->texts.count; i++)
        if (fl_add_overflow(*rows, request->span_counts[i], rows))
            return refuse(error, "the number of spans is larger than memory");
    return FLETCH_OK;
}

static fletch_output *output_at(const fletch_request *request, size_t index) {
    return (fletch_output *)(void *)((char *)request->outputs + index * request->outputs->size);
}

static int check_output(const fletch_request *request, size_t index, fletch_error *error) {
    fletch_output one = FLETCH_OUTPUT_INIT;
    FL_TRY(copy_options(&one, sizeof one, output_at(request, index), error));
    if (!fl_kind_is_output(one.kind))
        return refuse(error, "output %zu is of kind %d, which no output has", index, (int)one.kind);
    for (size_t k = 0; k < index && one.kind != FLETCH_KIND_DENSE; k++)
        if (one.kind == output_at(request, k)->kind)
            return refuse(error, "outputs %zu and %zu are the same", k, index);
    return one.kind == FLETCH_KIND_DENSE ? check_matrix(&one.out, request->texts.count, error)
                                         : FLETCH_OK;
}

/* The outputs of a request, whose lists are NULL from here on. */
static int check_outputs(const fletch_request *request, fletch_error *error) {
    const size_t count = request->output_count, size = count > 0 ? request->outputs->size : 0;
    if (count == 0)
        return refuse(error, "no output requested; name at least one");
    if (size < sizeof *request->outputs || size > struct_bytes_max)
        return refuse(error, "the outputs have no size; initialise each with FLETCH_OUTPUT_INIT");
    for (size_t i = 0; i < count; i++) {
        if (output_at(request, i)->size != size)
            return refuse(error, "output %zu has another size than the first", i);
        output_at(request, i)->lists = NULL;
    }
    if (request->options->dimensions != 0)
        return refuse(error,
                      "outputs have their own dimensions (out.cols); leave options.dimensions 0");
    for (size_t i = 0; i < count; i++)
        FL_TRY(check_output(request, i, error));
    return FLETCH_OK;
}

/* Where results go. */
static int check_out(const fletch_request *request, fletch_error *error) {
    size_t rows;
    if ((request->outputs != NULL) != (request->kind == FLETCH_KIND_SEVERAL))
        return refuse(error, "outputs need FLETCH_KIND_SEVERAL, and the reverse");
    if (request->kind == FLETCH_KIND_SEVERAL)
        return check_outputs(request, error);
    if (fl_kind_has_lists(request->kind))
        return FLETCH_OK;
    FL_TRY(count_rows(request, &rows, error));
    return check_matrix(&request->out, rows, error);
}

/* The request's own copy; `options` are the defaults. */
static int check_request(const fletch_model *model, fletch_request *request,
                         fletch_embed_options *options, fletch_error *error) {
    if (!model->has_engine)
        return refuse(error, "only the tokenizer of this model was opened; use fletch_open");
    FL_TRY(copy_options(options, sizeof *options, request->options, error));
    request->options = options;
    FL_TRY(check_truncate(options->truncate, error));
    FL_TRY(check_activation(options->activation, error));
    FL_TRY(check_texts(&request->texts, error));
    FL_TRY(check_kind(request, error));
    if (request->ids && request->texts.pointers)
        return refuse(error, "fletch_submit: ids need offsets64 or offsets32, not pointers");
    if (request->are_ids && request->texts.count > 0 && (request->ids || !request->texts.lengths))
        return refuse(error,
                      "fletch_submit: are_ids needs texts with pointers and lengths, and no ids");
    if ((unsigned)request->lane > FLETCH_LANE_BULK)
        return refuse(error, "fletch_submit: lane is %d", (int)request->lane);
    return check_out(request, error);
}

/* A request of one of the calls that wait. */
static int wait_for(fletch_model *model, const fletch_request *request, fletch_lists **lists,
                    fletch_error *error) {
    fletch_request       own     = *request;
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fl_error_clear(error);
    FL_TRY(check_request(model, &own, &options, error));
    return fl_requests_wait(model, &own, lists, error);
}

int fletch_embed(fletch_model *model, const fletch_texts *texts,
                 const fletch_embed_options *options, fletch_matrix *out, fletch_error *error) {
    fletch_request request = FLETCH_REQUEST_INIT;
    if (!model || !texts || !out)
        return refuse(error, "fletch_embed: %s is NULL",
                      !model   ? "model"
                      : !texts ? "texts"
                               : "the matrix");
    request.texts   = *texts;
    request.options = options;
    request.out     = *out;
    return wait_for(model, &request, NULL, error);
}

static int embed_lists(fletch_model *model, fletch_kind kind, const fletch_texts *texts,
                       const fletch_embed_options *options, fletch_lists **lists,
                       fletch_error *error) {
    fletch_request request = FLETCH_REQUEST_INIT;
    if (!lists)
        return refuse(error, "lists is NULL");
    *lists = NULL;
    if (!model || !texts)
        return refuse(error, "the model or texts are NULL");
    request.kind    = kind;
    request.texts   = *texts;
    request.options = options;
    return wait_for(model, &request, lists, error);
}

int fletch_embed_tokens(fletch_model *model, const fletch_texts *texts,
                        const fletch_embed_options *options, fletch_lists **lists,
                        fletch_error *error) {
    return embed_lists(model, FLETCH_KIND_TOKENS, texts, options, lists, error);
}

int fletch_embed_sparse(fletch_model *model, const fletch_texts *texts,
                        const fletch_embed_options *options, fletch_lists **lists,
                        fletch_error *error) {
    return embed_lists(model, FLETCH_KIND_SPARSE, texts, options, lists, error);
}

void fletch_lists_free(fletch_lists *lists) {
    fl_lists_free((fl_lists *)(void *)lists);
}

int fletch_embed_spans(fletch_model *model, const fletch_texts *documents, const fletch_span *spans,
                       const size_t *span_counts, const fletch_embed_options *options,
                       fletch_matrix *out, fletch_error *error) {
    fletch_request request = FLETCH_REQUEST_INIT;
    if (!model || !documents || !spans || !out)
        return refuse(error, "fletch_embed_spans: model, documents, spans or the matrix is NULL");
    request.kind        = FLETCH_KIND_SPANS;
    request.texts       = *documents;
    request.spans       = spans;
    request.span_counts = span_counts;
    request.options     = options;
    request.out         = *out;
    return wait_for(model, &request, NULL, error);
}

int fletch_embed_outputs(fletch_model *model, const fletch_texts *texts,
                         const fletch_embed_options *options, fletch_output *outputs, size_t count,
                         fletch_error *error) {
    fletch_request request = FLETCH_REQUEST_INIT;
    if (!model || !texts || !outputs)
        return refuse(error, "fletch_embed_outputs: model, texts or outputs is NULL");
    request.kind         = FLETCH_KIND_SEVERAL;
    request.texts        = *texts;
    request.options      = options;
    request.outputs      = outputs;
    request.output_count = count;
    return wait_for(model, &request, NULL, error);
}

int fletch_rerank(fletch_model *model, const char *query, size_t query_size,
                  const fletch_texts *documents, const fletch_embed_options *options, float *scores,
                  fletch_error *error) {
    fletch_request request = FLETCH_REQUEST_INIT;
    if (!model || !documents)
        return refuse(error, "fletch_rerank: model or documents is NULL");
    if (!query)
        return refuse(error, "fletch_rerank: the query is NULL");
    request.kind       = FLETCH_KIND_SCORES;
    request.query      = query;
    request.query_size = query_size;
    request.texts      = *documents;
    request.options    = options;
    request.out        = fletch_matrix_f32(scores, documents->count, 1);
    return wait_for(model, &request, NULL, error);
}

int fletch_classify(fletch_model *model, const fletch_texts *texts, const fletch_texts *second,
                    const fletch_embed_options *options, fletch_matrix *out, fletch_error *error) {
    fletch_request request = FLETCH_REQUEST_INIT;
    if (!model || !texts || !out)
        return refuse(error, "fletch_classify: model, texts or the matrix is NULL");
    request.kind    = FLETCH_KIND_SCORES;
    request.texts   = *texts;
    request.second  = second;
    request.options = options;
    request.out     = *out;
    return wait_for(model, &request, NULL, error);
}

const char *fletch_label_at(const fletch_model *model, size_t index) {
    return model && index < model->model->label_count ? model->model->labels[index] : NULL;
}

int fletch_submit(fletch_model *model, const fletch_request *request, fletch_done_fn done,
                  void *user, fletch_ticket *ticket, fletch_error *error) {
    fletch_request       own     = FLETCH_REQUEST_INIT;
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    if (ticket)
        *ticket = 0;
    if (!model || !request || !done)
        return refuse(error, "fletch_submit: model, request or done is NULL");
    fl_error_clear(error);
    FL_TRY(copy_options(&own, sizeof own, request, error));
    FL_TRY(check_request(model, &own, &options, error));
    return fl_requests_submit(model, &own, done, user, ticket, error);
}

int fletch_cancel(fletch_model *model, fletch_ticket ticket) {
    return model ? fl_requests_cancel(model, ticket) : FLETCH_EINVAL;
}

int fletch_model_reopen(fletch_model *model, const fletch_config *config, fletch_error *error) {
    if (!model || !model->has_engine)
        return refuse(error,
                      "fletch_model_reopen: the model is NULL or only its tokenizer was opened");
    fl_error_clear(error);
    return fl_session_reopen(model, config, error);
}

int fletch_warm(fletch_model *model, fletch_error *error) {
    if (!model || !model->has_engine)
        return refuse(error, "fletch_warm: the model is NULL or only its tokenizer was opened");
    fl_error_clear(error);
    return fl_session_warm(model, error);
}

static int profile_of(fletch_model *model, fletch_error *error) {
    fl_error_clear(error);
    if (model == NULL || model->scheduler.trace == NULL)
        return refuse(error,
                      "no trace: set profile.file, and profile.start = false to start it later");
    return FLETCH_OK;
}

int fletch_profile_start(fletch_model *model, fletch_error *error) {
    FL_TRY(profile_of(model, error));
    return fl_trace_start(model->scheduler.trace, error);
}

int fletch_profile_stop(fletch_model *model, fletch_error *error) {
    FL_TRY(profile_of(model, error));
    return fl_trace_stop(model->scheduler.trace, error);
}

int fletch_stats_get(fletch_model *model, fletch_stats *stats, fletch_error *error) {
    fletch_stats own = {0};
    if (!model || !stats || !has_size(&stats->size))
        return refuse(error, "fletch_stats_get: model or stats is NULL, or stats->size is not set");
    fl_session_stats(model, &own);
    give_struct(stats, &own, sizeof own);
    return FLETCH_OK;
}

int64_t fletch_stats_json(fletch_model *model, char *text, size_t capacity, fletch_error *error) {
    fletch_stats         stats   = {.size = sizeof stats};
    fletch_device_stats *devices = NULL;
    size_t               count   = 0;
    FL_TRY(fletch_stats_get(model, &stats, error));
    FL_TRY(fl_session_devices(model, &devices, &count, error));
    int64_t length = fl_stats_write_json(&stats, devices, count, text, capacity);
    fl_free(devices);
    return length < 0 ? fl_fail_nomem(error, capacity, "the statistics") : length;
}

int fletch_device_stats_get(fletch_model *model, size_t index, fletch_device_stats *stats,
                            fletch_error *error) {
    if (!model || !stats || !has_size(&stats->size))
        return refuse(error,
                      "fletch_device_stats_get: model or stats is NULL, or stats->size is not set");
    fletch_device_stats own;
    if (!fl_session_device(model, index, &own))
        return fl_fail(error, FLETCH_ENOTFOUND, index, "the model has no replica %zu", index);
    give_struct(stats, &own, sizeof own);
    return FLETCH_OK;
}

int fletch_tokenize(fletch_model *model, const char *text, size_t size,
                    const fletch_tokenize_options *options, fletch_tokens **tokens,
                    fletch_error *error) {
    if (tokens)
        *tokens = NULL;
    if (!model || !tokens || (!text && size > 0))
        return refuse(error, "fletch_tokenize: model, text or tokens is NULL");
    fl_error_clear(error);
    fletch_tokenize_options own = FLETCH_TOKENIZE_OPTIONS_INIT;
    FL_TRY(copy_options(&own, sizeof own, options, error));
    FL_TRY(check_truncate(own.truncate, error));
    if (own.pair_truncate < 0 || own.pair_truncate > FLETCH_PAIR_ONLY_SECOND)
        return refuse(error, "fletch_tokenize: pair_truncate %d is not one of 0 to 2",
                      own.pair_truncate);
    return fl_requests_tokenize(model, text ? text : "", size, &own, tokens, error);
}

void fletch_tokens_free(fletch_tokens *tokens) {
    fl_free(tokens);
}

int fletch_chunk(fletch_model *model, const char *text, size_t size,
                 const fletch_chunk_options *options, fletch_chunks **chunks, fletch_error *error) {
    if (chunks)
        *chunks = NULL;
    if (!model || !chunks || (!text && size > 0))
        return refuse(error, "fletch_chunk: model, text or chunks is NULL");
    fl_error_clear(error);
    fletch_chunk_options own = FLETCH_CHUNK_OPTIONS_INIT;
    FL_TRY(copy_options(&own, sizeof own, options, error));
    if ((int)own.by < FLETCH_CHUNK_BY_SENTENCES || (int)own.by > FLETCH_CHUNK_BY_MARKDOWN)
        return refuse(error, "by is %d; use FLETCH_CHUNK_BY_…", (int)own.by);
    return fl_requests_chunk(model, text ? text : "", size, &own, chunks, error);
}

void fletch_chunks_free(fletch_chunks *chunks) {
    fl_free(chunks);
}

const char *fletch_token_text(const fletch_model *model, int32_t id) {
    return model ? fl_tokenizer_token(model->tokenizer, id, NULL) : NULL;
}

int64_t fletch_decode(const fletch_model *model, const int32_t *ids, size_t count,
                      int skip_special_tokens, char *text, size_t capacity, fletch_error *error) {
    if (!model || (!ids && count > 0) || (!text && capacity > 0))
        return refuse(error, "fletch_decode: model, ids or text is NULL");
    fl_error_clear(error);
    return fl_requests_decode(model, ids, count, skip_special_tokens != 0, text, capacity, error);
}

int fletch_model_info_get(fletch_model *model, fletch_model_info *info, fletch_error *error) {
    fletch_model_info own = {0};
    if (!model || !info || !has_size(&info->size))
        return refuse(error,
                      "fletch_model_info_get: model or info is NULL, or info->size is not set");
    fl_session_info(model, &own);
    give_struct(info, &own, sizeof own);
    return FLETCH_OK;
}

uint64_t fletch_text_flops(const fletch_model *model, uint32_t tokens) {
    return model && model->model ? fl_encoder_flops(&model->model->encoder.desc, tokens) : 0;
}

const fletch_prompt *fletch_prompt_at(const fletch_model *model, size_t index) {
    return model && index < model->model->prompt_count ? &model->model->prompts[index] : NULL;
}

const char *fletch_model_file_at(const fletch_model *model, size_t index) {
    return model ? fl_model_file_at(model->model, index) : NULL;
}

int fletch_model_describe(fletch_model *model, fletch_property_fn fn, void *user) {
    return model && fn ? fl_session_describe(model, fn, user) : 0;
}

int fletch_model_fingerprint(fletch_model *model, char out[65], fletch_error *error) {
    fl_error_clear(error);
    if (!out)
        return refuse(error, "the buffer for the fingerprint is NULL");
    out[0] = '\0';
    return model ? fl_vector_fingerprint(model, out, error) : refuse(error, "the model is NULL");
}

static int check_described(const fletch_model *model, fletch_error *error) {
    fl_error_clear(error);
    if (!model)
        return refuse(error, "the model is NULL");
    return model->has_engine ? FLETCH_OK
                             : refuse(error, "only the tokenizer of this model was opened; use "
                                             "fletch_open");
}

int fletch_vector_describe(fletch_model *model, fletch_property_fn fn, void *user,
                           fletch_error *error) {
    FL_TRY(check_described(model, error));
    return fn ? fl_vector_describe(model, fn, user, error)
              : refuse(error, "fletch_vector_describe: fn is NULL");
}

int fletch_vector_id(fletch_model *model, const fletch_embed_options *options, fletch_dtype dtype,
                     char out[65], fletch_error *error) {
    fletch_embed_options own = FLETCH_EMBED_OPTIONS_INIT;
    fl_error_clear(error);
    if (!out)
        return refuse(error, "the buffer for the vector id is NULL");
    out[0] = '\0';
    FL_TRY(check_described(model, error));
    FL_TRY(copy_options(&own, sizeof own, options, error));
    FL_TRY(check_truncate(own.truncate, error));
    if ((unsigned)dtype > FLETCH_UBINARY)
        return refuse(error, "fletch_vector_id: dtype is %d", (int)dtype);
    return fl_vector_id(model, &own, dtype, out, error);
}

const char *fletch_canary_text(size_t index) {
    return fl_canary_text(index);
}

int fletch_system_describe(const fletch_config *config, fletch_property_fn fn, void *user) {
    if (!fn)
        return 0;
    fletch_config *own = config ? NULL : fletch_config_new();
    if (!config && !own)
        return FLETCH_ENOMEM;
    int stop = fl_system_describe(config ? config : own, fn, user);
    fletch_config_free(own);
    return stop;
}

int fletch_gguf_write(const fletch_config *config, const char *folder_or_id, const char *path,
                      const char *type, fletch_progress_fn progress, void *user,
                      fletch_error *error) {
    fl_error_clear(error);
    if (!path)
        return refuse(error, "fletch_gguf_write: path is NULL");
    return fl_session_gguf_write(folder_or_id, config, path, type ? type : "Q8_0", progress, user,
                                 error);
}

/* ---- The hub cache: the options of a configuration (or the defaults) for the length of a call ---- */

typedef struct hub_call {
    fl_hub_options options;
    fl_config     *own; /* defaults, when the caller gave none */
    const char    *name;
} hub_call;

static int hub_begin(hub_call *call, const fletch_config *config, const char *name,
                     fletch_error *error) {
    fl_error_clear(error);
    call->own = config ? NULL : fletch_config_new();
    if (!config && !call->own)
        return fl_fail_nomem(error, sizeof *call, "a configuration");
    const fl_config *c = config ? config : call->own;
    call->name         = name ? name : fletch_config_model(c);
    call->options      = (fl_hub_options){
             .cache_dir     = fl_config_text(c, FL_KEY_MODEL_CACHE_DIR),
             .revision      = fl_config_text(c, FL_KEY_MODEL_REVISION),
             .offline       = fl_config_bool(c, FL_KEY_MODEL_OFFLINE),
             .auto_download = fl_config_bool(c, FL_KEY_MODEL_AUTO_DOWNLOAD),
             .log           = fl_config_log(c),
    };
    return FLETCH_OK;
}

/* The call is over: what it gave. */
static int hub_end(const hub_call *call, int status) {
    fletch_config_free(call->own);
    return status;
}

int fletch_hub_pull(const fletch_config *config, const char *id, fletch_progress_fn progress,
                    void *user, char *path, size_t capacity, fletch_error *error) {
    hub_call call;
    FL_TRY(hub_begin(&call, config, id, error));
    return hub_end(&call,
                   fl_hub_pull(call.name, &call.options, progress, user, path, capacity, error));
}

int fletch_hub_path(const fletch_config *config, const char *id, char *path, size_t capacity,
                    fletch_error *error) {
    hub_call call;
    FL_TRY(hub_begin(&call, config, id, error));
    return hub_end(&call, fl_hub_path(call.name, &call.options, path, capacity, error));
}

int fletch_hub_list(const fletch_config *config, fletch_hub_entry_fn fn, void *user,
                    fletch_error *error) {
    if (!fn)
        return refuse(error, "fletch_hub_list: fn is NULL");
    hub_call call;
    FL_TRY(hub_begin(&call, config, "", error));
    return hub_end(&call, fl_hub_list(&call.options, fn, user, error));
}

int fletch_hub_verify(const fletch_config *config, const char *id, fletch_property_fn fn,
                      void *user, fletch_error *error) {
    hub_call call;
    FL_TRY(hub_begin(&call, config, id, error));
    return hub_end(&call, fl_hub_verify(call.name, &call.options, fn, user, error));
}

int fletch_hub_remove(const fletch_config *config, const char *id, uint64_t *freed,
                      fletch_error *error) {
    hub_call call;
    FL_TRY(hub_begin(&call, config, id, error));
    return hub_end(&call, fl_hub_remove(call.name, &call.options, freed, error));
}
