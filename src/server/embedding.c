/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c - what all embedding routes share between a parsed body and the words of the answer.
 *
 * Role    and In/Out: embedding.h.
 * Method  Texts go to the library as pointers into the body, so nothing is copied. One float32 matrix in
 *         request memory takes the rows; other element types are made from it while writing. How large an
 *         answer may get is bounded here (FL_ANSWER_MAX) and not by a number of texts: the library
 *         splits a request of any size into batches.
 * Errors  A fault of a text (too long, an unknown id) goes to the dialect's refuse; everything else that the
 *         library says goes through fl_reply_fail. A row that is not finite is never sent: 500.
 * Memory  request memory. Threads: handler first, `embedded` later on whatever thread ends the work.
 * Proof   tests/server/test_openai.py, test_tei.py, test_ollama.py, test_cohere.py. */
#include "server/embedding.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/utf8.h"
#include "server/server_internal.h"

enum { FLOAT_TEXT_BYTES = 12, WEIGHT_TEXT = 40, RANKED_TEXT = 80 };
enum { WEIGHT = sizeof(int32_t) + sizeof(float) };

/* ---- Reading --------------------------------------------------------------------------------- */

/* A Content-Type that is "application/json" (or …+json), or absent. */
static bool is_json(const fl_http_request *request, bool when_absent) {
    const char *type = fl_request_header(request, "content-type");
    if (type == NULL || type[0] == '\0')
        return when_absent;
    size_t size = strcspn(type, "; \t");
    if (strncasecmp(type, "application/", 12) != 0 || size < 16)
        return false;
    return size == 16 ? strncasecmp(type + 12, "json", 4) == 0
                      : strncasecmp(type + size - 5, "+json", 5) == 0;
}

fl_job *fl_job_parse(fl_http_request *request, const fl_style *style, const fl_field *fields) {
    const fl_faults *faults = style->faults;
    if (request->work != NULL) /* it is read in place, so once */
        return request->work;
    if (faults->type.text != NULL && !is_json(request, faults->untyped)) {
        fl_reply_error(request, faults->type.code, "%s", faults->type.text);
        return NULL;
    }
    fl_job *job = fl_request_alloc(request, sizeof *job);
    if (job == NULL) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
        return NULL;
    }
    request->work       = job;
    job->request        = request;
    job->style          = style;
    job->ask.dimensions = FL_ASK_NONE;
    fl_json_in in;
    if (!fl_fields_read(request, &in, fields, &job->ask)) {
        const fl_fault *fault = in.mistyped ? &faults->meaning : &faults->syntax;
        fl_reply_error(request, fault->code, "%s%s at line %zu column %zu", fault->text, in.message,
                       in.line, in.column);
        return NULL;
    }
    return job;
}

static bool refuse_header(fl_job *job, const char *message) {
    fl_job_refuse(job, FL_REFUSE_HEADER, FLETCH_NOWHERE, message);
    return false;
}

enum { TRUNCATE, DTYPE, NORMALIZE, DETAILS };
/* The words of the first and of the last two. */
enum { SAID_RIGHT = 1, SAID_LEFT, SAID_ERROR };
enum { SAID_TRUE = 1, SAID_FALSE, SAID_1, SAID_0 };

const fl_ask_header fl_ask_headers[FL_ASK_HEADERS] = {
    [TRUNCATE]  = {"x-fletch-truncate", "right|left|error",
                   "x-fletch-truncate: expected right, left or error"},
    [DTYPE]     = {"x-fletch-dtype", "float32|int8|uint8|binary|ubinary",
                   "x-fletch-dtype: expected float32, int8, uint8, binary or ubinary"},
    [NORMALIZE] = {"x-fletch-normalize", "true|false|1|0",
                   "x-fletch-normalize: expected true or false"},
    [DETAILS] = {"x-fletch-details", "true|false|1|0", "x-fletch-details: expected true or false"},
};

static const char *const dtype_name[] = {"float32", "int8", "uint8", "binary", "ubinary"};

/* What the headers say, by the places of their words, where the body was silent. */
static void take_words(fl_ask *ask, const int said[FL_ASK_HEADERS]) {
    if (said[TRUNCATE] != 0 && ask->truncate == 0 && ask->cut == 0) {
        int side       = said[TRUNCATE] == SAID_LEFT ? FL_WORD_LEFT : FL_WORD_RIGHT;
        ask->truncate  = said[TRUNCATE] == SAID_ERROR ? -1 : 1;
        ask->direction = ask->direction == 0 ? side : ask->direction;
    }
    ask->dtype      = ask->dtype == 0 ? said[DTYPE] : ask->dtype;
    int *switches[] = {[NORMALIZE] = &ask->normalize, [DETAILS] = &ask->details};
    for (int i = NORMALIZE; i <= DETAILS; i++)
        if (said[i] != 0 && *switches[i] == 0)
            *switches[i] = said[i] == SAID_TRUE || said[i] == SAID_1 ? 1 : -1;
}

