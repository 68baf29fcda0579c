/* SPDX-License-Identifier: Apache-2.0 */
/* encode.c - one text of a request to the ids that an engine reads: a text, a pair, a chat, or ids as they are.
 *
 * Role    tokenize.c asks for one text after the other; resolve.c for the query of pairs, once.
 * Method  A text is checked as UTF-8, gets its prompt, is tokenised and cut as the request says. What nobody
 *         reads behind its end is left off; a query of a late-interaction model is filled up, with
 *         tokens that may be attended to or not.
 * Memory  Ids go where the caller says; other texts pass the task's buffers.
 * Threads any: a request's texts are read, and nothing of the request is written.
 * Proof   tests/unit/test_fletch.c, tests/golden. */
#include "requests/encode.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "requests/chat_text.h"
#include "requests/open_model.h"
#include "requests/texts.h"

/* ---- How many ids there can be ----------------------------------------------------------------- */

/* Whether text `index` has another beside it. */
static bool is_pair(const fl_request *r, size_t index) {
    assert(index < r->texts.count);
    return r->query || !r->second.pointers || r->second.pointers[index];
}

/* Ids that text `index` and `more` bytes can have at most; its length is not known to be right yet. */
static size_t bytes_bound(const fl_request *r, const fletch_texts *texts, size_t index,
                          size_t more) {
    const char *text  = NULL;
    size_t      size  = 0;
    size_t      limit = r->encode.max_length;
    if (fl_texts_at(texts, index, &text, &size, NULL) < 0)
        return 1;
    if (size >= limit) /* a byte is rarely more than a token; the limit bounds it anyway */
        return limit;
    size_t most = fl_tokenizer_ids_max(r->model->tokenizer, size + more);
    return most < limit ? most : limit;
}

/* Likewise for a pair in a chat, which is one text. */
static size_t chat_bound(const fl_request *r, size_t index) {
    assert(r->pairs);
    const char *text = NULL;
    size_t      size = 0, second = r->query_size, most;
    size_t      limit = r->encode.max_length;
    if (fl_texts_at(&r->texts, index, &text, &size, NULL) < 0 ||
        (r->second.count > 0 && fl_texts_at(&r->second, index, &text, &second, NULL) < 0))
        return 1;
    if (size >= limit || second >= limit)
        return limit;
    const bool pairs = r->second.count > 0; /* the text is the query of its pair */
    most = fl_tokenizer_ids_max(r->model->tokenizer, pairs ? fl_chat_bytes(r, size, second)
                                                           : fl_chat_bytes(r, second, size));
    return most < limit ? most : limit;
}

/* Likewise for a pair: one text is the query, or there are two. */
static size_t pair_bound(const fl_request *r, size_t index) {
    assert(r->pairs);
    size_t most = bytes_bound(r, &r->texts, index, r->prompt_size);
    most += r->second.count > 0 ? bytes_bound(r, &r->second, index, 0) : r->query_count;
    most += fl_tokenizer_pair_special_count(r->model->tokenizer);
    return most < r->encode.max_length ? most : r->encode.max_length;
}

/* Tokens that a text has at least, because it is filled up; 0: it is not. */
static size_t filled_to(const fl_request *r, size_t index) {
    return fl_item_is_ids(r, index) ? 0 : r->answer.filled_to;
}

static size_t text_bound(const fl_request *r, size_t index) {
    if (r->pairs && is_pair(r, index))
        return r->model->model->chat_count > 0 ? chat_bound(r, index) : pair_bound(r, index);
    if (!fl_item_is_ids(r, index))
        return bytes_bound(r, &r->texts, index, r->prompt_size);
    const int32_t *ids;
    size_t         count, limit = r->encode.max_length;
    if (fl_ids_at(r, index, &ids, &count, NULL) < 0)
        return 1;
    return count < limit ? count : limit;
}

size_t fl_encode_bound(const fl_request *r, size_t index) {
    size_t most = text_bound(r, index), least = filled_to(r, index);
    return most > least ? most : least;
}

/* ---- Ids --------------------------------------------------------------------------------------- */

