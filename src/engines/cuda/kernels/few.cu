/* SPDX-License-Identifier: Apache-2.0 */
/* few.cu - fl_few, fl_few_wide: a product of at most 64 rows, its norm before and its residual behind.
 *
 * Role    A small batch waits for launches and for latency, not for arithmetic: with these a layer is five
 *         kernels (qkv, attention, out, up, down), each of which reads its weights once.
 * Method  A block has 8 columns of the output, or 16, and all rows; its eight warps share k, 32 at a time,
 *         and their sums meet in shared memory. Weights and rows go from memory straight into the tensor
 *         core's layout, 16 bytes a lane, by attention.cuh's renaming of k: lane 4g + t takes columns
 *         8t..8t+7 of a step from row g and calls them k = 2t, 2t + 1, 2t + 8, 2t + 9 of two products.
 *         Every block norms all rows anew, as it reads them: first each row's mean and factor, by half a
 *         warp, then each value on its way to a product. Together the blocks write each normed row once.
 * Bytes   The order of every sum follows from k alone.
 * Limit   Latency: weights from the L2 or memory, about a microsecond each for statistics and product.
 *         Not measured. What could be tried: weights of the first steps before the statistics; launches
 *         that begin before the kernel before them ends. */
#include "activation.cuh"
#include "norm.cuh"

enum {
    FL_FEW_WARPS = FL_CUDA_FEW_THREADS / FL_CUDA_WARP,
    FL_FEW_K     = 32, /* columns of x that a warp takes at once */
    FL_FEW_ROWS  = 16, /* of a product */
    FL_FEW_HALF  = FL_CUDA_WARP / 2,
    FL_FEW_MOST  = FL_CUDA_SMALL / FL_FEW_ROWS
};

/* What a norm does to a row. */
struct few_norm {
    float mean, factor;
};

FL_FN float half_sum(float value) {
    for (int apart = 1; apart < FL_FEW_HALF; apart *= 2) {
        value += shuffle_xor(value, apart);
    }
    return value;
}

/* Of each row, half a warp to one: 16 rows of the block at a time. */
template <typename T>
FL_FN void find_norms(const fl_cuda_few &p, uint32_t tokens, few_norm *norms) {
    uint32_t own = thread_index() / FL_FEW_HALF;
    uint32_t at  = thread_index() % FL_FEW_HALF * FL_PIECE;
    for (uint32_t first = 0; first < tokens; first += FL_FEW_ROWS) {
        uint32_t row = smaller(first + own, tokens - 1);
        const T *x   = static_cast<const T *>(p.x) + static_cast<size_t>(row) * p.k;
        float    sum = 0.0f, squares = 0.0f, v[FL_PIECE];
        for (uint32_t column = at; column < p.k; column += FL_FEW_HALF * FL_PIECE) {
            load_piece(T(), x, column, v);
            sum += sum_of(v);
        }
        float mean = p.rms ? 0.0f : half_sum(sum) / static_cast<float>(p.k);
        for (uint32_t column = at; column < p.k; column += FL_FEW_HALF * FL_PIECE) {
            load_piece(T(), x, column, v);
            squares += squares_of(v, mean);
        }
        float factor = 1.0f / sqrtf(half_sum(squares) / static_cast<float>(p.k) + p.eps);
        if (at == 0 && first + own < tokens) {
            norms[row] = {mean, factor};
        }
    }
}

/* Eight neighbours of a row, normed where there is a norm, as the tensor core takes them. */
template <typename T>
FL_FN fl_words4 few_piece(const fl_cuda_few &p, const few_norm *norms, uint32_t row,
                          uint32_t column) {
    const T *at = static_cast<const T *>(p.x) + static_cast<size_t>(row) * p.k + column;
    if (p.norm_w == nullptr) {
        return load16(at);
    }
    float     v[FL_PIECE], w[FL_PIECE], b[FL_PIECE];
    few_norm  n = norms[row];
    fl_words4 words;
    load_piece(T(), at, 0, v);
    load_piece(float(), p.norm_w, column, w);
    load_piece(float(), p.norm_b, column, b);
    for (int i = 0; i < FL_PIECE; i++) {
        v[i] = (v[i] - n.mean) * n.factor * w[i] + b[i];
    }
    for (int i = 0; i < 4; i++) {
        words.w[i] = pack2(T(), v[2 * i], v[2 * i + 1]);
    }
    return words;
}

