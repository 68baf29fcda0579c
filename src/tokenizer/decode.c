/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c - ids become text again, as the reference's decode does.
 *
 * Role     fl_tokenizer_decode.
 * Method   WordPiece decoder: the first token stands as it is, a later one loses its "##" or gets a space
 *          in front. With cleanup, eleven plain replacements run over each token on its own, one after
 *          the other (so " do not" inside a token becomes " don't" also in "do notable"). Without
 *          a decoder the tokens are joined with spaces. An added token that is matched in normalised
 *          form decodes to that form.
 * Memory   One buffer for the token under work. Threads: any.
 * Proof    tests/golden/test_tokens.py. */
#include <string.h>

#include "base/error.h"
#include "tokenizer/pipeline.h"

static const struct {
    const char *from, *to;
} cleanups[] = {
    {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

/* Replace in token[from ..), in place: no replacement is longer than what it replaces. */
static void clean(fl_buf *token) {
    for (size_t c = 0; c < sizeof cleanups / sizeof *cleanups; c++) {
        size_t from_size = strlen(cleanups[c].from), to_size = strlen(cleanups[c].to);
        size_t out = 0, in = 0;
        while (in < token->size) {
            if (token->size - in >= from_size &&
                memcmp(token->data + in, cleanups[c].from, from_size) == 0) {
                memcpy(token->data + out, cleanups[c].to, to_size);
                out += to_size;
                in += from_size;
            } else {
                token->data[out++] = token->data[in++];
            }
        }
        token->size = out;
    }
}

/* One token's string as it appears in the text, appended to `token`. */
static void render(const fl_tokenizer *tokenizer, fl_buf *token, const char *text, size_t length,
                   bool first) {
    if (tokenizer->decode_wordpiece && !first) {
        size_t prefix = strlen(tokenizer->decode_prefix);
        if (length >= prefix && memcmp(text, tokenizer->decode_prefix, prefix) == 0) {
            text += prefix;
            length -= prefix;
        } else {
            fl_buf_putc(token, ' ');
        }
    } else if (!first) {
        fl_buf_putc(token, ' ');
    }
    fl_buf_append(token, text, length);
    if (tokenizer->decode_wordpiece && tokenizer->decode_cleanup && !token->failed) {
        clean(token);
    }
}

int fl_tokenizer_decode(const fl_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        bool skip_special, fl_buf *out, fletch_error *error) {
    fl_buf token  = {0};
    bool   first  = true;
    int    status = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        const fl_added_token *added  = fl_added_find(&tokenizer->added, ids[i]);
        size_t                length = 0;
        const char           *text   = fl_tokenizer_token(tokenizer, ids[i], &length);
        if (text == NULL) {
            status =
                fl_fail(error, FLETCH_EINVAL, i, "token id %d is not in the vocabulary (0 to %u)",
                        ids[i], tokenizer->id_limit - 1);
            break;
        }
        if (added != NULL && added->skipped && skip_special) {
            continue;
        }
        if (added != NULL && added->pattern != NULL) {
            text   = added->pattern;
            length = added->pattern_length;
        }
        fl_buf_clear(&token);
        render(tokenizer, &token, text, length, first);
        fl_buf_append(out, token.data, token.size);
        first = false;
        if (token.failed || out->failed) {
            status = fl_fail_nomem(error, out->size, "decoded text");
        }
    }
    fl_buf_free(&token);
    return status;
}
