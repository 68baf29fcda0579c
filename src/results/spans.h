/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h - late chunking: documents as windows of ids, and which rows of a window belong to which span.
 *
 * Role    requests/span_windows.c fills it from documents and their spans; the windows are what the engine is asked
 *         for, and result_spans.c pools their rows.
 * Method  Windows of a document overlap; a window after the first keeps no row of its overlap, so that every
 *         token has one row. What a span has in one window is a piece. A span of one piece is finished with its
 *         window; the means of several wait for the last and are added in their order.
 * Memory  Owned by the answer. A window's rows live from place to finish. One partial row a piece, where a span
 *         has several.
 * Threads Filled by one thread. A window belongs to who runs it; `left` counts a span's pieces atomically.
 * Proof   tests/golden/test_spans.py. */
#ifndef FL_RESULTS_SPANS_H
#define FL_RESULTS_SPANS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "fletch.h"

typedef struct fl_span_piece {
    size_t   span;
    size_t   partial;      /* of the span's pieces which; SIZE_MAX: it is all of the span */
    uint32_t first, count; /* rows of its window */
} fl_span_piece;

typedef struct fl_span_tokens {
    size_t               document;
    size_t               first, end; /* tokens of the document */
    size_t               partials;   /* where its partial rows begin */
    uint32_t             pieces;
    atomic_uint_fast32_t left; /* pieces that are not pooled yet */
} fl_span_tokens;

typedef struct fl_spans {
    size_t          count;    /* of all documents */
    fl_span_tokens *span;     /* owned [count] */
    uint32_t        window;   /* tokens at most */
    uint32_t        overlap;  /* with the window before */
    size_t          width;    /* floats of a row */
    fl_buf          ids;      /* int32_t, of all windows */
    fl_buf          offsets;  /* int64_t [windows + 1] */
    fl_buf          document; /* size_t [windows] */
    fl_buf          begins;   /* size_t [documents] the first window of each */
    size_t          windows;
    size_t         *from;    /* owned [windows + 1]: its pieces */
    fl_span_piece  *piece;   /* owned, by window */
    float         **rows;    /* owned [windows], and each while it is in an engine */
    float          *partial; /* owned: rows of pieces that are not all of a span */
} fl_spans;

fl_spans *fl_spans_new(size_t count, uint32_t window, uint32_t overlap, size_t width,
                       fletch_error *error);
void      fl_spans_free(fl_spans *spans); /* NULL is a no-op */
/* The windows of the next document, of `count` ids. */
void fl_spans_add_document(fl_spans *spans, const int32_t *ids, size_t count);
/* All documents are there, and what span[…] says of tokens: the pieces. ENOMEM. */
int fl_spans_close(fl_spans *spans, fletch_error *error);

#endif
