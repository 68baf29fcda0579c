/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer.c - what must never break in the tokenizer as the runtime sees it.
 *
 * The cases that implementations get wrong (expected values are those of Hugging Face's tokenizers);
 * whatever tokenizer.json asks for and is not supported is refused by its name; what is damaged is
 * refused with the key; a failed allocation is an error; a second encode allocates nothing. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "tokenizer/tokenizer.h"

/* The parts of a file; a test exchanges one. */
typedef struct parts {
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder, *added, *model;
} parts;

#define TOKEN(id, text, single, left, right, normal, special)                                      \
    "{\"id\":" #id ",\"content\":\"" text "\",\"single_word\":" #single ",\"lstrip\":" #left       \
    ",\"rstrip\":" #right ",\"normalized\":" #normal ",\"special\":" #special "}"
#define SPECIALS                                                                                   \
    TOKEN(0, "[UNK]", false, false, false, false, true)                                            \
    "," TOKEN(1, "[CLS]", false, false, false, false, true) "," TOKEN(2, "[SEP]", false, false,    \
                                                                      false, false, true)

static const char vocab_text[] = "\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"a\":3,\"b\":4,\"ab\":5,"
                                 "\"xyz\":6,\"##a\":7,\"##b\":8,\"##ab\":9,\"un\":10,"
                                 "\"##aff\":11,\"##able\":12,\"hello\":13,\"angstrom\":14,"
                                 "\"istanbul\":15,\"\\u00df\":16,\"\\ufb01\":17,\"$\":18,"
                                 "\"100\":19,\"+\":20,\"\\u20ac5\":21,\".\":22,\"don\":23,\"'\":24,"
                                 "\"t\":25,\"\\u65e5\":26,\"\\u672c\":27,"
                                 "\"\\u306e\":28,\"e\":29,\"ing\":30,\"danc\":31,\"##ing\":32,\"["
                                 "\":33,\"]\":34,\"sep\":35,\"softhyphen\":36,"
                                 "\"\\u1112\\u1161\\u11ab\":37,\"\\u03bf\\u03c3\":38,"
                                 "\"\\u0915\\u0937\\u093f\":39,\"i\\u0307\":40,\"bc\":41";

static const char bert[] =
    "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
    "\"strip_accents\":null,\"lowercase\":true}";
static const char model[] =
    "{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
    "\"max_input_chars_per_word\":100,\"vocab\":{%s}}";
static const char cls_sep[] =
    "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",2],\"cls\":[\"[CLS]\",1]}";

static const char *or_null(const char *text) {
    return text != NULL ? text : "null";
}

static void write_json(fl_buf *out, const parts *p) {
    fl_buf_printf(
        out, "{\"version\":\"1.0\",\"truncation\":{\"max_length\":3},\"padding\":{\"pad_id\":0},");
    fl_buf_printf(out, "\"added_tokens\":[%s],", p->added != NULL ? p->added : SPECIALS);
    fl_buf_printf(out, "\"normalizer\":%s,", p->normalizer != NULL ? p->normalizer : bert);
    fl_buf_printf(out, "\"pre_tokenizer\":%s,",
                  p->pre_tokenizer != NULL ? p->pre_tokenizer : "{\"type\":\"BertPreTokenizer\"}");
    fl_buf_printf(out,
                  "\"post_processor\":%s,\"decoder\":%s,\"model\":", or_null(p->post_processor),
                  or_null(p->decoder));
    if (p->model != NULL)
        fl_buf_puts(out, p->model);
    else
        fl_buf_printf(out, model, vocab_text);
    fl_buf_putc(out, '}');
}

static fl_tokenizer *open_parts(const parts *p) {
    fl_buf        json = {0};
    fl_tokenizer *t;
    fletch_error  error;
    write_json(&json, p);
    int status = fl_tokenizer_open(&t, &json, NULL, &error);
    cr_assert_eq(status, 0, "%s", error.message);
    fl_buf_free(&json);
    return t;
}

static void expect_refused(const parts *p, int code, const char *says) {
    fl_buf        json = {0};
    fl_tokenizer *t    = (fl_tokenizer *)&json;
    fletch_error  error;
    write_json(&json, p);
    cr_expect_eq(fl_tokenizer_open(&t, &json, NULL, &error), code, "%s: %s", says, error.message);
    cr_expect_null(t);
    cr_expect_not_null(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message,
                       says);
    fl_buf_free(&json);
}

