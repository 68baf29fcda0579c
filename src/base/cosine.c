/* SPDX-License-Identifier: Apache-2.0 */
/* cosine.c - dot products, cosines and unit length: cosine.h. For a few rows; what goes through many has kernels.
 *
 * Proof  tests/unit/test_server_vectors.c, tests/cli/test_cli_verify_files.py. */
#include "base/cosine.h"

#include <math.h>

double fl_vector_dot(const float *a, const float *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

double fl_vector_cosine(const float *a, const float *b, size_t count) {
    double aa = fl_vector_dot(a, a, count), bb = fl_vector_dot(b, b, count);
    return aa > 0 && bb > 0 ? fl_vector_dot(a, b, count) / sqrt(aa * bb) : 0;
}

bool fl_vector_normalize(float *row, size_t count) {
    const double sum = fl_vector_dot(row, row, count);
    if (!(sum > 0) || !isfinite(sum))
        return false;
    const double scale = 1 / sqrt(sum);
    for (size_t i = 0; i < count; i++)
        row[i] = (float)((double)row[i] * scale);
    return true;
}
