/* SPDX-License-Identifier: Apache-2.0 */
/* heap.h - the heap for mem.c: Windows has a free of its own for aligned blocks, so that all are such. */
#ifndef FL_BASE_WINDOWS_HEAP_H
#define FL_BASE_WINDOWS_HEAP_H

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { HEAP_ALIGNMENT = 16 };

static inline void *heap_zeroed(size_t size) {
    void *block = _aligned_malloc(size, HEAP_ALIGNMENT);
    return block != NULL ? memset(block, 0, size) : NULL;
}

#define malloc(size)                         _aligned_malloc(size, HEAP_ALIGNMENT)
#define realloc(block, size)                 _aligned_realloc(block, size, HEAP_ALIGNMENT)
#define calloc(count, size)                  heap_zeroed((count) * (size))
#define free                                 _aligned_free
#define posix_memalign(out, alignment, size) ((*(out) = _aligned_malloc(size, alignment)) == NULL)

#endif
