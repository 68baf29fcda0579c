/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - the pre-tokenisers of tokenizer.json: cuts become more cuts.
 *
 * Role     exact.c runs them after the normalisers (steps.h says what a step is).
 * Method   Each walks over the cuts in order and writes the next list; white space may vanish between cuts.
 *          Runes stay where they are unless a step rewrites them.
 * Proof    tests/golden/test_tokens.py. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/parse.h"
#include "tokenizer/unicode.h"

enum { ASK_CUTS = 16 * 1024 };

bool fl_cuts_push(fl_cuts *cuts, fl_cut cut) {
    if (!fl_array_reserve(&cuts->at, &cuts->capacity, cuts->count + 1, sizeof *cuts->at))
        return false;
    cuts->at[cuts->count++] = cut;
    return true;
}

bool fl_runes_push(fl_runes *runes, fl_cut cut) {
    bool ask = (runes->next.count + 1) % ASK_CUTS == 0;
    return !(ask && fl_stopped(runes->stop)) && fl_cuts_push(&runes->next, cut);
}

void fl_runes_next(fl_runes *runes) {
    fl_cuts done      = runes->cuts;
    runes->cuts       = runes->next;
    runes->next       = done;
    runes->next.count = 0;
}

void fl_step_close(fl_step *step) {
    if (step->ops != NULL && step->ops->close != NULL)
        step->ops->close(step->state);
    fl_free(step->pattern);
    fl_free(step->content);
    memset(step, 0, sizeof *step);
}

/* The runes [begin, end) as a piece of their own. */
static bool keep(fl_runes *runes, size_t begin, size_t end) {
    return begin == end || fl_runes_push(runes, (fl_cut){begin, end, runes->at[begin].start, -1});
}

/* White space vanishes; a character with a flag of `alone` is a piece, and so is a run of characters that
 * are alike in the flag `same`. */
static bool split_by_flags(fl_runes *runes, unsigned alone, unsigned same) {
    for (size_t i = 0; i < runes->cuts.count; i++) {
        fl_cut cut = runes->cuts.at[i];
        if (cut.token >= 0 && !fl_runes_push(runes, cut))
            return false;
        for (size_t at = cut.begin; cut.token < 0 && at < cut.end && fl_runes_go_on(runes, at);) {
            size_t   begin = at;
            unsigned flags = fl_unicode_flags(runes->at[at++].cp);
            if ((flags & FL_UC_SPACE) != 0)
                continue;
            while ((flags & alone) == 0 && at < cut.end && fl_runes_go_on(runes, at)) {
                unsigned next = fl_unicode_flags(runes->at[at].cp);
                if ((next & (FL_UC_SPACE | alone)) != 0 || ((next ^ flags) & same) != 0)
                    break;
                at++;
            }
            if (!keep(runes, begin, at))
                return false;
        }
    }
    fl_runes_next(runes);
    return true;
}

static bool bert(const fl_step *step, fl_runes *runes) {
    (void)step;
    return split_by_flags(runes, FL_UC_PUNCT, 0);
}

/* \w+|[^\w\s]+ */
static bool whitespace(const fl_step *step, fl_runes *runes) {
    (void)step;
    return split_by_flags(runes, 0, FL_UC_WORD);
}

static bool whitespace_split(const fl_step *step, fl_runes *runes) {
    (void)step;
    return split_by_flags(runes, 0, 0);
}

/* ---- Matches and what becomes of them ----------------------------------------------------------- */

fl_behavior fl_behavior_of(const char *name) {
    static const char *const names[FL_BEHAVIORS] = {"Removed", "Isolated", "MergedWithPrevious",
                                                    "MergedWithNext", "Contiguous"};
    unsigned                 i                   = 0;
    while (i < FL_BEHAVIORS && strcmp(names[i], name) != 0)
        i++;
    return (fl_behavior)i;
}

bool fl_split_end(const fl_split_parts *parts) {
    return keep(parts->runes, parts->begin, parts->end);
}

/* MergedWithNext joins a match to the gap after it unless another match follows. */
bool fl_split_put(fl_split_parts *parts, size_t begin, size_t end, bool match) {
    bool after = parts->matched;
    bool joins = (parts->how == FL_CONTIGUOUS && match == after) ||
                 (parts->how == FL_MERGED_WITH_PREVIOUS && match && !after) ||
                 (parts->how == FL_MERGED_WITH_NEXT && !match && after);
    parts->matched = match;
    if (!joins) {
        if (!fl_split_end(parts))
            return false;
        parts->begin = parts->how == FL_REMOVED && match ? end : begin;
    }
    parts->end = end;
    return true;
}

/* Every character that `matches` says is one match. */
static bool split_by(const fl_step *step, fl_runes *runes,
                     bool (*matches)(const fl_step *step, uint32_t cp)) {
    for (size_t i = 0; i < runes->cuts.count; i++) {
        fl_cut cut = runes->cuts.at[i];
        if (cut.token >= 0) {
            if (!fl_runes_push(runes, cut))
                return false;
            continue;
        }
        fl_split_parts parts = {runes, (fl_behavior)step->option, false, cut.begin, cut.begin};
        size_t         done  = cut.begin;
        for (size_t at = cut.begin; at < cut.end && fl_runes_go_on(runes, at); at++) {
            if (!matches(step, runes->at[at].cp))
                continue;
            if ((done < at && !fl_split_put(&parts, done, at, false)) ||
                !fl_split_put(&parts, at, at + 1, true))
                return false;
            done = at + 1;
        }
        if ((done < cut.end && !fl_split_put(&parts, done, cut.end, false)) ||
            !fl_split_end(&parts))
            return false;
    }
    fl_runes_next(runes);
    return true;
}

