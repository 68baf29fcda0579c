/* SPDX-License-Identifier: Apache-2.0 */
/* attention_long.cu - fl_attention_long: 64 query rows of one text to a block, all its keys.
 *
 * Method  Four warps of 16 query rows each. Keys and values pass through shared memory in blocks of
 *         64 (32 where D = 128), two deep: while a block is worked on, the next is copied
 *         asynchronously. One barrier a block: behind it the block's copies have arrived and nobody
 *         reads the other buffer any more. The rule of the 127 distances of a tile and a block is
 *         put beside them. Where it only bounds what is seen, blocks of which no row of the tile sees
 *         anything are never read, a warp passes over those that its own rows do not see, and one
 *         that it sees wholly is a plain one.
 * Limit   See attention.cuh; up to 33 KiB of shared memory, so that registers decide how many
 *         blocks fit: on sm_90a 157 for D = 32, 161 for 64 (3 blocks), 187 for 128 (2); nothing
 *         spills.
 * Measure base models at 512 tokens: FLOP/s of this kernel against 329 TFLOP/s
 *         (FlashAttention-2 in Triton on an H100, D = 128) and its share of the forward pass. If it
 *         is more than 15 % of the pass, wgmma is worth its trouble. */
#include "attention_f32.cuh"

template <int D> struct long_stage {
    enum { KEYS = D == 128 ? 32 : 64, BYTES = KEYS * D * 2, CHUNKS = KEYS * D / 8 };
    char  *buffer; /* two times keys and values */
    float *window; /* two times */

    FL_METHOD char  *keys(uint32_t turn) const { return buffer + turn % 2 * 2 * BYTES; }
    FL_METHOD char  *values(uint32_t turn) const { return keys(turn) + BYTES; }
    FL_METHOD float *biases(uint32_t turn) const { return window + turn % 2 * FL_WINDOW; }
};

/* Start the copies of block `turn` of the keys. */
template <int D, bool RULED>
FL_FN void stage_block(const fl_cuda_attention &p, const long_stage<D> &stage,
                       const attention_view &view, uint32_t first_row, uint32_t turn) {
    uint32_t    key = turn * stage.KEYS, last = view.tokens - 1 - key;
    global_rows keys   = {view.k + key * view.stride, view.stride, last};
    global_rows values = {view.v + key * view.stride, view.stride, last};
#pragma unroll
    for (uint32_t i = thread_index(); i < stage.CHUNKS; i += FL_CUDA_ATTENTION_THREADS) {
        uint32_t row = i / (D / 8), chunk = i % (D / 8), to = staged_chunk<D>(row, chunk) * 16;
        copy16_async(stage.keys(turn) + to, keys.at(row, chunk));
        copy16_async(stage.values(turn) + to, values.at(row, chunk));
    }
    copies_commit();
    if constexpr (RULED) {
        int32_t first = static_cast<int32_t>(key) - static_cast<int32_t>(first_row);
        fill_window(p, stage.biases(turn), first - FL_CUDA_TILE + 1, block_y());
    }
}

/* Blocks of keys that some row of the tile sees. */
struct block_range {
    uint32_t first, end;
};

template <int KEYS>
FL_FN block_range blocks_seen(const fl_cuda_attention &p, uint32_t first_row, uint32_t tokens) {
    int32_t  lowest = static_cast<int32_t>(first_row) - p.before;
    uint32_t above  = smaller(first_row + FL_CUDA_TILE + static_cast<uint32_t>(p.after), tokens);
    return {lowest > 0 ? static_cast<uint32_t>(lowest) / KEYS : 0, (above + KEYS - 1) / KEYS};
}

/* Whether the 16 rows from `row` on see no key, or every key, of a block. */
enum seen { SEEN_NOTHING, SEEN_PARTLY, SEEN_WHOLLY };

template <int KEYS> FL_FN seen sees_block(const fl_cuda_attention &p, uint32_t row, uint32_t key) {
    int32_t nearest = static_cast<int32_t>(key) - static_cast<int32_t>(row); /* of the first row */
    int32_t least = nearest - (FL_QUERY_ROWS - 1), most = nearest + KEYS - 1;
    if (least > p.after || most < -p.before) {
        return SEEN_NOTHING;
    }
    return p.bias == nullptr && least >= -p.before && most <= p.after ? SEEN_WHOLLY : SEEN_PARTLY;
}

