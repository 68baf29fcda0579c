/* SPDX-License-Identifier: Apache-2.0 */
/* wordlevel.c - the simplest model: a word is a token, or unknown. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "tokenizer/parse.h"

typedef struct wordlevel {
    const fl_vocab *vocab;
    int32_t         unk;
} wordlevel;

static int open_wordlevel(fl_tokenizer *tokenizer, void **state, fl_json_reader *model,
                          const fl_log *log) {
    const char *unk = fl_need_string(model, "unk_token");
    FL_TRY(model->status);
    FL_TRY(fl_parse_vocab(tokenizer, model, log));
    wordlevel *w = fl_alloc_zero(1, sizeof *w);
    *state       = w;
    if (w == NULL)
        return fl_fail_nomem(model->error, sizeof *w, "the model");
    w->vocab = &tokenizer->vocab;
    w->unk   = fl_vocab_find(w->vocab, unk, strlen(unk));
    return w->unk >= 0 ? 0
                       : fl_fail(model->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: unk_token \"%s\" is not in model.vocab", model->source, unk);
}

static void measure(const void *state, size_t size, size_t *tokens, size_t *work) {
    (void)state, (void)size;
    *tokens = 1;
    *work   = 0;
}

static size_t encode_word(const void *state, void *work, const char *word, size_t size,
                          fl_word_token *tokens, fl_stop *stop) {
    const wordlevel *w  = state;
    int32_t          id = fl_vocab_find(w->vocab, word, size);
    (void)work;
    (void)stop;
    tokens[0] = (fl_word_token){id >= 0 ? id : w->unk, 0, (uint32_t)size};
    return 1;
}

const fl_token_model fl_wordlevel_model = {"WordLevel", open_wordlevel, NULL,
                                           fl_free,     measure,        encode_word};
