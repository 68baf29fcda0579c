/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.h - an open model: folder, tokenizer, queue, replicas, and what is kept between them.
 *
 * Life of a text
 *     request --feed--> chunk of token ids --queue--> batch --slot--> engine --output--> caller's row
 * fletch_embed and fletch_submit make requests (embed.c, submit.c); feeders tokenise them a window
 * ahead (feed.c); the queue decides when which texts leave (queue.c); a slot carries a batch through
 * an engine and finishes its rows (runner.c); replica.c keeps the engines. One lock guards what they
 * share; it is held for list work alone, never while tokenising, computing or calling back.
 *
 * Memory  Requests, feeders and chunks are kept and used again; slots are sized when they open.
 * Threads One per slot; one for housekeeping (deadlines, feeding of submitted requests, memory).
 *         Callers' threads tokenise, and carry a batch when that is quicker than waking a slot; the
 *         threads of several slots tokenise while there is nothing to carry.
 * Proof   tests/unit/test_fletch.c, test_queue.c, test_output.c; tests/stress;
 *         tests/golden/test_vectors.py. */
#ifndef FL_RUNTIME_RUNTIME_H
#define FL_RUNTIME_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json_in.h"
#include "base/thread.h"
#include "base/trace.h"
#include "config/config.h"
#include "engines/engine.h"
#include "fletch.h"
#include "model/model.h"
#include "runtime/adapt.h"
#include "runtime/bufpool.h"
#include "runtime/memory.h"
#include "runtime/queue.h"
#include "runtime/replica.h"
#include "runtime/request.h"
#include "runtime/stats.h"
#include "tokenizer/tokenizer.h"

/* A callback that runs now, on whose thread. */
typedef struct fl_delivery {
    struct fl_delivery *next;
    pthread_t           thread;
} fl_delivery;

/* Ways that a batch may go; the debug log names each when it is first gone. */
typedef enum fl_path {
    FL_PATH_IDS_IN_PLACE,
    FL_PATH_IDS_GATHERED,
    FL_PATH_ROWS_IN_PLACE,
    FL_PATH_ROWS_STAGED,
    FL_PATH_BY_CALLER,
    FL_PATH_BY_SLOT
} fl_path;

/* Where a ticket leads: its slot in the table, and a generation that makes old
 * tickets invalid. */
typedef struct fl_ticket_entry {
    fl_request *request; /* NULL: free */
    uint32_t    generation;
    uint32_t    next_free;
} fl_ticket_entry;

