/* SPDX-License-Identifier: Apache-2.0 */
/* feed.c - texts of a request to chunks of token ids in the queue, a window ahead of the engine.
 *
 * Role    The caller's own thread feeds while it waits (embed.c); fletch_submit feeds the first texts
 *         on the caller's thread, the housekeeping thread the rest. Where there are several slots,
 *         the thread of one that finds nothing to carry feeds too: then the device is faster than
 *         who tokenises for it.
 * Method  Under the lock a feeder takes the next FEED_TEXTS texts of a request; without it, it
 *         tokenises them into as many chunks as they need, each a buffer of the pool sized by what
 *         its texts can have at most, and queues each when it is full. A request is fed while less
 *         than model->window_tokens of it are under way, so ten million texts cost a window. Several
 *         threads may feed one request at once.
 * Errors  A text that is not UTF-8, too long where that is refused, or without tokens fails alone
 *         (options.status) or ends the request.
 *         A query of a late-interaction model is filled up here, with tokens that may be attended to or not.
 *         Repeats are passed over (repeats.h), and what the model's cache has is answered here
 *         (result_cache.h): only the others get into a chunk.
 * Memory  chunk buffer: fl_chunk, cu, index, skip, segment, keys, ids. A feeder has tokenizer scratch and, where
 *         there is a prompt, a buffer for prompt + text; feeders are kept in a free list.
 * Threads see request.h.
 * Proof   tests/unit/test_fletch.c, test_submit.c, tests/golden. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/chat_text.h"
#include "runtime/feed.h"
#include "runtime/repeats.h"
#include "runtime/runtime.h"
#include "runtime/texts.h"

enum {
    FEED_FIRST = 64,    /* texts of a first step, so that the engine starts soon; and of each step
                               of the housekeeper and of slots' threads, whom others wait for */
    FEED_TEXTS = 256,   /* of the other steps */
    CHUNK_IDS  = 16384, /* ids a chunk has room for, unless its first text needs more */
    TEXT_KEPT  = 256 * 1024 /* bytes of prompt + text, and of ids, that an idle feeder keeps */
};

/* Ids of one text of a pair, without what a template adds. */
typedef struct side {
    int32_t *ids; /* owned [capacity] */
    size_t   count, capacity;
    bool     cut;
} side;

struct fl_feeder {
    fl_feeder        *next;
    fl_token_scratch *scratch; /* owned */
    fl_stop           stop;    /* what scratch asks */
    fl_memory        *memory;  /* borrowed: where scratch asks for room; NULL: nowhere */
    uint64_t reserved; /* of it, for what scratch grows by now; what it grew by is resident */
    bool     grown;    /* scratch asked */
    fl_buf   text;     /* prompt + text */
    side     side[2];  /* the texts of a pair */
};

static void free_sides(fl_feeder *feeder, size_t kept) {
    for (size_t i = 0; i < 2; i++)
        if (feeder->side[i].capacity * sizeof(int32_t) > kept) {
            fl_free(feeder->side[i].ids);
            feeder->side[i] = (side){0};
        }
}

/* ---- Feeders --------------------------------------------------------------------------------- */

static fl_feeder *feeder_new(const fletch_model *model, fletch_error *error) {
    fl_feeder *feeder = fl_alloc_zero(1, sizeof *feeder);
    if (feeder)
        feeder->scratch = fl_token_scratch_new(model->tokenizer);
    if (feeder && feeder->scratch)
        return feeder;
    fl_free(feeder);
    fl_fail_nomem(error, sizeof *feeder, "the scratch of a tokenising thread");
    return NULL;
}

static bool take_room(void *user, uint64_t bytes) {
    fl_feeder *feeder = user;
    fl_memory_release(feeder->memory, feeder->reserved);
    const bool fits  = fl_memory_reserve(feeder->memory, bytes);
    feeder->reserved = fits ? bytes : 0;
    feeder->grown    = true;
    return fits;
}

