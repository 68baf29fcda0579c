/* SPDX-License-Identifier: Apache-2.0 */
/* result_spans.c - late chunking: a vector a span, the mean of its tokens' rows in a pass over the whole document.
 *
 * In/Out  options and matrix -> plan, as of rows; rows of a window -> means of its pieces -> rows of the matrix.
 * Method  spans.h. A mean is that of pool_rows.c, so one span over a whole text is the plain vector byte for byte.
 * Memory  and Threads: spans.h. Proof: tests/golden/test_spans.py. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "results/kinds.h"
#include "results/row_stages.h"
#include "results/spans.h"

/* ---- Windows and pieces ----------------------------------------------------------------------- */

fl_spans *fl_spans_new(size_t count, uint32_t window, uint32_t overlap, size_t width,
                       fletch_error *error) {
    fl_spans *spans = fl_alloc_zero(1, sizeof *spans);
    if (spans)
        spans->span = fl_alloc_zero(count, sizeof *spans->span);
    if (!spans || !spans->span) {
        fl_spans_free(spans);
        fl_fail_nomem(error, count * sizeof *spans->span, "the spans of a call");
        return NULL;
    }
    spans->count   = count;
    spans->window  = window;
    spans->overlap = overlap;
    spans->width   = width;
    fl_buf_append(&spans->offsets, &(int64_t){0}, sizeof(int64_t));
    return spans;
}

void fl_spans_free(fl_spans *spans) {
    if (!spans)
        return;
    for (size_t w = 0; spans->rows && w < spans->windows; w++)
        fl_free(spans->rows[w]);
    fl_free(spans->span);
    fl_free(spans->from);
    fl_free(spans->piece);
    fl_free((void *)spans->rows);
    fl_free(spans->partial);
    fl_buf_free(&spans->ids);
    fl_buf_free(&spans->offsets);
    fl_buf_free(&spans->document);
    fl_buf_free(&spans->begins);
    fl_free(spans);
}

void fl_spans_add_document(fl_spans *spans, const int32_t *ids, size_t count) {
    const size_t stride = spans->window - spans->overlap, index = spans->begins.size / sizeof index;
    fl_buf_append(&spans->begins, &spans->windows, sizeof spans->windows);
    for (size_t begin = 0, end = 0; end < count; begin += stride) {
        end = count - begin < spans->window ? count : begin + spans->window;
        fl_buf_append(&spans->ids, ids + begin, (end - begin) * sizeof *ids);
        int64_t offset = (int64_t)(spans->ids.size / sizeof *ids);
        fl_buf_append(&spans->offsets, &offset, sizeof offset);
        fl_buf_append(&spans->document, &index, sizeof index);
        spans->windows++;
    }
}

/* Which window of its document keeps the row of a token. */
static size_t window_of(const fl_spans *spans, size_t token) {
    return token < spans->window ? 0
                                 : 1 + (token - spans->window) / (spans->window - spans->overlap);
}

/* The piece that begins with a span's token `token`, of window `w` of the document; the token behind it. */
static size_t piece_at(const fl_spans *spans, const fl_span_tokens *span, size_t token, size_t w,
                       fl_span_piece *piece) {
    const size_t begin = w * (spans->window - spans->overlap), last = begin + spans->window,
                 end = span->end < last ? span->end : last;
    piece->first     = (uint32_t)(token - begin);
    piece->count     = (uint32_t)(end - token);
    return end;
}

/* Pieces counted into from[window + 1], and the partial rows they need. */
static size_t count_pieces(fl_spans *spans) {
    const size_t *begins   = (const size_t *)(const void *)spans->begins.data;
    size_t        partials = 0;
    for (size_t i = 0; i < spans->count; i++) {
        fl_span_tokens *span = &spans->span[i];
        const size_t    a = window_of(spans, span->first), b = window_of(spans, span->end - 1);
        for (size_t w = a; w <= b; w++)
            spans->from[begins[span->document] + w + 1]++;
        span->pieces   = (uint32_t)(b - a + 1);
        span->partials = partials;
        partials += span->pieces > 1 ? span->pieces : 0;
        atomic_init(&span->left, span->pieces);
    }
    for (size_t w = 0; w < spans->windows; w++)
        spans->from[w + 1] += spans->from[w];
    return partials;
}

static void fill_pieces(fl_spans *spans, size_t *next) {
    const size_t *begins = (const size_t *)(const void *)spans->begins.data;
    for (size_t i = 0; i < spans->count; i++) {
        const fl_span_tokens *span  = &spans->span[i];
        size_t                token = span->first;
        for (size_t k = 0; k < span->pieces; k++) {
            const size_t   w     = window_of(spans, token);
            fl_span_piece *piece = &spans->piece[next[begins[span->document] + w]++];
            piece->span          = i;
            piece->partial       = span->pieces > 1 ? k : SIZE_MAX;
            token                = piece_at(spans, span, token, w, piece);
        }
    }
}

