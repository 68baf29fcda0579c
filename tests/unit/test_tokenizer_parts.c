/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_parts.c - what must never break inside the tokenizer.
 *
 * The vectorised scan equals the plain one on any bytes; the trie with failure links equals WordPiece as
 * its definition says (longest prefix first, dead end: unknown) on random vocabularies; the fast path
 * equals the exact path on random text with any flags; ids_max is never exceeded. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/utf8.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

/* xorshift: the same texts every time. */
static uint32_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 16);
}

static void random_table(fl_scan_table *table, uint64_t *state) {
    memset(table, 0, sizeof *table);
    for (unsigned byte = 0; byte < 128; byte++)
        table->kind[byte] = (uint8_t)(next_random(state) % 4);
    memset(table->kind + 128, FL_BYTE_EXACT, 128);
    table->lowercase = next_random(state) % 2;
    fl_scan_table_finish(table);
}

Test(tokenizer_parts, byte_sets_hold_what_was_added) {
    fl_byte_set set = {0};
    for (unsigned byte = 0; byte < 128; byte += 3)
        fl_byte_set_add(&set, (uint8_t)byte);
    for (unsigned byte = 0; byte < 256; byte++)
        cr_expect_eq(fl_byte_set_has(&set, (uint8_t)byte), byte < 128 && byte % 3 == 0);
}

#if defined(__x86_64__)
Test(tokenizer_parts, scans_agree_on_any_bytes) {
    fl_cpu cpu;
    fl_cpu_detect(&cpu);
    if (!cpu.avx2)
        cr_skip_test("this processor has no AVX2");
    uint64_t      state = 88172645463325252u;
    fl_scan_table table;
    fl_scan_masks a, b;
    static char   text[FL_SCAN_WINDOW], x[FL_SCAN_WINDOW + FL_SCAN_SLACK],
        y[FL_SCAN_WINDOW + FL_SCAN_SLACK];
    for (unsigned round = 0; round < 2000; round++) {
        size_t size = round < 300 ? round : next_random(&state) % (FL_SCAN_WINDOW + 1);
        random_table(&table, &state);
        for (size_t i = 0; i < size; i++)
            text[i] = (char)(next_random(&state) % (round % 2 ? 128 : 256));
        fl_scan_ref.window(&table, text, size, x, &a);
        fl_scan_avx2.window(&table, text, size, y, &b);
        size_t blocks = (size + 63) / 64;
        cr_assert_arr_eq(x, y, size);
        cr_assert_arr_eq(a.boundary, b.boundary, blocks * 8);
        cr_assert_arr_eq(a.punct, b.punct, blocks * 8);
        cr_assert_arr_eq(a.exact, b.exact, blocks * 8);
        fl_byte_set set = {0};
        fl_byte_set_add(&set, (uint8_t)next_random(&state));
        fl_byte_set_add(&set, (uint8_t)next_random(&state));
        fl_byte_set other = {.high = round % 3 == 0};
        fl_byte_set_add(&other, (uint8_t)next_random(&state));
        cr_assert_eq(fl_scan_ref.find(&set, text, size), fl_scan_avx2.find(&set, text, size));
        cr_assert_eq(fl_scan_ref.find_pair(&set, &other, text, size),
                     fl_scan_avx2.find_pair(&set, &other, text, size));
    }
}
#endif

/* WordPiece by its definition. */
static size_t plain_wordpiece(const fl_vocab *vocab, const char *prefix, const char *word,
                              size_t size, int32_t *ids) {
    size_t count = 0, at = 0;
    while (at < size) {
        size_t  end = size;
        int32_t id  = -1;
        for (; end > at && id < 0; end--) {
            char   token[128];
            size_t skip = at > 0 ? strlen(prefix) : 0;
            memcpy(token, prefix, skip);
            memcpy(token + skip, word + at, end - at);
            id = fl_vocab_find(vocab, token, skip + end - at);
            if (id >= 0)
                break;
        }
        if (id < 0)
            return 0;
        ids[count++] = id;
        at           = end;
    }
    return count;
}

