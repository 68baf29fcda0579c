/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - what a caller asked for, and the blocks of tokenised texts it becomes.
 *
 * Life of a request (resolve.c, request.c, tokenize.c, block_owner.c)
 *   new -> resolved (what model, configuration and options say together) -> begun -> tokenised: its texts
 *   are tokenised block by block, never more than a window ahead -> its texts leave in batches ->
 *   finished text by text -> over, when every text is answered, or when it ended early (a bad text,
 *   cancelled, late) and none of its texts is in an engine or being tokenised -> delivered once.
 *
 * Memory  Requests are kept in a free list of the model; blocks are buffers of its pool. Texts,
 *         matrix and arrays stay the caller's.
 * Threads The fields under "progress" belong to whoever holds model->scheduler.lock; the others are written
 *         before the request begins and only read afterwards.
 * Proof   tests/unit/test_fletch.c, test_submit.c, tests/stress. */
#ifndef FL_REQUESTS_REQUEST_H
#define FL_REQUESTS_REQUEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/locked.h"
#include "fletch.h"
#include "model/model.h"
#include "requests/result_cache.h"
#include "results/result.h"
#include "scheduler/token_block.h"
#include "tokenizer/tokenizer.h"

/* Sizes of blocks: three steps for what is usual, so that requests of any size share a few buffers. */
enum {
    FL_TOKEN_BLOCK_SMALL  = 4096,
    FL_TOKEN_BLOCK_MIDDLE = 24 * 1024,
    FL_TOKEN_BLOCK_LARGE  = 96 * 1024
};

static inline size_t fl_token_block_bytes(size_t need) {
    if (need <= FL_TOKEN_BLOCK_SMALL)
        return FL_TOKEN_BLOCK_SMALL;
    if (need <= FL_TOKEN_BLOCK_MIDDLE)
        return FL_TOKEN_BLOCK_MIDDLE;
    return need <= FL_TOKEN_BLOCK_LARGE ? FL_TOKEN_BLOCK_LARGE : need;
}

struct fl_request {
    fletch_model *model;
    /* asked for */
    fletch_texts         texts;
    const int32_t       *token_ids; /* instead of texts, or NULL */
    const uint8_t       *are_ids;   /* or of some of them */
    fletch_embed_options options;
    fletch_lane          lane;
    uint64_t             owner;
    uint32_t             weight; /* 1 to FL_WEIGHT_MAX */
    const char          *query;
    size_t               query_size;
    fletch_texts         second; /* pairs: count is that of texts; 0: none */
    uint64_t             begin_ns;
    uint64_t             deadline_ns; /* UINT64_MAX: none */
    fletch_done_fn       done;        /* NULL: a caller waits in fletch_embed */
    void                *user;
    int (*stop)(void *user); /* or NULL; asked by who tokenises */
    void *stop_user;
    /* resolved */
    fl_answer         answer;
    fl_encode_options encode;
    const char       *prompt; /* "" for none */
    size_t            prompt_size;
    uint32_t          prompt_skip; /* its tokens, when they stay out of pooling */
    int32_t          *query_ids; /* of the query, prompt included; a buffer of the pool, or NULL */
    size_t            query_count, query_capacity; /* ids; bytes of the buffer */
    bool              pairs;                       /* each sequence is of two texts */
    bool              refuse_long;
    uint32_t         *same; /* [texts.count] the first text that equals each; NULL: no
                                              two are equal. A buffer of the pool */
    size_t            same_capacity;
    bool caller_runs; /* who tokenises it may run it too: no worker is woken for its last block */
    /* progress */
    fl_request     *before, *after; /* in model->live; `after` also links the free
                                 list and lists of requests that are over */
    fl_token_block *blocks FL_GUARDED;
    bool            held FL_GUARDED;         /* its query is being embedded: not tokenised yet */
    fletch_ticket   query_ticket FL_GUARDED; /* of the request that does */
    size_t          begun FL_GUARDED;        /* texts whose tokenising has begun */
    size_t          finished FL_GUARDED;     /* texts answered */
    uint64_t        ahead FL_GUARDED;        /* tokens tokenised and not finished: the window */
    uint32_t        tokenizing FL_GUARDED;   /* threads that tokenise for it now */
    uint32_t        running FL_GUARDED;      /* texts in an engine */
    bool            ended FL_GUARDED; /* failed, cancelled or late: no more of its texts leave */
    atomic_bool     dropped;          /* and not by one of its texts: read without the lock */
    bool            over FL_GUARDED;  /* nothing of it is under way: may be delivered */
    fletch_error    error FL_GUARDED; /* why it ended */
    uint64_t tokens FL_GUARDED, tokenize_ns FL_GUARDED, queue_ns FL_GUARDED, forward_ns FL_GUARDED;
    fletch_ticket  ticket FL_GUARDED;  /* 0: none */
    bool           waiting FL_GUARDED; /* it sleeps on `changed` and may be woken to run a batch */
    pthread_cond_t changed;            /* the waiting caller sleeps here */
};

