/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c - Oniguruma's patterns in PCRE2's words.
 *
 * Role     See regex.h.
 * Method   One pass over the pattern. A class becomes a bitmap of all code points and then ranges, so that
 *          neither the library's Unicode age nor its idea of \s or of letter case matters:
 *
 *              (?i:'s)|[^\s\p{L}]+     becomes     (?:\x{27}[SsU+17F])|[U+21-U+40U+5B-U+60...]+
 *
 *          Under (?i) only ASCII is taken, and no two letters that a ligature folds to (fi, st, ss), because
 *          Oniguruma lets those match one character.
 *          Time: PCRE2 bounds the steps of one attempt; the number of attempts is bounded by looking at
 *          the clock after some of them (a* on a text of a's is quadratic without any attempt being long),
 *          the fewer the longer they take. Only a pattern that would hang gets near either.
 * Memory   A bitmap while translating. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

enum {
    PATTERN_MAX     = 16 * 1024,
    DEPTH_MAX       = 64,
    CLASS_DEPTH_MAX = 4,
    CLASSES_MAX     = 256,
    REPEAT_MAX      = 1000,
    POINTS          = 0x110000,
    SURROGATES      = 0xD800,
    AFTER           = 0xE000, /* the surrogates */
    LATIN_1         = 0x100,  /* ends before */
    LONG_S          = 0x17F,
    KELVIN          = 0x212A,
    STEPS_MAX       = 2000000,   /* of one attempt */
    HEAP_KIB        = 64 * 1024, /* likewise */
    STACK_MAX       = 512 * 1024,
    PACE_FIRST      = 16, /* attempts between two looks at the clock */
    PACE_MAX        = 1024,
    QUICK_NS        = 100000, /* between two looks: there may be more attempts, or fewer */
    SLOW_NS         = 5000000
};

struct fl_regex {
    pcre2_general_context *memory;
    pcre2_code            *code;
};

/* ---- Sets of code points ----------------------------------------------------------------------- */

typedef struct set {
    uint64_t bits[POINTS / 64];
} set;

static bool has(const set *s, uint32_t cp) {
    return (s->bits[cp / 64] >> (cp % 64) & 1) != 0;
}

static void put(set *s, uint32_t cp) {
    s->bits[cp / 64] |= 1ull << (cp % 64);
}

/* What a name means: categories, and what FL_UC_… flags say beside them. */
typedef struct property {
    const char *name;
    uint32_t    mask, flags;
    uint32_t    flags_from; /* these count from this code point on */
} property;

enum {
    MASK_WORD =
        FL_MASK_L | FL_MASK_M | 1 << FL_CATEGORY_ND | 1 << FL_CATEGORY_NL | 1 << FL_CATEGORY_PC
};

static const property space = {"s", FL_MASK_SPACE, 0, 0};
static const property digit = {"d", 1u << FL_CATEGORY_ND, 0, 0};
static const property word  = {"w", MASK_WORD, FL_UC_WORD_SIGN, 0};
/* Oniguruma's \w in a class does not have the six signs of Latin-1 that it has alone: U+00B2 and the like. */
static const property class_word = {"w", MASK_WORD, FL_UC_WORD_SIGN, LATIN_1};

static const property properties[] = {
    {"L", FL_MASK_L, 0, 0},
    {"M", FL_MASK_M, 0, 0},
    {"N", FL_MASK_N, 0, 0},
    {"P", FL_MASK_P, 0, 0},
    {"S", FL_MASK_S, 0, 0},
    {"Z", 0x7u << FL_CATEGORY_ZS, 0, 0},
    {"Cc", 1u << FL_CATEGORY_CC | 1u << FL_CATEGORY_SPACE_CONTROL, 0, 0},
    {"Letter", FL_MASK_L, 0, 0},
    {"Number", FL_MASK_N, 0, 0},
    {"Han", 0, FL_UC_HAN, 0},
};

/* The other categories, two letters each, in the order of fl_category. */
static const char categories[] = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZp--Cf--Co";

static void put_property(set *s, const property *p, bool negate) {
    for (uint32_t cp = 0; cp < POINTS; cp++) {
        const fl_unicode_record *r  = fl_unicode_record_of(cp);
        bool                     in = (1u << r->category & p->mask) != 0 ||
                  (cp >= p->flags_from && (r->flags & p->flags) != 0);
        if (in != negate)
            put(s, cp);
    }
}

/* Under (?i), for ASCII. */
static void put_folded(set *s, uint32_t cp) {
    uint32_t lower = cp | 0x20;
    put(s, cp);
    if (lower >= 'a' && lower <= 'z') {
        put(s, lower);
        put(s, lower - 0x20);
    }
    if (lower == 's' || lower == 'k')
        put(s, lower == 's' ? LONG_S : KELVIN);
}

static void emit_set(fl_buf *out, const set *s, bool negate) {
    fl_buf_putc(out, '[');
    size_t empty = out->size;
    for (uint32_t cp = 0; cp < POINTS; cp++) {
        if (cp == SURROGATES)
            cp = AFTER;
        if (has(s, cp) == negate)
            continue;
        uint32_t last = cp;
        for (uint32_t next = cp + 1; next < POINTS; next++) {
            next = next == SURROGATES ? AFTER : next;
            if (has(s, next) == negate)
                break;
            last = next;
        }
        fl_buf_printf(out, cp == last ? "\\x{%X}" : "\\x{%X}-\\x{%X}", cp, last);
        cp = last;
    }
    if (out->size == empty) /* PCRE2 knows no empty class */
        fl_buf_puts(out, "^\\x{0}-\\x{10FFFF}");
    fl_buf_putc(out, ']');
}

/* ---- Translation ------------------------------------------------------------------------------- */

typedef struct translation {
    const char   *pattern, *at, *end;
    const char   *source;
    fletch_error *error;
    int           status;
    fl_buf        out;
    set          *set;              /* of the class under work */
    bool          fold;             /* (?i) */
    bool          outer[DEPTH_MAX]; /* fold outside each open group */
    unsigned      depth;
    bool          repeats; /* a repeat may follow */
    char          before;  /* the folded letter just before, or 0 */
    unsigned      classes; /* written so far: each is a walk over all code points */
} translation;

static int refuse(translation *t, const char *what) {
    if (t->status == 0) {
        t->status =
            fl_fail(t->error, FLETCH_EUNSUPPORTED, (size_t)(t->at - t->pattern),
                    "%s: the regular expression \"%.60s\" has %s, which fletch does not support",
                    t->source, t->pattern, what);
    }
    return t->status;
}

static void emit_class(translation *t, bool negate) {
    if (++t->classes > CLASSES_MAX) {
        refuse(t, "more classes than any real one");
        return;
    }
    emit_set(&t->out, t->set, negate);
}

static bool take(translation *t, const char *text) {
    size_t size = strlen(text);
    if ((size_t)(t->end - t->at) < size || memcmp(t->at, text, size) != 0)
        return false;
    t->at += size;
    return true;
}

/* \xHH, \x{H...}, \uHHHH, after the letter. */
static uint32_t hexadecimal(translation *t, unsigned digits, bool braces) {
    uint32_t value = 0;
    unsigned count = 0;
    bool     open  = braces && take(t, "{");
    unsigned most  = open ? 8 : digits;
    while (count < most && t->at < t->end && fl_hex_digit(*t->at) >= 0) {
        value = value << 4 | (uint32_t)fl_hex_digit(*t->at++);
        count++;
    }
    bool complete = open ? count > 0 && take(t, "}") : count == digits;
    if (!complete || value >= POINTS || (value >= SURROGATES && value < AFTER) ||
        (!open && digits == 2 && value > 0x7F)) { /* \xE9 alone is a byte, not a character */
        refuse(t, "a code point in a form");
        return 0;
    }
    return value;
}

/* After "\p" or "\P". */
static void braced_property(translation *t, bool negate) {
    const char *begin = t->at;
    if (!take(t, "{")) {
        refuse(t, "\\p without braces");
        return;
    }
    negate           = take(t, "^") ? !negate : negate;
    const char *name = t->at;
    while (t->at < t->end && *t->at != '}')
        t->at++;
    size_t size = (size_t)(t->at - name);
    if (!take(t, "}")) {
        refuse(t, "\\p without its closing brace");
        return;
    }
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        if (strlen(properties[i].name) == size && memcmp(properties[i].name, name, size) == 0) {
            put_property(t->set, &properties[i], negate);
            return;
        }
    }
    for (unsigned i = 0; size == 2 && i < sizeof categories / 2; i++) {
        if (memcmp(categories + (size_t)2 * i, name, 2) == 0) {
            property one = {name, 1u << i, 0, 0};
            put_property(t->set, &one, negate);
            return;
        }
    }
    char what[64];
    snprintf(what, sizeof what, "\\p%.*s", (int)(t->at - begin < 40 ? t->at - begin : 40), begin);
    refuse(t, what);
}

/* An escape that is a set goes into t->set (true); one character into *cp (false). After the '\'. */
static bool escape(translation *t, bool in_class, uint32_t *cp) {
    static const char letters[] = "n\nr\rt\tf\fv\va\ae\x1B";
    char              c         = t->at < t->end ? *t->at++ : '\0';
    const property *class       = (c | 32) == 's'   ? &space
                                  : (c | 32) == 'd' ? &digit
                                  : (c | 32) == 'w' ? &word
                                                    : NULL;
    *cp                         = 0;
    if (class != NULL || c == 'p' || c == 'P') {
        if (t->fold && class != &space && class != &digit)
            refuse(t, "a class of letters under (?i)");
        else if (class != NULL)
            put_property(t->set, in_class && class == &word ? &class_word : class, c < 'a');
        else
            braced_property(t, c == 'P');
        return true;
    }
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    if (letter != NULL && (letter - letters) % 2 == 0) {
        *cp = (unsigned char)letter[1];
    } else if (c == 'x') {
        *cp = hexadecimal(t, 2, true);
    } else if (c == 'u') {
        *cp = hexadecimal(t, 4, false);
    } else if (c > ' ' && (unsigned char)c < 0x7F && !(c >= '0' && c <= '9') &&
               !((c | 32) >= 'a' && (c | 32) <= 'z')) {
        *cp = (unsigned char)c;
    } else if (c == ' ') {
        *cp = ' ';
    } else {
        char what[] = "\\?";
        what[1]     = c > ' ' && (unsigned char)c < 0x7F ? c : '?';
        refuse(t, what);
    }
    return false;
}

/* One character of the pattern, as it stands. */
static uint32_t plain(translation *t) {
    unsigned length;
    uint32_t cp = fl_utf8_decode(t->at, &length);
    t->at += length;
    return cp;
}

/* One end of a range in a class, or a set. */
static bool class_item(translation *t, uint32_t *cp) {
    if (take(t, "\\"))
        return escape(t, true, cp);
    if (*t->at == '[')
        refuse(t, "a range with a class");
    *cp = plain(t);
    return false;
}

static void join(set *to, const set *other, bool both) {
    for (size_t i = 0; i < POINTS / 64; i++)
        to->bits[i] = both ? to->bits[i] & other->bits[i] : to->bits[i] | other->bits[i];
}

static set *new_set(translation *t) {
    set *s = fl_alloc_zero(1, sizeof *s);
    if (s == NULL && t->status == 0)
        t->status = fl_fail_nomem(t->error, sizeof *s, "a regular expression");
    return s;
}

/* A character, a range or a set by name into t->set; in a class. */
static void class_part(translation *t) {
    uint32_t cp, last;
    if (class_item(t, &cp)) {
        if (t->end - t->at >= 2 && t->at[0] == '-' && t->at[1] != ']')
            refuse(t, "a range that begins with a class");
        return;
    }
    last = cp;
    if (t->end - t->at >= 2 && t->at[0] == '-' && t->at[1] != ']') {
        t->at++;
        if (class_item(t, &last) || last < cp) {
            refuse(t, "a range that goes backwards or ends with a class");
            return;
        }
    }
    if (t->fold && last > 0x7F) {
        refuse(t, "characters other than ASCII under (?i)");
        return;
    }
    for (; cp <= last; cp++)
        if (t->fold)
            put_folded(t->set, cp);
        else
            put(t->set, cp);
}

static void read_class(translation *t, unsigned depth);

/* A class in a class: what it has is added. After its "[". */
static void inner_class(translation *t, unsigned depth) {
    set *outer = t->set, *inner = new_set(t);
    if (depth == CLASS_DEPTH_MAX || t->fold || (t->at < t->end && *t->at == ':')) {
        refuse(t,
               t->fold ? "a class inside a class under (?i)" : "a class inside a class of a kind");
    }
    if (t->status == 0) {
        t->set = inner;
        read_class(t, depth + 1);
        t->set = outer;
        join(outer, inner, false);
    }
    fl_free(inner);
}

/* What is before "&&" is what the rest may have at most. */
static void intersect(translation *t, set **left, bool empty) {
    if (empty || t->fold || t->at == t->end || *t->at == ']' || *t->at == '&') {
        refuse(t, t->fold ? "&& under (?i)" : "&& with nothing beside it");
        return;
    }
    bool fresh = *left == NULL;
    *left      = fresh ? new_set(t) : *left;
    if (*left != NULL) {
        join(*left, t->set, !fresh);
        memset(t->set, 0, sizeof *t->set);
    }
}

/* A class into t->set, which is empty. After "[". */
static void read_class(translation *t, unsigned depth) {
    bool negate = take(t, "^"), first = true;
    set *left = NULL;
    while (t->status == 0 && !(t->at < t->end && *t->at == ']')) {
        if (t->at == t->end)
            refuse(t, "a class without its closing bracket");
        else if (take(t, "&&"))
            intersect(t, &left, first);
        else if (take(t, "["))
            inner_class(t, depth);
        else
            class_part(t);
        first = false;
    }
    t->at += t->status == 0;
    if (first)
        refuse(t, "an empty class");
    if (left != NULL)
        join(t->set, left, true);
    for (size_t i = 0; negate && i < POINTS / 64; i++)
        t->set->bits[i] = ~t->set->bits[i];
    fl_free(left);
}

/* After "[". */
static void class(translation *t) {
    memset(t->set, 0, sizeof *t->set);
    read_class(t, 0);
    emit_class(t, false);
}

/* \b and \B, by what \w is. After the letter. */
static void word_boundary(translation *t, bool negate) {
    static const char *const parts[2][4] = {{"(?:(?<=", ")(?!", ")|(?<!", ")(?="},
                                            {"(?:(?<=", ")(?=", ")|(?<!", ")(?!"}};
    memset(t->set, 0, sizeof *t->set);
    put_property(t->set, &word, false);
    for (size_t i = 0; i < 4; i++) {
        fl_buf_puts(&t->out, parts[negate][i]);
        emit_class(t, false);
    }
    fl_buf_puts(&t->out, "))");
    t->repeats = false;
    t->before  = 0;
}

static bool folds_together(char a, char b) {
    return (a == 'f' && (b == 'f' || b == 'i' || b == 'l')) || (a == 's' && (b == 's' || b == 't'));
}

static void literal(translation *t, uint32_t cp) {
    if (!t->fold) {
        fl_buf_printf(&t->out, "\\x{%X}", cp);
        return;
    }
    char lower = cp >= 'A' && cp <= 'Z' ? (char)(cp | 32) : (char)cp;
    if (cp > 0x7F || folds_together(t->before, lower)) {
        refuse(t, cp > 0x7F ? "characters other than ASCII under (?i)"
                            : "ff, fi, fl, ss or st under (?i)");
        return;
    }
    memset(t->set, 0, sizeof *t->set);
    put_folded(t->set, cp);
    emit_class(t, false);
    t->before = lower;
}

/* After "(". */
static void open_group(translation *t) {
    static const char *const kinds[] = {"?:", "?>", "?=", "?!", "?<=", "?<!"};
    if (t->depth == DEPTH_MAX) {
        refuse(t, "groups nested too deep");
        return;
    }
    if (take(t, "?i)")) {
        if (t->at != t->pattern + 4)
            refuse(t, "(?i) that is not at its beginning");
        t->fold    = true;
        t->repeats = false;
        return;
    }
    t->outer[t->depth++] = t->fold;
    t->repeats           = false;
    if (take(t, "?i:") || take(t, "?-i:")) {
        t->fold = t->at[-2] == 'i' && t->at[-3] != '-';
        fl_buf_puts(&t->out, "(?:");
        return;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (take(t, kinds[i])) {
            fl_buf_printf(&t->out, "(%s", kinds[i]);
            return;
        }
    }
    if (t->at < t->end && *t->at == '?')
        refuse(t, "a group of a kind");
    fl_buf_puts(&t->out, "(?:"); /* nothing refers to what it captures */
}

/* Digits, or -1. */
static int number(translation *t) {
    int value = -1;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9') {
        value = (value < 0 ? 0 : value) * 10 + (*t->at++ - '0');
        if (value > REPEAT_MAX) {
            refuse(t, "a repeat of more than 1000");
            return 0;
        }
    }
    return value;
}

