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
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/parse.h"
#include "tokenizer/trie.h"

enum {
    ROOT       = 1,
    UNKNOWN    = 1,
    NUL        = 2, /* its node: no key of the trie, which a NUL ends */
    PIECES_MAX = 1 << 24,
    BMP        = 0x10000,
    BMP_BYTES  = 3,
    ASK_BYTES  = 64 * 1024
};

static const double unknown_penalty = 10;

typedef struct unigram {
    fl_trie         trie;
    int32_t        *ids;     /* owned, [trie.count]: of the piece that ends in a node, else -1 */
    double         *scores;  /* owned, of each piece; until the nodes have them */
    double          unknown; /* the score of a character that is not in the vocabulary */
    int32_t         unk_id;
    int32_t         nul;        /* the piece that is a NUL, or -1 */
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

/* A score as the reference's reader of JSON makes it: the digits as an integer, then one division by a power of ten. A
 * number of 16 digits or more is so often one step beside the nearest double, and equal sums of pieces are told apart
 * by such steps. */
static double read_score(fl_span number) {
    bool     minus = number.size > 0 && number.data[0] == '-', point = false;
    uint64_t digits = 0;
    int      power  = 0;
    for (size_t i = minus; i < number.size; i++) {
        unsigned digit = (unsigned)(unsigned char)number.data[i] - '0';
        if (number.data[i] == '.') {
            point = true;
        } else if (digit > 9 || digits > (UINT64_MAX - digit) / 10) {
            return fl_span_f64(number); /* an exponent, or more digits than any score has */
        } else {
            digits = 10 * digits + digit;
            power += point;
        }
    }
    double tens = 1.0;
    for (int i = 0; i < power; i++)
        tens *= 10.0; /* exact up to 22 */
    return power > 22 ? fl_span_f64(number) : (minus ? -1.0 : 1.0) * ((double)digits / tens);
}

/* [piece, score], which the reader stands before; false: it is something else. */
static bool read_piece(fl_json_in *in, fl_span *piece, fl_span *score) {
    return fl_json_in_peek(in) == FL_JSON_ARRAY && fl_json_in_enter(in, FL_JSON_ARRAY) &&
           fl_json_in_item(in) && fl_json_in_string(in, piece) && fl_json_in_item(in) &&
           fl_json_in_number(in, score) && !fl_json_in_item(in) && !in->failed;
}

/* Text and ids into the vocabulary, the scores, and how many there are. */
static int read_pieces(unigram *u, fl_vocab *vocab, fl_json_reader *model, fl_json_in *in,
                       uint32_t *count) {
    fl_span        piece, score;
    fl_vocab_queue soon = {0};
    fl_vocab_entry due;
    (void)fl_json_in_enter(in, FL_JSON_ARRAY);
    for (*count = 0; fl_json_in_item(in); ++*count) {
        if (!read_piece(in, &piece, &score))
            return fail_piece(model, *count, "is not a [piece, score]");
        u->scores[*count] = read_score(score);
        if (!isfinite(u->scores[*count]))
            return fail_piece(model, *count, "has a score that is not a finite number");
        if (memchr(piece.data, '\0', piece.size) != NULL) {
            if (piece.size > 1) {
                return fail_piece(model, *count,
                                  "contains a NUL among other characters, which is not supported");
            }
            u->nul = (int32_t)*count;
        }
        if (fl_vocab_wait(&soon, vocab, (fl_vocab_entry){piece, *count}, &due))
            fl_vocab_add_later(vocab, due.text.data, due.text.size, (uint32_t)due.id);
    }
    while (fl_vocab_left(&soon, &due))
        fl_vocab_add_later(vocab, due.text.data, due.text.size, (uint32_t)due.id);
    return 0;
}

/* Ids and scores are put in their places when the trie has its size. */
static bool link_node(void *user, fl_trie_node *nodes, uint32_t slot, uint32_t parent, uint8_t byte,
                      int32_t token) {
    (void)user, (void)parent, (void)byte;
    nodes[slot].token = token;
    return true;
}

static void find_characters(unigram *u) {
    for (uint32_t cp = 1; cp < BMP; cp++) {
        char     text[4];
        unsigned size = cp - 0xD800 < 0x800 ? 0 : fl_utf8_encode(cp, text);
        uint32_t at   = size > 0 ? ROOT : 0;
        for (unsigned i = 0; i < size && at != 0; i++)
            at = fl_trie_child(u->trie.nodes, at, (uint8_t)text[i]);
        u->character[cp] = at;
    }
    u->character[0] = u->nul >= 0 ? NUL : 0;
}

static bool build_trie(unigram *u) {
    const fl_vocab *vocab          = u->vocab;
    fl_trie_key    *keys           = fl_alloc_array(vocab->size, sizeof *keys);
    uint32_t        ends[ROOT + 1] = {0};
    for (uint32_t id = 0; keys != NULL && id < vocab->size; id++)
        if (vocab->length[id] > 0 && vocab->text[vocab->start[id]] != '\0')
            keys[ends[ROOT]++] = (fl_trie_key){.text = vocab->start[id], .token = (int32_t)id};
    bool built = keys != NULL &&
                 fl_trie_build(&u->trie, vocab->text, keys, ends, ROOT, BMP_BYTES, link_node, NULL);
    fl_free(keys);
    return built;
}

static bool prepare(void *state) {
    unigram *u = state;
    if (!build_trie(u))
        return false;
    fl_trie_node *nodes = u->trie.nodes;
    u->ids              = fl_alloc_array(u->trie.count, sizeof *u->ids);
    if (u->ids == NULL)
        return false;
    nodes[ROOT].token = -1; /* no piece is empty */
    for (uint32_t slot = 0; slot < u->trie.count; slot++) {
        int32_t id        = slot == ROOT || nodes[slot].check != 0 ? nodes[slot].token : -1;
        u->ids[slot]      = id;
        nodes[slot].score = id >= 0 ? u->scores[id] : (double)NAN;
    }
    if (u->nul >= 0) {
        u->ids[NUL]      = u->nul;
        nodes[NUL].score = u->scores[u->nul];
    }
    fl_free(u->scores);
    u->scores = NULL;
    find_characters(u);
    return true;
}

static int open_model(fl_tokenizer *tokenizer, void **state, fl_json_reader *model,
                      const fl_log *log) {
    fl_vocab  *vocab    = &tokenizer->vocab;
    fl_json   *list     = fl_json_array(model, "vocab");
    bool       has_unk  = fl_json_has(model, "unk_id");
    int64_t    unk      = fl_json_int(model, "unk_id", 0, INT64_MIN, INT64_MAX);
    bool       fallback = fl_json_bool(model, "byte_fallback", false);
    fl_json_in in       = {0};
    (void)log;
    if (model->status < 0)
        return model->status;
    size_t most = fl_json_later(list, &in) ? fl_count_byte(&in, '[') - 1 : 0; /* less its own */
    if (most == 0 || most > PIECES_MAX) {
        return fl_fail(model->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: model.vocab has %zu pieces; expected a list of 1 to %d [piece, score]",
                       model->source, most, PIECES_MAX);
    }
    if (!has_unk)
        return fl_refuse(model, "model", "Unigram without unk_id", "Unigram with unk_id");
    unigram *u = fl_alloc_zero(1, sizeof *u);
    *state     = u;
    if (u == NULL || (u->scores = fl_alloc_array(most, sizeof *u->scores)) == NULL ||
        !fl_vocab_open(vocab, (uint32_t)most, (uint32_t)most, in.size))
        return fl_fail_nomem(model->error, in.size, "the vocabulary");
    u->nul = -1;
    uint32_t count;
    FL_TRY(read_pieces(u, vocab, model, &in, &count));
    if (unk < 0 || unk >= count) {
        return fl_fail(model->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: model.unk_id is %lld; model.vocab has %u pieces", model->source,
                       (long long)unk, count);
    }
    fl_vocab_fit(vocab, count);
    tokenizer->id_limit = count;
    double lowest       = u->scores[0];
    for (uint32_t i = 1; i < count; i++)
        lowest = u->scores[i] < lowest ? u->scores[i] : lowest;
    u->vocab         = vocab;
    u->unknown       = lowest - unknown_penalty;
    u->unk_id        = (int32_t)unk;
    u->byte_fallback = fallback;
    fl_vocab_find_bytes(vocab, u->bytes);
    return 0;
}

static void close_model(void *state) {
    unigram *u = state;
    if (u != NULL) {
        fl_trie_free(&u->trie);
        fl_free(u->ids);
        fl_free(u->scores);
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
    if (to->slot == 0 || score > to->score)
        *to = (place){score, from, slot};
}

/* False: stopped. */
static bool viterbi(const unigram *u, place *best, const char *word, size_t size, fl_stop *stop) {
    assert(size > 0);
    const fl_trie_node *nodes = u->trie.nodes;
    for (size_t i = 0; i <= size; i++) {
        best[i].slot = 0;
        if ((i + 1) % ASK_BYTES == 0 && fl_stopped(stop))
            return false;
    }
    best[0].score = 0;
    size_t ask    = ASK_BYTES;
    for (size_t i = 0; i < size;) {
        if (i >= ask) {
            if (fl_stopped(stop))
                return false;
            ask = i + ASK_BYTES;
        }
        unsigned width;
        uint32_t cp     = fl_utf8_decode(word + i, &width);
        bool     single = false; /* the character is a piece */
        double   score  = best[i].score;
        size_t   end    = i + (cp < BMP ? width : 0);
        uint32_t at     = cp < BMP ? u->character[cp] : ROOT;
        while (at != 0) {
            const fl_trie_node *node = &nodes[at];
            bool                tail = (node->base & FL_TRIE_TAIL) != 0;
            if (tail) {
                const char *rest = u->vocab->text + (node->base & ~(uint32_t)FL_TRIE_TAIL);
                while (end < size && *rest != '\0' && *rest == word[end]) {
                    rest++;
                    end++;
                }
                if (*rest != '\0')
                    break;
            }
            if (node->score == node->score) { /* not NaN: a piece ends here */
                relax(&best[end], score + node->score, (uint32_t)i, at);
                single = single || end - i == width;
            }
            at = end < size && !tail ? fl_trie_child(nodes, at, (uint8_t)word[end++]) : 0;
        }
        if (!single)
            relax(&best[i + width], score + u->unknown, (uint32_t)i, UNKNOWN);
        i += width;
    }
    return true;
}

/* The tokens of the unknown run word[begin, end); as many as there were before `out`, backwards. */
static size_t put_unknown(const unigram *u, const char *word, uint32_t begin, uint32_t end,
                          fl_word_token *tokens, size_t out) {
    assert(begin < end);
    int32_t id    = fl_vocab_find(u->vocab, word + begin, end - begin);
    bool    bytes = id < 0 && u->byte_fallback;
    for (uint32_t i = begin; bytes && i < end; i++)
        bytes = u->bytes[(uint8_t)word[i]] >= 0;
    if (!bytes) {
        tokens[--out] = (fl_word_token){id >= 0 ? id : u->unk_id, begin, end};
        return out;
    }
    for (uint32_t i = end; i > begin; i--)
        tokens[--out] = (fl_word_token){u->bytes[(uint8_t)word[i - 1]], begin, end};
    return out;
}

static size_t encode_word(const void *state, void *work, const char *word, size_t size,
                          fl_word_token *tokens, fl_stop *stop) {
    assert(size > 0 && work);
    const unigram *u    = state;
    place         *best = work;
    if (!viterbi(u, best, word, size, stop))
        return SIZE_MAX;
    size_t   out = size; /* the last token stands at the end of the array */
    uint32_t end = (uint32_t)size;
    for (size_t turn = 1; end > 0; turn++) {
        if (turn % ASK_BYTES == 0 && fl_stopped(stop))
            return SIZE_MAX;
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
            if (end == 0)
                break;
            begin = best[end].from;
            id    = best[end].slot == UNKNOWN ? u->unk_id : u->ids[best[end].slot];
        } while (id == u->unk_id);
        out = put_unknown(u, word, end, last, tokens, out);
    }
    memmove(tokens, tokens + out, (size - out) * sizeof *tokens);
    return size - out;
}

const fl_token_model fl_unigram_model = {"Unigram",   open_model, prepare,
                                         close_model, measure,    encode_word};
