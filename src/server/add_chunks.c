/* SPDX-License-Identifier: Apache-2.0 */
/* add_chunks.c - the chunks of what is added, and what is embedded of each.
 *
 * Role    seed.c's /add with "chunk" or "context".
 * In/Out  Documents in; items that have the document's id and metadata, a chunk's text and its place out, and the
 *         texts to embed: the chunk, or the template of "context" around it.
 * Method  fletch_chunk cuts. A document of one chunk is a whole item, as if nothing had been asked. The template
 *         is read once: {chunk} is the chunk, {name} what the document's metadata has under that name, {{ and }} are
 *         braces. What it adds takes room of the model's length, so chunks are cut shorter by it, unless they
 *         are short enough, and none is cut off when it is embedded.
 *         With late_chunking the items are spans of their documents instead, which a context has no place in.
 * Memory  request memory; what fletch_chunk returns, which is bounded and counted as the request's.
 * Threads a worker. Proof: tests/server/test_search.py. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/seed.h"

enum {
    PIECES_MAX = 32,
    PLACE      = 2 * 2 * sizeof(size_t) + sizeof(uint32_t), /* bytes of a chunk in fletch_chunks */
    SLACK      = 2,                                         /* tokens that a seam may make */
    ROOM_MIN   = 8 /* tokens of a chunk beside its context */
};

typedef struct piece {
    enum { LITERAL, FIELD, CHUNK } kind;
    fl_span text;  /* or a field's name */
    fl_span value; /* of the field in the document at hand; data NULL: it is not there */
} piece;

typedef struct template {
    piece  pieces[PIECES_MAX]; /* none: the chunk alone */
    size_t count;
}
template;

/* ---- The template -------------------------------------------------------------------------------- */

/* Read it; NULL, or what is wrong. */
static const char *read_template(fl_span text, template *out) {
    bool has_chunk = false;
    out->count     = 0;
    for (size_t at = 0; at < text.size;) {
        piece *next = &out->pieces[out->count];
        char   c    = text.data[at];
        if (out->count++ == PIECES_MAX)
            return "context: it has more than 32 pieces";
        if ((c == '{' || c == '}') && at + 1 < text.size && text.data[at + 1] == c) {
            *next = (piece){LITERAL, {text.data + at, 1}, {0}};
            at += 2;
        } else if (c == '}') {
            return "context: unmatched }; write }} for a literal brace";
        } else if (c == '{') {
            const char *end = memchr(text.data + at, '}', text.size - at);
            if (end == NULL || end == text.data + at + 1)
                return "context: expected a name between { and }; write {{ for a literal brace";
            fl_span name = {text.data + at + 1, (size_t)(end - text.data) - at - 1};
            *next        = (piece){fl_span_is(name, "chunk") ? CHUNK : FIELD, name, {0}};
            has_chunk    = has_chunk || next->kind == CHUNK;
            at           = (size_t)(end - text.data) + 1;
        } else {
            size_t begin = at;
            while (at < text.size && text.data[at] != '{' && text.data[at] != '}')
                at++;
            *next = (piece){LITERAL, {text.data + begin, at - begin}, {0}};
        }
    }
    return has_chunk || text.data == NULL ? NULL
                                          : "context: it needs {chunk}, which stands for the chunk";
}

/* A member of the metadata to the pieces that name it. */
static void fill_field(template *context, fl_span key, fl_span value) {
    for (size_t i = 0; i < context->count; i++) {
        piece *p = &context->pieces[i];
        if (p->kind == FIELD && p->text.size == key.size &&
            memcmp(p->text.data, key.data, key.size) == 0)
            p->value = value;
    }
}

/* The metadata's fields that the template names; false: answered. The metadata may be that of other documents too, so
 * what is read, and un-escaped by that, is a copy. */
