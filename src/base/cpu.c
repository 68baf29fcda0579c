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

#include <stdio.h>
#include <stdlib.h>

#include "base/cgroup.h"
#include "base/cpu_isa.h"
#include "base/os.h"

/* ---- Processors ------------------------------------------------------------------------------ */

/* What a quota like "150000 100000" leaves of `usable` processors. */
static unsigned bounded(unsigned usable, const char *quota_period) {
    if (quota_period[0] < '0' || quota_period[0] > '9')
        return usable; /* "max 100000", or v1's -1: no quota */
    char    *end;
    uint64_t quota  = strtoull(quota_period, &end, 10);
    uint64_t period = strtoull(end, NULL, 10);
    if (period == 0)
        period = 100000; /* the kernel's default */
    uint64_t whole = quota / period + (quota % period != 0);
    if (whole == 0)
        whole = 1;
    return whole < usable ? (unsigned)whole : usable;
}

/* ---- Control groups -------------------------------------------------------------------------- */

static int least_cpu(const char *folder, bool v2, void *least) {
    unsigned *usable = least;
    char      text[80], quota[32], period[32];
    if (v2) {
        if (fl_small_read(folder, "/cpu.max", text, sizeof text))
            *usable = bounded(*usable, text);
    } else if (fl_small_read(folder, "/cpu.cfs_quota_us", quota, sizeof quota) &&
               fl_small_read(folder, "/cpu.cfs_period_us", period, sizeof period)) {
        /* Both end in a newline, which strtoull skips; -1 is "no quota". */
        (void)snprintf(text, sizeof text, "%s %s", quota, period);
        *usable = bounded(*usable, text);
    }
    return 0;
}

unsigned fl_cpu_usable_at(const char *root, unsigned affinity) {
    unsigned usable = affinity == 0 ? 1 : affinity;
    (void)fl_cgroup_each(root, "cpu", least_cpu, &usable);
    return usable;
}

unsigned fl_cpu_usable(void) {
    return fl_cpu_usable_at("", fl_os_processors());
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
    uint64_t total = fl_os_memory();
    (void)fl_cgroup_each("", "memory", least_memory, &total);
    return total;
}

/* ---- The processor --------------------------------------------------------------------------- */

void fl_cpu_detect(fl_cpu *out) {
    *out = (fl_cpu){0};
    fl_cpu_detect_isa(out);
    fl_os_caches(out);
    if (out->l1d_bytes == 0)
        fl_cpu_detect_caches(out);
}

unsigned fl_cpu_nodes(const char *root, const uint16_t *cpus, unsigned count) {
    unsigned nodes = count > 0;
    for (unsigned i = 1; i < count; i++)
        nodes += fl_cpu_node(root, cpus[i]) != fl_cpu_node(root, cpus[i - 1]);
    return nodes;
}

fl_cpu_group fl_cpu_deal(const char *root, const uint16_t *cpus, unsigned count, unsigned groups,
                         unsigned number) {
    unsigned     each = count / groups > 0 ? count / groups : 1;
    fl_cpu_group out  = {number * each % count, each, 0};
    bool         own  = fl_cpu_nodes(root, cpus, count) == groups;
    for (unsigned i = 0, node = 0, begin = 0; i < count; i++) {
        bool last = i + 1 == count || fl_cpu_node(root, cpus[i + 1]) != fl_cpu_node(root, cpus[i]);
        if (own && last && node == number)
            return (fl_cpu_group){begin, i + 1 - begin, node};
        out.node = i == out.first ? node : out.node;
        node += last;
        begin = last ? i + 1 : begin;
    }
    return out;
}
