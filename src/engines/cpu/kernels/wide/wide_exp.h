/* SPDX-License-Identifier: Apache-2.0 */
/* wide/wide_exp.h - e^x and tanh for every width of vector.
 *
 * x = n ln 2 + f ln 2 with |f| <= 1/2; 2^f - 1 by a polynomial (lab/cpu/fit.py), 2^n by the exponent bits. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_WIDE_EXP_H
#define FL_ENGINES_CPU_KERNELS_WIDE_WIDE_EXP_H

#include "engines/cpu/kernels/wide/wide.h"

/* (2^f - 1) / f; x is clamped to [-87, 88], NaN stays: see vec_max. */
FL_INLINE vec wide_powers(vec x, vec *n, vec *f) {
    const vec log2e_high = vec_set(1.44269502e+00f), log2e_low = vec_set(1.92596303e-08f);
    x     = vec_min(vec_set(88.0f), vec_max(vec_set(-87.0f), x));
    *n    = vec_round(x * log2e_high);
    *f    = vec_fma(x, log2e_high, -*n);
    *f    = vec_fma(x, log2e_low, *f);
    vec p = vec_set(1.534581097e-04f);
    p     = vec_fma(p, *f, vec_set(1.339993090e-03f));
    p     = vec_fma(p, *f, vec_set(9.618489072e-03f));
    p     = vec_fma(p, *f, vec_set(5.550328642e-02f));
    p     = vec_fma(p, *f, vec_set(2.402264625e-01f));
    return vec_fma(p, *f, vec_set(6.931471825e-01f));
}

/* e^x; relative error 1.2e-7, and -inf gives 1.6e-38. */
FL_INLINE vec wide_exp(vec x) {
    vec n, f, p = wide_powers(x, &n, &f);
    return vec_scale_exponent(vec_fma(p, f, vec_set(1.0f)), n);
}

/* tanh(x / 2) = (e^x - 1) / (e^x + 1), where e^x - 1 = 2^n - 1 + 2^n (2^f - 1) keeps its digits near 0. */
FL_INLINE vec wide_tanh_of_half(vec x) {
    vec n, f, p = wide_powers(x, &n, &f), one = vec_set(1.0f);
    vec scale = vec_scale_exponent(one, n), less = vec_fma(scale, p * f, scale - one);
    return less / (less + vec_set(2.0f));
}

#endif
