/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_isa.h - the part of cpu.c that asks the processor itself; for cpu.c alone. */
#ifndef FL_BASE_CPU_ISA_H
#define FL_BASE_CPU_ISA_H

#include "base/cpu.h"

/* Name and instruction sets, each only when the operating system saves its registers. */
void fl_cpu_detect_isa(fl_cpu *out);

/* Cache sizes by cpuid, for systems without sysfs; leaves them 0 where the processor does not tell. */
void fl_cpu_detect_caches(fl_cpu *out);

/* Store the size of a data or unified cache by its level 1, 2 or 3. */
static inline void fl_cpu_set_cache(fl_cpu *out, unsigned level, uint32_t bytes) {
    if (level == 1)
        out->l1d_bytes = bytes;
    else if (level == 2)
        out->l2_bytes = bytes;
    else if (level == 3)
        out->l3_bytes = bytes;
}

#endif
