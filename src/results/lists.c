/* SPDX-License-Identifier: Apache-2.0 */
/* lists.c - blocks of entries, one a text; lists.h says who has them when. */
#include "results/lists.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

fl_lists *fl_lists_new(size_t count, size_t columns, uint64_t bytes_max, bool drafts,
                       fletch_error *error) {
    fl_lists *lists = fl_alloc_zero(1, sizeof *lists);
    if (lists)
        lists->list = fl_alloc_zero(count, sizeof *lists->list);
    if (lists && drafts)
        lists->draft = fl_alloc_zero(count, sizeof *lists->draft);
    if (!lists || !lists->list || (drafts && !lists->draft)) {
        if (lists)
            fl_free(lists->list);
        fl_free(lists);
        fl_fail_nomem(error, count * sizeof *lists->list, "the lists of a call");
        return NULL;
    }
    lists->bytes         = &lists->own;
    lists->bytes_max     = bytes_max;
    lists->shown.count   = count;
    lists->shown.columns = columns;
    lists->shown.list    = lists->list;
    return lists;
}

size_t fl_list_bytes(const fletch_list *list) {
    assert(list->count == 0 ||
           (list->values && (const char *)list->ids > (const char *)list->values));
    return list->count == 0
               ? 0
               : (size_t)((const char *)(list->ids + list->count) - (const char *)list->values);
}

void fl_lists_drop(fl_lists *lists, size_t index) {
    fletch_list *list  = &lists->list[index];
    bool         draft = lists->draft && lists->draft[index];
    assert(index < lists->shown.count);
    assert(draft || atomic_load(lists->bytes) >= fl_list_bytes(list));
    atomic_fetch_sub(lists->bytes, draft ? 0 : fl_list_bytes(list));
    fl_free((void *)(uintptr_t)list->values);
    *list = (fletch_list){0};
    if (draft)
        lists->draft[index] = false;
}

static int make_block(fletch_list *list, size_t count, size_t columns, int32_t **ids,
                      float **values) {
    assert(count > 0);
    char *block = fl_alloc(count * (columns * sizeof(float) + sizeof(int32_t)));
    if (!block)
        return FLETCH_ENOMEM;
    *values = (float *)(void *)block;
    *ids    = (int32_t *)(void *)(*values + count * columns);
    *list   = (fletch_list){.count = count, .ids = *ids, .values = *values};
    return FLETCH_OK;
}

int fl_lists_make(fl_lists *lists, fletch_list *list, size_t count, size_t columns, int32_t **ids,
                  float **values) {
    uint64_t bytes = (uint64_t)count * (columns * sizeof(float) + sizeof(int32_t));
    int      status;
    *list   = (fletch_list){0};
    *values = NULL;
    *ids    = NULL;
    if (count == 0)
        return FLETCH_OK;
    if (atomic_fetch_add(lists->bytes, bytes) + bytes > lists->bytes_max && lists->bytes_max > 0)
        status = FLETCH_ENOSPC;
    else
        status = make_block(list, count, columns, ids, values);
    if (status < 0)
        atomic_fetch_sub(lists->bytes, bytes);
    return status;
}

int fl_lists_take(fl_lists *lists, size_t index, const int32_t *ids, size_t count, size_t columns,
                  float **values) {
    assert(index < lists->shown.count);
    int32_t     *own  = NULL;
    fletch_list *list = &lists->list[index];
    fl_lists_drop(lists, index);
    if (count == 0) {
        *values = NULL;
        return FLETCH_OK;
    }
    FL_TRY(lists->draft ? make_block(list, count, columns, &own, values)
                        : fl_lists_make(lists, list, count, columns, &own, values));
    memcpy(own, ids, count * sizeof *own);
    if (lists->draft)
        lists->draft[index] = true;
    return FLETCH_OK;
}

int fl_lists_put(fl_lists *lists, size_t index, const void *block, size_t bytes) {
    assert(index < lists->shown.count);
    assert(bytes % ((lists->shown.columns + 1) * sizeof(float)) == 0);
    size_t   columns = lists->shown.columns, count = bytes / ((columns + 1) * sizeof(float));
    float   *values = NULL;
    int32_t *ids    = NULL;
    fl_lists_drop(lists, index);
    int status = fl_lists_make(lists, &lists->list[index], count, columns, &ids, &values);
    if (status == FLETCH_OK && count > 0)
        memcpy(values, block, bytes);
    return status;
}

int fl_lists_refuse(int status, size_t where, fletch_error *error) {
    assert(status == FLETCH_ENOSPC || status == FLETCH_ENOMEM);
    return fl_fail(error, status, where, "%s; embed fewer texts at once",
                   status == FLETCH_ENOSPC ? "the lists of all texts take more than list_bytes"
                                           : "no memory for the list of a text");
}

void fl_lists_free(fl_lists *lists) {
    for (size_t i = 0; lists && i < lists->shown.count; i++)
        fl_free((void *)(uintptr_t)lists->list[i].values);
    if (lists) {
        fl_free(lists->list);
        fl_free(lists->draft);
    }
    fl_free(lists);
}
