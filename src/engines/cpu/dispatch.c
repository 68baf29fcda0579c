/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.c - one ordered table of instruction sets; the first that this machine has is chosen.
 *
 * Role     cpu_engine.c asks once per open, fl-kernels walks the table. The option (FLETCH_CPU_ISA)
 *          names one to cap the choice; a name that cannot be had is an error, never silently
 *          another one.
 * Proof    tests/unit/test_engine.c, fl-kernels test. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "engines/cpu/kernels.h"

#if defined(__x86_64__)
#define FL_ON_X86(kernels) kernels
#else
#define FL_ON_X86(kernels) NULL
#endif
#if defined(__aarch64__)
#define FL_ON_ARM(kernels) kernels
#else
#define FL_ON_ARM(kernels) NULL
#endif

static int has_avx2(const fl_cpu *cpu) {
    return cpu->avx2 && cpu->fma && cpu->bmi2;
}
static int has_avx512(const fl_cpu *cpu) {
    return has_avx2(cpu) && cpu->avx512f && cpu->avx512bw && cpu->avx512dq && cpu->avx512vl;
}
static int has_avxvnni(const fl_cpu *cpu) {
    return has_avx2(cpu) && cpu->avx_vnni;
}
static int has_avx512vnni(const fl_cpu *cpu) {
    return has_avx512(cpu) && cpu->avx512_vnni;
}
static int has_avx512bf16(const fl_cpu *cpu) {
    return has_avx512vnni(cpu) && cpu->avx512_bf16;
}
static int has_amx(const fl_cpu *cpu) {
    return has_avx512vnni(cpu) && cpu->amx_tile && cpu->amx_int8 && cpu->amx_bf16 && fl_os_amx();
}
static int has_neondot(const fl_cpu *cpu) {
    return cpu->neon && cpu->neon_dotprod;
}
static int has_neonmm(const fl_cpu *cpu) {
    return cpu->neon && cpu->neon_i8mm && cpu->neon_bf16;
}
static int has_neon(const fl_cpu *cpu) {
    return cpu->neon;
}
static int has_nothing(const fl_cpu *cpu) {
    return cpu != NULL;
}

/* Best first. A set that this target does not build stays in the list with kernels NULL, so that
 * asking for it by name says so. */
static const fl_cpu_isa table[] = {
    {"amx", "avx512 with vnni, amx_tile, amx_int8 and amx_bf16, permitted by the kernel", has_amx,
     FL_ON_X86(&fl_cpu_kernels_amx)},
    {"avx512bf16", "avx512f, bw, dq, vl, vnni and bf16", has_avx512bf16,
     FL_ON_X86(&fl_cpu_kernels_avx512bf16)},
    {"avx512vnni", "avx512f, bw, dq, vl and vnni", has_avx512vnni,
     FL_ON_X86(&fl_cpu_kernels_avx512vnni)},
    {"avx512", "avx512f, bw, dq and vl", has_avx512, FL_ON_X86(&fl_cpu_kernels_avx512)},
    {"avxvnni", "avx2, fma, bmi2, avx_vnni", has_avxvnni, FL_ON_X86(&fl_cpu_kernels_avxvnni)},
    {"avx2", "avx2, fma, bmi2", has_avx2, FL_ON_X86(&fl_cpu_kernels_avx2)},
    {"neonmm", "neon with matrix products (i8mm and bf16)", has_neonmm,
     FL_ON_ARM(&fl_cpu_kernels_neonmm)},
    {"neondot", "neon with dot products", has_neondot, FL_ON_ARM(&fl_cpu_kernels_neondot)},
    {"neon", "neon", has_neon, FL_ON_ARM(&fl_cpu_kernels_neon)},
    {"ref", "nothing", has_nothing, &fl_cpu_kernels_ref},
};

/* "auto" passes over what is slower than the set after it. */
static bool pays(const fl_cpu_isa *isa, const fl_cpu *cpu) {
    return isa->usable != has_avx512bf16 || !cpu->bf16_halved;
}

const fl_cpu_isa *fl_cpu_isa_at(size_t index) {
    return index < sizeof table / sizeof *table ? &table[index] : NULL;
}

fl_cpu_narrow fl_cpu_narrow_portable(fl_cpu_narrow format) {
    format.attention = NULL;
    format.group     = format.group > 0 ? FL_CPU_Q8_GROUP : 0;
    if (format.gemm_floats != NULL) {
        format.gemm        = format.gemm_floats;
        format.gemm_floats = NULL;
        format.quantize    = NULL;
    }
    return format;
}

const char *fl_cpu_narrow_numerics(const fl_cpu_narrow *format, const char *isa) {
    bool own = format->attention != NULL || format->gemm_floats != NULL;
    bool dot = format->group > 0 && format->group < FL_CPU_Q8_GROUP;
    return own ? isa : dot ? "dot" : "portable";
}

static void say(char *why, size_t size, const char *how, const fl_cpu_isa *isa, const fl_cpu *cpu) {
    if (why != NULL && size > 0) {
        snprintf(why, size, "%s: %s; %s has %s", isa->kernels->isa, how,
                 cpu->name[0] ? cpu->name : "this machine", isa->needs);
    }
}

int fl_cpu_kernels_choose(const char *isa, const fl_cpu *cpu, const fl_cpu_kernels **out, char *why,
                          size_t why_size, fletch_error *error) {
    bool any = isa == NULL || isa[0] == '\0' || strcmp(isa, "auto") == 0;
    *out     = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (any && table[i].kernels != NULL && table[i].usable(cpu) && pays(&table[i], cpu)) {
            *out = table[i].kernels;
            say(why, why_size, "the best on this machine", &table[i], cpu);
            return FLETCH_OK;
        }
        if (any || strcmp(isa, table[i].name) != 0)
            continue;
        if (table[i].kernels == NULL) {
            return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "cpu.isa: the %s kernels are not built for this target; use auto", isa);
        }
        if (!table[i].usable(cpu)) {
            return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "cpu.isa: this machine lacks what %s needs (%s); use auto", isa,
                           table[i].needs);
        }
        *out = table[i].kernels;
        say(why, why_size, "set by cpu.isa", &table[i], cpu);
        return FLETCH_OK;
    }
    return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                   "cpu.isa: unknown \"%s\"; use auto, amx, avx512bf16, avx512vnni, avx512, "
                   "avxvnni, avx2, neonmm, neondot, neon or ref",
                   any ? "auto" : isa);
}
