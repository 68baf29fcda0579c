/* SPDX-License-Identifier: Apache-2.0 */
/* several.h - `fletch embed --outputs`: several outputs of one pass, text by text. */
#ifndef FL_CLI_SEVERAL_H
#define FL_CLI_SEVERAL_H

#include "cli/result_kind.h"

enum { FL_SEVERAL_MAX = 16 };

/* One of zeros is empty. */
typedef struct fl_several {
    size_t                count;                /* 0: --outputs was not given */
    const char           *name[FL_SEVERAL_MAX]; /* borrowed, not terminated */
    size_t                name_size[FL_SEVERAL_MAX];
    const fl_result_kind *kind[FL_SEVERAL_MAX];
    fletch_output         output[FL_SEVERAL_MAX]; /* owned: their rows and lists */
    size_t                at;                     /* the text being written */
} fl_several;

/* The names of --outputs, if it is there; dense ones without a type have `dtype`. */
fl_exit fl_several_read(fl_several *several, const fl_cli *cli, fletch_dtype dtype);

/* Memory for the rows of `count` texts, of at most `dimensions` numbers. */
fl_exit fl_several_reserve(fl_several *several, const fl_cli *cli, size_t dimensions, size_t count);

/* Whether weights of words are among them. */
bool fl_several_has_sparse(const fl_several *several);

/* `fletch_embed_outputs`, and what it made for the texts before goes. */
int fl_several_embed(fl_several *several, fletch_model *model, const fletch_texts *texts,
                     const fletch_embed_options *options, fletch_error *error);

/* Append the object of text `i` of the last call; of `row` what is told of the text. */
void fl_several_put(fl_several *several, fl_output *output, const fl_row *row, size_t i);

void fl_several_free(fl_several *several);

#endif
