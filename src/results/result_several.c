/* SPDX-License-Identifier: Apache-2.0 */
/* result_several.c - several outputs of one pass: rows in any widths and types, weights of words, vectors of tokens.
 *
 * Role    Each output is an answer of its own, a part, with the table of its kind: what a part makes of a text is
 *         what a call for it alone would have made, byte for byte, and is cached and copied under the same plan.
 *         One output is that call.
 * Method  Parts of rows alone finish the row that the engine pooled. Where one needs the tokens' rows, the engine
 *         writes those where the first of them wants them; each other part gets a copy while it is finished, rows are
 *         pooled as the engine pools them, and the first part comes last, since it may work in place.
 * Memory  The parts, of the heap; while a text is finished, a copy of its tokens' rows and a pooled one.
 * Threads see result.h.
 * Proof   tests/golden/test_outputs.py, tests/unit/test_fletch.c. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "results/kinds.h"
#include "results/row_stages.h"

static const fl_result_ops of_tokens, of_rows;

/* ---- What is asked for ------------------------------------------------------------------------ */

static const fletch_output *output_at(const fl_answer *answer, size_t i) {
    return (const fletch_output *)(const void *)(answer->outputs + i * answer->output_size);
}

/* Output i as a call of its own. */
static int resolve_one(fl_answer *part, const fl_answer *whole, size_t i,
                       const fletch_request *asked, fletch_error *error) {
    const fletch_output *output  = output_at(whole, i);
    fletch_embed_options options = *asked->options;
    fletch_request       one     = *asked;
    one.kind                     = output->kind;
    one.out                      = output->out;
    one.options                  = &options;
    options.normalize            = output->normalize ? output->normalize : options.normalize;
    if (output->kind == FLETCH_KIND_DENSE && output->out.cols != whole->of->dimensions)
        options.dimensions =
            output->out.cols < UINT32_MAX ? (uint32_t)output->out.cols : UINT32_MAX;
    return fl_answer_resolve(part, whole->of, &one, error);
}

static int resolve_parts(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    fl_lists *first = NULL;
    answer->ops     = &of_rows;
    answer->part    = fl_alloc_zero(answer->output_count, sizeof *answer->part);
    if (!answer->part)
        return fl_fail_nomem(error, answer->output_count * sizeof *answer->part,
                             "the outputs of a call");
    answer->parts = answer->output_count;
    for (size_t i = 0; i < answer->parts; i++) {
        fl_answer *part = &answer->part[i];
        FL_TRY(resolve_one(part, answer, i, asked, error));
        part->in_place = false; /* the engine's row has other uses */
        if (part->ops->place)
            answer->ops = &of_tokens;
        if (part->filled_to > 0) /* of late interaction, whose outputs are all of tokens */
            answer->filled_to = part->filled_to;
        if (first && part->lists)
            part->lists->bytes = &first->own; /* list_bytes is of all lists together */
        first = first ? first : part->lists;
    }
    return FLETCH_OK;
}

static int resolve(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    answer->outputs      = (char *)asked->outputs;
    answer->output_count = asked->output_count;
    answer->output_size  = asked->outputs->size;
    return answer->output_count == 1 ? resolve_one(answer, answer, 0, asked, error)
                                     : resolve_parts(answer, asked, error);
}

/* ---- Of a pooled row ----------------------------------------------------------------------------- */

static int finish_rows(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    for (size_t i = 0; i < answer->parts; i++)
        FL_TRY(answer->part[i].ops->finish(&answer->part[i], text, made, error));
    return FLETCH_OK;
}

/* ---- Of the tokens' rows ------------------------------------------------------------------------- */

/* The part that the engine writes for. */
static fl_answer *first_placed(const fl_answer *answer) {
    fl_answer *part = answer->part;
    while (!part->ops->place)
        part++;
    return part;
}

static int place(fl_answer *answer, size_t text, const int32_t *ids, size_t count, float **rows) {
    fl_answer *first = first_placed(answer);
    return first->ops->place(first, text, ids, count, rows);
}

static uint32_t max_length(const fl_answer *answer, uint32_t asked) {
    const fl_answer *first = first_placed(answer);
    return first->ops->max_length ? first->ops->max_length(first, asked) : asked;
}

/* One more part that wants the tokens' rows. */
static int finish_copy(fl_answer *part, size_t text, const int32_t *ids, const fl_made *made,
                       fletch_error *error) {
    const size_t width  = part->of->model->encoder.desc.hidden;
    fl_made      own    = *made;
    int          status = part->ops->place(part, text, ids, made->tokens, &own.row);
    if (status < 0)
        return fl_result_fail(status, error);
    memcpy(own.row, made->row, made->tokens * width * sizeof *own.row);
    return part->ops->finish(part, text, &own, error);
}

/* The parts that are rows. */
static int finish_pooled(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    const fl_encoder *encoder = &answer->of->model->encoder;
    const fl_rows     rows    = {made->row, encoder->desc.hidden, NULL};
    fl_made           pooled  = *made;
    int               status  = FLETCH_OK;
    bool              any     = false;
    for (size_t i = 0; i < answer->parts; i++)
        any = any || !answer->part[i].ops->place;
    if (!any)
        return FLETCH_OK;
    pooled.row = fl_alloc_array(fl_encoder_width(encoder), sizeof *pooled.row);
    if (!pooled.row)
        return fl_result_fail(FLETCH_ENOMEM, error);
    if (!fl_pool_rows(encoder->pooling, encoder->pooling_count, &rows, rows.stride,
                      (uint32_t)made->tokens, made->skip, pooled.row))
        status = fl_result_fail(FLETCH_EMODEL, error);
    for (size_t i = 0; i < answer->parts && status == FLETCH_OK; i++)
        if (!answer->part[i].ops->place)
            status = answer->part[i].ops->finish(&answer->part[i], text, &pooled, error);
    fl_free(pooled.row);
    return status;
}

static int finish_tokens(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    fl_answer *first = first_placed(answer);
    for (fl_answer *part = first + 1; part < answer->part + answer->parts; part++)
        if (part->ops->place)
            FL_TRY(finish_copy(part, text, first->lists->list[text].ids, made, error));
    FL_TRY(finish_pooled(answer, text, made, error));
    return first->ops->finish(first, text, made, error);
}

static const fl_result_ops of_rows = {
    .counter = -1, .pooled = true, .cached = true, .resolve = resolve, .finish = finish_rows};
static const fl_result_ops of_tokens = {.counter    = -1,
                                        .pooled     = true,
                                        .cached     = true,
                                        .resolve    = resolve,
                                        .max_length = max_length,
                                        .place      = place,
                                        .finish     = finish_tokens};

const fl_result_ops fl_result_several = {
    .counter = -1, .resolve = resolve, .finish = finish_rows}; /* until it is resolved */
