/* SPDX-License-Identifier: Apache-2.0 */
/* chat_text.c - a query and a document as the text of a chat, for language models that rerank.
 *
 * Role    tokenize.c's way to the ids of a pair where the model has a chat template.
 * Method  The pieces of the template (model/chat_template.c) with the two texts between them are one
 *         text, tokenised as a whole, for tokens may span the joints. A text that is cut loses the template's
 *         end, where the score is read; so it gets that back over its last tokens, as
 *         sentence-transformers does: the end is what the chats of two short texts have in common, counted
 *         in tokens from the right.
 * Memory  the tokenize task's text buffer; a few hundred ids for a text that is cut. Threads: as tokenize.c.
 * Proof   tests/golden/test_language.py. */
#include "requests/chat_text.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "requests/open_model.h"
#include "requests/tokenize_task.h"
#include "tokenizer/unicode.h"

/* White space to Python. */
static bool is_blank(const char *at) {
    unsigned size;
    uint32_t cp = fl_utf8_decode(at, &size);
    return fl_unicode_is_space(cp) || (cp >= 0x1C && cp <= 0x1F);
}

/* What of a text a piece takes; *cut: so many characters, and there are more. */
static fl_span taken(const fl_chat_piece *piece, const fl_span *text, uint32_t *cut) {
    fl_span out  = *text;
    size_t  left = piece->most, size = 0;
    if (piece->most == 0)
        return out;
    while (size < text->size && left > 0) {
        size++;
        while (size < text->size && ((unsigned char)text->data[size] & 0xC0) == 0x80)
            size++;
        left--;
    }
    *cut     = size < text->size ? piece->most : *cut;
    out.size = size;
    while (out.size > 0 && is_blank(out.data)) {
        unsigned first;
        fl_utf8_decode(out.data, &first);
        out.data += first;
        out.size -= first;
    }
    while (out.size > 0 && is_blank(out.data + fl_utf8_before(out.data, out.size)))
        out.size = fl_utf8_before(out.data, out.size);
    return out;
}

static int render(const fl_request *r, fl_buf *out, const fl_span *query, const fl_span *document,
                  uint32_t *cut, fletch_error *error) {
    const fl_model *model = r->model->model;
    fl_buf_clear(out);
    for (uint32_t i = 0; i < model->chat_count; i++) {
        const fl_chat_piece *piece = &model->chat[i];
        if (piece->kind == FL_CHAT_QUERY || piece->kind == FL_CHAT_DOCUMENT) {
            fl_span text = taken(piece, piece->kind == FL_CHAT_QUERY ? query : document, cut);
            fl_buf_append(out, text.data, text.size);
        } else if (piece->kind == FL_CHAT_SYSTEM && r->prompt_size > 0)
            fl_buf_append(out, r->prompt, r->prompt_size);
        else
            fl_buf_puts(out, piece->text);
    }
    return out->failed ? fl_fail_nomem(error, out->size, "a text of a chat") : FLETCH_OK;
}

size_t fl_chat_bytes(const fl_request *r, size_t query_size, size_t document_size) {
    const fl_model *model = r->model->model;
    size_t          bytes = 0;
    for (uint32_t i = 0; i < model->chat_count; i++) {
        const fl_chat_piece *piece = &model->chat[i];
        bytes += strlen(piece->text);
        if (piece->kind == FL_CHAT_QUERY)
            bytes += query_size;
        else if (piece->kind == FL_CHAT_DOCUMENT)
            bytes += document_size;
        else if (piece->kind == FL_CHAT_SYSTEM)
            bytes += r->prompt_size;
    }
    return bytes;
}

/* The ids of the chat of two fillers; *ids is new memory. */
static int encode_filler(const fl_request *r, fl_tokenize_task *task, const char *filler,
                         int32_t **ids, size_t *count, fletch_error *error) {
    const fl_tokenizer *tokenizer = r->model->tokenizer;
    fl_encode_options   whole     = {.no_special = true};
    fl_span             text      = {filler, strlen(filler)};
    fl_buf             *buf       = &task->text;
    uint32_t            most      = 0;
    bool                cut       = false;
    FL_TRY(render(r, buf, &text, &text, &most, error));
    size_t room = fl_tokenizer_ids_max(tokenizer, buf->size);
    *ids        = fl_alloc_array(room, sizeof **ids);
    if (*ids == NULL)
        return fl_fail_nomem(error, room * sizeof **ids, "the end of a chat");
    return fl_tokenizer_encode(tokenizer, task->scratch, buf->data, buf->size, &whole, *ids, room,
                               count, &cut, error);
}

/* The template's end over the last of ids[count]. */
static int restore_end(const fl_request *r, fl_tokenize_task *task, int32_t *ids, size_t count,
                       fletch_error *error) {
    int32_t *one = NULL, *two = NULL;
    size_t   ones = 0, twos = 0, same = 0;
    int      status = encode_filler(r, task, "0", &one, &ones, error);
    if (status == FLETCH_OK)
        status = encode_filler(r, task, "1 2 3 4", &two, &twos, error);
    size_t least = ones < twos ? ones : twos;
    while (status == FLETCH_OK && same < least && one[ones - 1 - same] == two[twos - 1 - same])
        same++;
    if (status == FLETCH_OK && same > 0 && same < least) {
        size_t kept = same < count ? same : count;
        memcpy(ids + count - kept, one + ones - kept, kept * sizeof *ids);
    }
    fl_free(one);
    fl_free(two);
    return status;
}

int fl_chat_encode(const fl_request *r, fl_tokenize_task *task, const fl_span *query,
                   const fl_span *document, int32_t *ids, size_t capacity, fl_pair *pair,
                   fletch_error *error) {
    fl_buf *text = &task->text;
    FL_TRY(render(r, text, query, document, &pair->characters, error));
    FL_TRY(fl_tokenizer_encode(r->model->tokenizer, task->scratch, text->data, text->size,
                               &r->encode, ids, capacity, &pair->count, &pair->truncated, error));
    pair->segment   = pair->count;
    pair->truncated = pair->truncated || pair->characters > 0;
    return pair->count >= r->encode.max_length ? restore_end(r, task, ids, pair->count, error)
                                               : FLETCH_OK;
}
