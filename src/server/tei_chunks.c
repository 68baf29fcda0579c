/* SPDX-License-Identifier: Apache-2.0 */
/* tei_chunks.c - /embed_chunks: documents in, a vector and a place for each of their chunks out.
 *
 * Role    long documents in one call, in the words of the text-embeddings-inference dialect, which has no such route.
 * In/Out  {"inputs", "by", "size", "overlap"} (docs/chunks.md) or {"inputs", "spans": [[[0, 33], [33, 66]]]} in
 *         code points, "late_chunking", and what /embed takes; to a list of chunks for each document, each {"chars",
 *         "bytes", "tokens", "embedding"}, "tokens" only where the chunks were made here.
 * Method  On a worker thread: documents are cut, then chunks go to the library as texts that point into the body,
 *         or the documents with their spans where chunking is late. Chunks without a token (white space alone)
 *         are left out. Code points are found through the place of every STEP-th one.
 * Memory  request memory; what the splitter has beside it, a document at a time, is held before.
 * Threads one worker per request, then as all embedding routes.
 * Proof   tests/server/test_late_chunking.py. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/tei.h"

enum { STEP = 256, PLACE_TEXT = 160 /* bytes of a chunk in the answer beside its vector */ };

/* Where a chunk lies, in bytes and in code points. */
typedef struct place {
    fletch_span bytes, chars;
    uint32_t    tokens;
} place;

typedef struct chunks {
    fl_documents documents;
    place       *place; /* [room], documents.spans of them in use */
    size_t       room;
    bool         given; /* the spans came with the request: tokens are not known */
} chunks;

/* ---- The answer ----------------------------------------------------------------------------------- */

static void put_pair(fl_buf *body, const char *name, fletch_span pair) {
    fl_buf_puts(body, name);
    fl_json_out_u64(body, pair.begin);
    fl_buf_putc(body, ',');
    fl_json_out_u64(body, pair.end);
    fl_buf_putc(body, ']');
}

static bool write_chunks(fl_job *job, const fletch_outcome *outcome) {
    fl_buf       *body = &job->request->reply.body;
    const chunks *all  = job->extra;
    (void)outcome;
    fl_buf_putc(body, '[');
    for (size_t d = 0, row = 0; d < all->documents.count; d++) {
        fl_buf_puts(body, d > 0 ? ",[" : "[");
        for (size_t i = 0; i < all->documents.counts[d]; i++, row++) {
            const place *at = &all->place[row];
            put_pair(body, i > 0 ? ",{\"chars\":[" : "{\"chars\":[", at->chars);
            put_pair(body, ",\"bytes\":[", at->bytes);
            if (!all->given) {
                fl_buf_puts(body, ",\"tokens\":");
                fl_json_out_u64(body, at->tokens);
            }
            fl_buf_puts(body, ",\"embedding\":");
            if (!fl_job_put_row(job, row))
                return false;
            fl_buf_putc(body, '}');
        }
        fl_buf_putc(body, ']');
    }
    fl_buf_putc(body, ']');
    return !body->failed;
}

static const fl_style style = {&fl_tei_faults, write_chunks, true};

/* ---- Chunks ----------------------------------------------------------------------------------------- */

static bool add(fl_job *job, chunks *all, place at) {
    if (all->documents.spans == all->room) {
        size_t room  = all->room == 0 ? 64 : all->room * 2, bytes;
        place *fresh = fl_mul_overflow(room, sizeof at, &bytes) != 0
                           ? NULL
                           : fl_request_alloc(job->request, bytes);
        if (fresh == NULL) {
            fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
            return false;
        }
        if (all->room > 0)
            memcpy(fresh, all->place, all->room * sizeof at);
        all->place = fresh;
        all->room  = room;
    }
    all->place[all->documents.spans++] = at;
    return true;
}

static bool fail(fl_job *job, const fletch_error *error) {
    if (error->code == FLETCH_EINVAL || error->code == FLETCH_EUTF8)
        fl_job_refuse(job, FL_REFUSE_INPUT, error->where, error->message);
    else
        fl_reply_fail(job->request, error);
    return false;
}

static int unwanted(void *request) {
    return fl_request_over(request, NULL) < 0;
}

