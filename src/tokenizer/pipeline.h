/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h - what a tokenizer is inside: the steps of tokenizer.json, and one thread's working memory.
 *
 *     text ─ added (raw) ─ normalise ─ added (normalised) ─ pre-tokenise ─ WordPiece ─ truncate ─ template
 *
 * Role     parse.c fills struct fl_tokenizer; two engines read it: stream.c (ids only, BERT's pipeline, as
 *          fast as possible) and exact.c (every supported pipeline, with offsets). Both give the same
 *          ids; the tests hold them against each other and against the reference.
 * Threads  fl_tokenizer is immutable; fl_token_scratch belongs to one thread. */
#ifndef FL_TOKENIZER_PIPELINE_H
#define FL_TOKENIZER_PIPELINE_H

#include "base/buf.h"
#include "tokenizer/added.h"
#include "tokenizer/scan.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"
#include "tokenizer/wordpiece.h"

/* One character on its way through the normalisers, and the bytes of the text it stands for. */
typedef struct fl_rune {
    uint32_t cp;
    uint32_t start, end;
} fl_rune;

/* The text of one piece as runes; normalisers rewrite it. */
typedef struct fl_runes {
    fl_rune *at; /* owned, [count] */
    size_t   count, capacity;
    fl_rune *spare; /* owned: the normalisers' second buffer, as large as was needed */
    size_t   spare_capacity;
    fl_rune *sorted; /* owned: for long runs of combining marks only */
    size_t   sorted_capacity;
} fl_runes;

typedef enum fl_normal_kind {
    FL_NORMAL_BERT,
    FL_NORMAL_LOWERCASE,
    FL_NORMAL_NFD,
    FL_NORMAL_STRIP_ACCENTS,
    FL_NORMAL_STRIP,
    FL_NORMAL_REPLACE,
    FL_NORMAL_PREPEND
} fl_normal_kind;

typedef struct fl_normal_step {
    fl_normal_kind kind;
    bool           clean_text, chinese_chars, strip_accents, lowercase; /* BERT */
    bool           strip_left, strip_right;                             /* STRIP */
    uint32_t      *pattern;                                             /* owned: REPLACE */
    size_t         pattern_count;
    uint32_t      *content; /* owned: REPLACE and PREPEND */
    size_t         content_count;
} fl_normal_step;

typedef enum fl_split_kind {
    FL_SPLIT_BERT,             /* at white space, punctuation isolated */
    FL_SPLIT_WHITESPACE,       /* \w+|[^\w\s]+ */
    FL_SPLIT_WHITESPACE_SPLIT, /* at white space */
} fl_split_kind;

enum { FL_STEPS_MAX = 16, FL_SPECIALS_MAX = 64, FL_WORD_CHARS_MAX = 1000 };
enum { FL_ALONE_COUNT = 0x10000, FL_ALONE_SPACE = 1 };

struct fl_tokenizer {
    fl_vocab       vocab; /* the model's, without added tokens that it lacks */
    fl_wordpiece   wordpiece;
    fl_added       added;
    uint32_t       id_limit;  /* highest id + 1 of all tokens */
    bool           small_ids; /* every id fits 16 bits */
    fl_normal_step normal[FL_STEPS_MAX];
    unsigned       normal_count;
    fl_split_kind  split[FL_STEPS_MAX];
    unsigned       split_count;
    int32_t        before[FL_SPECIALS_MAX], after[FL_SPECIALS_MAX]; /* the template */
    uint32_t       before_count, after_count;
    bool           trim_offsets, add_prefix_space; /* RobertaProcessing */
    bool           decode_wordpiece;               /* else tokens are joined with a space */
    bool           decode_cleanup;
    char          *decode_prefix; /* owned, when decode_wordpiece */
    bool           stream;        /* stream.c can do it */
    bool           local;         /* exact.c may cut the text before any ASCII white space */
    uint32_t       expansion;     /* at most this many tokens per byte of text */
    unsigned       cache_bits;    /* log2 of the number of lines of the word cache, at least 1 */
    fl_scan_table  scan_table;
    const fl_scan *scan;
    /* Characters beyond ASCII that are words of their own whatever surrounds them (Chinese ones and
     * punctuation that no normaliser changes): where their id is in alone_ids. FL_ALONE_SPACE: they end
     * words and vanish. 0: all others. Most of them are unknown and share one id, so what is read of
     * both is small; what is never written costs no memory. */
    uint16_t alone[FL_ALONE_COUNT];
    int32_t  alone_ids[FL_ALONE_COUNT];
};

