/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_tables.h - the two hash tables of bpe.h: merges by pair, tokens by their bytes. Their hash has a seed, so
 * that a file made to collide opens as fast as any. */
#ifndef FL_TOKENIZER_BPE_TABLES_H
#define FL_TOKENIZER_BPE_TABLES_H

#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "tokenizer/bpe.h"

enum {
    FL_BPE_CHARACTER_MAX = 5 + 2 * FL_BPE_AFFIX_MAX, /* symbols that one character gives at most */
    FL_BPE_HERE_MAX      = 11                        /* bytes of a token in fl_bpe_whole itself */
};

int  fl_bpe_open(struct fl_tokenizer *tokenizer, void **state, fl_json_reader *model,
                 const fl_log *log);
void fl_bpe_close(void *state);

/* *by gets for each token the rank of the merge that its own text ends in, or one of these; NULL where merges are in
 * no order that says so. For byte_level without a suffix. False: no memory. */
enum { FL_BPE_SYMBOL = -1, FL_BPE_OTHER = -2 /* its text gives something else */ };
bool fl_bpe_prove(const fl_bpe *bpe, int32_t **by);

static inline uint64_t fl_bpe_mix(const fl_bpe *b, uint64_t x) {
    return fl_hash_fold(x ^ b->seed, 0x9E3779B97F4A7C15u);
}

static inline uint64_t fl_bpe_pair(uint32_t left, uint32_t right) {
    return (uint64_t)left << FL_BPE_ID_BITS | right;
}

/* What a merge is made of. */
static inline bool fl_bpe_is_of(fl_bpe_merge merge, uint64_t pair) {
    return (merge ^ pair) << (FL_BPE_RANK_BITS + 1) == 0;
}

static inline uint32_t fl_bpe_rank(fl_bpe_merge merge) {
    return (uint32_t)(merge << 1 >> (2 * FL_BPE_ID_BITS + 1));
}

static inline uint32_t fl_bpe_left(fl_bpe_merge merge) {
    return (uint32_t)(merge >> FL_BPE_ID_BITS) & ((1u << FL_BPE_ID_BITS) - 1);
}

static inline uint32_t fl_bpe_right(fl_bpe_merge merge) {
    return (uint32_t)merge & ((1u << FL_BPE_ID_BITS) - 1);
}

/* Where the merges of a bucket's pairs begin. */
static inline fl_bpe_merge *fl_bpe_bucket(const fl_bpe *b, uint64_t pair) {
    return b->merges + (fl_bpe_mix(b, pair) & b->merge_mask);
}

/* The rank of two tokens' merge, or FL_BPE_NO_RANK. A bucket is half a cache line and looked through without a
 * branch, because nobody can predict where a pair lies, nor whether it is there. */
static inline uint32_t fl_bpe_rank_of(const fl_bpe *b, uint32_t left, uint32_t right) {
    uint64_t            pair   = fl_bpe_pair(left, right);
    const fl_bpe_merge *bucket = fl_bpe_bucket(b, pair);
    for (;;) {
        uint64_t found = FL_BPE_FREE;
        for (unsigned i = 0; i < FL_BPE_BUCKET; i++)
            found = fl_bpe_is_of(bucket[i], pair) ? bucket[i] : found;
        if (((found == FL_BPE_FREE) & (bucket[FL_BPE_BUCKET - 1] >= FL_BPE_SPILT)) == 0)
            return fl_bpe_rank(found);
        size_t next = (size_t)(bucket - b->merges) + FL_BPE_BUCKET;
        bucket      = b->merges + (next & b->merge_mask);
    }
}

/* The key of piece[size]; 16 bytes can be read from `piece` on. */
static inline fl_bpe_whole fl_bpe_whole_key(const fl_bpe *b, const char *piece, size_t size) {
    fl_bpe_whole key = {0, 0, UINT32_MAX};
    if (size <= FL_BPE_HERE_MAX) {
        uint64_t low, high;
        memcpy(&low, piece, 8);
        memcpy(&high, piece + 8, 8);
        unsigned drop = size < 8 ? 64 - 8 * (unsigned)size : 0;
        key.low       = drop == 64 ? 0 : low << drop >> drop;
        key.high      = size > 8 ? (uint32_t)(high & ((1u << (8 * (size - 8))) - 1)) : 0;
        key.high |= (uint32_t)size << 24;
        return key;
    }
    for (size_t i = 0; i < size; i += 8) {
        uint64_t part = 0;
        memcpy(&part, piece + i, size - i < 8 ? size - i : 8);
        key.low = fl_bpe_mix(b, key.low ^ part) + size;
    }
    key.high = 0xFF000000u | (uint32_t)size;
    return key;
}

/* The bit of a place between two characters beyond ASCII: two bytes before it and two after it. */
static inline uint32_t fl_bpe_joint(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    uint32_t bytes = (uint32_t)a << 24 | (uint32_t)b << 16 | (uint32_t)c << 8 | d;
    return bytes * 0x9E3779B1u >> (32 - FL_BPE_JOINT_BITS);
}

/* May a token reach across the place before text[0]? Both characters are beyond ASCII. Where none does, no merge
 * ever crosses, and each side can be worked out alone. */
static inline bool fl_bpe_may_join(const fl_bpe *b, const char *text) {
    const uint8_t *at  = (const uint8_t *)text;
    uint32_t       bit = fl_bpe_joint(at[-2], at[-1], at[0], at[1]);
    return (b->joints[bit / 64] >> (bit % 64) & 1) != 0;
}

static inline const char *fl_bpe_bytes(const fl_bpe *b, uint32_t id, size_t *size) {
    if (b->raw == NULL)
        return fl_vocab_text(b->vocab, (int32_t)id, size);
    *size = b->raw_start[id + 1] - b->raw_start[id];
    return b->raw + b->raw_start[id];
}

static inline uint32_t fl_bpe_whole_home(const fl_bpe *b, const fl_bpe_whole *key) {
    return (uint32_t)fl_bpe_mix(b, key->low ^ key->high) & b->whole_mask;
}

/* The slot of a key, or the free one where it belongs. */
static inline fl_bpe_whole *fl_bpe_whole_slot(const fl_bpe *b, const fl_bpe_whole *key,
                                              const char *piece, size_t size) {
    uint32_t at = fl_bpe_whole_home(b, key);
    for (;; at = (at + 1) & b->whole_mask) {
        fl_bpe_whole *slot = &b->whole[at];
        if (slot->id == UINT32_MAX)
            return slot;
        if (slot->low == key->low && slot->high == key->high) {
            size_t      other_size;
            const char *other = NULL;
            if (size > FL_BPE_HERE_MAX)
                other = fl_bpe_bytes(b, slot->id, &other_size);
            if (other == NULL || (other_size == size && memcmp(other, piece, size) == 0))
                return slot;
        }
    }
}

/* The token that is this piece and gives itself back, or -1. */
static inline int32_t fl_bpe_whole_find(const fl_bpe *b, const char *piece, size_t size) {
    if (b->whole == NULL || size > 0xFFFFFF)
        return -1;
    fl_bpe_whole key = fl_bpe_whole_key(b, piece, size);
    return (int32_t)fl_bpe_whole_slot(b, &key, piece, size)->id;
}

#endif