/* What the splitter takes for the longest document: its tokens at most one a byte, and the chunks, of which two
 * neighbours have more than `size` tokens together. */
static bool hold_splitter(fl_job *job, const fletch_chunk_options *options) {
    enum { TOKEN = 13, CHUNK = 4 * sizeof(size_t) + sizeof(uint32_t) };
    const fl_body_input *input   = &job->ask.input;
    size_t               longest = 0, size = options->max_tokens;
    size        = size == 0 ? job->served->info.max_length : size;
    size_t each = size > options->overlap + 1 ? (size - options->overlap) / 2 : 1;
    for (size_t i = 0; i < input->count; i++)
        longest = input->lengths[i] > longest ? input->lengths[i] : longest;
    if (!fl_request_hold(job->request, longest * TOKEN + (longest / each + 2) * CHUNK)) {
        fl_reply_error(job->request, FL_HTTP_UNAVAILABLE, "%s", "");
        return false;
    }
    return true;
}

static bool split_one(fl_job *job, chunks *all, size_t d, const fletch_chunk_options *options) {
    const fl_body_input *input  = &job->ask.input;
    fletch_error         error  = {0};
    fletch_chunks       *found  = NULL;
    const size_t         before = all->documents.spans;
    int status = fletch_chunk(job->served->model, input->texts[d], input->lengths[d], options,
                              &found, &error);
    if (status == FLETCH_ECANCELLED)
        status = fl_request_over(job->request, &error); /* why */
    if (status < 0)
        return fail(job, &error);
    bool good = true;
    for (size_t i = 0; good && i < found->count; i++) {
        place at = {{found->offsets[2 * i], found->offsets[2 * i + 1]},
                    {found->chars[2 * i], found->chars[2 * i + 1]},
                    found->tokens[i]};
        good     = at.tokens == 0 || add(job, all, at);
    }
    fletch_chunks_free(found);
    all->documents.counts[d] = all->documents.spans - before;
    return good;
}

static bool split(fl_job *job, chunks *all) {
    fletch_chunk_options options = FLETCH_CHUNK_OPTIONS_INIT;
    const fl_ask        *ask     = &job->ask;
    options.by = ask->by > 0 ? (fletch_chunk_by)(ask->by - FL_WORD_BY) : FLETCH_CHUNK_BY_SENTENCES;
    options.max_tokens = (uint32_t)ask->size;
    options.overlap    = (uint32_t)ask->overlap;
    options.stop       = unwanted;
    options.stop_user  = job->request;
    bool good          = hold_splitter(job, &options);
    for (size_t d = 0; good && d < all->documents.count; d++)
        good = split_one(job, all, d, &options);
    return good;
}

/* ---- Spans that are given ------------------------------------------------------------------------- */

/* A document whose code points can be found. */
typedef struct ruler {
    const char *text;
    size_t      size, points;
    size_t     *mark; /* where every STEP-th code point begins */
} ruler;

static bool lay(fl_job *job, size_t d, ruler *out) {
    out->text   = job->ask.input.texts[d];
    out->size   = job->ask.input.lengths[d];
    out->points = 0;
    out->mark   = fl_request_alloc(job->request, (out->size / STEP + 1) * sizeof *out->mark);
    for (size_t i = 0; out->mark != NULL && i < out->size; i++) {
        bool begins = ((unsigned char)out->text[i] & 0xC0) != 0x80;
        if (begins && out->points % STEP == 0)
            out->mark[out->points / STEP] = i;
        out->points += begins;
    }
    if (out->mark == NULL)
        fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
    return out->mark != NULL;
}

/* The byte at which code point `point` begins. */
static size_t byte_of(const ruler *marks, size_t point) {
    if (point == marks->points)
        return marks->size;
    size_t at = marks->mark[point / STEP];
    for (size_t left = point % STEP; left > 0; left--) {
        unsigned length;
        (void)fl_utf8_decode(marks->text + at, &length);
        at += length;
    }
    return at;
}

/* [begin, end] */
static bool read_pair(fl_json_in *in, int64_t pair[2]) {
    size_t count = 0;
    if (!fl_json_in_enter(in, FL_JSON_ARRAY))
        return false;
    while (fl_json_in_item(in)) {
        int64_t number;
        if (!fl_json_in_integer(in, &number))
            return false;
        pair[count < 2 ? count : 1] = number;
        count++;
    }
    return !in->failed && (count == 2 || fl_json_in_fail(in, true, "a span is [begin, end]"));
}

