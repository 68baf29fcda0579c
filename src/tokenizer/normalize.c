/* SPDX-License-Identifier: Apache-2.0 */
/* normalize.c - the normalisers of tokenizer.json, one character at a time, with offsets.
 *
 * Role     exact.c normalises each piece of text between added tokens; parse.c the contents of added
 *          tokens. (token_stream.c has its own form of BERT's normaliser, for speed; the tests compare.)
 * In/Out   fl_runes: characters with the bytes of the text they stand for.
 * Method   Each step rewrites the whole piece, in the order of the file, as the reference does. A kept
 *          character keeps its place; an inserted one takes that of the character before it (a space
 *          around a Chinese character: that character's).
 *          NFD is the exception that needs care: the reference counts replaced characters from left to
 *          right *after* the marks have been put in order, so a reordered mark takes over the place of
 *          the mark that stood there before. decompose() therefore remembers for each character whether
 *          it replaces (1 : 1) or is inserted, sorts, and only then deals out the places.
 * Memory   Two buffers that grow to the largest piece. Long runs of marks are sorted by counting, so ten
 *          megabytes of combining marks take linear time.
 * Proof    tests/golden/test_tokens.py (ids and offsets, random marks among them). */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/parse.h"
#include "tokenizer/unicode.h"

enum { SHORT_RUN = 24, CLASSES = 256, PATTERN_MAX = 256 };

/* A rune in both buffers, in UTF-8, and in the word that the model cuts. */
enum { RUNE_WORK = 2 * sizeof(fl_rune) + 8, ROOM_ASKED = 1 << 20 };

/* Normalisers may make 4,096 bytes of one, so that a text is no measure of what it takes. */
static bool reserve(fl_runes *runes, fl_rune **array, size_t *capacity, size_t count) {
    const fl_stop *ask   = runes->stop;
    const uint64_t bytes = (uint64_t)count * RUNE_WORK;
    if (count > *capacity && bytes >= ROOM_ASKED && ask != NULL && ask->room != NULL &&
        !ask->room(ask->room_user, bytes)) {
        runes->no_room = true;
        return false;
    }
    return fl_array_reserve(array, capacity, count, sizeof **array);
}

void fl_runes_free(fl_runes *runes) {
    fl_free(runes->at);
    fl_free(runes->spare);
    fl_free(runes->sorted);
    fl_free(runes->cuts.at);
    fl_free(runes->next.at);
    fl_buf_free(&runes->text);
    fl_regex_work_free(&runes->regex);
    memset(runes, 0, sizeof *runes);
}

bool fl_runes_load(fl_runes *runes, const char *text, size_t begin, size_t end) {
    assert(begin <= end);
    runes->count      = 0;
    runes->cuts.count = 0;
    runes->next.count = 0; /* a step that failed leaves some */
    runes->begin      = (uint32_t)begin;
    if (!reserve(runes, &runes->at, &runes->capacity, end - begin))
        return false;
    for (size_t i = begin; i < end && fl_runes_go_on(runes, runes->count);) {
        unsigned length;
        uint32_t cp               = fl_utf8_decode(text + i, &length);
        runes->at[runes->count++] = (fl_rune){cp, (uint32_t)i, (uint32_t)(i + length)};
        i += length;
    }
    return !fl_was_stopped(runes->stop);
}

bool fl_runes_reserve_spare(fl_runes *runes, size_t count) {
    return reserve(runes, &runes->spare, &runes->spare_capacity, count);
}

void fl_runes_swap(fl_runes *runes, size_t count) {
    assert(count <= runes->spare_capacity);
    fl_rune *at           = runes->at;
    size_t   capacity     = runes->capacity;
    runes->at             = runes->spare;
    runes->capacity       = runes->spare_capacity;
    runes->spare          = at;
    runes->spare_capacity = capacity;
    runes->count          = count;
}