/* Every header is checked, also where the body has spoken and wins. */
static bool take_headers(fl_job *job) {
    const char *dimensions = fl_request_header(job->request, "x-fletch-dimensions");
    int64_t     wanted;
    int         said[FL_ASK_HEADERS] = {0};
    if (dimensions != NULL && !fl_parse_i64(dimensions, &wanted))
        return refuse_header(job, "x-fletch-dimensions: expected a number");
    if (dimensions != NULL && job->ask.dimensions == FL_ASK_NONE)
        job->ask.dimensions = wanted;
    const char *prompt = fl_request_header(job->request, "x-fletch-prompt-name");
    if (prompt != NULL && job->ask.prompt_name.data == NULL)
        job->ask.prompt_name = (fl_span){prompt, strlen(prompt)};
    for (size_t i = 0; i < FL_ASK_HEADERS; i++) {
        const fl_ask_header *header = &fl_ask_headers[i];
        const char          *value  = fl_request_header(job->request, header->name);
        if (value != NULL) {
            said[i] = fl_word_index(header->words, (fl_span){value, strlen(value)});
            if (said[i] == 0)
                return refuse_header(job, header->wrong);
        }
    }
    take_words(&job->ask, said);
    return true;
}

/* ---- Prompts --------------------------------------------------------------------------------- */

const char *fl_served_prompt(const fl_served *served, fl_span name) {
    const fletch_prompt *prompt;
    for (size_t i = 0; (prompt = fletch_prompt_at(served->model, i)) != NULL; i++)
        if (fl_span_is(name, prompt->name))
            return prompt->text;
    return NULL;
}

/* The name of a prompt as a string that stays, or NULL. */
static const char *prompt_name_of(const fl_served *served, fl_span name) {
    static const char *const always[] = {"query", "document"}; /* also where the folder has none */
    const fletch_prompt     *prompt;
    for (size_t i = 0; name.data != NULL && i < 2; i++)
        if (fl_span_is(name, always[i]))
            return always[i];
    for (size_t i = 0; name.data != NULL && (prompt = fletch_prompt_at(served->model, i)); i++)
        if (fl_span_is(name, prompt->name))
            return prompt->name;
    return NULL;
}

/* ---- The request to the library ---------------------------------------------------------------- */

static fletch_truncate truncate_of(const fl_job *job) {
    const fl_ask *ask = &job->ask;
    if (ask->truncate == -1 || ask->cut == FL_WORD_CUT_NOTHING)
        return FLETCH_TRUNCATE_ERROR;
    if (ask->cut != 0) /* START drops the beginning */
        return ask->cut == FL_WORD_CUT_START ? FLETCH_TRUNCATE_LEFT : FLETCH_TRUNCATE_RIGHT;
    bool left = ask->direction == FL_WORD_LEFT || ask->direction == FL_WORD_LEFT_SMALL;
    if (ask->truncate == 0) { /* the server's rule, unless only the side was named */
        const char *rule = fl_server_option(job->request->server, "model.truncate");
        if (ask->direction == 0 || strcmp(rule, "error") == 0)
            return FLETCH_TRUNCATE_DEFAULT;
    }
    return left ? FLETCH_TRUNCATE_LEFT : FLETCH_TRUNCATE_RIGHT;
}

static bool choose_options(fl_job *job) {
    fletch_embed_options *options = &job->options;
    job->work.options             = options;
    options->size                 = sizeof *options;
    options->normalize            = job->ask.normalize == -1 ? -1 : 1;
    options->truncate             = truncate_of(job);
    options->tokens               = job->tokens;
    options->truncated            = job->truncated;
    options->dimensions = job->columns < job->served->info.dimensions ? (uint32_t)job->columns : 0;
    fl_span name        = job->ask.prompt_name;
    if (name.data == NULL)
        return true;
    /* where queries and documents differ by more than their prompts, the library wants the name */
    if (fl_served_is_late(job->served) || fl_served_is_sparse(job->served))
        options->prompt_name = prompt_name_of(job->served, name);
    else
        options->prompt = fl_served_prompt(job->served, name);
    if (options->prompt == NULL && options->prompt_name == NULL) {
        fl_job_refuse(job, FL_REFUSE_PROMPT, FLETCH_NOWHERE,
                      "the model has no prompt of this name");
        return false;
    }
    return true;
}

