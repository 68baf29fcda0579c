/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the ceiling behind memory.h: who limits this process, how near it is, what still fits.
 *
 * Role    See memory.h.
 * Method  open finds every control group above this process that could limit it (base/cgroup.h). Limits
 *         are read again with every sample, because an orchestrator may change them under a running
 *         process. A group's use is its working set: what it is charged for less the file pages that
 *         nobody looked at lately (inactive_file), which the kernel takes back before it refuses
 *         anybody. memory.high counts like memory.max: above it the kernel stalls us.
 *
 *           free = least of  memory.limit - resident,  machine - resident,  group limit - group use
 *           room = free - reserved
 *
 *         A batch under way counts twice while it runs, reserved and resident: a promise is kept by
 *         erring on that side.
 * Cost    The resident set is read at most every 5 ms (2 us), groups every 100 ms (about 30 us); before
 *         a promise is refused, and by fl_memory_pressure, both at once. In between: loads of atomics.
 * Threads Whoever finds a sample too old takes the next one; readers see the one before meanwhile.
 * Proof   tests/unit/test_memory.c */
#include "scheduler/memory.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/os.h"

enum {
    GROUPS_MAX = 24,
    TEXTS_MOST = 256, /* of an optimised batch */
    STALL      = 20   /* per cent of the last ten seconds that some task waited for memory */
};

#define RESIDENT_NS UINT64_C(5000000)
#define OUTSIDE_NS  UINT64_C(100000000)

typedef struct group {
    char *folder; /* owned */
    bool  v2;
} group;

struct fl_memory {
    fl_memory_options    options; /* root is owned */
    group                groups[GROUPS_MAX];
    uint32_t             group_count;
    uint64_t             machine; /* MemTotal; UINT64_MAX when unknown */
    atomic_uint_fast64_t reserved;
    atomic_uint_fast64_t resident, resident_ns;
    atomic_uint_fast64_t outside_ns;
    atomic_uint_fast64_t group_limit;                 /* the lowest; UINT64_MAX: none */
    atomic_uint_fast64_t group_free;                  /* least of limit - use over all groups */
    atomic_uint_fast64_t fullest_limit, fullest_used; /* of the group nearest to its limit */
};

