/* SPDX-License-Identifier: Apache-2.0 */
/* embedder.c - a window of texts to rows.
 *
 * Role    cmd_embed.c and part.c, each with its own way to write a row.
 * Method  One fletch_embed call turns a window into rows. When a text is to blame for a failure (too long with
 *         --truncate error), the texts before it are done first, then it is refused, then the rest goes on:
 *         a few calls per refused text, whatever the size of the window. Of kinds whose results are lists
 *         (fletch_lists) a call takes as many texts as LIST_BYTES hold, since each of their tokens may become
 *         a vector.
 * Memory  Rows, token counts and marks of one window.
 * Proof   tests/cli/test_cli_output.py, test_cli_errors.py, test_cli_run.py. */
#include "cli/embedder.h"

#include <string.h>

#include "base/mem.h"

enum { LIST_BYTES = 128 * 1024 };

fletch_dtype fl_embedder_dtype(const char *name) {
    for (int i = 0; name != NULL && i <= FLETCH_UBINARY; i++)
        if (strcmp(name, fl_output_dtype_name((fletch_dtype)i)) == 0)
            return (fletch_dtype)i;
    return FLETCH_FLOAT32;
}

/* Results are rows of embedder->vectors. */
static bool gives_rows(const fl_embedder *embedder) {
    return embedder->several == NULL && embedder->kind->lists == NULL;
}

static bool reserve(fl_embedder *embedder, size_t count) {
    if (count <= embedder->capacity)
        return true;
    size_t bytes = fletch_row_bytes(embedder->dimensions, embedder->dtype);
    fl_embedder_free(embedder);
    embedder->vectors   = fl_alloc_array(count, gives_rows(embedder) ? bytes : 0);
    embedder->tokens    = fl_alloc_array(count, sizeof *embedder->tokens);
    embedder->truncated = fl_alloc_array(count, sizeof *embedder->truncated);
    embedder->capacity  = count;
    return embedder->vectors != NULL && embedder->tokens != NULL && embedder->truncated != NULL;
}

static fl_exit reserve_all(const fl_run *run, fl_embedder *embedder, size_t count) {
    bool grows = count > embedder->capacity;
    if (!reserve(embedder, count)) {
        fl_cli_message("out of memory for the vectors of %zu texts", count);
        return FL_EXIT_FAILED;
    }
    return grows && embedder->several != NULL
               ? fl_several_reserve(embedder->several, run->cli, embedder->dimensions, count)
               : FL_EXIT_DONE;
}

/* Texts [first, first + count) of the window to the first rows of embedder->vectors. */
static int embed_span(fl_run *run, fl_embedder *embedder, size_t first, size_t count,
                      fletch_error *error) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.tokens               = embedder->tokens;
    options.truncated            = embedder->truncated;
    options.top_k                = embedder->top_k;
    options.threshold            = embedder->threshold;
    fletch_texts  texts          = fletch_texts_from_strings(run->window.texts + first, count);
    size_t        stride         = fletch_row_bytes(embedder->dimensions, embedder->dtype);
    fletch_matrix matrix         = {embedder->vectors, count, embedder->dimensions, stride,
                                    embedder->dtype};
    texts.lengths                = run->window.sizes + first;
    fletch_lists_free(embedder->lists);
    embedder->lists = NULL;
    if (embedder->several != NULL)
        return fl_several_embed(embedder->several, run->cli->model, &texts, &options, error);
    return embedder->kind->embed != NULL
               ? embedder->kind->embed(run->cli->model, &texts, &options, &embedder->lists, error)
               : fletch_embed(run->cli->model, &texts, &options, &matrix, error);
}

static fl_exit put_span(fl_run *run, fl_embedder *embedder, size_t first, size_t count) {
    size_t bytes = fletch_row_bytes(embedder->dimensions, embedder->dtype);
    for (size_t i = 0; i < count; i++) {
        fl_row row = fl_run_done(run, first + i, embedder->tokens[i], embedder->truncated[i] != 0);
        row.vector = (const char *)embedder->vectors + i * bytes;
        row.cols   = embedder->dimensions;
        row.dtype  = embedder->dtype;
        embedder->at   = i;
        embedder->list = embedder->lists != NULL ? &embedder->lists->list[i] : NULL;
        FL_CLI_TRY(embedder->put(run, &row, embedder->user));
    }
    return FL_EXIT_DONE;
}

/* How many texts from `first` on one call takes of at most `span`. */
static size_t span_of(const fl_run *run, const fl_embedder *embedder, size_t first, size_t span) {
    size_t bytes = 0, texts = 0;
    if (gives_rows(embedder))
        return span;
    while (texts < span && (texts == 0 || bytes + run->window.sizes[first + texts] <= LIST_BYTES))
        bytes += run->window.sizes[first + texts++];
    return texts;
}

fl_exit fl_embedder_window(fl_run *run, void *user) {
    fl_embedder *embedder = user;
    size_t       first = 0, total = run->window.count, span = total;
    FL_CLI_TRY(reserve_all(run, embedder, total));
    while (first < total) {
        fletch_error error = {0};
        span       = span_of(run, embedder, first, span < total - first ? span : total - first);
        int status = embed_span(run, embedder, first, span, &error);
        if (status >= 0) {
            FL_CLI_TRY(put_span(run, embedder, first, span));
            first += span;
            span *= 2;
            continue;
        }
        bool never = status == FLETCH_ENOMEM && embedder->strict;
        if (error.where >= span || never || !fl_run_can_refuse(run, status))
            return fl_cli_fail(&error, false);
        if (error.where > 0) {
            span = error.where; /* those before it are good: do them first */
            continue;
        }
        if (!fl_run_refuse(run, first, &error))
            return run->input.exit;
        first++;
        span = span > 1 ? span : 2;
    }
    return FL_EXIT_DONE;
}

void fl_embedder_free(fl_embedder *embedder) {
    fletch_lists_free(embedder->lists);
    fl_free(embedder->vectors);
    fl_free(embedder->tokens);
    fl_free(embedder->truncated);
    embedder->lists     = NULL;
    embedder->vectors   = NULL;
    embedder->tokens    = NULL;
    embedder->truncated = NULL;
    embedder->capacity  = 0;
}
