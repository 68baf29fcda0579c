/* SPDX-License-Identifier: Apache-2.0 */
/* wide/exp.h - the exponential for every width of vector. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_EXP_H
#define FL_ENGINES_CPU_KERNELS_WIDE_EXP_H

#include "engines/cpu/kernels/wide/wide.h"

/* e^x, x clamped to [-87, 88] (so -inf gives 1.6e-38); relative error 1.2e-7.
 * x = n ln 2 + f ln 2 with |f| <= 1/2; 2^f by a polynomial (lab/cpu/fit.py), 2^n by the exponent
 * bits. */
FL_INLINE vec wide_exp(vec x) {
    const vec log2e_high = vec_set(1.44269502e+00f), log2e_low = vec_set(1.92596303e-08f);
    x     = vec_min(vec_set(88.0f), vec_max(vec_set(-87.0f), x)); /* NaN stays: see vec_max */
    vec n = vec_round(x * log2e_high);
    vec f = vec_fma(x, log2e_high, -n);
    f     = vec_fma(x, log2e_low, f);
    vec p = vec_set(1.534581097e-04f);
    p     = vec_fma(p, f, vec_set(1.339993090e-03f));
    p     = vec_fma(p, f, vec_set(9.618489072e-03f));
    p     = vec_fma(p, f, vec_set(5.550328642e-02f));
    p     = vec_fma(p, f, vec_set(2.402264625e-01f));
    p     = vec_fma(p, f, vec_set(6.931471825e-01f));
    p     = vec_fma(p, f, vec_set(1.0f));
    return vec_scale_exponent(p, n);
}

#endif
