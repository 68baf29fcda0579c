/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.h - an open model: folder, tokenizer, one engine replica, and the staging between them.
 *
 * Life of an embed call: texts are tokenised one by one, each straight into the id buffer of a
 * staging (prompt in front where there is one); when the token budget is full the packed batch goes
 * to the engine, which writes pooled rows into the caller's matrix itself where the form allows
 * (zero copy) or into the staging's rows; the output stage (dense layers, cut, unit length, element
 * type) finishes the rows.
 *
 *     texts --encode--> ids[tokens], cu[texts + 1] --forward--> rows[texts, width] --output--> out
 *
 * Memory  Everything is sized in open: a staging holds batch_tokens + the longest text of ids.
 *         Stagings are kept in a free list, one per caller that is inside at the same time, so that
 *         a second call of the same size allocates nothing. Bulk calls of any length use one
 *         staging.
 * Threads Callers tokenise in parallel; `engine_lock` lets one batch at a time into the engine,
 *         which spreads it over its own threads.
 * Proof   tests/unit/test_fletch.c, test_output.c; tests/golden/test_vectors.py. */
#ifndef FL_RUNTIME_RUNTIME_H
#define FL_RUNTIME_RUNTIME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "config/config.h"
#include "engines/engine.h"
#include "fletch.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* Texts of one batch at most; with the shortest texts (two specials) the token budget is used up
 * sooner than this bites for all but empty texts. */
enum { FL_BATCH_TEXTS_MAX = 4096 };

/* The working memory of one caller. */
typedef struct fl_staging {
    struct fl_staging *next;    /* free list */
    fl_token_scratch  *scratch; /* owned */
    int32_t           *ids;     /* owned [ids_capacity] */
    uint32_t          *cu;      /* owned [FL_BATCH_TEXTS_MAX + 1] */
    uint32_t          *skip;    /* owned [FL_BATCH_TEXTS_MAX]: prompt tokens left out of pooling */
    float             *rows;    /* owned [FL_BATCH_TEXTS_MAX, row_width], big block */
    float            **row;     /* owned [FL_BATCH_TEXTS_MAX]: where each row goes */
    float             *line[2]; /* owned [row_width] each: a row between two output stages */
    fl_buf             text;    /* prompt + text, when there is a prompt */
    uint32_t           ids_capacity;
} fl_staging;

struct fletch_model {
    fl_config    *config;       /* owned clone */
    fl_model     *model;        /* owned */
    fl_tokenizer *tokenizer;    /* owned */
    char          id[256];      /* hub id, or "" for a plain folder */
    char          revision[64]; /* commit, or "" */
    char          provider[32]; /* "cpu" */
    /* engine: NULL when only the tokenizer was opened */
    const fl_engine_ops *ops;
    fl_engine           *engine; /* owned */
    pthread_mutex_t      engine_lock;
    /* resolved once */
    uint32_t        max_length;   /* tokens with specials, default of a call */
    uint32_t        length_limit; /* usable positions: the most a call may ask for */
    uint32_t        dimensions;   /* columns of the default output */
    bool            renormalize;  /* the user asked for a cut or for unit length: cut rows get it */
    uint32_t        row_width;    /* widest row between pooling and output */
    bool            normalize;    /* default of a call */
    const char     *prompt; /* default prompt text, "" for none; borrowed from config or model */
    fletch_truncate truncate;
    uint32_t        batch_tokens;
    /* stagings */
    pthread_mutex_t staging_lock;
    fl_staging     *staging_free;
};

/* open.c */
int  fl_runtime_open(fletch_model **out, const char *name, const fl_config *config,
                     bool tokenizer_only, fletch_error *error);
void fl_runtime_close(fletch_model *model);
/* The text of a prompt of the folder by name; ECONFIG names the prompts there are. */
int fl_runtime_prompt(const fletch_model *model, const char *name, const char **text,
                      fletch_error *error);

/* provider.c: walk provider.order, open the first engine that can; every refusal is logged. */
int fl_provider_open(fletch_model *model, fletch_error *error);
/* Tell of every provider: usable, or why not. Returns what `fn` stopped with. */
int fl_provider_describe(const fl_config *config, fletch_property_fn fn, void *user);

/* staging.c */
fl_staging *fl_staging_take(fletch_model *model, fletch_error *error); /* NULL: failed */
void        fl_staging_give(fletch_model *model, fl_staging *staging);
void        fl_staging_free_all(fletch_model *model);

/* embed.c: `options` has the library's own size. */
int fl_runtime_embed(fletch_model *model, const fletch_texts *texts,
                     const fletch_embed_options *options, fletch_matrix *out, fletch_error *error);

/* tokens.c */
int     fl_runtime_tokenize(const fletch_model *model, const char *text, size_t size,
                            const fletch_tokenize_options *options, fletch_tokens **tokens,
                            fletch_error *error);
int64_t fl_runtime_decode(const fletch_model *model, const int32_t *ids, size_t count,
                          bool skip_special, char *text, size_t capacity, fletch_error *error);

/* describe.c */
int fl_runtime_describe(const fletch_model *model, fletch_property_fn fn, void *user);
int fl_system_describe(const fl_config *config, fletch_property_fn fn, void *user);

/* Text `index` of any of the three forms. EINVAL when its offsets run backwards. */
int fl_texts_at(const fletch_texts *texts, size_t index, const char **text, size_t *size,
                fletch_error *error);

/* output.c: what becomes of one pooled row. */
typedef struct fl_output {
    const fl_model *model;       /* its stages */
    uint32_t        columns;     /* dimensions kept */
    bool            normalize;   /* unit length at the end */
    bool            raw;         /* leave out the folder's own Normalize stages */
    bool            renormalize; /* after a cut */
    fletch_dtype    dtype;
} fl_output;
/* pooled[width] -> row of the caller; line[0], line[1] are scratch rows. `row` may be `pooled`
 * itself when dtype is float32. False, and `row` untouched, when a stage made a value that is not
 * finite (`pooled` itself is: the engine checks). */
bool fl_output_row(const fl_output *output, const float *pooled, float *const line[2], void *row);
/* Whether the engine may write pooled rows straight into the caller's rows. */
bool fl_output_in_place(const fl_output *output, const fletch_matrix *out);

#endif