static bool choose_columns(fl_job *job) {
    int64_t wanted = job->ask.dimensions;
    job->columns   = job->served->info.dimensions;
    if (wanted == FL_ASK_NONE)
        return true;
    if (wanted < 1 || (uint64_t)wanted > job->columns) {
        fl_job_refuse(job, FL_REFUSE_DIMENSIONS, FLETCH_NOWHERE,
                      wanted < 1 ? "`dimensions` should be positive"
                                 : "`dimensions` is larger than the model's");
        return false;
    }
    job->columns = (size_t)wanted;
    return true;
}

size_t fl_job_texts_max(const fl_served *served) {
    if (fl_served_is_sparse(served))
        return FL_ANSWER_MAX / WEIGHT_TEXT / served->info.dimensions;
    if (fl_served_ranks(served))
        return FL_ANSWER_MAX / RANKED_TEXT;
    return FL_ANSWER_MAX / FLOAT_TEXT_BYTES / served->info.dimensions;
}

static bool refuse_answer(fl_job *job) {
    fl_reply_header(job->request, "x-fletch-limit", "answer=%d", FL_ANSWER_MAX);
    fl_job_refuse(job, FL_REFUSE_TOO_MUCH, FLETCH_NOWHERE,
                  "the answer would be larger than 512 MiB; send fewer texts at once");
    return false;
}

/* Memory for the rows, within what an answer may take. */
static bool take_memory(fl_job *job) {
    size_t cells, bytes;
    bool   too_much = fl_mul_overflow(job->count, job->columns, &cells) != 0 ||
                    fl_mul_overflow(cells, FLOAT_TEXT_BYTES, &bytes) != 0 || bytes > FL_ANSWER_MAX;
    if (too_much)
        return refuse_answer(job);
    job->rows      = fl_request_alloc(job->request, cells * sizeof *job->rows);
    job->tokens    = fl_request_alloc(job->request, job->count * sizeof *job->tokens);
    job->truncated = fl_request_alloc(job->request, job->count);
    job->packed    = fl_request_alloc(job->request, job->columns * sizeof *job->rows);
    if (job->rows == NULL || job->tokens == NULL || job->truncated == NULL || job->packed == NULL) {
        fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
        return false;
    }
    return true;
}

/* Bytes of text `index`, or how many ids it is. */
static size_t item_size(const fl_job *job, size_t index) {
    const int64_t *offsets = job->work.texts.offsets64;
    return offsets != NULL ? (size_t)(offsets[index + 1] - offsets[index])
                           : job->work.texts.lengths[index];
}

static void fill_work(fl_job *job) {
    const fl_body_input *input = &job->ask.input;

    job->work.size        = sizeof job->work;
    job->work.texts.count = job->count;
    job->work.out         = (fletch_matrix){.data   = job->rows,
                                            .rows   = job->count,
                                            .cols   = job->columns,
                                            .stride = fletch_row_bytes(job->columns, job->dtype),
                                            .dtype  = job->dtype};
    if (input->texts != NULL || input->ids == NULL) {
        job->work.texts.pointers = input->texts;
        job->work.texts.lengths  = input->lengths;
        job->work.are_ids        = input->are_ids;
    } else {
        job->work.ids             = input->ids;
        job->work.texts.offsets64 = input->offsets;
    }
}

static fletch_dtype dtype_of(const fl_ask *ask) {
    return ask->dtype == 0 || ask->dtype == FL_WORD_FLOAT32
               ? FLETCH_FLOAT32
               : (fletch_dtype)(ask->dtype - FL_WORD_DTYPE);
}

/* ---- The way of every job ----------------------------------------------------------------------- */

/* What sets a kind of answer apart from the others. Each says no by an answer. */
typedef struct kind_rules {
    fletch_kind kind;
    bool (*gives)(fl_job *);  /* the model has it; job->columns, where they are not asked for */
    bool (*room)(fl_job *);   /* job->columns, and memory for them */
    bool (*settle)(fl_job *); /* options and form of the answer */
    bool (*bound)(
        fl_job *); /* what lies in the library's memory or is named one by one; NULL: nothing */
} kind_rules;

/* From where the model is known and what the headers say is taken. */
static bool fill(fl_job *job, const kind_rules *rules) {
    if (!rules->room(job) || !choose_options(job))
        return false;
    job->work.kind = rules->kind;
    if (!rules->settle(job))
        return false;
    fill_work(job);
    return rules->bound == NULL || rules->bound(job);
}

