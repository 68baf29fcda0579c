/* SPDX-License-Identifier: Apache-2.0 */
/* wide/f32_convolve.h - gated sums over neighbours, for every width of vector. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_F32_CONVOLVE_H
#define FL_ENGINES_CPU_KERNELS_WIDE_F32_CONVOLVE_H

#include "engines/cpu/kernels/wide/wide.h"

static void wide_convolve(const fl_convolution *at) {
    for (size_t r = 0; r < at->rows; r++) {
        /* the taps that meet a token: place + k - before is one of n */
        size_t       place = at->first + r, inside = at->n + at->before - place;
        size_t       low  = place < at->before ? at->before - place : 0;
        size_t       high = inside < at->taps ? inside : at->taps;
        const float *x    = at->x + (place + low - at->before) * at->stride;
        const float *gate = at->gate + r * at->stride;
        for (size_t c = 0; c < at->cols; c += FL_VEC_LANES) {
            vec sum = vec_load(at->bias + c);
            for (size_t k = low; k < high; k++) {
                sum = vec_fma(vec_load(at->weights + k * at->cols + c),
                              vec_load(x + (k - low) * at->stride + c), sum);
            }
            vec_store(at->out + r * at->out_stride + c, vec_load(gate + c) * sum);
        }
    }
}

#endif
