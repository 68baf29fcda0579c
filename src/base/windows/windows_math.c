/* SPDX-License-Identifier: Apache-2.0 */
/* windows_math.c - fmaf that rounds once: mingw-w64's rounds twice, and the reference kernels mean one.
 *
 * Method  A product of floats is exact as a double. The sum is rounded to odd: where something is lost, the
 *         last bit becomes 1 on the side of what is lost, so that the second rounding sees which side it is.
 * Proof   fl-kernels test under wine: every kernel's bits against the reference. */
#include <math.h>
#include <string.h>

float fmaf(float x, float y, float z) {
    const double product = (double)x * y;
    double       sum     = product + z;
    const double back    = sum - product;
    const double lost    = (product - (sum - back)) + (z - back);
    uint64_t     bits;
    memcpy(&bits, &sum, sizeof bits);
    if (isfinite(sum) && lost != 0 && (bits & 1) == 0) {
        bits += (lost > 0) == (sum > 0) ? 1 : UINT64_MAX;
        memcpy(&sum, &bits, sizeof sum);
    }
    return (float)sum;
}