static bool prepare(fl_job *job, const kind_rules *rules, size_t count) {
    job->count = count;
    return fl_job_model(job) && rules->gives(job) && take_headers(job) && fill(job, rules);
}

/* ---- Rows ------------------------------------------------------------------------------------------ */

static bool gives_vectors(fl_job *job) {
    if (job->served->info.labels > 0) {
        fl_job_refuse(job, FL_REFUSE_HEAD, FLETCH_NOWHERE,
                      "the model gives scores, not vectors: it is for reranking or classifying");
    }
    return job->served->info.labels == 0;
}

static bool room_for_rows(fl_job *job) {
    return choose_columns(job) && take_memory(job);
}

static bool takes_octets(const fl_job *job) {
    const char *accept = fl_request_header(job->request, "accept");
    return accept != NULL && strcasestr(accept, "application/octet-stream") != NULL;
}

static void choose_form(fl_job *job) {
    job->details = job->ask.details == 1;
    job->base64  = job->ask.encoding == FL_WORD_BASE64;
    job->encode  = fl_base64_best();
    job->dtype   = dtype_of(&job->ask);
}

static bool settle_rows(fl_job *job) {
    choose_form(job);
    job->octets = takes_octets(job);
    if (job->ask.types != 0 && !job->octets) /* an answer of several types is made of float32 */
        job->dtype = FLETCH_FLOAT32;
    return true;
}

static const kind_rules row_rules = {FLETCH_KIND_DENSE, gives_vectors, room_for_rows, settle_rows,
                                     NULL};

bool fl_job_prepare_rows(fl_job *job, size_t count) {
    return prepare(job, &row_rules, count);
}

bool fl_job_prepare(fl_job *job) {
    return fl_job_prepare_rows(job, job->ask.input.count);
}

static bool settle_nothing(fl_job *job) {
    (void)job;
    return true;
}

bool fl_job_fill(fl_job *job) {
    static const kind_rules plain = {FLETCH_KIND_DENSE, gives_vectors, take_memory, settle_nothing,
                                     NULL};
    job->count                    = job->ask.input.count;
    return fill(job, &plain);
}

void fl_job_take_purpose(fl_job *job) {
    /* What models call the prompt of a purpose, best first. */
    static const char *const names[][4] = {{"search_document", "document", "passage", NULL},
                                           {"search_query", "query", NULL, NULL},
                                           {"classification", "Classification", NULL, NULL},
                                           {"clustering", "Clustering", NULL, NULL}};
    int                      type       = job->ask.input_type - FL_WORD_PURPOSE;
    if (type < 0 || type >= (int)(sizeof names / sizeof names[0]))
        return;
    for (int i = 0; i < 4 && names[type][i] != NULL; i++) {
        fl_span name = {names[type][i], strlen(names[type][i])};
        if (fl_served_prompt(job->served, name) != NULL) {
            job->ask.prompt_name = name;
            return;
        }
    }
}

/* ---- Lists: a vector for every token, weights of vocabulary entries ------------------------------ */

/* The lists lie in memory of the library, which counts as the request's. How long they are is known when
 * they are made: what they may have at most is held, up to what an answer has room for, and the
 * library keeps to that. */
static bool hold_lists(fl_job *job, uint64_t bytes, uint64_t most) {
    job->options.list_bytes = bytes < most ? bytes : most;
    if (!fl_request_hold(job->request, job->options.list_bytes)) {
        fl_reply_error(job->request, FL_HTTP_UNAVAILABLE, "%s", "");
        return false;
    }
    return true;
}

static bool room_for_lists(fl_job *job) {
    job->tokens    = fl_request_alloc(job->request, job->count * sizeof *job->tokens);
    job->truncated = fl_request_alloc(job->request, job->count);
    if (job->tokens == NULL || job->truncated == NULL) {
        fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
        return false;
    }
    job->columns = job->served->info.dimensions; /* none are cut */
    return true;
}

static bool settle_lists(fl_job *job) {
    job->options.normalize = -1;
    return true;
}

/* Tokens of all texts at most. */
static uint64_t tokens_max(const fl_job *job) {
    enum { ADDED = 32, FILLED = 256 }; /* tokens beside a text's bytes: of templates, of queries */
    const fletch_model_info *info   = &job->served->info;
    const char              *prompt = job->options.prompt ? job->options.prompt : info->prompt;
    const uint64_t           added  = fl_served_is_late(job->served) ? FILLED : ADDED;
    uint64_t                 tokens = 0;
    for (size_t i = 0; i < job->count; i++) {
        uint64_t length = item_size(job, i) + strlen(prompt) + added;
        tokens += length < info->max_length ? length : info->max_length;
    }
    return tokens;
}