bool fl_runes_write(const fl_runes *runes, size_t begin, size_t end, fl_buf *out) {
    assert(begin <= end && end <= runes->count);
    size_t size = 0;
    for (size_t i = begin; i < end && fl_runes_go_on(runes, i); i++)
        size += fl_utf8_size(runes->at[i].cp);
    if (fl_was_stopped(runes->stop) || !fl_buf_reserve(out, size))
        return false;
    for (size_t i = begin; i < end && fl_runes_go_on(runes, i); i++)
        out->size += fl_utf8_encode(runes->at[i].cp, out->data + out->size);
    out->data[out->size] = '\0';
    return !fl_was_stopped(runes->stop);
}

size_t fl_runes_find(const fl_runes *runes, size_t byte, size_t *rune, size_t *at) {
    assert(*at <= byte);
    for (; *at < byte; (*rune)++)
        *at += fl_utf8_size(runes->at[*rune].cp);
    return *rune;
}

/* Keep the characters without `flag`. */
static void drop_flag(fl_runes *runes, unsigned flag) {
    size_t kept = 0;
    for (size_t i = 0; i < runes->count && fl_runes_go_on(runes, i); i++)
        if ((fl_unicode_flags(runes->at[i].cp) & flag) == 0)
            runes->at[kept++] = runes->at[i];
    runes->count = kept;
}

static void clean_text(fl_runes *runes) {
    drop_flag(runes, FL_UC_DROP);
    for (size_t i = 0; i < runes->count && fl_runes_go_on(runes, i); i++)
        if (fl_unicode_is_space(runes->at[i].cp))
            runes->at[i].cp = ' ';
}

static bool space_chinese(fl_runes *runes) {
    size_t extra = 0;
    for (size_t i = 0; i < runes->count && fl_runes_go_on(runes, i); i++)
        extra += (fl_unicode_flags(runes->at[i].cp) & FL_UC_CJK) != 0 ? 2 : 0;
    if (extra == 0)
        return true;
    if (fl_was_stopped(runes->stop) || !fl_runes_reserve_spare(runes, runes->count + extra))
        return false; /* one that was stopped has not counted them all */
    size_t out = 0;
    for (size_t i = 0; i < runes->count && fl_runes_go_on(runes, i); i++) {
        fl_rune rune  = runes->at[i];
        fl_rune space = {' ', rune.start, rune.end};
        bool    cjk   = (fl_unicode_flags(rune.cp) & FL_UC_CJK) != 0;
        if (cjk)
            runes->spare[out++] = space;
        runes->spare[out++] = rune;
        if (cjk)
            runes->spare[out++] = space;
    }
    fl_runes_swap(runes, out);
    return true;
}

/* Bring run[count] into the order of combining classes (in .end), equal ones staying in order. */
static bool sort_marks(fl_runes *runes, fl_rune *run, size_t count) {
    assert(count > 0);
    if (count <= SHORT_RUN) {
        for (size_t i = 1; i < count; i++) {
            fl_rune rune = run[i];
            size_t  j    = i;
            for (; j > 0 && run[j - 1].end > rune.end; j--)
                run[j] = run[j - 1];
            run[j] = rune;
        }
        return true;
    }
    if (!reserve(runes, &runes->sorted, &runes->sorted_capacity, count))
        return false;
    size_t begin[CLASSES + 1] = {0};
    for (size_t i = 0; i < count && fl_runes_go_on(runes, i); i++)
        begin[run[i].end + 1]++;
    for (size_t c = 1; c <= CLASSES; c++)
        begin[c] += begin[c - 1];
    if (fl_was_stopped(runes->stop))
        return false;
    for (size_t i = 0; i < count && fl_runes_go_on(runes, i); i++)
        runes->sorted[begin[run[i].end]++] = run[i];
    if (fl_was_stopped(runes->stop))
        return false;
    memcpy(run, runes->sorted, count * sizeof *run);
    return true;
}

/* What unicode normalisation does beyond putting marks in order. */
enum { COMPATIBLE = 1, COMPOSE = 2 };