/* Span number `n` of document `d`. */
static bool take_span(fl_job *job, chunks *all, fl_json_in *in, const ruler *marks, size_t d,
                      size_t n) {
    int64_t pair[2];
    if (!read_pair(in, pair))
        return false;
    const char *wrong = pair[0] < 0         ? "begins before the start of the document"
                        : pair[0] > pair[1] ? "runs backwards"
                        : pair[1] > (int64_t)marks->points ? "ends after the end of the document"
                        : pair[0] == pair[1]               ? "is empty; omit it"
                                                           : NULL;
    if (wrong != NULL) {
        return fl_json_in_fail(
            in, true, "span %zu of document %zu, code points [%" PRId64 ", %" PRId64 ") of %zu, %s",
            n, d, pair[0], pair[1], marks->points, wrong);
    }
    place at = {.chars = {(size_t)pair[0], (size_t)pair[1]}};
    at.bytes = (fletch_span){byte_of(marks, at.chars.begin), byte_of(marks, at.chars.end)};
    return add(job, all, at);
}

static bool take_document(fl_job *job, chunks *all, fl_json_in *in, size_t d) {
    ruler  marks;
    size_t before = all->documents.spans;
    if (d == all->documents.count)
        return fl_json_in_fail(in, true, "more lists of spans than documents");
    if (!fl_json_in_enter(in, FL_JSON_ARRAY) || !lay(job, d, &marks))
        return false;
    while (fl_json_in_item(in))
        if (!take_span(job, all, in, &marks, d, all->documents.spans - before))
            return false;
    all->documents.counts[d] = all->documents.spans - before;
    return !in->failed && (all->documents.counts[d] > 0 ||
                           fl_json_in_fail(in, true, "document %zu has no spans; omit it", d));
}

/* spans: for each document a list of [begin, end]. */
static bool take_spans(fl_job *job, chunks *all) {
    const fl_ask *ask = &job->ask;
    fl_json_in    in;
    size_t        d    = 0;
    bool          good = true;
    all->given         = true;
    if (ask->by != 0 || ask->size != 0 || ask->overlap != 0) {
        fl_job_refuse(job, FL_REFUSE_INPUT, FLETCH_NOWHERE, "spans exclude by, size and overlap");
        return false;
    }
    fl_json_in_again(&in, (char *)(uintptr_t)ask->spans.data, ask->spans.size);
    good = fl_json_in_enter(&in, FL_JSON_ARRAY);
    while (good && fl_json_in_item(&in))
        good = take_document(job, all, &in, d++);
    if (good && !in.failed && d < all->documents.count) {
        (void)fl_json_in_fail(&in, true, "there are %zu lists of spans, and %zu documents", d,
                              all->documents.count);
    }
    if (in.failed) {
        fl_reply_error(job->request, FL_HTTP_VALIDATION, "Input validation error: spans: %s",
                       in.message);
    }
    return good && !in.failed;
}

/* ---- The two ways --------------------------------------------------------------------------------- */

/* Each chunk a text of its own. */
static bool prepare_plain(fl_job *job, const chunks *all) {
    fl_body_input *input   = &job->ask.input;
    size_t         count   = all->documents.spans;
    const char   **texts   = fl_request_alloc(job->request, count * sizeof *texts);
    size_t        *lengths = fl_request_alloc(job->request, count * sizeof *lengths);
    if (texts == NULL || lengths == NULL) {
        fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
        return false;
    }
    for (size_t d = 0, row = 0; d < all->documents.count; d++) {
        for (size_t i = 0; i < all->documents.counts[d]; i++, row++) {
            texts[row]   = input->texts[d] + all->place[row].bytes.begin;
            lengths[row] = all->place[row].bytes.end - all->place[row].bytes.begin;
        }
    }
    input->texts   = texts;
    input->lengths = lengths;
    input->count   = count;
    return fl_job_prepare(job);
}

