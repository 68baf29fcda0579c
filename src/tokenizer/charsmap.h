/* SPDX-License-Identifier: Apache-2.0 */
/* charsmap.h - SentencePiece's map of characters, for those who follow it as SentencePiece does. */
#ifndef FL_TOKENIZER_CHARSMAP_H
#define FL_TOKENIZER_CHARSMAP_H

#include "base/json.h"
#include "tokenizer/steps.h"

typedef struct fl_charsmap fl_charsmap;

/* The key precompiled_charsmap of a step; *out is NULL where there is none, or an empty one, which changes nothing.
 * What was made is the caller's, also when the status is not 0. */
int      fl_charsmap_read(fl_charsmap **out, fl_json_reader *reader);
void     fl_charsmap_close(fl_charsmap *map);        /* NULL is a no-op */
uint32_t fl_charsmap_growth(const fl_charsmap *map); /* bytes of output for one of input, at most */

/* What the longest entry that begins at rune i becomes, NUL-terminated, and how many runes it has; NULL: none does. */
const char *fl_charsmap_longest(const fl_charsmap *map, const fl_runes *runes, size_t i,
                                size_t *count);

#endif
