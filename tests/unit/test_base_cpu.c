/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_cpu.c - what must never break: never more threads than affinity and quota allow, and no
 * instruction set that the kernel does not list (using it would end the program with SIGILL). */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"

Test(cpu, quota_is_rounded_up_and_never_below_one) {
    static const struct {
        unsigned    affinity;
        const char *cpu_max;
        unsigned    usable;
    } row[] = {{8, NULL, 8},
               {8, "max 100000\n", 8},
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
               {8, "300000\n 100000\n", 3},
               {8, "-1\n 100000\n", 8},
               {0, NULL, 1},
               {8, "99999999999999999999 100000", 8},
               {8, "200000 0", 2}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        cr_assert_eq(fl_cpu_usable_from(row[i].affinity, row[i].cpu_max), row[i].usable, "%s",
                     row[i].cpu_max);
    }
}

Test(cpu, usable_follows_the_affinity_mask) {
    cpu_set_t before, one;
    cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
    unsigned usable = fl_cpu_usable();
    cr_assert_geq(usable, 1);
    cr_assert_leq(usable, (unsigned)CPU_COUNT(&before));
    size_t first = 0;
    while (!CPU_ISSET(first, &before)) {
        first++;
    }
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
    if (flags[0] == '\0' || cpu.neon) { /* an emulator shows the host's flags */
        cr_skip_test("no flags line of this processor in /proc/cpuinfo");
    }
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
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        cr_assert_eq(row[i].ours, kernel_lists(flags, row[i].word), "%s", row[i].word);
    }
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
