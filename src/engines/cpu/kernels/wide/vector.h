/* SPDX-License-Identifier: Apache-2.0 */
/* wide/vector.h - what vectors of every width have of the compiler: they add and multiply as numbers do, are
 * converted lane by lane, and a cast keeps their bits.
 *
 * Comes behind an instruction set's vec and ivec, which have as many lanes. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_VECTOR_H
#define FL_ENGINES_CPU_KERNELS_WIDE_VECTOR_H

#include <stddef.h>
#include <stdint.h>

#include "engines/cpu/kernels/wide/macros.h"

/* The same anywhere in memory. */
typedef vec  vec_anywhere __attribute__((aligned(1)));
typedef ivec ivec_anywhere __attribute__((aligned(1)));

FL_INLINE vec vec_load(const float *x) {
    return *(const vec_anywhere *)x;
}
FL_INLINE void vec_store(float *x, vec v) {
    *(vec_anywhere *)x = v;
}
FL_INLINE vec vec_zero(void) {
    return (vec){0};
}
/* x in every lane; -0.0 too. */
FL_INLINE vec vec_set(float x) {
    return x - (vec){0};
}
FL_INLINE vec vec_abs(vec a) {
    return (vec)((ivec)a & INT32_MAX);
}
FL_INLINE ivec ivec_load(const void *x) {
    return *(const ivec_anywhere *)x;
}
FL_INLINE ivec ivec_set(int32_t x) {
    return x + (ivec){0};
}
FL_INLINE vec ivec_to_float(ivec a) {
    return __builtin_convertvector(a, vec);
}
/* Lanes 0 … count - 1 of a, the others of b; count may be below 0 or above their number. */
FL_INLINE vec vec_first(ptrdiff_t count, vec a, vec b) {
    static const int32_t lane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int32_t limit = count < 0 ? 0 : count > FL_VEC_LANES ? FL_VEC_LANES : (int32_t)count;
    ivec    first = ivec_load(lane) < ivec_set(limit); /* all ones, and 0 */
    return (vec)((first & (ivec)a) | (~first & (ivec)b));
}

#endif