Test(tokenizer_parts, trie_equals_the_definition_of_wordpiece) {
    static const char *const prefixes[] = {"##", "", "a", "ab"};
    uint64_t                 state      = 12345;
    for (unsigned round = 0; round < 400; round++) {
        const char  *prefix = prefixes[round % 4];
        fl_vocab     vocab;
        fl_wordpiece trie;
        uint32_t     tokens = 1 + next_random(&state) % 40;
        cr_assert(fl_vocab_open(&vocab, tokens, tokens, tokens * 16));
        for (uint32_t id = 0; id < tokens; id++) {
            char   token[16];
            size_t size = 0;
            if (next_random(&state) % 2) {
                size = strlen(prefix);
                memcpy(token, prefix, size);
            }
            for (size_t more = next_random(&state) % 6; more > 0; more--)
                token[size++] = "ab#c"[next_random(&state) % (round % 2 ? 2 : 4)];
            fl_vocab_add(&vocab, token, size, id);
        }
        cr_assert(fl_wordpiece_open(&trie, &vocab, prefix, 100, 0) && fl_wordpiece_prepare(&trie));
        for (unsigned i = 0; i < 300; i++) {
            char    word[40];
            int32_t ids[40], expected[40];
            size_t  size = 1 + next_random(&state) % 30;
            for (size_t k = 0; k < size; k++)
                word[k] = "ab#c"[next_random(&state) % (round % 2 ? 2 : 4)];
            size_t count = fl_wordpiece_encode(&trie, word, size, ids);
            cr_assert_eq(count, plain_wordpiece(&vocab, prefix, word, size, expected), "%.*s",
                         (int)size, word);
            cr_assert_arr_eq(ids, expected, count * sizeof *ids);
        }
        fl_wordpiece_close(&trie);
        fl_vocab_close(&vocab);
    }
}

/* The last three marks of the vocabulary survive BERT's normaliser and have different classes. */
static const char json_format[] =
    "{\"added_tokens\":[{\"id\":0,\"content\":\"[UNK]\",\"single_word\":false,\"lstrip\":true,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true},"
    "{\"id\":104,\"content\":\"a.\",\"single_word\":true,\"lstrip\":false,\"rstrip\":true,"
    "\"normalized\":false,\"special\":false}],"
    "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":%s,\"handle_chinese_chars\":%s,"
    "\"strip_accents\":%s,\"lowercase\":%s},\"pre_tokenizer\":{\"type\":\"%s\"},"
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
    "\"continuing_subword_prefix\":\"##\","
    "\"max_input_chars_per_word\":%u,\"vocab\":{\"[UNK]\":0,\"a\":1,\"##a\":2,\"b\":3,\"##b\":4,"
    "\"ab\":5,\".\":6,\"##.\":7,\"\\u00e9\":8,\"##\\u00e9\":9,\"e\":10,\"##e\":11,\"\\u65e5\":12,"
    "\"##\\u65e5\":13,\"##\\u0301\":14,\"\\u0301\":15,\"##\\u302e\":16,\"##\\u302f\":17,"
    "\"\\u302e\":18,\"##\\u0323\":19,\"A\":20,\"##\\u08d4\":21,\"##\\ud834\\udd65\":22,"
    "\"##\\ud834\\udd6d\":23";

/* The end of it: letters of two scripts, so that pieces become as many ids as they have letters. */
static void end_json(fl_buf *json) {
    static const uint32_t first[] = {0x430, 0x3042};
    unsigned              id      = 24;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        for (uint32_t cp = first[i]; cp < first[i] + 20; cp++, id += 2)
            fl_buf_printf(json, ",\"\\u%04x\":%u,\"##\\u%04x\":%u", cp, id, cp, id + 1);
    fl_buf_printf(json, "}}}");
}

static const uint32_t alphabet[] = {
    'a',   'b',    'A',   '.',    ' ',    ' ',     '\n',    0,       0x1F,   0x85,   0xA0,   0xE9,
    0xC9,  0x301,  0x323, 0x302E, 0x302F, 0x8D4,   0x1D165, 0x1D16D, 0x65E5, 0xFA10, 0x200B, 0x3000,
    0x130, 0x2000, 0x37E, 0xD55C, 0x344,  0x1D15E, 0x2260,  '[',     'U',    0x2E43};

enum { COUNT = sizeof alphabet / sizeof *alphabet };