/* NFD or NFKD into spare, with .start = 1 for inserted characters and .end = combining class; *out = count. */
static bool decompose_all(fl_runes *runes, bool wide, size_t *out) {
    size_t n = 0, run = 0; /* spare[run .. n) are marks in waiting */
    for (size_t i = 0; i < runes->count; i++) {
        if (!fl_runes_go_on(runes, i))
            return false;
        uint32_t parts[FL_UC_WIDE_MAX];
        uint32_t cp    = runes->at[i].cp;
        unsigned count = 1;
        parts[0]       = cp;
        if (wide)
            count = fl_unicode_decompose_wide(cp, parts);
        else if ((fl_unicode_flags(cp) & FL_UC_DECOMPOSES) != 0)
            count = fl_unicode_decompose(cp, parts);
        if (!fl_runes_reserve_spare(runes, n + count))
            return false;
        for (unsigned k = 0; k < count; k++) {
            unsigned class = fl_unicode_record_of(parts[k])->ccc;
            if (class == 0) {
                if (n - run > 1 && !sort_marks(runes, runes->spare + run, n - run))
                    return false;
                run = n + 1;
            }
            runes->spare[n++] = (fl_rune){parts[k], k > 0, class};
        }
    }
    *out = n;
    return n <= run + 1 || sort_marks(runes, runes->spare + run, n - run);
}

/* Join what composes; the changes add up as the reference's do. */
static size_t compose_all(const fl_runes *runes, size_t count) {
    fl_rune *rune = runes->spare;
    size_t   out = 0, starter = SIZE_MAX;
    unsigned last =
        0; /* class of the last mark that stayed between the starter and here, 0: none */
    for (size_t i = 0; i < count && fl_runes_go_on(runes, i); i++) {
        fl_rune one    = rune[i];
        unsigned class = one.end;
        if (starter != SIZE_MAX && (last == 0 || last < class)) {
            uint32_t joined = fl_unicode_compose(rune[starter].cp, one.cp);
            if (joined != 0) {
                rune[starter].cp = joined;
                rune[starter].start += one.start - 1;
                continue;
            }
        }
        if (class == 0) {
            starter = out;
            last    = 0;
        } else if (starter != SIZE_MAX) {
            last = class;
        }
        rune[out++] = one;
    }
    return out;
}

void fl_runes_deal(fl_runes *runes, size_t count) {
    assert(count <= runes->spare_capacity);
    size_t next = 0; /* the next character of the text that has not been replaced */
    for (size_t i = 0; i < count && fl_runes_go_on(runes, i); i++) {
        int32_t change = (int32_t)runes->spare[i].start;
        size_t  place  = change > 0 ? next - 1 : next;
        if (change <= 0)
            next += 1 + (size_t) - (int64_t)change;
        /* Beyond the end only a map that deletes at the beginning gets. */
        place                 = place < runes->count ? place : runes->count - 1;
        bool before           = change > 0 && next == 0;
        runes->spare[i].start = before ? runes->begin : runes->at[place].start;
        runes->spare[i].end   = before ? runes->begin : runes->at[place].end;
    }
    fl_runes_swap(runes, count);
}

static bool normal_form(fl_runes *runes, unsigned form) {
    unsigned touched = FL_UC_DECOMPOSES | FL_UC_CCC;
    bool     needed  = false;
    touched |= (form & COMPOSE) != 0 ? (unsigned)FL_UC_COMPOSES : 0;
    for (size_t i = 0; i < runes->count && !needed && fl_runes_go_on(runes, i); i++) {
        uint32_t cp = runes->at[i].cp;
        needed = (fl_unicode_flags(cp) & touched) != 0 || ((form & COMPATIBLE) != 0 && cp >= 0x80);
    }
    size_t count = runes->count;
    if (!needed || count == 0)
        return true;
    if (fl_was_stopped(runes->stop) || !fl_runes_reserve_spare(runes, count) ||
        !decompose_all(runes, (form & COMPATIBLE) != 0, &count))
        return false;
    fl_runes_deal(runes, (form & COMPOSE) != 0 ? compose_all(runes, count) : count);
    return true;
}

