/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece.c - what SentencePiece does to a text before it looks for pieces, exactly.
 *
 * Role     The normaliser of a tokenizer.json that was made of SentencePiece's BPE (model/piece_tokenizer.c); a file
 *          cannot name it, since the reference has no such step.
 * Method   At each place the longest piece that a user defined stays as it is; else the longest entry of the map of
 *          characters is replaced, else a character is itself. With remove_extra_whitespaces spaces at the beginning
 *          and behind a space vanish, and at the end spaces and marks do. A mark, U+2581, comes in front of the whole
 *          text (`first`), or of each part between special tokens, and stands for every space.
 * Memory   The map, and a trie of the pieces where they are more than their characters.
 * Proof    tests/golden/test_piece_tokenizers.py, against the package sentencepiece. */
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/parse.h"
#include "tokenizer/trie.h"

enum { MARK = 0x2581, MARK_BYTES = 3, ROOT = 1 };

typedef struct rules {
    fl_charsmap *map;  /* owned, or NULL */
    fl_trie      kept; /* pieces that a user defined; without nodes: none that matters */
    bool         prefix, first, removes;
} rules;

static void close_rules(void *state) {
    rules *r = state;
    if (r != NULL) {
        fl_charsmap_close(r->map);
        fl_trie_free(&r->kept);
    }
    fl_free(r);
}

/* ---- Opening ---------------------------------------------------------------------------------- */

static bool link_node(void *user, fl_trie_node *nodes, uint32_t slot, uint32_t parent, uint8_t byte,
                      int32_t token) {
    (void)user, (void)parent, (void)byte;
    nodes[slot].token = token;
    return true;
}

static int read_kept(rules *r, fl_json_reader *reader) {
    fl_json     *list           = fl_json_array(reader, "user_defined");
    const size_t count          = fl_json_count(list);
    fl_buf       text           = {0};
    uint32_t     ends[ROOT + 1] = {0};
    if (reader->status != 0 || count == 0)
        return reader->status;
    fl_trie_key *keys  = fl_alloc_array(count, sizeof *keys);
    bool         built = keys != NULL;
    for (size_t i = 0; built && i < count; i++) {
        const char *piece = fl_json_text(fl_json_item(list, i));
        if (piece != NULL && *piece != '\0') {
            keys[ends[ROOT]++] = (fl_trie_key){.text = (uint32_t)text.size, .token = (int32_t)i};
            fl_buf_append(&text, piece, strlen(piece) + 1);
        }
    }
    built = built && !text.failed &&
            fl_trie_build(&r->kept, text.data, keys, ends, ROOT, 0, link_node, NULL);
    fl_free(keys);
    fl_buf_free(&text);
    return built ? 0 : fl_fail_nomem(reader->error, count * sizeof *keys, "user-defined pieces");
}

static int parse(fl_step *step, fl_json_reader *reader) {
    rules *r    = fl_alloc_zero(1, sizeof *r);
    step->state = r;
    if (r == NULL) {
        reader->status = fl_fail_nomem(reader->error, sizeof *r, "a normaliser");
        return reader->status;
    }
    r->prefix  = fl_need_bool(reader, "add_dummy_prefix");
    r->first   = fl_need_bool(reader, "first");
    r->removes = fl_need_bool(reader, "remove_extra_whitespaces");
    FL_TRY(fl_charsmap_read(&r->map, reader));
    if (r->map != NULL || r->removes)
        reader->status = read_kept(r, reader);
    /* Each space that comes out is a mark. */
    step->growth     = MARK_BYTES * (r->map != NULL ? fl_charsmap_growth(r->map) : 1);
    step->growth_add = r->prefix ? MARK_BYTES : 0;
    return reader->status;
}

fl_spaces fl_sentencepiece_spaces(const fl_step *step) {
    const rules *r = step->state;
    return r->map != NULL || r->removes ? FL_SPACES_NONE
           : !r->prefix                 ? FL_SPACES_NEVER
           : r->first                   ? FL_SPACES_BEGIN
                                        : FL_SPACES_ALWAYS;
}

