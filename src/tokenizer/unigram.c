/* SPDX-License-Identifier: Apache-2.0 */
/* unigram.c - Unigram: of all ways to cut a word into pieces, the one with the highest sum of scores.
 *
 * Role     The model "Unigram" (token_model.h).
 * Method   Viterbi over the bytes of the word, in double, in the reference's order: begins ascend, pieces at one
 *          begin grow, and only a strictly higher sum replaces what is there, so that of equal sums the
 *          longer first piece stays. A character that is not a piece itself may also be unknown, at the
 *          lowest score of the vocabulary less 10.
 *          Unknown pieces that touch become one. With byte_fallback such a run becomes its bytes if the
 *          vocabulary has all of them.
 *          A walk begins at the node of its first character, which a table knows.
 * Memory   16 bytes a byte of the word; the trie has the scores in its nodes and the ids beside them.
 * Threads  Immutable after opening. Proof: tests/golden/test_unigram.py. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/parse.h"
#include "tokenizer/trie.h"

enum { ROOT = 1, UNKNOWN = 1, PIECES_MAX = 1 << 24, BMP = 0x10000 };

static const double unknown_penalty = 10;

typedef struct unigram {
    fl_trie_node   *nodes; /* owned, [count] */
    int32_t        *ids;   /* owned, [count]: of the piece that ends in a node, else -1 */
    uint32_t        count;
    double          unknown; /* the score of a character that is not in the vocabulary */
    int32_t         unk_id;
    int32_t         bytes[256]; /* ids of "<0x00>" ..., -1; byte_fallback */
    bool            byte_fallback;
    const fl_vocab *vocab;          /* borrowed */
    uint32_t        character[BMP]; /* the node of each character, 0: no piece begins with it */
} unigram;

/* The best way to reach a byte of the word: from where, by which piece. */
typedef struct place {
    double   score;
    uint32_t from;
    uint32_t slot; /* of the piece in the trie; UNKNOWN; 0: not reached yet */
} place;

/* ---- Opening ---------------------------------------------------------------------------------- */

static int fail_piece(fl_json_reader *model, size_t index, const char *what) {
    return fl_fail(model->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: model.vocab[%zu] %s",
                   model->source, index, what);
}

/* The scores; text and ids into the vocabulary. */
static int read_pieces(fl_tokenizer *tokenizer, fl_json_reader *model, fl_json *list,
                       double *scores) {
    size_t count = fl_json_count(list), bytes = 0;
    for (size_t i = 0; i < count; i++) {
        fl_json *row   = fl_json_item(list, i);
        fl_json *piece = fl_json_item(row, 0), *score = fl_json_item(row, 1);
        scores[i] = fl_json_f64(score);
        if (fl_json_count(row) != 2 || !fl_json_is(piece, FL_JSON_STRING) ||
            !fl_json_is(score, FL_JSON_NUMBER)) {
            return fail_piece(model, i, "is not a [piece, score]");
        }
        if (!isfinite(scores[i])) {
            return fail_piece(model, i, "has a score that is not a finite number");
        }
        if (strlen(fl_json_text(piece)) != fl_json_text_size(piece)) {
            return fail_piece(model, i, "has a NUL, which is not supported");
        }
        bytes += fl_json_text_size(piece);
    }
    if (!fl_vocab_open(&tokenizer->vocab, (uint32_t)count, (uint32_t)count, bytes)) {
        return fl_fail_nomem(model->error, bytes, "the vocabulary");
    }
    for (size_t i = 0; i < count; i++) {
        fl_json *piece = fl_json_item(fl_json_item(list, i), 0);
        fl_vocab_add_later(&tokenizer->vocab, fl_json_text(piece), fl_json_text_size(piece),
                           (uint32_t)i);
    }
    tokenizer->id_limit = (uint32_t)count;
    return 0;
}

typedef struct linking {
    const double *scores;
    int32_t      *ids; /* [limit] */
    size_t        limit;
} linking;

static bool link_node(void *user, fl_trie_node *nodes, uint32_t slot, uint32_t parent, uint8_t byte,
                      int32_t token) {
    linking *l = user;
    (void)parent;
    (void)byte;
    if (slot >= l->limit) {
        size_t   limit = (size_t)slot + slot / 2 + 65536;
        int32_t *ids   = fl_realloc_array(l->ids, limit, sizeof *ids);
        if (ids == NULL) {
            return false;
        }
        memset(ids + l->limit, 0xFF, (limit - l->limit) * sizeof *ids);
        l->ids   = ids;
        l->limit = limit;
    }
    nodes[slot].score = token >= 0 ? l->scores[token] : (double)NAN;
    l->ids[slot]      = token;
    return true;
}

