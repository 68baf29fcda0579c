/* SPDX-License-Identifier: Apache-2.0 */
/* passages.c - the part of each text that was found which is most like what is looked for.
 *
 * Role    the stage of a /search with "highlight": "passage" (search.c).
 * In/Out  The rows that will be answered; of each the whole sentences, at most PASSAGE_TOKENS of them, whose vector is
 *         nearest to the query's.
 * Method  fletch_chunk cuts the texts, the model that embedded the query embeds all pieces as one request.
 * Memory  request memory. Threads: a worker, then the engine's.
 * Proof   tests/server/test_search.py. */
#include <string.h>

#include "base/cosine.h"
#include "base/error.h"
#include "server/search.h"
#include "server/server_internal.h"

enum { PASSAGE_TOKENS = 48 };

/* Passages of a row follow each other. */
typedef struct passages {
    fl_read_text   *texts;  /* [work->row_count] */
    size_t         *rows;   /* [reader->count]: whose */
    fl_chunk_place *places; /* [reader->count]: in the document */
} passages;

static int is_over(void *request) {
    return fl_request_over(request, NULL) < 0;
}

static void passages_embedded(fl_http_request *request, const fletch_outcome *outcome) {
    fl_job         *job    = request->work;
    fl_search_work *work   = job->extra;
    fl_job         *reader = work->reader;
    if (outcome->error.code < 0) {
        fl_reply_fail(request, &outcome->error);
        return;
    }
    float best = 0;
    for (size_t i = 0; i < reader->count; i++) { /* those of a row follow each other */
        fl_found_row *row     = &work->rows[work->passages->rows[i]];
        const float  *passage = reader->rows + i * reader->columns;
        float         score   = (float)fl_vector_dot(job->rows, passage, reader->columns);
        if (row->passage.data == NULL || score > best) {
            best         = score;
            row->passage = (fl_span){reader->ask.input.texts[i], reader->ask.input.lengths[i]};
            row->place   = work->passages->places[i];
        }
    }
    fl_search_later(request, fl_search_write, false);
}

/* Where chunk `i` of `text` lies in the document, without the white space at its end. */
static fl_chunk_place place_of(const fl_read_text *text, const fletch_chunks *chunks, size_t i) {
    size_t begin = chunks->offsets[2 * i], end = chunks->offsets[2 * i + 1];
    size_t chars = chunks->chars[2 * i + 1];
    while (end > begin + 1 && strchr(" \t\r\n", text->text.data[end - 1]) != NULL &&
           text->text.data[end - 1] != '\0') {
        end--;
        chars--;
    }
    return (fl_chunk_place){
        .bytes = {text->place.bytes[0] + (int64_t)begin, text->place.bytes[0] + (int64_t)end},
        .chars = {text->place.chars[0] + (int64_t)chunks->chars[2 * i],
                  text->place.chars[0] + (int64_t)chars}};
}

/* The passages of every row; the caller frees chunks[row_count]. False: answered. */
static bool cut_rows(fl_http_request *request, fletch_chunks **chunks, size_t *total) {
    fl_job              *job     = request->work;
    fl_search_work      *work    = job->extra;
    fletch_chunk_options options = FLETCH_CHUNK_OPTIONS_INIT;
    fletch_error         error   = {0};
    options.max_tokens           = PASSAGE_TOKENS;
    options.stop                 = is_over;
    options.stop_user            = request;
    if (job->served->info.max_length < 2 * PASSAGE_TOKENS)
        options.max_tokens = 0;
    for (size_t i = 0; i < work->row_count; i++) {
        if (!fl_search_read(request, work->rows[i].key, &work->passages->texts[i]))
            return false;
        fl_span text = work->passages->texts[i].text;
        if (text.data == NULL)
            continue;
        if (!fl_request_hold(request, 2 * (text.size / PASSAGE_TOKENS + 2) * 4 * sizeof(size_t)))
            return fl_seed_no_memory(request);
        if (fletch_chunk(job->served->model, text.data, text.size, &options, &chunks[i], &error) <
            0) {
            fl_seed_fail_stopped(request, &error);
            return false;
        }
        *total += chunks[i]->count;
    }
    return true;
}

static bool list_passages(fl_http_request *request, fletch_chunks **chunks, size_t total) {
    fl_job         *job    = request->work;
    fl_search_work *work   = job->extra;
    fl_job         *reader = fl_search_reader(request, job->served, job->columns, total + 1);
    work->reader           = reader;
    work->passages->rows   = fl_request_alloc(request, (total + 1) * sizeof *work->passages->rows);
    work->passages->places =
        fl_request_alloc(request, (total + 1) * sizeof *work->passages->places);
    if (reader == NULL)
        return false;
    if (work->passages->rows == NULL || work->passages->places == NULL)
        return fl_seed_no_memory(request);
    for (size_t i = 0; i < work->row_count; i++) {
        for (size_t c = 0; chunks[i] != NULL && c < chunks[i]->count; c++) {
            size_t         at    = reader->ask.input.count;
            fl_chunk_place place = place_of(&work->passages->texts[i], chunks[i], c);
            fl_search_add(reader,
                          (fl_span){work->passages->texts[i].text.data + chunks[i]->offsets[2 * c],
                                    (size_t)(place.bytes[1] - place.bytes[0])});
            work->passages->rows[at]   = i;
            work->passages->places[at] = place;
        }
    }
    return true;
}

void fl_search_passages(fl_http_request *request) {
    fl_search_work *work   = ((fl_job *)request->work)->extra;
    size_t          total  = 0;
    fletch_error    error  = {0};
    fletch_chunks **chunks = fl_request_alloc(request, (work->row_count + 1) * sizeof *chunks);
    fl_read_text   *texts  = fl_request_alloc(request, (work->row_count + 1) * sizeof *texts);
    work->passages         = fl_request_alloc(request, sizeof *work->passages);
    if (chunks == NULL || texts == NULL || work->passages == NULL) {
        (void)fl_seed_no_memory(request);
        return;
    }
    work->passages->texts = texts;
    bool good = cut_rows(request, chunks, &total) && list_passages(request, chunks, total);
    for (size_t i = 0; i < work->row_count; i++)
        fletch_chunks_free(chunks[i]);
    if (!good)
        return;
    if (total == 0)
        fl_search_write(request);
    else if (fl_job_fill(work->reader) &&
             fl_request_submit(request, work->reader->served, &work->reader->work,
                               passages_embedded, &error) < 0)
        fl_reply_fail(request, &error);
}
