/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h - the only door to the heap: every allocation of the library passes here.
 *
 * One door makes three promises testable: sizes are checked for overflow, nothing is allocated while
 * running (the test counts), and every allocation can be made to fail once (the test injects).
 * Large blocks (fl_big_*) are 2 MiB-aligned anonymous mappings advised to use huge pages; they hold
 * packed weights and arenas and start zeroed. Threads: all functions may be called from any thread. */
#ifndef FL_BASE_MEM_H
#define FL_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *fl_alloc(size_t size);                                    /* size 0 gives a valid pointer */
void *fl_alloc_zero(size_t count, size_t size);                 /* NULL on overflow too */
void *fl_alloc_array(size_t count, size_t size);                /* NULL on overflow too */
void *fl_realloc_array(void *block, size_t count, size_t size); /* NULL on overflow; block stays */
void *fl_alloc_aligned(size_t size, size_t alignment); /* a power of two; fl_free frees it */
void  fl_free(void *block);                            /* NULL is a no-op */
char *fl_strdup(const char *text);

/* An array that grows: room for `count` elements of `size` bytes at least, and for some more. `array` is the address
 * of the pointer to it, *room what it has room for. False: no memory, and both stay. */
bool               fl_array_grow(void *array, size_t *room, size_t count, size_t size);
static inline bool fl_array_reserve(void *array, size_t *room, size_t count, size_t size) {
    return count <= *room || fl_array_grow(array, room, count, size);
}
char *fl_strndup(const char *text, size_t size);

void *fl_big_alloc(size_t size); /* page-aligned, zeroed; free with the same size */
void  fl_big_free(void *block, size_t size);

/* The block, or NULL for none, with `size` > old bytes; large ones move without a copy. NULL: it stays as it is. */
void *fl_big_grow(void *block, size_t old, size_t size);
/* Give back what lies beyond the pages of `size`; the size to free it with. */
size_t fl_big_trim(void *block, size_t old, size_t size);

/* Whether the kernel backs the aligned FL_BIG_ALIGNMENT pieces of a big block by one huge page each when
 * they are first written; *page gets the size of its small pages. Reads /sys: ask once. */
enum { FL_BIG_ALIGNMENT = 2 * 1024 * 1024 };
bool fl_big_pages(size_t *page);

/* Give the whole pages inside data[size] back to the kernel: those of a read-only mapping of a file come
 * back from the file when they are read again, those of a big block as zeros. */
void fl_pages_release(const void *data, size_t size);

/* Number of allocations made by this process so far through this door (fl_alloc…, fl_big_alloc). */
uint64_t fl_alloc_count(void);

/* Test hook: the n-th allocation from now fails once (0 = off). Used by the fault-injection tests. */
void fl_alloc_fail_after(uint64_t n);

/* a * b or a + b into *out; non-zero when it does not fit size_t. */
static inline int fl_mul_overflow(size_t a, size_t b, size_t *out) {
    return __builtin_mul_overflow(a, b, out);
}
static inline int fl_add_overflow(size_t a, size_t b, size_t *out) {
    return __builtin_add_overflow(a, b, out);
}

#endif
