/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - a request to the fault engine's model, what became of it, and what its rows must be. */
#ifndef FL_TESTS_CALL_H
#define FL_TESTS_CALL_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "fault_engine.h"
#include "fletch.h"

#define FOLDER "tests/golden/folders/pooling-cls"

enum { TEXTS = 40, DIM_MAX = 256 };

static char        words[TEXTS][64];
static const char *strings[TEXTS];
static float       want[TEXTS * DIM_MAX];
static size_t      dim;

static inline fletch_model *open_with(const fl_fault_plan *plan, const char *const (*options)[2]) {
    fletch_config *config = fletch_config_new();
    fletch_model  *model  = NULL;
    fletch_error   error  = {0};
    fl_fault_set(plan);
    for (size_t i = 0; options && options[i][0]; i++)
        cr_assert_eq(fletch_config_set(config, options[i][0], options[i][1], &error), 0, "%s",
                     error.message);
    cr_assert_eq(fletch_open(&model, FOLDER, config, &error), 0, "%s", error.message);
    fletch_config_free(config);
    return model;
}

static inline void prepare(void) {
    fl_fault_plan quiet = {.slots = 1, .devices = 1};
    fletch_error  error;
    for (size_t i = 0; i < TEXTS; i++) {
        snprintf(words[i], sizeof words[i], "the %zu cat sat on %zu mats", i, i * i);
        strings[i] = words[i];
    }
    fletch_model *model = open_with(&quiet, NULL);
    dim                 = fletch_dimensions(model);
    for (size_t i = 0; i < TEXTS; i++) {
        fletch_texts  one = fletch_texts_from_strings(&strings[i], 1);
        fletch_matrix out = fletch_matrix_f32(want + i * dim, 1, dim);
        cr_assert_eq(fletch_embed(model, &one, NULL, &out, &error), 0);
    }
    fletch_close(model);
}

/* ---- A request and what became of it ---------------------------------------------------------- */

typedef struct call {
    fletch_model   *model;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    int             answers;
    fletch_outcome  outcome;
    int32_t         status[TEXTS];
    float           rows[TEXTS * DIM_MAX];
    fletch_ticket   ticket;
    uint32_t        inline_us; /* of the submitting thread */
    fletch_lane     lane;
    void (*inside)(struct call *); /* run in the callback */
    void *other;
} call;

static inline void call_init(call *c, fletch_model *model) {
    memset(c, 0, sizeof *c);
    c->model = model;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
}

static inline void done(void *user, const fletch_outcome *outcome) {
    call *c = user;
    if (c->inside)
        c->inside(c);
    pthread_mutex_lock(&c->lock);
    c->answers++;
    c->outcome = *outcome;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static inline int submit(call *c, size_t count, bool with_status, uint32_t deadline_ms) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_request       request = FLETCH_REQUEST_INIT;
    fletch_error         error   = {0};
    request.texts                = fletch_texts_from_strings(strings, count);
    request.out                  = fletch_matrix_f32(c->rows, count, dim);
    request.deadline_ms          = deadline_ms;
    request.inline_us            = c->inline_us;
    request.lane                 = c->lane;
    request.options              = &options;
    options.status               = with_status ? c->status : NULL;
    return fletch_submit(c->model, &request, done, c, &c->ticket, &error);
}

static inline int wait_for(call *c) {
    pthread_mutex_lock(&c->lock);
    while (c->answers == 0)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return c->outcome.error.code;
}

static inline void check_rows(const call *c, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (c->status[i] == FLETCH_OK)
            cr_assert_eq(memcmp(c->rows + i * dim, want + i * dim, dim * sizeof(float)), 0,
                         "row %zu", i);
}

#endif
