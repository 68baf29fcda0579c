/* SPDX-License-Identifier: Apache-2.0 */
/* added.h - added tokens ("[SEP]", "<mask>") are cut out of the text before anything else sees it.
 *
 * Role     parse.c fills it; token_stream.c and exact.c walk the text with fl_added_next.
 * Method   Leftmost match, of those the longest; then the token's flags: single_word rejects a match
 *          with a word character beside it (its text stays ordinary but is used up), lstrip and rstrip
 *          swallow white space. Tokens with normalized:false match the raw text, the others the normalised
 *          text by their normalised content; hence two sets.
 * Threads  Immutable after fl_added_compile. */
#ifndef FL_TOKENIZER_ADDED_H
#define FL_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/stop.h"
#include "tokenizer/scan.h"

typedef struct fl_added_token {
    int32_t id;
    char   *content; /* owned: as the file has it */
    size_t  length;
    char   *pattern; /* owned: normalised content, when that differs; else NULL */
    size_t  pattern_length;
    bool    single_word, lstrip, rstrip, normalized, special;
    bool    skipped; /* when decoding without special tokens */
} fl_added_token;

typedef struct fl_added_node {
    uint32_t child, sibling; /* 0: none */
    int32_t  token;          /* index into tokens, or -1 */
    uint8_t  label;
} fl_added_node;

typedef struct fl_added_set {
    fl_added_node *nodes;         /* owned; [0] is the root */
    uint32_t       count;         /* of nodes; 0: the set is empty */
    fl_byte_set    first, second; /* bytes that a token begins with */
    bool           lone;          /* a token is one byte alone */
} fl_added_set;

typedef struct fl_added {
    fl_added_token *tokens; /* owned, [count], in the order of ids once opened */
    size_t          count;
    fl_added_set    raw;           /* tokens with normalized:false */
    fl_added_set    normalized;    /* the others */
    bool            split_special; /* special tokens are not looked for */
} fl_added;

typedef enum fl_added_result {
    FL_ADDED_OK,
    FL_ADDED_NOMEM,
    FL_ADDED_EMPTY,
    FL_ADDED_TWICE
} fl_added_result;

/* Build both sets. FL_ADDED_EMPTY and FL_ADDED_TWICE: *culprit has a pattern that is empty, or that
 * another token has too. */
fl_added_result fl_added_compile(fl_added *added, size_t *culprit);
void            fl_added_close(fl_added *added); /* idempotent */

/* The added token with this id, or NULL. */
const fl_added_token *fl_added_find(const fl_added *added, int32_t id);

/* Where a walk through one text stands; starts zeroed but for `stop`. text[done ..) is not yet accounted for. */
typedef struct fl_added_walk {
    size_t   search; /* matches are looked for from here */
    size_t   done;
    fl_stop *stop;  /* asked now and then, or NULL */
    unsigned tries; /* places that a token might begin at */
} fl_added_walk;

typedef struct fl_added_match {
    size_t                begin, end; /* with the white space it swallowed */
    const fl_added_token *token;
} fl_added_match;

/* The next token of `set` that begins before text[limit]; false when there is none, or when the walk was
 * stopped. Before it lies the
 * ordinary text [walk->done before the call, match->begin), which may be empty or (with overlapping
 * white space) reversed. */
bool fl_added_next(const fl_added *added, const fl_added_set *set, const fl_scan *scan,
                   const char *text, size_t size, size_t limit, fl_added_walk *walk,
                   fl_added_match *match);

/* May added tokens of the normalised text be looked for in parts of it? Then none swallows white space or minds its
 * neighbours, and none has a place in it where token_stream.c cuts, or white space at all if they must be `solid`. */
bool fl_added_is_local(const fl_added *added, bool solid);

#endif
