/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.h - byte pair encoding: one word becomes tokens by merging neighbours, the earliest merge first.
 *
 * Role     fl_bpe_model is what exact.c drives; token_stream.c gives raw bytes to fl_bpe_encode.
 * Method   A word is a row of symbols (characters, or bytes of the byte-level alphabet). Of all neighbouring
 *          pairs that a merge names, the one of lowest rank is joined, of equal ones the leftmost, until
 *          none is left.
 *
 *              l o w e r   ->   l o w er   ->   lo w er   ->   low er          merges: er, lo, low
 *
 *          1. A word that is a token which gives itself back (shown for each when the model opens) is found
 *             in one look-up.
 *          2. Up to 64 symbols lie in an array, and so do the ranks of their pairs.
 *          3. Scripts without spaces make long pieces. The fast path cuts them between two characters that no
 *             token has side by side.
 *          4. A longer word is worked off in overlapping windows of 64. Theorem: a row of tokens is the
 *             encoding of their text exactly if each token and each two neighbours encode to themselves (the
 *             first merge across a border would also happen in the two alone). So windows that share a
 *             token at the same place can be joined there. Should two windows share none, a heap does
 *             the whole word in n log n.
 * Memory   The state is immutable; working memory is the caller's, but for the heap's.
 * Proof    tests/golden/test_tokens_bpe.py, tests/unit/test_bpe.c (against the definition, on random merges). */
#ifndef FL_TOKENIZER_BPE_H
#define FL_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/token_model.h"
#include "tokenizer/vocab.h"

/* Two neighbours that become one: rank, left and right, of 23, 20 and 20 bits. Half the bytes are half the cache,
 * and what a merge waits for is the next two look-ups. FL_BPE_SPILT in the last slot of a bucket: more of its
 * merges lie in the next. */
typedef uint64_t fl_bpe_merge;

#define FL_BPE_SPILT   (1ull << 63)
#define FL_BPE_FREE    (FL_BPE_SPILT - 1)
#define FL_BPE_NO_RANK ((1u << FL_BPE_RANK_BITS) - 1) /* a free slot's */
enum {
    FL_BPE_BUCKET     = 4,
    FL_BPE_JOINT_BITS = 20,
    FL_BPE_ID_BITS    = 20,
    FL_BPE_RANK_BITS  = 23,
    FL_BPE_PAIRS      = 1 << 16 /* of bytes */
};

/* A token by its bytes. Up to 11 bytes are here themselves, of longer ones a hash. */
typedef struct fl_bpe_whole {
    uint64_t low;
    uint32_t high; /* three bytes and the size, or 0xFF000000 | size */
    uint32_t id;   /* UINT32_MAX: a free slot */
} fl_bpe_whole;

enum { FL_BPE_DIRECT = 0x180, FL_BPE_AFFIX_MAX = 16, FL_BPE_WINDOW = 64 };

typedef struct fl_bpe {
    const fl_vocab *vocab;
    void           *tables; /* owned, a big block: the next three */
    size_t          tables_bytes;
    uint32_t        made_count;
    fl_bpe_merge   *merges;     /* buckets of four, open addressing */
    uint32_t       *made;       /* the token that each rank's merge makes, [made_count] */
    uint32_t       *first;      /* [256][256]: the rank of two bytes' merge, when byte_level */
    uint64_t        seed;       /* of both tables */
    uint64_t        merge_mask; /* to the first of a bucket */
    fl_bpe_whole   *whole;      /* owned, a big block: open addressing, or NULL */
    size_t          whole_bytes;
    uint32_t        whole_mask;
    char           *raw;       /* owned: tokens as bytes of text, when byte_level */
    uint32_t       *raw_start; /* owned, [vocab->size + 1] */
    uint64_t *joints; /* owned: bits, 2^FL_BPE_JOINT_BITS of them, or NULL: see fl_bpe_may_join */
    int32_t   direct[FL_BPE_DIRECT]; /* id of each of the first characters, or -1 */
    int32_t   of_byte[256];          /* id of each byte's character in the byte-level alphabet */
    int32_t   of_last[256];          /* the same at the end of a word */
    int32_t   fallback[256];         /* id of "<0xHH>", or -1 */
    int32_t   unk;                   /* or -1 */
    bool      byte_fallback, fuse_unk, ignore_merges;
    bool      has_bytes;         /* every byte of UTF-8 has its tokens: it can be byte_level */
    bool      byte_level;        /* fl_bpe_encode takes raw bytes */
    bool      cuts_before_space; /* no token has U+2581 after another character */
    char      prefix[FL_BPE_AFFIX_MAX + 1], suffix[FL_BPE_AFFIX_MAX + 1];
} fl_bpe;

/* The byte-level alphabet: the character that stands for a byte, and back (-1: for none). */
uint32_t fl_bpe_char_of_byte(uint8_t byte);
int      fl_bpe_byte_of_char(uint32_t cp);

/* For fl_bpe_encode: the table of whole words; byte_level needs has_bytes. False: no memory. */
bool fl_bpe_prepare(fl_bpe *bpe, bool byte_level);

/* The ids of a piece as it stands in the text: raw bytes when `byte_level`, else characters. ids has room for
 * as many as `measure` says. 31 bytes after the piece can be read. SIZE_MAX: no memory, or stopped. */
size_t fl_bpe_encode(const fl_bpe *bpe, const char *piece, size_t size, int32_t *ids,
                     fl_stop *stop);

#endif
