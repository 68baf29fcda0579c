/* SPDX-License-Identifier: Apache-2.0 */
/* sentences.h - where sentences end, by the rules of Unicode (UAX 29). */
#ifndef FL_TOKENIZER_SENTENCES_H
#define FL_TOKENIZER_SENTENCES_H

#include <stddef.h>

/* The end of the sentence that begins at text[begin], begin < size, with the spaces and the line end behind
 * it. text[size] is valid UTF-8, and `begin` its start or the end of a sentence. */
size_t fl_sentence_end(const char *text, size_t size, size_t begin);

#endif
