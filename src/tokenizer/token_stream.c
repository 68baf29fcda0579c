/* SPDX-License-Identifier: Apache-2.0 */
/* token_stream.c - the usual pipelines as fast as possible: text to ids, nothing else.
 *
 * Role     tokenizer.c takes this path when no offsets are wanted and the pipeline is BertNormalizer (any
 *          flags, or none) with BertPreTokenizer or WhitespaceSplit and no normalised added tokens; or
 *          SentencePiece's (words.c); or one of byte pair encoding (below).
 * In/Out   Valid UTF-8 -> int32 ids in the caller's buffer, at most `limit`.
 * Method   1. The scan turns a window of text into a lower-cased copy and bit masks of ASCII spaces and
 *             punctuation, and of bytes that are not plain ASCII.
 *          2. What stands between two such borders is a piece, and so is a punctuation character. Nothing
 *             in BERT's normaliser reaches across a border (they are starters that survive), so a
 *             piece always gives the same ids. Its bytes, as they stand, are a key into a cache of ids
 *             (pipeline.h): what has been seen is never normalised again.
 *          3. Pieces queue up between the hash and the compare, so that their lines arrive from
 *             memory meanwhile.
 *          4. A long piece of another script is first split at characters that are words of their own
 *             whatever surrounds them: Chinese ones and punctuation. Their ids are in a table.
 *
 *                 text    Das Café "日本語のテキスト。"
 *                 pieces  das|café|"|日本語|の|テキスト|。|"     日本語 and 。 from the table
 *
 *          5. A piece that the cache lacks walks the trie if it is ASCII, else chars.c normalises it.
 *          White space that lstrip or rstrip swallow needs no care here: it gives no ids anyway.
 *          Byte pair encoding shares cache and queue: pieces.h cuts its text, bpe.h works out what the cache
 *          lacks. What NFC may change goes through exact.c, a few words at a time.
 * Memory   Fixed buffers of the scratch.
 * Threads  One scratch per thread; caches are private, so threads never meet.
 * Proof    tests/golden/test_tokens.py; tests/fuzz/fuzz_tokenizer_text.c holds it against exact.c. */
#include "tokenizer/token_stream.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bpe_tables.h"
#include "tokenizer/unicode.h"

enum {
    SEGMENT     = 32 * 1024,
    SMALL_IDS   = 8,
    WIDE_IDS    = 4,
    LINES       = 4,
    AT_ONCE     = 32,
    ASK_BYTES   = 32 * 1024,
    PIECES      = 256,
    COUNT_SHIFT = 60
};

/* key_mask[n] keeps the first n of 16 bytes. */
static const uint64_t key_mask[FL_SHORT_BYTES + 1][2] = {
    {0, 0},
    {0xFF, 0},
    {0xFFFF, 0},
    {0xFFFFFF, 0},
    {0xFFFFFFFF, 0},
    {0xFFFFFFFFFF, 0},
    {0xFFFFFFFFFFFF, 0},
    {0xFFFFFFFFFFFFFF, 0},
    {UINT64_MAX, 0},
    {UINT64_MAX, 0xFF},
    {UINT64_MAX, 0xFFFF},
    {UINT64_MAX, 0xFFFFFF},
    {UINT64_MAX, 0xFFFFFFFF},
    {UINT64_MAX, 0xFFFFFFFFFF},
    {UINT64_MAX, 0xFFFFFFFFFFFF},
    {UINT64_MAX, 0xFFFFFFFFFFFFFF},
};

/* ---- Ids out ---------------------------------------------------------------------------------- */

/* The buffer is full: make room (left) or stop (right). False: stop. */
bool fl_stream_make_room(fl_stream *j) {
    assert(j->keep == SIZE_MAX || j->keep <= j->count);
    if (j->keep == SIZE_MAX) {
        j->truncated = j->full = true;
        return false;
    }
    memmove(j->ids, j->ids + (j->count - j->keep), j->keep * sizeof *j->ids);
    j->count     = j->keep;
    j->truncated = true;
    return true;
}

void fl_stream_worked(fl_stream *j, size_t bytes) {
    j->work += bytes;
    if (j->work >= ASK_BYTES) {
        j->work = 0;
        if (fl_stopped(j->scratch->runes.stop))
            j->full = j->scratch->failed = true;
    }
}

/* All the ids that fit an entry, at to[0 .. SMALL_IDS); those beyond its count mean nothing. */
static inline void widen(const fl_cached_ids *ids, bool small, int32_t *to) {
    if (!small) {
        memcpy(to, ids->wide, sizeof ids->wide);
        return;
    }
    for (size_t i = 0; i < SMALL_IDS; i++)
        to[i] = ids->small[i];
}

/* All ids of the entry are copied and only `count` of them claimed. */
static inline void push_short(fl_stream *j, const fl_cache_short *entry) {
    bool   small = j->tokenizer->small_ids;
    size_t count = entry->high >> COUNT_SHIFT;
    if (j->count + SMALL_IDS <= j->limit) {
        widen(&entry->ids, small, j->ids + j->count);
        j->count += count;
    } else {
        int32_t wide[SMALL_IDS] = {0};
        widen(&entry->ids, small, wide);
        fl_stream_push(j, wide, count);
    }
}