/* Numbers of a token's vector. */
static uint64_t token_columns(const fl_job *job) {
    const fletch_model_info *info = &job->served->info;
    return fl_served_is_late(job->served) ? info->dimensions : info->hidden;
}

static bool settle_tokens(fl_job *job) { /* the library makes ids of queries and documents */
    job->options.normalize = fl_served_is_late(job->served) ? 0 : -1;
    return true;
}

static bool hold_tokens(fl_job *job) {
    const uint64_t columns = token_columns(job);
    return hold_lists(job, tokens_max(job) * (columns + 1) * sizeof(float),
                      FL_ANSWER_MAX / FLOAT_TEXT_BYTES / columns * (columns + 1) * sizeof(float));
}

bool fl_job_prepare_tokens(fl_job *job) {
    static const kind_rules tokens = {FLETCH_KIND_TOKENS, gives_vectors, room_for_lists,
                                      settle_tokens, hold_tokens};
    return prepare(job, &tokens, job->ask.input.count);
}

/* Bytes of the weights of all texts at most, or what an answer has room for. */
static uint64_t weights_max(const fl_job *job) {
    const fletch_model_info *info = &job->served->info;
    const uint64_t           most = FL_ANSWER_MAX / WEIGHT_TEXT * WEIGHT;
    uint64_t                 each =
        (uint64_t)(fl_served_is_sparse(job->served) ? info->sparse : info->max_length) * WEIGHT;
    return job->count > most / each ? most : job->count * each;
}

static bool hold_weights(fl_job *job) {
    return hold_lists(job, weights_max(job), FL_ANSWER_MAX / WEIGHT_TEXT * WEIGHT);
}

bool fl_job_prepare_sparse(fl_job *job) {
    static const kind_rules sparse = {FLETCH_KIND_SPARSE, gives_vectors, room_for_lists,
                                      settle_lists, hold_weights};
    return prepare(job, &sparse, job->ask.input.count);
}

/* ---- Several outputs of one pass -------------------------------------------------------------------- */

static bool refuse_outputs(fl_job *job, const char *message) {
    fl_reply_error(job->request, FL_HTTP_BAD_REQUEST, "outputs: %s", message);
    return false;
}

/* Whether name `index` stands before, too. */
static bool is_named_twice(const fl_body_input *names, size_t index) {
    for (size_t k = 0; k < index; k++)
        if (names->lengths[k] == names->lengths[index] &&
            memcmp(names->texts[k], names->texts[index], names->lengths[k]) == 0)
            return true;
    return false;
}

/* job->work.outputs from their names, without memory for rows. */
static bool read_outputs(fl_job *job) {
    const fl_body_input *names = &job->ask.outputs;
    fletch_error         error = {0};
    if (names->count == 0 || names->count > FL_OUTPUTS_MAX)
        return refuse_outputs(job, "name 1 to 16 outputs");
    fletch_output *outputs = fl_request_alloc(job->request, names->count * sizeof *outputs);
    if (outputs == NULL) {
        fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
        return false;
    }
    for (size_t i = 0; i < names->count; i++) {
        outputs[i]           = (fletch_output)FLETCH_OUTPUT_INIT;
        outputs[i].out.cols  = job->columns; /* where a name has none */
        outputs[i].out.dtype = job->dtype;
        if (fletch_output_parse(&outputs[i], names->texts[i], names->lengths[i], &error) < 0)
            return refuse_outputs(job, error.message);
        if (is_named_twice(names, i))
            return refuse_outputs(job, "one is named twice");
        if (outputs[i].out.cols > job->served->info.dimensions)
            return refuse_outputs(job, "one has more dimensions than the model");
    }
    job->work.outputs      = outputs;
    job->work.output_count = names->count;
    return true;
}

/* Memory for the rows of dense outputs; *text: how long they are in the answer. */
static bool take_output_rows(fl_job *job, uint64_t *text) {
    for (size_t i = 0; i < job->work.output_count; i++) {
        fletch_output *output = &job->work.outputs[i];
        fletch_matrix *out    = &output->out;
        if (output->kind != FLETCH_KIND_DENSE)
            continue;
        out->rows   = job->count;
        out->stride = fletch_row_bytes(out->cols, out->dtype);
        *text += (uint64_t)job->count * out->cols * FLOAT_TEXT_BYTES;
        if (*text > FL_ANSWER_MAX)
            return refuse_answer(job);
        out->data = fl_request_alloc(job->request, job->count * out->stride);
        if (out->data == NULL) {
            fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
            return false;
        }
    }
    return true;
}

