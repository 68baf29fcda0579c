/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_task.c - the free list of what tokenising threads work with; tokenize_task.h. */
#include "requests/tokenize_task.h"

#include <assert.h>

#include "base/error.h"
#include "base/mem.h"
#include "requests/open_model.h"

enum { TEXT_KEPT = 256 * 1024 }; /* bytes of text, and of ids, that an idle task keeps */

static void free_sides(fl_tokenize_task *task, size_t kept) {
    for (size_t i = 0; i < 2; i++)
        if (task->side[i].capacity * sizeof(int32_t) > kept) {
            fl_free(task->side[i].ids);
            task->side[i] = (fl_token_side){0};
        }
}

static fl_tokenize_task *task_new(const fletch_model *model, fletch_error *error) {
    assert(model->tokenizer);
    fl_tokenize_task *task = fl_alloc_zero(1, sizeof *task);
    if (task)
        task->scratch = fl_token_scratch_new(model->tokenizer);
    if (task && task->scratch)
        return task;
    fl_free(task);
    fl_fail_nomem(error, sizeof *task, "the scratch of a tokenising thread");
    return NULL;
}

static bool take_room(void *user, uint64_t bytes) {
    fl_tokenize_task *task = user;
    fl_memory_release(task->memory, task->reserved);
    const bool fits = fl_memory_reserve(task->memory, bytes);
    task->reserved  = fits ? bytes : 0;
    task->grown     = true;
    return fits;
}

fl_tokenize_task *fl_tokenize_task_take(fletch_model *model, int (*unwanted)(void *user),
                                        void *user, fletch_error *error) {
    fl_model_lock(model);
    fl_tokenize_task *task = model->idle_tasks;
    if (task)
        model->idle_tasks = task->next;
    fl_model_unlock(model);
    task = task ? task : task_new(model, error);
    if (task) {
        task->memory = model->scheduler.predict ? model->scheduler.memory : NULL;
        task->stop   = (fl_stop){.asked     = unwanted,
                                 .user      = user,
                                 .room      = task->memory ? take_room : NULL,
                                 .room_user = task};
        fl_token_scratch_stop(task->scratch, &task->stop);
    }
    return task;
}

void fl_tokenize_task_give(fletch_model *model, fl_tokenize_task *task) {
    assert(task->scratch);
    fl_token_scratch_stop(task->scratch, NULL);
    if (task->grown) {
        fl_token_scratch_trim(task->scratch);
        fl_memory_release(task->memory, task->reserved);
        task->reserved = 0;
        task->grown    = false;
    }
    if (task->text.capacity > TEXT_KEPT)
        fl_buf_free(&task->text);
    free_sides(task, TEXT_KEPT);
    fl_model_lock(model);
    task->next        = model->idle_tasks;
    model->idle_tasks = task;
    fl_model_unlock(model);
}

void fl_tokenize_tasks_free(fletch_model *model) {
    while (model->idle_tasks) {
        fl_tokenize_task *task = model->idle_tasks;
        model->idle_tasks      = task->next;
        fl_token_scratch_free(task->scratch);
        fl_buf_free(&task->text);
        free_sides(task, 0);
        fl_free(task);
    }
}