/* "{n,m}" after the brace; false: it is no repeat. */
static bool interval(translation *t) {
    const char *start = t->at;
    int         least = number(t), most = least;
    bool        comma = take(t, ",");
    if (comma)
        most = number(t);
    if (!take(t, "}") || (least < 0 && most < 0)) {
        t->at = start;
        return false;
    }
    least = least < 0 ? 0 : least;
    if (most >= 0 && most < least)
        refuse(t, "a repeat that goes backwards");
    if (t->at < t->end && (*t->at == '+' || (*t->at == '?' && !comma)))
        refuse(t, "{n}? or {n,m}+");
    fl_buf_printf(&t->out, "{%d%s", least, comma ? "," : "");
    if (comma && most >= 0)
        fl_buf_printf(&t->out, "%d", most);
    fl_buf_putc(&t->out, '}');
    return true;
}

/* A repeat after an item: *, +, ?, {n,m}, each with its lazy or possessive form. */
static void repeat(translation *t, char c) {
    if (!t->repeats || (t->fold && t->before != 0)) {
        refuse(t, t->repeats ? "a repeated character under (?i)"
                             : "a repeat of nothing or of a repeat");
        return;
    }
    if (c != '{')
        fl_buf_putc(&t->out, c);
    if (t->at < t->end && (*t->at == '?' || *t->at == '+'))
        fl_buf_putc(&t->out, *t->at++);
    t->repeats = false;
}