/* The same; the last of the first half is no id, and the second half is written over it. */
static inline void push_long(fl_stream *j, const fl_cache_long *entry) {
    bool     small               = j->tokenizer->small_ids;
    size_t   half                = small ? SMALL_IDS - 1 : WIDE_IDS - 1;
    size_t   count               = (uint32_t)entry->ids[0].wide[WIDE_IDS - 1] >> 28;
    int32_t  wide[2 * SMALL_IDS] = {0};
    bool     room                = j->count + sizeof wide / sizeof *wide <= j->limit;
    int32_t *to                  = room ? j->ids + j->count : wide;
    widen(&entry->ids[0], small, to);
    widen(&entry->ids[1], small, to + half);
    if (room)
        j->count += count;
    else
        fl_stream_push(j, wide, count);
}

/* ---- The cache -------------------------------------------------------------------------------- */

/* text[size] with zeros behind it, size <= 15; 16 bytes from `text` on can be read. */
static inline void load_key(const char *text, size_t size, uint64_t key[2]) {
    assert(size <= FL_SHORT_BYTES);
    memcpy(key, text, 16);
    key[0] &= key_mask[size][0];
    key[1] &= key_mask[size][1];
}

static inline void load_long_key(const char *text, size_t size, uint64_t key[4]) {
    assert(size > FL_SHORT_BYTES && size <= FL_LONG_BYTES);
    load_key(text, FL_SHORT_BYTES, key);
    load_key(text + FL_SHORT_BYTES, size - FL_SHORT_BYTES, key + 2);
    key[3] |= (uint64_t)size << 56;
}

/* The high bits of a product depend on all bits of both factors; the low ones do not. */
static inline uint64_t mix(uint64_t low, uint64_t high) {
    return (low ^ high * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
}

static void store_ids(bool small, fl_cached_ids *to, const int32_t *ids, size_t count) {
    assert(count <= (size_t)(small ? SMALL_IDS : WIDE_IDS));
    for (size_t i = 0; i < count && !small; i++)
        to->wide[i] = ids[i];
    for (size_t i = 0; i < count && small; i++)
        to->small[i] = (uint16_t)ids[i];
}

/* What lies on a line. The first of two short pieces is always there before the second. */
static inline bool has_one(const fl_cache_line *line) {
    return line->one.key[1] >> 56 == 0 && line->one.key[3] != 0;
}

static inline bool is_empty(const fl_cache_line *line) {
    return line->one.key[1] >> 56 == 0 && line->one.key[3] == 0;
}

static inline bool has_room(const fl_cache_line *line, bool one) {
    return is_empty(line) || (!one && !has_one(line) && line->two[1].high >> 56 == 0);
}

/* A piece that finds no place on its own line goes to one of three others, of which the first is that
 * line's neighbour and the two others are a pair elsewhere. `first` are bytes of its key. */
static fl_cache_line *other_line(const fl_stream *j, fl_cache_line *own, uint64_t first,
                                 unsigned n) {
    assert(n > 0 && n < LINES && own >= j->scratch->cache);
    fl_cache_line *cache = j->scratch->cache;
    size_t         place = (size_t)(own - cache);
    if (n >= 2)
        place = (size_t)(mix(first, place + 1) >> j->scratch->cache_shift);
    return cache + (place ^ (n & 1));
}

/* Where a new piece goes: to the first of its lines with room; when all are full they give way in turn, so
 * that more pieces than they hold do not push each other out for ever. */
static fl_cache_line *choose(fl_stream *j, fl_cache_line *own, uint64_t first, bool one) {
    for (unsigned n = 0; n < LINES; n++) {
        fl_cache_line *line = n == 0 ? own : other_line(j, own, first, n);
        if (has_room(line, one))
            return line;
    }
    unsigned turn = j->scratch->turn++ % LINES;
    return turn == 0 ? own : other_line(j, own, first, turn);
}

static void remember_short(fl_stream *j, const fl_waiting_piece *w, const int32_t *ids,
                           size_t count) {
    assert(w->line);
    bool           small = j->tokenizer->small_ids;
    fl_cache_line *line  = choose(j, w->line, w->low, false);
    if (has_one(line))
        memset(line, 0, sizeof *line);
    else if (!has_room(line, false))
        line->two[0] = line->two[1]; /* the older one goes */
    fl_cache_short *entry = &line->two[is_empty(line) ? 0 : 1];
    entry->low            = w->low;
    entry->high           = w->high | (uint64_t)count << COUNT_SHIFT;
    store_ids(small, &entry->ids, ids, count);
}

static void remember_long(fl_stream *j, fl_cache_line *own, const uint64_t key[4],
                          const int32_t *ids, size_t count) {
    assert(own && key[1] >> 56 == 0 && key[3] != 0); /* no ids are some as well: all was dropped */
    bool   small = j->tokenizer->small_ids;
    size_t half  = small ? SMALL_IDS - 1 : WIDE_IDS - 1;
    size_t first = count < half ? count : half;
    if (count > half + half + 1)
        return;
    fl_cache_long *entry = &choose(j, own, key[0], true)->one;
    memcpy(entry->key, key, sizeof entry->key);
    store_ids(small, &entry->ids[0], ids, first);
    store_ids(small, &entry->ids[1], ids + first, count - first);
    entry->ids[0].wide[WIDE_IDS - 1] &= 0xFFFF; /* the seventh small id */
    entry->ids[0].wide[WIDE_IDS - 1] |= (int32_t)((uint32_t)count << 28);
}

/* ---- From a piece to ids ------------------------------------------------------------------------ */

/* Whether a mark begins the text, which belongs to the cluster of a space before it. */
static inline bool begins_inside(const char *text) {
    unsigned length;
    return (uint8_t)text[0] >= 0xCC &&
           (fl_unicode_flags(fl_utf8_decode(text, &length)) & FL_UC_EXTEND) != 0;
}

/* The ids of the exact path; `good`: it has not failed. */
static void push_pieces(fl_stream *j, bool good) {
    if (!good) {
        j->full = j->scratch->failed = true;
        return;
    }
    for (size_t i = 0; i < j->scratch->piece_count && !j->full; i++)
        fl_stream_push(j, &j->scratch->pieces[i].id, 1);
}

/* A word of SentencePiece's, by way of the steps and the model. */
static void work_out_exactly(fl_stream *j, const char *text, size_t size) {
    if (text > j->begin && text[-1] == ' ' && begins_inside(text)) {
        text--;
        size++;
    }
    push_pieces(j, fl_exact_piece(j->tokenizer, j->scratch, text, size));
}

/* Spaces as SentencePiece writes them. Room for three bytes each. */
static size_t write_spaces(char *to, const char *text, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == ' ') {
            memcpy(to + used, "\xE2\x96\x81", 3);
            used += 3;
        } else {
            to[used++] = text[i];
        }
    }
    return used;
}