/* Documents without a chunk have no place in the request. */
static bool prepare_late(fl_job *job, const chunks *all) {
    const fl_body_input *input = &job->ask.input;
    fl_documents         some;
    if (!fl_job_documents(job, all->documents.count, all->documents.spans, &some))
        return false;
    some.count = 0;
    for (size_t d = 0; d < all->documents.count; d++) {
        some.texts[some.count]   = input->texts[d];
        some.lengths[some.count] = input->lengths[d];
        some.counts[some.count]  = all->documents.counts[d];
        some.count += all->documents.counts[d] > 0;
    }
    for (size_t i = 0; i < some.spans; i++)
        some.span[i] = all->place[i].bytes;
    return fl_job_prepare_spans(job, &some);
}

#define AT(member) offsetof(fl_ask, member)
const fl_field fl_fields_tei_chunks[] = {
    {"inputs", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input),
     .forms = FL_INPUT_TEXT | FL_INPUT_TEXTS, .text = "A document, or a list of them."},
    {"by", FL_FIELD_WORD, FL_FIELD_NULL, AT(by), .words = FL_WORDS_BY,
     .text = "Chunk boundaries; default: sentences."},
    {"size", FL_FIELD_INT, FL_FIELD_NULL, AT(size), .min = 1, .max = INT32_MAX,
     .text = "Tokens per chunk; default: as many as the model accepts."},
    {"overlap", FL_FIELD_INT, FL_FIELD_NULL, AT(overlap), .min = 0, .max = INT32_MAX,
     .text = "Tokens of whole sentences that a chunk may repeat from the previous one."},
    {"spans", FL_FIELD_RAW, 0, AT(spans),
     .words = "\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"array\","
              "\"items\":{\"type\":\"integer\",\"minimum\":0},\"minItems\":2,\"maxItems\":2}}",
     .text  = "The chunks of each document, [begin, end] in code points, instead of by, size and "
              "overlap."},
    {FL_ASK_LATE_CHUNKING, .text = "true: each vector carries the context of the whole document."},
    {FL_ASK_TRUNCATE},
    {"normalize", FL_FIELD_BOOL, 0, AT(normalize), .text = "false: raw pooled vectors."},
    {"dimensions", FL_FIELD_INT, FL_FIELD_NULL, AT(dimensions), .min = 0, .max = INT64_MAX,
     .text = "Cut to this many, then normalise again."},
    {FL_ASK_PROMPT_NAME, .text = "One of the model's prompts, prepended to every text."},
    {FL_ASK_MODEL, .text = "One of several loaded models."},
    {FL_ASK_DTYPE},
    {0}};

/* The places take room in the answer beside the vectors, whose own was looked at. */
static void submit(fl_job *job) {
    enum { FLOAT_TEXT = 12 };
    uint64_t most = (uint64_t)job->count * (job->columns * FLOAT_TEXT + PLACE_TEXT);
    if (most > FL_ANSWER_MAX && !job->octets) {
        fl_job_refuse(job, FL_REFUSE_TOO_MUCH, FLETCH_NOWHERE,
                      "the answer would be larger than 512 MiB; send fewer documents at once");
        return;
    }
    job->details             = false; /* tokens are told of each chunk */
    job->request->reply_most = most;
    fl_job_submit(job); /* this is a worker already */
}

void fl_tei_embed_chunks(fl_http_request *request) {
    fl_job *job = fl_job_read(request, &style, fl_fields_tei_chunks);
    if (job == NULL)
        return;
    if (job->ask.input.empty) {
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, "");
        return;
    }
    chunks *all = fl_request_alloc(request, sizeof *all);
    if (all == NULL || !fl_job_model(job)) {
        if (all == NULL)
            fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
        return;
    }
    job->extra            = all;
    all->documents.count  = job->ask.input.count;
    all->documents.counts = fl_request_alloc(request, all->documents.count * sizeof(size_t));
    if (all->documents.counts == NULL) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
        return;
    }
    if (job->ask.spans.data != NULL ? !take_spans(job, all) : !split(job, all))
        return;
    if (all->documents.spans == 0) { /* nothing but white space */
        (void)write_chunks(job, NULL);
        fl_reply_json(request, 200);
        return;
    }
    if (job->ask.late_chunking == 1 ? prepare_late(job, all) : prepare_plain(job, all))
        submit(job);
}
