/* SPDX-License-Identifier: Apache-2.0 */
/* dot.c - the dot product of two rows in plain C, and the choice of the fastest form.
 *
 * Role    vectors.h. This form says what the others must give, bit for bit.
 * Method  32 sums side by side and no fused multiply-add: every processor rounds alike, so an answer of
 *         the search does not depend on the machine that gave it.
 * Memory  none. Threads: any. Proof: tests/unit/test_server_vectors.c. */
#include "store/vectors.h"

float fl_dot_ref(const float *a, const float *b, size_t size) {
    float lane[FL_DOT_LANES] = {0};
    for (size_t i = 0; i < size; i += FL_DOT_LANES)
        for (size_t k = 0; k < FL_DOT_LANES; k++)
            lane[k] += a[i + k] * b[i + k];
    for (size_t half = FL_DOT_LANES / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

fl_dot_fn fl_dot_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return fl_dot_avx2;
#endif
    return fl_dot_ref;
}
