/* SPDX-License-Identifier: Apache-2.0 */
/* elementary.c - exp, log, sine and their kin by their power series, after the argument was made small.
 *
 * Method  exp   x = n ln 2 + r, |r| <= 0.35: 2^n e^r
 *         log   x = 2^n m, m about 1: n ln 2 + 2 artanh((m - 1) / (m + 1))
 *         sin   x = n π/2 + r, |r| <= 0.79
 *         erf   2/√π e^(-x²) Σ x (2x²)^n / (1 · 3 · 5 … (2n + 1)), whose terms are all of one sign
 *         Constants that n multiplies are cut so that the products are exact (33 bits, n below 2^20).
 *         Series end where the next term is below 1e-17 of the sum.
 * Speed   10 to 30 ns, where a kernel needs few of them; kernels that need many have theirs (wide_exp.h).
 * Proof   tests/unit/test_base_elementary.c, against the C library in long double. */
#include "base/elementary.h"

#include <math.h>
#include <stddef.h>

static const double ln2_high = 0x1.62e42fefp-1, ln2_low = 0x1.473de6af278edp-34;

/* c[0] + c[1] x + … + c[n - 1] x^(n - 1) */
static double series(const double *c, size_t n, double x) {
    double sum = c[n - 1];
    for (size_t i = n - 1; i-- > 0;)
        sum = sum * x + c[i];
    return sum;
}

/* e^x - 1, |x| <= 1/2. */
static double small_expm1(double x) {
    static const double c[] = {
        1.0 / 2,         1.0 / 6,          1.0 / 24,          1.0 / 120,          1.0 / 720,
        1.0 / 5040,      1.0 / 40320,      1.0 / 362880,      1.0 / 3628800,      1.0 / 39916800,
        1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200, 1.0 / 1307674368000};
    return x + x * x * series(c, sizeof c / sizeof *c, x);
}

double fl_math_exp(double x) {
    if (isnan(x))
        return x;
    if (x > 710.0 || x < -746.0)
        return x > 0 ? INFINITY : 0.0;
    double n = rint(x * 0x1.71547652b82fep+0), r = (x - n * ln2_high) - n * ln2_low;
    return ldexp(1.0 + small_expm1(r), (int)n);
}

/* 2 artanh(x) = log((1 + x) / (1 - x)), |x| <= 0.18. */
static double twice_artanh(double x) {
    static const double c[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                               1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
    const double        z   = x * x;
    return 2 * (x + x * z * series(c, sizeof c / sizeof *c, z));
}

double fl_math_log(double x) {
    if (!(x > 0) || isinf(x))
        return x == 0 ? -INFINITY : x < 0 ? NAN : x;
    int    n;
    double m = frexp(x, &n);
    if (m < 0x1.6a09e667f3bcdp-1) { /* 1/√2 */
        m *= 2;
        n--;
    }
    return n * ln2_high + (twice_artanh((m - 1) / (m + 1)) + n * ln2_low);
}

double fl_math_log1p(double x) {
    return fabs(x) < 0.25 ? twice_artanh(x / (2 + x)) : fl_math_log(1 + x);
}

double fl_math_pow(double x, double y) {
    return fl_math_exp(y * fl_math_log(x));
}

/* sin(x + quarters π/2) */
static double turned(double x, int quarters) {
    static const double sine[] = {
        -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
    static const double cosine[] = {-1.0 / 2,
                                    1.0 / 24,
                                    -1.0 / 720,
                                    1.0 / 40320,
                                    -1.0 / 3628800,
                                    1.0 / 479001600,
                                    -1.0 / 87178291200,
                                    1.0 / 20922789888000,
                                    -1.0 / 6402373705728000};
    const double        n        = rint(x * 0x1.45f306dc9c883p-1);
    const double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
    const double z = r * r;
    const int    turn  = (int)(fmod(n, 4) + 4 + quarters) & 3;
    const double value = turn & 1 ? 1 + z * series(cosine, sizeof cosine / sizeof *cosine, z)
                                  : r + r * z * series(sine, sizeof sine / sizeof *sine, z);
    return turn & 2 ? -value : value;
}

double fl_math_sin(double x) {
    return turned(x, 0);
}

double fl_math_cos(double x) {
    return turned(x, 1);
}

/* (e^2x - 1) / (e^2x + 1) */
double fl_math_tanh(double x) {
    if (fabs(x) > 20)
        return x > 0 ? 1 : -1;
    double less = fabs(x) < 0.25 ? small_expm1(2 * x) : fl_math_exp(2 * x) - 1;
    return less / (less + 2);
}

double fl_math_erf(double x) {
    if (fabs(x) > 6)
        return x > 0 ? 1 : -1;
    double term = x, sum = x;
    for (int odd = 3; fabs(term) > 1e-17 * fabs(sum); odd += 2) {
        term *= 2 * x * x / odd;
        sum += term;
    }
    return 0x1.20dd750429b6dp+0 * fl_math_exp(-x * x) * sum; /* 2/√π */
}