/* Both paths; the tokens' texts joined with '|'. */
static void expect_tokens(const fl_tokenizer *t, const char *text, size_t size,
                          const fl_encode_options *options, const char *expected) {
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    static int32_t    ids[4096], fast[4096];
    static uint32_t   offsets[2 * 4096];
    static uint8_t    special[4096];
    size_t            count, fast_count;
    bool              cut, fast_cut;
    fl_buf            joined = {0};
    fletch_error      error;
    cr_assert_eq(fl_tokenizer_encode_offsets(t, scratch, text, size, options, ids, offsets, special,
                                             4096, &count, &cut, &error),
                 0);
    cr_assert_eq(fl_tokenizer_encode(t, scratch, text, size, options, fast, 4096, &fast_count,
                                     &fast_cut, &error),
                 0);
    cr_expect_eq(count, fast_count);
    cr_expect_eq(cut, fast_cut);
    cr_expect_arr_eq(ids, fast, count * sizeof *ids);
    for (size_t i = 0; i < count; i++)
        fl_buf_printf(&joined, "%s%s", i > 0 ? "|" : "", fl_tokenizer_token(t, ids[i], NULL));
    cr_expect_str_eq(count > 0 ? joined.data : "", expected, "%s", text);
    fl_buf_free(&joined);
    fl_token_scratch_free(scratch);
}

static void expect(const fl_tokenizer *t, const char *text, const char *expected) {
    const fl_encode_options all = {0};
    expect_tokens(t, text, strlen(text), &all, expected);
}

Test(tokenizer, controls_vanish_and_join_their_neighbours) {
    fl_tokenizer           *t   = open_parts(&(parts){0});
    const fl_encode_options all = {0};
    expect(t,
           "a\x0b"
           "b",
           "ab");
    expect_tokens(t, "x\0y\xEF\xBF\xBDz", 7, &all, "xyz");
    expect(t,
           "soft\xC2\xADhyphen \xEF\xBB\xBF"
           "a",
           "softhyphen|a");
    expect(t,
           "a\xE2\x80\x8B"
           "b a\xC2\xA0"
           "b",
           "ab|a|b");
    fl_tokenizer_close(t);
}

