/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_isa.c - instruction sets and name of the processor: cpuid on x86-64, hwcaps on AArch64.
 *
 * Role    engines/cpu/dispatch.c picks kernels by these flags.
 * Method  On x86 an instruction may be used only when the operating system saves its registers at
 *         a task switch, which XGETBV tells: bits 1,2 for SSE and AVX, 5,6,7 for AVX-512, 17,18
 *         for AMX tiles. A flag here is cpuid's bit and that. AMX needs one thing more before
 *         first use: the process must ask Linux for the tile data (arch_prctl
 *         ARCH_REQ_XCOMP_PERM); the kernel's user does that. Leaves above the highest one reported
 *         return another leaf's data, so each is checked first.
 * Memory  none. Threads: any.
 * Proof   tests/unit/test_base_cpu.c compares with /proc/cpuinfo. */
#include "base/cpu_isa.h"

#include <string.h>

#include "base/os.h"

#if defined(__x86_64__)

#include <cpuid.h>

typedef struct registers {
    unsigned a, b, c, d;
} registers;

/* All zero when the processor does not have the leaf. */
static registers read_leaf(unsigned leaf, unsigned subleaf) {
    registers r       = {0, 0, 0, 0};
    unsigned  highest = (unsigned)__get_cpuid_max(leaf & 0x80000000u, NULL); /* int in clang */
    if (highest >= leaf)
        __cpuid_count(leaf, subleaf, r.a, r.b, r.c, r.d);
    return r;
}

static bool bit(uint64_t value, unsigned index) {
    return (value >> index & 1) != 0;
}

/* XCR0: which register sets the operating system saves; 0 when it has not enabled XSAVE. */
static uint64_t saved_registers(registers leaf1) {
    if (!bit(leaf1.c, 27))
        return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Intel's processors with AMX leave bfloat16 to it, also where a virtual machine hides it. AVX-VNNI, which came
 * with them, tells them from the one before that had vdpbf16ps. */
static bool has_halved_bf16(bool avx_vnni) {
    registers zero  = read_leaf(0, 0);
    bool      intel = memcmp(&zero.b, "Genu", 4) == 0 && memcmp(&zero.d, "ineI", 4) == 0 &&
                 memcmp(&zero.c, "ntel", 4) == 0;
    return intel && avx_vnni;
}

static void read_name(char name[64]) {
    char text[49] = {0};
    for (unsigned i = 0; i < 3; i++) {
        registers r = read_leaf(0x80000002u + i, 0);
        memcpy(text + 16 * i, &r, sizeof r);
    }
    const char *start = text + strspn(text, " ");
    size_t      size  = strlen(start);
    while (size > 0 && start[size - 1] == ' ')
        size--;
    memcpy(name, start, size);
    name[size] = '\0';
}

void fl_cpu_detect_isa(fl_cpu *out) {
    enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xE6, XCR0_AMX = 0x60000 };
    registers one    = read_leaf(1, 0);
    registers seven  = read_leaf(7, 0);
    registers seven1 = seven.a >= 1 ? read_leaf(7, 1) : (registers){0, 0, 0, 0};
    uint64_t  saved  = saved_registers(one);
    bool      avx    = (saved & XCR0_AVX) == XCR0_AVX && bit(one.c, 28);
    bool      avx512 = avx && (saved & XCR0_AVX512) == XCR0_AVX512 && bit(seven.b, 16);
    bool      amx    = (saved & XCR0_AMX) == XCR0_AMX && bit(seven.d, 24);

    out->avx2        = avx && bit(seven.b, 5);
    out->fma         = avx && bit(one.c, 12);
    out->f16c        = avx && bit(one.c, 29);
    out->bmi2        = bit(seven.b, 8);
    out->avx_vnni    = avx && bit(seven1.a, 4);
    out->avx512f     = avx512;
    out->avx512dq    = avx512 && bit(seven.b, 17);
    out->avx512bw    = avx512 && bit(seven.b, 30);
    out->avx512vl    = avx512 && bit(seven.b, 31);
    out->avx512_vnni = avx512 && bit(seven.c, 11);
    out->avx512_bf16 = avx512 && bit(seven1.a, 5);
    out->bf16_halved = out->avx512_bf16 && has_halved_bf16(bit(seven1.a, 4));
    out->amx_tile    = amx;
    out->amx_bf16    = amx && bit(seven.d, 22);
    out->amx_int8    = amx && bit(seven.d, 25);
    read_name(out->name);
}

void fl_cpu_detect_caches(fl_cpu *out) {
    enum { CACHES_MAX = 8, INSTRUCTION = 2 };
    /* Intel's leaf 4 and AMD's 0x8000001D have one layout. */
    unsigned leaf = (read_leaf(4, 0).a & 31) != 0 ? 4 : 0x8000001Du;
    for (unsigned i = 0; i < CACHES_MAX; i++) {
        registers r    = read_leaf(leaf, i);
        unsigned  kind = r.a & 31;
        if (kind == 0)
            return;
        uint64_t line       = (r.b & 0xFFF) + 1;
        uint64_t partitions = (r.b >> 12 & 0x3FF) + 1;
        uint64_t ways       = (r.b >> 22) + 1;
        uint64_t bytes      = ways * partitions * line * ((uint64_t)r.c + 1);
        if (kind != INSTRUCTION && bytes <= UINT32_MAX)
            fl_cpu_set_cache(out, r.a >> 5 & 7, (uint32_t)bytes);
    }
}

#elif defined(__aarch64__)

void fl_cpu_detect_isa(fl_cpu *out) {
    fl_os_arm(out);
    memcpy(out->name, "AArch64", sizeof "AArch64");
}

void fl_cpu_detect_caches(fl_cpu *out) {
    (void)out; /* no instruction tells; the system lists them (fl_os_caches) */
}

#else

void fl_cpu_detect_isa(fl_cpu *out) {
    memcpy(out->name, "unknown processor", sizeof "unknown processor");
}

void fl_cpu_detect_caches(fl_cpu *out) {
    (void)out;
}

#endif
