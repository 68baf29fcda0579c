/* SPDX-License-Identifier: Apache-2.0 */
/* result.h - what becomes of a text: a kind of result is one table of functions, what a call asks of it a value.
 *
 * Role    fl_answer_resolve makes of a model and a call an fl_answer: the table of the kind, the plan, and where
 *         results go. Who runs batches asks the table where an engine may write (place) and hands over
 *         what was made (finish); it knows no kind.
 * Method  kinds.c has the tables by head of the model and kind asked for. A pair that cannot be is a table
 *         whose resolve says why. A new kind is a file with its table, and its cell there.
 *         The bytes of a plan are half of the key of cached results: whatever a result depends on besides its
 *         ids stands in it, and nowhere else in an answer.
 * Memory  An answer owns its lists; the matrix is the caller's.
 * Threads fl_results is immutable after opening. A text of an answer belongs to who runs that text.
 * Proof   tests/unit/test_results.c, test_output.c, tests/golden/test_lists.py, test_late.py, test_scores.py. */
#ifndef FL_RESULTS_RESULT_H
#define FL_RESULTS_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "fletch.h"
#include "model/model.h"
#include "results/lists.h"
#include "tokenizer/tokenizer.h"

/* Of an open model: its folder, its configuration and the ids of tokens that the folder names. */
typedef struct fl_results {
    const fl_model *model;
    uint32_t        dimensions;  /* columns of a row by default */
    uint32_t        row_width;   /* the widest row between pooling and output */
    bool            normalize;   /* rows have unit length by default */
    bool            unit_tokens; /* so do vectors of tokens */
    bool            renormalize; /* a cut or unit length was configured: cut rows get it */
    bool            zero_copy;   /* io.zero_copy */
    bool            terms;       /* the engine gives terms, not rows */
    bool            own_length;  /* model.max_length is configured */
    fl_side         side;        /* of texts of a call that names no prompt */
    int32_t         filler;      /* late interaction: the id that queries are filled up with */
    bool    *skipped; /* owned [vocabulary]: whose vectors or weights are left out; or NULL */
    float   *lookup;  /* owned [lookup_count]: a query's weights by id; or NULL */
    uint32_t lookup_count;
} fl_results;

/* All that a result depends on besides its ids and what is said of those (how many are left out of pooling,
 * of type 1, attended to). Without padding: what is compared is its bytes. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
typedef struct fl_plan {
    uint32_t columns; /* numbers of a row, dimensions kept */
    uint32_t top_k;   /* terms kept; 0: all */
    float    threshold;
    uint8_t  kind;        /* fletch_kind */
    uint8_t  side;        /* fl_side: documents and queries may differ */
    uint8_t  dtype;       /* fletch_dtype */
    uint8_t  activation;  /* fl_dense_activation of scores */
    uint8_t  softmax;     /* in its place: scores of all labels as probabilities */
    uint8_t  normalize;   /* unit length at the end */
    uint8_t  raw;         /* leave out the folder's Normalize stages at the end */
    uint8_t  renormalize; /* unit length after a cut */
} fl_plan;
#pragma GCC diagnostic pop

typedef struct fl_answer fl_answer;

/* What an engine made of a text, or the tokenizer for a kind that asks no engine. */
typedef struct fl_made {
    float        *row;    /* pooled; or [tokens], one for each, where the kind has `place` */
    int32_t      *ids;    /* [tokens] for a kind `from_ids`, which may sort them */
    size_t        tokens; /* of the text */
    uint32_t      skip;   /* of these, how many at the head are left out of pooling */
    fl_terms     *terms;  /* of the engine, or empty: scratch all the same */
    float *const *line;   /* two scratch rows of fl_results.row_width */
} fl_made;

