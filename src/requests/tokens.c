/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c - tokenise and decode single texts for callers who want to see
 * tokens.
 *
 * Role    fletch_tokenize and fletch_decode; embedding does not pass here.
 * Memory  A fletch_tokens is one allocation: the struct, then ids, offsets and
 * special mask behind it. Threads Each call takes a tokenize task (for its tokenizer
 * scratch), so callers do not wait for each other. Proof
 * tests/golden/test_tokens.py, tests/unit/test_fletch.c. */
#include "requests/tokens.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "requests/open_model.h"
#include "requests/tokenize_task.h"

/* Room for `capacity` tokens behind the struct; ids, offsets (two each) and a
 * byte each. */
static fletch_tokens *tokens_new(size_t capacity, int32_t **ids, uint32_t **offsets,
                                 uint8_t **special) {
    size_t bytes;
    if (fl_mul_overflow(capacity, 3 * sizeof(int32_t) + 1, &bytes) ||
        fl_add_overflow(bytes, sizeof(fletch_tokens), &bytes))
        return NULL;
    fletch_tokens *tokens = fl_alloc(bytes);
    if (!tokens)
        return NULL;
    memset(tokens, 0, sizeof *tokens);
    *ids            = (int32_t *)(void *)(tokens + 1);
    *offsets        = (uint32_t *)(void *)(*ids + capacity);
    *special        = (uint8_t *)(*offsets + 2 * capacity);
    tokens->ids     = *ids;
    tokens->offsets = *offsets;
    tokens->special = *special;
    return tokens;
}

/* DEFAULT is the side on which the model cuts; an open `error` refuses only where it is asked for. */
static fl_truncation side_of(const fletch_model *model, fletch_truncate asked) {
    fletch_truncate how = asked != FLETCH_TRUNCATE_DEFAULT ? asked : model->truncate;
    return how == FLETCH_TRUNCATE_LEFT ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT;
}

static int encode(const fletch_model *model, fl_tokenize_task *task, const char *text, size_t size,
                  const fletch_tokenize_options *options, fletch_tokens **out,
                  fletch_error *error) {
    uint32_t          special_count = fl_tokenizer_special_count(model->tokenizer);
    fl_encode_options encode        = {
               .max_length = options->max_length,
               .truncation = side_of(model, options->truncate),
               .no_special = options->no_special_tokens != 0,
    };
    size_t limit    = encode.max_length > special_count ? encode.max_length : special_count;
    size_t capacity = fl_tokenizer_ids_max(model->tokenizer, size);
    if (encode.max_length > 0 && limit < capacity)
        capacity = limit;
    int32_t       *ids;
    uint32_t      *offsets;
    uint8_t       *special;
    fletch_tokens *tokens = tokens_new(capacity, &ids, &offsets, &special);
    if (!tokens)
        return fl_fail_nomem(error, capacity, "the tokens of a text");
    bool truncated = false;
    int  status =
        fl_tokenizer_encode_offsets(model->tokenizer, task->scratch, text, size, &encode, ids,
                                    offsets, special, capacity, &tokens->count, &truncated, error);
    if (status == FLETCH_OK && truncated && options->truncate == FLETCH_TRUNCATE_ERROR)
        status =
            fl_fail(error, FLETCH_ETOOLONG, FLETCH_NOWHERE,
                    "the text has more than %u tokens and truncation is off", options->max_length);
    if (status < 0) {
        fl_free(tokens);
        return status;
    }
    tokens->truncated = truncated;
    tokens->second = tokens->segment = tokens->count;
    *out                             = tokens;
    return FLETCH_OK;
}

/* The tokens of one side, without what a template adds; cut to `limit` unless that is 0. */
static int encode_side(const fletch_model *model, fl_tokenize_task *task, const char *text,
                       size_t size, const fl_encode_options *options, size_t limit,
                       fletch_tokens **out, fletch_error *error) {
    fletch_tokenize_options side = FLETCH_TOKENIZE_OPTIONS_INIT;
    side.no_special_tokens       = 1;
    side.max_length              = limit > UINT32_MAX ? 0 : (uint32_t)limit;
    side.truncate =
        options->truncation == FL_TRUNCATE_LEFT ? FLETCH_TRUNCATE_LEFT : FLETCH_TRUNCATE_RIGHT;
    return encode(model, task, text, size, &side, out, error);
}

