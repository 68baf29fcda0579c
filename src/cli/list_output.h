/* SPDX-License-Identifier: Apache-2.0 */
/* list_output.h - results that are lists, entry by entry: vectors of tokens, weights of vocabulary entries. */
#ifndef FL_CLI_LIST_OUTPUT_H
#define FL_CLI_LIST_OUTPUT_H

#include "cli/output.h"

typedef struct fl_list_output fl_list_output;

/* How lists of a kind are written; the writer's result is the fl_list_output. */
typedef struct fl_list_form {
    bool        weights;       /* an entry is one number, and a text's a row of a CSR matrix */
    const char *ids, *offsets; /* names of arrays */
    fl_writer   writer;
} fl_list_form;

extern const fl_list_form fl_list_vectors; /* of tokens */
extern const fl_list_form fl_list_weights; /* of vocabulary entries */

/* The writer of a run; its values go to `output`, what belongs to them to its spools. */
struct fl_list_output {
    fl_output          *output; /* borrowed */
    fletch_model       *model;  /* borrowed: the texts of tokens */
    const fl_list_form *form;
    size_t              columns; /* values of an entry */
    size_t              width;   /* of a whole vector */
    uint64_t            entries;
    const fletch_list  *list; /* being written */
};

/* Whether `format` can hold lists. */
bool fl_list_output_takes(fl_output_format format);

int fl_list_output_open(fl_list_output *lists, fl_output *output, fletch_model *model,
                        const fl_list_form *form, const fletch_model_info *info,
                        fletch_error *error);

/* Append one text's entries; of `row` the text and what is told of it. */
void fl_list_output_put(fl_list_output *lists, const fl_row *row, const fletch_list *list);

/* For result_kind.c: "indices":[7,…],"values":[0.1,…]. */
void fl_list_put_weights(fl_buf *out, const fletch_list *list);

/* Complete the output. */
int fl_list_output_finish(fl_list_output *lists, fletch_error *error);

#endif