fl_feeder *fl_feeder_take(fletch_model *model, int (*unwanted)(void *user), void *user,
                          fletch_error *error) {
    fl_model_lock(model);
    fl_feeder *feeder = model->idle_feeders;
    if (feeder)
        model->idle_feeders = feeder->next;
    fl_model_unlock(model);
    feeder = feeder ? feeder : feeder_new(model, error);
    if (feeder) {
        feeder->memory = model->predict ? model->memory : NULL;
        feeder->stop   = (fl_stop){.asked     = unwanted,
                                   .user      = user,
                                   .room      = feeder->memory ? take_room : NULL,
                                   .room_user = feeder};
        fl_token_scratch_stop(feeder->scratch, &feeder->stop);
    }
    return feeder;
}

void fl_feeder_give(fletch_model *model, fl_feeder *feeder) {
    fl_token_scratch_stop(feeder->scratch, NULL);
    if (feeder->grown) {
        fl_token_scratch_trim(feeder->scratch);
        fl_memory_release(feeder->memory, feeder->reserved);
        feeder->reserved = 0;
        feeder->grown    = false;
    }
    if (feeder->text.capacity > TEXT_KEPT)
        fl_buf_free(&feeder->text);
    free_sides(feeder, TEXT_KEPT);
    fl_model_lock(model);
    feeder->next        = model->idle_feeders;
    model->idle_feeders = feeder;
    fl_model_unlock(model);
}

void fl_feeders_free(fletch_model *model) {
    while (model->idle_feeders) {
        fl_feeder *feeder   = model->idle_feeders;
        model->idle_feeders = feeder->next;
        fl_token_scratch_free(feeder->scratch);
        fl_buf_free(&feeder->text);
        free_sides(feeder, 0);
        fl_free(feeder);
    }
}

fl_token_scratch *fl_feeder_scratch(fl_feeder *feeder) {
    return feeder->scratch;
}

