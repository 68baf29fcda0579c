/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_chat_template.c - any bytes as the chat template of a language model that reranks.
 *
 * Whatever comes in, there are pieces or an error that says something, and nothing leaks. Pieces that passed are
 * texts that the model keeps, and messages of the roles that are known; two texts are never empty. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/model_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const fl_model *model, size_t size) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < model->chat_count; i++) {
        const fl_chat_piece *piece = &model->chat[i];
        if (piece->kind > FL_CHAT_SYSTEM || (piece->text == NULL && piece->kind != FL_CHAT_SYSTEM))
            abort();
        if (piece->kind == FL_CHAT_TEXT && piece->text[0] == '\0')
            abort();
        bytes += piece->text != NULL ? strlen(piece->text) : 0;
    }
    if (bytes > size * (1 + model->chat_count))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    fl_buf       text  = {0};
    fletch_error error = {0};
    fl_model    *model = fl_alloc_zero(1, sizeof *model);
    if (model == NULL)
        return 0;
    model->own = fl_alloc_zero(1, sizeof *model->own);
    fl_buf_append(&text, data, size);
    if (model->own != NULL && !text.failed) {
        if (fl_chat_compile(model, &text, "fuzz", &error) == 0)
            check(model, size);
        else if (error.code == 0 || error.message[0] == '\0')
            abort();
    }
    fl_buf_free(&text);
    fl_model_close(model);
    return 0;
}
