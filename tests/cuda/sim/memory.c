/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the simulated driver's memory: blocks, pinned memory and pools.
 *
 * Role    driver.c's other half; cuMem… are here.
 * Method  Device memory is host memory with an account, counted in the steps of the real driver. A
 *         pool grows by whole steps and keeps what is given back to it, up to its threshold; while a
 *         context is damaged, none of its blocks can be given back, and it cannot be destroyed
 *         before all are.
 * Threads any; one lock. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

enum { BIG = 1 << 20, FILL = 4 << 20, BIG_STEP = 2 << 20, SMALL_STEP = 512, POOL_STEP = 32 << 20 };

typedef struct block {
    struct block *next;
    char         *at;
    size_t        bytes, counted;
    int           device;     /* SIM_NO_DEVICE: pinned host memory */
    CUmemoryPool  pool;       /* NULL: of none */
    bool          registered; /* memory of the product's own */
} block;

struct CUmemPoolHandle_st {
    int      device;
    uint64_t step; /* by which it grows */
    uint64_t used, reserved, threshold;
};

static struct {
    pthread_mutex_t lock;
    uint64_t        used[SIM_DEVICES];
    block          *blocks;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

VISIBLE uint64_t sim_used(int device) {
    pthread_mutex_lock(&memory.lock);
    uint64_t used = memory.used[device];
    pthread_mutex_unlock(&memory.lock);
    return used;
}

static size_t counted(size_t bytes) {
    size_t step = bytes >= BIG ? BIG_STEP : SMALL_STEP;
    return (bytes + step - 1) / step * step;
}

/* The lock is held. */
static block *block_of(const void *at, size_t bytes) {
    const char *p = at;
    for (block *b = memory.blocks; b != NULL; b = b->next)
        if (p >= b->at && p + bytes <= b->at + b->bytes)
            return b;
    return NULL;
}

VISIBLE int sim_is_device(const void *at, size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    const block *b      = block_of(at, bytes);
    int          device = b != NULL && b->device >= 0;
    pthread_mutex_unlock(&memory.lock);
    return device;
}

/* Room in a pool or on the device; the lock is held. */
static bool make_room(const block *b) {
    CUmemoryPool pool = b->pool;
    if (b->device == SIM_NO_DEVICE)
        return true;
    uint64_t more = b->counted;
    if (pool != NULL) {
        uint64_t need = pool->used + b->counted;
        need          = (need + pool->step - 1) / pool->step * pool->step;
        more          = need > pool->reserved ? need - pool->reserved : 0;
    }
    if (memory.used[b->device] + more > sim_memory())
        return false;
    memory.used[b->device] += more;
    if (pool != NULL) {
        pool->used += b->counted;
        pool->reserved += more;
    }
    return true;
}

/* The lock is held. */
static void free_room(const block *b) {
    CUmemoryPool pool = b->pool;
    if (b->device == SIM_NO_DEVICE)
        return;
    if (pool == NULL) {
        memory.used[b->device] -= b->counted;
        return;
    }
    pool->used -= b->counted;
    uint64_t keep = pool->used > pool->threshold ? pool->used : pool->threshold;
    if (pool->reserved > keep) {
        memory.used[b->device] -= pool->reserved - keep;
        pool->reserved = keep;
    }
}

static CUresult take(void **out, size_t bytes, int device, CUmemoryPool pool) {
    block *b = calloc(1, sizeof *b);
    b->at    = aligned_alloc(SMALL_STEP, counted(bytes));
    if (b->at == NULL || bytes == 0) {
        free(b->at);
        free(b);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* NaN in every float type: what is read unwritten shows. The head is enough of a large one. */
    memset(b->at, 0xFF, bytes < FILL ? bytes : FILL);
    b->bytes   = bytes;
    b->device  = device;
    b->pool    = pool;
    b->counted = device >= 0 ? counted(bytes) : 0;
    pthread_mutex_lock(&memory.lock);
    bool fits = make_room(b);
    if (fits) {
        b->next       = memory.blocks;
        memory.blocks = b;
    }
    pthread_mutex_unlock(&memory.lock);
    if (!fits) {
        free(b->at);
        free(b);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_count(1);
    *out = b->at;
    return CUDA_SUCCESS;
}

/* What frees waits for the device, and for all of them where it was the host's. */
static CUresult give_back(void *at, bool device, bool registered) {
    sim_settle(device && sim_current() != NULL ? sim_current()->device : SIM_NO_DEVICE);
    CUresult r = sim_state();
    pthread_mutex_lock(&memory.lock);
    block **link = &memory.blocks;
    while (*link != NULL && (*link)->at != (char *)at)
        link = &(*link)->next;
    block *b    = *link;
    bool   fits = b != NULL && (b->device >= 0) == device && b->registered == registered;
    if (!fits || (b->pool != NULL && r != CUDA_SUCCESS)) {
        pthread_mutex_unlock(&memory.lock);
        return fits ? r : CUDA_ERROR_INVALID_VALUE;
    }
    *link = b->next;
    free_room(b);
    pthread_mutex_unlock(&memory.lock);
    if (!registered)
        free(b->at);
    free(b);
    sim_count(-1);
    return r;
}

VISIBLE CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CUresult r = sim_need_context();
    if (r != CUDA_SUCCESS)
        return r;
    *total      = sim_memory();
    *free_bytes = sim_memory() - sim_used(sim_current()->device);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    void    *at = NULL;
    CUresult r  = sim_need_context();
    if (r == CUDA_SUCCESS)
        r = sim_gate(SIM_ALLOC);
    if (r == CUDA_SUCCESS)
        r = take(&at, bytes, sim_current()->device, NULL);
    *out = r == CUDA_SUCCESS ? (CUdeviceptr)(uintptr_t)at : 0;
    return r;
}

VISIBLE CUresult cuMemFree_v2(CUdeviceptr at) {
    return give_back((void *)(uintptr_t)at, true, false);
}

VISIBLE CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    CUresult r =
        flags & CU_MEMHOSTALLOC_WRITECOMBINED ? CUDA_ERROR_INVALID_VALUE : sim_need_context();
    if (r == CUDA_SUCCESS)
        r = sim_gate(SIM_HOST_ALLOC);
    return r == CUDA_SUCCESS ? take(out, bytes, SIM_NO_DEVICE, NULL) : r;
}

VISIBLE CUresult cuMemFreeHost(void *at) {
    return give_back(at, false, false);
}

/* The product's own memory becomes a block of the host; what overlaps one is refused. */
VISIBLE CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) {
    CUresult r = sim_need_context();
    if (r == CUDA_SUCCESS)
        r = sim_gate(SIM_HOST_ALLOC);
    if (r != CUDA_SUCCESS)
        return r;
    if (at == NULL || bytes == 0 || (flags & CU_MEMHOSTREGISTER_PORTABLE) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    block *b = calloc(1, sizeof *b);
    *b       = (block){.at = at, .bytes = bytes, .device = SIM_NO_DEVICE, .registered = true};
    pthread_mutex_lock(&memory.lock);
    for (const block *other = memory.blocks; other != NULL && r == CUDA_SUCCESS;
         other              = other->next)
        if (other->at < b->at + bytes && b->at < other->at + other->bytes)
            r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (r == CUDA_SUCCESS) {
        b->next       = memory.blocks;
        memory.blocks = b;
    }
    pthread_mutex_unlock(&memory.lock);
    if (r == CUDA_SUCCESS)
        sim_count(1);
    else
        free(b);
    return r;
}

VISIBLE CUresult cuMemHostUnregister(void *at) {
    return sim_current() == NULL ? CUDA_ERROR_INVALID_CONTEXT : give_back(at, false, true);
}

/* ---- Pools ----------------------------------------------------------------------------------- */

VISIBLE CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
    CUresult r = sim_need_context();
    if (r == CUDA_SUCCESS)
        r = sim_gate(SIM_POOL);
    if (r != CUDA_SUCCESS)
        return r;
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->location.id < 0 ||
        props->location.id >= SIM_DEVICES)
        return CUDA_ERROR_INVALID_VALUE;
    *out           = calloc(1, sizeof **out);
    (*out)->device = props->location.id;
    (*out)->step   = getenv("SIM_CUDA_POOL_STEP") != NULL
                         ? strtoull(getenv("SIM_CUDA_POOL_STEP"), NULL, 10)
                         : POOL_STEP;
    sim_count(1);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    sim_settle(pool->device);
    pthread_mutex_lock(&memory.lock);
    bool empty = pool->used == 0; /* the real one would wait for what is out; a leak shows here */
    if (empty)
        memory.used[pool->device] -= pool->reserved;
    pthread_mutex_unlock(&memory.lock);
    if (!empty)
        return CUDA_ERROR_INVALID_VALUE;
    free(pool);
    sim_count(-1);
    return sim_state();
}

VISIBLE CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute what, void *value) {
    if (what != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&pool->threshold, value, sizeof pool->threshold);
    return sim_gate(SIM_POOL);
}

VISIBLE CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute what, void *value) {
    pthread_mutex_lock(&memory.lock);
    uint64_t bytes = pool->reserved;
    pthread_mutex_unlock(&memory.lock);
    memcpy(value, &bytes, sizeof bytes);
    return what == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

VISIBLE CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
                                         CUstream stream) {
    void    *at = NULL;
    CUresult r  = sim_need_context();
    if (r == CUDA_SUCCESS)
        r = sim_gate(SIM_ALLOC);
    if (r == CUDA_SUCCESS)
        r = stream == NULL && pool->device == sim_current()->device
                ? take(&at, bytes, pool->device, pool)
                : CUDA_ERROR_INVALID_VALUE;
    *out = r == CUDA_SUCCESS ? (CUdeviceptr)(uintptr_t)at : 0;
    return r;
}