/* Whether its results go through the model's cache. */
static inline bool fl_request_may_cache(const fl_request *request) {
    return request->answer.ops->cached && !request->options.no_cache;
}

/* Of a part of its request's answer: the key of a call for that alone, which leaves a prompt out of pooling only. */
static inline fl_cache_key fl_token_block_key(const fl_token_block *block, uint32_t k,
                                              const fl_answer *part) {
    bool all = part != &block->request->answer && !part->ops->pooled;
    return (fl_cache_key){.plan    = &part->plan,
                          .skip    = all ? 0 : block->skip[k],
                          .segment = block->segment[k],
                          .keys    = block->keys[k],
                          .count   = fl_token_block_length(block, k),
                          .ids     = block->ids + block->cu[k]};
}

static inline size_t fl_token_block_text(const fl_token_block *block, uint32_t k) {
    return block->first + block->index[k];
}

/* A request from the free list, all zero but the condition; NULL: out of
 * memory. */
fl_request       *fl_request_new(fletch_model *model, fletch_error *error);
FL_LOCKED void    fl_request_recycle(fl_request *request);
FL_UNCHECKED void fl_requests_free(fletch_model *model); /* the model is being closed */

FL_LOCKED void fl_request_begin(fl_request *request); /* joins model->live */

/* FLETCH_EDEADLINE, and its words. */
int fl_request_late(fletch_error *error);
/* Whether a request was cancelled or is late, or its caller wants it no more: the question that tokenising a
 * long text asks. And the error that says which. */
int fl_request_unwanted(void *request);
int fl_request_given_up(const fl_request *request, fletch_error *error);
/* Whether texts remain to be tokenised and the window has room. */
FL_LOCKED bool fl_request_wants_tokens(const fl_request *request);
/* A request ends early: its queued texts leave the queue. Nothing when it ended
 * before. */
FL_LOCKED void fl_request_end(fl_request *request, const fletch_error *error, fl_request **over);
/* The query of a request that ended while it is held: nobody wants it. */
FL_LOCKED void fl_request_end_query(fl_request *parent, fl_request **over);
/* Text `index` has no row: options.status says so, or the request ends. */
FL_LOCKED void fl_request_fail_text(fl_request *request, size_t index, const fletch_error *error,
                                    fl_request **over);
/* `texts` of it were answered, well or not. */
FL_LOCKED void fl_request_finish(fl_request *request, size_t texts, fl_request **over);
/* Put it on *over when nothing of it is under way; wakes its caller. */
FL_LOCKED void fl_request_settle(fl_request *request, fl_request **over);
/* `texts` texts of `block` from k on are answered; it goes back to the pool with its last one. */
FL_LOCKED void fl_token_block_finish(fl_token_block *block, uint32_t k, uint32_t texts);

/* Every request that is not over ends early, for one reason. */
FL_LOCKED void fl_requests_end_all(fletch_model *model, const fletch_error *why, fl_request **over);

/* Call `done` of every request on the list and recycle them. Not locked. */
void fl_requests_deliver(fletch_model *model, fl_request *over);

#endif
