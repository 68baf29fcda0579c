/* SPDX-License-Identifier: Apache-2.0 */
/* result_kind.h - the kinds of result that `fletch embed` gives, a table for each. */
#ifndef FL_CLI_RESULT_KIND_H
#define FL_CLI_RESULT_KIND_H

#include "cli/list_output.h"

typedef struct fl_result_kind {
    fletch_kind         kind;
    const char         *name;    /* as --output-kind has it; NULL: only --outputs has it */
    const char         *members; /* of a result in JSON: fl_run_open */
    const fl_list_form *lists;   /* how its lists are written; NULL: results are rows */
    /* Who makes them; NULL: they are rows, or only --outputs has them. */
    int (*embed)(fletch_model *model, const fletch_texts *texts,
                 const fletch_embed_options *options, fletch_lists **lists, fletch_error *error);
    /* What an output has of text `i`, as a value in JSON. */
    void (*put)(fl_buf *out, const fletch_output *output, size_t i);
} fl_result_kind;

/* NULL is the name of rows. */
const fl_result_kind *fl_result_kind_named(const char *name);
const fl_result_kind *fl_result_kind_of(fletch_kind kind);

#endif
