/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_chunks.c - any text cut into chunks, by every unit, size and overlap, with two tokenizers.
 *
 * The first byte picks tokenizer and unit, the next two size and overlap; the rest, repaired to UTF-8, is the
 * text. No byte may be lost, no chunk stand still, no character be torn, and no chunk have more tokens than
 * asked for, unless it is a single character, or other tokens than it says. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "tokenizer/chunker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOKENIZERS = 2, UNITS = FL_UNIT_WORD + 1 };

/* JSON as it would stand in a file: words in pieces, and spaces as pieces, of which text before and after a cut
 * has others than it had together. */
static const char *const files[TOKENIZERS] = {
    "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":"
    "true,"
    "\"strip_accents\":null,\"lowercase\":true},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##"
    "\","
    "\"max_input_chars_per_word\":12,\"vocab\":{\"[UNK]\":0,\"a\":1,\"##a\":2,\"b\":3,\"##b\":4,"
    "\"##aab\":5,\"aa\":6,\".\":7,\"#\":8,\"`\":9}}}",
    "{\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
    "\"\\u2581\",\"prepend_scheme\":\"always\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
    "\"vocab\":"
    "[[\"<unk>\",0],[\"ab\",-2],[\"a\",-1],[\"b\",-1],[\"\\u2581\",-3],[\"\\u2581a\",-4],[\"ba\",-"
    "2],"
    "[\".\",-1],[\"\\u2581\\u2581\",-4]]}}"};

static const fl_tokenizer *tokenizer_of(unsigned kind) {
    static fl_tokenizer *opened[TOKENIZERS];
    if (opened[kind] == NULL) {
        fl_tokenizer_options options = {.cache_bytes = 1024};
        fl_buf               json    = {0};
        fletch_error         error;
        fl_buf_puts(&json, files[kind]);
        if (fl_tokenizer_open(&opened[kind], &json, &options, &error) < 0)
            abort();
        fl_buf_free(&json);
    }
    return opened[kind];
}

static size_t count_tokens(const fl_tokenizer *t, fl_token_scratch *scratch, const char *text,
                           size_t size) {
    fl_encode_options options = {.no_special = true};
    size_t            count, room = fl_tokenizer_ids_max(t, size);
    int32_t          *ids = malloc(room * sizeof *ids);
    bool              cut;
    fletch_error      error;
    if (ids == NULL ||
        fl_tokenizer_encode(t, scratch, text, size, &options, ids, room, &count, &cut, &error) < 0)
        abort();
    free(ids);
    return count;
}

static void check_chunk(const char *text, const fl_chunk_span *chunk, const fl_chunk_span *last,
                        const fl_chunker_options *options) {
    unsigned length;
    (void)fl_utf8_decode(text + chunk->begin, &length);
    bool apart = ((unsigned char)text[chunk->begin] & 0xC0) != 0x80 &&
                 ((unsigned char)text[chunk->end] & 0xC0) != 0x80; /* the text ends with a NUL */
    bool fits  = chunk->tokens <= options->size || chunk->end - chunk->begin == length;
    bool moves = chunk->end > last->end && chunk->begin <= last->end &&
                 (last->end == 0 || chunk->begin > last->begin) &&
                 (options->overlap > 0 || chunk->begin == last->end);
    if (!apart || !fits || !moves)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fl_token_scratch *scratches[TOKENIZERS];
    if (size < 4)
        return 0;
    unsigned            kind    = data[0] % TOKENIZERS;
    const fl_tokenizer *t       = tokenizer_of(kind);
    uint32_t            most    = 1 + data[1] % 24;
    fl_chunker_options  options = {(fl_unit)(data[0] / TOKENIZERS % UNITS), most, data[2] % most};
    fl_buf              text    = {0};
    fl_chunker          chunker;
    fl_chunk_span       chunk, last = {0};
    fletch_error        error;
    int                 more;
    if (scratches[kind] == NULL)
        scratches[kind] = fl_token_scratch_new(t);
    fl_utf8_replace_invalid(&text, (const char *)data + 3, size - 3);
    if (scratches[kind] == NULL ||
        fl_chunker_open(&chunker, t, scratches[kind], text.data, text.size, &options, &error) < 0)
        abort();
    while ((more = fl_chunker_next(&chunker, &chunk, &error)) > 0) {
        check_chunk(text.data, &chunk, &last, &options);
        if (count_tokens(t, scratches[kind], text.data + chunk.begin, chunk.end - chunk.begin) !=
            chunk.tokens)
            abort();
        last = chunk;
    }
    if (more < 0 || last.end != text.size)
        abort();
    fl_chunker_close(&chunker);
    fl_buf_free(&text);
    return 0;
}