static bool decompose(const fl_step *step, fl_runes *runes) {
    return normal_form(runes, step->option);
}

static bool lowercase(const fl_step *step, fl_runes *runes) {
    (void)step;
    size_t dotted = 0;
    for (size_t i = 0; i < runes->count && fl_runes_go_on(runes, i); i++) {
        uint32_t low[2];
        if ((fl_unicode_flags(runes->at[i].cp) & FL_UC_LOWER) == 0)
            continue;
        if (fl_unicode_lower(runes->at[i].cp, low) == 2)
            dotted++;
        else
            runes->at[i].cp = low[0];
    }
    if (dotted == 0)
        return true;
    if (fl_was_stopped(runes->stop) || !fl_runes_reserve_spare(runes, runes->count + dotted))
        return false;
    size_t out = 0;
    for (size_t i = 0; i < runes->count && fl_runes_go_on(runes, i); i++) {
        fl_rune rune        = runes->at[i];
        bool    is_dotted   = rune.cp == FL_UC_DOTTED_I;
        runes->spare[out++] = (fl_rune){is_dotted ? 'i' : rune.cp, rune.start, rune.end};
        if (is_dotted)
            runes->spare[out++] = (fl_rune){FL_UC_DOT_ABOVE, rune.start, rune.end};
    }
    fl_runes_swap(runes, out);
    return true;
}

static bool bert(const fl_step *step, fl_runes *runes) {
    if (step->clean_text)
        clean_text(runes);
    if (step->chinese_chars && !space_chinese(runes))
        return false;
    if (step->strip_accents) {
        if (!normal_form(runes, 0))
            return false;
        drop_flag(runes, FL_UC_MARK_BERT);
    }
    return !step->lowercase || lowercase(step, runes);
}

static bool strip(const fl_step *step, fl_runes *runes) {
    size_t begin = 0, end = runes->count;
    while (step->strip_left && begin < end && fl_unicode_is_space(runes->at[begin].cp) &&
           fl_runes_go_on(runes, begin))
        begin++;
    while (step->strip_right && end > begin && fl_unicode_is_space(runes->at[end - 1].cp) &&
           fl_runes_go_on(runes, end))
        end--;
    if (begin > 0)
        memmove(runes->at, runes->at + begin, (end - begin) * sizeof *runes->at);
    runes->count = end - begin;
    return true;
}

static bool matches(const fl_step *step, const fl_runes *runes, size_t at) {
    if (runes->count - at < step->pattern_count)
        return false;
    for (size_t k = 0; k < step->pattern_count; k++)
        if (runes->at[at + k].cp != step->pattern[k])
            return false;
    return true;
}

/* The content, placed on the character before rune `end`. */
static bool put_content(const fl_step *step, fl_runes *runes, size_t end, size_t *out) {
    if (!fl_runes_reserve_spare(runes, *out + step->content_count))
        return false;
    fl_rune last = runes->at[end > 0 ? end - 1 : 0];
    for (size_t k = 0; k < step->content_count; k++)
        runes->spare[(*out)++] = (fl_rune){step->content[k], last.start, last.end};
    return true;
}

/* Copy the runes of bytes [*byte, end) of the text; *rune is the first of them. */
static bool copy_until(fl_runes *runes, size_t *rune, size_t *byte, size_t end, bool keep,
                       size_t *out) {
    if (!fl_runes_reserve_spare(runes, *out + (end - *byte)))
        return false;
    while (*byte < end) {
        if (!fl_runes_go_on(runes, *rune))
            return false;
        *byte += fl_utf8_size(runes->at[*rune].cp);
        if (keep)
            runes->spare[(*out)++] = runes->at[*rune];
        (*rune)++;
    }
    return true;
}

