/* SPDX-License-Identifier: Apache-2.0 */
/* cosine.h - dot products, cosines and unit length of float32 vectors, summed in double, element after element: whoever
 * scales a row here and elsewhere gets the same bytes. Pure. */
#ifndef FL_BASE_COSINE_H
#define FL_BASE_COSINE_H

#include <stdbool.h>
#include <stddef.h>

double fl_vector_dot(const float *a, const float *b, size_t count);
double fl_vector_cosine(const float *a, const float *b, size_t count); /* of zeros: 0 to any */

/* To length 1; false, and as it was, for a row of zeros or one that is not finite. */
bool fl_vector_normalize(float *row, size_t count);

#endif
