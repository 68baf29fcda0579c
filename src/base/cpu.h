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
    bool     amx_tile, amx_int8, amx_bf16;
    bool     neon, neon_dotprod, neon_bf16;
    uint32_t l1d_bytes, l2_bytes, l3_bytes; /* of one core; 0 when unknown */
    char     name[64];                      /* "AMD EPYC …" */
} fl_cpu;

/* Fills *out; cheap (cpuid and sysfs), no state kept. */
void fl_cpu_detect(fl_cpu *out);

/* Cores this process may use: the least of affinity mask and cgroup v2/v1 CPU
 * quota (rounded up), at least 1. Never the machine's core count when either is
 * smaller. */
unsigned fl_cpu_usable(void);

/* The same with the inputs given, for tests: `affinity` cores, cpu.max text
 * ("max 100000" or NULL). */
unsigned fl_cpu_usable_from(unsigned affinity, const char *cpu_max);

/* The processors of the affinity mask, those of one NUMA node side by side, at
 * most `capacity`, and no more than fl_cpu_usable(); returns how many. */
enum { FL_CORES_MAX = 1024 };
unsigned fl_cpu_cores(uint16_t *out, unsigned capacity);
/* Pin the calling thread to one of them; a processor that went away leaves it
 * free. */
void fl_cpu_pin(uint16_t core);

/* Physical memory of the machine in bytes, and the cgroup's limit when smaller.
 */
uint64_t fl_memory_total(void);

#endif
