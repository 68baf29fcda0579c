/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenizer_json.c - any bytes as a tokenizer.json (and, after a first 'v', as a vocab.txt).
 *
 * Whatever comes in, opening gives a tokenizer or an error that says something, and leaks nothing; a
 * tokenizer that opened encodes and decodes a difficult text, on both paths alike, within the number
 * of ids that it promised. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] =
    "Hello [SEP]  <mask> w\xC3\xB6rld, a\xCC\xA3\xCC\x81 \xE6\x97\xA5\xE6\x9C\xAC [CLS]"
    "\xE3\x80\xAF\xE3\x80\xAE \xC4\xB0x\xE2\x80\x8By aaaaaaaaaaaaaaaaaaaaab ##ab\xEF\xAC\xAC";

static void use(const fl_tokenizer *t) {
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    size_t            room    = fl_tokenizer_ids_max(t, sizeof text - 1);
    int32_t          *ids     = malloc(room * sizeof *ids);
    int32_t          *fast    = malloc(room * sizeof *fast);
    uint32_t         *offsets = malloc(room * 2 * sizeof *offsets);
    uint8_t          *special = malloc(room);
    fl_buf            decoded = {0};
    fletch_error      error;
    for (uint32_t length = 0; length < 12; length += 5) {
        fl_encode_options o = {length, length == 5 ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT, false};
        size_t            count, fast_count;
        bool              cut, fast_cut;
        if (scratch == NULL || ids == NULL || fast == NULL || offsets == NULL || special == NULL)
            break;
        if (fl_tokenizer_encode_offsets(t, scratch, text, sizeof text - 1, &o, ids, offsets,
                                        special, room, &count, &cut, &error) < 0 ||
            fl_tokenizer_encode(t, scratch, text, sizeof text - 1, &o, fast, room, &fast_count,
                                &fast_cut, &error) < 0)
            abort();
        if (count != fast_count || cut != fast_cut || memcmp(ids, fast, count * sizeof *ids) != 0)
            abort();
        for (size_t i = 0; i < count; i++)
            if (ids[i] < 0 || (uint32_t)ids[i] >= fl_tokenizer_vocab_size(t) ||
                offsets[2 * i] > offsets[2 * i + 1] || offsets[2 * i + 1] >= sizeof text)
                abort();
        fl_buf_clear(&decoded);
        fl_tokenizer_decode(t, ids, count, length == 0, &decoded, &error);
    }
    fl_buf_free(&decoded);
    free(ids);
    free(fast);
    free(offsets);
    free(special);
    fl_token_scratch_free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_tokenizer *t;
    fletch_error  error = {0};
    int           status;
    if (size > 0 && data[0] == 'v')
        status = fl_tokenizer_open_vocab(&t, (const char *)data + 1, size - 1, true, true, true,
                                         NULL, &error);
    else {
        fl_buf json = {0};
        fl_buf_append(&json, data, size);
        status = fl_tokenizer_open(&t, &json, NULL, &error);
    }
    if (status == 0)
        use(t);
    else if (t != NULL || error.message[0] == '\0')
        abort();
    fl_tokenizer_close(t);
    return 0;
}
