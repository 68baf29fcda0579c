/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - normalisers and pre-tokenisers: one shape for both, tables of functions.
 *
 *     runes   ▁ d a s ▁ C a f é            each character with the bytes of the text it stands for
 *     cuts    [0, 4) [4, 9)                the pieces that the text has fallen into so far
 *
 * Role     parse_steps.c looks a step up by its "type" in fl_normalizers or fl_splits and lets it read its
 *          own keys; exact.c runs the steps in order. A new kind is one row and two functions.
 * Method   A normaliser rewrites the runes of a whole piece of text; cuts do not exist yet. A pre-tokeniser
 *          replaces each cut by zero or more cuts and may rewrite runes as well, into `spare`
 *          (fl_runes_rewrite below); cuts that are added tokens pass through.
 *          Loops over runes ask now and then whether the text is wanted still, and end early if it is not.
 * Memory   Buffers grow to the largest piece and are kept. false always means: no memory, or stopped.
 * Threads  Steps are immutable; fl_runes belongs to one thread. */
#ifndef FL_TOKENIZER_STEPS_H
#define FL_TOKENIZER_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/stop.h"
#include "tokenizer/pieces.h"
#include "tokenizer/regex.h"

/* One character on its way, and the bytes of the text it stands for. */
typedef struct fl_rune {
    uint32_t cp;
    uint32_t start, end;
} fl_rune;

/* A piece: the runes [begin, end). */
typedef struct fl_cut {
    size_t begin, end;
    uint32_t
        origin;    /* where the piece begins in the text as the reference counts it: 0 is "first" */
    int32_t token; /* it is this added token; -1: ordinary text */
} fl_cut;

typedef struct fl_cuts {
    fl_cut *at; /* owned */
    size_t  count, capacity;
} fl_cuts;

/* The text of one piece. */
typedef struct fl_runes {
    fl_rune      *at; /* owned, [count] */
    size_t        count, capacity;
    fl_rune      *spare; /* owned: the steps' second buffer, as large as was needed */
    size_t        spare_count, spare_capacity;
    fl_rune      *sorted; /* owned: for long runs of combining marks only */
    size_t        sorted_capacity;
    fl_cuts       cuts, next; /* the pieces, and those that a step is making of them */
    uint32_t      begin;      /* where the text of the runes begins */
    fl_buf        text;       /* a cut as UTF-8, for patterns */
    fl_regex_work regex;      /* owned */
    bool          too_long;   /* a pattern takes too long on this text; run gives false */
    bool          no_room;    /* memory has no room for the runes; likewise */
    fl_stop      *stop;       /* of the call under way, or NULL; likewise */
} fl_runes;

typedef struct fl_step fl_step;

typedef struct fl_step_ops {
    const char *type; /* as tokenizer.json names it */
    /* Read the step's own keys; NULL: it has none. */
    int (*parse)(fl_step *step, fl_json_reader *reader);
    bool (*run)(const fl_step *step, fl_runes *runes);
    void (*close)(void *state); /* what parse put into step->state; may be NULL */
    unsigned option;            /* step->option and growth, where parse does not set another */
    uint32_t growth;            /* 0: 1 */
    bool     local; /* what it makes of a word does not depend on what lies beyond white space */
    /* Whether a normaliser leaves the character alone whatever surrounds it; NULL: no character. */
    bool (*inert)(const fl_step *step, uint32_t cp);
} fl_step_ops;

struct fl_step {
    const fl_step_ops *ops;
    bool               clean_text, chinese_chars, strip_accents, lowercase; /* BertNormalizer */
    bool               strip_left, strip_right;                             /* Strip */
    bool               flag;                                                /* the step's own */
    unsigned           option;                                              /* likewise */
    uint32_t          *pattern;                                             /* owned: Replace */
    size_t             pattern_count;
    uint32_t          *content; /* owned: Replace, Prepend, Metaspace */
    size_t             content_count;
    void              *state;  /* owned, the step's own */
    uint32_t           growth; /* a text of n bytes becomes at most growth * n + growth_add */
    uint32_t           growth_add;
};