static bool fill_fields(fl_http_request *request, template *context, const fl_stored_item *item,
                        size_t index) {
    fl_json_in in;
    fl_span    key, value;
    char      *copy = fl_request_alloc(request, item->metadata_size + 1);
    if (copy == NULL)
        return fl_seed_no_memory(request);
    for (size_t i = 0; i < context->count; i++)
        context->pieces[i].value = (fl_span){0};
    if (item->metadata != NULL) {
        memcpy(copy, item->metadata, item->metadata_size);
        fl_json_in_again(&in, copy, item->metadata_size);
        bool on = fl_json_in_enter(&in, FL_JSON_OBJECT);
        while (on && fl_json_in_key(&in, &key)) {
            fl_json_type type = fl_json_in_peek(&in);
            on                = type == FL_JSON_STRING ? fl_json_in_string(&in, &value)
                                                       : fl_json_in_skip(&in, &value);
            if (on && type != FL_JSON_OBJECT && type != FL_JSON_ARRAY)
                fill_field(context, key, type == FL_JSON_NULL ? (fl_span){"", 0} : value);
        }
    }
    for (size_t i = 0; i < context->count; i++) {
        const piece *p = &context->pieces[i];
        if (p->kind == FIELD && p->value.data == NULL) {
            return fl_seed_refuse(
                request, "context: the metadata of text %zu has no text under \"%.*s\"", index,
                (int)(p->text.size < 64 ? p->text.size : 64), p->text.data);
        }
    }
    return true;
}

static fl_span value_of(const piece *p, fl_span chunk) {
    return p->kind == LITERAL ? p->text : p->kind == FIELD ? p->value : chunk;
}

/* The template around `chunk`, in request memory; data NULL: there is none. */
static fl_span fill_template(fl_http_request *request, const template *context, fl_span chunk) {
    size_t size = 0, at = 0;
    if (context->count == 0)
        return chunk;
    for (size_t i = 0; i < context->count; i++)
        size += value_of(&context->pieces[i], chunk).size;
    char *text = fl_request_alloc(request, size + 1);
    for (size_t i = 0; text != NULL && i < context->count; i++) {
        fl_span value = value_of(&context->pieces[i], chunk);
        memcpy(text + at, value.data, value.size);
        at += value.size;
    }
    return (fl_span){text, size};
}

bool fl_split_check(fl_job *job) {
    const fl_ask *ask = &job->ask;
    template context;
    const char *wrong = read_template(ask->context, &context);
    if (wrong != NULL)
        return fl_seed_refuse(job->request, "%s", wrong);
    if (ask->size > 0 && ask->overlap >= ask->size)
        return fl_seed_refuse(job->request, "chunk: overlap must be less than size");
    if (ask->late_chunking == 1 && ask->context.data != NULL) {
        return fl_seed_refuse(job->request, "context and late_chunking exclude each other: a late "
                                            "chunk already carries its document's context");
    }
    return true;
}

/* ---- Cutting ------------------------------------------------------------------------------------- */

static int is_over(void *request) {
    return fl_request_over(request, NULL) < 0;
}

/* Tokens that are left for a chunk beside special tokens, prompt and context; 0: answered. */
static uint32_t room_of(fl_job *job, const template *context, size_t index) {
    fl_http_request        *request = job->request;
    fletch_tokens          *tokens  = NULL;
    fletch_tokenize_options options = FLETCH_TOKENIZE_OPTIONS_INIT;
    fletch_error            error   = {0};
    const char             *prompt  = job->ask.prompt_name.data != NULL
                                          ? fl_served_prompt(job->served, job->ask.prompt_name)
                                          : job->served->info.prompt;
    fl_span                 around  = fill_template(request, context, (fl_span){"", 0});
    prompt                          = prompt != NULL ? prompt : "";
    size_t before                   = strlen(prompt);
    char  *text                     = fl_request_alloc(request, before + around.size + 1);
    if (text == NULL || around.data == NULL) {
        (void)fl_seed_no_memory(request);
        return 0;
    }
    memcpy(text, prompt, before);
    memcpy(text + before, around.data, around.size);
    options.stop      = is_over;
    options.stop_user = request;
    if (fletch_tokenize(job->served->model, text, before + around.size, &options, &tokens, &error) <
        0) {
        fl_seed_fail_stopped(request, &error);
        return 0;
    }
    size_t used = tokens->count + (context->count > 0 ? SLACK : 0);
    size_t most = job->served->info.max_length;
    fletch_tokens_free(tokens);
    if (used + ROOM_MIN > most) {
        (void)fl_seed_refuse(request,
                             "context: of text %zu it has %zu tokens, which leaves no room for a "
                             "chunk: the model accepts %zu",
                             index, used, most);
        return 0;
    }
    return (uint32_t)(most - used);
}

