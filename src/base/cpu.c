/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - how much of the machine this process may use, and its caches and
 * memory.
 *
 * Role    the number of threads, the kernels' block sizes and the memory
 * prediction start here; what the instruction set offers is in cpu_isa.c.
 * Method  Three limits can be smaller than the machine: the affinity mask
 * (taskset, cpuset cgroups), the CPU quota of a cgroup (containers), and a
 * parent cgroup's quota, so the path in /proc/self/cgroup is walked up to its
 * root. In a container the path may name a group that is not visible; the walk
 * then ends at the mount's root, which is the container's own group. A quota
 * of 1.5 processors counts as 2: two threads use it up, one cannot. Memory
 * stack only. Threads: any; nothing is cached, callers keep what they need.
 * Proof   tests/unit/test_base_cpu.c. */
#include "base/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu_isa.h"
#include "base/mem.h"

enum { TEXT_MAX = 4096, CPUS_MAX = 1 << 16 };

/* Read a small file of /proc or /sys into a terminated text; false when it
 * cannot be read. */
static bool read_text(const char *path, char *text, size_t capacity) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    size_t  size = 0;
    ssize_t count;
    do {
        count = read(fd, text + size, capacity - 1 - size);
        size += count > 0 ? (size_t)count : 0;
    } while ((count > 0 && size < capacity - 1) || (count < 0 && errno == EINTR));
    close(fd);
    text[size] = '\0';
    return size > 0;
}

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

/* Whether the comma-separated list (length bytes) names the controller. */
static bool list_has(const char *list, size_t length, const char *name) {
    size_t size = strlen(name);
    for (size_t i = 0; i < length;) {
        size_t end = i;
        while (end < length && list[end] != ',') {
            end++;
        }
        if (end - i == size && memcmp(list + i, name, size) == 0) {
            return true;
        }
        i = end + 1;
    }
    return false;
}

/* The group of this process for a v1 controller, or with controller "" its v2
 * group: the path after the second colon of the line "4:cpu,cpuacct:/path" or
 * "0::/path". */
static bool group_path(const char *cgroups, const char *controller, char *path, size_t capacity) {
    for (const char *line = cgroups; line != NULL && *line != '\0';) {
        const char *end    = strchrnul(line, '\n');
        const char *first  = memchr(line, ':', (size_t)(end - line));
        const char *second = NULL;
        if (first != NULL) {
            second = memchr(first + 1, ':', (size_t)(end - first - 1));
        }
        if (second != NULL) {
            size_t length = (size_t)(second - first - 1);
            size_t size   = (size_t)(end - second - 1);
            bool   found =
                controller[0] == '\0' ? length == 0 : list_has(first + 1, length, controller);
            if (found && size < capacity) {
                memcpy(path, second + 1, size);
                path[size] = '\0';
                return true;
            }
        }
        line = *end == '\n' ? end + 1 : NULL;
    }
    return false;
}

/* Called with a group's folder; keeps the least limit in *least. */
typedef void (*group_fn)(const char *folder, void *least);

/* Visit the group and all its parents below `mount`. */
static void walk_groups(const char *mount, char *path, group_fn visit, void *least) {
    char folder[TEXT_MAX + 64];
    bool escapes = strstr(path, "/..") != NULL; /* a group outside of our namespace */
    if (escapes) {
        path[0] = '\0';
    }
    for (;;) {
        size_t length = strlen(path);
        while (length > 0 && path[length - 1] == '/') {
            path[--length] = '\0';
        }
        (void)snprintf(folder, sizeof folder, "%s%s", mount, path);
        visit(folder, least);
        char *slash = strrchr(path, '/');
        if (slash == NULL) {
            return;
        }
        *slash = '\0';
    }
}

/* Walk the process's groups: v2 in the unified mount, v1 under the controller's
 * own mount. Hybrid systems mount v2 elsewhere ("unified"), but there these two
 * controllers are v1's. */
static void walk_all(const char *controller, group_fn visit_v2, group_fn visit_v1, void *least) {
    char cgroups[TEXT_MAX], path[TEXT_MAX], mount[64];
    if (!read_text("/proc/self/cgroup", cgroups, sizeof cgroups)) {
        return;
    }
    if (group_path(cgroups, "", path, sizeof path)) {
        walk_groups("/sys/fs/cgroup", path, visit_v2, least);
    }
    if (group_path(cgroups, controller, path, sizeof path)) {
        /* "cpu" is also a link to "cpu,cpuacct" where the two are mounted together.
     */
        (void)snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
        walk_groups(mount, path, visit_v1, least);
    }
}

static bool read_in(const char *folder, const char *name, char *text, size_t capacity) {
    char path[TEXT_MAX + 128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return read_text(path, text, capacity);
}

static void least_cpu_v2(const char *folder, void *least) {
    unsigned *usable = least;
    char      text[64];
    if (read_in(folder, "cpu.max", text, sizeof text)) {
        *usable = fl_cpu_usable_from(*usable, text);
    }
}

static void least_cpu_v1(const char *folder, void *least) {
    unsigned *usable = least;
    char      quota[32], period[32], text[80];
    if (read_in(folder, "cpu.cfs_quota_us", quota, sizeof quota) &&
        read_in(folder, "cpu.cfs_period_us", period, sizeof period)) {
        /* Both end in a newline, which strtoull skips; -1 is "no quota". */
        (void)snprintf(text, sizeof text, "%s %s", quota, period);
        *usable = fl_cpu_usable_from(*usable, text);
    }
}

unsigned fl_cpu_usable(void) {
    unsigned usable = fl_cpu_usable_from(affinity_count(), NULL);
    walk_all("cpu", least_cpu_v2, least_cpu_v1, &usable);
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

static void least_memory(const char *folder, const char *name, uint64_t *least) {
    char text[32];
    if (read_in(folder, name, text, sizeof text) && text[0] >= '0' && text[0] <= '9') {
        uint64_t limit = strtoull(text, NULL, 10);
        *least         = limit > 0 && limit < *least ? limit : *least;
    }
}

static void least_memory_v2(const char *folder, void *least) {
    least_memory(folder, "memory.max", least);
}

static void least_memory_v1(const char *folder, void *least) {
    least_memory(folder, "memory.limit_in_bytes", least);
}

uint64_t fl_memory_total(void) {
    long     pages = sysconf(_SC_PHYS_PAGES);
    long     page  = sysconf(_SC_PAGESIZE);
    uint64_t total = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    walk_all("memory", least_memory_v2, least_memory_v1, &total);
    return total;
}

/* ---- The processor --------------------------------------------------------------------------- */

/* Caches as the kernel lists them: level, type, and a size like "48K". */
static void caches_from_sysfs(fl_cpu *out) {
    enum { CACHES_MAX = 8 };
    for (int i = 0; i < CACHES_MAX; i++) {
        char folder[80], level[16], type[32], size[32];
        (void)snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu0/cache/index%d", i);
        if (!read_in(folder, "level", level, sizeof level) ||
            !read_in(folder, "type", type, sizeof type) ||
            !read_in(folder, "size", size, sizeof size)) {
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