static bool replace_regex(const fl_step *step, fl_runes *runes) {
    fl_buf       *text = &runes->text;
    fl_regex_walk walk = {.stop = runes->stop};
    size_t        out = 0, rune = 0, byte = 0, begin, end;
    bool          any = false;
    fl_buf_clear(text);
    if (!fl_runes_write(runes, 0, runes->count, text))
        return false;
    for (;;) {
        fl_regex_result found =
            fl_regex_next(step->state, &runes->regex, text->data, text->size, &walk, &begin, &end);
        if (found == FL_REGEX_NONE)
            break;
        runes->too_long = found == FL_REGEX_LIMIT;
        if (found != FL_REGEX_MATCH || !copy_until(runes, &rune, &byte, begin, true, &out) ||
            !copy_until(runes, &rune, &byte, end, false, &out) ||
            !put_content(step, runes, rune, &out))
            return false;
        any = true;
    }
    if (any) {
        if (!copy_until(runes, &rune, &byte, text->size, true, &out))
            return false;
        fl_runes_swap(runes, out);
    }
    return true;
}

/* Every match of the pattern, left to right, becomes the content, placed on the match's last character. */
static bool replace(const fl_step *step, fl_runes *runes) {
    size_t out = 0, turn = 0;
    if (step->state != NULL)
        return runes->count == 0 || replace_regex(step, runes);
    for (size_t i = 0; i < runes->count && fl_runes_go_on(runes, turn++);) {
        bool   hit   = matches(step, runes, i);
        size_t count = hit ? step->content_count : 1;
        if (!fl_runes_reserve_spare(runes, out + count))
            return false;
        if (!hit) {
            runes->spare[out++] = runes->at[i++];
            continue;
        }
        i += step->pattern_count;
        fl_rune last = runes->at[i - 1];
        for (size_t k = 0; k < count; k++)
            runes->spare[out++] = (fl_rune){step->content[k], last.start, last.end};
    }
    if (runes->count > 0)
        fl_runes_swap(runes, out);
    return true;
}

static bool prepend(const fl_step *step, fl_runes *runes) {
    if (runes->count == 0)
        return true;
    size_t count = runes->count + step->content_count;
    if (!fl_runes_reserve_spare(runes, count))
        return false;
    for (size_t k = 0; k < step->content_count; k++)
        runes->spare[k] = (fl_rune){step->content[k], runes->at[0].start, runes->at[0].end};
    memcpy(runes->spare + step->content_count, runes->at, runes->count * sizeof *runes->at);
    fl_runes_swap(runes, count);
    return true;
}

