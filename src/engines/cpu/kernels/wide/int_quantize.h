/* SPDX-License-Identifier: Apache-2.0 */
/* wide/int_quantize.h - rows of floats become bytes or 16-bit integers, for every width of vector.
 *
 * Two passes over a row that is in L1, with the operations of ref/narrow.c in its order: the ends, then the
 * rounding.
 *
 * Ends     The bits of floats are compared as integers: among signed ones the greatest positive value is
 *          the greatest, among unsigned ones the greatest negative value, and beyond both lie infinity
 *          and NaN. Two operations a vector find both ends, and whether all values are finite.
 *
 * Behind its vectors an instruction set gives ivec_max and ivec_highest of signed integers, ivec_over and
 * ivec_topmost of unsigned ones, and a pack_fn: 16 values, multiplied already, to the nearest integers,
 * ties to even. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_INT_QUANTIZE_H
#define FL_ENGINES_CPU_KERNELS_WIDE_INT_QUANTIZE_H

#include <math.h>

#include "engines/cpu/kernels/wide/wide.h"

/* A vector of values, times their gains; `gains` is a constant at every call. */
FL_INLINE vec quantize_value(int gains, const float *x, const float *gain) {
    return gains ? vec_load(x) * vec_load(gain) : vec_load(x);
}

/* How far a row's values go to both sides of 0. */
typedef struct row_ends {
    float up, down;
    bool  finite;
} row_ends;

FL_INLINE row_ends ends_of(const fl_quantize *z, int gains, const float *x) {
    const float   *gain = z->gain;
    const size_t   n    = z->n;
    const uint32_t sign = 0x80000000u, infinite = 0x7f800000u;
    ivec           up[FL_PANEL_VECS], down[FL_PANEL_VECS];
    FL_UNROLL for (size_t v = 0; v < FL_PANEL_VECS; v++) {
        up[v] = down[v] = ivec_set(0);
    }
    for (size_t i = 0; i < n; i += FL_CPU_LANES) {
        FL_UNROLL for (size_t v = 0; v < FL_PANEL_VECS; v++) {
            size_t at   = i + v * FL_VEC_LANES;
            ivec   bits = (ivec)quantize_value(gains, x + at, gain + at);
            up[v]       = ivec_max(up[v], bits);
            down[v]     = ivec_over(down[v], bits);
        }
    }
    FL_UNROLL for (size_t v = 1; v < FL_PANEL_VECS; v++) {
        up[0]   = ivec_max(up[0], up[v]);
        down[0] = ivec_over(down[0], down[v]);
    }
    uint32_t high = (uint32_t)ivec_highest(up[0]), low = ivec_topmost(down[0]);
    row_ends ends;
    low = low & sign ? low - sign : 0;
    __builtin_memcpy(&ends.up, &high, sizeof high);
    __builtin_memcpy(&ends.down, &low, sizeof low);
    ends.finite = high < infinite && low < infinite;
    return ends;
}

/* What row r is multiplied by; its scale and zero. */
FL_INLINE float measure_bytes(const fl_quantize *z, int gains, size_t r) {
    row_ends ends    = ends_of(z, gains, z->x + r * z->x_stride);
    float    width   = ends.up + ends.down;
    bool     any     = ends.finite && width >= FL_CPU_Q8_TINY;
    float    inverse = any ? 255.0f / width : 0.0f, zero = any ? rintf(ends.down * inverse) : 0.0f;
    z->scale[r] = !ends.finite ? NAN : any ? width * (1.0f / 255.0f) : 1.0f;
    z->zero[r]  = zero > 255.0f ? 255 : (int32_t)zero;
    return inverse;
}

FL_INLINE float measure_words(const fl_quantize *z, int gains, size_t r) {
    row_ends ends = ends_of(z, gains, z->x + r * z->x_stride);
    float    most = ends.up > ends.down ? ends.up : ends.down;
    bool     any  = ends.finite && most >= FL_CPU_Q8_TINY;
    z->scale[r]   = !ends.finite ? NAN : any ? most * (1.0f / FL_CPU_Q16_MOST) : 1.0f;
    return any ? FL_CPU_Q16_MOST / most : 0.0f;
}

typedef float (*measure_fn)(const fl_quantize *z, int gains, size_t r);
typedef void (*pack_fn)(const vec y[FL_PANEL_VECS], int32_t zero, void *q);

/* Values times `scale`, packed. What it reads of `z` it reads once: every store might change it. */
FL_INLINE void round_row(const fl_quantize *z, int gains, size_t r, float scale, int32_t zero,
                         size_t size, pack_fn pack) {
    const float *x = z->x + r * z->x_stride, *gain = z->gain;
    const size_t n = z->n;
    char        *q = (char *)z->q + r * z->q_stride;
    const vec    s = vec_set(scale);
    for (size_t i = 0; i < n; i += FL_CPU_LANES) {
        vec y[FL_PANEL_VECS];
        FL_UNROLL for (size_t v = 0; v < FL_PANEL_VECS; v++) {
            size_t at = i + v * FL_VEC_LANES;
            y[v]      = quantize_value(gains, x + at, gain + at) * s;
        }
        pack(y, zero, q + i * size);
    }
}

/* Some rows are measured before they are rounded: what one waits for, another one computes. */
FL_INLINE void quantize_rows(const fl_quantize *z, int gains, size_t size, measure_fn measure,
                             pack_fn pack) {
    enum { ROWS = 4 };
    for (size_t first = 0; first < z->rows; first += ROWS) {
        size_t last = z->rows - first < ROWS ? z->rows : first + ROWS;
        float  scale[ROWS];
        for (size_t r = first; r < last; r++)
            scale[r - first] = measure(z, gains, r);
        for (size_t r = first; r < last; r++) {
            int32_t zero = size == 1 ? z->zero[r] : 0;
            round_row(z, gains, r, scale[r - first], zero, size, pack);
        }
    }
}

/* To integers of `size` bytes. */
FL_INLINE void wide_quantize(const fl_quantize *z, size_t size, measure_fn measure, pack_fn pack) {
    if (z->gain)
        quantize_rows(z, 1, size, measure, pack);
    else
        quantize_rows(z, 0, size, measure, pack);
}

#endif
