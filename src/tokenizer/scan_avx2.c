/* SPDX-License-Identifier: Apache-2.0 */
/* scan_avx2.c - classification of text bytes, 64 at a time.
 *
 * Role     scan.h on processors with AVX2; compiled with its own flags, chosen when a tokenizer opens.
 * Method   A byte h l (two nibbles) is in a set when bit h of plane[l] is set. Two byte shuffles give
 *          plane[l] and the bit of h; the latter is the same for all sets and is 0 for h >= 8, which
 *          leaves everything that is not ASCII to the sign bits, or to the other 16 planes. So three sets
 *          cost four shuffles per 32 bytes. Lower case: add 0x20 where the byte lies in A..Z.
 *
 *              text  'T' 'h' 'e' ' ' 'c' 'a' 't' '.'
 *              lower 't' 'h' 'e' ' ' 'c' 'a' 't' '.'      boundary ...1...1      punct .......1
 *
 * Memory   A tail is read with bytes before it, a text of less than 64 bytes through a copy: nothing past
 *          the text is read.
 * Threads  Any.
 * Proof    tests/unit/test_tokenizer_parts.c: equal to scan.c on random bytes of every length. */
#include "tokenizer/scan.h"

#include <immintrin.h>
#include <string.h>

static inline __m256i load_half(const uint8_t *plane) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)plane));
}

static inline __m256i load_plane(const fl_byte_set *set) {
    return load_half(set->plane);
}

/* Bit h for high nibble h < 8, else nothing. */
static inline __m256i column_bits(__m256i bytes) {
    const __m256i bit = _mm256_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2,
                                         4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0);
    __m256i       high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
    return _mm256_shuffle_epi8(bit, high);
}

/* Mask of the bytes that are ASCII and in the set. */
static inline uint32_t in_set(__m256i plane, __m256i low, __m256i column) {
    __m256i hit  = _mm256_and_si256(_mm256_shuffle_epi8(plane, low), column);
    __m256i none = _mm256_cmpeq_epi8(hit, _mm256_setzero_si256());
    return ~(uint32_t)_mm256_movemask_epi8(none);
}

typedef struct planes {
    __m256i  space, punct, exact;
    uint32_t high; /* all ones: bytes >= 0x80 are "exact" */
    __m256i  fold; /* 0x20 or 0 */
} planes;

typedef struct bits {
    uint32_t boundary, punct, exact;
} bits;

static inline bits classify(const planes *p, const char *text, char *lower) {
    __m256i  bytes  = _mm256_loadu_si256((const __m256i *)(const void *)text);
    __m256i  low    = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    __m256i  column = column_bits(bytes);
    uint32_t sign   = (uint32_t)_mm256_movemask_epi8(bytes);
    bits     b;
    b.punct        = in_set(p->punct, low, column);
    b.exact        = in_set(p->exact, low, column) | (sign & p->high);
    b.boundary     = in_set(p->space, low, column) | b.punct;
    __m256i upper  = _mm256_and_si256(_mm256_cmpgt_epi8(bytes, _mm256_set1_epi8('A' - 1)),
                                      _mm256_cmpgt_epi8(_mm256_set1_epi8('Z' + 1), bytes));
    __m256i folded = _mm256_add_epi8(bytes, _mm256_and_si256(upper, p->fold));
    _mm256_storeu_si256((__m256i *)(void *)lower, folded);
    return b;
}

static inline void block64(const planes *p, const char *text, char *lower, fl_scan_masks *masks,
                           size_t block) {
    bits first             = classify(p, text, lower);
    bits second            = classify(p, text + 32, lower + 32);
    masks->boundary[block] = first.boundary | (uint64_t)second.boundary << 32;
    masks->punct[block]    = first.punct | (uint64_t)second.punct << 32;
    masks->exact[block]    = first.exact | (uint64_t)second.exact << 32;
}

static void window(const fl_scan_table *table, const char *text, size_t size, char *lower,
                   fl_scan_masks *masks) {
    planes p;
    p.space      = load_plane(&table->space);
    p.punct      = load_plane(&table->punct);
    p.exact      = load_plane(&table->exact);
    p.high       = table->exact.high ? ~0u : 0;
    p.fold       = _mm256_set1_epi8(table->lowercase ? 0x20 : 0);
    size_t block = 0;
    for (; (block + 1) * 64 <= size; block++)
        block64(&p, text + block * 64, lower + block * 64, masks, block);
    size_t   rest = size - block * 64;
    uint64_t past = ~0ull << (rest & 63);
    if (rest == 0)
        return;
    if (block > 0) { /* the last 64 bytes again, of which the first were done */
        size_t again = size - 64;
        block64(&p, text + again, lower + again, masks, block);
        masks->boundary[block] >>= 64 - rest;
        masks->punct[block] >>= 64 - rest;
        masks->exact[block] >>= 64 - rest;
    } else {
        char tail[64] = {0};
        memcpy(tail, text, rest);
        block64(&p, tail, lower, masks, block);
    }
    masks->boundary[block] |= past;
    masks->punct[block] &= ~past;
    masks->exact[block] &= ~past;
}

/* A set with its bytes from 80 up. */
typedef struct wanted {
    __m256i low, high;
    bool    has_high;
} wanted;

static inline wanted want(const fl_byte_set *set) {
    return (wanted){load_plane(set), load_half(set->plane + 16), set->high};
}

static inline uint32_t find32(const wanted *w, const char *text) {
    __m256i  bytes = _mm256_loadu_si256((const __m256i *)(const void *)text);
    __m256i  low   = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    uint32_t hit   = in_set(w->low, low, column_bits(bytes));
    if (w->has_high) /* the other half of the columns, as if it were the first */
        hit |= in_set(w->high, low, column_bits(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128))));
    return hit;
}

static size_t find(const fl_byte_set *set, const char *text, size_t size) {
    const wanted w  = want(set);
    size_t       at = 0;
    for (; at + 32 <= size; at += 32) {
        uint32_t hit = find32(&w, text + at);
        if (hit != 0)
            return at + (size_t)__builtin_ctz(hit);
    }
    if (at < size && at > 0) { /* the last 32 bytes again: none of the first is in the set */
        uint32_t hit = find32(&w, text + size - 32);
        return hit != 0 ? size - 32 + (size_t)__builtin_ctz(hit) : size;
    }
    if (at < size) {
        char tail[32] = {0};
        memcpy(tail, text, size);
        uint32_t hit = find32(&w, tail) & ((1u << size) - 1);
        return hit != 0 ? (size_t)__builtin_ctz(hit) : size;
    }
    return size;
}

static size_t find_pair(const fl_byte_set *first, const fl_byte_set *second, const char *text,
                        size_t size) {
    const wanted one = want(first), two = want(second);
    size_t       at = 0;
    for (; at + 33 <= size; at += 32) {
        uint32_t hit = find32(&one, text + at) & find32(&two, text + at + 1);
        if (hit != 0)
            return at + (size_t)__builtin_ctz(hit);
    }
    return at + fl_find_pair(first, second, text + at, size - at);
}

const fl_scan fl_scan_avx2 = {window, find, find_pair};