/* Some controls vanish, white space of many kinds becomes one. */
static bool nmt(const fl_step *step, fl_runes *runes) {
    size_t kept = 0;
    (void)step;
    for (size_t i = 0; i < runes->count && fl_runes_go_on(runes, i); i++) {
        fl_rune  rune = runes->at[i];
        uint32_t cp   = rune.cp;
        if ((cp >= 1 && cp <= 8) || cp == 0xB || (cp >= 0xE && cp <= 0x1F) || cp == 0x7F ||
            cp == 0x8F || cp == 0x9F)
            continue;
        if (cp == '\t' || cp == '\n' || cp == '\f' || cp == '\r' || cp == 0x1680 ||
            (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
            cp == 0xFEFF || cp == 0xFFFD)
            rune.cp = ' ';
        runes->at[kept++] = rune;
    }
    runes->count = kept;
    return true;
}

static bool strip_accents(const fl_step *step, fl_runes *runes) {
    (void)step;
    drop_flag(runes, FL_UC_MARK);
    return true;
}

bool fl_normalize(const fl_step *steps, unsigned count, fl_runes *runes) {
    bool ok = true;
    for (unsigned i = 0; i < count && ok; i++)
        ok = steps[i].ops->run(&steps[i], runes) && !fl_was_stopped(runes->stop);
    return ok;
}

/* ---- From tokenizer.json ---------------------------------------------------------------------- */

int fl_copy_runes(fl_json_reader *reader, const char *text, uint32_t **out, size_t *count) {
    size_t size = strlen(text);
    *count      = 0;
    *out        = fl_alloc_array(size + 1, sizeof **out);
    if (*out == NULL) {
        reader->status = fl_fail_nomem(reader->error, size * sizeof **out, "a normalizer");
        return reader->status;
    }
    for (size_t i = 0; i < size;) {
        unsigned length;
        (*out)[(*count)++] = fl_utf8_decode(text + i, &length);
        i += length;
    }
    return 0;
}

static void close_replace(void *state) {
    fl_regex_close(state);
}

static unsigned replaced_blanks(const char *pattern) {
    static const struct {
        const char *pattern;
        unsigned    blanks;
    } known[] = {{"\\s+", FL_REPLACE_BLANKS},
                 {" {2,}", FL_REPLACE_RUNS},
                 {"\\s{2,}|[\\n\\r\\t]", FL_REPLACE_RUNS}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(pattern, known[i].pattern) == 0)
            return known[i].blanks;
    return FL_REPLACE_ANY;
}

static int parse_replace_regex(fl_step *step, fl_json_reader *reader, fl_json_reader *pattern) {
    const char *text    = fl_need_string(pattern, "Regex");
    const char *content = pattern->status == 0 ? fl_need_string(reader, "content") : "";
    fl_regex   *regex   = NULL;
    reader->status      = pattern->status < 0 ? pattern->status : reader->status;
    if (reader->status == 0) {
        reader->status = fl_regex_open(&regex, text, reader->source, reader->error);
        step->state    = regex;
    }
    step->growth     = (uint32_t)strlen(content) + 1; /* for every byte, and once at the end */
    step->growth_add = (uint32_t)strlen(content);
    step->option     = replaced_blanks(text);
    if (step->option != FL_REPLACE_ANY) { /* no match is empty */
        step->growth     = content[0] == '\0' ? 1 : (uint32_t)strlen(content);
        step->growth_add = 0;
    }
    return reader->status < 0
               ? reader->status
               : fl_copy_runes(reader, content, &step->content, &step->content_count);
}

static int parse_replace(fl_step *step, fl_json_reader *reader) {
    fl_json_reader pattern = fl_json_below(reader, "pattern");
    if (reader->status == 0 && pattern.object == NULL)
        return fl_missing(reader, "pattern");
    if (fl_json_has(&pattern, "Regex"))
        return parse_replace_regex(step, reader, &pattern);
    const char *text    = fl_need_string(&pattern, "String");
    const char *content = pattern.status == 0 ? fl_need_string(reader, "content") : "";
    reader->status      = pattern.status < 0 ? pattern.status : reader->status;
    if (reader->status < 0)
        return reader->status;
    size_t size = strlen(text);
    if (size == 0 || size > PATTERN_MAX) {
        reader->status = fl_fail(
            reader->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s: normalizer \"Replace\" with a pattern of %zu bytes is not supported (1 to %d)",
            reader->source, size, PATTERN_MAX);
        return reader->status;
    }
    step->growth = (uint32_t)(strlen(content) / size + 1);
    return fl_copy_runes(reader, text, &step->pattern, &step->pattern_count) < 0 ||
                   fl_copy_runes(reader, content, &step->content, &step->content_count) < 0
               ? reader->status
               : 0;
}

static int parse_bert(fl_step *step, fl_json_reader *reader) {
    step->clean_text    = fl_need_bool(reader, "clean_text");
    step->chinese_chars = fl_need_bool(reader, "handle_chinese_chars");
    step->lowercase     = fl_need_bool(reader, "lowercase");
    step->strip_accents = fl_json_bool(reader, "strip_accents", step->lowercase);
    return reader->status;
}

static int parse_strip(fl_step *step, fl_json_reader *reader) {
    step->strip_left  = fl_need_bool(reader, "strip_left");
    step->strip_right = fl_need_bool(reader, "strip_right");
    return reader->status;
}

static int parse_prepend(fl_step *step, fl_json_reader *reader) {
    const char *text = fl_need_string(reader, "prepend");
    step->growth_add = (uint32_t)strlen(text);
    return reader->status < 0 ? reader->status
                              : fl_copy_runes(reader, text, &step->content, &step->content_count);
}

/* ---- Characters that a step leaves alone whatever surrounds them -------------------------------- */

static bool inert_form(const fl_step *step, uint32_t cp) {
    uint32_t parts[FL_UC_WIDE_MAX];
    bool     same = (step->option & COMPATIBLE) == 0 ||
                (fl_unicode_decompose_wide(cp, parts) == 1 && parts[0] == cp);
    return same && (fl_unicode_flags(cp) & (FL_UC_DECOMPOSES | FL_UC_CCC | FL_UC_COMPOSES)) == 0;
}

static bool inert_lower(const fl_step *step, uint32_t cp) {
    (void)step;
    return (fl_unicode_flags(cp) & FL_UC_LOWER) == 0;
}

static bool inert_accents(const fl_step *step, uint32_t cp) {
    (void)step;
    return (fl_unicode_flags(cp) & FL_UC_MARK) == 0;
}

static bool inert_strip(const fl_step *step, uint32_t cp) {
    (void)step;
    return !fl_unicode_is_space(cp);
}

static bool inert_nmt(const fl_step *step, uint32_t cp) {
    (void)step;
    return cp > 0x20 && (fl_unicode_flags(cp) & (FL_UC_DROP | FL_UC_SPACE)) == 0 && cp != 0x2581;
}

/* A pattern of more than one character cannot begin with a character that is not in it. */
static bool inert_replace(const fl_step *step, uint32_t cp) {
    if (step->state != NULL) /* another pattern may match anything */
        return step->option != FL_REPLACE_ANY && !fl_unicode_is_space(cp);
    for (size_t i = 0; i < step->pattern_count; i++)
        if (step->pattern[i] == cp)
            return false;
    return true;
}

const fl_step_ops fl_normal_bert = {
    .type = "BertNormalizer", .parse = parse_bert, .run = bert, .growth = 3, .local = true};
const fl_step_ops fl_normal_lowercase = {
    .type = "Lowercase", .run = lowercase, .growth = 2, .local = true, .inert = inert_lower};
const fl_step_ops fl_normal_nfc = {.type   = "NFC",
                                   .run    = decompose,
                                   .option = COMPOSE,
                                   .growth = 3, /* U+1D160: composition is excluded */
                                   .local  = true,
                                   .inert  = inert_form};

const fl_step_ops fl_normal_replace = {.type  = "Replace",
                                       .parse = parse_replace,
                                       .run   = replace,
                                       .close = close_replace,
                                       .inert = inert_replace};

const fl_step_ops *const fl_normalizers[] = {
    &fl_normal_bert,
    &fl_normal_lowercase,
    &fl_normal_precompiled,
    &fl_normal_nfc,
    &(const fl_step_ops){.type   = "NFD",
                         .run    = decompose,
                         .growth = 3, /* U+0390: two bytes become six */
                         .local  = true,
                         .inert  = inert_form},
    &(const fl_step_ops){.type   = "NFKC",
                         .run    = decompose,
                         .option = COMPATIBLE | COMPOSE,
                         .growth = 11, /* U+FDFA: three bytes become 33 */
                         .local  = true,
                         .inert  = inert_form},
    &(const fl_step_ops){.type   = "NFKD",
                         .run    = decompose,
                         .option = COMPATIBLE,
                         .growth = 11,
                         .local  = true,
                         .inert  = inert_form},
    &(const fl_step_ops){.type = "Nmt", .run = nmt, .local = true, .inert = inert_nmt},
    &(const fl_step_ops){
        .type = "StripAccents", .run = strip_accents, .local = true, .inert = inert_accents},
    &(const fl_step_ops){.type = "Strip", .parse = parse_strip, .run = strip, .inert = inert_strip},
    &fl_normal_replace,
    &(const fl_step_ops){.type = "Prepend", .parse = parse_prepend, .run = prepend},
    NULL,
};
