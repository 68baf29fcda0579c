/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c - tokenise and decode single texts for callers who want to see
 * tokens.
 *
 * Role    fletch_tokenize and fletch_decode; embedding does not pass here.
 * Memory  A fletch_tokens is one allocation: the struct, then ids, offsets and
 * special mask behind it. Threads Each call takes a feeder (for its tokenizer
 * scratch), so callers do not wait for each other. Proof
 * tests/golden/test_tokens.py, tests/unit/test_fletch.c. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/runtime.h"

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

static int encode(const fletch_model *model, fl_feeder *feeder, const char *text, size_t size,
                  const fletch_tokenize_options *options, fletch_tokens **out,
                  fletch_error *error) {
    uint32_t          special_count = fl_tokenizer_special_count(model->tokenizer);
    fl_encode_options encode        = {
               .max_length = options->max_length,
               .truncation =
            options->truncate == FLETCH_TRUNCATE_LEFT ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT,
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
    int  status    = fl_tokenizer_encode_offsets(model->tokenizer, fl_feeder_scratch(feeder), text,
                                                 size, &encode, ids, offsets, special, capacity,
                                                 &tokens->count, &truncated, error);
    if (status == FLETCH_OK && truncated && options->truncate == FLETCH_TRUNCATE_ERROR)
        status =
            fl_fail(error, FLETCH_ETOOLONG, FLETCH_NOWHERE,
                    "the text has more than %u tokens and truncation is off", options->max_length);
    if (status < 0) {
        fl_free(tokens);
        return status;
    }
    tokens->truncated = truncated;
    *out              = tokens;
    return FLETCH_OK;
}

int fl_runtime_tokenize(const fletch_model *model, const char *text, size_t size,
                        const fletch_tokenize_options *options, fletch_tokens **tokens,
                        fletch_error *error) {
    size_t valid = fl_utf8_valid_prefix(text, size);
    if (valid != size)
        return fl_fail(error, FLETCH_EUTF8, valid, "the text is not valid UTF-8 at offset %zu",
                       valid);
    if (size > UINT32_MAX)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "the text has %zu bytes; offsets hold at most %u", size, UINT32_MAX);
    fletch_model *m      = fl_mutable(model); /* its list of feeders has its own lock */
    fl_feeder    *feeder = fl_feeder_take(m, error);
    if (!feeder)
        return FLETCH_ENOMEM;
    int status = encode(model, feeder, text, size, options, tokens, error);
    fl_feeder_give(m, feeder);
    return status;
}

int64_t fl_runtime_decode(const fletch_model *model, const int32_t *ids, size_t count,
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
