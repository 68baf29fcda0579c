/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - what the files beside tokenizer.json change: tokenizer_config.json, special_tokens_map.json,
 * added_tokens.json, and the class that they name.
 *
 * Why      What counts where the files disagree depends on the class and on the version of transformers
 *          (token_class.h): fletch follows what both compute, so that no folder gives other ids in silence.
 * Order    read (before the pipeline is built), then the pipeline with the added tokens that `extra` lists,
 *          then steps (which patches the normaliser and compares the rest) and template.
 * Proof    tests/golden/test_odd_folders.py: some 2,500 folders, each key alone and in pairs. */
#ifndef FL_TOKENIZER_SETTINGS_H
#define FL_TOKENIZER_SETTINGS_H

#include "tokenizer/parse.h"
#include "tokenizer/token_class.h"

typedef struct fl_token_settings {
    const fl_token_class *class;  /* NULL: no folder, tokenizer.json as it is */
    fl_json *config, *map, *more; /* owned: the three files; NULL where one is missing */
    bool     config_borrowed;
    fl_added_token
          *extra; /* owned: tokens to add after the file's; content is borrowed from the files */
    size_t extra_count;
    bool   split_special; /* special tokens in a text are ordinary text */
    bool   left;          /* truncation_side */
    bool   forced;        /* transformers 5 takes the class whatever the folder names */
    bool   ends;          /* fl_tokenizer_options.ends */
    bool   as_saved;      /* transformers 5 takes tokenizer.json as it is */
    char   path[3][1024]; /* of the files, for messages */
} fl_token_settings;

/* Read the files of the options' folder (NULL: none are looked for) beside the parsed tokenizer.json `root`. */
int  fl_token_settings_read(fl_token_settings *settings, const fl_tokenizer_options *options,
                            fl_json_reader *root);
void fl_token_settings_free(fl_token_settings *settings); /* idempotent */

/* The normaliser by the class's arguments; EUNSUPPORTED where another part of tokenizer.json is not what the
 * class builds. Before added tokens are normalised. */
int fl_token_settings_steps(const fl_token_settings *settings, fl_tokenizer *tokenizer,
                            fl_json_reader *root);
/* `what` of tokenizer.json is not the class's: EUNSUPPORTED as the reader's status. */
int fl_token_settings_differ(const fl_token_settings *settings, fl_json_reader *root,
                             const char *what);
/* The token that the files, or the class that they name, have for a role; NULL: none. */
const char *fl_token_settings_token(const fl_token_settings *settings,
                                    unsigned                 which); /* FL_BOS … */
const char *fl_token_settings_named(const fl_token_settings *settings, fl_named_token which);
/* The same for the template, once it is there; that of pairs is refused when one is asked for. */
int fl_token_settings_template(const fl_token_settings *settings, fl_tokenizer *tokenizer,
                               fl_json_reader *root);

#endif
