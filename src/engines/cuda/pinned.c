/* SPDX-License-Identifier: Apache-2.0 */
/* pinned.c - the host's side of a copy: the runtime's pooled buffers, made known to the driver.
 *
 * Role    host_alloc and host_free of engine.h, for the runtime's pools of buffers; cuda_forward.c asks
 *         whether rows lie in such a buffer and then has the device write them there.
 * Method  A buffer is memory of our own that is registered with the driver, not memory of the
 *         driver: buffers outlive engines, and what a driver allocated dies with its context when a
 *         device is lost. The last engine that closes takes all registrations back, the next that
 *         opens makes them again. A registration that the driver refuses costs speed alone, since
 *         it copies from and to any memory. While a device hangs nothing is asked of the driver: a
 *         registered buffer that is freed then is kept until the device answers.
 * State   docs/providers.md promises pinned memory; what it saves was measured on no device.
 * Memory  a node per buffer; the pools bound their number. Threads: any; one lock.
 * Proof   tests/cuda/test_cuda_memory.c. */
#include "base/locked.h"
#include "base/mem.h"
#include "engines/cuda/cuda_engine.h"

typedef struct buffer {
    struct buffer *next;
    unsigned char *at;
    size_t         bytes;
    bool           registered;
    bool           unused; /* freed while a device hung, which may yet touch it */
} buffer;

FL_LOCK_ROLE(pinned_role); /* process.lock */

static struct {
    pthread_mutex_t    lock;
    fl_engine *engines FL_GUARDED_BY(pinned_role); /* open ones, by next_open */
    buffer *buffers    FL_GUARDED_BY(pinned_role);
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

FL_ACQUIRES(pinned_role) FL_UNCHECKED static void lock(void) {
    pthread_mutex_lock(&process.lock);
}

FL_RELEASES(pinned_role) FL_UNCHECKED static void unlock(void) {
    pthread_mutex_unlock(&process.lock);
}

/* One call under the context of an engine that is open, unless a device hangs, for which it would wait.
 * */
FL_REQUIRES(pinned_role) static void set_registered(const fl_engine *e, buffer *b, bool wanted) {
    CUcontext popped;
    if (e == NULL || b->registered == wanted || fl_cuda_hangs() ||
        e->cuda->cu.context_push(e->context) != CUDA_SUCCESS)
        return;
    if (wanted)
        b->registered =
            e->cuda->cu.host_register(b->at, b->bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
    else
        e->cuda->cu.host_unregister(b->at);
    b->registered = b->registered && wanted;
    e->cuda->cu.context_pop(&popped);
}

FL_REQUIRES(pinned_role) static void set_all(const fl_engine *e, bool wanted) {
    for (buffer *b = process.buffers; b != NULL; b = b->next)
        set_registered(e, b, wanted);
}

FL_REQUIRES(pinned_role) static void remove_buffer(buffer **link) {
    buffer *b = *link;
    *link     = b->next;
    fl_big_free(b->at, b->bytes);
    fl_free(b);
}

/* Those that waited for a device, when none hangs any more. */
FL_REQUIRES(pinned_role) static void sweep(const fl_engine *e) {
    for (buffer **link = &process.buffers; *link != NULL && !fl_cuda_hangs();) {
        if ((*link)->unused) {
            set_registered(e, *link, false);
            remove_buffer(link);
        } else {
            link = &(*link)->next;
        }
    }
}

FL_REQUIRES(pinned_role) static void leave(fl_engine *e) {
    fl_engine **link = &process.engines;
    while (*link != NULL && *link != e)
        link = &(*link)->next_open;
    if (*link == e)
        *link = e->next_open;
}

void fl_cuda_pinned_open(fl_engine *e) {
    lock();
    e->next_open    = process.engines;
    process.engines = e;
    set_all(e, true);
    sweep(e);
    unlock();
}

void fl_cuda_pinned_close(fl_engine *e) {
    lock();
    leave(e);
    if (process.engines == NULL && e->context != NULL)
        set_all(e, false);
    if (e->context != NULL)
        sweep(e);
    unlock();
}

void fl_cuda_pinned_leave(fl_engine *e) {
    lock();
    leave(e);
    unlock();
}

void *fl_cuda_host_alloc(size_t bytes) {
    buffer *b = fl_alloc_zero(1, sizeof *b);
    if (b == NULL)
        return NULL;
    *b = (buffer){.at = fl_big_alloc(bytes), .bytes = bytes};
    if (b->at == NULL) {
        fl_free(b);
        return NULL;
    }
    lock();
    b->next         = process.buffers;
    process.buffers = b;
    set_registered(process.engines, b, true);
    unlock();
    return b->at;
}

void fl_cuda_host_free(void *block, size_t bytes) {
    (void)fl_cuda_others_end(NULL);
    lock();
    buffer **link = &process.buffers;
    while (*link != NULL && (*link)->at != (unsigned char *)block)
        link = &(*link)->next;
    if (*link == NULL) {
        fl_big_free(block, bytes);
    } else {
        set_registered(process.engines, *link, false);
        (*link)->unused = (*link)->registered && fl_cuda_hangs();
        if (!(*link)->unused)
            remove_buffer(link);
    }
    unlock();
}

bool fl_cuda_is_pinned(const void *at, size_t bytes) {
    const unsigned char *first = at;
    bool                 yes   = false;
    lock();
    for (const buffer *b = process.buffers; b != NULL && !yes; b = b->next)
        yes = b->registered && first >= b->at && first + bytes <= b->at + b->bytes;
    unlock();
    return yes;
}
