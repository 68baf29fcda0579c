/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_cpu.c - what must never break: never more threads than affinity and quota allow, and no
 * instruction set that the kernel does not list (using it would end the program with SIGILL). */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"

/* ---- A machine of files ------------------------------------------------------------------------ */

static char root[64];

static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0777);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static void begin(void) {
    strcpy(root, "/tmp/fletch-cpu-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void end(void) {
    cr_assert_eq(fl_path_remove(root, NULL), FLETCH_OK);
}

/* ---- Quotas ------------------------------------------------------------------------------------ */

Test(cpu, quota_is_rounded_up_and_never_below_one, .init = begin, .fini = end) {
    static const struct {
        unsigned    affinity;
        const char *cpu_max;
        unsigned    usable;
    } row[] = {{8, "max 100000\n", 8},
               {8, "", 8},
               {8, "200000 100000\n", 2},
               {8, "150000 100000", 2},
               {8, "100000 100000", 1},
               {8, "100001 100000", 2},
               {8, "1000 100000", 1},
               {8, "0 100000", 1},
               {2, "800000 100000", 2},
               {8, "50000 25000", 2},
               {8, "300000", 3},
               {0, "max 100000\n", 1},
               {8, "99999999999999999999 100000", 8},
               {8, "200000 0", 2}};
    cr_assert_eq(fl_cpu_usable_at(root, 8), 8, "no control groups");
    put("/proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        put("/sys/fs/cgroup/cpu.max", row[i].cpu_max);
        cr_assert_eq(fl_cpu_usable_at(root, row[i].affinity), row[i].usable, "%s", row[i].cpu_max);
    }
}

Test(cpu, the_least_quota_on_the_way_up_counts, .init = begin, .fini = end) {
    put("/proc/self/cgroup", "0::/kubepods/pod7/c1\n");
    put("/sys/fs/cgroup/kubepods/cpu.max", "600000 100000\n");
    put("/sys/fs/cgroup/kubepods/pod7/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/kubepods/pod7/c1/cpu.max", "max 100000\n");
    cr_assert_eq(fl_cpu_usable_at(root, 16), 2, "the pod's 1.5");
    put("/sys/fs/cgroup/kubepods/pod7/cpu.max", "max 100000\n");
    cr_assert_eq(fl_cpu_usable_at(root, 16), 6, "that of all pods");
    cr_assert_eq(fl_cpu_usable_at(root, 4), 4, "the mask's");
    put("/sys/fs/cgroup/kubepods/pod7/c1/cpu.max", "50000 100000\n");
    cr_assert_eq(fl_cpu_usable_at(root, 16), 1, "its own half");
}

Test(cpu, quotas_of_version_1, .init = begin, .fini = end) {
    put("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/docker/c1\n0::/\n");
    put("/sys/fs/cgroup/cpu/docker/c1/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/docker/c1/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(fl_cpu_usable_at(root, 16), 16);
    put("/sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(fl_cpu_usable_at(root, 16), 3, "the parent's 2.5");
    put("/sys/fs/cgroup/cpu/docker/c1/cpu.cfs_quota_us", "75000\n");
    put("/sys/fs/cgroup/cpu/docker/c1/cpu.cfs_period_us", "50000\n");
    cr_assert_eq(fl_cpu_usable_at(root, 16), 2, "its own 1.5");
}

/* ---- Topology ---------------------------------------------------------------------------------- */

/* `nodes` of `cores` of two siblings. x86 counts the first siblings of all nodes first, others side by side. */
static unsigned machine(unsigned nodes, unsigned cores, bool apart, uint16_t *cpus) {
    unsigned all = nodes * cores;
    for (unsigned i = 0; i < 2 * all; i++) {
        unsigned first = apart ? i % all : i / 2 * 2;
        unsigned core  = apart ? first : i / 2;
        char     path[128], text[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                 i);
        snprintf(text, sizeof text, apart ? "%u,%u\n" : "%u-%u\n", first,
                 apart ? first + all : first + 1);
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/node%u/cpulist", i,
                 core / cores);
        put(path, "\n");
        cpus[i] = (uint16_t)i;
    }
    return 2 * all;
}

static void check_order(unsigned count, unsigned usable, uint16_t *cpus, const char *want) {
    char text[256] = "";
    count          = fl_cpu_choose(root, cpus, count, usable);
    for (unsigned i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), i ? " %u" : "%u", cpus[i]);
    cr_assert_str_eq(text, want);
}

Test(cpu, siblings_and_nodes_stay_together, .init = begin, .fini = end) {
    uint16_t cpus[FL_CORES_MAX];
    unsigned count = machine(2, 4, true, cpus);
    check_order(count, count, cpus, "0 8 1 9 2 10 3 11 4 12 5 13 6 14 7 15");
    machine(2, 4, true, cpus);
    check_order(count, 99, cpus, "0 8 1 9 2 10 3 11 4 12 5 13 6 14 7 15");
}

Test(cpu, siblings_that_are_numbered_side_by_side, .init = begin, .fini = end) {
    uint16_t cpus[FL_CORES_MAX];
    unsigned count = machine(2, 2, false, cpus);
    check_order(count, count, cpus, "0 1 2 3 4 5 6 7");
    machine(2, 2, false, cpus);
    check_order(count, 3, cpus, "0 2 4");
}

/* A replica a node: each has the node's processors, however many these are; else they are dealt evenly. */
Test(cpu, groups_of_processors_keep_to_their_nodes, .init = begin, .fini = end) {
    uint16_t cpus[FL_CORES_MAX];
    unsigned count = machine(2, 4, true, cpus); /* two nodes of eight processors */
    fl_cpu_choose(root, cpus, count, count);
    cr_assert_eq(fl_cpu_nodes(root, cpus, count), 2);
    for (unsigned number = 0; number < 4; number++) {
        fl_cpu_group own = fl_cpu_deal(root, cpus, count, 4, number);
        cr_assert_eq(own.first, 4 * number);
        cr_assert_eq(own.count, 4);
        cr_assert_eq(own.node, number / 2, "group %u on node %u", number, own.node);
    }
    /* five of the second node's are not the process's */
    fl_cpu_group first  = fl_cpu_deal(root, cpus, count - 5, 2, 0);
    fl_cpu_group second = fl_cpu_deal(root, cpus, count - 5, 2, 1);
    cr_assert(first.first == 0 && first.count == 8 && first.node == 0);
    cr_assert(second.first == 8 && second.count == 3 && second.node == 1, "%u %u %u", second.first,
              second.count, second.node);
    cr_assert_eq(fl_cpu_nodes(root, cpus, 8), 1);
    cr_assert_eq(fl_cpu_nodes(root, cpus, 0), 0);
    /* more groups than processors share them */
    cr_assert_eq(fl_cpu_deal(root, cpus, 2, 3, 2).count, 1);
    cr_assert_lt(fl_cpu_deal(root, cpus, 2, 3, 2).first, 2);
}

Test(cpu, few_are_cores_before_siblings_and_one_node_before_two, .init = begin, .fini = end) {
    uint16_t cpus[FL_CORES_MAX];
    unsigned count = machine(2, 4, true, cpus);
    check_order(count, 4, cpus, "0 1 2 3");
    machine(2, 4, true, cpus);
    check_order(count, 6, cpus, "0 1 2 3 4 5");
    machine(2, 4, true, cpus);
    check_order(count, 10, cpus, "0 8 1 9 2 3 4 5 6 7");
    uint16_t mask[] = {2, 10, 5, 13, 6};
    check_order(5, 5, mask, "2 10 5 13 6");
    uint16_t part[] = {10, 11, 13};
    check_order(3, 2, part, "10 11");
}

Test(cpu, a_machine_that_lists_nothing, .init = begin, .fini = end) {
    uint16_t cpus[] = {3, 1, 2};
    check_order(3, 3, cpus, "1 2 3");
    check_order(3, 2, cpus, "1 2");
}

Test(cpu, cores_are_of_the_mask) {
    uint16_t cpus[FL_CORES_MAX];
    unsigned count = fl_cpu_cores(cpus);
    cr_assert_eq(count, fl_cpu_usable());
    fl_cpu_pin(cpus[count - 1]);
    cr_assert_eq(fl_cpu_cores(cpus), 1);
}

/* ---- The mask and the processor ---------------------------------------------------------------- */

Test(cpu, usable_follows_the_affinity_mask) {
    cpu_set_t before, one;
    cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
    unsigned usable = fl_cpu_usable();
    cr_assert_geq(usable, 1);
    cr_assert_leq(usable, (unsigned)CPU_COUNT(&before));
    size_t first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_assert_eq(fl_cpu_usable(), 1);
}

/* Whether the kernel's flags line holds the word. */
static bool kernel_lists(const char *flags, const char *word) {
    char padded[64];
    snprintf(padded, sizeof padded, " %s ", word);
    return strstr(flags, padded) != NULL;
}

Test(cpu, flags_agree_with_the_kernel) {
    static char line[16384];
    char        flags[16384] = "";
    FILE       *file         = fopen("/proc/cpuinfo", "r");
    while (file != NULL && flags[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "flags", 5) == 0) {
            line[strcspn(line, "\n")] = ' ';
            strcpy(flags, line);
        }
    }
    if (file != NULL)
        fclose(file);
    fl_cpu cpu;
    fl_cpu_detect(&cpu);
    if (flags[0] == '\0' || cpu.neon) /* an emulator shows the host's flags */
        cr_skip_test("no flags line of this processor in /proc/cpuinfo");
    const struct {
        const char *word;
        bool        ours;
    } row[] = {{"avx2", cpu.avx2},
               {"fma", cpu.fma},
               {"f16c", cpu.f16c},
               {"bmi2", cpu.bmi2},
               {"avx512f", cpu.avx512f},
               {"avx512bw", cpu.avx512bw},
               {"avx512vl", cpu.avx512vl},
               {"avx512dq", cpu.avx512dq},
               {"avx512_vnni", cpu.avx512_vnni},
               {"avx512_bf16", cpu.avx512_bf16},
               {"avx_vnni", cpu.avx_vnni},
               {"amx_tile", cpu.amx_tile},
               {"amx_int8", cpu.amx_int8},
               {"amx_bf16", cpu.amx_bf16}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        cr_assert_eq(row[i].ours, kernel_lists(flags, row[i].word), "%s", row[i].word);
    cr_assert_gt(strlen(cpu.name), 0);
    cr_assert(cpu.l1d_bytes == 0 || (cpu.l1d_bytes >= 4096 && cpu.l1d_bytes <= 4u << 20));
}

Test(cpu, memory_is_at_most_the_machines) {
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t total   = fl_memory_total();
    cr_assert_gt(total, 0);
    cr_assert_leq(total, machine);
}

Test(clock, never_goes_back) {
    uint64_t before = fl_clock_ns();
    for (int i = 0; i < 100000; i++) {
        uint64_t now = fl_clock_ns();
        cr_assert_geq(now, before);
        before = now;
    }
}
