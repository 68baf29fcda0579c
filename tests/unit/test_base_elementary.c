/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_elementary.c - what must never break: the functions are within 1e-15 of the C library's in long double, and
 * rounded to float32 they are the nearest; what is no number, or beyond all numbers, stays so. Their bits are those of
 * every machine: the hash of many values is written here. */
#include <criterion/criterion.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/elementary.h"

enum { STEPS = 20001 };

typedef struct function {
    const char *name;
    double (*ours)(double);
    long double (*want)(long double);
    double low, high;
} function;

static const function functions[] = {
    {"exp", fl_math_exp, expl, -87, 88},       {"exp", fl_math_exp, expl, -1e-3, 1e-3},
    {"log", fl_math_log, logl, 1e-6, 1e6},     {"log", fl_math_log, logl, 0.9, 1.1},
    {"log1p", fl_math_log1p, log1pl, -0.9, 3}, {"log1p", fl_math_log1p, log1pl, 0, 1e-4},
    {"sin", fl_math_sin, sinl, -4, 4},         {"sin", fl_math_sin, sinl, 0, 1e6},
    {"cos", fl_math_cos, cosl, -2, 2},         {"cos", fl_math_cos, cosl, 0, 1e6},
    {"tanh", fl_math_tanh, tanhl, -3, 3},      {"tanh", fl_math_tanh, tanhl, -1e-3, 1e-3},
    {"erf", fl_math_erf, erfl, -4, 4},         {"erf", fl_math_erf, erfl, -1e-2, 1e-2}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Numbers that float32 holds: the arguments are such. */
static double argument(const function *f, int step) {
    return (double)(float)(f->low + (f->high - f->low) * step / (STEPS - 1));
}

Test(elementary, is_near_and_rounds_to_the_nearest_float) {
    if (LDBL_MANT_DIG <= 53)
        cr_skip_test("long double is no wider than double here");
    for (int i = 0; i < FUNCTIONS; i++) {
        const function *f = &functions[i];
        for (int step = 0; step < STEPS; step++) {
            double            x = argument(f, step), ours = f->ours(x);
            const long double want = f->want((long double)x);
            cr_assert(fabsl((long double)ours - want) <= 3e-15L * fabsl(want), "%s(%a): %a",
                      f->name, x, ours);
            cr_assert((float)ours == (float)want, "%s(%a) as a float", f->name, x);
        }
    }
    for (int i = 1; i < 2000; i++) {
        double base = (double)(float)(1 + i * 500.5), power = (i % 128) / 128.0;
        float  want = (float)powl((long double)base, (long double)power);
        cr_assert((float)fl_math_pow(base, power) == want, "%a to the %a", base, power);
    }
}

Test(elementary, goes_to_the_ends_and_keeps_what_is_no_number) {
    cr_assert(fl_math_exp(1e9) == INFINITY && fl_math_exp(-1e9) == 0.0 && fl_math_exp(0) == 1.0);
    cr_assert(fl_math_log(0) == -INFINITY && isnan(fl_math_log(-1)) && fl_math_log(1) == 0.0);
    cr_assert(fl_math_log(INFINITY) == INFINITY && fl_math_log(0x1p-1074) < -744);
    cr_assert(fl_math_tanh(100) == 1 && fl_math_tanh(-INFINITY) == -1 && fl_math_tanh(0) == 0);
    cr_assert(fl_math_erf(100) == 1 && fl_math_erf(-INFINITY) == -1 && fl_math_erf(0) == 0);
    cr_assert(fl_math_sin(0) == 0 && fl_math_cos(0) == 1 && fl_math_log1p(0) == 0);
    cr_assert(fl_math_pow(2, -8.0 / 8) == 0.5 && fl_math_pow(256, -0.5) == 0.0625);
    for (int i = 0; i < FUNCTIONS; i++)
        cr_assert(isnan(functions[i].ours(NAN)), "%s of NaN", functions[i].name);
}

Test(elementary, has_the_bits_of_every_machine) {
    uint64_t hash = 14695981039346656037U; /* FNV-1a */
    for (int i = 0; i < FUNCTIONS; i++) {
        for (int step = 0; step < STEPS; step++) {
            double   y = functions[i].ours(argument(&functions[i], step));
            uint64_t bits;
            memcpy(&bits, &y, sizeof bits);
            hash = (hash ^ bits) * 1099511628211U;
        }
    }
    cr_assert(hash == UINT64_C(0xed844fd34b355069), "0x%016" PRIx64, hash);
}