struct fletch_model {
    fl_config    *config;       /* owned clone */
    fl_model     *model;        /* owned */
    fl_tokenizer *tokenizer;    /* owned */
    char          id[256];      /* hub id, or "" for a plain folder */
    char          revision[64]; /* commit, or "" */
    /* resolved once */
    uint32_t        max_length;    /* tokens with specials, default of a call */
    uint32_t        length_limit;  /* usable positions: the most a call may ask for */
    uint32_t        dimensions;    /* columns of the default output */
    bool            renormalize;   /* the user asked for a cut or for unit length: cut rows get
                       it */
    uint32_t        row_width;     /* widest row between pooling and output */
    bool            normalize;     /* default of a call */
    char            pooling[64];   /* "mean,max" */
    char            switches[400]; /* "gated MLPs, rotary positions" */
    const char     *prompt;        /* default prompt text, "" for none; borrowed from config
                         or model */
    fletch_truncate truncate;
    uint32_t        batch_tokens; /* the largest batch */
    bool            has_engine;   /* false when only the tokenizer was opened */
    int32_t         filler;       /* late interaction: the id that queries are filled up with */
    bool           *skipped;      /* owned [vocabulary]: whose vectors are left out, or NULL */
    float          *lookup;       /* owned [lookup_count]: a query's weights by id; NULL: none */
    uint32_t        lookup_count;
    bool            zero_copy;   /* io.zero_copy */
    bool            predict;     /* batch.memory_prediction, and there is a ceiling */
    uint64_t        queue_limit; /* server.max_queue_tokens */
    /* parts with their own locks */
    fl_stats    stats;
    fl_trace   *trace;   /* owned; NULL: off */
    fl_memory  *memory;  /* owned; NULL when only the tokenizer was opened */
    fl_bufpool *inputs;  /* owned: chunks */
    fl_bufpool *outputs; /* owned: rows */
    fl_cache   *cache;   /* owned: results; NULL: cache.max_bytes is 0 */
    uint64_t    seed;    /* of hashes of texts */
    atomic_uint told;    /* bits of fl_path: the debug log has each path once */
    /* under the lock */
    pthread_mutex_t  lock;
    pthread_cond_t   left; /* a request or a caller left: fl_runtime_close waits for it */
    fl_queue         queue;
    fl_adapt         adapt;
    uint64_t         window_tokens; /* of one request, fed ahead */
    uint32_t         short_call;    /* texts: fletch_embed of more goes to the bulk lane */
    fl_replicas     *replicas;      /* NULL when only the tokenizer was opened */
    bool             closing;
    bool             reopening;
    fl_runner       *orphans;    /* batches of broken replicas */
    fl_request      *live;       /* requests that are not over */
    uint64_t         live_count; /* and those being delivered, and a reopening: closing
                          waits */
    fl_request      *idle_requests;
    fl_feeder       *idle_feeders;
    fl_delivery     *deliveries;
    fl_ticket_entry *tickets; /* owned [ticket_capacity] */
    uint32_t         ticket_capacity, ticket_free;
    /* housekeeping */
    pthread_t      keeper;
    bool           keeper_started;
    bool           keeper_stop;
    pthread_cond_t keeper_wake;
    uint64_t       keeper_due; /* when it wakes next */
};

/* open.c */
int  fl_runtime_open(fletch_model **out, const char *name, const fl_config *config,
                     bool tokenizer_only, fletch_error *error);
void fl_runtime_close(fletch_model *model);
int  fl_runtime_reopen(fletch_model *model, const fl_config *config, fletch_error *error);
int  fl_runtime_warm(fletch_model *model, fletch_error *error);
/* The text of a prompt of the folder by name; ECONFIG names the prompts there
 * are. */
int fl_runtime_prompt(const fletch_model *model, const char *name, const char **text,
                      fletch_error *error);
/* A request or a caller is gone. (locked) */
void fl_model_left(fletch_model *model);

/* provider.c: walk provider.order, or try `only`, and call `open` for each provider that is
 * usable until one opens; every refusal is logged. EPROVIDER from `open` means:
 * the next one may do. */
typedef int (*fl_provider_fn)(void *arg, const fl_engine_ops *ops, const char *provider,
                              const fl_engine_options *options, fletch_error *error);
int fl_provider_walk(fletch_model *model, const fl_config *config, const char *only,
                     fl_provider_fn open, void *arg, fletch_error *error);
/* Whether `device` of provider `name` may be had now, by what its engine's probe says. */
bool fl_provider_is_usable(const fletch_model *model, const fl_config *config, const char *name,
                           uint32_t device);
/* Tell of every provider: usable, or why not. Returns what `fn` stopped with.
 */
int fl_provider_describe(const fl_config *config, fletch_property_fn fn, void *user);

/* embed.c: a request, which was checked, until it is over; lane and deadline are not looked at. Lists
 * go to *lists. */
int fl_runtime_wait(fletch_model *model, const fletch_request *asked, fletch_lists **lists,
                    fletch_error *error);

/* submit.c: `request` was checked. */
int  fl_runtime_submit(fletch_model *model, const fletch_request *asked, fletch_done_fn done,
                       void *user, fletch_ticket *ticket, fletch_error *error);
int  fl_runtime_cancel(fletch_model *model, fletch_ticket ticket);
void fl_ticket_drop(fl_request *request); /* (locked) */
/* The request that a ticket names; NULL: it has been answered. (locked) */
fl_request *fl_ticket_find(const fletch_model *model, fletch_ticket ticket);
/* Whether a request may begin: the model is not closing and an engine is or may
 * be ready. (locked) */
