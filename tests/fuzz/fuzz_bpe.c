/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_bpe.c - any text through byte pair encoding, both paths against each other.
 *
 * The first byte chooses one of three small tokenizers: byte-level with GPT-2's pattern, NFC and added tokens of both
 * kinds; byte-level with Qwen's pattern; SentencePiece's with bytes to fall back on. Whatever comes in, the path
 * for ids alone gives the ids of the one with offsets, whole and cut, and offsets lie in the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KINDS = 3, SIZE_MOST = 20000 };

static const char merges[] = "\"merges\":[[\"a\",\"b\"],[\"ab\",\"a\"],[\"b\",\"b\"],[\"ab\","
                             "\"ab\"],[\"a\",\"a\"],[\"aa\",\"aa\"]]";
static const char tokens[] =
    "\"ab\":256,\"aba\":257,\"bb\":258,\"abab\":259,\"aa\":260,\"aaaa\":261";
static const char qwen[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
                           "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*"
                           "|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+";
static const char byte_level[] =
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":%s}";
static const char added[] =
    "{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
    "\"normalized\":%s,\"special\":false}";

/* All characters of the byte-level alphabet, or "<0x00>" to "<0xFF>", as ids 0 to 255. */
static void write_bytes(fl_buf *json, int kind) {
    for (unsigned byte = 0; byte < 256; byte++) {
        if (kind == 2) {
            fl_buf_printf(json, "\"<0x%02X>\":%u,", byte, byte);
            continue;
        }
        char     text[5]               = "";
        uint32_t cp                    = fl_bpe_char_of_byte((uint8_t)byte);
        text[fl_utf8_encode(cp, text)] = '\0';
        fl_buf_printf(json, "\"%s%s\":%u,", cp == '"' || cp == '\\' ? "\\" : "", text, byte);
    }
}

static fl_tokenizer *open_kind(int kind) {
    fl_buf        json = {0};
    fl_tokenizer *t;
    if (kind < 2) {
        fl_buf_puts(&json, "{\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\":[");
        fl_buf_printf(&json, added, 262, "<s>", "false");
        fl_buf_puts(&json, ",");
        fl_buf_printf(&json, added, 263, "  ", "true");
        fl_buf_puts(&json, "],\"pre_tokenizer\":");
        if (kind == 1) {
            fl_buf_printf(&json,
                          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                          "\"pattern\":{\"Regex\":\"%s\"},"
                          "\"behavior\":\"Isolated\",\"invert\":false},",
                          qwen);
        }
        fl_buf_printf(&json, byte_level, kind == 0 ? "true" : "false");
        fl_buf_puts(&json, kind == 1 ? "]}," : ",");
    } else {
        fl_buf_puts(&json, "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\","
                           "\"prepend_scheme\":\"first\","
                           "\"split\":false},");
    }
    fl_buf_printf(&json, "\"model\":{\"type\":\"BPE\",\"byte_fallback\":%s,%s,\"vocab\":{",
                  kind == 2 ? "true" : "false", merges);
    write_bytes(&json, kind);
    fl_buf_puts(&json, kind == 2 ? "\"a\":262,\"b\":263,\"\u2581\":264," : "");
    fl_buf_printf(&json, "%s}}}", tokens);
    fletch_error error;
    if (fl_tokenizer_open(&t, &json, NULL, &error) < 0)
        abort();
    fl_buf_free(&json);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fl_tokenizer     *kinds[KINDS];
    static fl_token_scratch *scratch[KINDS];
    static int32_t           ids[4 * SIZE_MOST], fast[4 * SIZE_MOST];
    static uint32_t          offsets[8 * SIZE_MOST];
    static uint8_t           special[4 * SIZE_MOST];
    if (size < 1 || size > SIZE_MOST / 2 ||
        fl_utf8_valid_prefix((const char *)data + 1, size - 1) != size - 1)
        return 0;
    int kind = data[0] % KINDS;
    if (kinds[kind] == NULL) {
        kinds[kind]   = open_kind(kind);
        scratch[kind] = fl_token_scratch_new(kinds[kind]);
    }
    for (uint32_t length = 0; length < 12; length += 5) {
        fl_encode_options o = {length, length == 5 ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT, false};
        size_t            count, fast_count;
        bool              cut, fast_cut;
        if (fl_tokenizer_encode_offsets(kinds[kind], scratch[kind], (const char *)data + 1,
                                        size - 1, &o, ids, offsets, special, 4 * SIZE_MOST, &count,
                                        &cut, NULL) < 0 ||
            fl_tokenizer_encode(kinds[kind], scratch[kind], (const char *)data + 1, size - 1, &o,
                                fast, 4 * SIZE_MOST, &fast_count, &fast_cut, NULL) < 0 ||
            count != fast_count || cut != fast_cut || memcmp(ids, fast, count * sizeof *ids) != 0)
            abort();
        for (size_t i = 0; i < count; i++)
            if (offsets[2 * i] > offsets[2 * i + 1] || offsets[2 * i + 1] >= size)
                abort();
    }
    return 0;
}
