/* SPDX-License-Identifier: Apache-2.0 */
/* put_rows.c - how every dialect writes what a request gave: rows of any type, lists, several outputs, scores by rank.
 *
 * Role    and In/Out: embedding.h.
 * Memory  request memory. Threads: those that end the work.
 * Proof   tests/server/test_openai.py, test_tei.py, test_several_outputs.py. */
#include <assert.h>
#include <stdlib.h>

#include "base/number.h"
#include "server/embedding.h"

/* ---- Rows and lists ------------------------------------------------------------------------------ */

static void put_bytes(fl_job *job, const void *row, size_t bytes, fletch_dtype dtype, bool base64) {
    fl_buf *body = &job->request->reply.body;
    if (base64)
        fl_base64_put(body, job->encode, row, bytes);
    else
        fl_json_out_bytes(body, row, bytes, dtype == FLETCH_INT8 || dtype == FLETCH_BINARY);
}

/* {"indices":[7,…],"values":[0.1,…]} */
static bool put_weights(fl_buf *body, const fletch_list *list) {
    fl_buf_puts(body, "{\"indices\":");
    fl_json_out_ids(body, list->ids, list->count);
    fl_buf_puts(body, ",\"values\":");
    bool finite = fl_json_out_floats(body, list->values, list->count);
    fl_buf_puts(body, "}");
    return finite;
}

bool fl_job_put_output(fl_job *job, const fletch_output *output, size_t index) {
    fl_buf              *body = &job->request->reply.body;
    const fletch_matrix *out  = &output->out;
    if (output->lists != NULL) {
        const fletch_list *list = &output->lists->list[index];
        return output->kind == FLETCH_KIND_SPARSE
                   ? put_weights(body, list)
                   : fl_json_out_rows(body, list->values, list->count, output->lists->columns);
    }
    const void *row = (const char *)out->data + index * out->stride;
    if (out->dtype == FLETCH_FLOAT32 && !job->base64)
        return fl_json_out_floats(body, row, out->cols);
    put_bytes(job, row, out->stride, out->dtype, job->base64);
    return true;
}

bool fl_job_put_typed(fl_job *job, size_t index, fletch_dtype dtype, bool base64) {
    fl_buf     *body = &job->request->reply.body;
    const void *row  = (const char *)job->rows + index * job->work.out.stride;
    if (dtype == FLETCH_FLOAT32 && !base64)
        return fl_json_out_floats(body, row, job->columns);
    if (dtype != job->dtype) { /* the rows are float32, for answers of several types */
        if (fletch_row_convert(job->packed, row, job->columns, dtype) < 0)
            return false;
        row = job->packed;
    }
    put_bytes(job, row, fletch_row_bytes(job->columns, dtype), dtype, base64);
    return true;
}

bool fl_job_put_row(fl_job *job, size_t index) {
    return fl_job_put_typed(job, index, job->dtype, job->base64);
}

void fl_job_put_details(fl_job *job) {
    fl_buf *body = &job->request->reply.body;
    fl_buf_puts(body, "\"tokens\":[");
    for (size_t i = 0; i < job->count; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        fl_json_out_u64(body, job->tokens[i]);
    }
    fl_buf_puts(body, "],\"truncated\":[");
    for (size_t i = 0; i < job->count; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        fl_buf_puts(body, job->truncated[i] ? "true" : "false");
    }
    fl_buf_puts(body, "]");
}

/* ---- Scores -------------------------------------------------------------------------------------- */

static int by_score(const void *left, const void *right) {
    const fl_ranked *a = left, *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

void fl_rank(const float *values, size_t count, fl_ranked *ranked) {
    assert(values && ranked);
    for (size_t i = 0; i < count; i++)
        ranked[i] = (fl_ranked){values[i], i};
    if (count > 0)
        qsort(ranked, count, sizeof *ranked, by_score);
}

fl_ranked *fl_job_rank(fl_job *job) {
    fl_ranked *ranked = fl_request_alloc(job->request, job->count * sizeof *ranked);
    if (ranked != NULL)
        fl_rank(job->rows, job->count, ranked);
    return ranked;
}

void fl_put_score(fl_buf *out, float score) {
    char text[FL_F32_TEXT_MAX];
    fl_buf_append(out, text, fl_f32_text(text, score));
}
