/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenizer_text.c - any text through BERT's pipeline, Unigram in SentencePiece's, and whole words.
 *
 * The first byte picks the flags, the second the length; the rest, repaired to UTF-8, is the text. The
 * fast path must give what the exact path gives, offsets must lie in the text in order, and no buffer
 * that the contract calls large enough may be too small. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BERT_KINDS = 32, UNIGRAM_KINDS = 64, KINDS = 72 };

/* JSON as it would stand in a file. */
/* clang-format off */
#define ADDED(id, text, word, left, right, special)                                                \
    "{\"id\":" #id ",\"content\":\"" text "\",\"single_word\":" #word ",\"lstrip\":" #left         \
    ",\"rstrip\":" #right ",\"special\":" #special ",\"normalized\":false}"

static const char bert[] =
    "{\"added_tokens\":[" ADDED(0, "[UNK]", false, true, false, true) ","
                          ADDED(1, "ab", true, false, true, false) ","
                          ADDED(22, "a b", false, true, true, false) "],"
    "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":%s,\"handle_chinese_chars\":%s,"
                    "\"strip_accents\":%s,\"lowercase\":%s},"
    "\"pre_tokenizer\":{\"type\":\"%s\"},"
    "\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"x\",0],\"cls\":[\"y\",0],"
                        "\"trim_offsets\":true,\"add_prefix_space\":false},"
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
               "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":12,"
               "\"vocab\":{\"[UNK]\":0,\"ab\":1,\"a\":2,\"##a\":3,\"b\":4,\"##b\":5,\"##aab\":6,"
                          "\"aa\":7,\".\":8,\"e\":9,\"##e\":10,\"\\u00e9\":11,\"\\u65e5\":12,"
                          "\"##\\u0301\":13,\"\\u302e\":14,\"##\\u302e\":15,\"##\\u302f\":16,"
                          "\"##\\u0323\":17,\"[\":18,\"]\":19,\"\\u0120\":20,\"##c\":21}}}";

/* Letters, marks and bytes as pieces, so that ties, unknown runs and byte_fallback come often. */
static const char unigram[] =
    "{\"added_tokens\":[" ADDED(1, "ab", true, false, true, false) "],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s{\"type\":\"Metaspace\","
                       "\"replacement\":\"\\u2581\",\"prepend_scheme\":\"%s\"}]},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":%s,"
               "\"vocab\":[[\"<unk>\",0],[\"ab\",-2],[\"a\",-1],[\"b\",-1],[\"\\u2581\",-3],"
                          "[\"\\u2581a\",-4],[\"\\u00e9\",-2.5],[\"e\",-2],[\"\\u0301\",-0.5],"
                          "[\"\\u65e5\",-5],[\".\",-1],[\"<0xC3>\",-9],[\"<0xA9>\",-9],"
                          "[\"ba\",-2]]}}";

static const char words[] =
    "{\"added_tokens\":[" ADDED(1, "ab", true, false, true, false) "],"
    "\"normalizer\":{\"type\":\"%s\"},\"pre_tokenizer\":{\"type\":\"%s\"%s},"
    "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"<unk>\","
               "\"vocab\":{\"<unk>\":0,\"ab\":1,\"a\":2,\"b\":3,\"ba\":4,\"\\u00e9\":5,\"e\":6,"
                          "\".\":7,\"\\u65e5\":8,\"1\":9,\"12\":10}}}";
/* clang-format on */

static const char *yes(unsigned bit) {
    return bit ? "true" : "false";
}

/* Opened once per kind and kept: opening is the other target's business. */
static const fl_tokenizer *tokenizer_of(unsigned kind) {
    static fl_tokenizer *opened[KINDS];
    if (opened[kind] == NULL) {
        fl_tokenizer_options options = {.cache_bytes = 1024};
        fl_buf               json    = {0};
        fletch_error         error;
        if (kind < BERT_KINDS)
            fl_buf_printf(&json, bert, yes(kind & 1), yes(kind & 2), yes(kind & 4), yes(kind & 8),
                          kind & 16 ? "WhitespaceSplit" : "BertPreTokenizer");
        else if (kind < UNIGRAM_KINDS)
            fl_buf_printf(&json, unigram,
                          kind & 1 ? "{\"type\":\"Nmt\"},{\"type\":\"NFKC\"}"
                                   : "{\"type\":\"NFC\"}",
                          kind & 2 ? "{\"type\":\"WhitespaceSplit\"}," : "",
                          kind & 4   ? "first"
                          : kind & 8 ? "never"
                                     : "always",
                          yes(kind & 16));
        else
            fl_buf_printf(&json, words, kind & 1 ? "Lowercase" : "NFC",
                          kind & 2   ? "WhitespaceSplit"
                          : kind & 4 ? "Digits"
                                     : "Whitespace",
                          kind & 4 ? ",\"individual_digits\":true" : "");
        if (fl_tokenizer_open(&opened[kind], &json, &options, &error) < 0)
            abort();
        fl_buf_free(&json);
    }
    return opened[kind];
}

static void check(const fl_tokenizer *t, const char *text, size_t size,
                  const fl_encode_options *o) {
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    size_t            room    = fl_tokenizer_ids_max(t, size);
    room                      = o->max_length > 0 && o->max_length < room ? o->max_length : room;
    room              = room < fl_tokenizer_special_count(t) ? fl_tokenizer_special_count(t) : room;
    int32_t     *ids  = malloc(room * sizeof *ids);
    int32_t     *fast = malloc(room * sizeof *fast);
    uint32_t    *offsets = malloc(room * 2 * sizeof *offsets);
    uint8_t     *special = malloc(room);
    size_t       count, fast_count;
    bool         cut, fast_cut;
    fletch_error error;
    if (scratch == NULL || ids == NULL || fast == NULL || offsets == NULL || special == NULL)
        abort();
    if (fl_tokenizer_encode_offsets(t, scratch, text, size, o, ids, offsets, special, room, &count,
                                    &cut, &error) < 0 ||
        fl_tokenizer_encode(t, scratch, text, size, o, fast, room, &fast_count, &fast_cut, &error) <
            0)
        abort();
    if (count != fast_count || cut != fast_cut || memcmp(ids, fast, count * sizeof *ids) != 0)
        abort();
    for (size_t i = 0; i < count; i++)
        if (offsets[2 * i] > offsets[2 * i + 1] || offsets[2 * i + 1] > size)
            abort();
    free(ids);
    free(fast);
    free(offsets);
    free(special);
    fl_token_scratch_free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    fl_buf            text = {0};
    fl_encode_options o    = {data[1] >> 2, data[1] & 1 ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT,
                              (data[1] & 2) != 0};
    fl_utf8_replace_invalid(&text, (const char *)data + 2, size - 2);
    check(tokenizer_of(data[0] % KINDS), text.data, text.size, &o);
    fl_buf_free(&text);
    return 0;
}