static size_t random_text(char *text, size_t characters, uint64_t *state) {
    size_t size = 0;
    for (size_t i = 0; i < characters; i++) {
        uint32_t pick = next_random(state) % (COUNT + 6);
        if (pick == COUNT) {
            memcpy(text + size, "[UNK]", 5);
            size += 5;
            continue;
        }
        uint32_t cp = pick < COUNT ? alphabet[pick] : 'a';
        if (pick == COUNT + 1) {
            cp = next_random(state) % 0x110000;
            cp = cp >= 0xD800 && cp < 0xE000 ? 'b' : cp;
        }
        size += fl_utf8_encode(cp, text + size);
    }
    return size;
}

static void compare_paths(const fl_tokenizer *t, fl_token_scratch *scratch, const char *text,
                          size_t size, const fl_encode_options *options) {
    static int32_t  ids[40000], fast[40000];
    static uint32_t offsets[80000];
    static uint8_t  special[40000];
    size_t          count, fast_count, room = fl_tokenizer_ids_max(t, size);
    bool            cut, fast_cut;
    fletch_error    error;
    cr_assert_leq(room, 40000);
    cr_assert_eq(fl_tokenizer_encode_offsets(t, scratch, text, size, options, ids, offsets, special,
                                             room, &count, &cut, &error),
                 0);
    cr_assert_eq(fl_tokenizer_encode(t, scratch, text, size, options, fast, room, &fast_count,
                                     &fast_cut, &error),
                 0);
    cr_assert_eq(count, fast_count);
    cr_assert_eq(cut, fast_cut);
    cr_assert_arr_eq(ids, fast, count * sizeof *ids);
}

static fl_tokenizer *open_random(unsigned flags) {
    static const char *const no_yes[] = {"false", "true"};
    fl_buf                   json     = {0};
    fl_tokenizer_options     options  = {.cache_bytes = 4096};
    fl_tokenizer            *t;
    fletch_error             error;
    fl_buf_printf(&json, json_format, no_yes[flags & 1], no_yes[flags >> 1 & 1],
                  no_yes[flags >> 2 & 1], no_yes[flags >> 3 & 1],
                  flags & 16 ? "WhitespaceSplit" : "BertPreTokenizer", flags & 32 ? 5 : 100);
    end_json(&json);
    cr_assert_eq(fl_tokenizer_open(&t, &json, &options, &error), 0, "%s", error.message);
    cr_assert(t->stream);
    fl_buf_free(&json);
    return t;
}

Test(tokenizer_parts, fast_path_equals_exact_path) {
    static char text[40000];
    uint64_t    state = 2463534242u;
    for (unsigned flags = 0; flags < 64; flags++) {
        fl_tokenizer     *t       = open_random(flags);
        fl_token_scratch *scratch = fl_token_scratch_new(t);
        for (unsigned round = 0; round < 150; round++) {
            fl_encode_options o = {round % 3 * 4, round % 2 ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT,
                                   false};
            size_t            size =
                random_text(text, round % 50 == 49 ? 8000 : next_random(&state) % 60, &state);
            compare_paths(t, scratch, text, size, &o);
        }
        fl_token_scratch_free(scratch);
        fl_tokenizer_close(t);
    }
}

/* Pieces of 1 to 40 bytes or so: letters of one script, and what ends words or joins them. Some are alike
 * but for their ends: a letter more or another, or NULs. */
static size_t random_piece(char *text, uint64_t *state) {
    static const uint32_t first[] = {'a', 0x430, 0x3042, 0x4E00, 0xAC00, 0x3000, 0x61, 0x1F600};
    uint32_t              base    = first[next_random(state) % (sizeof first / sizeof *first)];
    size_t                size = 0, characters = 1 + next_random(state) % 14;
    if (next_random(state) % 4 == 0) {
        size = 12 + next_random(state) % 17;
        memset(text, 'b', size);
        memset(text + size, next_random(state) % 2 ? 'a' : 0, 2);
        return size + next_random(state) % 3;
    }
    for (size_t i = 0; i < characters; i++) {
        uint32_t kind = next_random(state) % 16;
        uint32_t cp =
            kind > 0 ? base + next_random(state) % 20 : alphabet[next_random(state) % COUNT];
        size += fl_utf8_encode(cp, text + size);
    }
    return size;
}

/* What the cache has seen must come out as what it has not: many pieces again and again, in a cache of a
 * few lines, in vocabularies of narrow and wide ids, with and without a border that ASCII gives. */
