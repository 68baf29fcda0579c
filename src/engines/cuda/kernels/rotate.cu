/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.cu - fl_rotate: norms and rotary positions of the q and k heads, between the product that
 * makes them and attention.
 *
 * Method  A warp per token, eight values a lane, so that D / 8 lanes have a head and several heads go
 *         at once. A value turns with one dims / 2 away, which lies in another lane's piece: it is
 *         read from memory (the L1 has it) and normed once more instead of being passed around. All
 *         have read before one writes.
 * Bytes   A head's sum is over its own lanes, in an order that D fixes.
 * Limit   Bytes: q and k of every token in and out. Attention could turn them as it loads them; for
 *         k that means once for each 64 queries. Measure the share first. */
#include "elements.cuh"

/* Over the lanes of one head. */
template <int LANES> FL_FN float head_sum(float value) {
    for (int apart = 1; apart < LANES; apart *= 2) {
        value += shuffle_xor(value, apart);
    }
    return value;
}

/* `v` and the piece that it turns with, normed; w: the head's weights. */
template <int D>
FL_FN void norm_head(const fl_cuda_rotate &p, const float *w, uint32_t column, uint32_t partner,
                     float (&v)[FL_PIECE], float (&other)[FL_PIECE]) {
    constexpr int LANES = D / FL_PIECE;
    float         sum = 0.0f, squares = 0.0f, w_own[FL_PIECE], w_other[FL_PIECE];
    for (int i = 0; i < FL_PIECE; i++) {
        sum += v[i];
    }
    float mean = p.rms ? 0.0f : head_sum<LANES>(sum) / static_cast<float>(D);
    for (int i = 0; i < FL_PIECE; i++) {
        squares += (v[i] - mean) * (v[i] - mean);
    }
    float factor = 1.0f / sqrtf(head_sum<LANES>(squares) / static_cast<float>(D) + p.eps);
    load_piece(float(), w, column, w_own);
    load_piece(float(), w, partner, w_other);
    for (int i = 0; i < FL_PIECE; i++) {
        v[i]     = (v[i] - mean) * factor * w_own[i];
        other[i] = (other[i] - mean) * factor * w_other[i];
    }
}

template <typename T, int D> FL_FN void rotate(const fl_cuda_rotate &p) {
    constexpr uint32_t LANES = D / FL_PIECE, TOGETHER = FL_CUDA_WARP / LANES;
    uint32_t           token = row_of_warp();
    if (token >= p.meta->tokens) {
        return;
    }
    uint32_t all = p.heads + p.kv_heads, half = p.dims / 2;
    uint32_t column = lane_index() % LANES * FL_PIECE;
    bool     turns = p.cosines != nullptr && column < p.dims, upper = column >= half;
    uint32_t partner = !turns ? column : upper ? column - half : column + half;
    float    cosines[FL_PIECE], sines[FL_PIECE];
    if (turns) {
        size_t at = static_cast<size_t>(p.places[token]) * half + (upper ? column - half : column);
        load_piece(float(), p.cosines, at, cosines);
        load_piece(float(), p.sines, at, sines);
    }
    T *row = static_cast<T *>(p.qkv) + static_cast<size_t>(token) * (all + p.kv_heads) * D;
    for (uint32_t first = 0; first < all; first += TOGETHER) {
        uint32_t head = smaller(first + lane_index() / LANES, all - 1); /* some do the last twice */
        T       *at   = row + static_cast<size_t>(head) * D;
        const float *w = head < p.heads ? p.q_norm : p.k_norm;
        float        v[FL_PIECE], other[FL_PIECE];
        load_piece(T(), at, column, v);
        load_piece(T(), at, partner, other);
        if (w != nullptr) {
            norm_head<D>(p, w, column, partner, v, other);
        }
        for (int i = 0; i < FL_PIECE && turns; i++) {
            v[i] = v[i] * cosines[i] + (upper ? other[i] : -other[i]) * sines[i];
        }
        warp_sync();
        if (first + lane_index() / LANES < all) {
            store_piece(T(), at, column, v);
        }
    }
}

#define FL_ROTATE(D)                                                                               \
    FL_KERNEL(fl_rotate_f32_##D, fl_cuda_rotate, FL_CUDA_ROW_THREADS, 2, rotate<float, D>)         \
    FL_KERNEL(fl_rotate_f16_##D, fl_cuda_rotate, FL_CUDA_ROW_THREADS, 2, rotate<fl_f16, D>)        \
    FL_KERNEL(fl_rotate_bf16_##D, fl_cuda_rotate, FL_CUDA_ROW_THREADS, 2, rotate<fl_bf16, D>)

FL_ROTATE(32)
FL_ROTATE(64)
FL_ROTATE(128)
