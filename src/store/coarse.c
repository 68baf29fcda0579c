/* SPDX-License-Identifier: Apache-2.0 */
/* coarse.c - short codes of rows: the kinds, the plain scans, and the choice of the fastest ones.
 *
 * Role    coarse.h. Memory: none. Threads: any. Proof: tests/unit/test_server_vectors.c. */
#include "store/coarse.h"

#include <math.h>

#define FL_COARSE_ISA(name) name##_ref
#include "store/coarse_scan.h"

static size_t signs_bytes(size_t size) {
    return (size + 63) / 64 * sizeof(uint64_t);
}

static void signs_encode(const float *row, size_t size, void *code) {
    uint64_t *words = code;
    memset(words, 0, signs_bytes(size));
    for (size_t i = 0; i < size; i++)
        words[i / 64] |= (uint64_t)(row[i] > 0) << i % 64;
}

static size_t int8_bytes(size_t size) {
    return size + sizeof(float);
}

static void int8_encode(const float *row, size_t size, void *code) {
    int8_t *bytes   = code;
    float   largest = 0;
    for (size_t i = 0; i < size; i++)
        largest = fmaxf(largest, fabsf(row[i]));
    for (size_t i = 0; i < size; i++)
        bytes[i] = largest > 0 ? (int8_t)lrintf(row[i] / largest * 127) : 0;
    memcpy(bytes + size, &largest, sizeof largest);
}

const fl_coarse fl_coarse_kinds[FL_COARSE_COUNT] = {
    [FL_COARSE_SIGNS] = {"signs", 40, 400, signs_bytes, signs_encode},
    [FL_COARSE_INT8]  = {"int8", 4, 64, int8_bytes, int8_encode},
};

const fl_coarse *fl_coarse_named(const char *name) {
    for (size_t i = 0; i < FL_COARSE_COUNT; i++)
        if (strcmp(fl_coarse_kinds[i].name, name) == 0)
            return &fl_coarse_kinds[i];
    return NULL;
}

/* ---- Instruction sets ------------------------------------------------------------------------------ */

static bool always(void) {
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vpopcntdq");
}
#endif

static const fl_coarse_isa isas[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, {fl_scan_signs_avx512, fl_scan_int8_avx512}},
    {"avx2", has_avx2, {fl_scan_signs_avx2, fl_scan_int8_avx2}},
#endif
    {"ref", always, {fl_scan_signs_ref, fl_scan_int8_ref}},
};

const fl_coarse_isa *fl_coarse_isa_at(size_t index) {
    return index < sizeof isas / sizeof *isas ? &isas[index] : NULL;
}

fl_coarse_scan *fl_coarse_best(const fl_coarse *coarse) {
    size_t at = 0;
    while (!isas[at].usable())
        at++;
    return isas[at].scan[coarse - fl_coarse_kinds];
}
