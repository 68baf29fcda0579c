/* SPDX-License-Identifier: Apache-2.0 */
/* plain/tables.c - in place of dispatch.c: the tables that plain/immintrin.h lets any machine run. */
#include "engines/cpu/kernels.h"

static int always(const fl_cpu *cpu) {
    return cpu != NULL;
}

const fl_cpu_isa *fl_cpu_isa_at(size_t index) {
    static const fl_cpu_isa table[] = {
        {"amx in plain C", "nothing", always, &fl_cpu_kernels_amx},
        {"avx512bf16 in plain C", "nothing", always, &fl_cpu_kernels_avx512bf16},
        {"avx512vnni in plain C", "nothing", always, &fl_cpu_kernels_avx512vnni},
        {"avx512 in plain C", "nothing", always, &fl_cpu_kernels_avx512},
        {"avxvnni in plain C", "nothing", always, &fl_cpu_kernels_avxvnni},
    };
    return index < sizeof table / sizeof *table ? &table[index] : NULL;
}