Test(tokenizer, accents_case_and_scripts) {
    fl_tokenizer *t = open_parts(&(parts){0});
    expect(t,
           "H\xC3\xA9ll\xC3\xB2 \xC3\x85ngstr\xC3\xB6m \xC4\xB0stanbul \xE1\xBA\x9E \xEF\xAC\x81",
           "hello|angstrom|istanbul|\xC3\x9F|\xEF\xAC\x81");
    expect(t, "\xCE\x9F\xCE\xA3", "\xCE\xBF\xCF\x83");                 /* no final sigma */
    expect(t, "\xED\x95\x9C", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"); /* Hangul stays decomposed */
    expect(t, "\xE6\x97\xA5\xE6\x9C\xAC\xE3\x81\xAE", "\xE6\x97\xA5|\xE6\x9C\xAC|\xE3\x81\xAE");
    expect(t, "\xE0\xA4\x95\xE0\xA5\x8D\xE0\xA4\xB7\xE0\xA4\xBF",
           "\xE0\xA4\x95\xE0\xA4\xB7\xE0\xA4\xBF"); /* Mn goes, Mc stays */
    fl_tokenizer_close(t);
    t = open_parts(&(parts){
        .normalizer =
            "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
            "\"strip_accents\":false,\"lowercase\":true}"});
    expect(t, "\xC4\xB0", "i\xCC\x87");
    fl_tokenizer_close(t);
}

Test(tokenizer, punctuation_is_ascii_symbols_and_unicode_8) {
    fl_tokenizer *t = open_parts(&(parts){0});
    expect(t,
           "$100 a+b \xE2\x82\xAC"
           "5",
           "$|100|a|+|b|\xE2\x82\xAC"
           "5");
    expect(t, "don't", "don|'|t");
    expect(t,
           "a\xE2\xB9\x83"
           "b",
           "[UNK]"); /* U+2E43 is younger than the tables: part of the word */
    expect(t,
           "a\xE2\xB9\x82"
           "b",
           "a|[UNK]|b"); /* U+2E42 */
    fl_tokenizer_close(t);
}

Test(tokenizer, one_dead_end_makes_the_whole_word_unknown) {
    fl_tokenizer *t = open_parts(&(parts){0});
    char          word[102];
    expect(t, "unaffable", "un|##aff|##able");
    expect(t, "unaffz", "[UNK]");
    expect(t, "##able", "[UNK]|[UNK]|[UNK]");
    memset(word, 'a', sizeof word);
    word[101] = '\0';
    expect(t, word, "[UNK]");
    fl_tokenizer_close(t);
}

Test(tokenizer, special_tokens_match_the_raw_text) {
    fl_tokenizer *t = open_parts(&(parts){0});
    expect(t, "a [SEP] b [sep] a[CLS]b", "a|[SEP]|b|[|sep|]|a|[CLS]|b");
    expect(t,
           "[S\xE2\x80\x8B"
           "EP]",
           "[|sep|]");
    fl_tokenizer_close(t);
}

Test(tokenizer, added_tokens_keep_their_flags) {
    const char *added = SPECIALS "," TOKEN(30, "ing", true, false, false, false, false) "," TOKEN(
        6, "xyz", true, false, false, false, false) "," TOKEN(41, "bc", false, false, false, false,
                                                              false);
    fl_tokenizer *t = open_parts(&(parts){.added = added});
    expect(t, "dancing ing _ing ing. \xC3\xA9ing", "danc|##ing|ing|[UNK]|ing|ing|.|e|##ing");
    expect(t, "axyz xyz bc abc", "[UNK]|xyz|bc|a|bc"); /* in "axyz" it is a part of a word */
    expect(t, "axyzbc xyz", "[UNK]|bc|xyz");
    fl_tokenizer_close(t);
}

Test(tokenizer, normalized_added_tokens_match_the_normalised_text) {
    const char *added = TOKEN(0, "[UNK]", false, false, false, false, true) "," TOKEN(
        1, "[CLS]", false, false, false, true, true) "," TOKEN(2, "[SEP]", false, false, false,
                                                               false, true);
    fl_tokenizer *t = open_parts(&(parts){.added = added});
    expect(t, "[cls] [CLS]", "[CLS]|[CLS]");
    fl_tokenizer_close(t);
}

Test(tokenizer, truncation_keeps_the_special_tokens) {
    fl_tokenizer *t = open_parts(&(parts){.post_processor = cls_sep});
    expect(t, "a b ab", "[CLS]|a|b|ab|[SEP]");
    expect_tokens(t, "a b ab", 6, &(fl_encode_options){.max_length = 4}, "[CLS]|a|b|[SEP]");
    expect_tokens(t, "a b ab", 6, &(fl_encode_options){4, FL_TRUNCATE_LEFT, false},
                  "[CLS]|b|ab|[SEP]");
    expect_tokens(t, "a b ab", 6, &(fl_encode_options){.max_length = 1}, "[CLS]|[SEP]");
    expect_tokens(t, "a b ab", 6, &(fl_encode_options){.max_length = 2, .no_special = true}, "a|b");
    expect_tokens(t, "  ", 2, &(fl_encode_options){0}, "[CLS]|[SEP]");
    expect_tokens(t, "", 0, &(fl_encode_options){0}, "[CLS]|[SEP]");
    fl_tokenizer_close(t);
}

Test(tokenizer, a_buffer_that_is_too_small_is_refused) {
    fl_tokenizer     *t       = open_parts(&(parts){.post_processor = cls_sep});
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    int32_t           ids[5];
    size_t            count;
    bool              cut;
    fletch_error      error;
    for (size_t capacity = 0; capacity < 5; capacity++) {
        cr_expect_eq(fl_tokenizer_encode(t, scratch, "a b ab", 6, &(fl_encode_options){0}, ids,
                                         capacity, &count, &cut, &error),
                     FLETCH_ENOSPC);
    }
    cr_expect_eq(fl_tokenizer_encode(t, scratch, "a b ab", 6, &(fl_encode_options){0}, ids, 5,
                                     &count, &cut, &error),
                 0);
    cr_expect_eq(count, 5);
    fl_token_scratch_free(scratch);
    fl_tokenizer_close(t);
}

Test(tokenizer, decode_joins_pieces_and_cleans_up) {
    fl_tokenizer *t = open_parts(
        &(parts){.decoder = "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"});
    const int32_t ids[]   = {1, 10, 11, 12, 22, 2};
    const int32_t wrong[] = {1, 99};
    fl_buf        text    = {0};
    fletch_error  error;
    cr_assert_eq(fl_tokenizer_decode(t, ids, 6, false, &text, &error), 0);
    cr_expect_str_eq(text.data, "[CLS] unaffable. [SEP]");
    fl_buf_clear(&text);
    cr_assert_eq(fl_tokenizer_decode(t, ids, 6, true, &text, &error), 0);
    cr_expect_str_eq(text.data, "unaffable.");
    cr_expect_eq(fl_tokenizer_decode(t, wrong, 2, true, &text, &error), FLETCH_EINVAL);
    cr_expect_eq(error.where, 1);
    fl_buf_free(&text);
    fl_tokenizer_close(t);
}

Test(tokenizer, do_lower_case_spares_special_tokens) {
    fl_buf               json    = {0};
    fl_tokenizer_options options = {.lowercase = true};
    fl_tokenizer        *t;
    fletch_error         error;
    write_json(&json, &(parts){0});
    cr_assert_eq(fl_tokenizer_open(&t, &json, &options, &error), 0);
    expect(t, "[SEP]", "[SEP]");
    expect(t, "[sep]", "[|sep|]");
    fl_buf_free(&json);
    fl_tokenizer_close(t);
}

Test(tokenizer, what_is_not_supported_is_refused_by_name) {
    static const char *const normalizers[] = {"ByteLevel", "Unheard"};
    static const char *const pre[]         = {"UnicodeScripts", "FixedLength", "Unheard"};
    static const char *const models[]      = {"Unheard"};
    static const char *const processors[]  = {"Metaspace", "BPEDecoder", "Fuse"};
    char                     text[128];
    for (size_t i = 0; i < sizeof normalizers / sizeof *normalizers; i++) {
        snprintf(text, sizeof text, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"%s\"}]}",
                 normalizers[i]);
        expect_refused(&(parts){.normalizer = text}, FLETCH_EUNSUPPORTED, normalizers[i]);
    }
    for (size_t i = 0; i < sizeof pre / sizeof *pre; i++) {
        snprintf(text, sizeof text, "{\"type\":\"%s\"}", pre[i]);
        expect_refused(&(parts){.pre_tokenizer = text}, FLETCH_EUNSUPPORTED, pre[i]);
    }
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        snprintf(text, sizeof text, "{\"type\":\"%s\",\"vocab\":{},\"merges\":[]}", models[i]);
        expect_refused(&(parts){.model = text}, FLETCH_EUNSUPPORTED, models[i]);
    }
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
        snprintf(text, sizeof text, "{\"type\":\"%s\"}", processors[i]);
        expect_refused(&(parts){.post_processor = text}, FLETCH_EUNSUPPORTED, processors[i]);
    }
    expect_refused(&(parts){.decoder = "{\"type\":\"CTC\"}"}, FLETCH_EUNSUPPORTED, "CTC");
    expect_refused(
        &(parts){
            .normalizer =
                "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a)\\\\1\"},\"content\":\"\"}"},
        FLETCH_EUNSUPPORTED, "1");
    expect_refused(&(parts){.model = "{\"vocab\":[[\"a\",0]]}", .added = ""}, FLETCH_EUNSUPPORTED,
                   "Unigram without unk_id");
    expect_refused(
        &(parts){.pre_tokenizer = "{\"type\":\"Metaspace\",\"prepend_scheme\":\"sometimes\"}"},
        FLETCH_EUNSUPPORTED, "sometimes");
    expect_refused(&(parts){.pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"__\"}"},
                   FLETCH_EUNSUPPORTED, "one character");
    expect_refused(&(parts){.pre_tokenizer = "{\"type\":\"Punctuation\",\"behavior\":\"Removes\"}"},
                   FLETCH_EUNSUPPORTED, "Removes");
}