int fl_runtime_admit(const fletch_model *model, fletch_error *error);

/* housekeeper.c */
int  fl_keeper_start(fletch_model *model, fletch_error *error);
void fl_keeper_stop(fletch_model *model);
void fl_keeper_wake(fletch_model *model, uint64_t due_ns); /* (locked) look no later than this */
/* Give kept buffers back. Not locked. */
void fl_runtime_trim(fletch_model *model, const char *why);

/* tokens.c */
int     fl_runtime_tokenize(fletch_model *model, const char *text, size_t size,
                            const fletch_tokenize_options *options, fletch_tokens **tokens,
                            fletch_error *error);
int64_t fl_runtime_decode(const fletch_model *model, const int32_t *ids, size_t count,
                          bool skip_special, char *text, size_t capacity, fletch_error *error);

/* describe.c */
int  fl_runtime_describe(fletch_model *model, fletch_property_fn fn, void *user);
int  fl_system_describe(const fl_config *config, fletch_property_fn fn, void *user);
void fl_runtime_info(fletch_model *model, fletch_model_info *out);
void fl_runtime_stats(fletch_model *model, fletch_stats *out);

/* devices.c: replica `index` and its device; false past the last. All of them: *out is freed with
 * fl_free. */
bool fl_runtime_device(fletch_model *model, size_t index, fletch_device_stats *out);
int  fl_runtime_devices(fletch_model *model, fletch_device_stats **out, size_t *count,
                        fletch_error *error);

/* chat_text.c: the ids of a pair as a chat; how many bytes it has with texts of these sizes. */
int    fl_chat_encode(const fl_request *request, fl_feeder *feeder, const fl_span *query,
                      const fl_span *document, int32_t *ids, size_t capacity, fl_pair *pair,
                      fletch_error *error);
size_t fl_chat_bytes(const fl_request *request, size_t query_size, size_t document_size);

/* maxsim.c: what the tokenizer has of the model's settings; the prompt of documents. */
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

/* lookup.c: the table of a model whose queries are not computed; the list of one, from its ids (which are
 * sorted; *terms is scratch). ENOMEM, ENOSPC. */
int fl_lookup_open(fletch_model *model, fletch_error *error);
int fl_lookup_text(fl_request *request, size_t text, int32_t *ids, size_t count, fl_terms *terms,
                   fletch_error *error);

/* row_output.c: pooled[width] -> row of the caller; line[0], line[1] are scratch rows. `row` may be
 * `pooled` itself when dtype is float32. False, and `row` untouched, when `pooled` holds or a stage
 * made a value that is not finite: no engine's word is taken for it. */
bool fl_output_row(const fl_output *output, const float *pooled, float *const line[2], void *row);
/* The same of a row that comes in `width` wide. */
bool fl_output_row_of(const fl_output *output, const float *pooled, uint32_t width,
                      float *const line[2], void *row);
/* The dot product of two rows. Eight partial sums let the compiler vectorise without changing the order from
 * run to run. */
float fl_output_dot(const float *a, const float *b, size_t n);
/* rows[count][columns], the vectors of a text's tokens, brought to unit length where that was asked for.
 * False: as above. */
bool fl_output_tokens(const fl_output *output, float *rows, size_t count);
/* The terms of a text become its list: weights, the light ones left out. Changes *terms. ENOMEM, ENOSPC. The
 * second takes terms that are weights already. */
int fl_output_terms(fl_request *request, size_t text, fl_terms *terms);
int fl_output_weights(fl_request *request, size_t text, fl_terms *terms);
/* A finished row as its dtype; may be `row` itself when that is float32. */
void fl_output_store(const float *row, size_t columns, fletch_dtype dtype, void *out);
/* Whether the engine may write pooled rows straight into the caller's rows. */
bool fl_output_in_place(const fl_output *output, const fletch_matrix *out);

#endif
