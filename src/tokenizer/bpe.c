/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c - merging: see bpe.h. bpe_open.c fills the tables. */
#include "tokenizer/bpe.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bpe_tables.h"

enum { WINDOW = FL_BPE_WINDOW, LARGE = 1024, ASK_SYMBOLS = 16 * 1024 };

/* ---- Symbols ----------------------------------------------------------------------------------- */

/* Symbols of a word, one after the other. A symbol's length is in bytes of the word. */
typedef struct source {
    const fl_bpe *bpe;
    const char   *at, *end;
    bool          bytes; /* raw bytes; else characters */
    bool          first;
    bool          waiting; /* an unknown character is held back: the next may join it */
    uint32_t      waiting_size;
    fl_stop      *stop;
} source;

typedef struct symbol {
    uint32_t id, size;
} symbol;

/* The id of a character with its affixes, or -1; *size gets the length of its text. */
static int32_t character(const source *s, unsigned length, bool last, char *text, size_t *size) {
    assert(length >= 1 && length <= 4);
    const fl_bpe *b    = s->bpe;
    size_t        used = 0;
    if (!s->first) {
        used = strlen(b->prefix);
        memcpy(text, b->prefix, used);
    }
    memcpy(text + used, s->at, length);
    used += length;
    if (last) {
        memcpy(text + used, b->suffix, strlen(b->suffix));
        used += strlen(b->suffix);
    }
    *size = used;
    return fl_vocab_find(b->vocab, text, used);
}

/* The symbols of the next character, at out[0 ..); how many. */
static size_t next_character(source *s, symbol *out) {
    assert(s->at < s->end);
    const fl_bpe *b     = s->bpe;
    size_t        count = 0, size;
    unsigned      length;
    char          text[4 + 2 * FL_BPE_AFFIX_MAX];
    uint32_t      cp    = fl_utf8_decode(s->at, &length);
    bool          last  = s->at + length == s->end;
    bool          plain = (s->first || b->prefix[0] == '\0') && (!last || b->suffix[0] == '\0');
    int32_t       id    = plain && cp < FL_BPE_DIRECT ? b->direct[cp] : -1;
    memcpy(text, s->at, length);
    size = length;
    if (!plain || cp >= FL_BPE_DIRECT)
        id = character(s, length, last, text, &size);
    s->at += length;
    s->first = false;
    if (id >= 0) {
        if (s->waiting) {
            out[count++] = (symbol){(uint32_t)b->unk, s->waiting_size};
            s->waiting   = false;
        }
        out[count++] = (symbol){(uint32_t)id, length};
        return count;
    }
    if (b->byte_fallback) { /* all bytes or none; what waits goes on waiting, as in the reference */
        for (size_t i = 0; i < size && b->fallback[(uint8_t)text[i]] >= 0; i++)
            out[count++] = (symbol){(uint32_t)b->fallback[(uint8_t)text[i]], 1};
        if (count == size)
            return count;
        count = 0;
    }
    if (b->unk < 0) /* it vanishes */
        return 0;
    if (s->waiting && !b->fuse_unk) {
        out[count++]    = (symbol){(uint32_t)b->unk, s->waiting_size};
        s->waiting_size = 0;
    }
    s->waiting_size = (s->waiting ? s->waiting_size : 0) + length;
    s->waiting      = true;
    return count;
}

/* Up to `room` symbols; fewer only at the end of the word or when the next character might not fit. */
static size_t read_symbols(source *s, symbol *out, size_t room) {
    size_t count = 0;
    if (s->bytes) {
        for (; count < room && s->at < s->end; count++)
            out[count] = (symbol){(uint32_t)s->bpe->of_byte[(uint8_t)*s->at++], 1};
        if (s->at == s->end && count > 0)
            out[count - 1].id = (uint32_t)s->bpe->of_last[(uint8_t)s->at[-1]];
        return count;
    }
    for (size_t turn = 1; s->at < s->end && count + FL_BPE_CHARACTER_MAX <= room; turn++) {
        count += next_character(s, out + count);
        if (turn % ASK_SYMBOLS == 0 && fl_stopped(s->stop))
            break; /* of a window so large; encode_windows gives up */
    }
    if (s->at == s->end && s->waiting && count < room) {
        out[count++] = (symbol){(uint32_t)s->bpe->unk, s->waiting_size};
        s->waiting   = false;
    }
    return count;
}

/* The bytes of the last `count` symbols that were read, where symbols are bytes. */
static const uint8_t *bytes_of(const source *s, size_t count) {
    return s->bytes ? (const uint8_t *)s->at - count : NULL;
}

static bool at_end(const source *s) {
    return s->at == s->end && !s->waiting;
}

