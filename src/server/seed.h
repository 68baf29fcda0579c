/* SPDX-License-Identifier: Apache-2.0 */
/* seed.h - what /add, /search and /items share: reading a body, refusing, writing an item.
 *
 * Role    seed.c has /add and /items, add_chunks.c cuts what is added into chunks, search.c has /search.
 * Memory  request memory. Threads: see server.h.
 * Proof   tests/server/test_store.py, test_search.py. */
#ifndef FL_SERVER_SEED_H
#define FL_SERVER_SEED_H

#include "server/embedding.h"
#include "store/store.h"

enum { FL_SEED_ID_MAX = 512 };

/* What an /add keeps: fl_job.extra. */
typedef struct fl_seed_added {
    fl_stored_item *documents; /* [document_count], as they were sent */
    size_t          document_count;
    fl_stored_item *items;  /* [job->count], what is kept of them: the same, or their chunks */
    size_t         *chunks; /* [document_count]: how many of them; NULL: they are whole */
    fl_documents    late;   /* whose spans the items are; count 0: each is a text of its own */
    fl_write        write;
} fl_seed_added;

/* What is wrong with chunk and context of an /add; then it is answered, and false. */
bool fl_split_check(fl_job *job);
/* The chunks of added->documents into added->items and the job's input, on a worker; false: answered. */
bool fl_split(fl_job *job);

/* The job of a body, with `extra` bytes of the route's own; NULL: answered. */
fl_job *fl_seed_read(fl_http_request *request, const fl_style *style, const fl_field *fields,
                     size_t extra);
/* How they are refused; a body of /search need not say its type. */
extern const fl_style fl_seed_style, fl_seed_style_untyped;

/* Both answer, and return false. */
bool fl_seed_refuse(fl_http_request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool fl_seed_no_memory(fl_http_request *request);

/* A reader over a value that fl_fields_read has checked and left as it was sent; its type. */
fl_json_type fl_seed_begin_raw(const fl_job *job, fl_json_in *in, fl_span raw);
void         fl_seed_take_one(fl_ask *ask);        /* source is all of its input */
bool         fl_seed_normalize(const fl_job *job); /* rows to length 1; false: answered */
void         fl_seed_submit(fl_job *job, fl_done_fn done);
void         fl_seed_fail_read(fl_http_request *request, const fletch_error *error);

/* For whom the store works. */
fl_asker fl_seed_asker(const fl_http_request *request);
/* What a call said that asks fl_request_over whether to stop: that it was stopped, but not why. */
void fl_seed_fail_stopped(fl_http_request *request, fletch_error *error);

/* Parts of an answer. An item that somebody else has damaged says so in its place. */
void fl_seed_put_store(fl_http_request *request);
void fl_seed_put_id(fl_buf *body, const fl_stored_item *item);
void fl_seed_put_place(fl_buf *body, const fl_chunk_place *place); /* "chunk", "bytes", "chars" */
void fl_seed_put_damage(fl_buf *body, const char *damage);
const char *fl_seed_put_text(fl_buf *body, const fl_stored_item *item);     /* NULL, or what is */
const char *fl_seed_put_metadata(fl_buf *body, const fl_stored_item *item); /* wrong with it */
uint64_t    fl_seed_size(const fl_stored_item *item); /* bytes that its answer is likely to have */

/* The route. */
void fl_seed_search(fl_http_request *request);

#endif
