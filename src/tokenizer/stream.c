/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - BERT's pipeline as fast as possible: text to ids, nothing else.
 *
 * Role     tokenizer.c takes this path when no offsets are wanted and the pipeline is BertNormalizer (any
 *          flags, or none) with BertPreTokenizer or WhitespaceSplit and no normalised added tokens.
 * In/Out   Valid UTF-8 -> int32 ids in the caller's buffer, at most `limit`.
 * Method   1. The scan turns a window of text into a lower-cased copy and bit masks of where words end.
 *          2. Each set bit ends an ASCII word, is a punctuation character, or says "exact".
 *          3. A word of up to 15 bytes is a 16-byte key into a small cache of ids (two compares); on
 *             English text over 95 % end here. Others walk the trie. Words queue up between the hash
 *             and the compare, so that their buckets arrive from memory meanwhile.
 *          4. At an "exact" byte the word is taken over from its beginning, one character at a time:
 *             vanishing controls join their neighbours, NFD and marks, Chinese characters, lower case.
 *             At the next ASCII space or punctuation the fast path goes on; nothing in BERT's
 *             normaliser reaches across those (both are starters that survive). So a whole such chunk
 *             always gives the same ids: up to 31 bytes of it are a key into a second cache.
 *          White space that lstrip or rstrip swallow needs no care here: it gives no ids anyway.
 * Memory   Fixed buffers of the scratch. A word longer than the model's limit is unknown whatever
 *          follows, so it is counted, not kept: one word of 10 MB needs no memory.
 * Threads  One scratch per thread; caches are private, so threads never meet.
 * Proof    tests/golden/test_tokens.py; tests/fuzz/fuzz_tokenizer_text.c holds it against exact.c. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

enum { KEY_BYTES = 15, INLINE_IDS = 4, SEGMENT = 32 * 1024 };

/* Characters without these flags stand for themselves, whatever the pipeline's flags. */
enum {
    NOT_PLAIN = FL_UC_DROP | FL_UC_SPACE | FL_UC_PUNCT | FL_UC_MARK_BERT | FL_UC_CJK | FL_UC_LOWER |
                FL_UC_DECOMPOSES | FL_UC_CCC
};

/* key_mask[n] keeps the first n of 16 bytes. */
static const uint64_t key_mask[KEY_BYTES + 1][2] = {
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

typedef struct job {
    const fl_tokenizer *tokenizer;
    fl_token_scratch   *scratch;
    const char         *text; /* the piece under way */
    int32_t            *ids;
    size_t              count;
    size_t              limit; /* ids has room for so many */
    size_t keep; /* left truncation: keep the last so many; SIZE_MAX: not truncating left */
    bool   truncated;
    bool   full;
    bool   clean, chinese, strip, lower, isolate; /* the flags of the pipeline */
    size_t word_size;                             /* bytes in scratch->word */
    size_t word_chars; /* characters of the word, also those that were not kept */
    size_t waiting;    /* marks in scratch->pending */
    size_t queued;     /* words in scratch->queue */
} job;

/* ---- Ids out ---------------------------------------------------------------------------------- */

/* The buffer is full: make room (left) or stop (right). False: stop. */
static bool make_room(job *j) {
    if (j->keep == SIZE_MAX) {
        j->truncated = j->full = true;
        return false;
    }
    memmove(j->ids, j->ids + (j->count - j->keep), j->keep * sizeof *j->ids);
    j->count     = j->keep;
    j->truncated = true;
    return true;
}

static void push_ids(job *j, const int32_t *ids, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (j->count == j->limit && !make_room(j)) {
            return;
        }
        j->ids[j->count++] = ids[i];
    }
}

