/* SPDX-License-Identifier: Apache-2.0 */
/* span_windows.c - documents with spans become windows of token ids: what late chunking does before the engine.
 *
 * Role    Kinds with `windows` (results/result.h), once, when a request is resolved.
 * Method  A document is tokenised whole, behind its prompt, with offsets. A token belongs to a span when it
 *         begins inside of it. What the template adds has no place in the text: before the first token it
 *         belongs to spans that begin with the document, behind the last to those that end with it, so that one
 *         span over all has the tokens of the plain vector. A prompt, and all in front of it, belongs to none.
 * Memory  The tokens of one document at a time; ids of all windows (results/spans.h).
 * Threads The caller's. Proof: tests/golden/test_spans.py. */
#include "requests/span_windows.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "requests/open_model.h"
#include "requests/texts.h"
#include "requests/tokens.h"
#include "results/spans.h"

enum { OVERLAP = 256 }; /* tokens, as published for long late chunking */

typedef struct document {
    const char          *text;
    size_t               size, index;
    size_t               prompt; /* bytes in front of the text */
    const fletch_tokens *tokens;
    size_t               head, tail; /* tokens [head, tail) are of the text */
    size_t               first;      /* the first that may be in a span */
} document;

/* The first token of the text that begins at byte `at` or behind it. */
static size_t token_from(const document *d, size_t at) {
    assert(d->head <= d->tail && d->tail <= d->tokens->count);
    size_t low = d->head, high = d->tail;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->tokens->offsets[2 * middle] < at + d->prompt)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool inside_character(const document *d, size_t at) {
    return at < d->size && ((unsigned char)d->text[at] & 0xC0U) == 0x80U;
}

/* The tokens of a span. */
static int find_tokens(const document *d, size_t number, const fletch_span *asked,
                       fl_span_tokens *span, fletch_error *error) {
    const char *wrong = asked->begin > asked->end ? "runs backwards"
                        : asked->end > d->size    ? "ends after the end of the document"
                        : inside_character(d, asked->begin) || inside_character(d, asked->end)
                            ? "splits a character: bounds are byte offsets between UTF-8 characters"
                            : NULL;
    if (!wrong) {
        span->document = d->index;
        span->first    = asked->begin == 0 ? d->first : token_from(d, asked->begin);
        span->end      = asked->end == d->size ? d->tokens->count : token_from(d, asked->end);
        if (asked->begin < asked->end && span->first < span->end)
            return FLETCH_OK;
        wrong = asked->begin == asked->end
                    ? "is empty; omit it"
                    : "contains no token: none begins inside it; widen it or omit it";
    }
    return fl_fail(error, FLETCH_EINVAL, d->index,
                   "span %zu of document %zu, bytes [%zu, %zu) of %zu, %s", number, d->index,
                   asked->begin, asked->end, d->size, wrong);
}

static int tokenise(fl_request *r, const document *d, fl_tokenize_task *task,
                    fletch_tokens **tokens, fletch_error *error) {
    fletch_tokenize_options options = FLETCH_TOKENIZE_OPTIONS_INIT;
    fl_buf                 *both    = &task->text;
    options.no_special_tokens       = r->encode.no_special;
    options.stop                    = fl_request_unwanted;
    options.stop_user               = r;
    if (r->prompt_size == 0)
        return fl_requests_tokenize(r->model, d->text, d->size, &options, tokens, error);
    fl_buf_clear(both);
    fl_buf_append(both, r->prompt, r->prompt_size);
    fl_buf_append(both, d->text, d->size);
    if (both->failed)
        return fl_fail_nomem(error, r->prompt_size + d->size, "a text with its prompt");
    return fl_requests_tokenize(r->model, both->data, both->size, &options, tokens, error);
}

/* Where the text's own tokens lie between those of template and prompt. */
static void find_text(const fl_request *r, document *d) {
    const fletch_tokens *tokens = d->tokens;
    d->head                     = 0;
    d->tail                     = tokens->count;
    while (d->head < d->tail && tokens->special[d->head])
        d->head++;
    while (d->tail > d->head && tokens->special[d->tail - 1])
        d->tail--;
    d->first = d->prompt == 0 ? 0 : r->prompt_skip > 0 ? r->prompt_skip : token_from(d, 0);
}