static int fail_utf8(fletch_error *error, size_t index, const char *text, size_t valid) {
    assert(valid < SIZE_MAX);
    return fl_fail(error, FLETCH_EUTF8, index,
                   "text %zu is not valid UTF-8: byte 0x%02X at offset %zu; "
                   "convert it to UTF-8 or "
                   "replace such bytes before embedding",
                   index, (unsigned)(unsigned char)text[valid], valid);
}

/* Text `index`, which is valid UTF-8. */
static int take_text(fl_encode_call *c, const fletch_texts *texts, size_t index, const char **text,
                     size_t *size) {
    FL_TRY(fl_texts_at(texts, index, text, size, c->error));
    size_t valid = fl_utf8_valid_prefix(*text, *size);
    c->bytes += *size;
    return valid == *size ? FLETCH_OK : fail_utf8(c->error, index, *text, valid);
}

/* *text behind the request's prompt, if there is one. */
static int add_prompt(const fl_request *r, fl_tokenize_task *task, const char **text, size_t *size,
                      fletch_error *error) {
    fl_buf *both = &task->text;
    if (r->prompt_size == 0)
        return FLETCH_OK;
    fl_buf_clear(both);
    fl_buf_append(both, r->prompt, r->prompt_size);
    fl_buf_append(both, *text, *size);
    if (both->failed)
        return fl_fail_nomem(error, r->prompt_size + *size, "a text with its prompt");
    *text = both->data;
    *size = both->size;
    return FLETCH_OK;
}

/* Tokenise text `index` to ids[capacity]. */
static int encode_text(fl_encode_call *c, size_t index, int32_t *ids, size_t capacity,
                       size_t *tokens, bool *cut) {
    const fl_request *r    = c->request;
    const char       *text = NULL;
    size_t            size = 0;
    FL_TRY(take_text(c, &r->texts, index, &text, &size));
    FL_TRY(add_prompt(r, c->task, &text, &size, c->error));
    return fl_tokenizer_encode(r->model->tokenizer, c->task->scratch, text, size, &r->encode, ids,
                               capacity, tokens, cut, c->error);
}

/* One text of a pair; more than `limit` (0: none) ids of it are never needed. */
static int encode_side(const fl_request *r, fl_tokenize_task *task, const char *text, size_t size,
                       size_t limit, fl_token_side *out, fletch_error *error) {
    assert(out->count <= out->capacity);
    const fl_tokenizer *tokenizer = r->model->tokenizer;
    fl_encode_options   encode    = {.max_length = limit < UINT32_MAX ? (uint32_t)limit : 0,
                                     .truncation = r->encode.truncation,
                                     .no_special = true};
    size_t              need      = fl_tokenizer_ids_max(tokenizer, size);
    size_t              special   = fl_tokenizer_special_count(tokenizer);
    if (encode.max_length > 0 && limit < need)
        need = limit > special ? limit : special;
    if (need > out->capacity) {
        int32_t *grown = fl_realloc_array(out->ids, need, sizeof *grown);
        if (!grown)
            return fl_fail_nomem(error, need * sizeof *grown, "the tokens of a text");
        out->ids      = grown;
        out->capacity = need;
    }
    return fl_tokenizer_encode(tokenizer, task->scratch, text, size, &encode, out->ids,
                               out->capacity, &out->count, &out->cut, error);
}

int fl_encode_query(fl_request *r, fl_tokenize_task *task, fletch_error *error) {
    assert(r->query && !r->query_ids);
    const char    *text = r->query;
    size_t         size = r->query_size;
    fl_token_side *own  = &task->side[0];
    FL_TRY(add_prompt(r, task, &text, &size, error));
    FL_TRY(encode_side(r, task, text, size, 0, own, error));
    size_t bytes = own->count * sizeof *own->ids;
    r->query_ids =
        fl_bufpool_take(r->model->inputs, fl_token_block_bytes(bytes), &r->query_capacity);
    if (!r->query_ids)
        return fl_fail_nomem(error, bytes, "the tokens of a query");
    r->query_count = own->count;
    if (bytes > 0)
        memcpy(r->query_ids, own->ids, bytes);
    return FLETCH_OK;
}