fl_buf *fl_feeder_text(fl_feeder *feeder) {
    return &feeder->text;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* A chunk in the making: where its arrays are, and how far they are filled. */
typedef struct filling {
    fl_request   *request;
    fl_feeder    *feeder;
    fl_chunk     *chunk; /* NULL: none begun */
    uint32_t     *cu, *index, *skip, *segment, *keys;
    int32_t      *ids;
    uint32_t      texts_max, ids_max;
    bool          helps;           /* by a slot's thread: not the one that waits for the request */
    uint64_t      begin_ns, bytes; /* of text in the chunk */
    uint32_t      cached, cached_tokens; /* texts since it began that the cache had */
    fletch_error *error;
} filling;

/* Whether text `index` has another beside it. */
static bool is_pair(const fl_request *r, size_t index) {
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

static size_t ids_bound(const fl_request *r, size_t index) {
    size_t most = text_bound(r, index), least = filled_to(r, index);
    return most > least ? most : least;
}

size_t fl_chunk_bytes(size_t need) {
    if (need <= FL_CHUNK_SMALL)
        return FL_CHUNK_SMALL;
    if (need <= FL_CHUNK_MIDDLE)
        return FL_CHUNK_MIDDLE;
    return need <= FL_CHUNK_LARGE ? FL_CHUNK_LARGE : need;
}

/* A chunk for texts [index, last), or as many of them as CHUNK_IDS has room
 * for. */
static int begin_chunk(filling *f, size_t index, size_t last) {
    size_t   ids   = 0;
    uint32_t texts = 0;
    for (size_t i = index; i < last; i++) {
        if (fl_repeats_has(f->request, i))
            continue;
        size_t more = ids_bound(f->request, i);
        if (texts > 0 && ids + more > CHUNK_IDS)
            break;
        ids += more;
        texts++;
    }
    size_t words = texts + 1 + 4 * (size_t)texts + ids;
    size_t need  = sizeof(fl_chunk) + words * sizeof(uint32_t);
    size_t capacity;
    f->chunk = fl_bufpool_take(f->request->model->inputs, fl_chunk_bytes(need), &capacity);
    if (!f->chunk)
        return fl_fail_nomem(f->error, need, "tokens of texts");
    memset(f->chunk, 0, sizeof *f->chunk);
    f->texts_max       = texts;
    f->ids_max         = (uint32_t)ids;
    f->cu              = (uint32_t *)(void *)(f->chunk + 1);
    f->index           = f->cu + texts + 1;
    f->skip            = f->index + texts;
    f->segment         = f->skip + texts;
    f->keys            = f->segment + texts;
    f->ids             = (int32_t *)(void *)(f->keys + texts);
    f->chunk->capacity = capacity;
    f->chunk->request  = f->request;
    f->chunk->first    = index;
    f->chunk->cu       = f->cu;
    f->chunk->index    = f->index;
    f->chunk->skip     = f->skip;
    f->chunk->segment  = f->segment;
    f->chunk->keys     = f->keys;
    f->chunk->ids      = f->ids;
    f->cu[0]           = 0;
    f->begin_ns        = fl_clock_ns();
    f->bytes           = 0;
    f->cached          = 0;
    f->cached_tokens   = 0;
    return FLETCH_OK;
}

static int fail_utf8(fletch_error *error, size_t index, const char *text, size_t valid) {
    return fl_fail(error, FLETCH_EUTF8, index,
                   "text %zu is not valid UTF-8: byte 0x%02X at offset %zu; "
                   "convert it to UTF-8 or "
                   "replace such bytes before embedding",
                   index, (unsigned)(unsigned char)text[valid], valid);
}

/* Text `index`, which is valid UTF-8. */
static int take_text(filling *f, const fletch_texts *texts, size_t index, const char **text,
                     size_t *size) {
    FL_TRY(fl_texts_at(texts, index, text, size, f->error));
    size_t valid = fl_utf8_valid_prefix(*text, *size);
    f->bytes += *size;
    return valid == *size ? FLETCH_OK : fail_utf8(f->error, index, *text, valid);
}

/* *text behind the request's prompt, if there is one. */
static int add_prompt(const fl_request *r, fl_feeder *feeder, const char **text, size_t *size,
                      fletch_error *error) {
    fl_buf *both = &feeder->text;
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
static int encode_text(filling *f, size_t index, int32_t *ids, size_t capacity, size_t *tokens,
                       bool *cut) {
    fl_request *r    = f->request;
    const char *text = NULL;
    size_t      size = 0;
    FL_TRY(take_text(f, &r->texts, index, &text, &size));
    FL_TRY(add_prompt(r, f->feeder, &text, &size, f->error));
    return fl_tokenizer_encode(r->model->tokenizer, f->feeder->scratch, text, size, &r->encode, ids,
                               capacity, tokens, cut, f->error);
}

/* One text of a pair; more than `limit` (0: none) ids of it are never needed. */
static int encode_side(const fl_request *r, fl_feeder *feeder, const char *text, size_t size,
                       size_t limit, side *out, fletch_error *error) {
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
    return fl_tokenizer_encode(tokenizer, feeder->scratch, text, size, &encode, out->ids,
                               out->capacity, &out->count, &out->cut, error);
}

int fl_feed_unwanted(void *request) {
    const fl_request *r = request;
    return atomic_load(&r->dropped) || fl_clock_ns() >= r->deadline_ns ||
           (r->stop && r->stop(r->stop_user) != 0);
}

int fl_feed_given_up(const fl_request *r, fletch_error *error) {
    return fl_clock_ns() >= r->deadline_ns ? fl_request_late(error)
                                           : fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE,
                                                     "the request was given up by its caller");
}

int fl_feed_query(fl_request *r, fl_feeder *feeder, fletch_error *error) {
    const char *text = r->query;
    size_t      size = r->query_size;
    side       *own  = &feeder->side[0];
    FL_TRY(add_prompt(r, feeder, &text, &size, error));
    FL_TRY(encode_side(r, feeder, text, size, 0, own, error));
    size_t bytes = own->count * sizeof *own->ids;
    r->query_ids = fl_bufpool_take(r->model->inputs, fl_chunk_bytes(bytes), &r->query_capacity);
    if (!r->query_ids)
        return fl_fail_nomem(error, bytes, "the tokens of a query");
    r->query_count = own->count;
    if (bytes > 0)
        memcpy(r->query_ids, own->ids, bytes);
    return FLETCH_OK;
}

/* The same as a chat. */
static int encode_chat(filling *f, size_t index, int32_t *ids, size_t capacity, fl_pair *pair) {
    fl_request *r     = f->request;
    fl_span     query = {r->query, r->query_size}, document = {0};
    FL_TRY(take_text(f, &r->texts, index, &document.data, &document.size));
    if (!r->query) {
        query = document;
        FL_TRY(take_text(f, &r->second, index, &document.data, &document.size));
    }
    return fl_chat_encode(r, f->feeder, &query, &document, ids, capacity, pair, f->error);
}

/* Pair `index` to ids[capacity]: the query and text `index`, or that and its second. */
static int encode_pair(filling *f, size_t index, int32_t *ids, size_t capacity, fl_pair *pair) {
    fl_request *r = f->request;
    if (r->model->model->chat_count > 0)
        return encode_chat(f, index, ids, capacity, pair);
    side        *first = &f->feeder->side[0], *second = &f->feeder->side[1];
    fl_pair_side a    = {.ids = r->query_ids, .count = r->query_count};
    const char  *text = NULL;
    size_t       size = 0;
    FL_TRY(take_text(f, &r->texts, index, &text, &size));
    if (!r->query_ids) {
        FL_TRY(add_prompt(r, f->feeder, &text, &size, f->error));
        FL_TRY(encode_side(r, f->feeder, text, size, 0, first, f->error));
        FL_TRY(take_text(f, &r->second, index, &text, &size));
        a = (fl_pair_side){.ids = first->ids, .count = first->count};
    }
    size_t limit = a.count > r->encode.max_length ? a.count : r->encode.max_length;
    FL_TRY(encode_side(r, f->feeder, text, size, limit, second, f->error));
    FL_TRY(fl_tokenizer_pair(
        r->model->tokenizer, &a, &(fl_pair_side){.ids = second->ids, .count = second->count},
        &r->encode, FL_PAIR_LONGEST_FIRST, ids, NULL, NULL, capacity, pair, f->error));
    pair->truncated = pair->truncated || second->cut;
    return FLETCH_OK;
}

/* The ids that truncation leaves of from[count], as a text is cut: special tokens of the template stay at
 * the ends where the caller has put them. */
static void cut_ids(const fl_request *r, const int32_t *from, size_t count, int32_t *ids) {
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
static int copy_ids(filling *f, size_t index, int32_t *ids, size_t *tokens, bool *cut) {
    const fl_request *r = f->request;
    const int32_t    *from;
    size_t            count;
    uint32_t          vocab = r->model->model->encoder.desc.vocab;
    FL_TRY(fl_ids_at(r, index, &from, &count, f->error));
    for (size_t i = 0; i < count; i++)
        if (from[i] < 0 || (uint32_t)from[i] >= vocab)
            return fl_fail(f->error, FLETCH_EINVAL, index,
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

/* Where a result of the cache goes: to text `index` of a part of the answer. */
typedef struct taking {
    fl_answer *part;
    size_t     index;
} taking;

static bool take_cached(void *arg, const void *value, size_t size) {
    const taking *t = arg;
    return fl_answer_take(t->part, t->index, value, size) == FLETCH_OK;
}

/* Whether the text that was laid down last has its results already, all of them. */
static bool is_cached(const filling *f, uint32_t k, size_t index) {
    fl_request *r = f->request;
    size_t      parts;
    fl_answer  *part   = fl_answer_parts(&r->answer, &parts);
    bool        cached = r->model->cache && fl_request_may_cache(r);
    for (size_t i = 0; i < parts && cached; i++) {
        taking       t   = {.part = &part[i], .index = index};
        fl_cache_key key = fl_chunk_key(f->chunk, k, &part[i]);
        cached           = fl_cache_find(r->model->cache, &key, take_cached, &t);
    }
    return cached;
}

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

/* `characters`: code of the Hub cuts behind so many; 0: it has too many tokens. */
static int refuse_long(const filling *f, size_t index, uint32_t characters) {
    return fl_fail(f->error, FLETCH_ETOOLONG, index,
                   "text %zu has more than %u %s and truncation is off; shorten it, or allow "
                   "truncation (truncate=right)",
                   index, characters > 0 ? characters : f->request->encode.max_length,
                   characters > 0 ? "characters" : "tokens");
}

/* Text `index` becomes the next of the chunk. */
static int add_text(filling *f, size_t index) {
    fl_request *r      = f->request;
    uint32_t    k      = f->chunk->texts;
    uint32_t    at     = f->cu[k];
    size_t      tokens = 0;
    bool        cut    = false;
    size_t      room   = f->ids_max - at;
    fl_pair     pair   = {0};
    bool        paired = r->pairs && is_pair(r, index), ids = fl_item_is_ids(r, index);
    int         status = FLETCH_OK;
    if (r->model->model->chat_count > 0 && !paired)
        return fl_fail(f->error, FLETCH_EINVAL, index,
                       "text %zu stands alone, and this model scores pairs", index);
    if (ids)
        status = copy_ids(f, index, f->ids + at, &tokens, &cut);
    else if (paired)
        status = encode_pair(f, index, f->ids + at, room, &pair);
    else
        status = encode_text(f, index, f->ids + at, room, &tokens, &cut);
    if (status < 0)
        return status;
    if (paired) {
        tokens = pair.count;
        cut    = pair.truncated;
    }
    if (cut && r->refuse_long)
        return refuse_long(f, index, pair.characters);
    bool nothing = tokens == 0 && !ids && room > 0 && r->answer.may_be_empty;
    if (nothing) { /* one token that is left out: the mean of none is zero */
        f->ids[at] = 0;
        tokens     = 1;
    }
    if (tokens == 0) /* no special tokens in this model: there is nothing to pool */
        return fl_fail(
            f->error, FLETCH_EINVAL, index, "text %zu has no tokens, and %s; leave such texts out",
            index, ids ? "an empty list of ids has no vector" : "this model's tokenizer adds none");
    size_t unread = r->model->model->ends ? behind_end(r->model->model, f->ids + at, tokens)
                                          : padded(&r->answer, f->ids + at, tokens);
    tokens -= unread;
    f->keys[k] = (uint32_t)tokens;
    while (tokens < filled_to(r, index))
        f->ids[at + tokens++] = r->answer.of->filler;
    if (r->model->model->late.attends)
        f->keys[k] = (uint32_t)tokens;
    uint32_t skip = ids ? 0 : r->prompt_skip; /* a caller's ids are complete */
    f->cu[k + 1]  = at + (uint32_t)tokens;
    assert(tokens <= room && f->keys[k] <= tokens);
    f->index[k]   = (uint32_t)(index - f->chunk->first);
    f->skip[k]    = nothing || skip > tokens ? (uint32_t)tokens : skip;
    f->segment[k] = (uint32_t)(paired ? pair.segment : tokens);
    if (is_cached(f, k, index)) {
        f->cached++;
        f->cached_tokens += (uint32_t)tokens;
    } else {
        f->chunk->texts++;
    }
    if (r->options.tokens)
        r->options.tokens[index] = nothing ? 0 : (uint32_t)(tokens + unread);
    if (r->options.truncated)
        r->options.truncated[index] = cut;
    if (r->options.status)
        r->options.status[index] = FLETCH_OK;
    if (cut)
        fl_count(&r->model->stats, FLETCH_COUNT_TRUNCATED_TEXTS, 1);
    return FLETCH_OK;
}

/* Whether a feeder goes on with text `next`: also when the request has ended by a later text, for the first
 * bad one is the one to name. */
FL_LOCKED static bool still_wanted(const fl_request *r, size_t next) {
    return !r->ended || (r->error.where != FLETCH_NOWHERE && next < r->error.where);
}

/* The caller's own ids may stand between special tokens, which a query has none of. */
static void leave_out_specials(const fl_request *r, size_t text, int32_t **ids, size_t *count) {
    uint32_t       head, tail;
    const int32_t *before = fl_tokenizer_before(r->model->tokenizer, &head);
    const int32_t *after  = fl_tokenizer_after(r->model->tokenizer, &tail);
    if (!fl_item_is_ids(r, text) || *count < head + tail ||
        memcmp(*ids, before, head * sizeof **ids) != 0 ||
        memcmp(*ids + *count - tail, after, tail * sizeof **ids) != 0)
        return;
    *ids += head;
    *count -= head + tail;
}

/* The texts of a chunk get their results at once: no engine is asked. */
static void finish_at_once(filling *f, const fl_chunk *chunk, fl_request **over) {
    fl_answer *answer = &f->request->answer;
    fl_terms   terms  = {0};
    uint64_t   found  = 0;
    for (uint32_t k = 0; k < chunk->texts; k++) {
        uint32_t first = f->cu[k] + f->skip[k];
        size_t   text = fl_chunk_text(chunk, k), count = f->cu[k + 1] - first;
        int32_t *ids = f->ids + first;
        leave_out_specials(f->request, text, &ids, &count);
        fl_made made = {.ids = ids, .tokens = count, .terms = &terms};
        if (answer->ops->finish(answer, text, &made, f->error) == FLETCH_OK) {
            found++;
            continue;
        }
        fl_model_lock(f->request->model);
        fl_request_fail_text(f->request, text, f->error, over);
        fl_model_unlock(f->request->model);
    }
    fl_terms_free(&terms);
    fl_count(&f->request->model->stats, (fletch_counter)answer->ops->counter, found);
}

/* Queue the chunk, or give it back when it is empty; false when `next` and what follows it in its request are
 * not wanted any more. */
static bool close_chunk(filling *f, size_t next, fl_request **over) {
    fl_request   *r      = f->request;
    fletch_model *model  = r->model;
    fl_chunk     *chunk  = f->chunk;
    uint64_t      now    = fl_clock_ns();
    uint32_t      tokens = f->cu[chunk->texts];
    uint32_t      texts  = chunk->texts + f->cached;
    f->chunk             = NULL;
    fl_trace_end(model->trace, "tokenise", f->begin_ns, "tokens", tokens);
    if (texts > 0)
        fl_histogram_add(&model->stats.tokenize, (now - f->begin_ns) / texts, texts);
    if (f->bytes > 0) {
        fl_count(&model->stats, FLETCH_COUNT_TOKENIZED_BYTES, f->bytes);
        fl_count(&model->stats, FLETCH_COUNT_TOKENIZE_NS, now - f->begin_ns);
    }
    const bool at_once = r->answer.ops->from_ids;
    if (at_once)
        finish_at_once(f, chunk, over);
    fl_model_lock(model);
    r->tokenize_ns += now - f->begin_ns;
    r->finished += f->cached;
    r->tokens += f->cached_tokens;
    if (at_once) {
        r->tokens += tokens;
        fl_request_finish(r, chunk->texts, over);
    }
    if (chunk->texts == 0 || r->ended || at_once) {
        fl_bufpool_give(model->inputs, chunk, chunk->capacity);
    } else {
        r->tokens += tokens;
        r->ahead += tokens;
        chunk->unfinished = chunk->texts;
        chunk->sibling    = r->chunks;
        r->chunks         = chunk;
        fl_queue_push(&model->queue, chunk, now);
        if (f->helps || !r->carries || r->fed < r->texts.count) /* else its caller sees to it */
            fl_dispatch(model);
    }
    bool wanted = still_wanted(r, next);
    fl_model_unlock(model);
    return wanted;
}

/* Text `index` has no row; false when no more of its request is wanted. */
static bool fail_text(filling *f, size_t index, fl_request **over) {
    fl_request *r = f->request;
    if (r->options.tokens)
        r->options.tokens[index] = 0;
    if (r->options.truncated)
        r->options.truncated[index] = 0;
    fl_model_lock(r->model);
    fl_request_fail_text(r, index, f->error, over);
    if (!r->ended)
        fl_request_finish(r, 1, over);
    bool wanted = still_wanted(r, index + 1);
    fl_model_unlock(r->model);
    return wanted;
}

/* Nobody wants the request any more: nothing where it has ended already. */
static void give_up(filling *f, fl_request **over) {
    (void)fl_feed_given_up(f->request, f->error);
    fl_model_lock(f->request->model);
    fl_request_end(f->request, f->error, over);
    fl_model_unlock(f->request->model);
}

/* Texts [first, last), or up to where the request ended. */
static void feed_texts(filling *f, size_t first, size_t last, fl_request **over) {
    for (size_t i = first; i < last; i++) {
        if (fl_repeats_has(f->request, i))
            continue;
        if (f->chunk &&
            (f->chunk->texts == f->texts_max ||
             f->cu[f->chunk->texts] + ids_bound(f->request, i) > f->ids_max) &&
            !close_chunk(f, i, over))
            return;
        int status = f->chunk ? FLETCH_OK : begin_chunk(f, i, last);
        if (status == FLETCH_OK)
            status = add_text(f, i);
        if (status == FLETCH_OK)
            continue;
        if (f->chunk) /* what is good of it goes its way before the request may end */
            close_chunk(f, i, over);
        if (status == FLETCH_ECANCELLED) {
            give_up(f, over);
            return;
        }
        if (!fail_text(f, i, over))
            return;
    }
    if (f->chunk)
        close_chunk(f, last, over);
}

/* ---- Feeding --------------------------------------------------------------------------------- */

bool fl_feed_wanted(const fl_request *request) {
    return !request->ended && !request->held && request->fed < request->texts.count &&
           request->ahead < request->model->window_tokens;
}

/* The next `step` texts. (unlocks while it works) */
FL_LOCKED static void feed(fl_request *request, size_t step, bool helps, fl_request **over) {
    fletch_model *model = request->model;
    size_t        first = request->fed;
    size_t        left  = request->texts.count - first;
    size_t        last  = first + (left < step ? left : step);
    fletch_error  error = {0};
    filling       f     = {.request = request, .helps = helps, .error = &error};
    assert(first < last && last <= request->texts.count && !request->over);
    request->fed = last;
    request->feeders++;
    fl_model_unlock(model);
    f.feeder = fl_feeder_take(model, fl_feed_unwanted, request, &error);
    if (f.feeder) {
        feed_texts(&f, first, last, over);
        fl_feeder_give(model, f.feeder);
    }
    fl_model_lock(model);
    assert(request->feeders > 0);
    request->feeders--;
    if (!f.feeder)
        fl_request_end(request, &error, over);
    fl_request_settle(request, over);
}

void fl_feed(fl_request *request, fl_request **over) {
    feed(request, request->fed == 0 || request->done ? FEED_FIRST : FEED_TEXTS, false, over);
}

bool fl_feed_next(fletch_model *model, bool helps, fl_request **over) {
    fl_request *least = NULL;
    for (fl_request *request = model->live; request; request = request->after) {
        if (!fl_feed_wanted(request) || (!helps && (!request->done || request->feeders > 0)))
            continue;
        if (!least || request->ahead <= least->ahead) /* the list has the newest first */
            least = request;
    }
    if (least)
        feed(least, FEED_FIRST, helps, over);
    return least != NULL;
}
