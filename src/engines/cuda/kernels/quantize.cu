/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.cu - fl_quantize: a row as int8 and one scale.
 *
 * Method  A warp per row, which it reads twice: for the largest absolute value, then to round
 *         (nearest, ties to even); the second reading comes from the L1. A value that is not finite
 *         would vanish in a maximum, so that 0 * value is summed beside it: NaN then, and so the
 *         scale, and so every value that a product makes of the row.
 * Gain    Columns that are large in every row would leave the others a handful of steps: the host
 *         gives factors that even them out, and has taken them out of the weights.
 * Limit   Bytes: 3 per value of a 16-bit row. */
#include "elements.cuh"

FL_FN uint32_t four_bytes(const float *v, float inverse) {
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        int32_t q = static_cast<int32_t>(rintf(v[i] * inverse));
        word |= (static_cast<uint32_t>(q) & 0xffu) << 8 * i;
    }
    return word;
}

/* A piece of a row, its columns evened out. */
template <typename T>
FL_FN void load_even(const fl_cuda_quantize &p, const T *row, uint32_t column,
                     float (&v)[FL_PIECE]) {
    load_piece(T(), row, column, v);
    if (p.gain == nullptr) {
        return;
    }
    float gain[FL_PIECE];
    load_piece(float(), p.gain, column, gain);
    for (int i = 0; i < FL_PIECE; i++) {
        v[i] *= gain[i];
    }
}

template <typename T> FL_FN void quantize(const fl_cuda_quantize &p) {
    uint32_t token = row_of_warp();
    if (token >= p.meta->tokens) {
        return;
    }
    size_t   at    = static_cast<size_t>(token) * p.width;
    const T *row   = static_cast<const T *>(p.x) + at;
    uint32_t first = lane_index() * FL_PIECE;
    float    v[FL_PIECE], top = 0.0f, nothing = 0.0f;
    for (uint32_t column = first; column < p.width; column += FL_STEP) {
        load_even<T>(p, row, column, v);
        for (int i = 0; i < FL_PIECE; i++) {
            top = fmaxf(top, fabsf(v[i]));
            nothing += v[i] * 0.0f;
        }
    }
    top           = warp_max(top);
    nothing       = warp_sum(nothing);
    bool  finite  = nothing == 0.0f;
    float inverse = finite && top > 0.0f ? 127.0f / top : 0.0f;
    /* A row of very small values has an inverse beyond float: it is as good as zero. */
    inverse = inverse <= 3.4e38f ? inverse : 0.0f;
    if (lane_index() == 0) {
        p.scales[token] = finite ? top / 127.0f : nothing;
    }
    for (uint32_t column = first; column < p.width; column += FL_STEP) {
        load_even<T>(p, row, column, v);
        for (int i = 0; i < FL_PIECE; i++) {
            v[i] = finite ? v[i] : 0.0f;
        }
        store8(p.q + at + column, {{four_bytes(v, inverse), four_bytes(v + 4, inverse)}});
    }
}

FL_KERNELS_OF_TYPES(fl_quantize, fl_cuda_quantize, FL_CUDA_ROW_THREADS, 4, quantize)
