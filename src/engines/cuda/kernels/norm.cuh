/* SPDX-License-Identifier: Apache-2.0 */
/* norm.cuh - LayerNorm or RMS norm of a row that a functor brings, one warp to a row.
 *
 * In/Out  source(column, v[8]) gives the row's values, as sums of what the caller adds up;
 *         out = (v - mean) / sqrt(variance + eps) * w + b, in the kernel's type, and where a
 *         product wants it so in 8 bits as well; RMS: the mean is 0. sum = v where it is wanted;
 *         without a norm (w NULL) sum is all.
 * Method  Rows of up to 1024 values stay in registers, 8 values a lane and step, so that the
 *         variance is the mean square of true differences and nothing is read twice. The number of
 *         steps is a template, since an array with a run-time index would leave the registers.
 *         Wider rows ask the source three times; the caches answer.
 * Limit   Bytes: three rows in or out per row and nothing to compute; 64 to 70 registers on sm_90a,
 *         so that 24 warps fit a processor. Loads of all steps are on their way before the first is
 *         used. */
#ifndef FL_ENGINES_CUDA_KERNELS_NORM_CUH
#define FL_ENGINES_CUDA_KERNELS_NORM_CUH

#include "elements.cuh"

struct norm_arguments {
    const float *w, *b; /* w NULL: no norm */
    void        *out;   /* the row's first value */
    void        *sum;   /* the same, or NULL */
    uint8_t     *e4m3;  /* the same, or NULL */
    float        e4m3_factor;
    uint32_t     hidden;
    bool         rms;
    float        eps;
};

FL_FN float sum_of(const float (&v)[FL_PIECE]) {
    float sum = 0.0f;
    for (int i = 0; i < FL_PIECE; i++) {
        sum += v[i];
    }
    return sum;
}

FL_FN float squares_of(const float (&v)[FL_PIECE], float mean) {
    float sum = 0.0f;
    for (int i = 0; i < FL_PIECE; i++) {
        sum += (v[i] - mean) * (v[i] - mean);
    }
    return sum;
}

template <typename T>
FL_FN void write_normed(const norm_arguments &n, uint32_t column, float mean, float factor,
                        const float (&v)[FL_PIECE]) {
    float w[FL_PIECE], b[FL_PIECE], out[FL_PIECE];
    if (n.sum != nullptr) {
        store_piece(T(), n.sum, column, v);
    }
    load_piece(float(), n.w, column, w);
    load_piece(float(), n.b, column, b);
    for (int i = 0; i < FL_PIECE; i++) {
        out[i] = (v[i] - mean) * factor * w[i] + b[i];
    }
    store_piece(T(), n.out, column, out);
    if (n.e4m3 != nullptr) {
        store_e4m3(n.e4m3 + column, n.e4m3_factor, out);
    }
}

template <typename T, int STEPS, typename Source>
FL_FN void norm_in_registers(const norm_arguments &n, const Source &source) {
    float    v[STEPS][FL_PIECE];
    uint32_t first = lane_index() * FL_PIECE;
    float    sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s++) {
        if (first + s * FL_STEP < n.hidden) {
            source(first + s * FL_STEP, v[s]);
        }
    }
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s++) {
        sum += first + s * FL_STEP < n.hidden ? sum_of(v[s]) : 0.0f;
    }
    float mean = n.rms ? 0.0f : warp_sum(sum) / static_cast<float>(n.hidden);
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s++) {
        squares += first + s * FL_STEP < n.hidden ? squares_of(v[s], mean) : 0.0f;
    }
    float factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(n.hidden) + n.eps);
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s++) {
        if (first + s * FL_STEP < n.hidden) {
            write_normed<T>(n, first + s * FL_STEP, mean, factor, v[s]);
        }
    }
}

template <typename T, typename Source>
FL_FN void norm_from_memory(const norm_arguments &n, const Source &source) {
    float    v[FL_PIECE];
    uint32_t first = lane_index() * FL_PIECE;
    float    sum = 0.0f, squares = 0.0f;
    for (uint32_t column = first; column < n.hidden; column += FL_STEP) {
        source(column, v);
        sum += sum_of(v);
    }
    float mean = n.rms ? 0.0f : warp_sum(sum) / static_cast<float>(n.hidden);
    for (uint32_t column = first; column < n.hidden; column += FL_STEP) {
        source(column, v);
        squares += squares_of(v, mean);
    }
    float factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(n.hidden) + n.eps);
    for (uint32_t column = first; column < n.hidden; column += FL_STEP) {
        source(column, v);
        write_normed<T>(n, column, mean, factor, v);
    }
}

template <typename T, typename Source>
FL_FN void sum_row(const norm_arguments &n, const Source &source) {
    for (uint32_t column = lane_index() * FL_PIECE; column < n.hidden; column += FL_STEP) {
        float v[FL_PIECE];
        source(column, v);
        store_piece(T(), n.sum, column, v);
    }
}

template <typename T, typename Source>
FL_FN void norm_row(const norm_arguments &n, const Source &source) {
    if (n.w == nullptr) {
        sum_row<T>(n, source);
        return;
    }
    switch ((n.hidden + FL_STEP - 1) / FL_STEP) {
    case 1: norm_in_registers<T, 1>(n, source); break;
    case 2: norm_in_registers<T, 2>(n, source); break;
    case 3: norm_in_registers<T, 3>(n, source); break;
    case 4: norm_in_registers<T, 4>(n, source); break;
    default: norm_from_memory<T>(n, source); break;
    }
}

#endif
