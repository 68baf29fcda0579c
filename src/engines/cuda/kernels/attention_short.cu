/* SPDX-License-Identifier: Apache-2.0 */
/* attention_short.cu - fl_attention_short: texts of up to 64 tokens, several to a block.
 *
 * Method  The warps of a block take the tile's texts in groups of 16 query rows. A warp reads its
 *         queries, keys and values from global memory straight into the tensor core's layout, 16
 *         bytes a lane: no shared memory (but for the bias), no barrier, and a text never meets
 *         another's keys. The four groups of a 64-token text read the same keys from the L1.
 * Limit   Bytes and latency: 4 hidden rows per token; warps in flight hide the loads. Registers on
 *         sm_90a: D = 32 124 (4 blocks a processor); D = 64 124 (4); D = 128 248 (2). With 32 keys
 *         at a time D = 64 would need 196, and 128 spill; so it takes 16, and half as many loads
 *         are on the way of twice as many warps.
 * Measure bytes / time with 3, 4 and 5 blocks (the macro's number below); whether texts of 8 tokens
 *         and fewer (half of the 16 rows empty) are common enough to pair them. */
#include "attention_f32.cuh"

template <typename T, int D, bool RULED> struct short_group {
    const fl_cuda_attention &p;
    const float             *window; /* RULED */

    FL_METHOD void operator()(uint32_t text, uint32_t row) const {
        constexpr int  KEYS = D == 64 ? 16 : 32; /* see Limit */
        attention_view view = view_of<T, D>(p, text, block_y());
        /* window[63] is distance 0 */
        uint32_t       place = FL_CUDA_TILE - 1 - row - lane_index() / 4;
        query_state<D> state;
        load_queries<D>(state, view, row);
#pragma unroll 1
        for (uint32_t key = 0; key < view.tokens; key += KEYS) {
            uint32_t    last   = view.tokens - 1 - key;
            global_rows keys   = {view.k + key * view.stride, view.stride, last};
            global_rows values = {view.v + key * view.stride, view.stride, last};
            score_rule  rule   = {p.scale * FL_LOG2E, RULED ? window + place + key : nullptr};
            attend_rest<T, D, KEYS, RULED>(state, keys, values, smaller(last + 1, KEYS), rule);
        }
        write_queries<T, D>(state, view, row);
    }
};

template <int D, bool RULED> struct short_group<float, D, RULED> {
    const fl_cuda_attention &p;
    const float             *window; /* not used: any distance is read from the table */

    FL_METHOD void operator()(uint32_t text, uint32_t row) const {
        plain_rows<D>(p, text, block_y(), row);
    }
};

template <typename T, int D> FL_FN void attention_short(const fl_cuda_attention &p) {
    if (block_x() < p.meta->short_tiles) {
        groups_of_tile(p, short_group<T, D, false>{p, nullptr});
    }
}

template <typename T, int D> FL_FN void attention_short_ruled(const fl_cuda_attention &p) {
    FL_SHARED(float, window, FL_WINDOW);
    if (block_x() >= p.meta->short_tiles) {
        return;
    }
    fill_window(p, window, 1 - FL_CUDA_TILE, block_y());
    block_sync();
    groups_of_tile(p, short_group<T, D, true>{p, window});
}

#define FL_ATTENTION_SHORT_RULE(name, body, D, blocks)                                             \
    FL_KERNEL(name##_f32_##D, fl_cuda_attention, FL_CUDA_ATTENTION_THREADS, 2, body<float, D>)     \
    FL_KERNEL(name##_f16_##D, fl_cuda_attention, FL_CUDA_ATTENTION_THREADS, blocks,                \
              body<fl_f16, D>)                                                                     \
    FL_KERNEL(name##_bf16_##D, fl_cuda_attention, FL_CUDA_ATTENTION_THREADS, blocks,               \
              body<fl_bf16, D>)
#define FL_ATTENTION_SHORT(D, blocks)                                                              \
    FL_ATTENTION_SHORT_RULE(fl_attention_short, attention_short, D, blocks)                        \
    FL_ATTENTION_SHORT_RULE(fl_attention_short_ruled, attention_short_ruled, D, blocks)

FL_ATTENTION_SHORT(32, 4)
FL_ATTENTION_SHORT(64, 4)
FL_ATTENTION_SHORT(128, 2)