/* What the lists may have at most, of which an answer has room for `text` bytes. */
static bool hold_outputs(fl_job *job, uint64_t text) {
    const uint64_t weights = weights_max(job), tokens = tokens_max(job);
    const uint64_t own = token_columns(job), late = job->served->info.colbert;
    const uint64_t columns = own > late ? own : late;
    uint64_t       bytes   = 0;
    bool           lists   = false;
    for (size_t i = 0; i < job->work.output_count; i++) {
        const fletch_output *output = &job->work.outputs[i];
        if (output->kind == FLETCH_KIND_DENSE)
            continue;
        lists = true;
        bytes +=
            output->kind == FLETCH_KIND_SPARSE ? weights : tokens * (columns + 1) * sizeof(float);
    }
    const uint64_t most = text / WEIGHT_TEXT * WEIGHT; /* a byte of a weight has the longest text */
    if (lists && most == 0)                            /* which would be no limit */
        return refuse_answer(job);
    return !lists || hold_lists(job, bytes, most);
}

static bool settle_outputs(fl_job *job) {
    const bool late = fl_served_is_late(job->served);
    if (!choose_columns(job))
        return false;
    if (takes_octets(job))
        return refuse_outputs(job, "they are JSON; omit Accept: application/octet-stream");
    choose_form(job);
    job->options.normalize = late ? 0 : job->ask.normalize == -1 ? -1 : 1;
    return true;
}

static bool bound_outputs(fl_job *job) {
    const bool late = fl_served_is_late(job->served);
    uint64_t   text = 0;
    if (!read_outputs(job) || !take_output_rows(job, &text))
        return false;
    for (size_t i = 0; i < job->work.output_count; i++) { /* as /embed_all gives them */
        fletch_output *output = &job->work.outputs[i];
        output->normalize     = output->kind == FLETCH_KIND_TOKENS && !late ? -1 : 0;
    }
    return hold_outputs(job, FL_ANSWER_MAX - text);
}

bool fl_job_prepare_outputs(fl_job *job) {
    static const kind_rules several = {FLETCH_KIND_SEVERAL, gives_vectors, room_for_lists,
                                       settle_outputs, bound_outputs};
    return prepare(job, &several, job->ask.input.count);
}

/* ---- Scores --------------------------------------------------------------------------------------- */

/* Bytes of a text's labels and their scores. */
static size_t classes_size(const fl_job *job) {
    enum { CLASS_TEXT = 40 };
    size_t size = 0;
    for (size_t i = 0; i < job->columns; i++) {
        const char *label = fletch_label_at(job->served->model, i);
        size += CLASS_TEXT + fl_json_quoted_size(label, strlen(label));
    }
    return size;
}

/* Bytes of the texts that go back, of which the `count` that are best are not known yet. */
static size_t texts_size(const fl_job *job, size_t count) {
    const fl_body_input *input = &job->ask.input;
    size_t               size = 0, longest = 0, best;
    for (size_t i = 0; i < input->count; i++) {
        size_t quoted = fl_json_quoted_size(input->texts[i], input->lengths[i]);
        longest       = quoted > longest ? quoted : longest;
        size += quoted;
    }
    return !fl_mul_overflow(count, longest, &best) && best < size ? best : size;
}

/* Labels, and texts that go back, take more room than the numbers beside them. */
static bool bound_scores(fl_job *job) {
    const fl_ask *ask      = &job->ask;
    bool          some     = ask->top > 0 && (uint64_t)ask->top < job->count;
    size_t        rows     = some ? (size_t)ask->top : job->count;
    size_t        each     = ask->pairs.first.count > 0 ? classes_size(job) : RANKED_TEXT;
    size_t        texts    = ask->return_text == 1 ? texts_size(job, rows) : 0, bytes;
    bool          too_much = fl_mul_overflow(rows, each, &bytes) != 0 ||
                    fl_add_overflow(bytes, texts, &bytes) != 0 || bytes > FL_ANSWER_MAX;
    job->request->reply_most = bytes;
    return !too_much || refuse_answer(job);
}

static bool gives_scores(fl_job *job) {
    const bool ranks = job->ask.source.data != NULL;
    job->columns     = ranks && fl_served_ranks(job->served) ? 1 : job->served->info.labels;
    if (job->columns == 0 || (ranks && job->columns != 1)) {
        fl_job_refuse(job, FL_REFUSE_HEAD, FLETCH_NOWHERE,
                      ranks ? "model is not a re-ranker model" : "Model is not a classifier model");
        return false;
    }
    return true;
}

