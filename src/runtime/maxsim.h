/* SPDX-License-Identifier: Apache-2.0 */
/* maxsim.h - late interaction: vectors of tokens, and scores of them. */
#ifndef FL_RUNTIME_MAXSIM_H
#define FL_RUNTIME_MAXSIM_H

#include <stddef.h>

#include "runtime/request.h"

/* What the tokenizer has of the model's settings; the prompt of documents. */
int         fl_late_open(fletch_model *model, fletch_error *error);
const char *fl_late_document_prompt(const fletch_model *model);
/* The hidden rows in a text's list become the vectors of its tokens. EMODEL: one is not finite; ENOMEM,
 * ENOSPC. */
int fl_late_rows(fl_request *request, size_t text, float *const line[2]);
/* Of a request that reranks: those vectors become a score and are let go. */
int fl_late_score(fl_request *request, size_t text, float *score, fletch_error *error);
/* Embed the query of a request that reranks, which is held until then. (locked; unlocks) */
void fl_late_ask(fl_request *parent, fl_request **over);
/* The parent ended while it is held: its query is of no use. (locked) */
void fl_late_drop(fl_request *parent, fl_request **over);

#endif
