/* SPDX-License-Identifier: Apache-2.0 */
/* results_open.c - what an open model's results depend on: its folder, its configuration, ids that the folder names.
 *
 * Role    result.h says it. The ids of tokens that a folder names by their text are looked up when it opens.
 * Memory  see result.h. Threads: one, when a model opens. Proof: tests/unit/test_results.c, tests/golden. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "results/kinds.h"

int fl_results_open(fl_results *r, const fl_model *model, const fl_tokenizer *tokenizer,
                    const fl_config *config, fletch_error *error) {
    assert(model && !r->skipped && !r->lookup);
    const char *normalize = fl_config_text(config, FL_KEY_MODEL_NORMALIZE);
    int64_t     asked     = fl_config_int(config, FL_KEY_MODEL_DIMENSIONS);
    r->model              = model;
    r->terms              = model->head == FL_HEAD_SPARSE;
    r->unit_tokens        = strcmp(normalize, "true") == 0;
    r->normalize          = strcmp(normalize, "auto") == 0 ? model->normalize : r->unit_tokens;
    r->renormalize        = asked > 0 || r->unit_tokens;
    r->zero_copy          = fl_config_bool(config, FL_KEY_IO_ZERO_COPY);
    r->own_length         = fl_config_int(config, FL_KEY_MODEL_MAX_LENGTH) > 0;
    r->side               = fl_config_is_set(config, FL_KEY_MODEL_PROMPT)
                                ? FL_SIDE_NONE
                                : fl_side_named(fl_config_text(config, FL_KEY_MODEL_PROMPT_NAME));
    r->dimensions         = model->dimensions;
    if (asked > 0)
        r->dimensions = (uint32_t)asked;
    else if (model->head == FL_HEAD_EMBEDDING && model->truncate_dim > 0 &&
             model->truncate_dim < model->dimensions)
        r->dimensions = model->truncate_dim;
    r->row_width = fl_encoder_width(&model->encoder);
    for (uint32_t i = 0; i < model->stage_count; i++)
        if (model->stages[i].out > r->row_width)
            r->row_width = model->stages[i].out;
    if (model->head == FL_HEAD_LATE)
        FL_TRY(fl_late_open(r, tokenizer, error));
    if (model->filled)
        r->filler = fl_tokenizer_named(tokenizer, FL_TOKEN_PAD);
    if (model->filled && r->filler < 0)
        return fl_fail(
            error, FLETCH_EMODEL, FLETCH_NOWHERE,
            "%s: texts are filled up with padding, but the tokenizer names no pad_token.",
            model->folder);
    if (model->weigher.weight)
        FL_TRY(fl_token_weights_open(r, tokenizer, error));
    return model->lookup.there ? fl_lookup_open(r, tokenizer, error) : FLETCH_OK;
}

void fl_results_close(fl_results *r) {
    fl_free(r->skipped);
    fl_free(r->lookup);
    *r = (fl_results){0};
}