/* A line of the word cache, 64 bytes, on which two short pieces of raw text lie with their ids, or one
 * long one. A piece is what stands between two characters that end words whatever surrounds them; letters
 * A-Z are lowered where the pipeline lowers.
 *
 *              bytes 0-14     15         16-31     32-46     47         48-63
 *     short    text           tag        ids       text      tag        ids
 *     long     text           0          text¹     ids       count      ids          ¹ byte 31: size
 *
 * A tag holds the size (1 to 15) in its low half and the number of ids in its high half. The half byte that
 * is a size for the short ones is 0 for a long one, and its size is not 0: none is ever taken for another,
 * and a line of zeros matches nothing. (Byte 15 is the highest of `high` and of key[1], as processors have
 * it for which fletch is built.) A vocabulary of up to 65536 ids keeps twice as many of them: foreign words
 * fall into letters where it was not made for them. */
enum { FL_SHORT_BYTES = 15, FL_LONG_BYTES = 30 };

typedef union fl_cached_ids {
    int32_t  wide[4];
    uint16_t small[8]; /* where every id fits: fl_tokenizer.small_ids */
} fl_cached_ids;

typedef struct fl_cache_short {
    uint64_t      low, high; /* the bytes, zero-padded; the tag in the highest byte */
    fl_cached_ids ids;
} fl_cache_short;

typedef struct fl_cache_long {
    uint64_t      key[4]; /* 15 bytes in each half, zero-padded; the size in the highest byte */
    fl_cached_ids ids[2]; /* the last of ids[0] is the count, in its highest half byte */
} fl_cache_long;

typedef union fl_cache_line {
    fl_cache_short two[2];
    fl_cache_long  one;
} fl_cache_line;

enum { FL_QUEUE_WORDS = 16 };

typedef enum fl_waiting_kind {
    FL_WAITING_PLAIN,   /* one word, as it stands in the lowered text */
    FL_WAITING_FOREIGN, /* to be normalised first; any number of words */
    FL_WAITING_ALONE    /* ids, of characters that fl_tokenizer.alone knows */
} fl_waiting_kind;

/* A piece of text between its hash and its look-up. */
enum { FL_WAITING_IDS = 8 };
typedef struct fl_waiting_piece {
    union {
        struct {
            uint64_t       low, high; /* the key when short */
            fl_cache_line *line;      /* NULL: too long for the cache */
            const char    *text;      /* in scratch->lower */
        };
        int32_t alone[FL_WAITING_IDS]; /* [size] */
    };
    uint32_t        size;
    fl_waiting_kind kind;
} fl_waiting_piece;

/* One token with its place, on the exact path. */
typedef struct fl_piece {
    int32_t  id;
    uint32_t start, end;  /* bytes of the text */
    uint32_t lead, trail; /* white space at the ends of the token's string, for trim_offsets */
} fl_piece;

struct fl_token_scratch {
    /* stream.c */
    fl_cache_line   *cache; /* owned, an even number of lines; a big block */
    size_t           cache_bytes;
    unsigned         cache_shift; /* from a 64-bit hash to the number of a line */
    unsigned         turn;        /* which full line gives way next */
    char             lower[FL_SCAN_WINDOW + FL_SCAN_SLACK];
    fl_scan_masks    masks;
    fl_waiting_piece queue[FL_QUEUE_WORDS];
    int32_t         *ring; /* owned: the tail while truncating left */
    size_t           ring_capacity;
    /* both */
    char     *word;      /* owned, [4 * max_chars + 32]: one normalised word as UTF-8 */
    uint32_t *word_rune; /* owned, [4 * max_chars]: rune of each byte of word */
    int32_t  *word_ids;  /* owned, [4 * max_chars + 4] */
    uint32_t *pending;   /* owned, [2 * (max_chars + 1)]: marks that wait for their order */
    /* exact.c */
    fl_runes  runes;
    fl_buf    text;   /* a normalised piece as UTF-8, for normalised added tokens */
    fl_piece *pieces; /* owned */
    size_t    piece_count, piece_capacity;
};

/* normalize.c */
bool fl_runes_load(fl_runes *runes, const char *text, size_t begin,
                   size_t end); /* false: no memory */
bool fl_normalize(const fl_normal_step *steps, unsigned count, fl_runes *runes); /* likewise */
void fl_runes_free(fl_runes *runes);

/* exact.c: fills scratch->pieces. `limit` is the most tokens to keep (SIZE_MAX: all). */
int fl_exact_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                    size_t size, size_t limit, fl_truncation truncation, bool *truncated,
                    fletch_error *error);

/* stream.c: ids[capacity] gets the tokens, at most `limit` of them. */
int fl_stream_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                     size_t size, size_t limit, fl_truncation truncation, int32_t *ids,
                     size_t capacity, size_t *count, bool *truncated, fletch_error *error);

#endif