static bool is_number(const fl_step *step, uint32_t cp) {
    (void)step;
    return (fl_unicode_flags(cp) & FL_UC_NUMERIC) != 0;
}

static bool digits(const fl_step *step, fl_runes *runes) {
    return split_by(step, runes, is_number);
}

static int parse_digits(fl_step *step, fl_json_reader *reader) {
    bool alone   = fl_json_bool(reader, "individual_digits", false);
    step->option = alone ? FL_ISOLATED : FL_CONTIGUOUS;
    return reader->status;
}

static bool is_punctuation(const fl_step *step, uint32_t cp) {
    (void)step;
    return (fl_unicode_flags(cp) & FL_UC_PUNCT) != 0;
}

static bool punctuation(const fl_step *step, fl_runes *runes) {
    return split_by(step, runes, is_punctuation);
}

static int parse_punctuation(fl_step *step, fl_json_reader *reader) {
    const char *name = fl_json_string(reader, "behavior", "Isolated");
    step->option     = fl_behavior_of(name);
    return reader->status < 0 || step->option < FL_BEHAVIORS
               ? reader->status
               : fl_refuse(reader, "behavior", name,
                           "Removed, Isolated, Contiguous, MergedWithPrevious, MergedWithNext");
}

static bool is_content(const fl_step *step, uint32_t cp) {
    return cp == step->content[0];
}

static bool delimiter(const fl_step *step, fl_runes *runes) {
    return split_by(step, runes, is_content);
}

/* A single character under `key` into step->content[0]. */
static int parse_character(fl_step *step, fl_json_reader *reader, const char *key,
                           const char *fallback) {
    const char *text = fl_json_string(reader, key, fallback);
    if (reader->status < 0 || fl_copy_runes(reader, text, &step->content, &step->content_count) < 0)
        return reader->status;
    return step->content_count == 1 ? 0 : fl_refuse(reader, key, text, "one character");
}

static int parse_delimiter(fl_step *step, fl_json_reader *reader) {
    step->option = FL_REMOVED;
    return parse_character(step, reader, "delimiter", "");
}

/* ---- Metaspace -------------------------------------------------------------------------------- */

enum { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

static int parse_metaspace(fl_step *step, fl_json_reader *reader) {
    static const char *const schemes[] = {"always", "first", "never"};
    const char              *scheme    = fl_json_string(reader, "prepend_scheme", "always");
    bool                     old       = fl_json_bool(reader, "add_prefix_space", true);
    step->flag                         = fl_json_bool(reader, "split", true);
    step->growth_add                   = 4;
    step->growth = 4; /* a space becomes three bytes, and each piece may grow */
    for (step->option = 0; step->option < 3 && strcmp(scheme, schemes[step->option]) != 0;)
        step->option++;
    if (step->option == 3 && reader->status == 0)
        return fl_refuse(reader, "prepend_scheme", scheme, "always, first, never");
    step->option = old ? step->option : PREPEND_NEVER; /* files of before 2024 */
    return parse_character(step, reader, "replacement", "\xE2\x96\x81");
}

static bool metaspace(const fl_step *step, fl_runes *runes) {
    uint32_t space = step->content[0];
    size_t   out   = 0;
    if (!fl_runes_reserve_spare(runes, runes->count + runes->cuts.count))
        return false;
    for (size_t i = 0; i < runes->cuts.count; i++) {
        fl_cut cut   = runes->cuts.at[i];
        size_t begin = out, piece = out;
        bool   marked =
            cut.token >= 0 || runes->at[cut.begin].cp == ' ' || runes->at[cut.begin].cp == space;
        if (!marked && (step->option == PREPEND_ALWAYS ||
                        (step->option == PREPEND_FIRST && cut.origin == 0))) {
            runes->spare[out++] =
                (fl_rune){space, runes->at[cut.begin].start, runes->at[cut.begin].end};
        }
        for (size_t at = cut.begin; at < cut.end && fl_runes_go_on(runes, at); at++) {
            fl_rune rune = runes->at[at];
            if (cut.token < 0 && rune.cp == ' ')
                rune.cp = space;
            if (cut.token < 0 && step->flag && rune.cp == space && out > piece) {
                if (!fl_runes_push(runes, (fl_cut){piece, out, runes->spare[piece].start, -1}))
                    return false;
                piece = out;
            }
            runes->spare[out++] = rune;
        }
        cut.origin = step->flag ? runes->spare[begin].start : cut.origin;
        cut.begin  = piece;
        cut.end    = out;
        if (!fl_runes_push(runes, cut))
            return false;
    }
    fl_runes_swap(runes, out);
    fl_runes_next(runes);
    return true;
}

const fl_step_ops fl_split_bert = {.type = "BertPreTokenizer", .run = bert, .local = true};
const fl_step_ops fl_split_whitespace_split = {
    .type = "WhitespaceSplit", .run = whitespace_split, .local = true};
const fl_step_ops fl_split_metaspace = {
    .type = "Metaspace", .parse = parse_metaspace, .run = metaspace};

const fl_step_ops fl_split_digits      = {.type = "Digits", .parse = parse_digits, .run = digits};
const fl_step_ops fl_split_punctuation = {
    .type = "Punctuation", .parse = parse_punctuation, .run = punctuation};

const fl_step_ops *const fl_splits[] = {
    &fl_split_bert,
    &(const fl_step_ops){.type = "Whitespace", .run = whitespace, .local = true},
    &fl_split_whitespace_split,
    &fl_split_metaspace,
    &fl_split_pattern,
    &fl_split_byte_level,
    &fl_split_digits,
    &fl_split_punctuation,
    &(const fl_step_ops){.type = "CharDelimiterSplit", .parse = parse_delimiter, .run = delimiter},
    NULL,
};