/* A word for byte pair encoding, of any length, after a space if so wanted. */
static void work_out_bytes(fl_stream *j, const char *text, size_t size, bool space) {
    fl_token_scratch *scratch = j->scratch;
    bool              spaces  = j->tokenizer->spaces != FL_SPACES_NONE;
    int32_t          *own = NULL, *ids = scratch->word_ids;
    char             *own_word = NULL, *word = scratch->word;
    if (size > FL_SCAN_WINDOW) {
        ids = own = fl_alloc_array(size + 8, 3 * sizeof *own);
        word = own_word = spaces ? fl_alloc_array(size + 16, 3) : NULL;
    }
    size_t count = SIZE_MAX;
    if (ids != NULL && spaces && word != NULL) {
        size_t used = space ? write_spaces(word, " ", 1) : 0;
        used += write_spaces(word + used, text, size);
        count = fl_bpe_encode(j->tokenizer->bpe, word, used, ids, scratch->runes.stop);
    } else if (ids != NULL && !spaces) {
        count = fl_bpe_encode(j->tokenizer->bpe, text, size, ids, scratch->runes.stop);
    }
    if (count == SIZE_MAX)
        j->full = scratch->failed = true;
    else
        fl_stream_push(j, ids, count);
    fl_free(own);
    fl_free(own_word);
}

static void work_out(fl_stream *j, const fl_waiting_piece *w) {
    if (j->tokenizer->words) {
        work_out_exactly(j, j->window + (w->text - j->scratch->lower), w->size);
        return;
    }
    if (w->kind == FL_WAITING_BYTES) {
        work_out_bytes(j, w->text, w->size, false);
        return;
    }
    const fl_wordpiece *wordpiece = j->tokenizer->wordpiece;
    if (w->kind == FL_WAITING_FOREIGN) {
        fl_stream_chars(j, j->window + (w->text - j->scratch->lower), w->size);
        return;
    }
    int32_t *ids   = j->scratch->word_ids;
    size_t   count = 0;
    if (w->size <= wordpiece->max_chars)
        count = fl_wordpiece_encode(wordpiece, w->text, w->size, ids);
    fl_stream_push(j, count > 0 ? ids : &wordpiece->unk, count > 0 ? count : 1);
}

/* Where the ids of a piece began, unless they were cut short or moved to make room. */
static const int32_t *made_since(const fl_stream *j, size_t before, size_t *count) {
    assert(j->count <= j->limit);
    *count = j->count - before;
    return j->full || j->count < before ? NULL : j->ids + before;
}

static inline bool is_long(const fl_cache_long *entry, const uint64_t key[4]) {
    return ((key[0] ^ entry->key[0]) | (key[1] ^ entry->key[1]) | (key[2] ^ entry->key[2]) |
            (key[3] ^ entry->key[3])) == 0;
}

