/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_open.c - the tables of a BPE model from tokenizer.json.
 *
 * Role     fl_bpe_model.open; fl_bpe_prepare for the fast path (token_stream.c).
 * Method   A merge "a b" (or ["a", "b"], as files since 2024 have it) must name two tokens whose joined text
 *          is a token. A pair that is listed twice has the later rank, as in the reference. SentencePiece's merges
 *          come with their rank, the same for all that make one token. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bpe_tables.h"
#include "tokenizer/parse.h"

enum {
    TOKENS_MAX = (1 << FL_BPE_ID_BITS) - 1,
    MERGES_MAX = (1 << FL_BPE_RANK_BITS) - 1,
    SPACE      = 0x2581,
    TOGETHER   = 32,
    JOINED_MAX = 4096
};

/* ---- The byte-level alphabet --------------------------------------------------------------------- */

/* Bytes that are printable in Latin-1 stand for themselves; the other 68 are U+100 and on, in order. */
static bool is_itself(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

uint32_t fl_bpe_char_of_byte(uint8_t byte) {
    unsigned before = byte < '!' ? byte : byte <= 0xA0 ? 33 + byte - 127u : 33 + 34;
    return is_itself(byte) ? byte : 0x100 + before;
}

int fl_bpe_byte_of_char(uint32_t cp) {
    if (cp < 0x100)
        return is_itself(cp) ? (int)cp : -1;
    unsigned n = cp - 0x100;
    return n < 33 ? (int)n : n < 67 ? (int)(n - 33 + 127) : n == 67 ? 0xAD : -1;
}

/* ---- Merges ------------------------------------------------------------------------------------- */

typedef struct loading {
    fl_bpe         *bpe;
    fl_json_reader *model;
    size_t          prefix;                /* bytes that the right one of two loses */
    bool            ranked;                /* a merge says its rank */
    fl_span         waiting[2 * TOGETHER]; /* left and right of merges that were read */
    size_t          ranks[TOGETHER], waiting_count;
    int32_t         last; /* what the merge before made: merges are mostly in the order of ids */
} loading;

static int bad_merge(const loading *l, size_t rank, const char *why, fl_span token) {
    l->model->status =
        fl_fail(l->model->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: model.merges[%zu] %s \"%.*s\"",
                l->model->source, rank, why, token.size < 60 ? (int)token.size : 60, token.data);
    return l->model->status;
}

/* Of merges of one pair the last counts. */
static void put_merge(fl_bpe *b, uint64_t pair, size_t rank) {
    fl_bpe_merge *bucket = fl_bpe_bucket(b, pair);
    for (unsigned i = 0;;) {
        if (bucket[i] == FL_BPE_FREE || fl_bpe_is_of(bucket[i], pair)) {
            bucket[i] = (bucket[i] & FL_BPE_SPILT) | (uint64_t)rank << 2 * FL_BPE_ID_BITS | pair;
            return;
        }
        if (++i == FL_BPE_BUCKET) {
            bucket[i - 1] |= FL_BPE_SPILT;
            bucket = b->merges + ((size_t)(bucket - b->merges + FL_BPE_BUCKET) & b->merge_mask);
            i      = 0;
        }
    }
}

static int32_t find_made(const loading *l, fl_span text) {
    for (int32_t id = l->last; id <= l->last + 1; id++) {
        size_t      size  = 0;
        const char *other = fl_vocab_text(l->bpe->vocab, id, &size);
        if (other != NULL && size == text.size && memcmp(other, text.data, size) == 0)
            return id;
    }
    return fl_vocab_find(l->bpe->vocab, text.data, text.size);
}

static int take_merge(loading *l, size_t rank, fl_span left, fl_span right, int32_t a, int32_t c) {
    fl_bpe *b = l->bpe;
    char    joined[JOINED_MAX];
    if (a < 0 || c < 0) {
        return bad_merge(l, rank,
                         "names a token that is not in model.vocab:", a < 0 ? left : right);
    }
    if (right.size < l->prefix || left.size + right.size - l->prefix > sizeof joined)
        return bad_merge(l, rank, "has an impossible length:", right);
    fl_span both = {joined, left.size + right.size - l->prefix};
    memcpy(joined, left.data, left.size);
    memcpy(joined + left.size, right.data + l->prefix, right.size - l->prefix);
    int32_t made = find_made(l, both);
    if (made < 0)
        return bad_merge(l, rank, "makes a token that is not in model.vocab:", both);
    put_merge(b, fl_bpe_pair((uint32_t)a, (uint32_t)c), rank);
    b->made[rank] = (uint32_t)made;
    l->last       = made;
    return 0;
}

static int take_waiting(loading *l) {
    int32_t ids[2 * TOGETHER];
    fl_vocab_find_all(l->bpe->vocab, l->waiting, 2 * l->waiting_count, ids);
    for (size_t i = 0; i < l->waiting_count; i++)
        __builtin_prefetch(
            fl_bpe_bucket(l->bpe, fl_bpe_pair((uint32_t)ids[2 * i], (uint32_t)ids[2 * i + 1])));
    for (size_t i = 0; i < l->waiting_count; i++) {
        FL_TRY(take_merge(l, l->ranks[i], l->waiting[2 * i], l->waiting[2 * i + 1], ids[2 * i],
                          ids[2 * i + 1]));
    }
    l->waiting_count = 0;
    return 0;
}

static int put_waiting(loading *l, size_t rank, fl_span left, fl_span right) {
    l->waiting[2 * l->waiting_count]     = left;
    l->waiting[2 * l->waiting_count + 1] = right;
    l->ranks[l->waiting_count++]         = rank;
    return l->waiting_count == TOGETHER ? take_waiting(l) : 0;
}

/* "a b", or ["a", "b"]: what the reader stands before. */
static int parse_merge(loading *l, size_t rank, fl_json_in *in) {
    fl_span      text = {"it is neither", 13}, right;
    fl_json_type type = fl_json_in_peek(in);
    if (type == FL_JSON_ARRAY && fl_json_in_enter(in, type) && fl_json_in_item(in) &&
        fl_json_in_string(in, &text) && fl_json_in_item(in) && fl_json_in_string(in, &right)) {
        int64_t own = 0;
        if (l->ranked && fl_json_in_item(in) && fl_json_in_integer(in, &own) && own >= 0 &&
            own < l->bpe->made_count)
            rank = (size_t)own;
        if (!fl_json_in_item(in) && !in->failed)
            return put_waiting(l, rank, text, right);
    }
    if (type == FL_JSON_STRING && fl_json_in_string(in, &text)) {
        if (text.size >= 8 && memcmp(text.data, "#version", 8) == 0)
            return 0; /* the head of an old merges.txt; its rank stays free */
        const char *blank = memchr(text.data, ' ', text.size), *end = text.data + text.size;
        if (blank != NULL && memchr(blank + 1, ' ', (size_t)(end - blank - 1)) == NULL) {
            return put_waiting(l, rank, (fl_span){text.data, (size_t)(blank - text.data)},
                               (fl_span){blank + 1, (size_t)(end - blank - 1)});
        }
    }
    return bad_merge(l, rank, "must be \"a b\" or [\"a\", \"b\"]; it is neither:", text);
}

static uint32_t slots_for(size_t count) {
    uint32_t slots = 16;
    while (slots < count + count / 2)
        slots *= 2;
    return slots;
}

/* In huge pages, all of which are used: a look-up goes anywhere. */
static size_t table_bytes(size_t bytes) {
    return bytes < FL_BIG_ALIGNMENT / 4
               ? bytes
               : (bytes + FL_BIG_ALIGNMENT - 1) & ~(size_t)(FL_BIG_ALIGNMENT - 1);
}

static bool make_tables(fl_bpe *b, size_t count) {
    uint32_t slots = slots_for(count);
    b->tables_bytes =
        table_bytes(slots * sizeof *b->merges + (FL_BPE_PAIRS + count) * sizeof *b->made);
    b->tables = fl_big_alloc(b->tables_bytes);
    if (b->tables == NULL)
        return false;
    b->merges     = b->tables;
    b->merge_mask = slots - FL_BPE_BUCKET;
    b->first      = (uint32_t *)(void *)(b->merges + slots);
    b->made       = b->first + FL_BPE_PAIRS;
    b->made_count = (uint32_t)count;
    for (uint32_t i = 0; i < slots; i++)
        b->merges[i] = FL_BPE_FREE;
    return true;
}

/* At least as many as there are, by the commas between and within them: tokens have few. All are like the first. */
static size_t merges_most(const loading *l, fl_json_in in) {
    size_t commas = fl_count_byte(&in, ',');
    if (!fl_json_in_item(&in))
        return 0;
    return commas / (fl_json_in_peek(&in) != FL_JSON_ARRAY ? 1 : l->ranked ? 3 : 2) + 1;
}

static int parse_merges(loading *l) {
    fl_json_in in;
    if (!fl_json_later(fl_json_array(l->model, "merges"), &in))
        return fl_missing(l->model, "model.merges");
    (void)fl_json_in_enter(&in, FL_JSON_ARRAY);
    size_t count = merges_most(l, in);
    if (count > MERGES_MAX || (count > 0 && l->bpe->vocab->size > TOKENS_MAX)) {
        return fl_fail(l->model->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: %zu merges of %zu tokens are not supported; at most %d of %d",
                       l->model->source, count, (size_t)l->bpe->vocab->size, MERGES_MAX,
                       TOKENS_MAX);
    }
    if (!make_tables(l->bpe, count))
        return fl_fail_nomem(l->model->error, l->bpe->tables_bytes, "the merges");
    for (size_t i = 0; fl_json_in_item(&in); i++) {
        fl_span value;
        if (i == count && fl_json_in_skip(&in, &value))
            return bad_merge(l, i, "is not written as the first one is:", value);
        FL_TRY(parse_merge(l, i, &in));
    }
    return take_waiting(l);
}

/* ---- Options ------------------------------------------------------------------------------------ */

static int parse_affix(fl_json_reader *model, const char *key, char *to) {
    const char *text = fl_json_string(model, key, "");
    if (model->status == 0 && strlen(text) > FL_BPE_AFFIX_MAX) {
        model->status = fl_fail(model->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                                "%s: %s \"%.40s\" is not supported; at most %d bytes",
                                model->source, key, text, FL_BPE_AFFIX_MAX);
    }
    if (model->status == 0)
        memcpy(to, text, strlen(text) + 1);
    return model->status;
}

/* The ids of single characters, and of "<0x00>" to "<0xFF>". */
static void find_symbols(fl_bpe *b) {
    char text[8 + FL_BPE_AFFIX_MAX];
    for (uint32_t cp = 0; cp < FL_BPE_DIRECT; cp++)
        b->direct[cp] = fl_vocab_find(b->vocab, text, fl_utf8_encode(cp, text));
    fl_vocab_find_bytes(b->vocab, b->fallback);
    b->has_bytes = b->prefix[0] == '\0' && (b->suffix[0] == '\0' || !b->ignore_merges);
    for (unsigned byte = 0; byte < 256; byte++) {
        bool     possible = byte < 0xC0 || (byte > 0xC1 && byte < 0xF5); /* in UTF-8 */
        unsigned size     = fl_utf8_encode(fl_bpe_char_of_byte((uint8_t)byte), text);
        memcpy(text + size, b->suffix, strlen(b->suffix));
        b->of_byte[byte] = b->direct[fl_bpe_char_of_byte((uint8_t)byte)];
        b->of_last[byte] = fl_vocab_find(b->vocab, text, size + strlen(b->suffix));
        b->has_bytes =
            b->has_bytes && ((b->of_byte[byte] >= 0 && b->of_last[byte] >= 0) || !possible);
    }
}

static int parse_options(fl_bpe *b, fl_json_reader *model) {
    const char *unk     = fl_json_string(model, "unk_token", NULL);
    double      dropout = fl_json_double(model, "dropout", 0.0);
    b->byte_fallback    = fl_json_bool(model, "byte_fallback", false);
    b->fuse_unk         = fl_json_bool(model, "fuse_unk", false);
    b->ignore_merges    = fl_json_bool(model, "ignore_merges", false);
    if (parse_affix(model, "continuing_subword_prefix", b->prefix) < 0 ||
        parse_affix(model, "end_of_word_suffix", b->suffix) < 0)
        return model->status;
    if (!(dropout == 0.0)) {
        return fl_fail(
            model->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s: model.dropout %g is not supported: the same text would get other tokens each "
            "time; set it to null",
            model->source, dropout);
    }
    find_symbols(b);
    b->unk = unk != NULL ? fl_vocab_find(b->vocab, unk, strlen(unk)) : -1;
    if (unk != NULL && b->unk < 0) {
        return fl_fail(model->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: unk_token \"%.40s\" is not in model.vocab", model->source, unk);
    }
    return 0;
}

/* No token has U+2581 after another character, and it is a token itself: then nothing ever joins across the
 * place before it, and a text may be cut there. */
static bool cuts_before_space(const fl_bpe *b) {
    static const char space[] = "\xE2\x96\x81";
    bool              known   = fl_vocab_find(b->vocab, space, 3) >= 0 && b->prefix[0] == '\0' &&
                 b->suffix[0] == '\0' && !b->ignore_merges;
    for (uint32_t id = 0; id < b->vocab->size && known; id++) {
        size_t      size  = 0;
        const char *text  = fl_vocab_text(b->vocab, (int32_t)id, &size);
        bool        other = false; /* another character was before */
        for (size_t at = 0; at < size && known;) {
            if (size - at >= 3 && memcmp(text + at, space, 3) == 0) {
                known = !other;
                at += 3;
            } else {
                other = true;
                at++;
            }
        }
    }
    return known;
}

int fl_bpe_open(fl_tokenizer *tokenizer, void **state, fl_json_reader *model, const fl_log *log) {
    FL_TRY(fl_parse_vocab(tokenizer, model, log));
    fl_bpe *b = fl_alloc_zero(1, sizeof *b);
    *state    = b;
    if (b == NULL)
        return fl_fail_nomem(model->error, sizeof *b, "the model");
    b->vocab = &tokenizer->vocab;
    b->seed  = fl_hash_seed(b);
    FL_TRY(parse_options(b, model));
    loading load = {
        .bpe = b, .model = model, .prefix = strlen(b->prefix), .ranked = tokenizer->pieces};
    FL_TRY(parse_merges(&load));
    FL_TRY(model->status);
    b->cuts_before_space = cuts_before_space(b);
    return 0;
}

void fl_bpe_close(void *state) {
    fl_bpe *b = state;
    if (b != NULL) {
        fl_big_free(b->tables, b->tables_bytes);
        fl_big_free(b->whole, b->whole_bytes);
        fl_free(b->raw);
        fl_free(b->joints);
        fl_free(b->raw_start);
        fl_free(b);
    }
}

/* ---- For the fast path --------------------------------------------------------------------------- */

/* The size of a token's text before its suffix; 0: it has none. */
static size_t without_suffix(const fl_bpe *b, const char *text, size_t size) {
    size_t suffix = strlen(b->suffix);
    return size >= suffix && memcmp(text + size - suffix, b->suffix, suffix) == 0 ? size - suffix
                                                                                  : 0;
}

/* Tokens as bytes of the words that they can be; one with a character outside the alphabet (an added token) has none,
 * nor has one without the suffix that ends a word. */
static bool make_raw(fl_bpe *b) {
    const fl_vocab *v = b->vocab;
    b->raw            = fl_alloc(v->text_size + 16);
    b->raw_start      = fl_alloc_array((size_t)v->size + 1, sizeof *b->raw_start);
    if (b->raw == NULL || b->raw_start == NULL)
        return false;
    uint32_t used = 0;
    for (uint32_t id = 0; id < v->size; id++) {
        size_t      size = 0;
        const char *text = fl_vocab_text(v, (int32_t)id, &size);
        b->raw_start[id] = used;
        size             = without_suffix(b, text, size);
        for (size_t at = 0; at < size;) {
            unsigned length;
            int      byte = fl_bpe_byte_of_char(fl_utf8_decode(text + at, &length));
            if (byte < 0) {
                used = b->raw_start[id];
                break;
            }
            b->raw[used++] = (char)byte;
            at += length;
        }
    }
    b->raw_start[v->size] = used;
    memset(b->raw + used, 0, 16);
    return true;
}

/* What two bytes make is asked for most. */
static void fill_first(fl_bpe *b) {
    for (unsigned i = 0; i < FL_BPE_PAIRS; i++) {
        int32_t left = b->of_byte[i / 256], right = b->of_byte[i % 256];
        b->first[i] = left < 0 || right < 0 ? FL_BPE_NO_RANK
                                            : fl_bpe_rank_of(b, (uint32_t)left, (uint32_t)right);
    }
}

/* A token has a place between characters after `at` of its bytes. At its own ends it may have anything. */
static void put_joint(fl_bpe *b, const uint8_t *bytes, size_t size, size_t at) {
    unsigned before = at >= 2 ? bytes[at - 2] : 0x80, before_last = at >= 2 ? before : 0xDF;
    unsigned after      = at + 1 < size ? bytes[at + 1] : 0x80,
             after_last = at + 1 < size ? after : 0xBF;
    for (unsigned x = before; x <= before_last; x++) {
        for (unsigned y = after; y <= after_last; y++) {
            uint32_t bit = fl_bpe_joint((uint8_t)x, bytes[at - 1], bytes[at], (uint8_t)y);
            b->joints[bit / 64] |= 1ull << (bit % 64);
        }
    }
}

/* Does each character become a token, or bytes that no merge takes up? Then an unknown one cannot join others. */
static bool falls_back(const fl_bpe *b) {
    bool all = b->byte_fallback;
    for (unsigned byte = 0; byte < 256; byte++)
        all = all && b->fallback[byte] >= 0;
    for (uint64_t i = 0; i < b->merge_mask + FL_BPE_BUCKET && all; i++) {
        uint32_t left = fl_bpe_left(b->merges[i]), right = fl_bpe_right(b->merges[i]);
        for (unsigned byte = 0; byte < 256 && b->merges[i] != FL_BPE_FREE; byte++) {
            uint32_t id = (uint32_t)b->fallback[byte];
            all         = all && left != id && right != id;
        }
    }
    return all;
}

/* Not for a model that takes a whole piece as it is: a part of one would be taken too; nor for one that marks its
 * end. */
static bool make_joints(fl_bpe *b, bool byte_level) {
    if (b->ignore_merges || b->suffix[0] != '\0' || (!byte_level && !falls_back(b)))
        return true;
    b->joints = fl_alloc_zero((1u << FL_BPE_JOINT_BITS) / 64, sizeof *b->joints);
    for (uint32_t id = 0; id < b->vocab->size && b->joints != NULL; id++) {
        size_t         size  = 0;
        const uint8_t *bytes = (const uint8_t *)fl_bpe_bytes(b, id, &size);
        for (size_t at = 1; at < size; at++)
            if (bytes[at] >= 0xC0 && bytes[at - 1] >= 0x80)
                put_joint(b, bytes, size, at);
    }
    return b->joints != NULL;
}

/* Is the token what its own text becomes? `by`: see fl_bpe_prove. */
static bool gives_itself(const fl_bpe *b, uint32_t id, const char *text, size_t size,
                         const int32_t *by, int32_t *ids) {
    return b->ignore_merges ||
           (by != NULL ? by[id] != FL_BPE_OTHER
                       : fl_bpe_encode(b, text, size, ids, NULL) == 1 && ids[0] == (int32_t)id);
}

/* Tokens that give themselves back, on their way into the table of whole words. */
typedef struct entering {
    fl_bpe       table; /* what is entered is not found by fl_bpe_encode before all is */
    fl_bpe_whole key[TOGETHER];
    uint32_t     count;
} entering;

static void enter_waiting(entering *e) {
    for (uint32_t i = 0; i < e->count; i++) {
        size_t      size = 0;
        const char *text = fl_bpe_bytes(&e->table, e->key[i].id, &size);
        *fl_bpe_whole_slot(&e->table, &e->key[i], text, size) = e->key[i];
    }
    e->count = 0;
}

static void enter(entering *e, fl_bpe_whole key, uint32_t id) {
    __builtin_prefetch(&e->table.whole[fl_bpe_whole_home(&e->table, &key)]);
    e->key[e->count++] = (fl_bpe_whole){key.low, key.high, id};
    if (e->count == TOGETHER)
        enter_waiting(e);
}

bool fl_bpe_prepare(fl_bpe *b, bool byte_level) {
    const fl_vocab *v = b->vocab;
    b->byte_level     = byte_level;
    if (byte_level)
        fill_first(b);
    if (b->prefix[0] != '\0' || (b->suffix[0] != '\0' && !byte_level))
        return true; /* a token's text is not the text that it stands for */
    uint32_t      slots = slots_for(v->count);
    int32_t      *ids   = fl_alloc_array(JOINED_MAX + FL_BPE_CHARACTER_MAX, sizeof *ids);
    char          text[JOINED_MAX + 32];
    const size_t  bytes = table_bytes(slots * sizeof *b->whole);
    fl_bpe_whole *whole = fl_big_alloc(bytes);
    int32_t      *by    = NULL;
    bool          prove = byte_level && b->suffix[0] == '\0' && !b->ignore_merges;
    bool          ready = ids != NULL && whole != NULL && (!byte_level || make_raw(b)) &&
                 make_joints(b, byte_level) && (!prove || fl_bpe_prove(b, &by));
    if (!ready) {
        fl_big_free(whole, bytes);
        fl_free(ids);
        return false;
    }
    memset(whole, 0xFF, slots * sizeof *whole);
    entering wait         = {.table = *b};
    wait.table.whole      = whole;
    wait.table.whole_mask = slots - 1;
    for (uint32_t id = 0; id < v->size; id++) {
        size_t      size  = 0;
        const char *token = fl_bpe_bytes(b, id, &size);
        if (token == NULL || size == 0 || size > JOINED_MAX)
            continue;
        memcpy(text, token, size); /* where bytes after it can be read */
        if (gives_itself(b, id, text, size, by, ids))
            enter(&wait, fl_bpe_whole_key(b, text, size), id);
    }
    enter_waiting(&wait);
    fl_free(by);
    fl_free(ids);
    b->whole       = whole;
    b->whole_bytes = bytes;
    b->whole_mask  = slots - 1;
    return true;
}