/* NULL-terminated tables, in the order in which messages list them. */
extern const fl_step_ops *const fl_normalizers[];
extern const fl_step_ops *const fl_splits[];

/* Those that the fast path knows. */
extern const fl_step_ops fl_normal_bert, fl_normal_lowercase, fl_normal_nfc;
extern const fl_step_ops fl_normal_replace;
extern const fl_step_ops fl_split_bert, fl_split_whitespace_split, fl_split_metaspace;
extern const fl_step_ops fl_split_digits, fl_split_punctuation;
extern const fl_step_ops fl_split_pattern, fl_split_byte_level; /* split_pattern.c */

/* What the pattern of a Replace matches (its option), where that is known. */
enum {
    FL_REPLACE_ANY,
    FL_REPLACE_BLANKS, /* all white space */
    FL_REPLACE_RUNS    /* white space, but no lone space */
};

/* The scanner of a Split step that isolates what it scans by hand, or keeps only that, and no more; or NULL. */
fl_pieces *fl_split_pieces(const fl_step *step);

/* charsmap.c */
extern const fl_step_ops fl_normal_precompiled;

/* sentencepiece.c: of texts with fl_tokenizer_options.pieces alone */
extern const fl_step_ops fl_normal_sentencepiece;

void fl_step_close(fl_step *step);

/* The runes of text[begin .. end), and no cuts. */
bool fl_runes_load(fl_runes *runes, const char *text, size_t begin, size_t end);
void fl_runes_free(fl_runes *runes);
bool fl_normalize(const fl_step *steps, unsigned count, fl_runes *runes);

/* For steps: */
/* In loops over many runes, rune i being next. false: nobody wants the text any more; the loop ends wherever it is,
 * and its function, or fl_normalize and exact.c behind it, gives up. */
enum { FL_ASK_RUNES = 32 * 1024 };
static inline bool fl_runes_go_on(const fl_runes *runes, size_t i) {
    return (i + 1) % FL_ASK_RUNES != 0 || !fl_stopped(runes->stop);
}
bool fl_cuts_push(fl_cuts *cuts, fl_cut cut);
bool fl_runes_reserve_spare(fl_runes *runes, size_t count); /* room for so many in `spare` */
void fl_runes_swap(fl_runes *runes, size_t count); /* the first `count` of spare become the text */
/* The same with the places dealt out: spare[i].start is what the reference calls the change, 1 for an inserted
 * character (which takes the place of the one before), 0 for one that replaces the next of the text, -n for
 * one that replaces n more after it. */
void fl_runes_deal(fl_runes *runes, size_t count);
/* The runes [begin, end) as UTF-8, behind what is in `out`. False: no memory, or stopped. */
bool fl_runes_write(const fl_runes *runes, size_t begin, size_t end, fl_buf *out);
/* The rune in which byte `byte` of such a text lies, going on from *rune, which begins at byte *at. */
size_t fl_runes_find(const fl_runes *runes, size_t byte, size_t *rune, size_t *at);
bool   fl_runes_push(fl_runes *runes, fl_cut cut); /* to `next` */
void   fl_runes_next(fl_runes *runes);             /* `next` becomes the cuts */

/* What a splitting step does with the matches that it looks for. */
typedef enum fl_behavior {
    FL_REMOVED,
    FL_ISOLATED,
    FL_MERGED_WITH_PREVIOUS,
    FL_MERGED_WITH_NEXT,
    FL_CONTIGUOUS,
    FL_BEHAVIORS
} fl_behavior;
fl_behavior fl_behavior_of(const char *name); /* FL_BEHAVIORS: none is called so */

/* The parts of a cut, matches and what lies between two, on their way to pieces. */
typedef struct fl_split_parts {
    fl_runes   *runes;
    fl_behavior how;
    bool        matched;    /* the part before was a match */
    size_t      begin, end; /* of the piece under way; both where the cut begins at first */
} fl_split_parts;
bool fl_split_put(fl_split_parts *parts, size_t begin, size_t end, bool match);
bool fl_split_end(const fl_split_parts *parts);

/* UTF-8 into an owned array of code points. */
int fl_copy_runes(fl_json_reader *reader, const char *text, uint32_t **out, size_t *count);

#endif
