/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c - the working memory of a caller, taken from a free list and given back.
 *
 * Role    embed.c and tokens.c take one per call; concurrent callers each have their own.
 * Memory  Sized once from the model and the batch budget; row memory is a big block whose pages are
 *         touched only as far as batches use them. The free list grows to the number of callers
 *         that were ever inside at once and is freed with the model, so steady state allocates
 *         nothing.
 * Threads `staging_lock` guards the list alone.
 * Proof   tests/unit/test_fletch.c. */
#include "base/error.h"
#include "base/mem.h"
#include "runtime/runtime.h"

static size_t rows_bytes(const fletch_model *model) {
    return (size_t)FL_BATCH_TEXTS_MAX * model->row_width * sizeof(float);
}

static void staging_free(const fletch_model *model, fl_staging *staging) {
    if (!staging)
        return;
    fl_token_scratch_free(staging->scratch);
    fl_free(staging->ids);
    fl_free(staging->cu);
    fl_free(staging->skip);
    fl_free(staging->row);
    fl_free(staging->line[0]);
    fl_free(staging->line[1]);
    if (staging->rows)
        fl_big_free(staging->rows, rows_bytes(model));
    fl_buf_free(&staging->text);
    fl_free(staging);
}

static fl_staging *staging_new(const fletch_model *model, fletch_error *error) {
    fl_staging *staging = fl_alloc_zero(1, sizeof *staging);
    if (!staging) {
        fl_fail_nomem(error, sizeof *staging, "a staging");
        return NULL;
    }
    staging->scratch = fl_token_scratch_new(model->tokenizer);
    bool ready       = staging->scratch != NULL;
    if (model->engine) {
        staging->ids_capacity = model->batch_tokens + model->length_limit;
        staging->ids          = fl_alloc_array(staging->ids_capacity, sizeof *staging->ids);
        staging->cu           = fl_alloc_array(FL_BATCH_TEXTS_MAX + 1, sizeof *staging->cu);
        staging->skip         = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *staging->skip);
        staging->row          = fl_alloc_array(FL_BATCH_TEXTS_MAX, sizeof *staging->row);
        staging->line[0]      = fl_alloc_array(model->row_width, sizeof(float));
        staging->line[1]      = fl_alloc_array(model->row_width, sizeof(float));
        staging->rows         = fl_big_alloc(rows_bytes(model));
        ready = ready && staging->ids && staging->cu && staging->skip && staging->row &&
                staging->line[0] && staging->line[1] && staging->rows;
    }
    if (ready)
        return staging;
    staging_free(model, staging);
    fl_fail_nomem(error, rows_bytes(model), "a staging (tokens and rows of one batch)");
    return NULL;
}

fl_staging *fl_staging_take(fletch_model *model, fletch_error *error) {
    pthread_mutex_lock(&model->staging_lock);
    fl_staging *staging = model->staging_free;
    if (staging)
        model->staging_free = staging->next;
    pthread_mutex_unlock(&model->staging_lock);
    return staging ? staging : staging_new(model, error);
}

void fl_staging_give(fletch_model *model, fl_staging *staging) {
    pthread_mutex_lock(&model->staging_lock);
    staging->next       = model->staging_free;
    model->staging_free = staging;
    pthread_mutex_unlock(&model->staging_lock);
}

void fl_staging_free_all(fletch_model *model) {
    while (model->staging_free) {
        fl_staging *staging = model->staging_free;
        model->staging_free = staging->next;
        staging_free(model, staging);
    }
}
