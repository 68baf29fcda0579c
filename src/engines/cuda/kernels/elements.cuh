/* SPDX-License-Identifier: Apache-2.0 */
/* elements.cuh - rows of any element type, eight neighbours at a time, as floats.
 *
 * Role    What the row kernels share: a piece of a row is 8 values, 16 bytes of a 16-bit type or 32
 *         of float; piece p of a row belongs to lane p % 32 whatever the type, so that all types
 *         sum in one order.
 * Sums    A lane's own values first, then lanes 1, 2, 4, 8 and 16 apart: fixed by the row's
 *         width. */
#ifndef FL_ENGINES_CUDA_KERNELS_ELEMENTS_CUH
#define FL_ENGINES_CUDA_KERNELS_ELEMENTS_CUH

#include <lanes.cuh>
#include <math.h>

#include "engines/cuda/kernels/cuda_kernels.h"

enum { FL_PIECE = 8, FL_STEP = FL_PIECE * FL_CUDA_WARP /* values that a warp takes at once */ };

/* The three element types by the names that kernels end in. */
#define FL_KERNELS_OF_TYPES(name, structure, threads, blocks, body)                                \
    FL_KERNEL(name##_f32, structure, threads, blocks, body<float>)                                 \
    FL_KERNEL(name##_f16, structure, threads, blocks, body<fl_f16>)                                \
    FL_KERNEL(name##_bf16, structure, threads, blocks, body<fl_bf16>)

FL_FN void load_piece(float, const void *row, size_t at, float (&v)[FL_PIECE]) {
    const float *from = static_cast<const float *>(row) + at;
    fl_words4    low = load16(from), high = load16(from + 4);
    for (int i = 0; i < 4; i++) {
        v[i]     = word_float(low.w[i]);
        v[i + 4] = word_float(high.w[i]);
    }
}

template <typename T>
FL_FN void load_piece(T type, const void *row, size_t at, float (&v)[FL_PIECE]) {
    fl_words4 words = load16(static_cast<const T *>(row) + at);
    for (int i = 0; i < 4; i++) {
        unpack2(type, words.w[i], v[2 * i], v[2 * i + 1]);
    }
}

FL_FN void store_piece(float, void *row, size_t at, const float (&v)[FL_PIECE]) {
    float    *to = static_cast<float *>(row) + at;
    fl_words4 low, high;
    for (int i = 0; i < 4; i++) {
        low.w[i]  = float_word(v[i]);
        high.w[i] = float_word(v[i + 4]);
    }
    store16(to, low);
    store16(to + 4, high);
}

template <typename T>
FL_FN void store_piece(T type, void *row, size_t at, const float (&v)[FL_PIECE]) {
    fl_words4 words;
    for (int i = 0; i < 4; i++) {
        words.w[i] = pack2(type, v[2 * i], v[2 * i + 1]);
    }
    store16(static_cast<T *>(row) + at, words);
}

/* v * factor as 8-bit floats. */
FL_FN void store_e4m3(uint8_t *to, float factor, const float (&v)[FL_PIECE]) {
    fl_words2 words;
    for (int i = 0; i < 2; i++) {
        const float *four = v + 4 * i;
        words.w[i]        = pack2_e4m3(four[0] * factor, four[1] * factor) |
                     pack2_e4m3(four[2] * factor, four[3] * factor) << 16;
    }
    store8(to, words);
}

/* v += what stands at `at`; a table that is not there adds nothing. */
template <typename T>
FL_FN void add_piece(T type, const void *row, size_t at, float (&v)[FL_PIECE]) {
    if (row == nullptr) {
        return;
    }
    float more[FL_PIECE];
    load_piece(type, row, at, more);
    for (int i = 0; i < FL_PIECE; i++) {
        v[i] += more[i];
    }
}

FL_FN uint32_t smaller(uint32_t one, uint32_t other) {
    return one < other ? one : other;
}

FL_FN float warp_sum(float value) {
    for (int apart = 1; apart < FL_CUDA_WARP; apart *= 2) {
        value += shuffle_xor(value, apart);
    }
    return value;
}

FL_FN float warp_max(float value) {
    for (int apart = 1; apart < FL_CUDA_WARP; apart *= 2) {
        value = fmaxf(value, shuffle_xor(value, apart));
    }
    return value;
}

/* The row of this warp where a block has FL_CUDA_ROW_ROWS of them. */
FL_FN uint32_t row_of_warp() {
    return block_x() * FL_CUDA_ROW_ROWS + warp_index();
}

#endif
