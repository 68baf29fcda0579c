/* SPDX-License-Identifier: Apache-2.0 */
/* token_plan.h - what a tokenizer folder asks for, resolved once: the caller's options, the files beside tokenizer.json
 * (tokenizer_config.json, special_tokens_map.json, added_tokens.json) and the class that they name.
 *
 * Why      What counts where the files disagree depends on the class and on the version of transformers
 *          (token_class.h): fletch follows what both compute, so that no folder gives other ids in silence.
 * Order    made before the pipeline is built, and only read from then on: the pipeline with the added tokens that
 *          `extra` lists, then the checks of token_class.h.
 * Proof    tests/golden/test_odd_folders.py: some 2,500 folders, each key alone and in pairs. */
#ifndef FL_TOKENIZER_TOKEN_PLAN_H
#define FL_TOKENIZER_TOKEN_PLAN_H

#include "tokenizer/parse.h"
#include "tokenizer/token_class.h"

struct fl_token_plan {
    const fl_tokenizer_options *options; /* the caller's */
    const fl_token_class *class; /* without a folder one that takes tokenizer.json as it is */
    const char     *token[FL_TOKEN_NAMED]; /* of the files, or of the class; NULL: none */
    fl_added_token *extra; /* owned: to add after the file's; content is the files' */
    size_t          extra_count;
    /* The class's arguments, each with the class's default. */
    bool     lowercase, strip_accents, chinese_chars, keep_accents;
    bool     prefix_space, split_by_punct, legacy;
    bool     begins, ends;        /* a token stands before a text, after it */
    bool     split_special;       /* special tokens in a text are ordinary text */
    bool     left;                /* truncation_side */
    bool     as_saved;            /* transformers 5 takes tokenizer.json as it is */
    fl_json *config, *map, *more; /* owned but for the caller's config; NULL where one is missing */
    fl_json *decoder;             /* the config's added_tokens_decoder; NULL: it has none */
    char     path[1024];          /* of the config, for messages */
};

/* Make the plan of the options beside the parsed tokenizer.json `root`; the reader's status. */
int  fl_token_plan_make(fl_token_plan *plan, const fl_tokenizer_options *options,
                        fl_json_reader *root);
void fl_token_plan_free(fl_token_plan *plan); /* idempotent */

#endif
