/* SPDX-License-Identifier: Apache-2.0 */
/* result_rows.c - a vector a text: the pooled row through the folder's stages.
 *
 * In/Out  options and matrix -> plan; pooled row -> a row of the caller's matrix (row_stages.c).
 * Proof   tests/unit/test_output.c, tests/golden/test_vectors.py, test_folders.py. */
#include "base/error.h"
#include "results/kinds.h"
#include "results/row_stages.h"

int fl_rows_resolve(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    const fletch_embed_options *options = asked->options;
    const fl_results           *of      = answer->of;
    uint32_t                    full    = of->model->dimensions;
    uint32_t columns = options->dimensions ? options->dimensions : of->dimensions;
    if (columns > full)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "%u dimensions requested, but the model has only %u", columns, full);
    if (answer->out.cols != columns)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "the matrix has %zu columns, but the vectors have %u dimensions",
                       answer->out.cols, columns);
    answer->filled_to = of->model->filled ? of->model->max_length : 0;
    fl_plan *plan     = &answer->plan;
    plan->columns     = columns;
    plan->dtype       = (uint8_t)answer->out.dtype;
    plan->normalize   = options->normalize > 0 || (options->normalize == 0 && of->normalize);
    plan->raw         = !plan->normalize;
    plan->renormalize = options->dimensions != 0 || options->normalize > 0 || of->renormalize;
    return FLETCH_OK;
}

static int resolve(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    FL_TRY(fl_rows_resolve(answer, asked, error));
    answer->in_place =
        answer->of->zero_copy && fl_row_in_place(answer->of->model, &answer->plan, &answer->out);
    return FLETCH_OK;
}

const fl_result_ops fl_result_rows = {
    .counter = -1, .pooled = true, .cached = true, .resolve = resolve, .finish = fl_row_finish};
