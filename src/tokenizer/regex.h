/* SPDX-License-Identifier: Apache-2.0 */
/* regex.h - the regular expressions of tokenizer.json, as the reference understands them.
 *
 * Role     Steps that split or replace by a pattern which no hand-written scanner knows (scan_bpe.h).
 * Method   The reference runs Oniguruma with Ruby's syntax and Unicode 16; fletch runs PCRE2 on a translation
 *          in which every class (\s, \p{L}, [^...], (?i:'s)) is spelled out as ranges from fletch's own tables.
 *          What is left to PCRE2 (alternation, groups, repeats, looking ahead and behind) means the same to
 *          both. Anything else (backreferences, named groups, \X) is refused by name when opening.
 * Errors   A pattern that needs too many steps on a text ends with FL_REGEX_LIMIT, never with a hang.
 * Memory   All of PCRE2's passes base/mem.c.
 * Threads  fl_regex is immutable; fl_regex_work belongs to one thread.
 * Proof    tests/unit/test_regex.c, tests/golden/test_tokens_bpe.py, tests/fuzz/fuzz_regex.c. */
#ifndef FL_TOKENIZER_REGEX_H
#define FL_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/stop.h"
#include "fletch.h"

typedef struct fl_regex fl_regex;

/* `source` names the file in messages. */
int  fl_regex_open(fl_regex **out, const char *pattern, const char *source, fletch_error *error);
void fl_regex_close(fl_regex *regex); /* NULL is a no-op */

/* What matching needs, kept from text to text and usable with any pattern; starts zeroed. */
typedef struct fl_regex_work {
    void *match, *context, *stack; /* PCRE2's */
} fl_regex_work;

void fl_regex_work_free(fl_regex_work *work);

typedef enum fl_regex_result {
    FL_REGEX_NONE, /* no further match */
    FL_REGEX_MATCH,
    FL_REGEX_LIMIT, /* the pattern takes too long on this text */
    FL_REGEX_STOPPED,
    FL_REGEX_NOMEM
} fl_regex_result;

/* Where a walk through one text stands; starts zeroed but for `stop`. */
typedef struct fl_regex_walk {
    size_t   at;              /* the next search begins here */
    size_t   last_end;        /* of the last match */
    bool     matched;         /* there was one */
    fl_stop *stop;            /* asked now and then, or NULL */
    size_t   pace;            /* attempts between two looks at the clock */
    size_t   left;            /* until the next look */
    uint64_t started, looked; /* clock, once it is looked at */
} fl_regex_walk;

/* The next match in text[size], valid UTF-8. An empty match right after the one before is passed over. */
fl_regex_result fl_regex_next(const fl_regex *regex, fl_regex_work *work, const char *text,
                              size_t size, fl_regex_walk *walk, size_t *begin, size_t *end);

#endif