/* This block's share of the normed rows. */
template <typename T>
FL_FN void write_norms(const fl_cuda_few &p, const few_norm *norms, uint32_t tokens) {
    uint32_t pieces = p.k / FL_PIECE;
    for (uint32_t i = block_x() * FL_CUDA_FEW_THREADS + thread_index(); i < tokens * pieces;
         i += p.blocks * FL_CUDA_FEW_THREADS) {
        uint32_t row = i / pieces, column = i % pieces * FL_PIECE;
        T       *to = static_cast<T *>(p.normed) + static_cast<size_t>(row) * p.k + column;
        store16(to, few_piece<T>(p, norms, row, column));
    }
}

/* The first column of a block, and how far its second tile is from the first. */
template <int TILES> FL_FN uint32_t few_column(const fl_cuda_few &p) {
    return block_x() * FL_CUDA_FEW_COLUMNS * (TILES == 2 && p.gated ? 1 : TILES);
}
FL_FN uint32_t few_apart(const fl_cuda_few &p) {
    return p.gated ? p.width : uint32_t{FL_CUDA_FEW_COLUMNS};
}

/* A warp's share of k: sums of ROWS times 16 rows and TILES times 8 columns, one float4 a lane, to
 * parts[warp][row tile][column tile][lane]. */
template <typename T, int TILES, int ROWS>
FL_FN void few_product(const fl_cuda_few &p, const few_norm *norms, uint32_t tokens,
                       fl_words4 *parts) {
    uint32_t g = lane_index() / 4, t = lane_index() % 4;
    float    c[ROWS][TILES][4];
    for (int row = 0; row < ROWS; row++) {
        for (int tile = 0; tile < TILES; tile++) {
            for (int i = 0; i < 4; i++) {
                c[row][tile][i] = 0.0f;
            }
        }
    }
    const T *weights =
        static_cast<const T *>(p.weights) + static_cast<size_t>(few_column<TILES>(p) + g) * p.k;
    size_t apart = static_cast<size_t>(few_apart(p)) * p.k;
#pragma unroll 2
    for (uint32_t k = warp_index() * FL_FEW_K; k < p.k; k += FL_FEW_WARPS * FL_FEW_K) {
        uint32_t  column = k + t * FL_PIECE;
        fl_words4 b[TILES];
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            b[tile] = load16(weights + static_cast<size_t>(tile) * apart + column);
        }
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) {
            uint32_t  first = row * FL_FEW_ROWS + g;
            fl_words4 low   = few_piece<T>(p, norms, smaller(first, tokens - 1), column);
            fl_words4 high  = few_piece<T>(p, norms, smaller(first + 8, tokens - 1), column);
            uint32_t  a[2][4];
            for (int i = 0; i < 4; i++) {
                a[0][i] = i & 1 ? high.w[i / 2] : low.w[i / 2];
                a[1][i] = i & 1 ? high.w[i / 2 + 2] : low.w[i / 2 + 2];
            }
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                mma(T(), c[row][tile], a[0], b[tile].w[0], b[tile].w[1]);
                mma(T(), c[row][tile], a[1], b[tile].w[2], b[tile].w[3]);
            }
        }
    }
#pragma unroll
    for (uint32_t row = 0; row < ROWS; row++) {
#pragma unroll
        for (uint32_t tile = 0; tile < TILES; tile++) {
            float *sums = c[row][tile];
            store16(parts + ((warp_index() * FL_FEW_MOST + row) * TILES + tile) * FL_CUDA_WARP +
                        lane_index(),
                    {{float_word(sums[0]), float_word(sums[1]), float_word(sums[2]),
                      float_word(sums[3])}});
        }
    }
}

