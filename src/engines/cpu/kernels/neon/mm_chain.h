/* SPDX-License-Identifier: Apache-2.0 */
/* neon/mm_chain.h - products of narrow numbers with the matrix instructions of Armv8.6: smmla and its kin multiply
 * two rows of 8 bytes by two columns of 8 bytes, for four sums of 32 bits. Before this: FL_ADD_MATRIX(acc, x, y).
 *
 * Sums     Those of two rows and two columns are one vector; they are put so at the beginning and back at the end.
 *          Six rows are three pairs; of an odd number the last row is its own partner.
 * Layout   A vector of a panel has four columns and four bytes of k of each (kernels.h): the low and the high
 *          halves of two such, four bytes of k apart, zipped, are two columns of eight bytes each.
 * Tail     Where four bytes of k are left their partners are zero. */
#ifndef FL_ENGINES_CPU_KERNELS_NEON_MM_CHAIN_H
#define FL_ENGINES_CPU_KERNELS_NEON_MM_CHAIN_H

#include "engines/cpu/kernels/neon/neon.h"

enum { MM_PAIRS = FL_WIDE_ROWS / 2, MM_SUMS = 8 };

FL_INLINE vec low_halves(vec a, vec b) {
    return vcombine_f32(vget_low_f32(a), vget_low_f32(b));
}
FL_INLINE vec high_halves(vec a, vec b) {
    return vcombine_f32(vget_high_f32(a), vget_high_f32(b));
}

/* Eight bytes of k: every pair of rows times 16 columns, whose next four bytes of k lie at `next`. */
FL_INLINE void mm_step(int pairs, const vec x[MM_PAIRS], const float *b, const float *next,
                       vec sum[MM_PAIRS][MM_SUMS]) {
    FL_UNROLL for (int v = 0; v < 4; v++) {
        vec y     = vld1q_f32(b + v * FL_VEC_LANES);
        vec z     = next != NULL ? vld1q_f32(next + v * FL_VEC_LANES) : vdupq_n_f32(0);
        vec first = vzip1q_f32(y, z), second = vzip2q_f32(y, z);
        FL_UNROLL for (int p = 0; p < pairs; p++) {
            FL_ADD_MATRIX(sum[p][2 * v], x[p], first);
            FL_ADD_MATRIX(sum[p][2 * v + 1], x[p], second);
        }
    }
}

/* wide_chain of neon.h; a float is four bytes of k. `rows` is a constant at every call. */
FL_INLINE void mm_chain(int rows, int panels, const float *a, size_t a_stride, const float *b,
                        size_t b_stride, size_t panel_stride, size_t k, vec acc[FL_WIDE_ROWS][4],
                        int fetching, const char *fetch, size_t fetch_step) {
    vec       sum[MM_PAIRS][MM_SUMS], x[MM_PAIRS], rest[MM_PAIRS];
    const int pairs = (rows + 1) / 2;
    size_t    step  = 0;
    (void)panels, (void)panel_stride, (void)fetching;
    FL_UNROLL for (int p = 0; p < pairs; p++) {
        const int other = 2 * p + 1 < rows ? 2 * p + 1 : 2 * p;
        FL_UNROLL for (int v = 0; v < 4; v++) {
            sum[p][2 * v]     = low_halves(acc[2 * p][v], acc[other][v]);
            sum[p][2 * v + 1] = high_halves(acc[2 * p][v], acc[other][v]);
        }
    }
    for (; step + 4 <= k; step += 4, b += 4 * b_stride) {
        FL_UNROLL for (int p = 0; p < pairs; p++) {
            const int other = 2 * p + 1 < rows ? 2 * p + 1 : 2 * p;
            vec       one   = vld1q_f32(a + (size_t)(2 * p) * a_stride + step);
            vec       two   = vld1q_f32(a + (size_t)other * a_stride + step);
            x[p]            = low_halves(one, two);
            rest[p]         = high_halves(one, two);
        }
        __builtin_prefetch(fetch);
        __builtin_prefetch(fetch + 2 * fetch_step);
        fetch += 4 * fetch_step;
        mm_step(pairs, x, b, b + b_stride, sum);
        mm_step(pairs, rest, b + 2 * b_stride, b + 3 * b_stride, sum);
    }
    for (; step < k; step++, b += b_stride) {
        FL_UNROLL for (int p = 0; p < pairs; p++) {
            const int other = 2 * p + 1 < rows ? 2 * p + 1 : 2 * p;
            x[p]            = vdupq_n_f32(0);
            x[p]            = vld1q_lane_f32(a + (size_t)(2 * p) * a_stride + step, x[p], 0);
            x[p]            = vld1q_lane_f32(a + (size_t)other * a_stride + step, x[p], 2);
        }
        mm_step(pairs, x, b, NULL, sum);
    }
    FL_UNROLL for (int p = 0; p < pairs; p++) {
        FL_UNROLL for (int v = 0; v < 4; v++) {
            acc[2 * p][v] = low_halves(sum[p][2 * v], sum[p][2 * v + 1]);
            if (2 * p + 1 < rows)
                acc[2 * p + 1][v] = high_halves(sum[p][2 * v], sum[p][2 * v + 1]);
        }
    }
}
#define wide_chain mm_chain

#endif