static bool room_for_scores(fl_job *job) {
    return bound_scores(job) && take_memory(job);
}

static bool settle_scores(fl_job *job) {
    job->dtype              = FLETCH_FLOAT32;
    job->options.normalize  = 0;
    job->options.dimensions = 0;
    /* Scores by late interaction are sums of similarities, whoever asks for another activation. */
    if (fl_served_is_late(job->served))
        job->options.activation = FLETCH_ACTIVATION_DEFAULT;
    return true;
}

/* What the texts are scored against. */
static bool pair_texts(fl_job *job) {
    const fl_ask *ask = &job->ask;
    if (ask->source.data != NULL) {
        job->work.query      = ask->source.data;
        job->work.query_size = ask->source.size;
    } else if (ask->second.count > 0) {
        job->second.count    = ask->second.count;
        job->second.pointers = ask->second.texts;
        job->second.lengths  = ask->second.lengths;
        job->work.second     = &job->second;
    }
    return true;
}

bool fl_job_fill_scores(fl_job *job, fletch_activation activation) {
    static const kind_rules plain = {FLETCH_KIND_SCORES, gives_scores, take_memory, settle_scores,
                                     pair_texts};
    job->options.activation       = activation;
    return fill(job, &plain);
}

bool fl_job_prepare_scores(fl_job *job, fletch_activation activation) {
    static const kind_rules scores = {FLETCH_KIND_SCORES, gives_scores, room_for_scores,
                                      settle_scores, pair_texts};
    job->options.activation        = activation;
    return prepare(job, &scores, job->ask.input.count);
}

void fl_ask_take_pairs(fl_ask *ask) {
    ask->input       = ask->pairs.first;
    ask->input.form  = FL_INPUT_TEXTS;
    ask->second      = ask->pairs.second;
    ask->second.form = FL_INPUT_TEXTS;
}

/* ---- The answer -------------------------------------------------------------------------------- */

static uint64_t count_characters(const fl_body_input *input) {
    uint64_t count = 0;
    for (size_t i = 0; input->texts != NULL && i < input->count; i++) {
        bool text = input->are_ids == NULL || !input->are_ids[i];
        count += text ? fl_utf8_count(input->texts[i], input->lengths[i]) : 0;
    }
    return count;
}

/* What text-embeddings-inference tells with every answer; milliseconds, rounded down. */
static void compute_headers(fl_job *job, const fletch_outcome *outcome) {
    fl_http_request *request  = job->request;
    uint64_t         total    = fl_clock_ns() - request->start_ns;
    const uint64_t   ms       = 1000000;
    const char      *provider = job->served->info.provider;
    fl_reply_header(request, "x-compute-type", "%s+optimized",
                    provider[0] != '\0' ? provider : "cpu");
    fl_reply_header(request, "x-compute-time", "%" PRIu64, total / ms);
    fl_reply_header(request, "x-compute-characters", "%" PRIu64, count_characters(&job->ask.input));
    fl_reply_header(request, "x-compute-tokens", "%" PRIu64, outcome->tokens);
    fl_reply_header(request, "x-total-time", "%" PRIu64, total / ms);
    fl_reply_header(request, "x-tokenization-time", "%" PRIu64, outcome->tokenize_ns / ms);
    fl_reply_header(request, "x-queue-time", "%" PRIu64, outcome->queue_ns / ms);
    fl_reply_header(request, "x-inference-time", "%" PRIu64, outcome->forward_ns / ms);
}

void fl_served_vector_id(const fl_served *served, char out[65]) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.normalize            = 1;
    (void)fletch_vector_id(served->model, &options, FLETCH_FLOAT32, out, NULL);
}

const fletch_output *fl_job_dense(const fl_job *job) {
    for (size_t i = 0; i < job->work.output_count; i++)
        if (job->work.outputs[i].kind == FLETCH_KIND_DENSE)
            return &job->work.outputs[i];
    return NULL;
}

static void common_headers(fl_job *job) {
    size_t cut = 0;
    for (size_t i = 0; i < job->work.texts.count; i++)
        cut += job->truncated[i];
    if (cut > 0)
        fl_reply_header(job->request, "x-fletch-truncated", "%zu", cut);
    if (job->served->fingerprint[0] != '\0')
        fl_reply_header(job->request, "x-fletch-fingerprint", "%s", job->served->fingerprint);
    char id[65]; /* not of late chunking: a text has other vectors in other documents */
    fletch_embed_options options = job->options;
    fletch_dtype         dtype   = job->dtype;
    const fletch_output *dense   = fl_job_dense(job); /* of several the id is that of this one */
    if (dense != NULL) {
        options.dimensions =
            dense->out.cols < job->served->info.dimensions ? (uint32_t)dense->out.cols : 0;
        dtype = dense->out.dtype;
    }
    if ((job->work.kind == FLETCH_KIND_DENSE || dense != NULL) &&
        fletch_vector_id(job->served->model, &options, dtype, id, NULL) == FLETCH_OK)
        fl_reply_header(job->request, "x-fletch-vector-id", "%s", id);
}