typedef struct fl_result_ops {
    int  counter;     /* fletch_counter of such texts; -1: the rest */
    bool pooled;      /* a row is a mean or the like: a prompt's tokens may be left out of it */
    bool lists;       /* results are lists, the caller's in the end; else rows of the matrix */
    bool cached;      /* may come from the cache of results */
    bool from_ids;    /* no engine is asked */
    bool windows;     /* texts are documents with spans, which become windows of ids */
    bool query_first; /* answer->query is made by a call of its own, before any text */
    /* Options and matrix checked, the plan written; lists are made. */
    int (*resolve)(fl_answer *answer, const fletch_request *asked, fletch_error *error);
    /* Tokens of a text at most; 0: the model's. NULL: as asked for. */
    uint32_t (*max_length)(const fl_answer *answer, uint32_t asked);
    /* Room for a row of each of a text's ids; NULL: its rows are pooled. ENOMEM, ENOSPC. */
    int (*place)(fl_answer *answer, size_t text, const int32_t *ids, size_t count, float **rows);
    /* The result of a text from what was made. */
    int (*finish)(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error);
} fl_result_ops;

struct fl_answer {
    const fl_result_ops *ops;
    const fl_results    *of;
    fl_plan              plan;
    fletch_matrix        out; /* of a kind without lists */
    fl_lists         *lists;  /* owned until they are the caller's; drafts where nobody gets them */
    struct fl_spans  *spans;  /* owned: of a kind with windows */
    fl_lists         *query;  /* owned: of a kind with query_first, once they are there */
    struct fl_answer *part;   /* owned [parts]: of several outputs, an answer each */
    size_t            parts;  /* 0: the answer is one */
    char             *outputs; /* borrowed: the caller's, where lists go in the end; or NULL */
    size_t            output_count, output_size; /* bytes of each */
    bool              in_place;                  /* an engine may write into the caller's rows */
    bool              no_special; /* ids are a text's own, without what a template adds */
    bool     may_be_empty; /* a text without tokens has a result: one token that is left out */
    bool     unpadded;     /* padding at a text's end is left off: of->model->padding */
    uint32_t filled_to;    /* tokens that a text is filled up to with of->filler; 0: it is not */
};

int  fl_results_open(fl_results *results, const fl_model *model, const fl_tokenizer *tokenizer,
                     const fl_config *config, fletch_error *error);
void fl_results_close(fl_results *results);

/* The kind's table for a model and a call. */
const fl_result_ops *fl_result_of(const fl_model *model, fletch_kind kind);
/* Whether results of a kind are lists, whatever the model, and whether a pass of several outputs gives it. */
bool fl_kind_has_lists(fletch_kind kind);
bool fl_kind_is_output(fletch_kind kind);
/* The kind that a model gives by itself. */
fletch_kind fl_result_native(const fl_model *model);

/* The words for what a model's head gives. */
typedef struct fl_head_words {
    const char *name;    /* "scores" */
    const char *gives;   /* "scores, one for each of its labels"; NULL: rows, which may be cut */
    const char *pooling; /* in place of the encoder's; or NULL */
} fl_head_words;
const fl_head_words *fl_result_head(const fl_model *model);

/* `asked->options` is not NULL. EINVAL, EUNSUPPORTED, ENOMEM. */
int  fl_answer_resolve(fl_answer *answer, const fl_results *of, const fletch_request *asked,
                       fletch_error *error);
void fl_answer_drop(fl_answer *answer); /* what it owns; all zero is a no-op */
/* The lists, which are the caller's now; NULL: this kind has none, or they went to the outputs of the call. */
fletch_lists *fl_answer_give(fl_answer *answer);

/* The answers that an answer is made of, each with a kind and a plan of its own: itself, or those of its outputs. */
static inline fl_answer *fl_answer_parts(fl_answer *answer, size_t *count) {
    *count = answer->parts > 0 ? answer->parts : 1;
    return answer->parts > 0 ? answer->part : answer;
}

/* Where the row of a text goes. */
static inline void *fl_answer_row(const fl_answer *answer, size_t text) {
    return (char *)answer->out.data + text * answer->out.stride;
}
/* Of one part: a finished result as bytes, and a text's result from such. ENOMEM, ENOSPC. */
const void *fl_answer_bytes(const fl_answer *answer, size_t text, size_t *size);
int         fl_answer_take(fl_answer *answer, size_t text, const void *bytes, size_t size);
/* The text has no result: what was made of it is not to be seen. */
void fl_answer_fail(fl_answer *answer, size_t text);

/* Why a text has no result: EMODEL (not finite), ENOMEM, ENOSPC in words; returns `status`. */
int fl_result_fail(int status, fletch_error *error);

#endif