/* ---- Few symbols ------------------------------------------------------------------------------- */

/* The least of the keys, `fours` times four. Four minima at a time; as vectors they would wait for the stores of
 * single keys just before. */
static inline uint64_t least(const uint64_t *key, size_t fours) {
    uint64_t a = key[0], b = key[1], c = key[2], d = key[3];
    for (size_t i = 1; i < fours; i++) {
        key += 4;
        a = key[0] < a ? key[0] : a;
        b = key[1] < b ? key[1] : b;
        c = key[2] < c ? key[2] : c;
        d = key[3] < d ? key[3] : d;
    }
    a = b < a ? b : a;
    c = d < c ? d : c;
    return c < a ? c : a;
}

/* A pair's key: the rank of its merge, then its place, so that the leftmost of equal ones is the least. */
static inline uint64_t key_of(const fl_bpe *b, uint32_t left, uint32_t right, size_t at) {
    return (uint64_t)fl_bpe_rank_of(b, left, right) << 32 | at;
}

/* Merge s[count] in place, count <= WINDOW; how many are left. A symbol stays at its place; `live` has a bit for
 * each that is not part of another. `bytes`: what they stand for if they are bytes, else NULL. */
static size_t merge_few(const fl_bpe *b, symbol *s, size_t count, const uint8_t *bytes) {
    assert(count <= WINDOW);
    if (count == 0) /* every character is unknown and vanishes */
        return 0;
    const uint64_t none = (uint64_t)FL_BPE_NO_RANK << 32; /* and all above it */
    uint64_t       key[WINDOW];
    size_t         fours = (count + 3) / 4, known = 0;
    uint64_t       live = count < WINDOW ? (1ull << count) - 1 : UINT64_MAX;
    if (bytes != NULL) {
        for (; known + 1 < count; known++)
            key[known] = (uint64_t)b->first[bytes[known] * 256u + bytes[known + 1]] << 32 | known;
        known -= known > 0 && b->suffix[0] != '\0'; /* the last byte is another token there */
    }
    for (size_t i = known; i + 1 < count; i++)
        key[i] = key_of(b, s[i].id, s[i + 1].id, i);
    for (size_t i = count - 1; i < 4 * fours; i++)
        key[i] = none;
    for (uint64_t best; (best = least(key, fours)) < none;) {
        size_t   at     = (uint32_t)best;
        uint64_t after  = live & ~1ull << at; /* not empty: the pair has a right one */
        uint64_t before = live & ((1ull << at) - 1);
        size_t   right  = (size_t)__builtin_ctzll(after);
        s[at].id        = b->made[best >> 32];
        s[at].size += s[right].size;
        after &= after - 1;
        live ^= 1ull << right;
        key[right] = key[at] = none;
        size_t left          = before != 0 ? (size_t)(63 - __builtin_clzll(before)) : at;
        size_t next          = after != 0 ? (size_t)__builtin_ctzll(after) : at;
        /* Both at once: a branch that is predicted wrongly would hold back the second. */
        __builtin_prefetch(fl_bpe_bucket(b, fl_bpe_pair(s[left].id, s[at].id)));
        __builtin_prefetch(fl_bpe_bucket(b, fl_bpe_pair(s[at].id, s[next].id)));
        if (after != 0)
            key[at] = key_of(b, s[at].id, s[next].id, at);
        if (before != 0)
            key[left] = key_of(b, s[left].id, s[at].id, left);
    }
    size_t n = 0;
    for (; live != 0; live &= live - 1)
        s[n++] = s[__builtin_ctzll(live)];
    return n;
}

/* ---- A heap, for any number --------------------------------------------------------------------- */

typedef struct chain {
    uint32_t id, size, next, before; /* size 0: merged into another */
} chain;

typedef struct heap {
    uint64_t *at; /* rank << 32 | place */
    size_t    count;
} heap;

static void heap_push(heap *h, uint64_t entry) {
    size_t at = h->count++;
    for (; at > 0 && entry < h->at[(at - 1) / 2]; at = (at - 1) / 2)
        h->at[at] = h->at[(at - 1) / 2];
    h->at[at] = entry;
}

static uint64_t heap_pop(heap *h) {
    assert(h->count > 0);
    uint64_t top = h->at[0], last = h->at[--h->count];
    size_t   at = 0;
    for (size_t child = 1; child < h->count; child = 2 * at + 1) {
        child += child + 1 < h->count && h->at[child + 1] < h->at[child];
        if (last <= h->at[child])
            break;
        h->at[at] = h->at[child];
        at        = child;
    }
    h->at[at] = last;
    return top;
}