/* Two neighbours of a row: the sums of all warps and the bias. */
template <typename T, int TILES>
FL_FN void few_sums(const fl_cuda_few &p, const fl_words4 *parts, uint32_t row, uint32_t tile,
                    uint32_t pair, float (&v)[2]) {
    uint32_t lane = row % 8 * 4 + pair, half = row / 8 % 2 * 8; /* bytes */
    uint32_t column = few_column<TILES>(p) + tile * few_apart(p) + 2 * pair;
    v[0] = v[1] = 0.0f;
    for (uint32_t warp = 0; warp < FL_FEW_WARPS; warp++) {
        const fl_words4 *at =
            parts + ((warp * FL_FEW_MOST + row / FL_FEW_ROWS) * TILES + tile) * FL_CUDA_WARP + lane;
        fl_words2 sums = load8(reinterpret_cast<const char *>(at) + half);
        v[0] += word_float(sums.w[0]);
        v[1] += word_float(sums.w[1]);
    }
    if (p.bias != nullptr) {
        float low, high;
        unpack2(T(), *reinterpret_cast<const uint32_t *>(static_cast<const T *>(p.bias) + column),
                low, high);
        v[0] += low;
        v[1] += high;
    } else {
        v[0] += p.bias_f32[column];
        v[1] += p.bias_f32[column + 1];
    }
}

template <typename T, int TILES>
FL_FN void write_few(const fl_cuda_few &p, const fl_words4 *parts, uint32_t tokens) {
    enum { PAIRS = FL_CUDA_FEW_COLUMNS / 2 };
    uint32_t tiles = TILES == 2 && p.gated ? 1 : TILES; /* of outputs */
    for (uint32_t i = thread_index(); i < tokens * tiles * PAIRS; i += FL_CUDA_FEW_THREADS) {
        uint32_t row = i / (tiles * PAIRS), tile = i / PAIRS % tiles, pair = i % PAIRS;
        uint32_t column = few_column<TILES>(p) + tile * FL_CUDA_FEW_COLUMNS + 2 * pair;
        size_t   at     = static_cast<size_t>(row) * p.width + column;
        float    v[2];
        few_sums<T, TILES>(p, parts, row, tile, pair, v);
        v[0] = activated(T(), p.activation, v[0]);
        v[1] = activated(T(), p.activation, v[1]);
        if constexpr (TILES == 2) {
            if (p.gated) {
                float up[2];
                few_sums<T, TILES>(p, parts, row, 1, pair, up);
                v[0] *= up[0];
                v[1] *= up[1];
            }
        }
        if (p.residual != nullptr) {
            float    low, high;
            const T *from = static_cast<const T *>(p.residual) + at;
            unpack2(T(), *reinterpret_cast<const uint32_t *>(from), low, high);
            v[0] += low;
            v[1] += high;
        }
        *reinterpret_cast<uint32_t *>(static_cast<T *>(p.out) + at) = pack2(T(), v[0], v[1]);
    }
}

template <typename T, int TILES> FL_FN void few(const fl_cuda_few &p) {
    FL_SHARED(fl_words4, parts, FL_FEW_WARPS * FL_FEW_MOST * TILES * FL_CUDA_WARP);
    FL_SHARED(few_norm, norms, FL_CUDA_SMALL);
    uint32_t tokens = p.meta->tokens;
    if (p.norm_w != nullptr) {
        find_norms<T>(p, tokens, norms);
        block_sync();
    }
    switch ((tokens + FL_FEW_ROWS - 1) / FL_FEW_ROWS) {
    case 1: few_product<T, TILES, 1>(p, norms, tokens, parts); break;
    case 2: few_product<T, TILES, 2>(p, norms, tokens, parts); break;
    default: few_product<T, TILES, FL_FEW_MOST>(p, norms, tokens, parts); break;
    }
    if (p.normed != nullptr) {
        write_norms<T>(p, norms, tokens);
    }
    block_sync();
    write_few<T, TILES>(p, parts, tokens);
}

#define FL_FEW(name, tiles)                                                                        \
    FL_KERNEL(name##_f16, fl_cuda_few, FL_CUDA_FEW_THREADS, 2, few<fl_f16, tiles>)                 \
    FL_KERNEL(name##_bf16, fl_cuda_few, FL_CUDA_FEW_THREADS, 2, few<fl_bf16, tiles>)

FL_FEW(fl_few, 1)
FL_FEW(fl_few_wide, 2)