static uint64_t minus(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

static uint64_t lower(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* ---- Control groups --------------------------------------------------------------------------- */

typedef struct finding {
    fl_memory    *memory;
    fletch_error *error;
} finding;

static int add_group(const char *folder, bool v2, void *user) {
    const finding *f      = user;
    fl_memory     *memory = f->memory;
    uint64_t       limit, used;
    if (memory->group_count == GROUPS_MAX || !fl_cgroup_memory(folder, v2, &limit, &used))
        return FLETCH_OK; /* not visible from here, or a root, which has no limit */
    char *copy = fl_strdup(folder);
    if (copy == NULL)
        return fl_fail_nomem(f->error, strlen(folder) + 1, "the path of a control group");
    memory->groups[memory->group_count++] = (group){copy, v2};
    return FLETCH_OK;
}

static int find_groups(fl_memory *memory, fletch_error *error) {
    finding f = {memory, error};
    return fl_cgroup_each(memory->options.root, "memory", add_group, &f);
}

/* ---- Samples ---------------------------------------------------------------------------------- */

static void sample_resident(fl_memory *memory) {
    const uint64_t resident = fl_os_resident(memory->options.root);
    if (resident > 0)
        atomic_store(&memory->resident, resident);
}

static void sample_groups(fl_memory *memory) {
    uint64_t least_limit = UINT64_MAX, least_free = UINT64_MAX, fullest_limit = UINT64_MAX;
    uint64_t fullest_used = 0;
    for (uint32_t i = 0; i < memory->group_count; i++) {
        const group *g = &memory->groups[i];
        uint64_t     limit, used;
        (void)fl_cgroup_memory(g->folder, g->v2, &limit, &used);
        if (limit == UINT64_MAX)
            continue;
        least_limit = lower(least_limit, limit);
        least_free  = lower(least_free, minus(limit, used));
        if (fullest_limit == UINT64_MAX ||
            (double)used * (double)fullest_limit > (double)fullest_used * (double)limit) {
            fullest_used  = used;
            fullest_limit = limit;
        }
    }
    atomic_store(&memory->group_limit, least_limit);
    atomic_store(&memory->group_free, least_free);
    atomic_store(&memory->fullest_limit, fullest_limit);
    atomic_store(&memory->fullest_used, fullest_used);
}

/* Whether the sample taken at *when is older than `age`; the one who is told so takes the next. */
static bool is_due(atomic_uint_fast64_t *when, uint64_t age) {
    uint64_t      now  = fl_clock_ns();
    uint_fast64_t last = atomic_load_explicit(when, memory_order_relaxed);
    return now - last > age && atomic_compare_exchange_strong(when, &last, now);
}

static void refresh(fl_memory *memory) {
    if (is_due(&memory->resident_ns, RESIDENT_NS))
        sample_resident(memory);
    if (memory->group_count && is_due(&memory->outside_ns, OUTSIDE_NS))
        sample_groups(memory);
}

static uint64_t own_limit(const fl_memory *memory) {
    return memory->options.limit ? memory->options.limit : UINT64_MAX;
}

/* Bytes to the ceiling, reservations not counted; UINT64_MAX: there is none. */
static uint64_t free_bytes(fl_memory *memory) {
    refresh(memory);
    uint64_t ceiling = lower(own_limit(memory), memory->machine);
    uint64_t left    = atomic_load(&memory->group_free);
    if (ceiling != UINT64_MAX)
        left = lower(left, minus(ceiling, atomic_load(&memory->resident)));
    return left;
}

/* ---- Open and close ---------------------------------------------------------------------------- */

int fl_memory_open(fl_memory **out, const fl_memory_options *options, fletch_error *error) {
    *out              = NULL;
    fl_memory *memory = fl_alloc_zero(1, sizeof *memory);
    if (memory == NULL)
        return fl_fail_nomem(error, sizeof *memory, "the memory watch");
    memory->options      = *options;
    memory->options.root = fl_strdup(options->root ? options->root : "");
    memory->machine      = UINT64_MAX;
    atomic_init(&memory->group_limit, UINT64_MAX);
    atomic_init(&memory->group_free, UINT64_MAX);
    if (memory->options.root == NULL) {
        fl_memory_close(memory);
        return fl_fail_nomem(error, 1, "the memory watch");
    }
    int status = find_groups(memory, error);
    if (status < 0) {
        fl_memory_close(memory);
        return status;
    }
    uint64_t total, available;
    if (fl_os_memory_left(memory->options.root, &total, &available))
        memory->machine = total;
    sample_resident(memory);
    sample_groups(memory);
    *out = memory;
    return FLETCH_OK;
}

void fl_memory_close(fl_memory *memory) {
    if (memory == NULL)
        return;
    for (uint32_t i = 0; i < memory->group_count; i++)
        fl_free(memory->groups[i].folder);
    fl_free((void *)(uintptr_t)memory->options.root);
    fl_free(memory);
}

/* ---- The ceiling ------------------------------------------------------------------------------- */

uint64_t fl_memory_used(fl_memory *memory) {
    refresh(memory);
    return atomic_load(&memory->resident);
}

uint64_t fl_memory_limit(const fl_memory *memory) {
    uint64_t limit = lower(own_limit(memory), atomic_load(&memory->group_limit));
    return limit == UINT64_MAX ? 0 : limit;
}

uint64_t fl_memory_reserved(const fl_memory *memory) {
    return atomic_load(&memory->reserved);
}

uint64_t fl_memory_room(fl_memory *memory) {
    uint64_t left = free_bytes(memory);
    return left == UINT64_MAX ? left : minus(left, atomic_load(&memory->reserved));
}

static bool promise(fl_memory *memory, uint64_t left, uint64_t bytes) {
    uint_fast64_t taken = atomic_load(&memory->reserved);
    do {
        if (bytes > minus(left, taken))
            return false;
    } while (!atomic_compare_exchange_weak(&memory->reserved, &taken, taken + bytes));
    return true;
}

bool fl_memory_reserve(fl_memory *memory, uint64_t bytes) {
    if (promise(memory, free_bytes(memory), bytes))
        return true;
    sample_resident(memory); /* the caller may have given something back a moment ago */
    sample_groups(memory);
    return promise(memory, free_bytes(memory), bytes);
}

void fl_memory_release(fl_memory *memory, uint64_t bytes) {
    assert(atomic_load(&memory->reserved) >= bytes);
    atomic_fetch_sub(&memory->reserved, bytes);
}

/* ---- Pressure ---------------------------------------------------------------------------------- */

static bool is_scarce(const fl_memory *memory, uint64_t used, uint64_t total, const char *what,
                      char *why, size_t capacity) {
    if (total == UINT64_MAX || (double)used < memory->options.threshold * (double)total)
        return false;
    if (why) {
        (void)snprintf(why, capacity, "%llu of %llu MiB of %s are in use",
                       (unsigned long long)(used >> 20), (unsigned long long)(total >> 20), what);
    }
    return true;
}

bool fl_memory_pressure(fl_memory *memory, char *why, size_t capacity) {
    uint64_t total, available;
    if (!memory->options.detect)
        return false;
    sample_resident(memory);
    sample_groups(memory);
    const bool own = memory->group_count > 0 && memory->groups[0].v2;
    double share   = fl_cgroup_stalled(own ? memory->groups[0].folder : NULL, memory->options.root);
    if (is_scarce(memory, atomic_load(&memory->resident), own_limit(memory), "memory.limit", why,
                  capacity) ||
        is_scarce(memory, atomic_load(&memory->fullest_used), atomic_load(&memory->fullest_limit),
                  "the control group's memory", why, capacity))
        return true;
    if (fl_os_memory_left(memory->options.root, &total, &available) &&
        is_scarce(memory, minus(total, available), total, "the machine's memory", why, capacity))
        return true;
    if (share >= STALL && why) {
        (void)snprintf(why, capacity, "tasks waited for memory %.0f %% of the last ten seconds",
                       share);
    }
    return share >= STALL;
}

/* ---- The batch-size optimiser ------------------------------------------------------------------ */

/* The most texts of `longest` tokens, up to `most`, whose prediction fits into what the model leaves, a
 * fifth of it kept back; 0: not even one. A prediction never shrinks with the batch, so halving finds
 * it. */
static uint32_t most_texts(const fl_engine_ops *ops, const fl_engine *engine, uint64_t available,
                           uint64_t resident, uint32_t longest, uint32_t most) {
    uint64_t left = minus(available, resident);
    uint32_t fits = 0;
    left          = left / 5 * 4;
    while (fits < most) {
        uint32_t texts = most - (most - fits) / 2;
        if (ops->memory(engine, texts, texts * longest, longest) <= left)
            fits = texts;
        else
            most = texts - 1;
    }
    return fits;
}

uint32_t fl_memory_batch_texts(const fl_engine_ops *ops, const fl_engine *engine,
                               uint64_t available, uint64_t resident, uint32_t longest) {
    uint32_t length = longest ? longest : 1;
    uint32_t most   = UINT32_MAX / length < TEXTS_MOST ? UINT32_MAX / length : TEXTS_MOST;
    uint32_t fits   = most_texts(ops, engine, available, resident, length, most);
    return fits ? fits : 1;
}

uint32_t fl_memory_batch_tokens(const fl_engine_ops *ops, const fl_engine *engine,
                                uint64_t available, uint64_t resident, uint32_t longest,
                                uint32_t least, uint32_t most) {
    uint32_t length = longest ? longest : 1, texts = most / length + (most % length != 0);
    texts         = texts < UINT32_MAX / length ? texts : UINT32_MAX / length;
    uint32_t fits = most_texts(ops, engine, available, resident, length, texts);
    uint32_t room = fits * length;
    return room > most ? most : room < least ? least : room;
}