/* Chunks that a text of so many bytes can have at most: sections of Markdown are never put together. */
static size_t chunks_max(const fletch_chunk_options *options, size_t size) {
    return options->by == FLETCH_CHUNK_BY_MARKDOWN ? size / 2 + 1
                                                   : 2 * (size / options->max_tokens) + 2;
}

/* Document `index`; NULL: answered. */
static fletch_chunks *cut(fl_job *job, template *context, size_t index) {
    const fl_ask         *ask     = &job->ask;
    const fl_seed_added  *added   = job->extra;
    const fl_stored_item *item    = &added->documents[index];
    fletch_chunk_options  options = FLETCH_CHUNK_OPTIONS_INIT;
    fletch_chunks        *chunks  = NULL;
    fletch_error          error   = {0};
    if (context->count > 0 && !fill_fields(job->request, context, item, index))
        return NULL;
    uint32_t room = room_of(job, context, index);
    if (room == 0)
        return NULL;
    bool fits = ask->size > 0 && ask->size <= room;
    if (ask->size > room && context->count == 0) {
        (void)fl_seed_refuse(job->request,
                             "chunk: a size of %" PRId64
                             " tokens is too long for the model, which accepts %u besides special "
                             "tokens and the prompt",
                             ask->size, (unsigned)room);
        return NULL;
    }
    options.by         = ask->by > 0 ? (fletch_chunk_by)(ask->by - FL_WORD_BY) : options.by;
    options.max_tokens = fits ? (uint32_t)ask->size : room;
    options.overlap    = (uint32_t)ask->overlap;
    options.stop       = is_over;
    options.stop_user  = job->request;
    if (options.overlap >= options.max_tokens) {
        (void)fl_seed_refuse(
            job->request, "chunk: overlap must be less than size, which is %u tokens for text %zu",
            options.max_tokens, index);
        return NULL;
    }
    size_t bytes;
    if (fl_mul_overflow(chunks_max(&options, item->text_size), PLACE, &bytes) != 0 ||
        !fl_request_hold(job->request, bytes)) {
        (void)fl_seed_no_memory(job->request);
        return NULL;
    }
    if (fletch_chunk(job->served->model, item->text, item->text_size, &options, &chunks, &error) <
        0) {
        fl_seed_fail_stopped(job->request, &error);
        return NULL;
    }
    return chunks;
}

/* ---- Items --------------------------------------------------------------------------------------- */

typedef struct output {
    const char **texts;
    size_t      *sizes;
    size_t       at; /* of added->items */
} output;

static void put_item(fl_stored_item *item, const fl_stored_item *whole, size_t number,
                     const fletch_chunks *chunks, size_t i) {
    const size_t *bytes = &chunks->offsets[2 * i], *chars = &chunks->chars[2 * i];
    *item           = *whole;
    item->text      = whole->text + bytes[0];
    item->text_size = bytes[1] - bytes[0];
    item->place     = (fl_chunk_place){.part  = chunks->count > 1,
                                       .chunk = (int64_t)number,
                                       .bytes = {(int64_t)bytes[0], (int64_t)bytes[1]},
                                       .chars = {(int64_t)chars[0], (int64_t)chars[1]}};
}

/* Late chunking: a chunk without a token has no vector of its own; a document of one other chunk stays whole. */
static void put_spans(fl_job *job, size_t index, const fletch_chunks *chunks, output *out) {
    fl_seed_added        *added = job->extra;
    fl_documents         *late  = &added->late;
    const fl_stored_item *whole = &added->documents[index];
    size_t                found = 0;
    for (size_t i = 0; i < chunks->count; i++)
        found += chunks->tokens[i] > 0;
    late->texts[index]   = whole->text;
    late->lengths[index] = whole->text_size;
    late->counts[index] = added->chunks[index] = found > 1 ? found : 1;
    for (size_t i = 0, number = 0; i < chunks->count && number < late->counts[index]; i++) {
        fl_stored_item *item = &added->items[out->at];
        if (found <= 1) {
            *item = *whole;
        } else if (chunks->tokens[i] > 0) {
            put_item(item, whole, number, chunks, i);
            item->place.late = true;
        } else {
            continue;
        }
        const size_t begin    = (size_t)(item->text - whole->text);
        late->span[out->at]   = (fletch_span){begin, begin + item->text_size};
        out->texts[out->at]   = item->text;
        out->sizes[out->at++] = item->text_size;
        number++;
    }
}

