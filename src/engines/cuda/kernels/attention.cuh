/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cuh - softmax(q k' scale + rule) v on the tensor core, for 16 query rows by one warp.
 *
 * In/Out   The q, k and v rows of one text and head; keys come in blocks through a functor of the
 *          form rows.at(row, chunk) -> 16 bytes, from global or from shared memory. A row past the
 *          text's end reads the text's last row: never memory of another text; its score is then
 *          -inf, and query rows past the end are not written.
 * Method   Online softmax: per block the scores' maximum, sums and outputs so far are rescaled, all
 *          in registers; scores are multiplied by log2(e) beforehand, so that exp2 does. The sum is
 *          one more column of v that holds ones, so that the tensor core adds up what it multiplies:
 *          probabilities as they were rounded. What a plain score costs besides its product is its
 *          share of a maximum, one multiply-add (scale and maximum) and exp2.
 * Rules    Models with a bias by distance, and layers that do not see every key, have kernels of
 *          their own (RULED): a table of the distances that a tile can have lies in shared memory,
 *          -inf where a key is not seen. A row may meet blocks in which it sees nothing before it
 *          meets itself: its maximum begins at a number, not at -inf.
 * Layout   No transposition anywhere. A product over k may take k in any order that both factors
 *          share: lane 4g + t takes 16 bytes, columns 8t..8t+7 of row g, and calls them k = 2t,
 *          2t + 1, 2t + 8, 2t + 9 of two products. For v it is the output's columns that are
 *          renamed: the lane takes neighbours from the rows of its four keys and pairs them by
 *          halves, and its outputs turn out to be 16 neighbours of a row, written 16 bytes at a
 *          time.
 * Bytes    Blocks of keys start at the text's first key and 16-row groups at its first row: a
 *          text's arithmetic does not know where the text stands.
 * Limit    Short texts: bytes (4 hidden rows per token). Long: tensor core, exp2 and the L1 or
 *          shared memory about equally at D = 64; m16n8k16 does not reach wgmma's rate on Hopper,
 *          which matters for base models at 512 tokens (attention is 10 % of the work there). */
#ifndef FL_ENGINES_CUDA_KERNELS_ATTENTION_CUH
#define FL_ENGINES_CUDA_KERNELS_ATTENTION_CUH

#include "elements.cuh"

enum { FL_QUERY_ROWS = 16, FL_WINDOW = 128 /* distances a tile of 64 rows and 64 keys can have */ };

#define FL_LOG2E 1.44269504f
#define FL_LEAST -1e30f /* what a maximum begins with */

/* One text and head. Strides in bytes; a row of q, k or v is D values. */
struct attention_view {
    const char *q, *k, *v;
    char       *out;
    uint32_t    stride, out_stride; /* 32 bits: a text has less than 4 GB of rows */
    uint32_t    tokens;
};

template <typename T, int D>
FL_FN attention_view view_of(const fl_cuda_attention &p, uint32_t text, uint32_t head) {
    constexpr uint32_t ONE   = D * sizeof(T); /* head */
    size_t             first = p.cu[text];
    uint32_t           row = p.heads * ONE, kv_row = p.kv_heads * ONE, stride = row + 2 * kv_row;
    const char        *qkv    = static_cast<const char *>(p.qkv) + first * stride;
    const char        *k      = qkv + row + head / (p.heads / p.kv_heads) * ONE;
    char              *out    = static_cast<char *>(p.out) + first * row + head * ONE;
    uint32_t           tokens = p.cu[text + 1] - p.cu[text];
    return {qkv + head * ONE, k, k + kv_row, out, stride, row, tokens};
}

/* Work of one warp in a tile of short texts: its turn is every fourth group of 16 rows. */
template <typename Group>
FL_FN void groups_of_tile(const fl_cuda_attention &p, const Group &group) {
    fl_cuda_tile tile = p.tiles[block_x()];
    uint32_t     turn = 0;
    uint32_t     end  = tile.first + tile.count;
#pragma unroll 1
    for (uint32_t text = tile.first; text < end; text++) {
        uint32_t tokens = p.cu[text + 1] - p.cu[text];
#pragma unroll 1
        for (uint32_t row = 0; row < tokens; row += FL_QUERY_ROWS, turn++) {
            if (turn % (FL_CUDA_ATTENTION_THREADS / FL_CUDA_WARP) == warp_index()) {
                group(text, row);
            }
        }
    }
}

/* What is added to a score at key - query = distance: the table's value, clamped at both ends; -inf
 * where the key is not seen. */
FL_FN float bias_at(const fl_cuda_attention &p, int32_t distance, uint32_t head) {
    int32_t most = static_cast<int32_t>(p.max_distance);
    if (distance < -p.before || distance > p.after) {
        return -INFINITY;
    }
    if (p.bias == nullptr) {
        return 0.0f;
    }
    int32_t near = distance < -most ? -most : distance > most ? most : distance;
    return p.bias[static_cast<size_t>(near + most) * p.heads + head];
}

/* The rule of a tile: window[i] for key - query = lowest + i, times log2(e). */
FL_FN void fill_window(const fl_cuda_attention &p, float *window, int32_t lowest, uint32_t head) {
    for (uint32_t i = thread_index(); i < FL_WINDOW; i += FL_CUDA_ATTENTION_THREADS) {
        window[i] = bias_at(p, lowest + static_cast<int32_t>(i), head) * FL_LOG2E;
    }
}

/* Rows in global memory, 16-byte chunks. */
struct global_rows {
    const char *first;
    uint32_t    stride, last;

    FL_METHOD const char *at(uint32_t row, uint32_t chunk) const {
        return first + smaller(row, last) * stride + chunk * 16;
    }
};

/* Where a 16-byte chunk of a staged row lies: rows are packed without gaps, and the chunks of 128
 * bytes change places by row, so that the eight lanes that are served together (two rows by four
 * chunks of k, or two chunks by four rows of v) meet eight different groups of banks. */
template <int D> FL_FN uint32_t staged_chunk(uint32_t row, uint32_t chunk) {
    uint32_t swap = (row & 1) << 2 ^ (row >> 1 & 3) << 1;
    return D == 32 ? (row >> 1) * 8 + (chunk ^ swap) : row * (D / 8) + (chunk ^ swap);
}

template <int D> struct staged_rows {
    const char *first;

    FL_METHOD const char *at(uint32_t row, uint32_t chunk) const {
        return first + staged_chunk<D>(row, chunk) * 16;
    }
};

/* What a warp carries through the keys. Of lane 4g + t: rows g and g + 8. */
template <int D> struct query_state {
    enum { SUM = D / 8, TILES = SUM + 1 }; /* the last tile of o: sums, the same in all columns */
    uint32_t q[D / 16][4];
    float    o[TILES][4];
    float    top[2];
};

template <int D>
FL_FN void load_queries(query_state<D> &s, const attention_view &view, uint32_t first_row) {
    uint32_t    g = lane_index() / 4, t = lane_index() % 4;
    global_rows rows = {view.q, view.stride, view.tokens - 1};
#pragma unroll
    for (uint32_t j = 0; j < D / 32; j++) {
        fl_words4 low  = load16(rows.at(first_row + g, 4 * j + t));
        fl_words4 high = load16(rows.at(first_row + g + 8, 4 * j + t));
        for (int i = 0; i < 4; i++) {
            s.q[2 * j][i]     = i & 1 ? high.w[i / 2] : low.w[i / 2];
            s.q[2 * j + 1][i] = i & 1 ? high.w[i / 2 + 2] : low.w[i / 2 + 2];
        }
    }
#pragma unroll
    for (int tile = 0; tile < query_state<D>::TILES; tile++) {
        for (int i = 0; i < 4; i++) {
            s.o[tile][i] = 0.0f;
        }
    }
    s.top[0] = s.top[1] = FL_LEAST;
}

/* Products of the queries with the keys of a block, 8 keys to a tile of the tensor core. */
template <typename T, int D, int KEYS, typename Rows>
FL_FN void score_keys(float (&scores)[KEYS / 8][4], const query_state<D> &s, const Rows &keys) {
    uint32_t g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (uint32_t tile = 0; tile < KEYS / 8; tile++) {
        for (int i = 0; i < 4; i++) {
            scores[tile][i] = 0.0f;
        }
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            fl_words4 k = load16(keys.at(tile * 8 + g, 4 * j + t));
            mma(T(), scores[tile], s.q[2 * j], k.w[0], k.w[1]);
            mma(T(), scores[tile], s.q[2 * j + 1], k.w[2], k.w[3]);
        }
    }
}