static void consider(const fl_bpe *b, heap *h, const chain *c, uint32_t left, uint32_t right) {
    assert(left != right);
    uint32_t rank = fl_bpe_rank_of(b, c[left].id, c[right].id);
    if (rank != FL_BPE_NO_RANK)
        heap_push(h, (uint64_t)rank << 32 | left);
}

/* Merge s[count] in place; SIZE_MAX: no memory, or stopped. A heap of 2 count holds: a merge takes one entry and
 * adds two. */
static size_t merge_many(const fl_bpe *b, symbol *s, size_t count, fl_stop *stop) {
    chain *c = count < UINT32_MAX / 2 ? fl_alloc_array(count, sizeof *c) : NULL;
    heap   h = {fl_alloc_array(count, 2 * sizeof *h.at), 0};
    size_t n = SIZE_MAX;
    if (c == NULL || h.at == NULL)
        goto done;
    for (uint32_t i = 0; i < count; i++) {
        c[i] = (chain){s[i].id, s[i].size, i + 1, i - 1};
        if (i > 0)
            consider(b, &h, c, i - 1, i);
        if ((i + 1) % ASK_SYMBOLS == 0 && fl_stopped(stop))
            goto done;
    }
    for (size_t turn = 1; h.count > 0; turn++) {
        if (turn % ASK_SYMBOLS == 0 && fl_stopped(stop))
            goto done;
        uint64_t top  = heap_pop(&h);
        uint32_t left = (uint32_t)top, right = c[left].next;
        uint32_t rank = FL_BPE_NO_RANK;
        if (c[left].size > 0 && right < count)
            rank = fl_bpe_rank_of(b, c[left].id, c[right].id);
        if (rank == FL_BPE_NO_RANK || rank != top >> 32)
            continue; /* one of the two has changed since */
        c[left].id = b->made[rank];
        c[left].size += c[right].size;
        c[left].next  = c[right].next;
        c[right].size = 0;
        if (c[left].next < count) {
            c[c[left].next].before = left;
            consider(b, &h, c, left, c[left].next);
        }
        if (c[left].before < count)
            consider(b, &h, c, c[left].before, left);
    }
    n = 0;
    for (size_t i = 0; i < count; i++)
        if (c[i].size > 0)
            s[n++] = (symbol){c[i].id, c[i].size};
done:
    fl_free(c);
    fl_free(h.at);
    return n;
}

/* ---- Words ------------------------------------------------------------------------------------- */

/* Where tokens go: ids alone, or with their places. */
typedef struct sink {
    int32_t       *ids;
    fl_word_token *tokens;
    size_t         count;
    uint32_t       at; /* where the next token begins */
} sink;

static inline void give(sink *out, const symbol *s, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (out->ids != NULL) {
            out->ids[out->count++] = (int32_t)s[i].id;
        } else {
            out->tokens[out->count++] =
                (fl_word_token){(int32_t)s[i].id, out->at, out->at + s[i].size};
        }
        out->at += s[i].size;
    }
}

/* The first token that both rows have at one place; both begin at one place. False: none. */
static bool shared(const symbol *a, size_t a_count, const symbol *b, size_t b_count, size_t *i,
                   size_t *j) {
    size_t a_end = 0, b_end = 0;
    *i = *j = 0;
    while (*i < a_count && *j < b_count) {
        if (a_end == b_end && a[*i].id == b[*j].id && a[*i].size == b[*j].size)
            return true;
        if (a_end <= b_end)
            a_end += a[(*i)++].size;
        else
            b_end += b[(*j)++].size;
    }
    return false;
}

/* Memory for a window of `size` symbols. */
typedef struct window {
    symbol *fresh; /* its symbols */
    symbol *old;   /* the tokens of the window before, from the place where this one begins */
    symbol *now;   /* its tokens */
    size_t  size;
} window;

/* How many symbols of fresh[count] the last of now[n] tokens take together, and which token is the first of
 * them: enough of them to overlap. */
static size_t overlap(const window *w, size_t count, size_t n, size_t *first) {
    assert(n <= count && count <= w->size);
    size_t symbols = 0, size = 0;
    for (*first = n; *first > 0 && symbols < w->size / 4;) {
        size = w->now[--*first].size;
        while (size > 0)
            size -= w->fresh[count - ++symbols].size;
    }
    return symbols;
}

typedef enum outcome { DONE, GIVEN_UP, TOO_SMALL } outcome;

