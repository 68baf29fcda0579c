/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_pieces.c - any bytes as SentencePiece's BPE.
 *
 * The reader gives the text of a tokenizer.json or an error that says something, and leaks nothing. What the text opens
 * as gives the same ids by the fast path and by the exact one, within the room that the contract speaks of. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/piece_tokenizer.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] =
    "  A cat's \xEF\xAC\x81sh  ran<new>\xE2\x96\x81 e\xCC\x81 \xE2\x98\x83 aaaaab abab\n ";

static void check(const fl_tokenizer *t) {
    enum { SIZE = sizeof text - 1 };
    const fl_encode_options options = {0};
    fl_token_scratch       *scratch = fl_token_scratch_new(t);
    const size_t            room    = fl_tokenizer_ids_max(t, SIZE);
    int32_t                *ids     = malloc(room * sizeof *ids);
    int32_t                *fast    = malloc(room * sizeof *fast);
    uint32_t               *offsets = malloc(room * 2 * sizeof *offsets);
    uint8_t                *special = malloc(room);
    size_t                  count, fast_count;
    bool                    cut;
    fletch_error            error;
    if (scratch == NULL || ids == NULL || fast == NULL || offsets == NULL || special == NULL)
        abort();
    if (fl_tokenizer_encode_offsets(t, scratch, text, SIZE, &options, ids, offsets, special, room,
                                    &count, &cut, &error) < 0 ||
        fl_tokenizer_encode(t, scratch, text, SIZE, &options, fast, room, &fast_count, &cut,
                            &error) < 0)
        abort();
    if (count != fast_count || memcmp(ids, fast, count * sizeof *ids) != 0)
        abort();
    for (size_t i = 0; i < count; i++)
        if (offsets[2 * i] > offsets[2 * i + 1] || offsets[2 * i + 1] > SIZE)
            abort();
    free(ids);
    free(fast);
    free(offsets);
    free(special);
    fl_token_scratch_free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[2] = {"<s>", "</s>"};
    fl_buf                   json = {0}, file = {0};
    fletch_error             error  = {0};
    fl_json_reader           config = {.source = "fuzz", .error = &error};
    fl_json_w                w      = {.out = &json};
    fl_tokenizer            *t      = NULL;
    fl_buf_append(&file, data, size);
    int status = fl_piece_tokenizer_make(&w, &file, &config, names, "fuzz");
    if (status != 0 && (error.code != status || error.message[0] == '\0'))
        abort();
    if (status == 0) {
        const fl_tokenizer_options options = {.cache_bytes = 1024, .pieces = true};
        status                             = fl_tokenizer_open(&t, &json, &options, &error);
        if (status != 0 && (error.code != status || error.message[0] == '\0'))
            abort();
        if (status == 0)
            check(t);
        fl_tokenizer_close(t);
    }
    fl_buf_free(&json);
    fl_buf_free(&file);
    return 0;
}