Test(tokenizer_parts, pieces_that_come_again_are_what_they_were) {
    static char pieces[200][64], text[40000];
    uint64_t    state = 777777777u;
    size_t      sizes[200];
    for (unsigned flags = 0; flags < 32; flags++) {
        fl_tokenizer     *t       = open_random(flags | 32 * (flags & 1));
        fl_token_scratch *scratch = fl_token_scratch_new(t);
        t->small_ids              = (flags & 2) != 0; /* all its ids fit either way */
        for (unsigned i = 0; i < 200; i++)
            sizes[i] = random_piece(pieces[i], &state);
        for (unsigned round = 0; round < 40; round++) {
            static const char *const borders[] = {" ", "", "\xE3\x80\x82", "."};
            const char              *border    = borders[round % 4];
            size_t                   size      = 0;
            while (size < 9000) {
                unsigned i = next_random(&state) % (round % 8 < 4 ? 20 : 200);
                memcpy(text + size, pieces[i], sizes[i]);
                size += sizes[i];
                memcpy(text + size, border, strlen(border));
                size += strlen(border);
            }
            fl_encode_options o = {round % 3 * 300,
                                   round % 2 ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT, false};
            compare_paths(t, scratch, text, size, &o);
        }
        fl_token_scratch_free(scratch);
        fl_tokenizer_close(t);
    }
}

Test(tokenizer_parts, no_character_gives_more_tokens_than_bytes) {
    /* fl_tokenizer_ids_max relies on it for BERT's pipeline. */
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        uint32_t part[FL_UC_DECOMPOSITION_MAX], low[2];
        char     bytes[4];
        unsigned kept = 0, count = fl_unicode_decompose(cp, part);
        for (unsigned i = 0; i < count; i++)
            kept += (fl_unicode_flags(part[i]) & FL_UC_MARK_BERT) == 0;
        cr_assert_leq(kept, fl_utf8_encode(cp, bytes), "U+%X", cp);
        cr_assert_leq(fl_unicode_lower(cp, low), fl_utf8_encode(cp, bytes), "U+%X", cp);
    }
}

Test(tokenizer_parts, vocabulary_finds_what_it_was_given) {
    fl_vocab vocab;
    size_t   length;
    cr_assert(fl_vocab_open(&vocab, 10, 3, 6));
    cr_expect_eq(fl_vocab_add(&vocab, "ab", 2, 9), FL_VOCAB_ADDED);
    cr_expect_eq(fl_vocab_add(&vocab, "ab", 2, 8), FL_VOCAB_TEXT_TAKEN);
    cr_expect_eq(fl_vocab_add(&vocab, "c", 1, 9), FL_VOCAB_ID_TAKEN);
    cr_expect_eq(fl_vocab_add(&vocab, "c", 1, 10), FL_VOCAB_ID_TAKEN);
    cr_expect_eq(fl_vocab_add(&vocab, "", 0, 0), FL_VOCAB_ADDED);
    cr_expect_eq(fl_vocab_find(&vocab, "ab", 2), 9);
    cr_expect_eq(fl_vocab_find(&vocab, "", 0), 0);
    cr_expect_eq(fl_vocab_find(&vocab, "a", 1), -1);
    cr_expect_str_eq(fl_vocab_text(&vocab, 9, &length), "ab");
    cr_expect_null(fl_vocab_text(&vocab, 5, &length));
    cr_expect_null(fl_vocab_text(&vocab, 10, &length));
    fl_vocab_close(&vocab);
}

static int count_ask(void *user) {
    ++*(size_t *)user;
    return 0;
}

/* A text of 6 million characters takes 20 ms a pass: one without a look is too long. */
Test(tokenizer_parts, both_passes_over_the_runes_of_a_text_ask) {
    enum { PARTS = 4, SIZE = PARTS * FL_ASK_RUNES };
    fl_runes runes = {0};
    fl_buf   out   = {0};
    size_t   asked = 0;
    fl_stop  stop  = {.asked = count_ask, .user = &asked};
    char    *text  = malloc(SIZE);
    memset(text, 'a', SIZE);
    cr_assert(fl_runes_load(&runes, text, 0, SIZE));
    runes.stop = &stop;
    cr_assert(fl_runes_write(&runes, 0, runes.count, &out));
    cr_expect_eq(asked, 2 * PARTS, "%zu", asked);
    cr_expect(out.size == SIZE && memcmp(out.data, text, SIZE) == 0);
    runes.stop = NULL;
    fl_buf_free(&out);
    fl_runes_free(&runes);
    free(text);
}
