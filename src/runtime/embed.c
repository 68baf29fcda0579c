/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c - texts to rows: tokenise until the budget is full, forward, finish the rows, go on.
 *
 * Role    fletch_embed, after its arguments were checked.
 * Method  The windows of a call are its batches: a batch closes when its tokens reach
 *         batch.max_tokens or it holds FL_BATCH_TEXTS_MAX texts, so a call of ten million texts
 *         needs no more memory than one batch. An engine without padding needs no sorting, and rows
 *         come out in input order. Where nothing but normalising follows pooling, the engine writes
 *         into the caller's matrix.
 * Errors  The first text that is not UTF-8 or too long (truncate=error) ends the call with its
 *         index in error->where; rows of earlier batches are written by then.
 * Threads Any number of callers; one at a time is inside the engine.
 * Proof   tests/unit/test_fletch.c, tests/golden/test_vectors.py. */
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "runtime/runtime.h"

/* What one call resolved from model, configuration and options. */
typedef struct job {
    fletch_model               *model;
    const fletch_texts         *texts;
    const fletch_embed_options *options;
    fletch_matrix              *out;
    fletch_error               *error;
    fl_staging                 *staging;
    fl_output                   output;
    fl_encode_options           encode;
    const char                 *prompt; /* "" for none */
    size_t                      prompt_size;
    uint32_t                    prompt_skip; /* its tokens, when they stay out of pooling */
    bool                        refuse_long;
    bool                        in_place;
} job;

int fl_texts_at(const fletch_texts *texts, size_t index, const char **text, size_t *size,
                fletch_error *error) {
    if (texts->pointers) {
        *text = texts->pointers[index];
        if (!*text)
            return fl_fail(error, FLETCH_EINVAL, index, "text %zu is a NULL pointer", index);
        *size = texts->lengths ? texts->lengths[index] : strlen(*text);
        return FLETCH_OK;
    }
    int64_t begin = texts->offsets64 ? texts->offsets64[index] : texts->offsets32[index];
    int64_t end   = texts->offsets64 ? texts->offsets64[index + 1] : texts->offsets32[index + 1];
    if (begin < 0 || end < begin)
        return fl_fail(error, FLETCH_EINVAL, index,
                       "text %zu: its offsets %lld and %lld are negative or run backwards", index,
                       (long long)begin, (long long)end);
    *size = (size_t)(end - begin);
    *text = *size > 0 && texts->bytes ? texts->bytes + begin : "";
    if (*size > 0 && !texts->bytes) /* NULL is fine as long as every text is empty */
        return fl_fail(error, FLETCH_EINVAL, index, "text %zu: bytes is NULL", index);
    return FLETCH_OK;
}

static int fail_utf8(fletch_error *error, size_t index, const char *text, size_t valid) {
    return fl_fail(error, FLETCH_EUTF8, index,
                   "text %zu is not valid UTF-8: byte 0x%02X at offset %zu; convert it to UTF-8 or "
                   "replace such bytes before embedding",
                   index, (unsigned)(unsigned char)text[valid], valid);
}

/* Tokenise text `index` behind the `count` texts already staged. */
static int stage_text(job *j, size_t index, uint32_t count) {
    const char *text   = NULL;
    size_t      size   = 0;
    int         status = fl_texts_at(j->texts, index, &text, &size, j->error);
    if (status < 0)
        return status;
    size_t valid = fl_utf8_valid_prefix(text, size);
    if (valid != size)
        return fail_utf8(j->error, index, text, valid);
    fl_staging *s = j->staging;
    if (j->prompt_size) {
        fl_buf_clear(&s->text);
        fl_buf_append(&s->text, j->prompt, j->prompt_size);
        fl_buf_append(&s->text, text, size);
        if (s->text.failed)
            return fl_fail_nomem(j->error, j->prompt_size + size, "a text with its prompt");
        text = s->text.data;
        size = s->text.size;
    }
    size_t   tokens    = 0;
    bool     truncated = false;
    uint32_t at        = s->cu[count];
    status = fl_tokenizer_encode(j->model->tokenizer, s->scratch, text, size, &j->encode,
                                 s->ids + at, s->ids_capacity - at, &tokens, &truncated, j->error);
    if (status < 0)
        return status;
    if (truncated && j->refuse_long)
        return fl_fail(
            j->error, FLETCH_ETOOLONG, index,
            "text %zu has more than %u tokens and truncation is off; shorten it, or allow "
            "truncation (truncate=right)",
            index, j->encode.max_length);
    if (tokens == 0) /* no special tokens in this model: there is nothing to pool */
        return fl_fail(j->error, FLETCH_EINVAL, index,
                       "text %zu has no tokens, and this model's tokenizer adds none; leave such "
                       "texts out",
                       index);
    s->cu[count + 1] = at + (uint32_t)tokens;
    s->skip[count]   = j->prompt_skip < tokens ? j->prompt_skip : (uint32_t)tokens;
    if (j->options->tokens)
        j->options->tokens[index] = (uint32_t)tokens;
    if (j->options->truncated)
        j->options->truncated[index] = truncated;
    return FLETCH_OK;
}

static char *out_row(const fletch_matrix *out, size_t index) {
    return (char *)out->data + index * out->stride;
}

/* Forward `count` staged texts, the first of which is text `first` of the call, and finish their
 * rows. */