/* The same as a chat. */
static int encode_chat(fl_encode_call *c, size_t index, int32_t *ids, size_t capacity,
                       fl_pair *pair) {
    const fl_request *r     = c->request;
    fl_span           query = {r->query, r->query_size}, document = {0};
    FL_TRY(take_text(c, &r->texts, index, &document.data, &document.size));
    if (!r->query) {
        query = document;
        FL_TRY(take_text(c, &r->second, index, &document.data, &document.size));
    }
    return fl_chat_encode(r, c->task, &query, &document, ids, capacity, pair, c->error);
}

/* Pair `index` to ids[capacity]: the query and text `index`, or that and its second. */
static int encode_pair(fl_encode_call *c, size_t index, int32_t *ids, size_t capacity,
                       fl_pair *pair) {
    assert(c->request->pairs);
    const fl_request *r = c->request;
    if (r->model->model->chat_count > 0)
        return encode_chat(c, index, ids, capacity, pair);
    fl_token_side *first = &c->task->side[0], *second = &c->task->side[1];
    fl_pair_side   a    = {.ids = r->query_ids, .count = r->query_count};
    const char    *text = NULL;
    size_t         size = 0;
    FL_TRY(take_text(c, &r->texts, index, &text, &size));
    if (!r->query_ids) {
        FL_TRY(add_prompt(r, c->task, &text, &size, c->error));
        FL_TRY(encode_side(r, c->task, text, size, 0, first, c->error));
        FL_TRY(take_text(c, &r->second, index, &text, &size));
        a = (fl_pair_side){.ids = first->ids, .count = first->count};
    }
    size_t limit = a.count > r->encode.max_length ? a.count : r->encode.max_length;
    FL_TRY(encode_side(r, c->task, text, size, limit, second, c->error));
    FL_TRY(fl_tokenizer_pair(
        r->model->tokenizer, &a, &(fl_pair_side){.ids = second->ids, .count = second->count},
        &r->encode, FL_PAIR_LONGEST_FIRST, ids, NULL, NULL, capacity, pair, c->error));
    pair->truncated = pair->truncated || second->cut;
    return FLETCH_OK;
}

/* The ids that truncation leaves of from[count], as a text is cut: special tokens of the template stay at
 * the ends where the caller has put them. */
static void cut_ids(const fl_request *r, const int32_t *from, size_t count, int32_t *ids) {
    assert(count > r->encode.max_length);
    uint32_t       head, tail;
    const int32_t *before = fl_tokenizer_before(r->model->tokenizer, &head);
    const int32_t *after  = fl_tokenizer_after(r->model->tokenizer, &tail);
    size_t         max    = r->encode.max_length; /* more than head + tail where those are added */
    if (r->encode.no_special || memcmp(from, before, head * sizeof *from) != 0)
        head = 0;
    if (r->encode.no_special || memcmp(from + count - tail, after, tail * sizeof *from) != 0)
        tail = 0;
    size_t first = r->encode.truncation == FL_TRUNCATE_LEFT ? head : max - tail;
    memcpy(ids, from, first * sizeof *ids);
    memcpy(ids + first, from + count - (max - first), (max - first) * sizeof *ids);
}

/* The caller's own ids of text `index`, checked and cut. */
static int copy_ids(fl_encode_call *c, size_t index, int32_t *ids, size_t *tokens, bool *cut) {
    const fl_request *r = c->request;
    const int32_t    *from;
    size_t            count;
    uint32_t          vocab = r->model->model->encoder.desc.vocab;
    FL_TRY(fl_ids_at(r, index, &from, &count, c->error));
    for (size_t i = 0; i < count; i++)
        if (from[i] < 0 || (uint32_t)from[i] >= vocab)
            return fl_fail(c->error, FLETCH_EINVAL, index,
                           "text %zu: token id %d is outside the vocabulary of %u", index,
                           (int)from[i], vocab);
    *cut    = count > r->encode.max_length;
    *tokens = *cut ? r->encode.max_length : count;
    if (*cut)
        cut_ids(r, from, count, ids);
    else if (count > 0)
        memcpy(ids, from, count * sizeof *ids);
    return FLETCH_OK;
}

