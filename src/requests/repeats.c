/* SPDX-License-Identifier: Apache-2.0 */
/* repeats.c - find equal texts of a request, and copy the results of the first ones; repeats.h. */
#include "requests/repeats.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "requests/open_model.h"
#include "requests/texts.h"

/* What tells a text of a request from another: its bytes, and those of a second text. */
typedef struct item {
    const char *data, *second;
    size_t      size, second_size;
    bool        ids;
} item;

/* A place of the table of texts seen: 1 + the index of one, 0: free. */
typedef struct place {
    uint32_t tag;
    uint32_t next;
} place;

/* False: it cannot be read; whoever tokenises it will say why. */
static bool item_at(const fl_request *r, size_t index, item *out) {
    *out = (item){.ids = fl_item_is_ids(r, index)};
    if (out->ids) {
        const int32_t *ids;
        if (fl_ids_at(r, index, &ids, &out->size, NULL) < 0)
            return false;
        out->data = (const char *)ids;
        out->size *= sizeof *ids;
        return true;
    }
    if (fl_texts_at(&r->texts, index, &out->data, &out->size, NULL) < 0)
        return false;
    if (r->second.count == 0 || (r->second.pointers && !r->second.pointers[index]))
        return true;
    return fl_texts_at(&r->second, index, &out->second, &out->second_size, NULL) == FLETCH_OK;
}

static uint64_t hash_of(const item *it, uint64_t seed) {
    uint64_t hash = fl_hash(it->data, it->size, seed);
    return it->second ? fl_hash(it->second, it->second_size, hash) : hash;
}

static bool equal(const item *a, const item *b) {
    return a->size == b->size && a->ids == b->ids && a->second_size == b->second_size &&
           (a->second == NULL) == (b->second == NULL) && memcmp(a->data, b->data, a->size) == 0 &&
           (a->second_size == 0 || memcmp(a->second, b->second, a->second_size) == 0);
}

/* The array of firsts, each text its own; behind it lengths in tokens where the caller wants none. */
static bool begin_same(fl_request *r) {
    assert(!r->same && r->texts.count > 1);
    size_t count = r->texts.count;
    r->same = fl_bufpool_take(r->model->inputs, 2 * count * sizeof *r->same, &r->same_capacity);
    for (size_t i = 0; r->same && i < count; i++)
        r->same[i] = (uint32_t)i;
    if (r->same && !r->options.tokens)
        r->options.tokens = r->same + count;
    return r->same != NULL;
}

/* The first text that equals text `index`, which is noted where there is none. */
static size_t first_of(const fl_request *r, size_t index, place *table, size_t mask) {
    assert(index < r->texts.count && (mask & (mask + 1)) == 0);
    item it, other;
    if (!item_at(r, index, &it))
        return index;
    uint64_t hash = hash_of(&it, r->model->seed);
    uint32_t tag  = (uint32_t)(hash >> 32);
    size_t   at   = (size_t)hash & mask;
    for (; table[at].next != 0; at = (at + 1) & mask)
        if (table[at].tag == tag && item_at(r, table[at].next - 1, &other) && equal(&it, &other))
            return table[at].next - 1;
    table[at] = (place){.tag = tag, .next = (uint32_t)index + 1};
    return index;
}

void fl_repeats_find(fl_request *r) {
    assert(r->finished == 0 && !r->same);
    fletch_model *model = r->model;
    size_t        count = r->texts.count, places = 4, capacity;
    if (count < 2 || count > UINT32_MAX / 2)
        return;
    while (places < 2 * count)
        places *= 2;
    const uint64_t reserved = model->scheduler.predict ? places * sizeof(place) : 0;
    if (reserved > 0 && !fl_memory_reserve(model->scheduler.memory, reserved))
        return; /* equal ones are computed twice then */
    place *table = fl_bufpool_take(model->inputs, places * sizeof *table, &capacity);
    if (!table) {
        fl_memory_release(model->scheduler.memory, reserved);
        return;
    }
    memset(table, 0, places * sizeof *table);
    for (size_t i = 0; i < count; i++) {
        size_t first = first_of(r, i, table, places - 1);
        if (first == i)
            continue;
        if (!r->same && !begin_same(r))
            break;
        r->same[i] = (uint32_t)first;
        r->finished++;
    }
    fl_bufpool_give(model->inputs, table, capacity);
    fl_memory_release(model->scheduler.memory, reserved);
}

/* The rows or lists of text `index`, which repeats text `first`. */
static int copy_result(fl_request *r, size_t index, size_t first) {
    assert(first < index && index < r->texts.count);
    size_t     parts, size;
    fl_answer *part = fl_answer_parts(&r->answer, &parts);
    for (size_t i = 0; i < parts; i++) {
        const void *bytes = fl_answer_bytes(&part[i], first, &size);
        FL_TRY(fl_answer_take(&part[i], index, bytes, size));
    }
    return FLETCH_OK;
}

void fl_repeats_copy(fl_request *r) {
    assert(!r->same || r->options.tokens);
    fletch_embed_options *options = &r->options;
    for (size_t i = 0; r->same && i < r->texts.count && r->error.code == FLETCH_OK; i++) {
        size_t first = r->same[i];
        if (first == i)
            continue;
        int status         = options->status ? options->status[first] : FLETCH_OK;
        options->tokens[i] = options->tokens[first];
        if (options->truncated)
            options->truncated[i] = options->truncated[first];
        if (status == FLETCH_OK)
            status = copy_result(r, i, first);
        if (status == FLETCH_OK) {
            r->tokens += options->tokens[i];
            fl_stats_add(&r->model->scheduler.stats, FLETCH_COUNT_REPEATED_TEXTS, 1);
        } else
            fl_stats_add(&r->model->scheduler.stats, FLETCH_COUNT_FAILED_TEXTS, 1);
        if (options->status)
            options->status[i] = status;
        else if (status < 0)
            (void)fl_lists_refuse(status, i, &r->error);
    }
}