/* The rows alone, packed, little-endian as every processor that fletch runs on. */
static bool write_octets(fl_job *job, const fletch_outcome *outcome) {
    fl_buf *body = &job->request->reply.body;
    size_t  each = fletch_row_bytes(job->columns, job->dtype);
    if (!fl_buf_reserve(body, each * job->count))
        return false;
    fl_buf_append(body, job->rows, each * job->count);
    fl_reply_header(job->request, "x-fletch-rows", "%zu", job->count);
    fl_reply_header(job->request, "x-fletch-columns", "%zu", job->columns);
    fl_reply_header(job->request, "x-fletch-dtype", "%s", dtype_name[job->dtype]);
    fl_reply_header(job->request, "x-fletch-tokens", "%" PRIu64, fl_job_tokens(job, outcome));
    return true;
}

static void fail(fl_job *job, const fletch_error *error) {
    if (error->code == FLETCH_ETOOLONG)
        fl_job_refuse(job, FL_REFUSE_TOO_LONG, error->where, error->message);
    else if (error->code == FLETCH_ENOSPC && job->options.list_bytes > 0)
        (void)refuse_answer(job);
    else if (error->code == FLETCH_EINVAL && error->where != FLETCH_NOWHERE)
        fl_job_refuse(job, FL_REFUSE_INPUT, error->where, error->message);
    else if (error->code == FLETCH_EINVAL && job->work.output_count > 0)
        (void)refuse_outputs(job, error->message);
    else
        fl_reply_fail(job->request, error);
}

static void embedded(fl_http_request *request, const fletch_outcome *outcome) {
    fl_job *job = request->work;
    if (outcome->error.code < 0) {
        fail(job, &outcome->error);
        return;
    }
    bool good = job->octets ? write_octets(job, outcome) : job->style->write(job, outcome);
    if (!good && request->reply.body.failed) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory while the answer was written");
        return;
    }
    if (!good) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "the vector of one of the texts is not finite");
        return;
    }
    common_headers(job);
    if (job->style->compute_headers)
        compute_headers(job, outcome);
    if (job->octets)
        fl_reply_bytes(request, 200, "application/octet-stream");
    else
        fl_reply_json(request, 200);
}

void fl_job_submit(fl_job *job) {
    fletch_error error = {0};
    if (fl_request_submit(job->request, job->served, &job->work, embedded, &error) < 0)
        fail(job, &error);
}

static void submit_now(fl_http_request *request) {
    fl_job_submit(request->work);
}

void fl_job_submit_later(fl_job *job) {
    enum { TOKENIZE_BYTE_NS = 30 };
    uint64_t bytes = 0;
    for (size_t i = 0; i < job->work.texts.count; i++)
        bytes += job->work.texts.lengths[i];
    (void)fl_request_run_later(job->request, submit_now, bytes * TOKENIZE_BYTE_NS);
}

uint64_t fl_job_tokens(const fl_job *job, const fletch_outcome *outcome) {
    uint64_t tokens = 0;
    if (job->work.spans == NULL)
        return outcome->tokens;
    for (size_t i = 0; i < job->work.texts.count; i++)
        tokens += job->tokens[i];
    return tokens;
}

size_t fl_job_length(fl_job *job, size_t index) {
    const fl_body_input *input = &job->ask.input;
    if (index >= input->count)
        return 0;
    if (job->work.ids != NULL || (input->are_ids != NULL && input->are_ids[index]))
        return item_size(job, index);
    fletch_tokens          *tokens  = NULL;
    fletch_tokenize_options options = FLETCH_TOKENIZE_OPTIONS_INIT;
    const char             *text = input->texts[index], *query = job->work.query;
    size_t                  size = input->lengths[index];
    if (query != NULL) {
        options.pair      = text;
        options.pair_size = size;
        text              = query;
        size              = job->work.query_size;
    } else if (job->work.second != NULL) {
        options.pair      = job->second.pointers[index];
        options.pair_size = job->second.lengths[index];
    }
    if (fletch_tokenize(job->served->model, text, size, &options, &tokens, NULL) < 0)
        return 0;
    size_t count = tokens->count;
    fletch_tokens_free(tokens);
    return count;
}