/* The ids in the order of their pieces' first four bytes, equal ones as they were: pieces that share nodes come
 * one after the other, which makes a large trie in half the time. */
static bool sort_ids(const fl_vocab *vocab, uint32_t *order) {
    enum { DIGIT = 1 << 16 };
    uint32_t *other = fl_alloc_array(vocab->size, sizeof *other);
    uint32_t *begin = fl_alloc_array(DIGIT + 1, sizeof *begin);
    if (other == NULL || begin == NULL) {
        fl_free(other);
        fl_free(begin);
        return false;
    }
    for (uint32_t id = 0; id < vocab->size; id++) {
        order[id] = id;
    }
    for (int at = 2; at >= 0; at -= 2) { /* the text of the vocabulary ends each token with NUL */
        memset(begin, 0, (DIGIT + 1) * sizeof *begin);
        for (int pass = 0; pass < 2; pass++) {
            for (uint32_t i = 0; i < vocab->size; i++) {
                size_t         size;
                const uint8_t *text =
                    (const uint8_t *)fl_vocab_text(vocab, (int32_t)order[i], &size);
                uint32_t high  = (size_t)at < size ? text[at] : 0;
                uint32_t digit = high << 8 | ((size_t)at + 1 < size ? text[at + 1] : 0);
                if (pass == 0) {
                    begin[digit + 1]++;
                } else {
                    other[begin[digit]++] = order[i];
                }
            }
            for (uint32_t d = 0; d < DIGIT && pass == 0; d++) {
                begin[d + 1] += begin[d];
            }
        }
        memcpy(order, other, vocab->size * sizeof *order);
    }
    fl_free(other);
    fl_free(begin);
    return true;
}

static void find_characters(unigram *u) {
    for (uint32_t cp = 1; cp < BMP; cp++) {
        char     text[4];
        unsigned size = cp - 0xD800 < 0x800 ? 0 : fl_utf8_encode(cp, text);
        uint32_t at   = size > 0 ? ROOT : 0;
        for (unsigned i = 0; i < size && at != 0; i++) {
            at = fl_trie_child(u->nodes, at, (uint8_t)text[i]);
        }
        u->character[cp] = at;
    }
}

static bool build(unigram *u, const fl_vocab *vocab, const double *scores) {
    fl_trie_builder b;
    linking         l     = {scores, NULL, 0};
    uint32_t       *order = fl_alloc_array(vocab->size, sizeof *order);
    bool            ok    = order != NULL && sort_ids(vocab, order);
    ok                    = fl_trie_begin(&b, ROOT) && ok;
    for (uint32_t i = 0; ok && i < vocab->size; i++) {
        size_t      length;
        const char *text = fl_vocab_text(vocab, (int32_t)order[i], &length);
        ok               = length == 0 || fl_trie_insert(&b, ROOT, text, length, (int32_t)order[i]);
    }
    fl_free(order);
    ok     = ok && fl_trie_place(&b, link_node, &l);
    u->ids = l.ids;
    if (ok) {
        u->nodes             = fl_trie_finish(&b, &u->count);
        u->nodes[ROOT].score = (double)NAN; /* no piece is empty */
        find_characters(u);
    }
    fl_trie_end(&b);
    return ok;
}

static void find_bytes(unigram *u) {
    static const char digits[] = "0123456789ABCDEF";
    char              name[]   = "<0x00>";
    for (unsigned byte = 0; byte < 256; byte++) {
        name[3]        = digits[byte >> 4];
        name[4]        = digits[byte & 15];
        u->bytes[byte] = fl_vocab_find(u->vocab, name, 6);
    }
}

static int open_model(fl_tokenizer *tokenizer, void **state, fl_json_reader *model,
                      const fl_log *log) {
    fl_json *list     = fl_json_array(model, "vocab");
    size_t   count    = fl_json_count(list);
    bool     has_unk  = fl_json_has(model, "unk_id");
    int64_t  unk      = fl_json_int(model, "unk_id", 0, INT64_MIN, INT64_MAX);
    bool     fallback = fl_json_bool(model, "byte_fallback", false);
    (void)log;
    if (model->status < 0) {
        return model->status;
    }
    if (count == 0 || count > PIECES_MAX) {
        return fl_fail(
            model->error, FLETCH_EMODEL, FLETCH_NOWHERE,
            "%s: model.vocab has %zu pieces; expected is a list of 1 to %d [piece, score]",
            model->source, count, PIECES_MAX);
    }
    if (!has_unk) {
        return fl_refuse(model, "model", "Unigram without unk_id", "Unigram with unk_id");
    }
    if (unk < 0 || (uint64_t)unk >= count) {
        return fl_fail(model->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: model.unk_id is %lld; model.vocab has %zu pieces", model->source,
                       (long long)unk, count);
    }
    unigram *u      = fl_alloc_zero(1, sizeof *u);
    double  *scores = fl_alloc_array(count, sizeof *scores);
    *state          = u;
    int status      = u == NULL || scores == NULL
                          ? fl_fail_nomem(model->error, count * sizeof *scores, model->source)
                          : read_pieces(tokenizer, model, list, scores);
    if (status == 0) {
        double lowest = scores[0];
        for (size_t i = 1; i < count; i++) {
            lowest = scores[i] < lowest ? scores[i] : lowest;
        }
        u->vocab         = &tokenizer->vocab;
        u->unknown       = lowest - unknown_penalty;
        u->unk_id        = (int32_t)unk;
        u->byte_fallback = fallback;
        find_bytes(u);
        if (!build(u, &tokenizer->vocab, scores)) {
            status = fl_fail(model->error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                             "%s: no memory for the trie of %zu pieces", model->source, count);
        }
    }
    fl_free(scores);
    return status;
}