/* What a score is besides a product. `window` points at key 0 of the block for query row g; only
 * rules have one. */
struct score_rule {
    float        scale; /* times log2(e) */
    const float *window;
};

/* The rule, which scales, and the end of the text; of a plain block that is full nothing. */
template <int KEYS, bool RULED, bool FULL>
FL_FN void finish_scores(float (&scores)[KEYS / 8][4], const score_rule &rule, uint32_t count) {
    uint32_t t = lane_index() % 4;
#pragma unroll
    for (uint32_t tile = 0; tile < KEYS / 8; tile++) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t key = tile * 8 + 2 * t + i % 2;
            if constexpr (RULED) {
                int32_t away    = static_cast<int32_t>(key) - (i < 2 ? 0 : 8);
                scores[tile][i] = scores[tile][i] * rule.scale + rule.window[away];
            }
            if constexpr (!FULL) {
                scores[tile][i] = key < count ? scores[tile][i] : -INFINITY;
            }
        }
    }
}

/* Scores become exp2(score * scale - maximum); what was summed under an older maximum is rescaled. */
template <int D, int KEYS>
FL_FN void soften(float (&scores)[KEYS / 8][4], query_state<D> &s, float scale) {
    for (int r = 0; r < 2; r++) {
        float top = -INFINITY;
#pragma unroll
        for (int tile = 0; tile < KEYS / 8; tile++) {
            top = fmaxf(top, fmaxf(scores[tile][2 * r], scores[tile][2 * r + 1]));
        }
        top          = fmaxf(top, shuffle_xor(top, 1));
        top          = fmaxf(s.top[r], fmaxf(top, shuffle_xor(top, 2)) * scale);
        float factor = fast_exp2(s.top[r] - top);
#pragma unroll
        for (int tile = 0; tile < KEYS / 8; tile++) {
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                scores[tile][i] = fast_exp2(scores[tile][i] * scale - top);
            }
        }
        s.top[r] = top;
#pragma unroll
        for (int tile = 0; tile < query_state<D>::TILES; tile++) {
            s.o[tile][2 * r] *= factor;
            s.o[tile][2 * r + 1] *= factor;
        }
    }
}