static void expect_bad_unigram(const char *vocab, const char *unk, const char *says) {
    char text[512];
    snprintf(text, sizeof text, "{\"type\":\"Unigram\",\"unk_id\":%s,\"vocab\":%s}", unk, vocab);
    expect_refused(&(parts){.model = text, .added = ""}, FLETCH_EMODEL, says);
}

Test(tokenizer, damaged_unigram_models_are_refused) {
    expect_bad_unigram("[]", "0", "0 pieces");
    expect_bad_unigram("{\"a\":0}", "0", "vocab");
    expect_bad_unigram("[[\"a\",0]]", "1", "unk_id is 1; model.vocab has 1 pieces");
    expect_bad_unigram("[[\"a\",0]]", "-1", "unk_id is -1");
    expect_bad_unigram("[[\"a\",0]]", "\"a\"", "unk_id");
    expect_bad_unigram("[[\"a\",0],[\"b\"]]", "0", "model.vocab[1] is not a [piece, score]");
    expect_bad_unigram("[[\"a\",0],[1,0]]", "0", "model.vocab[1]");
    expect_bad_unigram("[[\"a\",\"0\"]]", "0", "model.vocab[0]");
    expect_bad_unigram("[[\"a\",1e999]]", "0", "not a finite number");
    expect_bad_unigram("[[\"a\",NaN]]", "0", "expected value"); /* JSON has no such number */
    expect_bad_unigram("[[\"a\\u0000b\",0]]", "0", "NUL");
}

