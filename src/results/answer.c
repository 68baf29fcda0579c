/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c - the answer of one call: what all kinds have in common.
 *
 * Role    result.h says it.
 * Memory  see result.h. Threads: see result.h. Proof: tests/unit/test_results.c, tests/golden. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "results/kinds.h"
#include "results/spans.h"

fl_side fl_side_named(const char *prompt) {
    return strcmp(prompt, "query") == 0      ? FL_SIDE_QUERY
           : strcmp(prompt, "document") == 0 ? FL_SIDE_DOCUMENT
                                             : FL_SIDE_NONE;
}

fl_side fl_side_of(const fl_results *results, const fletch_embed_options *options) {
    if (options->prompt_name)
        return fl_side_named(options->prompt_name);
    return options->prompt ? FL_SIDE_NONE : results->side;
}

int fl_answer_resolve(fl_answer *answer, const fl_results *of, const fletch_request *asked,
                      fletch_error *error) {
    assert(asked->options && !answer->lists && answer->parts == 0);
    answer->of         = of;
    answer->out        = asked->out;
    answer->plan       = (fl_plan){.kind = (uint8_t)asked->kind, .side = FL_SIDE_NONE};
    answer->no_special = answer->may_be_empty = of->model->is_static;
    answer->ops                               = fl_result_of(of->model, asked->kind);
    return answer->ops->resolve(answer, asked, error);
}

int fl_answer_make_lists(fl_answer *answer, const fletch_request *asked, size_t columns,
                         bool drafts, fletch_error *error) {
    assert(!answer->lists);
    answer->lists =
        fl_lists_new(asked->texts.count, columns, asked->options->list_bytes, drafts, error);
    return answer->lists ? FLETCH_OK : FLETCH_ENOMEM;
}

void fl_answer_drop(fl_answer *answer) {
    fl_lists_free(answer->lists);
    fl_lists_free(answer->query);
    fl_spans_free(answer->spans);
    for (size_t i = 0; i < answer->parts; i++)
        fl_answer_drop(&answer->part[i]);
    fl_free(answer->part);
    answer->lists = answer->query = NULL;
    answer->spans                 = NULL;
    answer->part                  = NULL;
    answer->parts                 = 0;
}

/* The lists of one part. */
static fletch_lists *give_part(fl_answer *part) {
    if (!part->ops->lists)
        return NULL;
    assert(part->lists);
    fletch_lists *shown = &part->lists->shown;
    part->lists         = NULL;
    return shown;
}

fletch_lists *fl_answer_give(fl_answer *answer) {
    size_t     parts;
    fl_answer *part = fl_answer_parts(answer, &parts);
    if (!answer->outputs)
        return give_part(answer);
    assert(parts == answer->output_count);
    for (size_t i = 0; i < parts; i++) {
        fletch_output *output =
            (fletch_output *)(void *)(answer->outputs + i * answer->output_size);
        output->lists = give_part(&part[i]);
    }
    return NULL;
}

const void *fl_answer_bytes(const fl_answer *answer, size_t text, size_t *size) {
    assert(answer->ops && answer->parts == 0);
    if (!answer->ops->lists) {
        *size = fletch_row_bytes(answer->out.cols, answer->out.dtype);
        return fl_answer_row(answer, text);
    }
    const fletch_list *list = &answer->lists->list[text];
    *size                   = fl_list_bytes(list);
    return list->values;
}

int fl_answer_take(fl_answer *answer, size_t text, const void *bytes, size_t size) {
    assert(answer->ops && answer->parts == 0);
    if (answer->ops->lists)
        return fl_lists_put(answer->lists, text, bytes, size);
    assert(size == fletch_row_bytes(answer->out.cols, answer->out.dtype));
    memcpy(fl_answer_row(answer, text), bytes, size);
    return FLETCH_OK;
}

void fl_answer_fail(fl_answer *answer, size_t text) {
    if (answer->lists)
        fl_lists_drop(answer->lists, text);
    for (size_t i = 0; i < answer->parts; i++)
        fl_answer_fail(&answer->part[i], text);
}

int fl_place_in_list(fl_answer *answer, size_t text, const int32_t *ids, size_t count,
                     float **rows) {
    assert(answer->lists && count > 0);
    return fl_lists_take(answer->lists, text, ids, count, answer->of->model->encoder.desc.hidden,
                         rows);
}
