/* SPDX-License-Identifier: Apache-2.0 */
/* encode.h - one text of a request to the ids that an engine reads. */
#ifndef FL_REQUESTS_ENCODE_H
#define FL_REQUESTS_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "requests/request.h"
#include "requests/tokenize_task.h"

/* Whose texts, with what. */
typedef struct fl_encode_call {
    const fl_request *request;
    fl_tokenize_task *task;
    uint64_t          bytes; /* of text that were read */
    fletch_error     *error;
} fl_encode_call;

/* What is said of a text beside its ids. */
typedef struct fl_encoded {
    uint32_t tokens;  /* ids */
    uint32_t skip;    /* of these, left out of pooling at the head */
    uint32_t segment; /* the first of type 1; `tokens` where there is none */
    uint32_t keys;    /* attended to, from the first on */
    uint32_t shown;   /* tokens of the text, as its caller counts them */
    bool     cut;
} fl_encoded;

/* Ids that text `index` has at most. What cannot be read has one: fl_encode_item says why. */
size_t fl_encode_bound(const fl_request *request, size_t index);
/* Text `index` to ids[room], room for fl_encode_bound at least. EUTF8, EINVAL, ETOOLONG, ENOMEM, ECANCELLED. */
int fl_encode_item(fl_encode_call *call, size_t index, int32_t *ids, size_t room, fl_encoded *out);
/* The ids of the request's query behind its prompt, without what a template adds, in a buffer of the
 * model's input pool. */
int fl_encode_query(fl_request *request, fl_tokenize_task *task, fletch_error *error);

#endif
