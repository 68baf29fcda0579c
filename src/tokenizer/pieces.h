/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h - the patterns that cut text for byte-level BPE, scanned by hand.
 *
 * Role     The regular expressions of GPT-2, cl100k (Llama 3), Qwen, o200k and tekken are known by their exact
 *          text; any other one is regex.c's.
 * In/Out   Valid UTF-8 -> the ends of its pieces. The patterns leave nothing out: where a piece ends the
 *          next one begins.
 * Method   ASCII letters eight bytes at a time; classes of other characters from unicode.h.
 * Threads  Pure functions.
 * Proof    tests/golden/test_tokens_bpe.py against the reference; tests/unit/test_bpe.c against regex.c. */
#ifndef FL_TOKENIZER_PIECES_H
#define FL_TOKENIZER_PIECES_H

#include <stddef.h>
#include <stdint.h>

/* The ends of the pieces of text[at .. size), at most `capacity` of them; how many. 0 only at the end. */
typedef size_t fl_pieces(const char *text, size_t size, size_t at, uint32_t *ends, size_t capacity);

/* The scanner of a pattern, or NULL. */
fl_pieces *fl_pieces_of(const char *pattern);

/* SentencePiece's words: each begins with its spaces (' ' or U+2581). */
fl_pieces fl_pieces_spaces;

extern const char fl_pieces_gpt2[]; /* the pattern that ByteLevel's use_regex means */

#endif