/* After ")" or "|". */
static void end_branch(translation *t, char c) {
    if (c == ')' && t->depth == 0) {
        refuse(t, "a closing parenthesis too many");
        return;
    }
    if (c == ')')
        t->fold = t->outer[--t->depth];
    t->repeats = c == ')';
    t->before  = 0;
    fl_buf_putc(&t->out, c);
}

static void item(translation *t) {
    uint32_t cp;
    char     before = t->before;
    switch (*t->at) {
    case '(':
        t->at++;
        open_group(t);
        t->before = 0;
        return;
    case ')':
    case '|': end_branch(t, *t->at++); return;
    case '*':
    case '+':
    case '?': repeat(t, *t->at++); return;
    case '{':
        t->at++;
        if (interval(t)) {
            repeat(t, '{');
            return;
        }
        refuse(t, "a brace that begins no repeat");
        return;
    case '^':
    case '$':
        fl_buf_putc(&t->out, *t->at++);
        t->repeats = false;
        t->before  = 0;
        return;
    case '[':
        t->at++;
        t->before = 0;
        class(t);
        break;
    case '.':
        t->at++;
        t->before = 0;
        memset(t->set, 0, sizeof *t->set);
        put(t->set, '\n');
        emit_class(t, true);
        break;
    case '\\':
        if (t->end - t->at >= 2 && (t->at[1] == 'A' || t->at[1] == 'z')) {
            fl_buf_append(&t->out, t->at, 2);
            t->at += 2;
            t->repeats = false;
            return;
        }
        if (t->end - t->at >= 2 && (t->at[1] | 32) == 'b') {
            t->at += 2;
            word_boundary(t, t->at[-1] == 'B');
            return;
        }
        t->at++;
        memset(t->set, 0, sizeof *t->set);
        t->before = 0;
        if (escape(t, false, &cp)) {
            emit_class(t, false);
        } else {
            t->before = before;
            literal(t, cp);
        }
        break;
    default: literal(t, plain(t)); break;
    }
    t->repeats = true;
}

