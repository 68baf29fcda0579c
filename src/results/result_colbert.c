/* SPDX-License-Identifier: Apache-2.0 */
/* result_colbert.c - vectors for late interaction that an embedding model gives besides its rows (bge-m3).
 *
 * In/Out  hidden rows of a text's tokens -> colbert_linear -> unit length; the first token has none. The bytes of
 *         result_late.c for the same folder opened with model.pooling colbert.
 * Memory  hidden rows are a draft of the text's list until its vectors are there. Threads: no state.
 * Proof   tests/golden/test_outputs.py. */
#include <string.h>

#include "base/error.h"
#include "results/kinds.h"
#include "results/row_stages.h"

static int resolve(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    const fl_model *model = answer->of->model;
    if (!model->colbert.weight)
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE, "%s",
            model->colbert_refused
                ? model->colbert_refused
                : "this model gives no vectors for late interaction: it has no colbert_linear, "
                  "unlike bge-m3; the output \"tokens\" is its last layer's vector of every token");
    if (asked->options->dimensions != 0)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "token vectors cannot be cut: leave dimensions at 0 instead of %u",
                       asked->options->dimensions);
    answer->plan.columns   = model->colbert.out;
    answer->plan.normalize = asked->options->normalize >= 0;
    return fl_answer_make_lists(answer, asked, answer->plan.columns, true, error);
}

/* The hidden rows in a text's list become its vectors. */
static int finish_list(fl_answer *answer, size_t text) {
    const fl_stage   *layer  = &answer->of->model->colbert;
    const fletch_list hidden = answer->lists->list[text];
    const size_t      kept   = hidden.count - 1;
    fletch_list       rows;
    float            *to = NULL;
    int32_t          *ids;
    bool              finite = true;
    FL_TRY(fl_lists_make(answer->lists, &rows, kept, layer->out, &ids, &to));
    if (kept > 0)
        memcpy(ids, hidden.ids + 1, kept * sizeof *ids);
    for (size_t i = 0; i < kept && finite; i++)
        finite = fl_row_layer(layer, hidden.values + (i + 1) * layer->in, to + i * layer->out);
    finite = finite && (kept == 0 || fl_row_units(&answer->plan, to, kept));
    fl_lists_drop(answer->lists, text);
    answer->lists->list[text] = rows;
    return finite ? FLETCH_OK : FLETCH_EMODEL;
}

static int finish(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    (void)made;
    int status = finish_list(answer, text);
    return status == FLETCH_OK ? status : fl_result_fail(status, error);
}

const fl_result_ops fl_result_colbert = {.counter = FLETCH_COUNT_TOKEN_TEXTS,
                                         .lists   = true,
                                         .cached  = true,
                                         .resolve = resolve,
                                         .place   = fl_place_in_list,
                                         .finish  = finish};
