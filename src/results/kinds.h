/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.h - the tables of the kinds, and what they share; for the files of this room. */
#ifndef FL_RESULTS_KINDS_H
#define FL_RESULTS_KINDS_H

#include "results/result.h"

extern const fl_result_ops fl_result_rows;          /* a vector a text */
extern const fl_result_ops fl_result_scores;        /* a number a label */
extern const fl_result_ops fl_result_tokens;        /* a vector a token */
extern const fl_result_ops fl_result_terms;         /* weights of words, by an engine's terms */
extern const fl_result_ops fl_result_token_weights; /* the same, by a layer over the tokens' rows */
extern const fl_result_ops fl_result_lookup;        /* the same, from a table */
extern const fl_result_ops fl_result_spans;         /* a vector a span of a document */
extern const fl_result_ops fl_result_colbert;       /* a vector a token, by a layer over its row */
extern const fl_result_ops fl_result_several;       /* several of these from one pass */
extern const fl_result_ops fl_result_late_vectors;  /* late interaction: a vector a token … */
extern const fl_result_ops fl_result_late_scores;   /* … and scores of those */

/* Rows of a text's tokens lie in its list. */
int fl_place_in_list(fl_answer *answer, size_t text, const int32_t *ids, size_t count,
                     float **rows);
/* The plan of rows, of texts or of spans. */
int fl_rows_resolve(fl_answer *answer, const fletch_request *asked, fletch_error *error);
/* Lists of what a call asks for, or drafts of it. */
int fl_answer_make_lists(fl_answer *answer, const fletch_request *asked, size_t columns,
                         bool drafts, fletch_error *error);
/* Scores are one a label and nothing else. */
int fl_check_scores(const fletch_request *asked, uint32_t labels, fletch_error *error);
/* The side of a prompt's name. */
fl_side fl_side_named(const char *prompt);
/* On which side a call's texts are: its prompt's name says. */
fl_side fl_side_of(const fl_results *results, const fletch_embed_options *options);
/* Of terms that are weights already: the light ones go, the others are the text's list. */
int fl_terms_finish(fl_answer *answer, size_t text, fl_terms *terms);
/* Of a sparse model: texts on the query's side are looked up where there is a table. */
void fl_lookup_resolve(fl_answer *answer, const fletch_request *asked);

/* What the tokenizer has of the model's settings. */
int fl_late_open(fl_results *results, const fl_tokenizer *tokenizer, fletch_error *error);
int fl_lookup_open(fl_results *results, const fl_tokenizer *tokenizer, fletch_error *error);
int fl_token_weights_open(fl_results *results, const fl_tokenizer *tokenizer, fletch_error *error);

#endif
