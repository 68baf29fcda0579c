/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.h - texts to blocks of token ids in the queue. */
#ifndef FL_REQUESTS_TOKENIZE_H
#define FL_REQUESTS_TOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "requests/request.h"

/* Whether texts remain to be tokenised and the window has room. */
FL_LOCKED bool fl_request_wants_tokens(const fl_request *request);
/* Tokenise the next texts into blocks and queue them. Unlocks while it works. */
FL_LOCKED void fl_tokenize_next(fl_request *request, fl_request **over);
/* Likewise a few texts of the request with the fewest tokens ahead, the oldest among equals: a submitted
 * one that nobody tokenises, or, for who `helps`, any; false: none has room. (unlocks meanwhile) */
FL_LOCKED bool fl_tokenize_any(fletch_model *model, bool helps, fl_request **over);
/* Sizes of blocks: three steps for what is usual, so that requests of any size share a few buffers. */
enum {
    FL_TOKEN_BLOCK_SMALL  = 4096,
    FL_TOKEN_BLOCK_MIDDLE = 24 * 1024,
    FL_TOKEN_BLOCK_LARGE  = 96 * 1024
};
size_t fl_token_block_bytes(size_t need);
/* Take the working memory of one tokenising thread, and give it back; NULL: out of memory. In the middle of
 * long texts it is asked whether they are unwanted (NULL: nobody is). */
typedef struct fl_tokenize_task fl_tokenize_task;
fl_tokenize_task *fl_tokenize_task_take(fletch_model *model, int (*unwanted)(void *user),
                                        void *user, fletch_error *error);
void              fl_tokenize_task_give(fletch_model *model, fl_tokenize_task *task);
FL_UNCHECKED void fl_tokenize_tasks_free(fletch_model *model); /* the model is being closed */
fl_token_scratch *fl_tokenize_task_scratch(fl_tokenize_task *task);
fl_buf           *fl_tokenize_task_text(fl_tokenize_task *task); /* for texts in the making */
/* A tokenize task's question: the request was cancelled or is late, or its caller wants it no more. And the error
 * that says which. */
int fl_request_unwanted(void *request);
int fl_request_given_up(const fl_request *request, fletch_error *error);
/* The ids of `text` behind the request's prompt, without what a template adds, in a buffer of the
 * model's input pool. */
int fl_tokenize_query(fl_request *request, fl_tokenize_task *task, fletch_error *error);

#endif
