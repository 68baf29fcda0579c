/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_table.c - names of tensors to tensors, in constant time, whoever chose the names.
 *
 * Role    One table per safetensors file (filled by safetensors_header.c) and one merged table
 *         per sharded model (safetensors.c).
 * Method  Open addressing with linear probing, at most half full, with the seeded hash of
 *         base/hash.h: reading a hostile header stays linear.
 * Memory  owned arrays that double; the strings belong to whoever filled the table.
 * Threads a table is written by one thread, then read by any.
 * Proof   tests/unit/test_safetensors.c. */
#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "model/safetensors_header.h"

enum { TABLE_FIRST = 256 }; /* a six-layer BERT has 103 tensors: one allocation */

void fl_table_init(fl_tensor_table *table) {
    memset(table, 0, sizeof *table);
    table->seed = fl_hash_seed(table);
}

/* The bucket that holds `name`, or the empty one where it belongs. */
static uint32_t *bucket_of(const fl_tensor_table *table, const char *name) {
    size_t at = fl_hash(name, strlen(name), table->seed) & table->mask;
    while (table->buckets[at] != 0 && strcmp(table->names[table->buckets[at] - 1], name) != 0)
        at = (at + 1) & table->mask;
    return &table->buckets[at];
}

static int grow(fl_tensor_table *table) {
    size_t     capacity = table->capacity == 0 ? TABLE_FIRST : table->capacity * 2;
    fl_tensor *tensors  = fl_realloc_array(table->tensors, capacity, sizeof *tensors);
    if (tensors == NULL)
        return -1;
    table->tensors = tensors;
    char **names   = fl_realloc_array(table->names, capacity, sizeof *names);
    if (names == NULL)
        return -1;
    table->names      = names;
    uint32_t *buckets = fl_alloc_zero(capacity * 2, sizeof *buckets);
    if (buckets == NULL)
        return -1;
    fl_free(table->buckets);
    table->buckets  = buckets;
    table->mask     = capacity * 2 - 1;
    table->capacity = capacity;
    for (size_t i = 0; i < table->count; i++)
        *bucket_of(table, names[i]) = (uint32_t)(i + 1);
    return 0;
}

int fl_table_add(fl_tensor_table *table, char *name, const fl_tensor *tensor) {
    assert(name);
    if (table->count == table->capacity && grow(table) != 0)
        return -1;
    uint32_t *bucket = bucket_of(table, name);
    if (*bucket != 0)
        return 1;
    table->tensors[table->count] = *tensor;
    table->names[table->count]   = name;
    *bucket                      = (uint32_t)++table->count;
    return 0;
}

const fl_tensor *fl_table_find(const fl_tensor_table *table, const char *name) {
    assert(name);
    if (table->count == 0)
        return NULL;
    uint32_t index = *bucket_of(table, name);
    return index == 0 ? NULL : &table->tensors[index - 1];
}

void fl_table_free(fl_tensor_table *table) {
    fl_free(table->tensors);
    fl_free(table->names);
    fl_free(table->buckets);
    fl_free(table->text);
    fl_free(table->copies);
    memset(table, 0, sizeof *table);
}