/* Four ids are always copied and only `count` of them claimed. */
static inline void push_entry(job *j, const fl_cache_entry *entry) {
    size_t count = 4u - (size_t)((entry->ids[1] < 0) + (entry->ids[2] < 0) + (entry->ids[3] < 0));
    if (j->count + INLINE_IDS <= j->limit) {
        memcpy(j->ids + j->count, entry->ids, sizeof entry->ids);
        j->count += count;
    } else {
        push_ids(j, entry->ids, count);
    }
}

/* ---- Words ------------------------------------------------------------------------------------ */

static __attribute__((noinline)) void word_miss(job *j, const char *word, size_t size, size_t chars,
                                                fl_cache_entry *bucket, uint64_t low,
                                                uint64_t high) {
    const fl_wordpiece *wordpiece = &j->tokenizer->wordpiece;
    int32_t            *ids       = j->scratch->word_ids;
    size_t              count     = 0;
    if (chars <= wordpiece->max_chars) {
        count = fl_wordpiece_encode(wordpiece, word, size, ids);
    }
    if (count == 0) {
        ids[0] = wordpiece->unk;
        count  = 1;
    }
    push_ids(j, ids, count);
    if (bucket == NULL || count > INLINE_IDS) {
        return;
    }
    bucket[1]      = bucket[0];
    bucket[0].low  = low;
    bucket[0].high = high;
    for (size_t i = 0; i < INLINE_IDS; i++) {
        bucket[0].ids[i] = i < count ? ids[i] : -1;
    }
}

static void take_chunk(job *j, const fl_waiting_word *w);

/* One thing that waits for its turn: a word whose bucket is on its way from memory, or a punctuation
 * character (bucket NULL, size 0), or a chunk (bucket NULL, chars 0), or a word too long for the cache
 * (bucket NULL). */
static inline void take_waiting(job *j, const fl_waiting_word *w) {
    fl_cache_entry *bucket = w->bucket;
    if (bucket == NULL) {
        if (w->size == 0) {
            push_ids(j, &w->id, 1);
        } else if (w->chars == 0) {
            take_chunk(j, w);
        } else {
            word_miss(j, w->word, w->size, w->chars, NULL, 0, 0);
        }
    } else if (bucket[0].low == w->low && bucket[0].high == w->high) {
        push_entry(j, &bucket[0]);
    } else if (bucket[1].low == w->low && bucket[1].high == w->high) {
        push_entry(j, &bucket[1]);
    } else {
        word_miss(j, w->word, w->size, w->chars, bucket, w->low, w->high);
    }
}

/* All that waits becomes ids, in order. */
static void drain(job *j) {
    for (size_t i = 0; i < j->queued && !j->full; i++) {
        take_waiting(j, &j->scratch->queue[i]);
    }
    j->queued = 0;
}