static void close_model(void *state) {
    unigram *u = state;
    if (u != NULL) {
        fl_free(u->nodes);
        fl_free(u->ids);
    }
    fl_free(u);
}

/* ---- A word ----------------------------------------------------------------------------------- */

static void measure(const void *state, size_t size, size_t *tokens, size_t *work) {
    (void)state;
    *tokens = size;
    *work   = (size + 1) * sizeof(place);
}

static inline void relax(place *to, double score, uint32_t from, uint32_t slot) {
    if (to->slot == 0 || score > to->score) {
        *to = (place){score, from, slot};
    }
}

static void viterbi(const unigram *u, place *best, const char *word, size_t size) {
    const fl_trie_node *nodes = u->nodes;
    for (size_t i = 0; i <= size; i++) {
        best[i].slot = 0;
    }
    best[0].score = 0;
    for (size_t i = 0; i < size;) {
        unsigned width;
        uint32_t cp     = fl_utf8_decode(word + i, &width);
        bool     single = false; /* the character is a piece */
        double   score  = best[i].score;
        size_t   end    = i + (cp < BMP ? width : 0);
        uint32_t at     = cp < BMP ? u->character[cp] : ROOT;
        while (at != 0) {
            if (nodes[at].score == nodes[at].score) { /* not NaN: a piece ends here */
                relax(&best[end], score + nodes[at].score, (uint32_t)i, at);
                single = single || end - i == width;
            }
            at = end < size ? fl_trie_child(nodes, at, (uint8_t)word[end++]) : 0;
        }
        if (!single) {
            relax(&best[i + width], score + u->unknown, (uint32_t)i, UNKNOWN);
        }
        i += width;
    }
}

/* The tokens of the unknown run word[begin, end); as many as there were before `out`, backwards. */
static size_t put_unknown(const unigram *u, const char *word, uint32_t begin, uint32_t end,
                          fl_word_token *tokens, size_t out) {
    int32_t id    = fl_vocab_find(u->vocab, word + begin, end - begin);
    bool    bytes = id < 0 && u->byte_fallback;
    for (uint32_t i = begin; bytes && i < end; i++) {
        bytes = u->bytes[(uint8_t)word[i]] >= 0;
    }
    if (!bytes) {
        tokens[--out] = (fl_word_token){id >= 0 ? id : u->unk_id, begin, end};
        return out;
    }
    for (uint32_t i = end; i > begin; i--) {
        tokens[--out] = (fl_word_token){u->bytes[(uint8_t)word[i - 1]], begin, end};
    }
    return out;
}

static size_t encode_word(const void *state, void *work, const char *word, size_t size,
                          fl_word_token *tokens) {
    const unigram *u    = state;
    place         *best = work;
    viterbi(u, best, word, size);
    size_t   out = size; /* the last token stands at the end of the array */
    uint32_t end = (uint32_t)size;
    while (end > 0) {
        uint32_t begin = best[end].from;
        int32_t  id    = best[end].slot == UNKNOWN ? u->unk_id : u->ids[best[end].slot];
        if (id != u->unk_id) {
            tokens[--out] = (fl_word_token){id, begin, end};
            end           = begin;
            continue;
        }
        uint32_t last = end; /* a run of unknown ones, of which "<unk>" itself may be a part */
        do {
            end = begin;
            if (end == 0) {
                break;
            }
            begin = best[end].from;
            id    = best[end].slot == UNKNOWN ? u->unk_id : u->ids[best[end].slot];
        } while (id == u->unk_id);
        out = put_unknown(u, word, end, last, tokens, out);
    }
    memmove(tokens, tokens + out, (size - out) * sizeof *tokens);
    return size - out;
}

const fl_token_model fl_unigram_model = {"Unigram", open_model, close_model, measure, encode_word};