static int cut_document(fl_request *r, fl_tokenize_task *task, document *d,
                        const fletch_span *asked, size_t count, fl_span_tokens *span,
                        fletch_error *error) {
    fletch_tokens *tokens = NULL;
    FL_TRY(fl_texts_at(&r->texts, d->index, &d->text, &d->size, error));
    size_t valid = fl_utf8_valid_prefix(d->text, d->size);
    if (valid != d->size)
        return fl_fail(error, FLETCH_EUTF8, d->index,
                       "document %zu is not valid UTF-8 at offset %zu", d->index, valid);
    if (count == 0 || d->size == 0)
        return fl_fail(error, FLETCH_EINVAL, d->index, "document %zu %s; omit it", d->index,
                       d->size == 0 ? "is empty" : "has no spans");
    FL_TRY(tokenise(r, d, task, &tokens, error));
    d->tokens = tokens;
    find_text(r, d);
    int status = FLETCH_OK;
    for (size_t i = 0; i < count && status == FLETCH_OK; i++)
        status = find_tokens(d, i, &asked[i], &span[i], error);
    if (status == FLETCH_OK)
        fl_spans_add_document(r->answer.spans, tokens->ids, tokens->count);
    if (r->options.tokens)
        r->options.tokens[d->index] = (uint32_t)tokens->count;
    if (r->options.truncated)
        r->options.truncated[d->index] = 0;
    fl_free(tokens);
    return status;
}

/* Of the windows: -1 none, 0 as published, but no more than half of a window. */
static int overlap_of(const fl_request *r, uint32_t *overlap, fletch_error *error) {
    const uint32_t window = r->encode.max_length,
                   usual  = OVERLAP < window / 2 ? OVERLAP : window / 2;
    if (r->options.overlap < -1 || r->options.overlap >= (int64_t)window)
        return fl_fail(
            error, FLETCH_EINVAL, FLETCH_NOWHERE,
            "the overlap of %d tokens must be smaller than the window of %u (0: %u, -1: none)",
            r->options.overlap, window, usual);
    *overlap = r->options.overlap == 0  ? usual
               : r->options.overlap < 0 ? 0
                                        : (uint32_t)r->options.overlap;
    return FLETCH_OK;
}

int fl_spans_cut(fl_request *r, const fletch_request *asked, fletch_error *error) {
    assert(asked->spans && asked->span_counts && !r->answer.spans);
    const size_t documents = r->texts.count;
    uint32_t     overlap   = 0;
    size_t       done      = 0;
    int          status    = FLETCH_OK;
    FL_TRY(overlap_of(r, &overlap, error));
    fl_spans *spans = fl_spans_new(asked->out.rows, r->encode.max_length, overlap,
                                   r->model->model->encoder.desc.hidden, error);
    if (!spans)
        return FLETCH_ENOMEM;
    r->answer.spans        = spans;
    fl_tokenize_task *task = fl_tokenize_task_take(r->model, NULL, NULL, error);
    if (!task)
        return FLETCH_ENOMEM;
    for (size_t i = 0; i < documents && status == FLETCH_OK; i++) {
        document d = {.index = i, .prompt = r->prompt_size};
        status     = cut_document(r, task, &d, asked->spans + done, asked->span_counts[i],
                                  spans->span + done, error);
        done += asked->span_counts[i];
    }
    spans->count = done;
    fl_tokenize_task_give(r->model, task);
    if (status == FLETCH_ECANCELLED)
        status = fl_request_given_up(r, error);
    if (status == FLETCH_OK)
        status = fl_spans_close(spans, error);
    r->texts             = (fletch_texts){.count = spans->windows};
    r->texts.offsets64   = (const int64_t *)(const void *)spans->offsets.data;
    r->token_ids         = (const int32_t *)(const void *)spans->ids.data;
    r->options.tokens    = NULL; /* these are of documents */
    r->options.truncated = NULL;
    r->prompt_size       = 0; /* it is in the ids */
    return status;
}