/* `WIDE` neighbours of the values of one key: the lane's columns in one part of the row. */
template <int D, int WIDE, typename Rows>
FL_FN void load_value(uint32_t (&w)[WIDE / 2], const Rows &values, uint32_t key, uint32_t part) {
    uint32_t g = lane_index() / 4;
    if constexpr (D == 32) {
        fl_words2 v = load8(values.at(key, g / 2) + g % 2 * 8);
        w[0]        = v.w[0];
        w[1]        = v.w[1];
    } else {
        fl_words4 v = load16(values.at(key, part * 8 + g));
        for (int i = 0; i < 4; i++) {
            w[i] = v.w[i];
        }
    }
}

/* o += p v for the block: 16 keys at a time, whose scores are in two tiles already in the layout of
 * a product's left factor. */
template <typename T, int D, int KEYS, typename Rows>
FL_FN void add_values(query_state<D> &s, const float (&p)[KEYS / 8][4], const Rows &values) {
    constexpr int WIDE = D == 32 ? 4 : 8, PARTS = D / 8 / WIDE;
    uint32_t      t = lane_index() % 4, ones = pack2(T(), 1.0f, 1.0f);
#pragma unroll
    for (uint32_t step = 0; step < KEYS / 16; step++) {
        uint32_t a[4], key = step * 16 + 2 * t;
        for (int i = 0; i < 4; i++) {
            a[i] = pack2(T(), p[2 * step + i / 2][i % 2 * 2], p[2 * step + i / 2][i % 2 * 2 + 1]);
        }
        mma(T(), s.o[query_state<D>::SUM], a, ones, ones);
#pragma unroll
        for (uint32_t part = 0; part < PARTS; part++) {
            uint32_t v[4][WIDE / 2];
            load_value<D, WIDE>(v[0], values, key, part);
            load_value<D, WIDE>(v[1], values, key + 1, part);
            load_value<D, WIDE>(v[2], values, key + 8, part);
            load_value<D, WIDE>(v[3], values, key + 9, part);
#pragma unroll
            for (int i = 0; i < WIDE / 2; i++) {
                float(*o)[4] = s.o + part * WIDE + 2 * i;
                mma(T(), o[0], a, lower_halves(v[0][i], v[1][i]), lower_halves(v[2][i], v[3][i]));
                mma(T(), o[1], a, upper_halves(v[0][i], v[1][i]), upper_halves(v[2][i], v[3][i]));
            }
        }
    }
}

