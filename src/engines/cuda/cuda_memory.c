/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_memory.c - blocks of a device's memory: from the driver's pool or one by one, and their account.
 *
 * Role    cuda_engine.c takes its block here when it opens; tiers.c asks what that takes of the device and
 *         what the pool has to spare; cuda_describe.c reads the account.
 * Method  cuda.memory_pool: the engines of a process share one memory pool of the driver on each
 *         device. What a model gives back stays in the pool, so that a replica opened again, or the
 *         next model, maps nothing new; the last engine that leaves a device gives the pool back to
 *         it. A device without pools (a shared virtual one), or a pool that cannot be made, means
 *         blocks of cuMemAlloc, each with its own pages, and the same account.
 * Steps   By how much a pool grows, no document says; 2 MiB are a page, 32 MiB are reported. An
 *         engine takes one block of whole steps of 32 MiB, which is the same of the device by either,
 *         and known before it is taken.
 * Bytes   used and peak are what engines asked for; held is what the driver says the pool has.
 * Memory  one row of a table per device. Threads: a lock per process; opening and closing only.
 * Proof   tests/cuda/test_cuda_memory.c: the account against what the driver counted. */
#include "base/error.h"
#include "base/locked.h"
#include "engines/cuda/cuda_engine.h"

enum {
    POOLS     = 64, /* devices beyond have none */
    PAGE      = 2 << 20,
    POOL_STEP = 32 << 20
};

FL_LOCK_ROLE(account_role); /* process.lock: pools, and what engines took */

static struct {
    pthread_mutex_t lock;
    fl_cuda_blocks  pool[POOLS]; /* engines point to theirs */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

FL_ACQUIRES(account_role) FL_UNCHECKED static void lock(void) {
    pthread_mutex_lock(&process.lock);
}

FL_RELEASES(account_role) FL_UNCHECKED static void unlock(void) {
    pthread_mutex_unlock(&process.lock);
}

static CUresult make_pool(const fl_engine *e, CUmemoryPool *out) {
    const fl_cuda_calls *cu    = &e->cuda->cu;
    cuuint64_t           keep  = UINT64_MAX; /* until the pool is destroyed */
    CUmemPoolProps       props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location  = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    props.location.id          = e->device;
    CUresult result            = cu->pool_create(out, &props);
    if (result != CUDA_SUCCESS)
        return result;
    result = cu->pool_set(*out, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    if (result == CUDA_SUCCESS)
        return result;
    cu->pool_destroy(*out);
    *out = NULL;
    return result;
}

static bool has_pools(const fl_engine *e) {
    int yes = 0;
    return e->device >= 0 && e->device < POOLS &&
           e->cuda->cu.device_attribute(&yes, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
                                        e->device) == CUDA_SUCCESS &&
           yes != 0;
}

void fl_cuda_memory_open(fl_engine *e, bool pooled) {
    e->pool = &e->own;
    if (!pooled || !has_pools(e))
        return;
    fl_cuda_blocks *shared = &process.pool[e->device];
    lock();
    CUresult result = shared->engines > 0 ? CUDA_SUCCESS : make_pool(e, &shared->handle);
    if (result == CUDA_SUCCESS) {
        shared->engines++;
        e->pool = shared;
    }
    unlock();
    if (result != CUDA_SUCCESS)
        fl_log_write(e->log, FL_LOG_INFO, "cuda: %s gives no memory pool; blocks are taken singly",
                     e->name);
}

void fl_cuda_memory_close(fl_engine *e) {
    if (e->pool == NULL || e->pool == &e->own)
        return;
    lock();
    if (--e->pool->engines == 0) {
        e->cuda->cu.pool_destroy(e->pool->handle);
        *e->pool = (fl_cuda_blocks){0};
    }
    unlock();
}

uint64_t fl_cuda_mapped(const fl_engine *e, uint64_t bytes) {
    uint64_t step = e->pool->handle != NULL ? POOL_STEP : PAGE;
    return (bytes + step - 1) / step * step;
}

/* What the pool has of the device, in use or not. */
FL_REQUIRES(account_role) static uint64_t held(const fl_engine *e) {
    cuuint64_t bytes = 0;
    if (e->pool->handle == NULL ||
        e->cuda->cu.pool_get(e->pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) !=
            CUDA_SUCCESS)
        return e->pool->used;
    return bytes;
}

/* From the pool, in the order of the default stream. */
FL_REQUIRES(account_role)
static CUresult take_pooled(const fl_engine *e, CUdeviceptr *out, size_t bytes) {
    uint64_t before = held(e);
    CUresult result = e->cuda->cu.pool_alloc(out, bytes, e->pool->handle, NULL);
    e->pool->hits += result == CUDA_SUCCESS && held(e) == before;
    return result;
}

CUresult fl_cuda_take(fl_engine *e, CUdeviceptr *out, size_t bytes) {
    fl_cuda_blocks *pool = e->pool;
    lock();
    CUresult result =
        pool->handle != NULL ? take_pooled(e, out, bytes) : e->cuda->cu.memory_alloc(out, bytes);
    if (result == CUDA_SUCCESS) {
        pool->takes++;
        pool->used += bytes;
        pool->peak = pool->used > pool->peak ? pool->used : pool->peak;
    }
    unlock();
    if (result != CUDA_SUCCESS || pool->handle == NULL)
        return result;
    result = fl_cuda_await(e, NULL, NULL, 0); /* other streams use the block at once */
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_LAUNCH_TIMEOUT)
        fl_cuda_give(e, out, bytes);
    return result; /* a device that hangs keeps the block until the engine can be closed */
}

bool fl_cuda_give(fl_engine *e, CUdeviceptr *block, size_t bytes) {
    lock();
    /* Nothing runs on it any more. A block of no pool goes with the context, if not now. */
    bool given = e->cuda->cu.memory_free(*block) == CUDA_SUCCESS || e->pool->handle == NULL;
    if (given) {
        e->pool->used -= bytes;
        *block = 0;
    }
    unlock();
    return given;
}

uint64_t fl_cuda_spare(const fl_engine *e) {
    lock();
    uint64_t bytes = held(e), spare = bytes > e->pool->used ? bytes - e->pool->used : 0;
    unlock();
    return spare;
}

void fl_cuda_account(const fl_engine *e, fl_device_load *out) {
    lock();
    out->pool_used  = e->pool->used;
    out->pool_peak  = e->pool->peak;
    out->pool_held  = held(e);
    out->pool_takes = e->pool->takes;
    out->pool_hits  = e->pool->hits;
    unlock();
}