static bool put_chunks(fl_job *job, template *context, size_t index, const fletch_chunks *chunks,
                       output *out) {
    fl_seed_added        *added = job->extra;
    const fl_stored_item *whole = &added->documents[index];
    if (context->count > 0 && !fill_fields(job->request, context, whole, index))
        return false;
    added->chunks[index] = chunks->count;
    for (size_t i = 0; i < chunks->count; i++) {
        fl_stored_item *item = &added->items[out->at];
        put_item(item, whole, i, chunks, i);
        fl_span text = fill_template(job->request, context, (fl_span){item->text, item->text_size});
        if (text.data == NULL)
            return fl_seed_no_memory(job->request);
        out->texts[out->at]   = text.data;
        out->sizes[out->at++] = text.size;
    }
    return true;
}

/* All documents' chunks as items; false: answered. */
static bool put_all(fl_job *job, template *context, fletch_chunks *const *chunks, size_t total) {
    fl_seed_added *added = job->extra;
    output         out   = {.texts = fl_request_alloc(job->request, total * sizeof *out.texts),
                            .sizes = fl_request_alloc(job->request, total * sizeof *out.sizes)};
    added->items         = fl_request_alloc(job->request, total * sizeof *added->items);
    added->chunks = fl_request_alloc(job->request, added->document_count * sizeof *added->chunks);
    if (out.texts == NULL || out.sizes == NULL || added->items == NULL || added->chunks == NULL)
        return fl_seed_no_memory(job->request);
    const bool late = job->ask.late_chunking == 1;
    if (late && !fl_job_documents(job, added->document_count, total, &added->late))
        return false;
    for (size_t i = 0; i < added->document_count; i++)
        if (late)
            put_spans(job, i, chunks[i], &out);
        else if (!put_chunks(job, context, i, chunks[i], &out))
            return false;
    added->late.spans      = late ? out.at : 0;
    job->ask.input.texts   = out.texts;
    job->ask.input.lengths = out.sizes;
    job->ask.input.count   = out.at;
    return true;
}

/* Without "chunk" a document is one chunk, around which there may be a context. */
static fletch_chunks *whole(const fl_stored_item *item, size_t places[4], fletch_chunks *out) {
    places[0] = places[2] = 0;
    places[1]             = item->text_size;
    places[3]             = fl_utf8_count(item->text, item->text_size);
    *out                  = (fletch_chunks){.count = 1, .offsets = places, .chars = places + 2};
    return out;
}

bool fl_split(fl_job *job) {
    fl_seed_added *added = job->extra;
    size_t         count = added->document_count, total = 0, done = 0;
    bool           cuts    = job->ask.chunk == 1;
    template      *context = fl_request_alloc(job->request, sizeof *context);
    /* of documents that stay whole: their one chunk */
    fletch_chunks **chunks = fl_request_alloc(job->request, count * sizeof *chunks);
    fletch_chunks  *wholes = fl_request_alloc(job->request, cuts ? 1 : count * sizeof *wholes);
    size_t(*places)[4]     = fl_request_alloc(job->request, cuts ? 1 : count * sizeof *places);
    if (context == NULL || chunks == NULL || wholes == NULL || places == NULL)
        return fl_seed_no_memory(job->request);
    (void)read_template(job->ask.context, context);
    for (; done < count; done++) {
        chunks[done] = cuts ? cut(job, context, done)
                            : whole(&added->documents[done], places[done], &wholes[done]);
        if (chunks[done] == NULL)
            break;
        total += chunks[done]->count;
    }
    bool good = done == count && put_all(job, context, chunks, total);
    for (size_t i = 0; cuts && i < done; i++)
        fletch_chunks_free(chunks[i]);
    return good;
}