/* One block of keys, of which `count` are the text's. */
template <typename T, int D, int KEYS, bool RULED, bool FULL, typename Rows>
FL_FN void attend_block(query_state<D> &s, const Rows &keys, const Rows &values, uint32_t count,
                        const score_rule &rule) {
    float scores[KEYS / 8][4];
    score_keys<T, D, KEYS>(scores, s, keys);
    finish_scores<KEYS, RULED, FULL>(scores, rule, count);
    soften<D, KEYS>(scores, s, RULED ? 1.0f : rule.scale);
    add_values<T, D, KEYS>(s, scores, values);
}

/* A block that may not be full: half of the work where half of the block holds all of its keys.
 * Nothing in a block is conditional, so that the compiler has its loads on the way early. */
template <typename T, int D, int KEYS, bool RULED, typename Rows>
FL_FN void attend_rest(query_state<D> &s, const Rows &keys, const Rows &values, uint32_t count,
                       const score_rule &rule) {
    if constexpr (KEYS > 16) {
        if (count <= KEYS / 2) {
            attend_rest<T, D, KEYS / 2, RULED>(s, keys, values, count, rule);
            return;
        }
    }
    attend_block<T, D, KEYS, RULED, false>(s, keys, values, count, rule);
}

/* All blocks of a long text but its last are full. */
template <typename T, int D, int KEYS, bool RULED, typename Rows>
FL_FN void attend(query_state<D> &s, const Rows &keys, const Rows &values, uint32_t count,
                  const score_rule &rule) {
    if (count == KEYS) {
        attend_block<T, D, KEYS, RULED, true>(s, keys, values, count, rule);
    } else {
        attend_rest<T, D, KEYS, RULED>(s, keys, values, count, rule);
    }
}

/* Row g (r = 0) or g + 8 (r = 1): the lane's outputs are neighbours, 2 * WIDE of each part. */
template <typename T, int D>
FL_FN void write_row(const query_state<D> &s, int r, float factor, char *row) {
    constexpr int WIDE = D == 32 ? 4 : 8, PARTS = D / 8 / WIDE;
    uint32_t      t = lane_index() % 4;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        uint32_t w[WIDE];
#pragma unroll
        for (int i = 0; i < WIDE; i++) { /* word i: columns 2i, 2i + 1 of this lane */
            const float(*o)[4] = s.o + part * WIDE + 2 * i % WIDE;
            int column         = 2 * r + (2 * i >= WIDE);
            w[i]               = pack2(T(), o[0][column] * factor, o[1][column] * factor);
        }
#pragma unroll
        for (int i = 0; i < WIDE; i += 4) {
            store16(row + part * 128 + t * WIDE * 4 + i * 4,
                    {{w[i], w[i + 1], w[i + 2], w[i + 3]}});
        }
    }
}

template <typename T, int D>
FL_FN void write_queries(const query_state<D> &s, const attention_view &view, uint32_t first_row) {
    for (int r = 0; r < 2; r++) {
        uint32_t row = first_row + lane_index() / 4 + 8 * static_cast<uint32_t>(r);
        if (row < view.tokens) {
            write_row<T, D>(s, r, 1.0f / s.o[query_state<D>::SUM][2 * r],
                            view.out + row * view.out_stride);
        }
    }
}

#endif
