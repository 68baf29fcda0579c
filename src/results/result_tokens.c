/* SPDX-License-Identifier: Apache-2.0 */
/* result_tokens.c - a vector for every token of a text, as the last layer leaves it.
 *
 * In/Out  The engine writes the rows where the caller will have them; what is left is their length.
 * Proof   tests/golden/test_lists.py. */
#include "base/error.h"
#include "results/kinds.h"
#include "results/row_stages.h"

static int resolve(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    const fl_model *model     = answer->of->model;
    int             normalize = asked->options->normalize;
    if (model->is_static)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "this model is static: its tokens have no vectors of their own in a text");
    if (model->encoder.projected)
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "this model projects only the pooled tokens, so single tokens have no vectors");
    if (asked->options->dimensions != 0)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "token vectors cannot be cut: leave dimensions at 0 instead of %u",
                       asked->options->dimensions);
    answer->plan.columns   = model->encoder.desc.hidden;
    answer->plan.normalize = normalize > 0 || (normalize == 0 && answer->of->unit_tokens);
    return fl_answer_make_lists(answer, asked, answer->plan.columns, false, error);
}

static int finish(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    (void)text;
    return fl_row_units(&answer->plan, made->row, made->tokens)
               ? FLETCH_OK
               : fl_result_fail(FLETCH_EMODEL, error);
}

const fl_result_ops fl_result_tokens = {.counter = FLETCH_COUNT_TOKEN_TEXTS,
                                        .lists   = true,
                                        .cached  = true,
                                        .resolve = resolve,
                                        .place   = fl_place_in_list,
                                        .finish  = finish};