/* ---- Of any text ------------------------------------------------------------------------------- */

/* How many tokens at the end of a text are padding that nothing reads; its first token is read always. */
static size_t padded(const fl_answer *answer, const int32_t *ids, size_t count) {
    size_t read = count;
    while (answer->unpadded && read > 1 && ids[read - 1] == answer->of->model->padding)
        read--;
    return count - read;
}

/* How many tokens stand behind the one whose row counts (fl_model.end); attention is causal, so that nothing reads
 * them. CLIP's oldest configs have an end of 2, which is no token's: then the end is the largest id. */
static size_t behind_end(const fl_model *model, const int32_t *ids, size_t count) {
    assert(count > 0);
    size_t end = 0;
    if (model->end == 2) {
        for (size_t i = 1; i < count; i++)
            end = ids[i] > ids[end] ? i : end;
    } else {
        while (end < count && ids[end] != model->end)
            end++;
        end = end < count ? end : 0;
    }
    return count - 1 - end;
}

/* The ids of text `index`, in whichever form it was given. */
static int encode_any(fl_encode_call *c, size_t index, bool paired, int32_t *ids, size_t room,
                      fl_pair *out) {
    int status;
    if (paired)
        return encode_pair(c, index, ids, room, out);
    if (fl_item_is_ids(c->request, index))
        status = copy_ids(c, index, ids, &out->count, &out->truncated);
    else
        status = encode_text(c, index, ids, room, &out->count, &out->truncated);
    out->segment = out->count;
    return status;
}

int fl_encode_item(fl_encode_call *c, size_t index, int32_t *ids, size_t room, fl_encoded *out) {
    assert(index < c->request->texts.count && c->task);
    const fl_request *r      = c->request;
    const fl_model   *model  = r->model->model;
    fl_pair           pair   = {0};
    const bool        given  = fl_item_is_ids(r, index);
    const bool        paired = r->pairs && is_pair(r, index);
    if (model->chat_count > 0 && !paired)
        return fl_fail(c->error, FLETCH_EINVAL, index,
                       "text %zu has no second text, and this model scores pairs", index);
    FL_TRY(encode_any(c, index, paired && !given, ids, room, &pair));
    size_t tokens = pair.count;
    assert(tokens <= room && (paired || pair.segment == tokens));
    if (pair.truncated && r->refuse_long)
        return fl_fail(c->error, FLETCH_ETOOLONG, index,
                       "text %zu has more than %u %s and truncation is off; "
                       "shorten it, or allow "
                       "truncation (truncate=right)",
                       index, pair.characters > 0 ? pair.characters : r->encode.max_length,
                       pair.characters > 0 ? "characters" : "tokens");
    const bool nothing = tokens == 0 && !given && room > 0 && r->answer.may_be_empty;
    if (nothing) { /* one token that is left out: the mean of none is zero */
        ids[0] = 0;
        tokens = 1;
    }
    if (tokens == 0) /* no special tokens in this model: there is nothing to pool */
        return fl_fail(c->error, FLETCH_EINVAL, index,
                       "text %zu has no tokens, and %s; omit such texts", index,
                       given ? "an empty list of ids cannot be embedded"
                             : "this model's tokenizer adds none");
    const size_t unread =
        model->ends ? behind_end(model, ids, tokens) : padded(&r->answer, ids, tokens);
    assert(unread < tokens);
    tokens -= unread;
    out->keys = (uint32_t)tokens;
    while (tokens < filled_to(r, index))
        ids[tokens++] = r->answer.of->filler;
    if (model->late.attends || model->filled)
        out->keys = (uint32_t)tokens;
    const uint32_t skip = given ? 0 : r->prompt_skip; /* a caller's ids are complete */
    out->tokens         = (uint32_t)tokens;
    out->skip           = nothing || skip > tokens ? (uint32_t)tokens : skip;
    out->segment        = (uint32_t)(paired ? pair.segment : tokens);
    out->shown          = nothing ? 0 : (uint32_t)(tokens + unread);
    out->cut            = pair.truncated;
    assert(tokens <= room && out->keys <= out->tokens && out->skip <= out->tokens);
    return FLETCH_OK;
}
