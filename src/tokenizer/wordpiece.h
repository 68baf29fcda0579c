/* SPDX-License-Identifier: Apache-2.0 */
/* wordpiece.h - one normalised word becomes WordPiece ids, in time linear in the word.
 *
 * Role     The model "WordPiece" (token_model.h); token_stream.c calls it without that table, for speed.
 * In/Out   UTF-8 of one word -> ids. A word that has a dead end gives 0 ids: the caller emits unk.
 * Memory   A double array of 16-byte nodes and a pool of ids, immutable.
 * Threads  Any. */
#ifndef FL_TOKENIZER_WORDPIECE_H
#define FL_TOKENIZER_WORDPIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/trie.h"
#include "tokenizer/vocab.h"

typedef struct fl_wordpiece {
    fl_trie         trie;
    uint32_t       *pops;   /* owned */
    char           *prefix; /* owned: "##" */
    uint32_t        prefix_length;
    uint32_t        max_chars;
    int32_t         unk;
    const fl_vocab *vocab; /* borrowed: the lengths of tokens */
} fl_wordpiece;

enum { FL_WORD_CHARS_MAX = 1000 };

/* Tokens of more than max_chars code points can match no word and are left out. `prepare`, once the vocabulary
 * is whole, builds what encoding needs. False: no memory. */
bool fl_wordpiece_open(fl_wordpiece *wordpiece, const fl_vocab *vocab, const char *prefix,
                       uint32_t max_chars, int32_t unk);
bool fl_wordpiece_prepare(fl_wordpiece *wordpiece);
void fl_wordpiece_close(fl_wordpiece *wordpiece); /* idempotent */

/* ids[size] of the word, which has 1..max_chars code points; 0 when a piece cannot be found. */
size_t fl_wordpiece_encode(const fl_wordpiece *wordpiece, const char *word, size_t size,
                           int32_t *ids);

#endif
