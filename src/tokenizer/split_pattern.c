/* SPDX-License-Identifier: Apache-2.0 */
/* split_pattern.c - the pre-tokenisers that cut by a pattern: Split and ByteLevel.
 *
 * Role     Rows of fl_splits (steps.h).
 * Method   A pattern sees UTF-8, so the runes of a cut become UTF-8 first and the places of matches are
 *          counted back into runes. ByteLevel then writes each byte as its character of the byte-level
 *          alphabet; all bytes of a character keep that character's place in the text.
 * Proof    tests/golden/test_tokens_bpe.py. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/parse.h"
#include "tokenizer/pieces.h"
#include "tokenizer/regex.h"

enum { ENDS = 256, ASK_BYTES = 64 * 1024 };

/* ---- A cut as text ------------------------------------------------------------------------------ */

/* The runes of a cut, after a space if so wanted, into runes->text. */
static bool write_cut(fl_runes *runes, const fl_cut *cut, bool space) {
    fl_buf_clear(&runes->text);
    fl_buf_append(&runes->text, " ", space);
    return fl_runes_write(runes, cut->begin, cut->end, &runes->text);
}

/* ---- Split -------------------------------------------------------------------------------------- */

/* What a Split step keeps: one of the two. */
typedef struct pattern {
    fl_pieces *scan;
    fl_regex  *regex;
} pattern;

static void close_pattern(void *state) {
    pattern *p = state;
    if (p != NULL) {
        fl_regex_close(p->regex);
        fl_free(p);
    }
}

/* A string as a pattern that matches it alone. */
static char *literal(const char *text) {
    fl_buf out = {0};
    for (unsigned length; *text != '\0'; text += length)
        fl_buf_printf(&out, "\\x{%X}", fl_utf8_decode(text, &length));
    return fl_buf_take(&out);
}

