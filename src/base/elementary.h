/* SPDX-License-Identifier: Apache-2.0 */
/* elementary.h - exp, log, sine and their kin with the same bits on every machine.
 *
 * Role     What a C library calls exp differs in its last digits from the next one's, so vectors would depend on the
 *          system that they were made on. These are written with additions, products and quotients alone, which
 *          IEEE 754 rounds everywhere alike (the build forbids contraction).
 * In/Out   Relative error below 1e-15: rounded to float32, nearly always the nearest one.
 * Threads  Pure. */
#ifndef FL_BASE_ELEMENTARY_H
#define FL_BASE_ELEMENTARY_H

double fl_math_exp(double x);
double fl_math_log(double x);           /* -inf at 0, NaN below */
double fl_math_log1p(double x);         /* log(1 + x), x > -1 */
double fl_math_pow(double x, double y); /* x > 0 */
double fl_math_sin(double x);           /* |x| up to 2^20 */
double fl_math_cos(double x);
double fl_math_tanh(double x);
double fl_math_erf(double x);

#endif