static __attribute__((noinline)) void look_further_long(fl_stream *j, const fl_waiting_piece *w,
                                                        const uint64_t key[4]) {
    for (unsigned n = 1; n < LINES; n++) {
        const fl_cache_line *other = other_line(j, w->line, key[0], n);
        if (is_long(&other->one, key)) {
            push_long(j, &other->one);
            return;
        }
    }
    size_t count, before = j->count;
    work_out(j, w);
    const int32_t *ids = made_since(j, before, &count);
    if (ids != NULL)
        remember_long(j, w->line, key, ids, count);
}

/* All the ids that an entry of the queue holds are copied and only `size` of them claimed. */
static inline void push_alone(fl_stream *j, const fl_waiting_piece *w) {
    if (j->count + FL_WAITING_IDS <= j->limit) {
        memcpy(j->ids + j->count, w->alone, sizeof w->alone);
        j->count += w->size;
    } else {
        fl_stream_push(j, w->alone, w->size);
    }
}

/* Pieces that are not short. */
static void take_other(fl_stream *j, const fl_waiting_piece *w) {
    uint64_t key[4];
    if (w->kind == FL_WAITING_ALONE) {
        push_alone(j, w);
        return;
    }
    if (w->line == NULL) {
        work_out(j, w);
        return;
    }
    load_long_key(w->text, w->size, key);
    if (is_long(&w->line->one, key))
        push_long(j, &w->line->one);
    else
        look_further_long(j, w, key);
}

/* The number of ids is no part of the key. */
static inline bool is_short(const fl_cache_short *entry, const fl_waiting_piece *w) {
    return ((entry->low ^ w->low) | (entry->high ^ w->high) << 4) == 0;
}

/* Not where it was expected first: on another line, or on a line of its own because it has many ids (as
 * Hangul does, in a vocabulary of its parts), or nowhere. */
static __attribute__((noinline)) void look_further_short(fl_stream *j, const fl_waiting_piece *w) {
    const uint64_t key[4] = {w->low, w->high & UINT64_MAX >> 8, 0, (uint64_t)w->size << 56};
    for (unsigned n = 0; n < LINES; n++) {
        const fl_cache_line *line  = n == 0 ? w->line : other_line(j, w->line, w->low, n);
        unsigned             place = is_short(&line->two[1], w);
        if (is_short(&line->two[place], w)) {
            push_short(j, &line->two[place]);
            return;
        }
        if (is_long(&line->one, key)) {
            push_long(j, &line->one);
            return;
        }
    }
    size_t count, before = j->count;
    work_out(j, w);
    const int32_t *ids = made_since(j, before, &count);
    if (ids != NULL && count <= (j->tokenizer->small_ids ? SMALL_IDS : WIDE_IDS))
        remember_short(j, w, ids, count);
    else if (ids != NULL)
        remember_long(j, w->line, key, ids, count);
}

/* All that waits becomes ids, in order. */
static void drain(fl_stream *j) {
    for (size_t i = 0; i < j->queued && !j->full; i++) {
        const fl_waiting_piece *w = &j->scratch->queue[i];
        if (w->size > FL_SHORT_BYTES || w->kind >= FL_WAITING_ALONE)
            take_other(j, w);
        else if (is_short(&w->line->two[0], w))
            push_short(j, &w->line->two[0]);
        else if (is_short(&w->line->two[1], w))
            push_short(j, &w->line->two[1]);
        else
            look_further_short(j, w);
    }
    j->queued = 0;
}

/* ---- From text to pieces ------------------------------------------------------------------------ */

static inline fl_waiting_piece *next_waiting(fl_stream *j, size_t size, fl_waiting_kind kind) {
    if (j->queued == FL_QUEUE_WORDS)
        drain(j);
    fl_waiting_piece *w = &j->scratch->queue[j->queued++];
    w->size             = (uint32_t)size;
    w->kind             = kind;
    return w;
}

static void send_long(fl_stream *j, fl_waiting_piece *w) {
    uint64_t key[4];
    w->line = NULL;
    if (w->size <= FL_LONG_BYTES) {
        load_long_key(w->text, w->size, key);
        uint64_t hash = mix(mix(key[0], key[1]) >> 32 ^ key[2], key[3]);
        w->line       = &j->scratch->cache[hash >> j->scratch->cache_shift];
        __builtin_prefetch(w->line);
    }
}

/* Queue lower[start .. start + size), a whole piece. */
static inline void send_piece(fl_stream *j, size_t start, size_t size, fl_waiting_kind kind) {
    fl_waiting_piece *w = next_waiting(j, size, kind);
    w->text             = j->scratch->lower + start;
    if (kind == FL_WAITING_APART) {
        w->line = NULL;
        return;
    }
    if (size > FL_SHORT_BYTES) {
        send_long(j, w);
        return;
    }
    uint64_t key[2];
    load_key(w->text, size, key);
    w->low  = key[0];
    w->high = key[1] | (uint64_t)size << 56;
    w->line = &j->scratch->cache[mix(w->low, w->high) >> j->scratch->cache_shift];
    __builtin_prefetch(w->line);
}

