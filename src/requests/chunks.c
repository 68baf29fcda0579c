/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.c - a document cut into chunks that the model takes.
 *
 * Role    fletch_chunk: what the options mean for this model, and the offsets in code points.
 * Memory  A fletch_chunks is one allocation: the struct, then its arrays behind it.
 * Threads Each call takes a task (tokenize_task.h), so callers do not wait for each other.
 * Proof   tests/unit/test_chunks.c, tests/cli/test_cli_chunk.py. */
#include "requests/chunks.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "requests/open_model.h"
#include "requests/tokenize_task.h"
#include "requests/tokens.h"
#include "tokenizer/chunker.h"

static const fl_unit units[] = {[FLETCH_CHUNK_BY_SENTENCES]  = FL_UNIT_SENTENCE,
                                [FLETCH_CHUNK_BY_TOKENS]     = FL_UNIT_WORD,
                                [FLETCH_CHUNK_BY_PARAGRAPHS] = FL_UNIT_PARAGRAPH,
                                [FLETCH_CHUNK_BY_MARKDOWN]   = FL_UNIT_SECTION};

/* A chunk and where it begins and ends in code points. */
typedef struct placed {
    fl_chunk_span chunk;
    size_t        chars[2];
} placed;

typedef struct list {
    placed *at; /* owned [room] */
    size_t  count, room;
} list;

static int resolve(const fletch_model *model, const fletch_chunk_options *options,
                   fl_chunker_options *out, fletch_error *error) {
    uint32_t special = fl_tokenizer_special_count(model->tokenizer);
    bool     endless = model->max_length > INT32_MAX; /* a table of vectors: any length will do */
    uint32_t most    = endless                       ? INT32_MAX
                       : model->max_length > special ? model->max_length - special
                                                     : 0;
    *out = (fl_chunker_options){units[options->by], options->max_tokens, options->overlap};
    if (out->size == 0 && endless)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "the model accepts texts of any length; set the number of tokens per chunk");
    if (out->size == 0)
        out->size = most;
    if (out->size > most || most == 0)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "a chunk of %u tokens is too long for the model: it accepts %u, with %u "
                       "special tokens max_length %u; use %u or fewer",
                       out->size, most, special, model->max_length, most);
    if (out->overlap >= out->size)
        return fl_fail(
            error, FLETCH_EINVAL, FLETCH_NOWHERE,
            "an overlap of %u tokens leaves nothing new in a chunk of %u; use less than %u",
            out->overlap, out->size, out->size);
    return FLETCH_OK;
}

static int collect(fl_chunker *chunker, list *found, fletch_error *error) {
    for (;;) {
        placed one;
        int    more = fl_chunker_next(chunker, &one.chunk, error);
        if (more <= 0)
            return more;
        const placed *last = found->count > 0 ? &found->at[found->count - 1] : NULL;
        size_t        from = last ? last->chunk.begin : 0, begin = one.chunk.begin;
        one.chars[0] = last ? last->chars[0] : 0;
        one.chars[0] += fl_utf8_count(chunker->text + from, begin - from);
        one.chars[1] = one.chars[0] + fl_utf8_count(chunker->text + begin, one.chunk.end - begin);
        if (!fl_array_reserve(&found->at, &found->room, found->count + 1, sizeof *found->at))
            return fl_fail_nomem(error, found->count * sizeof *found->at, "the chunks of a text");
        found->at[found->count++] = one;
    }
}

static fletch_chunks *chunks_of(const list *found) {
    size_t         each   = 4 * sizeof(size_t) + sizeof(uint32_t);
    fletch_chunks *chunks = fl_alloc(sizeof *chunks + found->count * each); /* list has more each */
    if (!chunks)
        return NULL;
    size_t   *offsets = (size_t *)(void *)(chunks + 1);
    size_t   *chars   = offsets + 2 * found->count;
    uint32_t *tokens  = (uint32_t *)(void *)(chars + 2 * found->count);
    for (size_t i = 0; i < found->count; i++) {
        const placed *one  = &found->at[i];
        offsets[2 * i]     = one->chunk.begin;
        offsets[2 * i + 1] = one->chunk.end;
        chars[2 * i]       = one->chars[0];
        chars[2 * i + 1]   = one->chars[1];
        tokens[i]          = one->chunk.tokens;
    }
    *chunks = (fletch_chunks){found->count, offsets, chars, tokens};
    return chunks;
}

int fl_requests_chunk(fletch_model *model, const char *text, size_t size,
                      const fletch_chunk_options *options, fletch_chunks **chunks,
                      fletch_error *error) {
    fl_chunker_options resolved;
    FL_TRY(resolve(model, options, &resolved, error));
    FL_TRY(fl_check_text(text, size, error));
    fl_tokenize_task *task = fl_tokenize_task_take(model, options->stop, options->stop_user, error);
    if (!task)
        return FLETCH_ENOMEM;
    fl_chunker chunker;
    list       found = {0};
    int        status =
        fl_chunker_open(&chunker, model->tokenizer, task->scratch, text, size, &resolved, error);
    if (status == FLETCH_OK)
        status = collect(&chunker, &found, error);
    fl_chunker_close(&chunker);
    fl_tokenize_task_give(model, task);
    if (status == FLETCH_OK) {
        *chunks = chunks_of(&found);
        if (!*chunks)
            status = fl_fail_nomem(error, found.count * sizeof *found.at, "the chunks of a text");
    }
    fl_free(found.at);
    return status;
}