Test(tokenizer, damaged_charsmaps_are_refused) {
    static const struct {
        const char *map, *says;
    } cases[] = {
        {"A", "is not base64"},
        {"A*==", "is not base64"},
        {"AAA=", "is truncated"},                    /* two bytes */
        {"AAAAAA==", "trie has the wrong size"},     /* a trie of 0 bytes */
        {"BgAAAAAAAAA=", "trie has the wrong size"}, /* of 6, with 4 there */
        {"BAAAAAAAAAD/AA==", "are not UTF-8"},       /* one unit, the strings FF 00 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}",
                 cases[i].map);
        expect_refused(&(parts){.normalizer = text}, FLETCH_EMODEL, cases[i].says);
    }
}

/* Of equal sums the longer first piece stays; runs of unknown ones are one token, and bytes all or nothing. */
Test(tokenizer, unigram_breaks_ties_as_the_reference) {
    static const char format[] =
        "{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":%s,\"vocab\":[[\"<unk>\",0],[\"a\",-"
        "1],"
        "[\"b\",-1],[\"ab\",-2],[\"ba\",-2],[\"<0xC3>\",-9],[\"<0xA9>\",-9],[\"abab\",-4]]}";
    char text[512];
    for (unsigned bytes = 0; bytes < 2; bytes++) {
        snprintf(text, sizeof text, format, bytes ? "true" : "false");
        fl_tokenizer *t = open_parts(
            &(parts){.model = text, .added = "", .normalizer = "null", .pre_tokenizer = "null"});
        expect(t, "ab", "ab");
        expect(t, "aba", "a|ba");
        expect(t, "abab", "abab");
        expect(t, "xyabxx", "<unk>|ab|<unk>");
        expect(t, "x<unk>y", "<unk>"); /* the piece is unknown like its neighbours */
        expect(t, "a\xC3\xA9", bytes ? "a|<0xC3>|<0xA9>" : "a|<unk>");
        expect(t, "\xC3\xA9?", "<unk>");
        expect(t, "", "");
        fl_tokenizer_close(t);
    }
}

/* `rest` follows the vocabulary {"<unk>", "a", "b", "ab"}. */
static void expect_bad_bpe(const char *rest, int code, const char *says) {
    char text[512];
    snprintf(text, sizeof text,
             "{\"type\":\"BPE\",\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3},%s}", rest);
    expect_refused(&(parts){.model = text, .added = ""}, code, says);
}

Test(tokenizer, damaged_bpe_models_are_refused) {
    expect_bad_bpe("\"merges\":[\"a c\"]", FLETCH_EMODEL,
                   "merges[0] names a token that is not in model.vocab: \"c\"");
    expect_bad_bpe("\"merges\":[\"a b\",\"b a\"]", FLETCH_EMODEL,
                   "merges[1] makes a token that is not in model.vocab: \"ba\"");
    expect_bad_bpe("\"merges\":[\"ab\"]", FLETCH_EMODEL, "merges[0]");
    expect_bad_bpe("\"merges\":[\"a b c\"]", FLETCH_EMODEL, "merges[0]");
    expect_bad_bpe("\"merges\":[[\"a\"]]", FLETCH_EMODEL, "merges[0]");
    expect_bad_bpe("\"merges\":[[\"a\",1]]", FLETCH_EMODEL, "merges[0]");
    expect_bad_bpe("\"merges\":[7]", FLETCH_EMODEL, "merges[0]");
    expect_bad_bpe("\"merges\":[[\"a\",\"b\"],\"a b\",\"a b\",\"a b\"]", FLETCH_EMODEL,
                   "merges[3] is not written as the first one is: \"\"a b\"\"");
    expect_bad_bpe("\"merges\":{}", FLETCH_EMODEL, "merges");
    expect_bad_bpe("\"dropout\":null", FLETCH_EMODEL, "merges");
    expect_bad_bpe("\"merges\":[],\"dropout\":0.1", FLETCH_EUNSUPPORTED, "dropout 0.1");
    expect_bad_bpe("\"merges\":[],\"unk_token\":\"x\"", FLETCH_EMODEL, "unk_token \"x\"");
    expect_bad_bpe("\"merges\":[],\"byte_fallback\":3", FLETCH_EMODEL, "byte_fallback");
    expect_bad_bpe("\"merges\":[\"a b\"],\"continuing_subword_prefix\":\"##\"", FLETCH_EMODEL,
                   "merges[0]");
    expect_bad_bpe("\"merges\":[],\"end_of_word_suffix\":\"12345678901234567\"",
                   FLETCH_EUNSUPPORTED, "end_of_word_suffix");
}

/* After words that fill the stack: nothing left is nothing to merge, and no garbage is. */
Test(tokenizer, a_word_of_unknown_characters_vanishes) {
    fl_tokenizer *t = open_parts(&(parts){
        .model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}",
        .added = ""});
    expect(t, "ababab zz ab", "ab|ab|ab|ab");
    expect(t, "z", "");
    fl_tokenizer_close(t);
}

static void expect_bad_vocab(const char *vocab, const char *says) {
    char text[1024];
    snprintf(text, sizeof text, model, vocab);
    expect_refused(&(parts){.model = text, .added = ""}, FLETCH_EMODEL, says);
}

Test(tokenizer, damaged_vocabularies_are_refused) {
    expect_bad_vocab("", "empty");
    expect_bad_vocab("\"a\":0", "unk_token");
    expect_bad_vocab("\"[UNK]\":0,\"a\":-1", "-1");
    expect_bad_vocab("\"[UNK]\":0,\"a\":0", "id 0");
    expect_bad_vocab("\"[UNK]\":0,\"a\":2000000", "2000000");
    expect_bad_vocab("\"[UNK]\":0,\"a\":4294967296", "4294967296");
    expect_bad_vocab("\"[UNK]\":0,\"a\":1.5", "\"a\"");
    expect_bad_vocab("\"[UNK]\":0,\"a\":\"1\"", "\"a\"");
    expect_bad_vocab("\"[UNK]\":0,\"a\":null", "\"a\"");
    expect_bad_vocab("\"[UNK]\":0,\"a\":1,\"a\":2", "model.vocab has \"a\" twice");
    expect_bad_vocab("\"[UNK]\":0,\"a\":1,\"a\":1", "id 1 to \"a\" and to \"a\"");
    expect_bad_vocab("\"[UNK]\":0,\"a\\u0000\":1", "id 1 has a NUL");
}

Test(tokenizer, wrong_types_and_missing_keys_name_the_key) {
    expect_refused(&(parts){.model = "null"}, FLETCH_EMODEL, "model");
    expect_refused(&(parts){.model = "[]"}, FLETCH_EMODEL, "model");
    expect_refused(&(parts){.model = "{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0}}"},
                   FLETCH_EMODEL, "unk_token");
    expect_refused(&(parts){.normalizer = "{\"type\":\"BertNormalizer\",\"clean_text\":1}"},
                   FLETCH_EMODEL, "clean_text");
    expect_refused(&(parts){.normalizer = "{\"type\":\"BertNormalizer\"}"}, FLETCH_EMODEL,
                   "clean_text");
    expect_refused(&(parts){.normalizer = "{\"type\":\"Sequence\"}"}, FLETCH_EMODEL, "normalizers");
    expect_refused(&(parts){.normalizer = "{}"}, FLETCH_EMODEL, "type");
    expect_refused(&(parts){.normalizer = "\"x\""}, FLETCH_EMODEL, "normalizer");
    expect_refused(&(parts){.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":3}"},
                   FLETCH_EMODEL, "pretokenizers");
    expect_refused(&(parts){.post_processor = "{\"type\":\"BertProcessing\",\"sep\":[\"x\",2]}"},
                   FLETCH_EMODEL, "cls");
    expect_refused(
        &(parts){.post_processor =
                     "{\"type\":\"BertProcessing\",\"sep\":[\"x\",2],\"cls\":[\"y\",900]}"},
        FLETCH_EMODEL, "900");
    expect_refused(
        &(parts){
            .post_processor =
                "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"Q\"}},"
                "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{}}"},
        FLETCH_EMODEL, "Q");
    expect_refused(
        &(parts){.post_processor =
                     "{\"type\":\"TemplateProcessing\",\"single\":[],\"special_tokens\":{}}"},
        FLETCH_EUNSUPPORTED, "Sequence A");
    expect_refused(&(parts){.decoder = "{\"type\":\"WordPiece\",\"prefix\":\"##\"}"}, FLETCH_EMODEL,
                   "cleanup");
    expect_refused(&(parts){.added = "3"}, FLETCH_EMODEL, "added_tokens");
    expect_refused(&(parts){.added = "{\"id\":0,\"content\":\"[UNK]\"}"}, FLETCH_EMODEL,
                   "single_word");
}

Test(tokenizer, added_tokens_that_disagree_are_refused) {
    expect_refused(&(parts){.added = TOKEN(7, "[UNK]", false, false, false, false, true)},
                   FLETCH_EMODEL, "[UNK]");
    expect_refused(&(parts){.added = TOKEN(43, "new", false, false, false, false, true)},
                   FLETCH_EMODEL, "new");
    expect_refused(&(parts){.added = SPECIALS
                            "," TOKEN(42, "Q", false, false, false, true,
                                      false) "," TOKEN(43, "q", false, false, false, true, false)},
                   FLETCH_EMODEL, "normalisation");
    expect_refused(&(parts){.added = TOKEN(42, "\\u200b", false, false, false, true, true)},
                   FLETCH_EMODEL, "empty");
    expect_refused(&(parts){.added = TOKEN(42, " ", false, true, false, false, true)},
                   FLETCH_EUNSUPPORTED, "lstrip");
    fl_tokenizer *t = open_parts(
        &(parts){.added = SPECIALS "," TOKEN(42, "new", false, false, false, false, true)});
    cr_expect_eq(fl_tokenizer_vocab_size(t), 43);
    cr_expect_eq(fl_tokenizer_id(t, "new"), 42);
    cr_expect_eq(fl_tokenizer_id(t, "old"), -1);
    cr_expect_null(fl_tokenizer_token(t, 43, NULL));
    cr_expect_null(fl_tokenizer_token(t, -1, NULL));
    fl_tokenizer_close(t);
}

Test(tokenizer, vocab_txt_has_bert_around_it) {
    const char    vocab[] = "[PAD]\n[UNK]\r\n[CLS]\n[SEP]\nhello\n##x\nhello\n";
    fl_tokenizer *t;
    fletch_error  error;
    cr_assert_eq(
        fl_tokenizer_open_vocab(&t, vocab, sizeof vocab - 1, true, true, true, NULL, &error), 0);
    expect(t, "Hellox [SEP] y", "[CLS]|hello|##x|[SEP]|[UNK]|[SEP]");
    cr_expect_eq(fl_tokenizer_id(t, "hello"), 6); /* the later line */
    cr_expect_null(fl_tokenizer_token(t, 4, NULL));
    fl_tokenizer_close(t);
    cr_expect_eq(fl_tokenizer_open_vocab(&t, "a\nb\n", 4, true, true, true, NULL, &error),
                 FLETCH_EMODEL);
    cr_expect_eq(fl_tokenizer_open_vocab(&t, "", 0, true, true, true, NULL, &error), FLETCH_EMODEL);
    cr_expect_eq(fl_tokenizer_open_vocab(&t, "\xff\n", 2, true, true, true, NULL, &error),
                 FLETCH_EMODEL);
}

/* Letters at the end of a vocabulary of `lines` lines; a word of them is taken from the text the first time
 * and from the cache of chunks after that, whatever the ids' size and number. */
static void expect_remembered(size_t lines, unsigned letters) {
    fl_buf            vocab = {0}, text = {0};
    int32_t           ids[64];
    size_t            count;
    bool              cut;
    fletch_error      error;
    fl_tokenizer     *t;
    fl_encode_options plain = {0};
    fl_buf_puts(&vocab, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n");
    for (size_t i = 4; i + 2 < lines; i++)
        fl_buf_printf(&vocab, "filler%zu\n", i);
    fl_buf_puts(&vocab, "\xD0\xB4\n##\xD0\xB4\n");
    for (unsigned i = 0; i < 3 * letters; i++)
        fl_buf_puts(&text, i > 0 && i % letters == 0 ? " \xD0\xB4" : "\xD0\xB4");
    cr_assert_eq(
        fl_tokenizer_open_vocab(&t, vocab.data, vocab.size, true, true, true, NULL, &error), 0);
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    cr_assert_eq(fl_tokenizer_encode(t, scratch, text.data, text.size, &plain, ids, 64, &count,
                                     &cut, &error),
                 0);
    cr_assert_eq(count, 3 * letters + 2);
    for (unsigned i = 0; i < 3 * letters; i++) {
        cr_expect_eq(ids[i + 1], (int32_t)lines - (i % letters == 0 ? 2 : 1), "%zu lines, id %u",
                     lines, i);
    }
    fl_token_scratch_free(scratch);
    fl_tokenizer_close(t);
    fl_buf_free(&vocab);
    fl_buf_free(&text);
}

Test(tokenizer, a_word_that_comes_again_gives_the_same_ids) {
    static const size_t   lines[]   = {100, 65536, 65537};
    static const unsigned letters[] = {1, 7, 8, 14, 15};
    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++)
        for (unsigned k = 0; k < sizeof letters / sizeof *letters; k++)
            expect_remembered(lines[i], letters[k]);
}

/* Words, marks that need sorting, Chinese, specials, a long word: everything that may want a buffer. */
static size_t rich_text(char *out, size_t capacity) {
    static const char line[] = "Hello [SEP] W\xC3\xB6rld \xE6\x97\xA5\xE6\x9C\xAC "
                               "a\xCC\xA3\xCC\x81\xE3\x80\xAE\xE3\x80\xAF. ";
    size_t            size   = 0;
    while (size + sizeof line + 300 < capacity) {
        memcpy(out + size, line, sizeof line - 1);
        size += sizeof line - 1;
    }
    memset(out + size, 'x', 300);
    return size + 300;
}

Test(tokenizer, a_second_encode_allocates_nothing) {
    fl_tokenizer     *t       = open_parts(&(parts){.post_processor = cls_sep});
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    static char       text[20000];
    static int32_t    ids[20003];
    static uint32_t   offsets[2 * 20003];
    static uint8_t    special[20003];
    size_t            size   = rich_text(text, sizeof text), count;
    uint64_t          before = 0;
    bool              cut;
    fletch_error      error;
    for (unsigned round = 0; round < 2; round++) {
        before = fl_alloc_count();
        for (unsigned left = 0; left < 2; left++) {
            for (uint32_t length = 0; length < 600; length += 200) {
                fl_encode_options o = {length, left ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT, false};
                cr_assert_eq(fl_tokenizer_encode(t, scratch, text, size, &o, ids, 20003, &count,
                                                 &cut, &error),
                             0);
                cr_assert_eq(fl_tokenizer_encode_offsets(t, scratch, text, size, &o, ids, offsets,
                                                         special, 20003, &count, &cut, &error),
                             0);
            }
        }
    }
    cr_expect_eq(fl_alloc_count(), before);
    fl_token_scratch_free(scratch);
    fl_tokenizer_close(t);
}

Test(tokenizer, every_failed_allocation_is_an_error) {
    fl_buf       json = {0};
    fletch_error error;
    write_json(
        &json,
        &(parts){
            .normalizer =
                "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"q\"},"
                "{\"type\":\"NFD\"},{\"type\":\"Lowercase\"}]}",
            .post_processor = cls_sep,
            .added          = SPECIALS "," TOKEN(42, "NEW", false, false, false, true, false)});
    for (uint64_t n = 1;; n++) {
        fl_tokenizer     *t       = NULL;
        fl_token_scratch *scratch = NULL;
        size_t            count;
        bool              cut;
        int32_t           ids[64];
        fl_buf            copy = {0};
        fl_buf_append(&copy, json.data, json.size);
        uint64_t before = fl_alloc_count();
        fl_alloc_fail_after(n);
        int status = fl_tokenizer_open(&t, &copy, NULL, &error);
        if (status == 0) {
            scratch = fl_token_scratch_new(t);
            status  = FLETCH_ENOMEM;
        }
        if (scratch != NULL) {
            const fl_encode_options all = {0};
            status = fl_tokenizer_encode(t, scratch, "new \xC3\xA9\xCC\x81 a", 10, &all, ids, 64,
                                         &count, &cut, &error);
        }
        uint64_t made = fl_alloc_count() - before;
        fl_alloc_fail_after(0);
        fl_token_scratch_free(scratch);
        fl_tokenizer_close(t);
        if (made < n) { /* the n-th allocation never came: all of them have failed once */
            cr_expect_eq(status, 0);
            break;
        }
        cr_expect(status == 0 || status == FLETCH_ENOMEM, "allocation %lu: %d", (unsigned long)n,
                  status);
    }
    fl_buf_free(&json);
}