/* The body for 16-bit types; a warp whose rows are all behind the text's end still copies. */
template <typename T, int D, bool RULED>
FL_FN void long_rows(const fl_cuda_attention &p, uint32_t text, uint32_t first_row) {
    using stage_type   = long_stage<D>;
    constexpr int KEYS = stage_type::KEYS;
    FL_SHARED(char, buffer, 4 * stage_type::BYTES);
    FL_SHARED(float, window, RULED ? 2 * FL_WINDOW : 1);
    stage_type     stage = {buffer, window};
    attention_view view  = view_of<T, D>(p, text, block_y());
    uint32_t       own   = warp_index() * FL_QUERY_ROWS; /* in the tile */
    bool           works = first_row + own < view.tokens;
    uint32_t       place = FL_CUDA_TILE - 1 - own - lane_index() / 4; /* of distance 0 */
    block_range    range = {0, (view.tokens + KEYS - 1) / KEYS};
    query_state<D> state;
    if constexpr (RULED) {
        range = blocks_seen<KEYS>(p, first_row, view.tokens);
    }
    stage_block<D, RULED>(p, stage, view, first_row, range.first);
    load_queries<D>(state, view, first_row + own);
    for (uint32_t turn = range.first; turn < range.end; turn++) {
        uint32_t left = smaller(view.tokens - turn * KEYS, KEYS);
        copies_wait<0>();
        block_sync();
        if (turn + 1 < range.end) {
            stage_block<D, RULED>(p, stage, view, first_row, turn + 1);
        }
        if (!works) {
            continue;
        }
        staged_rows<D> keys = {stage.keys(turn)}, values = {stage.values(turn)};
        score_rule     rule = {p.scale * FL_LOG2E, RULED ? stage.biases(turn) + place : nullptr};
        seen how = RULED ? sees_block<KEYS>(p, first_row + own, turn * KEYS) : SEEN_WHOLLY;
        if (how == SEEN_WHOLLY) {
            attend<T, D, KEYS, false>(state, keys, values, left, rule);
        } else if (how == SEEN_PARTLY) {
            attend<T, D, KEYS, true>(state, keys, values, left, rule);
        }
    }
    if (works) {
        write_queries<T, D>(state, view, first_row + own);
    }
}

template <typename T, int D, bool RULED> FL_FN void attention_tile(const fl_cuda_attention &p) {
    if (block_x() >= p.meta->long_tiles) {
        return;
    }
    fl_cuda_tile tile = p.tiles[block_x()];
    long_rows<T, D, RULED>(p, tile.first, tile.count * FL_CUDA_TILE);
}
template <typename T, int D> FL_FN void attention_long(const fl_cuda_attention &p) {
    attention_tile<T, D, false>(p);
}
template <typename T, int D> FL_FN void attention_long_ruled(const fl_cuda_attention &p) {
    attention_tile<T, D, true>(p);
}

template <int D> FL_FN void attention_long_f32(const fl_cuda_attention &p) {
    if (block_x() >= p.meta->long_tiles) {
        return;
    }
    fl_cuda_tile tile = p.tiles[block_x()];
    uint32_t     row  = tile.count * FL_CUDA_TILE + warp_index() * FL_QUERY_ROWS;
    plain_rows<D>(p, tile.first, block_y(), row);
}

#define FL_ATTENTION_LONG_RULE(name, body, D, blocks)                                              \
    FL_KERNEL(name##_f32_##D, fl_cuda_attention, FL_CUDA_ATTENTION_THREADS, 2,                     \
              attention_long_f32<D>)                                                               \
    FL_KERNEL(name##_f16_##D, fl_cuda_attention, FL_CUDA_ATTENTION_THREADS, blocks,                \
              body<fl_f16, D>)                                                                     \
    FL_KERNEL(name##_bf16_##D, fl_cuda_attention, FL_CUDA_ATTENTION_THREADS, blocks,               \
              body<fl_bf16, D>)
#define FL_ATTENTION_LONG(D, blocks)                                                               \
    FL_ATTENTION_LONG_RULE(fl_attention_long, attention_long, D, blocks)                           \
    FL_ATTENTION_LONG_RULE(fl_attention_long_ruled, attention_long_ruled, D, blocks)

FL_ATTENTION_LONG(32, 3)
FL_ATTENTION_LONG(64, 3)
FL_ATTENTION_LONG(128, 2)
