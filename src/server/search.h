/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - what the stages of a /search hand on; search.c has them, passages.c the one that highlights.
 *
 * Memory  request memory. Threads: a request is in one stage at a time. */
#ifndef FL_SERVER_SEARCH_H
#define FL_SERVER_SEARCH_H

#include "server/seed.h"

/* One that is answered. */
typedef struct fl_found_row {
    int64_t        key;
    float          score;
    size_t         before;  /* its place before the reranker, from 1; 0: there was none */
    size_t         next;    /* of the same document; 0: none, since the first is none's next */
    fl_span        passage; /* data NULL: none */
    fl_chunk_place place;   /* its place in the document */
} fl_found_row;

/* A document among those that are answered. */
typedef struct fl_found_group {
    fl_span id;
    size_t  first, last, count; /* rows */
} fl_found_group;

/* A text that was read for a model. */
typedef struct fl_read_text {
    fl_span        text;
    fl_chunk_place place;
} fl_read_text;

typedef struct fl_search_work {
    fl_filter        filter;
    bool             filters, grouped;
    size_t           k, each, candidates;
    fl_served       *reranker; /* NULL: none */
    const char      *words;    /* for FTS5; NULL: none are looked for, or marked */
    size_t           word_count;
    size_t           searched;
    fl_hit          *hits; /* candidates, best first */
    size_t           hit_count;
    size_t          *before; /* [hit_count], as in a row; NULL: no reranker */
    fl_found_row    *rows;
    size_t           row_count;
    fl_found_group  *groups;
    size_t           group_count;
    fl_job          *reader; /* the second job of the request: of the reranker, or of passages */
    struct passages *passages;
} fl_search_work;

/* Go on with `stage` on a worker; `search`: it searches and does not only read. */
void fl_search_later(fl_http_request *request, fl_route_fn stage, bool search);

/* The text of an item; data NULL: it is gone or damaged. False: answered. */
bool fl_search_read(fl_http_request *request, int64_t key, fl_read_text *out);

/* A second job of the request: up to `most` texts for `served`. NULL: answered. */
fl_job *fl_search_reader(fl_http_request *request, fl_served *served, size_t columns, size_t most);
void    fl_search_add(fl_job *reader, fl_span text);

/* Stages. */
void fl_search_passages(
    fl_http_request *request); /* the best passage of each row, then the answer */
void fl_search_write(fl_http_request *request);

#endif