int fl_spans_close(fl_spans *spans, fletch_error *error) {
    const size_t windows = spans->windows, room = (windows + 1) * sizeof(size_t);
    spans->from = fl_alloc_zero(windows + 1, sizeof *spans->from);
    spans->rows = (float **)fl_alloc_zero(windows, sizeof *spans->rows);
    if (spans->ids.failed || spans->offsets.failed || spans->document.failed ||
        spans->begins.failed || !spans->from || !spans->rows)
        return fl_fail_nomem(error, spans->ids.size + room, "the windows of documents");
    const size_t partials = count_pieces(spans), pieces = spans->from[windows];
    size_t      *next = fl_alloc_array(windows + 1, sizeof *next);
    spans->piece      = fl_alloc_array(pieces, sizeof *spans->piece);
    if (partials > 0)
        spans->partial = fl_alloc_array(partials * spans->width, sizeof *spans->partial);
    if (!next || !spans->piece || (partials > 0 && !spans->partial)) {
        fl_free(next);
        return fl_fail_nomem(error, pieces * sizeof *spans->piece, "the spans of documents");
    }
    memcpy(next, spans->from, room);
    fill_pieces(spans, next);
    fl_free(next);
    return FLETCH_OK;
}

/* ---- The kind ------------------------------------------------------------------------------------ */

static int resolve(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    const fl_model *model = answer->of->model;
    if (model->is_static)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "this model is static: its tokens do not see the rest of a document, so "
                       "embed the spans as separate texts");
    if (model->encoder.projected)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "this model projects only the pooled tokens, so spans have no vectors");
    if (model->encoder.pooling_count != 1 || model->encoder.pooling[0] != FL_POOL_MEAN)
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "late chunking takes the mean of a span's tokens, but this model pools differently: "
            "the vector of its first or last token does not describe a span. Use a model with mean "
            "pooling, or set model.pooling=mean if that is intended");
    return fl_rows_resolve(answer, asked, error);
}

static int place(fl_answer *answer, size_t text, const int32_t *ids, size_t count, float **rows) {
    fl_spans *spans = answer->spans;
    (void)ids;
    fl_free(spans->rows[text]); /* its batch ran already */
    *rows             = fl_alloc_array((count + 1) * spans->width, sizeof **rows); /* and a mean */
    spans->rows[text] = *rows;
    return *rows ? FLETCH_OK : FLETCH_ENOMEM;
}

/* The last piece of a span is there: their means, weighed by their tokens and added in order, into `mean`. */
static void add_pieces(const fl_spans *spans, const fl_span_tokens *span, float *mean) {
    const float  *partial = spans->partial + span->partials * spans->width;
    fl_span_piece piece;
    size_t        token = span->first;
    memset(mean, 0, spans->width * sizeof *mean);
    for (size_t k = 0; k < span->pieces; k++, partial += spans->width) {
        token = piece_at(spans, span, token, window_of(spans, token), &piece);
        for (size_t i = 0; i < spans->width; i++)
            mean[i] += partial[i] * (float)piece.count;
    }
    for (size_t i = 0; i < spans->width; i++)
        mean[i] /= (float)(span->end - span->first);
}

static int finish(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    static const fl_pooling mode   = FL_POOL_MEAN;
    fl_spans               *spans  = answer->spans;
    const size_t            width  = spans->width;
    float                  *mean   = made->row + made->tokens * width;
    bool                    finite = true;
    for (size_t p = spans->from[text]; finite && p < spans->from[text + 1]; p++) {
        const fl_span_piece *piece = &spans->piece[p];
        fl_span_tokens      *span  = &spans->span[piece->span];
        const fl_rows        rows  = {made->row + piece->first * width, width, NULL};
        bool                 whole = piece->partial == SIZE_MAX;
        float *to = whole ? mean : spans->partial + (span->partials + piece->partial) * width;
        finite    = fl_pool_rows(&mode, 1, &rows, width, piece->count, 0, to);
        if (!finite || atomic_fetch_sub(&span->left, 1) > 1)
            continue;
        if (!whole)
            add_pieces(spans, span, mean);
        finite = fl_row_stages(answer->of->model, &answer->plan, mean, (uint32_t)width, made->line,
                               fl_answer_row(answer, piece->span));
    }
    fl_free(spans->rows[text]);
    spans->rows[text] = NULL;
    return finite ? FLETCH_OK : fl_result_fail(FLETCH_EMODEL, error);
}

const fl_result_ops fl_result_spans = {.counter = FLETCH_COUNT_TOKEN_TEXTS,
                                       .pooled  = true,
                                       .windows = true,
                                       .resolve = resolve,
                                       .place   = place,
                                       .finish  = finish};
