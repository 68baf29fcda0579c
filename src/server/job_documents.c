/* SPDX-License-Identifier: Apache-2.0 */
/* job_documents.c - documents and their spans: what late chunking asks the library for.
 *
 * Role    and In/Out: embedding.h. openai.c, contextualized.c, tei_chunks.c and seed.c bring documents here.
 * Method  A row for each span; the windows that long documents are cut into are bounded before they are made.
 * Memory  request memory. Threads: the handler's. Proof tests/server/test_late_chunking.py. */
#include <string.h>

#include "base/mem.h"
#include "server/embedding.h"
#include "server/server_internal.h"

/* Bytes that the library takes for documents with spans: the tokens of one at a time, ids of all windows, of which
 * two overlap by half at most, the rows of the windows of a batch, and a row for each window that a span
 * goes on in. A token is a byte at most. */
static bool windows_size(const fl_job *job, const fl_documents *documents, size_t *out) {
    enum { ADDED = 32, TOKEN = 13 /* bytes of a fletch_tokens */, OVERLAPS = 2 };
    const fletch_model_info *info   = &job->served->info;
    const char              *prompt = job->options.prompt ? job->options.prompt : info->prompt;
    size_t ahead = strlen(prompt) + ADDED, longest = 0, tokens = 0, pieces = 0, rows;
    size_t window = info->max_length > 0 ? info->max_length : SIZE_MAX;
    size_t stride = window - window / 2;
    for (size_t i = 0, s = 0; i < documents->count; s += documents->counts[i++]) {
        size_t length = documents->lengths[i] + ahead;
        longest       = length > longest ? length : longest;
        tokens += length;
        for (size_t k = s; length > window && k < s + documents->counts[i]; k++) {
            size_t bytes = documents->span[k].end - documents->span[k].begin;
            if (fl_add_overflow(pieces, bytes / stride + 2, &pieces))
                return false;
        }
    }
    uint64_t batch = fl_server_number(job->request->server, "batch.max_tokens", tokens);
    size_t   flies = batch < tokens ? (size_t)batch : tokens;
    flies          = flies < window && window < tokens ? window : flies;
    return fl_add_overflow(pieces, flies + documents->count, &rows) == 0 &&
           fl_mul_overflow(rows, info->hidden * sizeof(float), out) == 0 &&
           fl_add_overflow(*out, longest * TOKEN + tokens * OVERLAPS * sizeof(int32_t), out) == 0;
}

bool fl_job_documents(fl_job *job, size_t count, size_t spans, fl_documents *out) {
    fl_http_request *request = job->request;
    out->count               = count;
    out->spans               = spans;
    out->texts               = fl_request_alloc(request, count * sizeof *out->texts);
    out->lengths             = fl_request_alloc(request, count * sizeof *out->lengths);
    out->counts              = fl_request_alloc(request, count * sizeof *out->counts);
    out->span                = fl_request_alloc(request, spans * sizeof *out->span);
    bool good =
        out->texts != NULL && out->lengths != NULL && out->counts != NULL && out->span != NULL;
    if (!good)
        fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
    return good;
}

bool fl_job_join(fl_job *job, const int64_t *lists, size_t count, fl_documents *out) {
    const fl_body_input *input = &job->ask.input;
    size_t               bytes = 0, at = 0;
    for (size_t i = 0; i < input->count; i++)
        bytes += input->lengths[i];
    char *text = fl_request_alloc(job->request, bytes);
    if (text == NULL) {
        fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
        return false;
    }
    if (!fl_job_documents(job, count, input->count, out))
        return false;
    for (size_t d = 0; d < count; d++, text += at) {
        at = 0;
        for (size_t i = (size_t)lists[d]; i < (size_t)lists[d + 1]; i++) {
            out->span[i] = (fletch_span){at, at + input->lengths[i]};
            memcpy(text + at, input->texts[i], input->lengths[i]);
            at += input->lengths[i];
        }
        out->texts[d]   = text;
        out->lengths[d] = at;
        out->counts[d]  = (size_t)(lists[d + 1] - lists[d]);
    }
    return true;
}

bool fl_job_prepare_spans(fl_job *job, const fl_documents *documents) {
    return fl_job_prepare_rows(job, documents->spans) && fl_job_take_spans(job, documents);
}

bool fl_job_take_spans(fl_job *job, const fl_documents *documents) {
    size_t bytes = SIZE_MAX;
    if (!windows_size(job, documents, &bytes)) {
        fl_job_refuse(job, FL_REFUSE_TOO_MUCH, FLETCH_NOWHERE,
                      "the spans need more windows than fit in memory; send fewer");
        return false;
    }
    if (!fl_request_hold(job->request, bytes)) {
        fl_reply_error(job->request, FL_HTTP_UNAVAILABLE, "%s", "");
        return false;
    }
    job->details      = false; /* tokens are of documents, and nothing is cut */
    job->work.kind    = FLETCH_KIND_SPANS;
    job->work.ids     = NULL;
    job->work.are_ids = NULL;
    job->work.texts   = (fletch_texts){
          .count = documents->count, .pointers = documents->texts, .lengths = documents->lengths};
    job->work.spans       = documents->span;
    job->work.span_counts = documents->counts;
    return true;
}
