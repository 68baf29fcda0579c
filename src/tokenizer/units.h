/* SPDX-License-Identifier: Apache-2.0 */
/* units.h - the pieces that documents are cut into: sections, blocks, paragraphs, sentences, words. */
#ifndef FL_TOKENIZER_UNITS_H
#define FL_TOKENIZER_UNITS_H

#include <stddef.h>

/* Each holds what follows it up to the next: blank lines behind a paragraph, spaces behind a word. So the
 * units of a text, laid end to end, are the text. */
typedef enum fl_unit {
    FL_UNIT_SECTION, /* Markdown: from a heading to the next; headings without text stay with what follows */
    FL_UNIT_BLOCK, /* Markdown: a paragraph, or a code fence; a heading stays with what follows */
    FL_UNIT_PARAGRAPH, /* up to a blank line */
    FL_UNIT_SENTENCE,  /* UAX 29 */
    FL_UNIT_WORD /* up to white space; between characters of scripts that write without spaces */
} fl_unit;

/* The end of the unit that begins at text[begin], begin < size: the text's start or the end of a unit. The
 * text is valid UTF-8. */
size_t fl_unit_end(fl_unit unit, const char *text, size_t size, size_t begin);

#endif