static int translate(translation *t) {
    while (t->at < t->end && t->status == 0)
        item(t);
    if (t->depth > 0)
        refuse(t, "a group that is not closed");
    if (t->status == 0 && t->out.failed)
        t->status = fl_fail_nomem(t->error, t->out.size, "a regular expression");
    return t->status;
}

/* ---- PCRE2 ------------------------------------------------------------------------------------- */

static void *pcre_alloc(size_t size, void *unused) {
    (void)unused;
    return fl_alloc(size);
}

static void pcre_free(void *block, void *unused) {
    (void)unused;
    fl_free(block);
}

static int compile(fl_regex *regex, const translation *t) {
    pcre2_compile_context *context = NULL;
    int                    code    = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE             where   = 0;
    regex->memory                  = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (regex->memory != NULL)
        context = pcre2_compile_context_create(regex->memory);
    if (context != NULL) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        regex->code = pcre2_compile((PCRE2_SPTR)t->out.data, t->out.size,
                                    PCRE2_UTF | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT, &code,
                                    &where, context);
        pcre2_compile_context_free(context);
    }
    if (regex->code != NULL) {
        pcre2_jit_compile(regex->code,
                          PCRE2_JIT_COMPLETE); /* without it, it is slower and no more */
        return 0;
    }
    if (code == PCRE2_ERROR_NOMEMORY)
        return fl_fail_nomem(t->error, t->out.size, "a regular expression");
    PCRE2_UCHAR message[128] = "";
    pcre2_get_error_message(code, message, sizeof message);
    return fl_fail(t->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: the regular expression \"%.60s\" cannot be compiled: %s", t->source,
                   t->pattern, (const char *)message);
}

