/* SPDX-License-Identifier: Apache-2.0 */
/* test_chunks.c - fletch_chunk on small model folders: no byte is lost, no chunk is longer than asked by the
 * tokenizer's own count, what cannot be is refused, and who asks to stop is obeyed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fletch.h"
#include "patience.h"

#define PLAIN "tests/golden/folders/pooling-cls"

enum { LONG = 300000 };

static int chunk(fletch_model *model, const char *text, fletch_chunk_by by, uint32_t max_tokens,
                 uint32_t overlap, fletch_chunks **chunks) {
    fletch_chunk_options options = FLETCH_CHUNK_OPTIONS_INIT;
    fletch_error         error;
    options.by         = by;
    options.max_tokens = max_tokens;
    options.overlap    = overlap;
    return fletch_chunk(model, text, strlen(text), &options, chunks, &error);
}

/* `most` tokens in a chunk at most, by the tokenizer itself. */
static void expect_chunks(fletch_model *model, const char *text, size_t text_chars,
                          fletch_chunk_by by, uint32_t most) {
    fletch_chunks          *chunks;
    fletch_tokens          *tokens;
    fletch_error            error;
    fletch_tokenize_options bare = FLETCH_TOKENIZE_OPTIONS_INIT;
    size_t                  end = 0, chars = 0;
    bare.no_special_tokens = 1;
    cr_assert_eq(chunk(model, text, by, most, 0, &chunks), 0);
    for (size_t i = 0; i < chunks->count; i++) {
        cr_expect_eq(chunks->offsets[2 * i], end);
        cr_expect_eq(chunks->chars[2 * i], chars);
        end   = chunks->offsets[2 * i + 1];
        chars = chunks->chars[2 * i + 1];
        cr_assert_eq(fletch_tokenize(model, text + chunks->offsets[2 * i],
                                     end - chunks->offsets[2 * i], &bare, &tokens, &error),
                     0);
        cr_expect_eq(tokens->count, chunks->tokens[i]);
        cr_expect(tokens->count <= most || chars == chunks->chars[2 * i] + 1);
        fletch_tokens_free(tokens);
    }
    cr_expect_eq(end, strlen(text));
    cr_expect_eq(chars, text_chars);
    fletch_chunks_free(chunks);
}

/* WordPiece, whose words have the same tokens in any company, and byte pairs, whose words have not. */
Test(chunks, lie_end_to_end_and_are_no_longer_than_asked) {
    static const char *const folders[] = {PLAIN, "tests/golden/language/plain"};
    static const char        text[] =
        "The cat sat.   A dog ran at sea!\n\n# Rain \u00e9\u732b\u732b\n\nthe mat  \n";
    size_t         chars = sizeof text - 1 - 1 - 2 - 2; /* one of two bytes, two of three */
    fletch_model  *model = NULL;
    fletch_chunks *chunks;
    fletch_error   error;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        cr_assert_eq(fletch_open_tokenizer(&model, folders[f], NULL, &error), 0);
        for (int by = FLETCH_CHUNK_BY_SENTENCES; by <= FLETCH_CHUNK_BY_MARKDOWN; by++)
            for (uint32_t most = 1; most < 12; most++)
                expect_chunks(model, text, chars, (fletch_chunk_by)by, most);
        cr_assert_eq(chunk(model, "", FLETCH_CHUNK_BY_SENTENCES, 0, 0, &chunks), 0);
        cr_expect_eq(chunks->count, 0);
        fletch_chunks_free(chunks);
        fletch_close(model);
    }
}

Test(chunks, that_cannot_be_are_refused) {
    fletch_model        *model = NULL;
    fletch_chunks       *chunks;
    fletch_error         error;
    fletch_model_info    info    = {.size = sizeof info};
    fletch_chunk_options options = FLETCH_CHUNK_OPTIONS_INIT;
    cr_assert_eq(fletch_open(&model, PLAIN, NULL, &error), 0);
    cr_assert_eq(fletch_model_info_get(model, &info, &error), 0);
    cr_expect_eq(chunk(model, "a", FLETCH_CHUNK_BY_TOKENS, info.max_length - 2, 0, &chunks), 0);
    fletch_chunks_free(chunks);
    cr_expect_eq(chunk(model, "a", FLETCH_CHUNK_BY_TOKENS, info.max_length - 1, 0, &chunks),
                 FLETCH_EINVAL);
    cr_expect_null(chunks);
    cr_expect_eq(chunk(model, "a", FLETCH_CHUNK_BY_TOKENS, 4, 4, &chunks), FLETCH_EINVAL);
    cr_expect_eq(chunk(model, "a", FLETCH_CHUNK_BY_TOKENS, 0, UINT32_MAX, &chunks), FLETCH_EINVAL);
    cr_expect_eq(chunk(model, "a", (fletch_chunk_by)4, 4, 0, &chunks), FLETCH_EINVAL);
    cr_expect_eq(chunk(model, "ab\xff", FLETCH_CHUNK_BY_TOKENS, 4, 0, &chunks), FLETCH_EUTF8);
    cr_expect_eq(fletch_chunk(NULL, "a", 1, NULL, &chunks, &error), FLETCH_EINVAL);
    cr_expect_eq(fletch_chunk(model, NULL, 1, NULL, &chunks, &error), FLETCH_EINVAL);
    options.size = 0;
    cr_expect_eq(fletch_chunk(model, "a", 1, &options, &chunks, &error), FLETCH_EINVAL);
    fletch_close(model);
}

Test(chunks, of_a_long_document_are_given_up_when_asked_to) {
    fletch_model        *model = NULL;
    fletch_chunks       *chunks;
    fletch_error         error;
    patience             p       = {0, 0};
    fletch_chunk_options options = FLETCH_CHUNK_OPTIONS_INIT;
    char                *text    = malloc(LONG);
    options.stop                 = stop_after;
    options.stop_user            = &p;
    cr_assert_eq(fletch_open_tokenizer(&model, PLAIN, NULL, &error), 0);
    for (size_t at = 0; at < LONG; at++)
        text[at] = "dog. "[at % 5];
    cr_assert_eq(fletch_chunk(model, text, LONG, &options, &chunks, &error), 0);
    fletch_chunks_free(chunks);
    for (int enough = p.asked; enough > 0; enough -= 1 + enough / 2) {
        p = (patience){0, enough};
        cr_expect_eq(fletch_chunk(model, text, LONG, &options, &chunks, &error), FLETCH_ECANCELLED);
        cr_expect_eq(p.asked, enough, "asked no more");
        cr_expect_null(chunks);
    }
    free(text);
    fletch_close(model);
}