static int encode_pair(const fletch_model *model, fl_tokenize_task *task, const char *text,
                       size_t size, const fletch_tokenize_options *options, fletch_tokens **out,
                       fletch_error *error) {
    fl_encode_options encode = {
        .max_length = options->max_length,
        .truncation = side_of(model, options->truncate),
        .no_special = options->no_special_tokens != 0,
    };
    fletch_tokens *a = NULL, *b = NULL, *tokens = NULL;
    fl_pair        pair    = {0};
    int32_t       *ids     = NULL;
    uint32_t      *offsets = NULL;
    uint8_t       *special = NULL;
    int            status  = encode_side(model, task, text, size, &encode, 0, &a, error);
    if (status ==
        FLETCH_OK) { /* the second text need not be longer than both max_length and the first */
        size_t enough = a->count > options->max_length ? a->count : options->max_length;
        bool   cut = options->max_length > 0 && options->pair_truncate == FLETCH_PAIR_LONGEST_FIRST;
        status     = encode_side(model, task, options->pair, options->pair_size, &encode,
                             cut ? enough : 0, &b, error);
    }
    if (status == FLETCH_OK) {
        size_t room = a->count + b->count + fl_tokenizer_pair_special_count(model->tokenizer);
        tokens      = tokens_new(room, &ids, &offsets, &special);
        status =
            tokens == NULL
                ? fl_fail_nomem(error, room, "the tokens of a pair")
                : fl_tokenizer_pair(model->tokenizer, &(fl_pair_side){a->ids, a->offsets, a->count},
                                    &(fl_pair_side){b->ids, b->offsets, b->count}, &encode,
                                    (fl_pair_truncation)options->pair_truncate, ids, offsets,
                                    special, room, &pair, error);
        pair.truncated = pair.truncated || b->truncated;
    }
    fl_free(a);
    fl_free(b);
    if (status == FLETCH_OK && pair.truncated && options->truncate == FLETCH_TRUNCATE_ERROR)
        status =
            fl_fail(error, FLETCH_ETOOLONG, FLETCH_NOWHERE,
                    "the pair has more than %u tokens and truncation is off", options->max_length);
    if (status < 0) {
        fl_free(tokens);
        return status;
    }
    tokens->count        = pair.count;
    tokens->truncated    = pair.truncated;
    tokens->second       = pair.begin[1];
    tokens->second_count = pair.end[1] - pair.begin[1];
    tokens->segment      = pair.segment;
    *out                 = tokens;
    return FLETCH_OK;
}

int fl_check_text(const char *text, size_t size, fletch_error *error) {
    size_t valid = fl_utf8_valid_prefix(text, size);
    if (valid != size)
        return fl_fail(error, FLETCH_EUTF8, valid, "the text is not valid UTF-8 at offset %zu",
                       valid);
    if (size > UINT32_MAX)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "the text has %zu bytes; offsets are limited to %u", size, UINT32_MAX);
    return FLETCH_OK;
}

int fl_requests_tokenize(fletch_model *model, const char *text, size_t size,
                         const fletch_tokenize_options *options, fletch_tokens **tokens,
                         fletch_error *error) {
    assert(options);
    FL_TRY(fl_check_text(text, size, error));
    if (options->pair)
        FL_TRY(fl_check_text(options->pair, options->pair_size, error));
    fl_tokenize_task *task = fl_tokenize_task_take(model, options->stop, options->stop_user, error);
    if (!task)
        return FLETCH_ENOMEM;
    int status = options->pair ? encode_pair(model, task, text, size, options, tokens, error)
                               : encode(model, task, text, size, options, tokens, error);
    fl_tokenize_task_give(model, task);
    return status;
}

int64_t fl_requests_decode(const fletch_model *model, const int32_t *ids, size_t count,
                           bool skip_special, char *text, size_t capacity, fletch_error *error) {
    fl_buf out    = {0};
    int    status = fl_tokenizer_decode(model->tokenizer, ids, count, skip_special, &out, error);
    if (status == FLETCH_OK && out.failed)
        status = fl_fail_nomem(error, out.size, "the decoded text");
    int64_t length = status < 0 ? status : (int64_t)out.size;
    if (status == FLETCH_OK && capacity > 0) {
        size_t copied = out.size < capacity ? out.size : capacity - 1;
        if (copied > 0)
            memcpy(text, out.data, copied);
        text[copied] = '\0';
    }
    fl_buf_free(&out);
    return length;
}