int fl_regex_open(fl_regex **out, const char *pattern, const char *source, fletch_error *error) {
    size_t      size = strlen(pattern);
    translation t    = {.pattern = pattern, .at = pattern, .end = pattern + size};
    t.source         = source;
    t.error          = error;
    *out             = NULL;
    if (size > PATTERN_MAX) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: a regular expression of %zu bytes is not supported; at most %d", source,
                       size, PATTERN_MAX);
    }
    fl_regex *regex = fl_alloc_zero(1, sizeof *regex);
    t.set           = fl_alloc(sizeof *t.set);
    if (regex == NULL || t.set == NULL)
        t.status = fl_fail_nomem(error, sizeof *t.set, "a regular expression");
    else if (translate(&t) == 0)
        t.status = compile(regex, &t);
    fl_free(t.set);
    fl_buf_free(&t.out);
    if (t.status < 0) {
        fl_regex_close(regex);
        return t.status;
    }
    *out = regex;
    return 0;
}

void fl_regex_close(fl_regex *regex) {
    if (regex != NULL) {
        pcre2_code_free(regex->code);
        pcre2_general_context_free(regex->memory);
        fl_free(regex);
    }
}

void fl_regex_work_free(fl_regex_work *work) {
    pcre2_match_data_free(work->match);
    pcre2_match_context_free(work->context);
    pcre2_jit_stack_free(work->stack);
    memset(work, 0, sizeof *work);
}

