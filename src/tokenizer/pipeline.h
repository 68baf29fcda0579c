/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h - what a tokenizer is inside: the steps of tokenizer.json, and one thread's working memory.
 *
 *     text ─ added (raw) ─ normalise ─ added (normalised) ─ pre-tokenise ─ model ─ truncate ─ template
 *
 * Role     parse.c fills struct fl_tokenizer; two engines read it: token_stream.c (ids only, BERT's pipeline, as
 *          fast as possible) and exact.c (every supported pipeline, with offsets). Both give the same
 *          ids; the tests hold them against each other and against the reference.
 * Threads  fl_tokenizer is immutable; fl_token_scratch belongs to one thread. */
#ifndef FL_TOKENIZER_PIPELINE_H
#define FL_TOKENIZER_PIPELINE_H

#include "base/buf.h"
#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decode.h"
#include "tokenizer/pieces.h"
#include "tokenizer/scan.h"
#include "tokenizer/steps.h"
#include "tokenizer/token_model.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"
#include "tokenizer/wordpiece.h"

enum { FL_STEPS_MAX = 16, FL_SPECIALS_MAX = 64 };
enum { FL_ALONE_COUNT = 0x10000, FL_ALONE_SPACE = 1, FL_INERT_COUNT = 0x10000 };

/* Special tokens around one text or two; place[n] of them come before text n. Types are 0, 1 or OTHER. */
enum { FL_TYPE_OTHER = 2 };
typedef struct fl_template {
    int32_t  ids[FL_SPECIALS_MAX];
    uint8_t  types[FL_SPECIALS_MAX];
    uint32_t count;
    uint32_t place[2];
    uint8_t  text_type[2];
    unsigned texts;
} fl_template;

/* Byte pair encoding of SentencePiece's kind, on the fast path: does a space come before a piece of text? */
typedef enum fl_spaces {
    FL_SPACES_NONE, /* another kind */
    FL_SPACES_NEVER,
    FL_SPACES_ALWAYS,
    FL_SPACES_UNLESS, /* unless one is there */
    FL_SPACES_FIRST,  /* likewise, at the beginning of the text */
    FL_SPACES_BEGIN   /* at the beginning of the text, whatever is there */
} fl_spaces;

struct fl_tokenizer {
    fl_vocab              vocab; /* the model's, without added tokens that it lacks */
    const fl_token_model *model;
    void                 *model_state; /* owned, the model's */
    const fl_wordpiece   *wordpiece;   /* model_state, where token_stream.c works; else NULL */
    fl_added              added;
    int32_t               named[FL_TOKEN_NAMED]; /* ids; -1: none */
    uint32_t              id_limit;              /* highest id + 1 of all tokens */
    bool                  small_ids;             /* every id fits 16 bits */
    bool                  pieces;                /* fl_tokenizer_options.pieces */
    fl_step               normal[FL_STEPS_MAX];
    unsigned              normal_count;
    fl_step               split[FL_STEPS_MAX];
    unsigned              split_count;
    fl_template           single, pair;
    const char           *pair_class; /* the class that makes another pair than the file; or NULL */
    fl_truncation         truncation; /* the side that the folder's files say */
    bool                  trim_offsets, add_prefix_space; /* RobertaProcessing */
    fl_decoder            decoder;
    const fl_bpe         *bpe;     /* model_state, where token_stream.c works with it; else NULL */
    fl_cutters            cutters; /* what cuts its text */
    fl_spaces             spaces;  /* SentencePiece's: how a space comes before a text */
    uint64_t *changes;    /* owned: a bit for each character that needs the normalisers; or NULL */
    bool      lowers;     /* the others become lower case for byte pair encoding */
    bool      stream;     /* token_stream.c can do it */
    bool      local;      /* exact.c may cut the text before any ASCII white space */
    uint32_t  expansion;  /* at most this many tokens per byte of text */
    unsigned  cache_bits; /* log2 of the number of lines of the word cache, at least 1 */
    bool      words; /* token_stream.c with words.c: WhitespaceSplit, Metaspace and any model */
    bool spaced; /* Metaspace alone: only a lone space between two solid characters parts words */
    uint64_t solid[FL_INERT_COUNT / 64]; /* characters that are no white space in any company */
    uint64_t inert[FL_INERT_COUNT / 64]; /* characters that no normaliser touches in any company */
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
    FL_WAITING_BYTES,   /* a piece for byte pair encoding */
    FL_WAITING_ALONE,   /* ids, of characters that fl_tokenizer.alone knows */
    FL_WAITING_APART    /* not for the cache: what stands before it matters */
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
    /* token_stream.c */
    fl_cache_line   *cache; /* owned, an even number of lines; a big block */
    size_t           cache_bytes;
    unsigned         cache_shift; /* from a 64-bit hash to the number of a line */
    unsigned         turn;        /* which full line gives way next */
    char             lower[FL_SCAN_WINDOW + FL_SCAN_SLACK];
    fl_scan_masks    masks;
    fl_waiting_piece queue[FL_QUEUE_WORDS];
    bool             failed;  /* no memory for a word */
    fl_buf           lowered; /* a piece of text in lower case */
    int32_t         *ring;    /* owned: the tail while truncating left */
    size_t           ring_capacity;
    char            *word;     /* owned, [4 * max_chars + 32]: one normalised word as UTF-8 */
    int32_t         *word_ids; /* owned, [4 * max_chars + 4] */
    uint32_t        *pending;  /* owned, [2 * (max_chars + 1)]: marks that wait for their order */
    /* exact.c */
    fl_runes       runes;
    fl_buf         text;   /* a normalised piece, or one word of it, as UTF-8 */
    fl_word_token *tokens; /* owned: those of one word */
    size_t         token_capacity;
    void          *work; /* owned: the model's working memory */
    size_t         work_capacity;
    fl_piece      *pieces; /* owned */
    size_t         piece_count, piece_capacity;
};

/* exact.c: fills scratch->pieces. `limit` is the most tokens to keep (SIZE_MAX: all). */
int fl_exact_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                    size_t size, size_t limit, fl_truncation truncation, bool *truncated,
                    fletch_error *error);

/* The same for a piece that stands between white space, for token_stream.c: ids are what counts in the pieces.
 * false: fl_exact_failed says why. */
bool fl_exact_piece(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                    size_t size);
int  fl_exact_failed(fl_token_scratch *scratch, size_t size, fletch_error *error);

/* bytes.c: find what cuts the text of a byte-level BPE on the fast path, and fill what token_stream.c needs for it;
 * none: another pipeline. False: no memory. */
bool fl_bytes_prepare(fl_tokenizer *tokenizer);

/* sentencepiece.c: how a space comes before a text whose characters that step leaves alone; NONE: it does more. */
fl_spaces fl_sentencepiece_spaces(const fl_step *step);

/* words.c: fill what token_stream.c needs; false: not such a pipeline. */
bool fl_words_prepare(fl_tokenizer *tokenizer);

/* token_stream.c: ids[capacity] gets the tokens, at most `limit` of them. */
int fl_stream_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                     size_t size, size_t limit, fl_truncation truncation, int32_t *ids,
                     size_t capacity, size_t *count, bool *truncated, fletch_error *error);

#endif
