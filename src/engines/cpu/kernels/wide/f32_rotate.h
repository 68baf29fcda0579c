/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_rotate.h - rotary positions of rows, for every width of vector. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_ROTATE_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_ROTATE_H

#include "engines/cpu/kernels/wide/wide.h"

/* Halves that are no whole number of vectors end element by element. */
static void wide_rotate(const fl_rotation *at) {
    size_t half = at->dims / 2;
    for (size_t r = 0; r < at->rows; r++) {
        const float *cosine = at->cosine + r * half, *sine = at->sine + r * half;
        float       *x = at->x + r * at->stride, *y = x + half;
        size_t       i = 0;
        for (; i + FL_VEC_LANES <= half; i += FL_VEC_LANES) {
            vec a = vec_load(x + i), b = vec_load(y + i);
            vec c = vec_load(cosine + i), s = vec_load(sine + i);
            vec_store(x + i, vec_fma(a, c, -(b * s)));
            vec_store(y + i, vec_fma(b, c, a * s));
        }
        for (; i < half; i++) {
            vec a = vec_set(x[i]), b = vec_set(y[i]), c = vec_set(cosine[i]), s = vec_set(sine[i]);
            x[i] = vec_fma(a, c, -(b * s))[0];
            y[i] = vec_fma(b, c, a * s)[0];
        }
    }
}

#endif
