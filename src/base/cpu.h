/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - what this processor can do and how much of it the process may use. */
#ifndef FL_BASE_CPU_H
#define FL_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_cpu {
    bool     avx2, fma, f16c, bmi2; /* and the OS saves the registers */
    bool     avx512f, avx512bw, avx512vl, avx512dq, avx512_vnni, avx512_bf16, avx_vnni;
    bool     bf16_halved; /* vdpbf16ps takes two cycles: no more than one of two FMA */
    bool     amx_tile, amx_int8, amx_bf16;
    bool     neon, neon_dotprod, neon_i8mm, neon_bf16;
    uint32_t l1d_bytes, l2_bytes, l3_bytes; /* of one core; 0 when unknown */
    char     name[64];                      /* "AMD EPYC …" */
} fl_cpu;

/* Fills *out; cheap (cpuid and sysfs), no state kept. */
void fl_cpu_detect(fl_cpu *out);

/* Processors this process may use: the least of affinity mask and the CPU quotas of cgroups v2 and v1
 * (rounded up), its own and its parents', at least 1. Never the machine's count when one is smaller. */
unsigned fl_cpu_usable(void);
/* The same of `affinity` processors with the quotas below `root`: "" is this machine, a test gives a tree. */
unsigned fl_cpu_usable_at(const char *root, unsigned affinity);

/* The processors of the affinity mask, in the order in which teams take them, no more than
 * fl_cpu_usable() of the first FL_CORES_MAX; returns how many. */
enum { FL_CORES_MAX = 1024 };
unsigned fl_cpu_cores(uint16_t out[FL_CORES_MAX]);
/* Choose `usable` of `count` processors, by the topology below `root`: of each core one before a second, from
 * one NUMA node before the next. They come out node by node, the siblings of a core side by side, so that teams that
 * take them in turn share neither where that can be. */
unsigned fl_cpu_choose(const char *root, uint16_t *cpus, unsigned count, unsigned usable);
/* The NUMA node of a processor; 0 where the system does not say. */
uint16_t fl_cpu_node(const char *root, uint16_t cpu);
/* How many nodes `count` processors, as fl_cpu_choose left them, are of. */
unsigned fl_cpu_nodes(const char *root, const uint16_t *cpus, unsigned count);
/* Group `number` of `groups` that they are dealt to: cpus[first .. first + count), and which of their nodes the
 * first is of. As many groups as nodes have one each, whatever the nodes' sizes. */
typedef struct fl_cpu_group {
    unsigned first, count, node;
} fl_cpu_group;
fl_cpu_group fl_cpu_deal(const char *root, const uint16_t *cpus, unsigned count, unsigned groups,
                         unsigned number);
/* Pin the calling thread to one of them; a processor that went away leaves it
 * free. */
void fl_cpu_pin(uint16_t core);

/* Physical memory of the machine in bytes, and the cgroup's limit when smaller.
 */
uint64_t fl_memory_total(void);

#endif