/* Bytes of the character that begins with `lead`. */
static inline unsigned size_of(uint8_t lead) {
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* Some characters of the lowered text, and which of them are words of their own. */
typedef struct characters {
    size_t   count;
    uint64_t alone, space; /* bit n for character n: it has an id; it ends words and vanishes */
    size_t   place[AT_ONCE + 1]; /* the last is where they end */
    uint16_t index[AT_ONCE];     /* into alone_ids */
} characters;

/* Look at characters from lower[at] on. The end of the window may tear the last one: it is no word. */
static inline void look_at(const fl_stream *j, size_t at, size_t end, characters *c) {
    size_t   n     = 0;
    uint64_t alone = 0, space = 0;
    for (; n < AT_ONCE && at < end; n++) {
        const char *text  = j->scratch->lower + at;
        uint8_t     lead  = (uint8_t)text[0];
        unsigned    size  = size_of(lead);
        uint16_t    found = 0;
        if ((size == 2 || size == 3) && size <= end - at)
            found = j->tokenizer->alone[fl_utf8_decode(text, &size)];
        c->index[n] = found;
        c->place[n] = at;
        alone |= (uint64_t)(found > FL_ALONE_SPACE) << n;
        space |= (uint64_t)(found == FL_ALONE_SPACE) << n;
        at += size;
    }
    c->place[n] = at;
    c->count    = n;
    c->alone    = alone;
    c->space    = space;
}

static inline void send_alone(fl_stream *j, const uint16_t *index, size_t count) {
    for (size_t done = 0; done < count; done += FL_WAITING_IDS) {
        size_t            size = count - done < FL_WAITING_IDS ? count - done : FL_WAITING_IDS;
        fl_waiting_piece *w    = next_waiting(j, size, FL_WAITING_ALONE);
        for (size_t i = 0; i < size; i++)
            w->alone[i] = j->tokenizer->alone_ids[index[done + i]];
    }
}

/* Queue lower[start .. end) up to its last character that is a word of its own; returns what follows. */
static size_t send_split(fl_stream *j, size_t start, size_t end) {
    characters c;
    for (size_t at = start; at < end; at = c.place[c.count]) {
        look_at(j, at, end, &c);
        uint64_t stops = c.alone | c.space;
        for (size_t n = 0; stops >> n != 0;) {
            n += (size_t)__builtin_ctzll(stops >> n);
            if (c.place[n] > start)
                send_piece(j, start, c.place[n] - start, FL_WAITING_FOREIGN);
            size_t run = (size_t)__builtin_ctzll(~(c.alone >> n));
            send_alone(j, c.index + n, run);
            n += run > 0 ? run : 1;
            start = c.place[n];
        }
    }
    return start;
}

/* Whether one of 8 bytes is E2 to E9, as characters begin in U+2000 to U+9FFF: nearly all that are words of
 * their own. Bit 7 of x << n is bit 7 - n of each byte. */
static inline bool has_cjk_lead(const char *text) {
    uint64_t x;
    memcpy(&x, text, sizeof x);
    uint64_t high = x & x << 1 & x << 2 & ~(x << 3); /* 1110.... */
    uint64_t low  = x << 4 ^ (x << 5 | x << 6);      /* ....0010 to ....0111, ....100. */
    return (high & low & 0x8080808080808080u) != 0;
}

/* A piece with bytes that are not plain ASCII and too long to be a short one. Words of other scripts go as
 * they are; bytes behind the piece may be taken for its own. Both only cost or save time. */
static void send_foreign(fl_stream *j, size_t start, size_t end) {
    bool split = false;
    for (size_t at = start; at < end; at += sizeof(uint64_t))
        split = split || has_cjk_lead(j->scratch->lower + at);
    if (split)
        start = send_split(j, start, end);
    if (start < end)
        send_piece(j, start, end - start, FL_WAITING_FOREIGN);
}

static inline void send_text(fl_stream *j, size_t start, size_t end, bool foreign) {
    if (!foreign) {
        send_piece(j, start, end - start, FL_WAITING_PLAIN);
    } else if (j->tokenizer->words) {
        bool apart = begins_inside(j->scratch->lower + start);
        send_piece(j, start, end - start, apart ? FL_WAITING_APART : FL_WAITING_FOREIGN);
    } else if (end - start <= FL_SHORT_BYTES) {
        send_piece(j, start, end - start, FL_WAITING_FOREIGN);
    } else {
        send_foreign(j, start, end);
    }
}

static inline bool is_solid(const fl_tokenizer *tokenizer, const char *at) {
    unsigned length;
    uint32_t cp = fl_utf8_decode(at, &length);
    return cp < FL_INERT_COUNT && (tokenizer->solid[cp / 64] >> cp % 64 & 1) != 0;
}

/* Does the space at `at` part words where only a lone one does? */
static bool parts(const fl_tokenizer *tokenizer, const char *begin, const char *end,
                  const char *at) {
    return at > begin && at + 1 < end && is_solid(tokenizer, at + 1) &&
           is_solid(tokenizer, begin + fl_utf8_before(begin, (size_t)(at - begin)));
}

/* Queue the pieces that end in the scanned window; returns where the last one begins, which may go on. */
static inline size_t send_window(fl_stream *j, size_t window, bool *foreign, bool spaced) {
    const fl_scan_masks *masks = &j->scratch->masks;
    size_t               start = 0;
    for (size_t block = 0; block * 64 < window && !j->full; block++) {
        uint64_t exact = masks->exact[block];
        for (uint64_t ends = masks->boundary[block]; ends != 0; ends &= ends - 1) {
            unsigned bit = (unsigned)__builtin_ctzll(ends);
            size_t   at  = block * 64 + bit;
            if (at >= window)
                break;
            if (spaced && !parts(j->tokenizer, j->begin, j->end, j->window + at))
                continue;
            uint64_t before = exact & ((1ull << bit) - 1);
            if (at > start)
                send_text(j, start, at, *foreign || before != 0);
            if ((masks->punct[block] >> bit & 1) != 0)
                send_piece(j, at, 1, FL_WAITING_PLAIN);
            exact ^= before;
            *foreign = false;
            start    = at + 1;
        }
        *foreign = *foreign || exact != 0;
    }
    return start;
}

/* A piece that fills a window without a place to split it: it is not kept. Returns where it ends. */
static size_t take_endless(fl_stream *j, const char *text, size_t at, size_t size) {
    const fl_tokenizer *tokenizer = j->tokenizer;
    size_t              end       = at;
    for (; end < size; end++) {
        fl_byte_class kind = (fl_byte_class)tokenizer->scan_table.kind[(uint8_t)text[end]];
        if ((kind == FL_BYTE_SPACE || kind == FL_BYTE_PUNCT) &&
            (!tokenizer->spaced || parts(tokenizer, j->begin, j->end, text + end)))
            break;
    }
    if (j->tokenizer->words)
        work_out_exactly(j, text + at, end - at);
    else
        fl_stream_chars(j, text + at, end - at);
    return end;
}

/* Take the window text[begin .. begin + window), which has been scanned; returns where to go on. */
static size_t take_window(fl_stream *j, const char *text, size_t begin, size_t window,
                          size_t size) {
    bool foreign = false, last = begin + window == size;
    j->window    = text + begin;
    size_t start = j->tokenizer->spaced ? send_window(j, window, &foreign, true)
                                        : send_window(j, window, &foreign, false);
    if (start < window && last) {
        send_text(j, start, window, foreign);
        start = window;
    } else if (start < window && foreign && !j->tokenizer->words) {
        start = send_split(j, start, window);
    }
    drain(j); /* the next scan writes over the pieces */
    return start > 0 || j->full ? begin + start : take_endless(j, text, begin, size);
}

/* A piece of text without added tokens. */
static void take_piece(fl_stream *j, const char *text, size_t size) {
    size_t at = 0;
    j->begin  = text;
    j->end    = text + size;
    while (at < size && !j->full) {
        size_t window = size - at < FL_SCAN_WINDOW ? size - at : FL_SCAN_WINDOW;
        j->tokenizer->scan->window(&j->tokenizer->scan_table, text + at, window, j->scratch->lower,
                                   &j->scratch->masks);
        at = take_window(j, text, at, window, size);
        fl_stream_worked(j, window);
    }
}

/* ---- Byte pair encoding -------------------------------------------------------------------------- */

/* May the text be cut before text[at]? No pattern of pieces.h has a space after a printable character of ASCII. */
static inline bool is_cut(const char *text, size_t at) {
    return text[at] == ' ' && text[at - 1] > ' ';
}

/* Queue lower[start .. end). A long one is cut where no token reaches across. */
static inline void send_bytes(fl_stream *j, size_t start, size_t end) {
    const fl_bpe *bpe = j->tokenizer->bpe;
    const char   *at = j->scratch->lower + start, *stop = j->scratch->lower + end;
    if (end - start > FL_SHORT_BYTES && bpe->joints != NULL) {
        for (const char *next = at; next < stop; next += size_of((uint8_t)*next)) {
            bool inside = next > at + 1 && next + 1 < stop; /* a piece may end within a character */
            if (inside && (uint8_t)next[0] >= 0xC0 && (uint8_t)next[-1] >= 0x80 &&
                !fl_bpe_may_join(bpe, next)) {
                send_piece(j, start, (size_t)(next - at), FL_WAITING_BYTES);
                start += (size_t)(next - at);
                at = next;
            }
        }
    }
    send_piece(j, start, end - start, FL_WAITING_BYTES);
}

static inline size_t end_of(uint32_t end, bool gaps) {
    return gaps ? end & ~FL_PIECE_GONE : end;
}

/* A piece of text without added tokens, after a space if so wanted. `gaps`: its scanner may leave pieces out. */
static inline void take_pieces(fl_stream *j, const char *text, size_t size, bool space, bool gaps) {
    uint32_t   ends[PIECES];
    fl_cutting cutting = {{0}};
    char      *copy    = j->scratch->lower; /* where bytes after a piece can be read */
    for (size_t at = 0; at < size && !j->full;) {
        size_t count =
            fl_pieces_next(&j->tokenizer->cutters, &cutting, text, size, at, ends, PIECES);
        for (size_t i = 0; i < count && !j->full;) {
            size_t begin = at, last = i, before = space;
            while (last < count && end_of(ends[last], gaps) - begin <= FL_SCAN_WINDOW - 1)
                last++;
            space = false;
            fl_stream_worked(j, end_of(ends[last > i ? last - 1 : i], gaps) - begin);
            if (last == i) {
                at = end_of(ends[i], gaps);
                if (at == ends[i++])
                    work_out_bytes(j, text + begin, at - begin, before > 0);
                continue;
            }
            copy[0] = ' ';
            memcpy(copy + before, text + begin, end_of(ends[last - 1], gaps) - begin);
            for (size_t from = 0; i < last; i++) {
                at = end_of(ends[i], gaps);
                if (at == ends[i])
                    send_bytes(j, from, at - begin + before);
                from = at - begin + before;
            }
            drain(j); /* before the copy is written over */
        }
    }
}

static void take_bytes(fl_stream *j, const char *text, size_t size, bool space) {
    if (fl_pieces_are_whole(j->tokenizer->cutters.by[0]))
        take_pieces(j, text, size, space, true);
    else
        take_pieces(j, text, size, space, false);
}

/* The text in lower case, each character as long as before; NULL: no memory. */
static const char *lowered(fl_stream *j, const char *text, size_t size) {
    fl_buf  *buf = &j->scratch->lowered;
    unsigned length;
    fl_buf_clear(buf);
    if (!fl_buf_reserve(buf, size))
        return NULL;
    char   *low = buf->data;
    uint8_t any = 0; // char has no sign on ARM
    for (size_t i = 0; i < size; i++) {
        low[i] = (char)(text[i] + ((unsigned char)(text[i] - 'A') < 26 ? 0x20 : 0));
        any |= (uint8_t)text[i];
    }
    for (size_t i = 0; any >= 0x80 && i < size; i += length) {
        length = 1;
        if ((uint8_t)text[i] >= 0xC0) {
            uint32_t cp[2];
            (void)fl_unicode_lower(fl_utf8_decode(text + i, &length), cp);
            (void)fl_utf8_encode(cp[0], low + i);
        }
    }
    return low;
}

/* A piece of text that the normalisers do no more to than to write it in lower case. */
static void take_quiet(fl_stream *j, const char *text, size_t size, bool find_added, bool space) {
    const fl_added *added = &j->tokenizer->added;
    fl_added_walk   walk  = {.stop = j->scratch->runes.stop};
    fl_added_match  match;
    size_t          done = 0;
    if (j->tokenizer->lowers && (text = lowered(j, text, size)) == NULL) {
        j->full = j->scratch->failed = true;
        return;
    }
    while (find_added && !j->full &&
           fl_added_next(added, &added->normalized, j->tokenizer->scan, text, size, size, &walk,
                         &match)) {
        take_bytes(j, text + done, match.begin - done, false);
        if (!j->full)
            fl_stream_push(j, &match.token->id, 1);
        done = match.end;
    }
    if (fl_was_stopped(walk.stop)) {
        j->full = j->scratch->failed = true;
        return;
    }
    take_bytes(j, text + done, size - done, space);
}

/* A piece of text that needs the normaliser. */
static void take_exact(fl_stream *j, const char *text, size_t size) {
    bool cut;
    push_pieces(j, fl_exact_encode(j->tokenizer, j->scratch, text, size, SIZE_MAX,
                                   FL_TRUNCATE_RIGHT, &cut, NULL) == 0);
}

/* The first character of text[at .. size) that is one of the changes, or size. None begins with a byte below CC, or
 * C4 where there are others than NFC's. */
static size_t find_change(const fl_tokenizer *tokenizer, const char *text, size_t at, size_t size) {
    const uint64_t *changes = tokenizer->changes, ones = 0x0101010101010101u;
    const uint8_t   least = tokenizer->lowers ? 0xC4 : 0xCC;
    while (at < size) {
        uint64_t x = 0;
        if (size - at >= sizeof x) {
            memcpy(&x, text + at, sizeof x);
            uint64_t low = (x & ones * 0x7F) + ones * (0x100u - least); /* bit 7: from there up */
            if ((x & low & 0x8080808080808080u) == 0) {
                at += sizeof x;
                continue;
            }
        }
        if ((uint8_t)text[at] < least) {
            at++;
            continue;
        }
        unsigned length;
        uint32_t cp = fl_utf8_decode(text + at, &length);
        if ((changes[cp / 64] >> (cp % 64) & 1) != 0)
            return at;
        at += length;
    }
    return size;
}

/* A piece of text without raw added tokens: what NFC may change goes the exact way, between two safe cuts. */
static void take_segment(fl_stream *j, const char *text, size_t size, bool find_added, bool space) {
    const fl_tokenizer *tokenizer = j->tokenizer;
    for (size_t at = 0; at < size && !j->full;) {
        size_t change = tokenizer->changes != NULL ? find_change(tokenizer, text, at, size) : size;
        size_t begin = change, end = change;
        while (change < size && begin > at && !is_cut(text, begin))
            begin--;
        while (end < size && (end == change || !is_cut(text, end)))
            end++;
        if (begin > at)
            take_quiet(j, text + at, begin - at, find_added, space);
        if (begin < end && !j->full)
            take_exact(j, text + begin, end - begin);
        at = end;
    }
}

/* ---- A text ------------------------------------------------------------------------------------- */

/* Does a space come before this piece of the text? `fresh`: what was before it is an added token, or nothing. */
static bool needs_space(const fl_stream *j, const char *text, size_t size, size_t done,
                        bool fresh) {
    fl_spaces spaces = fresh ? j->tokenizer->spaces : FL_SPACES_NONE;
    bool      there =
        text[done] == ' ' || (size - done >= 3 && memcmp(text + done, "\xE2\x96\x81", 3) == 0);
    return spaces == FL_SPACES_ALWAYS || (spaces == FL_SPACES_BEGIN && done == 0) ||
           ((spaces == FL_SPACES_UNLESS || (spaces == FL_SPACES_FIRST && done == 0)) && !there);
}

static size_t next_horizon(const fl_stream *j, const char *text, size_t size, size_t from) {
    const fl_tokenizer *tokenizer = j->tokenizer;
    if (size - from < SEGMENT)
        return size;
    for (from += SEGMENT; from < size; from++)
        if (tokenizer->bpe != NULL ? is_cut(text, from)
            : tokenizer->spaced
                ? text[from] == ' ' && parts(tokenizer, text, text + size, text + from)
                : memchr(" \t\n\r", text[from], 4) != NULL)
            break;
    return from;
}

static void take_text(fl_stream *j, const char *text, size_t size) {
    const fl_added *added = &j->tokenizer->added;
    bool inner = added->raw.count > 0 || j->tokenizer->changes != NULL || j->tokenizer->words;
    const fl_added_set *set  = inner ? &added->raw : &added->normalized;
    fl_added_walk       walk = {.stop = j->scratch->runes.stop};
    size_t              done = 0;
    size_t horizon           = 0; /* added tokens are looked for up to here; a safe place to cut */
    bool   fresh             = true; /* an added token is before `done`, or nothing */
    while (done < size && !j->full) {
        if (done >= horizon)
            horizon = next_horizon(j, text, size, done);
        fl_added_match match;
        bool           found =
            fl_added_next(added, set, j->tokenizer->scan, text, size, horizon, &walk, &match);
        if (fl_was_stopped(walk.stop)) { /* no token found says nothing then */
            j->full = j->scratch->failed = true;
            return;
        }
        size_t stop = found ? match.begin : horizon;
        if (done < stop && j->tokenizer->bpe != NULL) {
            take_segment(j, text + done, stop - done, inner && added->normalized.count > 0,
                         needs_space(j, text, size, done, fresh));
        } else if (done < stop) {
            take_piece(j, text + done, stop - done);
        }
        if (found && !j->full)
            fl_stream_push(j, &match.token->id, 1);
        done  = found ? match.end : horizon;
        fresh = found;
    }
}

int fl_stream_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                     size_t size, size_t limit, fl_truncation truncation, int32_t *ids,
                     size_t capacity, size_t *count, bool *truncated, fletch_error *error) {
    /* A text may have more ids than bytes (NFC), so its size says nothing. */
    bool      left = truncation == FL_TRUNCATE_LEFT && limit <= capacity;
    fl_stream j    = {.tokenizer = tokenizer, .scratch = scratch, .keep = SIZE_MAX};
    if (tokenizer->wordpiece != NULL && tokenizer->normal_count > 0) {
        const fl_step *step = &tokenizer->normal[0];
        j.clean             = step->clean_text;
        j.chinese           = step->chinese_chars;
        j.strip             = step->strip_accents;
        j.lower             = step->lowercase;
    }
    j.isolate = tokenizer->split[0].ops == &fl_split_bert;
    j.ids     = ids;
    j.limit   = limit < capacity ? limit : capacity;
    if (left) {
        size_t room = 2 * limit + 1024; /* moves are rare, and cost one copy per id */
        if (!fl_array_reserve(&scratch->ring, &scratch->ring_capacity, room, sizeof *ids))
            return fl_fail_nomem(error, room * sizeof *ids, "truncation");
        j.ids   = scratch->ring;
        j.limit = room;
        j.keep  = limit;
    }
    take_text(&j, text, size);
    if (scratch->failed) {
        scratch->failed = false;
        return fl_exact_failed(scratch, size, error);
    }
    if (left) {
        size_t skip = j.count > limit ? j.count - limit : 0;
        j.truncated = j.truncated || skip > 0;
        j.count -= skip;
        if (j.count <= capacity)
            memcpy(ids, j.ids + skip, j.count * sizeof *ids);
    }
    if (j.count > capacity || (j.full && limit > capacity)) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "the buffer for token ids holds %zu; the text has more", capacity);
    }
    *count     = j.count;
    *truncated = j.truncated;
    return 0;
}