/* One normalised word on its way; 16 bytes from `word` on can be read, and stay until it is taken. */
static inline void send_word(job *j, fl_waiting_word *w, const char *word, size_t size,
                             size_t chars) {
    w->word   = word;
    w->size   = (uint32_t)size;
    w->chars  = (uint32_t)chars;
    w->bucket = NULL;
    if (size <= KEY_BYTES) {
        memcpy(&w->low, word, 8);
        memcpy(&w->high, word + 8, 8);
        w->low &= key_mask[size][0];
        w->high = (w->high & key_mask[size][1]) | (uint64_t)size << 56;
        /* The high bits of a product depend on all bits of both factors; the low ones do not. */
        uint64_t hash = (w->low ^ w->high * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
        w->bucket     = &j->scratch->cache[2 * (size_t)(hash >> j->scratch->cache_shift)];
        __builtin_prefetch(w->bucket);
    }
}

static inline void take_word(job *j, const char *word, size_t size, size_t chars) {
    send_word(j, &j->scratch->queue[j->queued++], word, size, chars);
    if (j->queued == FL_QUEUE_WORDS) {
        drain(j);
    }
}

static inline void take_punct(job *j, uint8_t byte) {
    fl_waiting_word *w = &j->scratch->queue[j->queued++];
    w->bucket          = NULL;
    w->size            = 0;
    w->id              = j->tokenizer->ascii_id[byte];
    if (j->queued == FL_QUEUE_WORDS) {
        drain(j);
    }
}

/* ---- The exact path: a word built one character at a time --------------------------------------- */

static inline void keep_char(job *j, uint32_t cp) {
    if (j->word_chars < j->tokenizer->wordpiece.max_chars) {
        j->word_size += fl_utf8_encode(cp, j->scratch->word + j->word_size);
    }
    j->word_chars++;
}

/* The marks that waited are in order now. */
static void settle_marks(job *j) {
    for (size_t i = 0; i < j->waiting; i++) {
        keep_char(j, j->scratch->pending[2 * i]);
    }
    j->waiting = 0;
}

/* A mark with a combining class goes behind those of its class and before those of higher ones. */
static void wait_mark(job *j, uint32_t cp, unsigned class) {
    uint32_t *pending = j->scratch->pending;
    size_t    at      = j->waiting;
    if (j->word_chars + j->waiting > j->tokenizer->wordpiece.max_chars) {
        j->word_chars++; /* the word is unknown already: only its length counts */
        return;
    }
    for (; at > 0 && pending[2 * at - 1] > class; at--) {
        pending[2 * at]     = pending[2 * at - 2];
        pending[2 * at + 1] = pending[2 * at - 1];
    }
    pending[2 * at]     = cp;
    pending[2 * at + 1] = class;
    j->waiting++;
}

static void end_word(job *j) {
    settle_marks(j);
    if (j->word_chars > j->tokenizer->wordpiece.max_chars) {
        push_ids(j, &j->tokenizer->wordpiece.unk, 1); /* past the cache: not all of it was kept */
    } else if (j->word_chars > 0) {
        fl_waiting_word now = {0}; /* at once: the buffer is needed for the next word */
        send_word(j, &now, j->scratch->word, j->word_size, j->word_chars);
        take_waiting(j, &now);
    }
    j->word_size = j->word_chars = 0;
}

/* A character that has been cleaned and decomposed. */
static void take_part(job *j, uint32_t cp) {
    unsigned flags = fl_unicode_flags(cp);
    if (j->strip && (flags & (FL_UC_MARK_BERT | FL_UC_CCC)) != 0) {
        unsigned class = fl_unicode_ccc(cp);
        if (class == 0) {
            settle_marks(j);
        }
        if ((flags & FL_UC_MARK_BERT) != 0) {
            return;
        }
        if (class != 0) {
            wait_mark(j, cp, class);
            return;
        }
    }
    settle_marks(j);
    if (j->lower && (flags & FL_UC_LOWER) != 0) {
        uint32_t low[2];
        if (fl_unicode_lower(cp, low) == 2) {
            keep_char(j, low[0]);
            low[0] = low[1];
        }
        cp    = low[0];
        flags = fl_unicode_flags(cp);
    }
    if ((flags & FL_UC_SPACE) != 0) {
        end_word(j);
    } else if (j->isolate && (flags & FL_UC_PUNCT) != 0) {
        end_word(j);
        keep_char(j, cp);
        end_word(j);
    } else {
        keep_char(j, cp);
    }
}

static void take_char(job *j, uint32_t cp) {
    unsigned flags = fl_unicode_flags(cp);
    if (j->clean && (flags & (FL_UC_DROP | FL_UC_SPACE)) != 0) {
        if ((flags & FL_UC_DROP) == 0) {
            end_word(j);
        }
        return;
    }
    bool alone = j->chinese && (flags & FL_UC_CJK) != 0;
    if (alone) {
        end_word(j);
    }
    if (j->strip && (flags & FL_UC_DECOMPOSES) != 0) {
        uint32_t parts[FL_UC_DECOMPOSITION_MAX];
        unsigned count = fl_unicode_decompose(cp, parts);
        for (unsigned i = 0; i < count; i++) {
            take_part(j, parts[i]);
        }
    } else {
        take_part(j, cp);
    }
    if (alone) {
        end_word(j);
    }
}

/* Take over the text from `at`, the beginning of a word, up to the next ASCII space or punctuation;
 * returns the position of that, or size. Nothing may be queued that comes before it. */
static size_t take_exact(job *j, const char *text, size_t at, size_t size) {
    const uint8_t *kind = j->tokenizer->scan_table.kind;
    while (at < size && !j->full) {
        uint8_t byte = (uint8_t)text[at];
        if (kind[byte] == FL_BYTE_SPACE || kind[byte] == FL_BYTE_PUNCT) {
            break;
        }
        unsigned length;
        uint32_t cp = fl_utf8_decode(text + at, &length);
        if (j->chinese && cp - FL_HAN_FIRST < FL_HAN_COUNT) {
            end_word(j);
            push_ids(j, &j->tokenizer->han_id[cp - FL_HAN_FIRST], 1); /* a word of its own */
        } else if (j->waiting == 0 && (fl_unicode_flags(cp) & NOT_PLAIN) == 0) {
            keep_char(j, cp); /* most letters of most scripts */
        } else {
            take_char(j, cp);
        }
        at += length;
    }
    end_word(j);
    return at;
}

/* ---- Chunks: what stands between ASCII spaces and punctuation and is not all ASCII --------------- */

/* The key of a chunk; 32 bytes from `chunk` on can be read. */
static inline void chunk_key(const char *chunk, size_t size, uint64_t key[4]) {
    size_t low = size < 16 ? size : 15;
    memcpy(key, chunk, 32);
    if (size < 16) {
        key[0] &= key_mask[low][0];
        key[1] &= key_mask[low][1];
        key[2] = key[3] = 0;
    } else {
        key[2] &= key_mask[size - 16][0];
        key[3] &= key_mask[size - 16][1];
    }
    key[3] |= (uint64_t)size << 56;
}

/* Chunks do not depend on their neighbours, so what one became once it becomes again. */
static __attribute__((noinline)) void chunk_miss(job *j, const fl_waiting_word *w,
                                                 fl_chunk_entry *line, const uint64_t key[4]) {
    size_t before = j->count, most = FL_CHUNK_IDS;
    take_exact(j, j->text, (size_t)w->high, (size_t)w->high + w->size);
    most = j->tokenizer->small_ids ? FL_CHUNK_SMALL_IDS : most;
    if (j->full || j->count < before || j->count - before > most) {
        return; /* cut short, or moved to make room, or too many */
    }
    memcpy(line->key, key, sizeof line->key);
    line->count = (uint32_t)(j->count - before);
    if (!j->tokenizer->small_ids) {
        memcpy(line->ids, j->ids + before, line->count * sizeof *line->ids);
        return;
    }
    for (size_t i = 0; i < line->count; i++) {
        line->small[i] = (uint16_t)j->ids[before + i];
    }
}

/* All ids of the line are copied and only `count` of them claimed. */
static inline void push_line(job *j, const fl_chunk_entry *line) {
    int32_t  wide[FL_CHUNK_SMALL_IDS] = {0};
    bool     room                     = j->count + FL_CHUNK_SMALL_IDS <= j->limit;
    int32_t *to                       = room ? j->ids + j->count : wide;
    if (!j->tokenizer->small_ids) {
        memcpy(to, line->ids, sizeof line->ids);
    } else {
        for (size_t i = 0; i < FL_CHUNK_SMALL_IDS; i++) {
            to[i] = line->small[i];
        }
    }
    if (room) {
        j->count += line->count;
    } else {
        push_ids(j, wide, line->count);
    }
}

static void take_chunk(job *j, const fl_waiting_word *w) {
    fl_chunk_entry *line = &j->scratch->chunks[w->low];
    uint64_t        key[4];
    chunk_key(w->word, w->size, key);
    if (((key[0] ^ line->key[0]) | (key[1] ^ line->key[1]) | (key[2] ^ line->key[2]) |
         (key[3] ^ line->key[3])) != 0) {
        chunk_miss(j, w, line, key);
    } else {
        push_line(j, line);
    }
}

/* Queue text[at .. at + size), of which `lower` is the lower-cased copy. */
static inline void send_chunk(job *j, const char *lower, size_t at, size_t size) {
    fl_waiting_word *w = &j->scratch->queue[j->queued++];
    uint64_t         key[4];
    chunk_key(lower, size, key);
    uint64_t hash = (key[0] ^ key[1] * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    hash      = (hash ^ hash >> 32 ^ key[2] ^ key[3] * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    w->word   = lower;
    w->size   = (uint32_t)size;
    w->chars  = 0;
    w->bucket = NULL;
    w->low    = hash >> j->scratch->cache_shift;
    w->high   = at;
    __builtin_prefetch(&j->scratch->chunks[w->low]);
    if (j->queued == FL_QUEUE_WORDS) {
        drain(j);
    }
}

/* ---- The fast path ---------------------------------------------------------------------------- */

/* Where the chunk ends in which there is an exact byte at `at`: the next space or punctuation, or the
 * end of the window. */
static inline size_t chunk_end(const fl_scan_masks *masks, size_t at, size_t window) {
    size_t   block = at / 64;
    uint64_t stop  = masks->boundary[block] & ~masks->exact[block] & ~0ull << (at & 63);
    while (stop == 0 && (block + 1) * 64 < window) {
        block++;
        stop = masks->boundary[block] & ~masks->exact[block];
    }
    size_t end = stop == 0 ? window : block * 64 + (size_t)__builtin_ctzll(stop);
    return end < window ? end : window;
}

/* Take the chunk that begins at text[begin + start] and has an exact byte at `at`; returns where it
 * ends, within the window or beyond it. */
static size_t take_foreign(job *j, const char *text, size_t begin, size_t start, size_t at,
                           size_t window, size_t size) {
    size_t end   = chunk_end(&j->scratch->masks, at, window);
    bool   whole = end < window || begin + window == size;
    if (whole && end - start <= FL_CHUNK_BYTES) {
        send_chunk(j, j->scratch->lower + start, begin + start, end - start);
        return end;
    }
    drain(j);
    return j->full ? end : take_exact(j, text, begin + start, size) - begin;
}

/* Take the window that has been scanned, text[begin .. begin + window); returns where to go on. */
static size_t take_window(job *j, const char *text, size_t begin, size_t window, size_t size) {
    fl_token_scratch *scratch = j->scratch;
    const char       *lower   = scratch->lower;
    size_t            start   = 0; /* of the word under way */
    size_t            blocks  = (window + 63) / 64;
    for (size_t block = 0; block < blocks; block++) {
        uint64_t bits = scratch->masks.boundary[block];
        while (bits != 0) {
            unsigned bit = (unsigned)__builtin_ctzll(bits);
            size_t   at  = block * 64 + bit;
            if (at >= window) {
                break;
            }
            bits &= bits - 1;
            if ((scratch->masks.exact[block] >> bit & 1) != 0) {
                start = take_foreign(j, text, begin, start, at, window, size);
                if (j->full || start >= window) {
                    drain(j);
                    return begin + start;
                }
                block = start / 64; /* its boundary bit is `start` itself */
                bits  = scratch->masks.boundary[block] & ~0ull << (start & 63);
                continue;
            }
            if (at > start) {
                take_word(j, lower + start, at - start, at - start);
            }
            if ((scratch->masks.punct[block] >> bit & 1) != 0) {
                take_punct(j, (uint8_t)lower[at]);
            }
            if (j->full) {
                return begin + at;
            }
            start = at + 1;
        }
    }
    if (begin + window == size) { /* the text ends here, and so does its last word */
        if (start < window) {
            take_word(j, lower + start, window - start, window - start);
        }
        drain(j);
        return size;
    }
    drain(j); /* the next scan writes over the words */
    /* The last word may go on: the next window begins with it. One that fills a window is counted by
     * the exact path. */
    return start > 0 ? begin + start : take_exact(j, text, begin, size);
}

/* A piece of text without added tokens. */
static void take_piece(job *j, const char *text, size_t size) {
    size_t at = 0;
    j->text   = text;
    while (at < size && !j->full) {
        size_t window = size - at < FL_SCAN_WINDOW ? size - at : FL_SCAN_WINDOW;
        j->tokenizer->scan->window(&j->tokenizer->scan_table, text + at, window, j->scratch->lower,
                                   &j->scratch->masks);
        at = take_window(j, text, at, window, size);
    }
}

static void take_text(job *j, const char *text, size_t size) {
    const fl_added *added   = &j->tokenizer->added;
    fl_added_walk   walk    = {0, 0};
    size_t          done    = 0;
    size_t          horizon = 0; /* added tokens are looked for up to here; a safe place to cut */
    while (done < size && !j->full) {
        if (done >= horizon) {
            horizon = size - done < SEGMENT ? size : done + SEGMENT;
            while (horizon < size && memchr(" \t\n\r", text[horizon], 4) == NULL) {
                horizon++;
            }
        }
        fl_added_match match;
        bool   found = fl_added_next(added, &added->raw, j->tokenizer->scan, text, size, horizon,
                                     &walk, &match);
        size_t stop  = found ? match.begin : horizon;
        if (done < stop) {
            take_piece(j, text + done, stop - done);
        }
        if (found && !j->full) {
            push_ids(j, &match.token->id, 1);
        }
        done = found ? match.end : horizon;
    }
}

static bool reserve_ring(fl_token_scratch *scratch, size_t count) {
    if (count <= scratch->ring_capacity) {
        return true;
    }
    int32_t *ring = fl_realloc_array(scratch->ring, count, sizeof *ring);
    if (ring == NULL) {
        return false;
    }
    scratch->ring          = ring;
    scratch->ring_capacity = count;
    return true;
}

int fl_stream_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                     size_t size, size_t limit, fl_truncation truncation, int32_t *ids,
                     size_t capacity, size_t *count, bool *truncated, fletch_error *error) {
    bool left = truncation == FL_TRUNCATE_LEFT && limit <= size;
    job  j    = {.tokenizer = tokenizer, .scratch = scratch, .keep = SIZE_MAX};
    if (tokenizer->normal_count > 0) {
        const fl_normal_step *step = &tokenizer->normal[0];
        j.clean                    = step->clean_text;
        j.chinese                  = step->chinese_chars;
        j.strip                    = step->strip_accents;
        j.lower                    = step->lowercase;
    }
    j.isolate = tokenizer->split[0] == FL_SPLIT_BERT;
    j.ids     = ids;
    j.limit   = limit < capacity ? limit : capacity;
    if (left) {
        size_t room = 2 * limit + 1024; /* moves are rare, and cost one copy per id */
        if (!reserve_ring(scratch, room)) {
            return fl_fail_nomem(error, room * sizeof *ids, "truncation");
        }
        j.ids   = scratch->ring;
        j.limit = room;
        j.keep  = limit;
    }
    take_text(&j, text, size);
    if (left) {
        size_t skip = j.count > limit ? j.count - limit : 0;
        j.truncated = j.truncated || skip > 0;
        j.count -= skip;
        if (j.count <= capacity) {
            memcpy(ids, j.ids + skip, j.count * sizeof *ids);
        }
    }
    if (j.count > capacity || (j.full && limit > capacity)) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "the buffer for token ids holds %zu; the text has more", capacity);
    }
    *count     = j.count;
    *truncated = j.truncated;
    return 0;
}