/* ---- Running ---------------------------------------------------------------------------------- */

/* How many runes from i on are the longest piece that a user defined; 0: none begins there. */
static size_t kept_at(const rules *r, const fl_runes *runes, size_t i) {
    size_t   best = 0;
    uint32_t at   = r->kept.nodes != NULL ? ROOT : 0;
    for (size_t k = i; at != 0 && k < runes->count && fl_runes_go_on(runes, k); k++) {
        char     text[4];
        unsigned size = fl_utf8_encode(runes->at[k].cp, text);
        for (unsigned n = 0; at != 0 && n < size; n++)
            at = text[n] != '\0' ? fl_trie_child(r->kept.nodes, at, (uint8_t)text[n]) : 0;
        if (at != 0 && r->kept.nodes[at].token >= 0)
            best = k + 1 - i;
    }
    return best;
}

/* What stands at rune i: `count` runes that become `text`, or themselves where that is NULL. */
typedef struct stretch {
    const char *text;
    size_t      count;
} stretch;

static stretch stretch_at(const rules *r, const fl_runes *runes, size_t i) {
    stretch s = {NULL, kept_at(r, runes, i)};
    if (s.count == 0) {
        s.count = 1;
        s.text  = r->map != NULL ? fl_charsmap_longest(r->map, runes, i, &s.count) : NULL;
    }
    return s;
}

/* The next character of a stretch that begins at rune i, of which *at runes or bytes are done; false: there is none. */
static bool next_of(const stretch *s, const fl_runes *runes, size_t i, size_t *at, fl_rune *out) {
    unsigned length = 1;
    if (s->text != NULL ? s->text[*at] == '\0' : *at == s->count)
        return false;
    *out = runes->at[s->text != NULL ? i : i + *at];
    if (s->text != NULL) {
        out->cp  = fl_utf8_decode(s->text + *at, &length);
        out->end = runes->at[i + s->count - 1].end;
    }
    *at += length;
    return true;
}

/* Where the text begins when spaces in front of it are left out. */
static size_t skip_spaces(const rules *r, const fl_runes *runes) {
    size_t i = 0;
    while (r->removes && i < runes->count && fl_runes_go_on(runes, i)) {
        stretch s = stretch_at(r, runes, i);
        bool    space =
            s.text != NULL ? strcmp(s.text, " ") == 0 : s.count == 1 && runes->at[i].cp == ' ';
        if (!space)
            break;
        i += s.count;
    }
    return i;
}

static bool put(fl_runes *runes, size_t *out, fl_rune rune) {
    if (!fl_runes_reserve_spare(runes, *out + 1))
        return false;
    rune.cp                = rune.cp == ' ' ? MARK : rune.cp;
    runes->spare[(*out)++] = rune;
    return true;
}

static bool run(const fl_step *step, fl_runes *runes) {
    const rules *r   = step->state;
    size_t       out = 0, i = skip_spaces(r, runes);
    bool         spaced = r->removes; /* a space was before */
    if (!fl_runes_reserve_spare(runes, runes->count + 1))
        return false;
    if (r->prefix && i < runes->count && (!r->first || runes->begin == 0) &&
        !put(runes, &out, (fl_rune){MARK, runes->at[i].start, runes->at[i].end}))
        return false;
    while (i < runes->count && fl_runes_go_on(runes, i)) {
        const stretch s    = stretch_at(r, runes, i);
        bool          last = spaced, head = spaced; /* head: spaces are left out still */
        fl_rune       rune;
        for (size_t at = 0; next_of(&s, runes, i, &at, &rune);) {
            if (head && rune.cp == ' ')
                continue;
            head = false;
            last = rune.cp == ' ';
            if (!put(runes, &out, rune))
                return false;
        }
        spaced = r->removes && last;
        i += s.count;
    }
    while (r->removes && out > 0 && runes->spare[out - 1].cp == MARK)
        out--;
    fl_runes_swap(runes, out);
    return true;
}

const fl_step_ops fl_normal_sentencepiece = {
    .type = "SentencePiece", .parse = parse, .run = run, .close = close_rules};