static int run_batch(job *j, size_t first, uint32_t count) {
    fletch_model *model = j->model;
    fl_staging   *s     = j->staging;
    fl_batch      batch = {.ids       = s->ids,
                           .cu        = s->cu,
                           .texts     = count,
                           .tokens    = s->cu[count],
                           .pool_skip = j->prompt_skip ? s->skip : NULL};
    size_t        width = fl_encoder_width(&model->model->encoder);
    for (uint32_t i = 0; i < count; i++)
        s->row[i] =
            j->in_place ? (float *)(void *)out_row(j->out, first + i) : s->rows + (size_t)i * width;
    batch.rows = s->row;
    pthread_mutex_lock(&model->engine_lock);
    int status = model->ops->forward(model->engine, 0, &batch, j->error);
    pthread_mutex_unlock(&model->engine_lock);
    if (status < 0) {
        if (j->error && j->error->where != FLETCH_NOWHERE)
            j->error->where += first;
        return status;
    }
    for (uint32_t i = 0; i < count; i++)
        if (!fl_output_row(&j->output, s->row[i], s->line, out_row(j->out, first + i)))
            return fl_fail(
                j->error, FLETCH_EMODEL, first + i,
                "the vector of a text is not finite behind the encoder: a Dense or LayerNorm "
                "module holds NaN or infinite values, or overflows float32. Run `fletch model "
                "verify` or pull the model again");
    return FLETCH_OK;
}

static int run(job *j) {
    fl_staging *s     = j->staging;
    size_t      index = 0;
    s->cu[0]          = 0;
    while (index < j->texts->count) {
        size_t   first = index;
        uint32_t count = 0;
        while (index < j->texts->count && count < FL_BATCH_TEXTS_MAX &&
               s->cu[count] < j->model->batch_tokens) {
            int status = stage_text(j, index++, count++);
            if (status < 0)
                return status;
        }
        int status = run_batch(j, first, count);
        if (status < 0)
            return status;
    }
    return FLETCH_OK;
}

/* The number of tokens a prompt takes at the head of every text: its ids with specials, less the
 * closing special, as sentence-transformers counts them for include_prompt=false. */
static int count_prompt(job *j) {
    fl_staging *s      = j->staging;
    size_t      tokens = 0;
    bool        cut    = false;
    int status = fl_tokenizer_encode(j->model->tokenizer, s->scratch, j->prompt, j->prompt_size,
                                     &j->encode, s->ids, s->ids_capacity, &tokens, &cut, j->error);
    if (status < 0)
        return status;
    uint32_t closing = fl_tokenizer_special_count(j->model->tokenizer) > 1 ? 1 : 0;
    j->prompt_skip   = (uint32_t)tokens - (tokens > 0 ? closing : 0);
    return FLETCH_OK;
}

static int resolve_prompt(job *j) {
    const fletch_embed_options *options = j->options;
    j->prompt                           = j->model->prompt;
    if (options->prompt) {
        j->prompt = options->prompt;
    } else if (options->prompt_name) {
        int status = fl_runtime_prompt(j->model, options->prompt_name, &j->prompt, j->error);
        if (status < 0)
            return status;
    }
    j->prompt_size = strlen(j->prompt);
    size_t valid   = fl_utf8_valid_prefix(j->prompt, j->prompt_size);
    if (valid != j->prompt_size)
        return fl_fail(j->error, FLETCH_EUTF8, FLETCH_NOWHERE,
                       "the prompt is not valid UTF-8 at offset %zu", valid);
    if (j->prompt_size == 0 || j->model->model->include_prompt)
        return FLETCH_OK;
    return count_prompt(j);
}

static int resolve_lengths(job *j) {
    const fletch_model *model   = j->model;
    uint32_t            asked   = j->options->max_length;
    uint32_t            max     = asked ? asked : model->max_length;
    uint32_t            special = fl_tokenizer_special_count(model->tokenizer);
    if (max <= special)
        return fl_fail(j->error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "max_length %u leaves no room for text: the model adds %u special tokens",
                       max, special);
    fletch_truncate how  = j->options->truncate ? j->options->truncate : model->truncate;
    j->refuse_long       = how == FLETCH_TRUNCATE_ERROR;
    j->encode.max_length = max < model->length_limit ? max : model->length_limit;
    j->encode.truncation = how == FLETCH_TRUNCATE_LEFT ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT;
    return FLETCH_OK;
}

static int resolve_output(job *j) {
    const fletch_embed_options *options = j->options;
    const fletch_model         *model   = j->model;
    uint32_t                    full    = model->model->dimensions;
    uint32_t columns = options->dimensions ? options->dimensions : model->dimensions;
    if (columns > full)
        return fl_fail(j->error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "%u dimensions asked for, but the model has %u; ask for at most that many",
                       columns, full);
    if (j->out->cols != columns)
        return fl_fail(j->error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "the matrix has %zu columns, but the vectors have %u dimensions",
                       j->out->cols, columns);
    j->output.model     = model->model;
    j->output.columns   = columns;
    j->output.raw       = options->normalize < 0 || (options->normalize == 0 && !model->normalize);
    j->output.normalize = options->normalize > 0 || (options->normalize == 0 && model->normalize);
    j->output.renormalize =
        options->dimensions != 0 || options->normalize > 0 || model->renormalize;
    j->output.dtype = j->out->dtype;
    j->in_place     = fl_output_in_place(&j->output, j->out);
    return FLETCH_OK;
}

int fl_runtime_embed(fletch_model *model, const fletch_texts *texts,
                     const fletch_embed_options *options, fletch_matrix *out, fletch_error *error) {
    job j      = {.model = model, .texts = texts, .options = options, .out = out, .error = error};
    int status = resolve_output(&j);
    if (status == FLETCH_OK)
        status = resolve_lengths(&j);
    if (status < 0 || texts->count == 0)
        return status;
    j.staging = fl_staging_take(model, error);
    if (!j.staging)
        return FLETCH_ENOMEM;
    status = resolve_prompt(&j);
    if (status == FLETCH_OK)
        status = run(&j);
    fl_staging_give(model, j.staging);
    return status;
}
