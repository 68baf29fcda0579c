/* SPDX-License-Identifier: Apache-2.0 */
/* parse.h - from the tree of tokenizer.json to the steps of a pipeline.
 *
 * Role     tokenizer.c opens a file through fl_parse_root; the parts live in two files because the steps
 *          (parse_steps.c) change when a kind is added and the vocabulary (parse.c) does not.
 * Errors   FLETCH_EMODEL names file and key; FLETCH_EUNSUPPORTED names the kind that is not supported. */
#ifndef FL_TOKENIZER_PARSE_H
#define FL_TOKENIZER_PARSE_H

#include "base/json.h"
#include "tokenizer/pipeline.h"

/* All of it, except the finishing that tokenizer.c does. */
int fl_parse_root(fl_tokenizer *tokenizer, fl_json *root, const fl_tokenizer_options *options,
                  fletch_error *error);
/* The ids of the named tokens, once all tokens are there. */
void fl_token_names(fl_tokenizer *tokenizer, const char *const token[FL_TOKEN_NAMED]);

/* One added token in the order of the file; `id` must be the one that the reference would give. */
typedef struct fl_added_builder {
    fl_tokenizer *tokenizer;
    fl_vocab      names; /* content -> index into added.tokens */
    uint32_t      next_id;
    fl_runes      runes;
} fl_added_builder;

int  fl_added_begin(fl_added_builder *builder, fl_tokenizer *tokenizer, size_t count,
                    size_t text_bytes, const char *source, fletch_error *error);
int  fl_added_put(fl_added_builder *builder, const fl_added_token *token, const char *source,
                  fletch_error *error); /* copies token->content[length] */
int  fl_added_finish(fl_added_builder *builder, const char *source, fletch_error *error);
void fl_added_end(fl_added_builder *builder); /* idempotent */

/* parse_steps.c: each may be absent or null in the file. */
int fl_parse_steps(fl_tokenizer *tokenizer, fl_json_reader *root); /* normalizer, pre_tokenizer */
/* template.c */
int  fl_parse_post_processor(fl_tokenizer *tokenizer, fl_json_reader *root);
void fl_template_bert(fl_tokenizer *tokenizer, int32_t cls, int32_t sep);

/* How often a byte is in a table that is still text: no fewer members or items than their marks. */
size_t fl_count_byte(const fl_json_in *in, char byte);
/* The model's object {token: id} into tokenizer->vocab. */
int fl_parse_vocab(fl_tokenizer *tokenizer, fl_json_reader *model, const fl_log *log);

/* "PART "KIND" is not supported; supported: KNOWN" and "KEY is missing" as the reader's status. */
int fl_refuse(fl_json_reader *reader, const char *part, const char *kind, const char *known);
int fl_missing(fl_json_reader *reader, const char *key);

/* Readers for keys that must be there. */
bool        fl_need_bool(fl_json_reader *reader, const char *key);
int64_t     fl_need_int(fl_json_reader *reader, const char *key, int64_t max); /* 0..max */
const char *fl_need_string(fl_json_reader *reader, const char *key); /* "" after an error */

#endif