static bool ready(const fl_regex *regex, fl_regex_work *work) {
    if (work->stack != NULL)
        return true;
    if (work->match == NULL)
        work->match = pcre2_match_data_create(1, regex->memory);
    if (work->context == NULL)
        work->context = pcre2_match_context_create(regex->memory);
    work->stack = pcre2_jit_stack_create(32 * 1024, STACK_MAX, regex->memory);
    if (work->match == NULL || work->context == NULL || work->stack == NULL) {
        fl_regex_work_free(work);
        return false;
    }
    pcre2_set_match_limit(work->context, STEPS_MAX);
    pcre2_set_heap_limit(work->context, HEAP_KIB);
    pcre2_jit_stack_assign(work->context, NULL, work->stack);
    return true;
}

/* Say how many attempts there are until the next look. FL_REGEX_MATCH: go on; FL_REGEX_LIMIT: this walk has
 * taken longer than any sane pattern would. The first look does not yet ask for the time. */
static fl_regex_result look(fl_regex_walk *walk, size_t size) {
    struct timespec now;
    if (walk->pace == 0) {
        walk->left = walk->pace = PACE_FIRST;
        return FL_REGEX_MATCH;
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    uint64_t time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (walk->started == 0)
        walk->started = walk->looked = time;
    else if (time - walk->looked < QUICK_NS)
        walk->pace = 4 * walk->pace < PACE_MAX ? 4 * walk->pace : PACE_MAX;
    else if (time - walk->looked > SLOW_NS)
        walk->pace = walk->pace > 4 ? walk->pace / 4 : 1;
    walk->looked = time;
    walk->left   = walk->pace;
    if (fl_stopped(walk->stop))
        return FL_REGEX_STOPPED;
    return time - walk->started > 5000000000u + 1000u * (uint64_t)size ? FL_REGEX_LIMIT
                                                                       : FL_REGEX_MATCH;
}

fl_regex_result fl_regex_next(const fl_regex *regex, fl_regex_work *work, const char *text,
                              size_t size, fl_regex_walk *walk, size_t *begin, size_t *end) {
    if (!ready(regex, work))
        return FL_REGEX_NOMEM;
    while (walk->at <= size) {
        if (walk->left == 0) {
            fl_regex_result looked = look(walk, size);
            if (looked != FL_REGEX_MATCH)
                return looked;
        }
        size_t limit = size - walk->at < walk->left ? size : walk->at + walk->left;
        pcre2_set_offset_limit(work->context, limit);
        int found = pcre2_match(regex->code, (PCRE2_SPTR)text, size, walk->at, PCRE2_NO_UTF_CHECK,
                                work->match, work->context);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
            found = pcre2_match(regex->code, (PCRE2_SPTR)text, size, walk->at,
                                PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, work->match, work->context);
        }
        if (found == PCRE2_ERROR_NOMATCH && limit < size) {
            for (walk->at = limit + 1;
                 walk->at < size && ((unsigned char)text[walk->at] & 0xC0) == 0x80;)
                walk->at++;
            walk->left = 0;
            continue;
        }
        if (found < 0) {
            return found == PCRE2_ERROR_NOMATCH    ? FL_REGEX_NONE
                   : found == PCRE2_ERROR_NOMEMORY ? FL_REGEX_NOMEM
                                                   : FL_REGEX_LIMIT;
        }
        const PCRE2_SIZE *place = pcre2_get_ovector_pointer(work->match);
        *begin                  = place[0];
        *end                    = place[1];
        size_t attempts         = *begin - walk->at + 1;
        walk->left -= attempts < walk->left ? attempts : walk->left;
        if (*begin == *end && walk->matched && walk->last_end == *end) {
            unsigned length = 1;
            if (walk->at < size)
                fl_utf8_decode(text + walk->at, &length);
            walk->at += length;
            continue;
        }
        walk->at = walk->last_end = *end;
        walk->matched             = true;
        return FL_REGEX_MATCH;
    }
    return FL_REGEX_NONE;
}