static int parse_split(fl_step *step, fl_json_reader *reader) {
    fl_json_reader inner  = fl_json_below(reader, "pattern");
    const char    *regex  = fl_json_string(&inner, "Regex", NULL);
    const char    *string = fl_json_string(&inner, "String", NULL);
    const char    *name   = fl_need_string(reader, "behavior");
    step->flag            = fl_json_bool(reader, "invert", false);
    reader->status        = inner.status < 0 ? inner.status : reader->status;
    if (reader->status < 0)
        return reader->status;
    if ((regex == NULL && string == NULL) || (string != NULL && string[0] == '\0'))
        return fl_missing(reader, "pre_tokenizer.pattern");
    step->option = fl_behavior_of(name);
    if (step->option == FL_BEHAVIORS) {
        return fl_refuse(reader, "pre_tokenizer Split with behavior", name,
                         "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
    }
    if (string != NULL && fl_copy_runes(reader, string, &step->pattern, &step->pattern_count) < 0)
        return reader->status;
    pattern *p    = fl_alloc_zero(1, sizeof *p);
    step->state   = p;
    fl_gaps gaps  = step->option == FL_ISOLATED                ? FL_GAPS_KEPT
                    : step->option == FL_REMOVED && step->flag ? FL_GAPS_GONE
                                                               : FL_GAPS_NONE;
    char   *plain = regex == NULL ? literal(string) : NULL;
    if (p == NULL || (regex == NULL && plain == NULL)) {
        reader->status = fl_fail_nomem(reader->error, sizeof *p, "a pattern");
    } else if (regex == NULL || (p->scan = fl_pieces_of(regex, gaps)) == NULL) {
        reader->status =
            fl_regex_open(&p->regex, regex != NULL ? regex : plain, reader->source, reader->error);
    }
    fl_free(plain);
    return reader->status;
}

/* The parts of a cut by the bytes of its text, and how far its runes have been walked. */
typedef struct walk {
    fl_split_parts parts;
    bool           invert;
    size_t         rune, at;
} walk;

static bool take_part(walk *w, size_t begin, size_t end, bool match) {
    size_t first = fl_runes_find(w->parts.runes, begin, &w->rune, &w->at);
    size_t last  = fl_runes_find(w->parts.runes, end, &w->rune, &w->at);
    return fl_split_put(&w->parts, first, last, match != w->invert);
}

/* All matches and gaps of runes->text. */
static bool take_matches(const pattern *p, walk *w) {
    fl_runes       *runes = w->parts.runes;
    fl_regex_walk   where = {.stop = runes->stop};
    fl_regex_result result;
    size_t          begin, end, done = 0;
    while ((result = fl_regex_next(p->regex, &runes->regex, runes->text.data, runes->text.size,
                                   &where, &begin, &end)) == FL_REGEX_MATCH) {
        if ((done < begin && !take_part(w, done, begin, false)) || !take_part(w, begin, end, true))
            return false;
        done = end;
    }
    runes->too_long = runes->too_long || result == FL_REGEX_LIMIT;
    return result == FL_REGEX_NONE &&
           (done == runes->text.size || take_part(w, done, runes->text.size, false));
}

static bool scan_pieces(const pattern *p, walk *w) {
    const fl_buf *text = &w->parts.runes->text;
    uint32_t      ends[ENDS];
    for (size_t at = 0, ask = ASK_BYTES; at < text->size;) {
        if (at >= ask) {
            if (fl_stopped(w->parts.runes->stop))
                return false;
            ask = at + ASK_BYTES;
        }
        size_t count = p->scan(text->data, text->size, at, ends, ENDS);
        for (size_t i = 0; i < count; i++) {
            size_t end = ends[i] & ~FL_PIECE_GONE;
            if (!take_part(w, at, end, end == ends[i]))
                return false;
            at = end;
        }
    }
    return true;
}

static bool split(const fl_step *step, fl_runes *runes) {
    const pattern *p = step->state;
    for (size_t i = 0; i < runes->cuts.count; i++) {
        fl_cut cut = runes->cuts.at[i];
        walk   w   = {.parts  = {runes, (fl_behavior)step->option, false, cut.begin, cut.begin},
                      .invert = step->flag,
                      .rune   = cut.begin};
        if (cut.token >= 0) {
            if (!fl_runes_push(runes, cut))
                return false;
            continue;
        }
        size_t before = runes->next.count;
        if (!write_cut(runes, &cut, false) ||
            !(p->scan != NULL ? scan_pieces(p, &w) : take_matches(p, &w)) ||
            !fl_split_end(&w.parts))
            return false;
        if (runes->next.count > before && runes->next.at[before].begin == cut.begin)
            runes->next.at[before].origin = cut.origin;
    }
    fl_runes_next(runes);
    return true;
}

fl_pieces *fl_split_pieces(const fl_step *step) {
    const pattern *p = step->ops == &fl_split_pattern ? step->state : NULL;
    bool plain       = step->option == FL_ISOLATED || (step->option == FL_REMOVED && step->flag);
    return p != NULL && plain ? p->scan : NULL;
}

const fl_step_ops fl_split_pattern = {
    .type = "Split", .parse = parse_split, .run = split, .close = close_pattern};

/* ---- ByteLevel ---------------------------------------------------------------------------------- */

/* flag: add_prefix_space; option: use_regex. */
static int parse_byte_level(fl_step *step, fl_json_reader *reader) {
    step->flag   = fl_json_bool(reader, "add_prefix_space", true);
    step->option = fl_json_bool(reader, "use_regex", true);
    step->growth =
        step->flag ? 4 : 2; /* an alphabet of two bytes a byte, and a space before each piece */
    return reader->status;
}

/* runes->text becomes runes of the alphabet at spare[*count ..), with the places of the cut's runes. */
static void write_alphabet(fl_runes *runes, const fl_cut *cut, bool space, size_t *count) {
    fl_rune first = runes->at[cut->begin];
    if (space)
        runes->spare[(*count)++] = (fl_rune){fl_bpe_char_of_byte(' '), first.start, first.end};
    for (size_t i = cut->begin; i < cut->end && fl_runes_go_on(runes, i); i++) {
        fl_rune  rune = runes->at[i];
        char     bytes[4];
        unsigned length = fl_utf8_encode(rune.cp, bytes);
        for (unsigned k = 0; k < length; k++) {
            runes->spare[(*count)++] =
                (fl_rune){fl_bpe_char_of_byte((uint8_t)bytes[k]), rune.start, rune.end};
        }
    }
}

/* The cuts of runes->text, which is spare[first ..), a rune a byte. */
static bool cut_bytes(fl_runes *runes, size_t first, bool use_regex, uint32_t origin) {
    const fl_buf *text = &runes->text;
    fl_pieces    *scan = use_regex ? fl_pieces_of(fl_pieces_gpt2, FL_GAPS_NONE) : NULL;
    uint32_t      ends[ENDS];
    for (size_t at = 0; at < text->size;) {
        size_t count = 1;
        ends[0]      = (uint32_t)text->size;
        if (scan != NULL)
            count = scan(text->data, text->size, at, ends, ENDS);
        for (size_t i = 0; i < count; i++) {
            uint32_t begin = at == 0 ? origin : runes->spare[first + at].start;
            if (!fl_runes_push(runes, (fl_cut){first + at, first + ends[i], begin, -1}))
                return false;
            at = ends[i];
        }
    }
    return true;
}

static bool byte_level(const fl_step *step, fl_runes *runes) {
    size_t count = 0;
    if (!fl_runes_reserve_spare(runes, 4 * runes->count + runes->cuts.count))
        return false;
    for (size_t i = 0; i < runes->cuts.count; i++) {
        fl_cut cut   = runes->cuts.at[i];
        size_t first = count;
        bool   done;
        if (cut.token >= 0) {
            memcpy(runes->spare + count, runes->at + cut.begin,
                   (cut.end - cut.begin) * sizeof *runes->spare);
            count += cut.end - cut.begin;
            done = fl_runes_push(runes, (fl_cut){first, count, cut.origin, cut.token});
        } else {
            bool space = step->flag && runes->at[cut.begin].cp != ' ';
            done       = write_cut(runes, &cut, space);
            if (done) {
                write_alphabet(runes, &cut, space, &count);
                done = cut_bytes(runes, first, step->option != 0, cut.origin);
            }
        }
        if (!done)
            return false;
    }
    fl_runes_swap(runes, count);
    fl_runes_next(runes);
    return true;
}

const fl_step_ops fl_split_byte_level = {
    .type = "ByteLevel", .parse = parse_byte_level, .run = byte_level};