/* TOO_SMALL: a token is nearly as long as the window, or two windows share no token. */
static outcome encode_windows(source *s, sink *out, const window *w) {
    size_t old_count = 0;
    size_t count     = read_symbols(s, w->fresh, w->size);
    for (size_t work = count;; work += count) {
        if (fl_was_stopped(s->stop) || (work >= ASK_SYMBOLS && fl_stopped(s->stop)))
            return GIVEN_UP;
        work     = work >= ASK_SYMBOLS ? 0 : work;
        size_t i = 0, j = 0, first;
        memcpy(w->now, w->fresh, count * sizeof *w->now);
        size_t n = w->size <= WINDOW ? merge_few(s->bpe, w->now, count, bytes_of(s, count))
                                     : merge_many(s->bpe, w->now, count, s->stop);
        if (n == SIZE_MAX)
            return GIVEN_UP;
        if (old_count > 0 && !shared(w->old, old_count, w->now, n, &i, &j))
            return TOO_SMALL;
        give(out, w->old, i);
        if (at_end(s)) {
            give(out, w->now + j, n - j);
            return DONE;
        }
        size_t symbols = overlap(w, count, n, &first);
        if (first <= j || w->size - symbols < FL_BPE_CHARACTER_MAX)
            return TOO_SMALL;
        give(out, w->now + j, first - j);
        old_count = n - first;
        memcpy(w->old, w->now + first, old_count * sizeof *w->old);
        memmove(w->fresh, w->fresh + count - symbols, symbols * sizeof *w->fresh);
        count = symbols + read_symbols(s, w->fresh + symbols, w->size - symbols);
    }
}

/* A word of more than WINDOW symbols that small windows could not do: larger ones, at last all of it. */
static outcome encode_long(const source *start, sink *out) {
    sink    begin  = *out;
    size_t  all    = (size_t)(start->end - start->at) * FL_BPE_CHARACTER_MAX + FL_BPE_CHARACTER_MAX;
    outcome result = TOO_SMALL;
    for (size_t size = LARGE; result == TOO_SMALL; size = size > all / 64 ? all : 64 * size) {
        source  s    = *start;
        symbol *room = fl_alloc_array(size, 3 * sizeof *room);
        window  w    = {room, room + size, room + 2 * size, size};
        *out         = begin;
        result       = room == NULL ? GIVEN_UP : encode_windows(&s, out, &w);
        fl_free(room);
    }
    return result;
}

static bool encode(source s, sink *out) {
    assert(s.at <= s.end && (out->ids != NULL) != (out->tokens != NULL));
    symbol fresh[WINDOW], old[WINDOW], now[WINDOW];
    if ((size_t)(s.end - s.at) <= WINDOW / FL_BPE_CHARACTER_MAX ||
        (s.bytes && s.end - s.at <= WINDOW)) {
        size_t count = read_symbols(&s, now, WINDOW);
        give(out, now, merge_few(s.bpe, now, count, bytes_of(&s, count)));
        return true;
    }
    const window w      = {fresh, old, now, WINDOW};
    const source start  = s;
    const sink   begin  = *out;
    outcome      result = encode_windows(&s, out, &w);
    if (result == TOO_SMALL) {
        *out   = begin;
        result = encode_long(&start, out);
    }
    return result == DONE;
}

size_t fl_bpe_encode(const fl_bpe *b, const char *piece, size_t size, int32_t *ids, fl_stop *stop) {
    assert(size > 0 && ids);
    sink    out  = {ids, NULL, 0, 0};
    int32_t self = fl_bpe_whole_find(b, piece, size);
    if (self >= 0) {
        ids[0] = self;
        return 1;
    }
    source s = {b, piece, piece + size, b->byte_level, true, false, 0, stop};
    return encode(s, &out) ? out.count : SIZE_MAX;
}

static size_t encode_word(const void *state, void *work, const char *word, size_t size,
                          fl_word_token *tokens, fl_stop *stop) {
    assert(size > 0 && tokens);
    const fl_bpe *b = state;
    (void)work;
    if (b->ignore_merges) {
        int32_t id = fl_vocab_find(b->vocab, word, size);
        if (id >= 0) {
            tokens[0] = (fl_word_token){id, 0, (uint32_t)size};
            return 1;
        }
    }
    source s   = {b, word, word + size, false, true, false, 0, stop};
    sink   out = {NULL, tokens, 0, 0};
    return encode(s, &out) ? out.count : SIZE_MAX;
}

/* A character gives at most as many tokens as it has bytes, affixes counted. */
static void measure(const void *state, size_t size, size_t *tokens, size_t *work) {
    const fl_bpe *b       = state;
    size_t        affixes = strlen(b->prefix) + strlen(b->suffix);
    *tokens               = size * (b->byte_fallback && affixes > 0 ? affixes + 1 : 1) + 1;
    *work                 = 0;
}

const fl_token_model fl_bpe_model = {"BPE", fl_bpe_open, NULL, fl_bpe_close, measure, encode_word};
