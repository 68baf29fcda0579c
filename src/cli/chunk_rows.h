/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_rows.h - windows of documents to a row for each of their chunks: --chunk of `fletch embed` and `fletch run`. */
#ifndef FL_CLI_CHUNK_ROWS_H
#define FL_CLI_CHUNK_ROWS_H

#include "cli/embedder.h"

typedef struct fl_chunk_rows {
    fl_embedder         *embedder; /* borrowed: dimensions, dtype, and who takes the rows */
    fletch_chunk_options options;
    bool                 late; /* pooled from one pass over the document */

    /* of the documents under way, all owned */
    fl_buf pieces;         /* its chunks */
    fl_buf texts, lengths; /* of the call: of chunks, or of the documents that have some */
    fl_buf spans, counts;  /* late: of those documents */
    fl_buf owners;         /* late: which documents they are */
    fl_buf vectors, tokens, truncated;
} fl_chunk_rows;

/* FL_FLAG_BY, _SIZE and _OVERLAP; `prefix` is what their names begin with here: "--" or "--chunk-". */
fl_exit fl_chunk_options_read(const fl_cli *cli, const char *prefix, fletch_chunk_options *options);

/* --chunk with what goes with it, the rest of which does not stand alone. */
bool    fl_chunk_rows_asked(const fl_cli *cli);
fl_exit fl_chunk_rows_read(fl_chunk_rows *rows, const fl_cli *cli);

/* With the model open: says why it takes no such chunks, whatever the document. */
fl_exit fl_chunk_rows_try(const fl_chunk_rows *rows, const fl_cli *cli);

/* The work of fl_run_windows; `rows` is an fl_chunk_rows. */
fl_exit fl_chunk_rows_window(fl_run *run, void *rows);

void fl_chunk_rows_free(fl_chunk_rows *rows);

#endif
