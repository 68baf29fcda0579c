/* SPDX-License-Identifier: Apache-2.0 */
/* token_model.h - what a model is to the pipeline: one word in, its tokens out.
 *
 * Role     WordPiece, Unigram and BPE each fill one table; model_kind.c chooses it by model.type. A model
 *          sees neither the text around a word nor offsets in it: it says which bytes of the word each token
 *          covers, and exact.c knows which bytes of the text those are.
 * Memory   The state is the model's own, immutable after open and shared by threads. What encode_word
 *          needs while it works it gets from the caller, who asks `measure` first.
 * Errors   open: FLETCH_EMODEL names file and key, FLETCH_EUNSUPPORTED what is not supported. */
#ifndef FL_TOKENIZER_TOKEN_MODEL_H
#define FL_TOKENIZER_TOKEN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/log.h"
#include "base/stop.h"

struct fl_tokenizer;

/* A token and the bytes [begin, end) of the word that it stands for. Neither ever goes back from one
 * token to the next; tokens that stand for single bytes of a character may share a place. */
typedef struct fl_word_token {
    int32_t  id;
    uint32_t begin, end;
} fl_word_token;

typedef struct fl_token_model {
    const char *type; /* as tokenizer.json names it */
    /* Fill tokenizer->vocab and *state from the object "model" of tokenizer.json. close is called after
     * a failure too. */
    int (*open)(struct fl_tokenizer *tokenizer, void **state, fl_json_reader *model,
                const fl_log *log);
    /* What else encode_word needs, when the text of the file is gone, so that both never lie in memory at once;
     * NULL: nothing. False: no memory. */
    bool (*prepare)(void *state);
    void (*close)(void *state); /* NULL is a no-op */
    /* What a word of `size` bytes needs at most: tokens, and bytes of working memory (64-byte aligned). */
    void (*measure)(const void *state, size_t size, size_t *tokens, size_t *work);
    /* The tokens of word[size], size > 0, valid UTF-8; how many there are; SIZE_MAX: no memory, or stopped.
     * 31 bytes after the word can be read. */
    size_t (*encode_word)(const void *state, void *work, const char *word, size_t size,
                          fl_word_token *tokens, fl_stop *stop);
} fl_token_model;

extern const fl_token_model fl_wordpiece_model, fl_unigram_model, fl_bpe_model, fl_wordlevel_model;

/* The kind that `model` of tokenizer.json is; NULL after an error. Files of before 2021 do not name it. */
const fl_token_model *fl_token_model_of(fl_json_reader *model);

#endif
