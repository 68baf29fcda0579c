/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - how much of the machine this process may use, and its caches and memory.
 *
 * Role    The number of threads, the kernels' block sizes and the memory prediction start here; what the
 *         instruction set offers is in cpu_isa.c.
 * Method  Three limits can be smaller than the machine: the affinity mask (taskset, cpuset cgroups), the
 *         CPU quota of a cgroup (containers), and a parent cgroup's quota (cgroup.h). A quota of 1.5
 *         processors counts as 2: two threads use it up, one cannot.
 * Memory  Stack only. Threads: any; nothing is cached, callers keep what they need.
 * Proof   tests/unit/test_base_cpu.c. */
#include "base/cpu.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/cpu_isa.h"
#include "base/mem.h"

enum { CPUS_MAX = 1 << 16 };

/* ---- Processors ------------------------------------------------------------------------------ */

/* Processors in the affinity mask; the mask is as long as the kernel's, which
 * only trying tells. */
static unsigned affinity_count(void) {
    for (size_t cpus = CPU_SETSIZE; cpus <= CPUS_MAX; cpus *= 2) {
        cpu_set_t *set   = CPU_ALLOC(cpus);
        size_t     bytes = CPU_ALLOC_SIZE(cpus);
        if (set == NULL) {
            break;
        }
        bool     known = sched_getaffinity(0, bytes, set) == 0;
        bool     small = !known && errno == EINVAL;
        unsigned count = known ? (unsigned)CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (known) {
            return count;
        }
        if (!small) {
            break;
        }
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

unsigned fl_cpu_usable_from(unsigned affinity, const char *cpu_max) {
    unsigned usable = affinity == 0 ? 1 : affinity;
    if (cpu_max == NULL || cpu_max[0] < '0' || cpu_max[0] > '9') {
        return usable; /* "max 100000": no quota */
    }
    char    *end;
    uint64_t quota  = strtoull(cpu_max, &end, 10);
    uint64_t period = strtoull(end, NULL, 10);
    if (period == 0) {
        period = 100000; /* the kernel's default */
    }
    uint64_t whole = quota / period + (quota % period != 0);
    if (whole == 0) {
        whole = 1;
    }
    return whole < usable ? (unsigned)whole : usable;
}

/* ---- Control groups -------------------------------------------------------------------------- */

static int least_cpu(const char *folder, bool v2, void *least) {
    unsigned *usable = least;
    char      text[80], quota[32], period[32];
    if (v2) {
        if (fl_small_read(folder, "/cpu.max", text, sizeof text)) {
            *usable = fl_cpu_usable_from(*usable, text);
        }
    } else if (fl_small_read(folder, "/cpu.cfs_quota_us", quota, sizeof quota) &&
               fl_small_read(folder, "/cpu.cfs_period_us", period, sizeof period)) {
        /* Both end in a newline, which strtoull skips; -1 is "no quota". */
        (void)snprintf(text, sizeof text, "%s %s", quota, period);
        *usable = fl_cpu_usable_from(*usable, text);
    }
    return 0;
}

unsigned fl_cpu_usable(void) {
    unsigned usable = fl_cpu_usable_from(affinity_count(), NULL);
    (void)fl_cgroup_each("", "cpu", least_cpu, &usable);
    return usable;
}

/* Node of a processor: /sys/devices/system/cpu/cpuN has a link nodeM; 0 where
 * there is none. */
static unsigned node_of(unsigned cpu) {
    enum { NODES_MAX = 64 };
    char path[80];
    for (unsigned node = 0; node < NODES_MAX; node++) {
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/node%u", cpu, node);
        if (access(path, F_OK) == 0) {
            return node;
        }
    }
    return 0;
}

unsigned fl_cpu_cores(uint16_t *out, unsigned capacity) {
    cpu_set_t set;
    unsigned  count = 0, usable = fl_cpu_usable();
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        CPU_SET(0, &set);
    }
    for (unsigned cpu = 0; cpu < CPU_SETSIZE && count < capacity; cpu++) {
        if (!CPU_ISSET(cpu, &set)) {
            continue;
        }
        unsigned at = count++; /* behind the last one of its node or a lower one */
        for (; at > 0 && node_of(out[at - 1]) > node_of(cpu); at--) {
            out[at] = out[at - 1];
        }
        out[at] = (uint16_t)cpu;
    }
    return count < usable ? count : usable;
}

void fl_cpu_pin(uint16_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (core < CPU_SETSIZE) {
        CPU_SET(core, &set);
        (void)sched_setaffinity(0, sizeof set, &set);
    }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static int least_memory(const char *folder, bool v2, void *least) {
    const char *name  = v2 ? "/memory.max" : "/memory.limit_in_bytes";
    uint64_t   *total = least;
    char        text[32];
    if (fl_small_read(folder, name, text, sizeof text) && text[0] >= '0' && text[0] <= '9') {
        uint64_t limit = strtoull(text, NULL, 10);
        *total         = limit > 0 && limit < *total ? limit : *total;
    }
    return 0;
}

uint64_t fl_memory_total(void) {
    long     pages = sysconf(_SC_PHYS_PAGES);
    long     page  = sysconf(_SC_PAGESIZE);
    uint64_t total = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    (void)fl_cgroup_each("", "memory", least_memory, &total);
    return total;
}

/* ---- The processor --------------------------------------------------------------------------- */

/* Caches as the kernel lists them: level, type, and a size like "48K". */
static void caches_from_sysfs(fl_cpu *out) {
    enum { CACHES_MAX = 8 };
    for (int i = 0; i < CACHES_MAX; i++) {
        char folder[80], level[16], type[32], size[32];
        (void)snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu0/cache/index%d", i);
        if (!fl_small_read(folder, "/level", level, sizeof level) ||
            !fl_small_read(folder, "/type", type, sizeof type) ||
            !fl_small_read(folder, "/size", size, sizeof size)) {
            return;
        }
        char    *unit;
        uint64_t bytes = strtoull(size, &unit, 10);
        bytes *= *unit == 'K' ? 1024 : *unit == 'M' ? 1024 * 1024 : 1;
        if (type[0] != 'I' && bytes <= UINT32_MAX) { /* Data or Unified */
            fl_cpu_set_cache(out, (unsigned)(level[0] - '0'), (uint32_t)bytes);
        }
    }
}

void fl_cpu_detect(fl_cpu *out) {
    *out = (fl_cpu){0};
    fl_cpu_detect_isa(out);
    caches_from_sysfs(out);
    if (out->l1d_bytes == 0) {
        fl_cpu_detect_caches(out);
    }
}
