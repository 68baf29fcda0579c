/* SPDX-License-Identifier: Apache-2.0 */
/* result_scores.c - a number for each label of a text or a pair: rerankers and classifiers.
 *
 * In/Out  options and matrix -> plan; pooled row -> logits by the folder's stages -> the activation.
 * Proof   tests/golden/test_scores.py, test_language.py. */
#include "base/error.h"
#include "results/kinds.h"
#include "results/row_stages.h"

int fl_check_scores(const fletch_request *asked, uint32_t labels, fletch_error *error) {
    if (asked->options->dimensions != 0 || asked->options->normalize != 0)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "scores have no dimensions and are not normalised: leave dimensions and "
                       "normalize at 0");
    if (asked->out.dtype != FLETCH_FLOAT32 || asked->out.cols != labels)
        return fl_fail(
            error, FLETCH_EINVAL, FLETCH_NOWHERE,
            "scores are float32, one per label: the matrix needs %u columns of that type", labels);
    return FLETCH_OK;
}

static int resolve(fl_answer *answer, const fletch_request *asked, fletch_error *error) {
    const fl_model   *model = answer->of->model;
    fletch_activation how   = asked->options->activation;
    bool              pairs = asked->query || asked->second;
    if (model->chat_count > 0 && !pairs)
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "this model scores a query with a document, as messages of a chat: a text alone "
            "has no score; use fletch_rerank (fletch rerank), or pairs");
    if (asked->query && model->label_count != 1)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "this model is a classifier with %u labels, not a reranker with one: use "
                       "fletch_classify (fletch classify)",
                       model->label_count);
    FL_TRY(fl_check_scores(asked, model->label_count, error));
    answer->no_special   = answer->no_special || model->chat_count > 0;
    answer->unpadded     = model->unpadded;
    answer->plan.columns = model->label_count;
    answer->plan.softmax = how == FLETCH_ACTIVATION_SOFTMAX;
    if (how == FLETCH_ACTIVATION_DEFAULT)
        answer->plan.activation = (uint8_t)model->activation;
    else if (how == FLETCH_ACTIVATION_SIGMOID)
        answer->plan.activation = FL_DENSE_SIGMOID;
    return FLETCH_OK;
}

const fl_result_ops fl_result_scores = {.counter = FLETCH_COUNT_SCORED_TEXTS,
                                        .cached  = true,
                                        .resolve = resolve,
                                        .finish  = fl_row_finish};
