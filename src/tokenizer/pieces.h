/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h - the patterns that cut text for byte-level BPE, scanned by hand.
 *
 * Role     The regular expressions of GPT-2, cl100k (Llama 3), Qwen, o200k, tekken, DeepSeek, Falcon and CLIP are
 *          known by their exact text; any other one is regex.c's. Digits and Punctuation are scanned here too.
 * In/Out   Valid UTF-8 -> the ends of its pieces. Where a piece ends the next one begins; what a pattern does not
 *          match is a piece as well, and marked when the step removes it.
 * Method   ASCII letters eight bytes at a time; classes of other characters from unicode.h.
 * Threads  Pure functions.
 * Proof    tests/golden/test_tokens_bpe.py against the reference; tests/unit/test_bpe.c against regex.c. */
#ifndef FL_TOKENIZER_PIECES_H
#define FL_TOKENIZER_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An end with this bit: the piece is left out. No text is so long. */
#define FL_PIECE_GONE 0x80000000u

/* The ends of the pieces of text[at .. size), at most `capacity` of them; how many. 0 only at the end, or where a
 * scanner that leaves pieces out has room for less than 3. */
typedef size_t fl_pieces(const char *text, size_t size, size_t at, uint32_t *ends, size_t capacity);

/* What a step does with what its pattern does not match. */
typedef enum fl_gaps {
    FL_GAPS_NONE, /* it takes a scanner that leaves nothing out, whatever is done with it */
    FL_GAPS_KEPT,
    FL_GAPS_GONE
} fl_gaps;

/* The scanner of a pattern, or NULL. */
fl_pieces *fl_pieces_of(const char *pattern, fl_gaps gaps);

/* Does GPT-2's pattern leave the pieces of this scanner whole, and does it leave out white space? */
bool fl_pieces_are_whole(fl_pieces *scan);
/* Does it cut between characters of ASCII alone? */
bool fl_pieces_are_ascii(fl_pieces *scan);

/* Those of patterns that pieces_steps.c scans. */
fl_pieces fl_pieces_deepseek, fl_pieces_numbers, fl_pieces_kana_or_han, fl_pieces_triplets;
fl_pieces fl_pieces_clip, fl_pieces_clip_marked;

/* Runs of digits and of others; each digit and runs of others; runs of punctuation and of others. */
fl_pieces fl_pieces_digit_runs, fl_pieces_digits, fl_pieces_punctuation;

/* Likewise when ByteLevel was before: its alphabet has digits for some bytes of other characters (U+00B2 for B2). */
fl_pieces fl_pieces_byte_digit_runs, fl_pieces_byte_digits;

/* SentencePiece's words: each begins with its spaces (' ' or U+2581). */
fl_pieces fl_pieces_spaces;

/* Steps one after another: each scanner cuts the pieces of the one before. Only a lone one leaves any out. */
enum { FL_CUTTERS_MAX = 4 };
typedef struct fl_cutters {
    fl_pieces *by[FL_CUTTERS_MAX];
    unsigned   count;
} fl_cutters;

/* Where the pieces of all but the last end that `at` lies in; starts with all at the beginning of the text. */
typedef struct fl_cutting {
    size_t end[FL_CUTTERS_MAX];
} fl_cutting;

/* The same as one scanner: `at` is where the walk `cutting` stands. */
size_t fl_pieces_next(const fl_cutters *cutters, fl_cutting *cutting, const char *text, size_t size,
                      size_t at, uint32_t *ends, size_t capacity);

extern const char fl_pieces_gpt2[]; /* the pattern that ByteLevel's use_regex means */

#endif
