/* SPDX-License-Identifier: Apache-2.0 */
/* failing_malloc.c - a heap of which one allocation fails: LD_PRELOAD it in front of any program.
 *
 * FAIL_AT=N        allocation N of the process (from 1) fails with ENOMEM; unset or 0: none
 * FAIL_FILE=NAME   at its end the process writes there how many allocations it made
 * FAIL_BY_SIGNAL=1 nothing fails until SIGUSR2; the n-th of these lets allocation n from then on fail
 * Calls of every thread count, in the order in which they come, and those of the libraries too. The real
 * functions are glibc's own names, so that nothing must be looked up, which would allocate. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_ullong calls;
static atomic_bool   counting;
static atomic_ullong fail_at;

static bool fails(void) {
    if (!atomic_load(&counting) || atomic_fetch_add(&calls, 1) + 1 != atomic_load(&fail_at))
        return false;
    errno = ENOMEM;
    return true;
}

static void next(int number) {
    (void)number;
    atomic_fetch_add(&fail_at, 1);
    atomic_store(&calls, 0);
    atomic_store(&counting, true);
}

__attribute__((constructor)) static void read_environment(void) {
    const char *at = getenv("FAIL_AT");
    atomic_store(&fail_at, at != NULL ? strtoull(at, NULL, 10) : 0);
    if (getenv("FAIL_BY_SIGNAL") != NULL)
        (void)signal(SIGUSR2, next);
    else
        atomic_store(&counting, true);
}

__attribute__((destructor)) static void tell(void) {
    const char *name = getenv("FAIL_FILE");
    char        text[32];
    const int   size = snprintf(text, sizeof text, "%llu\n", atomic_load(&calls));
    const int   fd   = name != NULL ? open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd >= 0 && write(fd, text, (size_t)size) == size)
        (void)close(fd);
}

void *malloc(size_t size) {
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    return fails() ? NULL : __libc_realloc(block, size);
}

void *reallocarray(void *block, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return fails() ? NULL : __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return fails() ? NULL : __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size) {
    return fails() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    void *block = fails() ? NULL : __libc_memalign(alignment, size);
    if (block == NULL)
        return ENOMEM;
    *out = block;
    return 0;
}
