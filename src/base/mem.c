/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c - the one door to the heap: overflow checks, a count, and a failure on demand.
 *
 * Role    every room allocates here, so three promises can be tested: sizes are checked, nothing is
 *         allocated while running, and any single allocation may fail without harm.
 * Method  each entry passes pass_door(), which counts and, when a test armed it, fails once. The
 *         two atomics are the library's only mutable globals: they are statistics of the process,
 *         no result depends on them. Large blocks are mapped with a 2 MiB alignment, because the
 *         kernel can back only aligned 2 MiB ranges by huge pages, and packed weights walk many
 *         pages.
 * Memory  the caller owns what it gets. Threads: any; relaxed atomics suffice for counters.
 * Proof   tests/unit/test_base_mem.c. */
#include "base/mem.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

static atomic_uint_fast64_t allocations;    /* so far */
static atomic_uint_fast64_t fail_countdown; /* 0: off; 1: the next allocation fails */

/* Count one allocation; false when this is the one that a test wants to fail. */
static bool pass_door(void) {
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    uint_fast64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left != 0 &&
           !atomic_compare_exchange_weak_explicit(&fail_countdown, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return left != 1;
}

void *fl_alloc(size_t size) {
    return pass_door() ? malloc(size == 0 ? 1 : size) : NULL;
}

void *fl_alloc_zero(size_t count, size_t size) {
    size_t bytes;
    if (fl_mul_overflow(count, size, &bytes) || !pass_door())
        return NULL;
    return calloc(1, bytes == 0 ? 1 : bytes);
}

void *fl_alloc_array(size_t count, size_t size) {
    size_t bytes;
    return fl_mul_overflow(count, size, &bytes) ? NULL : fl_alloc(bytes);
}

void *fl_realloc_array(void *block, size_t count, size_t size) {
    size_t bytes;
    if (fl_mul_overflow(count, size, &bytes) || !pass_door())
        return NULL;
    return realloc(block, bytes == 0 ? 1 : bytes);
}

bool fl_array_grow(void *array, size_t *room, size_t count, size_t size) {
    assert(array && room && size > 0);
    size_t wanted = count + count / 4 + 16;
    void  *block;
    memcpy(&block, array, sizeof block); /* whatever it points to */
    block = wanted > count ? fl_realloc_array(block, wanted, size) : NULL;
    if (block == NULL)
        return false;
    memcpy(array, &block, sizeof block);
    *room = wanted;
    return true;
}

void *fl_alloc_aligned(size_t size, size_t alignment) {
    assert((alignment & (alignment - 1)) == 0);
    void *block;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (!pass_door() || posix_memalign(&block, alignment, size == 0 ? 1 : size) != 0)
        return NULL;
    return block;
}

void fl_free(void *block) {
    free(block);
}

char *fl_strdup(const char *text) {
    return fl_strndup(text, strlen(text));
}

char *fl_strndup(const char *text, size_t size) {
    assert(text || size == 0);
    size_t length = strnlen(text, size);
    char  *copy   = fl_alloc(length + 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

/* `size` in whole pages; 0 when that does not fit. */
static size_t whole_pages(size_t size) {
    size_t page = fl_os_page();
    size_t padded;
    if (fl_add_overflow(size == 0 ? 1 : size, page - 1, &padded))
        return 0;
    return padded & ~(page - 1);
}

void *fl_big_alloc(size_t size) {
    size_t bytes = whole_pages(size);
    return bytes != 0 && pass_door() ? fl_os_pages(bytes) : NULL;
}

void fl_big_free(void *block, size_t size) {
    if (block != NULL)
        fl_os_pages_free(block, whole_pages(size));
}

void *fl_big_grow(void *block, size_t old, size_t size) {
    assert(!block || old <= size);
    char *grown = fl_big_alloc(size);
    if (block == NULL || grown == NULL)
        return grown;
    /* Small pages that move stay small: a block that becomes large is copied into huge ones. */
    if (old >= FL_BIG_ALIGNMENT) {
        if (fl_os_move(block, grown, whole_pages(old)))
            return grown;
        fl_big_free(grown, size); /* a move that fails may have unmapped its target */
        grown = fl_big_alloc(size);
    }
    if (grown != NULL) {
        memcpy(grown, block, old);
        fl_big_free(block, old);
    }
    return grown;
}

size_t fl_big_trim(void *block, size_t old, size_t size) {
    assert(block);
    size_t kept = whole_pages(size), all = whole_pages(old);
    if (kept < all)
        fl_os_pages_cut(block, all, kept);
    return kept < all ? kept : all;
}

void fl_pages_release(const void *data, size_t size) {
    uintptr_t page  = fl_os_page();
    uintptr_t first = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t last  = ((uintptr_t)data + size) & ~(page - 1);
    if (data != NULL && first < last)
        fl_os_pages_release((void *)first, last - first);
}

uint64_t fl_alloc_count(void) {
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

void fl_alloc_fail_after(uint64_t n) {
    atomic_store_explicit(&fail_countdown, n, memory_order_relaxed);
}
