/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.cu - fl_tiles: the work lists of the attention kernels, made on the device.
 *
 * Method  One block; 256 texts at a time. A text starts a short tile when it is short and the text
 *         before it is long or begins in another window of 64 tokens; a long text has a tile for
 *         each 64 of its rows. Where a text's tiles stand in the lists is the count of all before
 *         it: a scan by warps, both counts in one 64-bit sum (short below, long above).
 * Bytes   Which texts share a tile depends on the batch; no sum does: see attention.cuh.
 * Limit   Latency: a few microseconds for thousands of texts, once per batch, beside fl_embed. */
#include "elements.cuh"

FL_FN bool is_short(const uint32_t *cu, uint32_t text) {
    return cu[text + 1] - cu[text] <= FL_CUDA_SHORT_TOKENS;
}

/* Both texts are short: do they share a tile? */
FL_FN bool same_window(const uint32_t *cu, uint32_t one, uint32_t other) {
    return cu[one] / FL_CUDA_SHORT_TOKENS == cu[other] / FL_CUDA_SHORT_TOKENS;
}

FL_FN bool starts_short(const uint32_t *cu, uint32_t text) {
    return is_short(cu, text) &&
           (text == 0 || !is_short(cu, text - 1) || !same_window(cu, text, text - 1));
}

FL_FN uint32_t long_tiles_of(const uint32_t *cu, uint32_t text) {
    return is_short(cu, text) ? 0 : (cu[text + 1] - cu[text] + FL_CUDA_TILE - 1) / FL_CUDA_TILE;
}

FL_FN void write_short(const fl_cuda_tiles &p, uint32_t texts, uint32_t text, uint32_t at) {
    if (at >= p.short_capacity) {
        return;
    }
    uint32_t end = text + 1;
    while (end < texts && is_short(p.cu, end) && same_window(p.cu, text, end)) {
        end++;
    }
    p.short_tiles[at] = {text, end - text};
}

/* The sum of `value` over this thread and all before it; `total` over the block. */
FL_FN uint64_t block_scan(uint64_t value, uint64_t &total) {
    enum { WARPS = FL_CUDA_TILES_THREADS / FL_CUDA_WARP };
    FL_SHARED(uint64_t, warps, WARPS);
    for (unsigned by = 1; by < FL_CUDA_WARP; by *= 2) {
        uint64_t before = shuffle_up(value, by);
        value += lane_index() >= by ? before : 0;
    }
    if (lane_index() == FL_CUDA_WARP - 1) {
        warps[warp_index()] = value;
    }
    block_sync();
    total = 0;
    for (uint32_t w = 0; w < WARPS; w++) {
        value += w < warp_index() ? warps[w] : 0;
        total += warps[w];
    }
    block_sync(); /* the next scan writes the same array */
    return value;
}

FL_FN void tiles(const fl_cuda_tiles &p) {
    uint32_t texts = p.meta->texts;
    uint64_t done  = 0;
    for (uint32_t start = 0; start < texts; start += FL_CUDA_TILES_THREADS) {
        uint32_t text  = start + thread_index();
        bool     first = text < texts && starts_short(p.cu, text);
        uint32_t count = text < texts ? long_tiles_of(p.cu, text) : 0;
        uint64_t total, own = first | static_cast<uint64_t>(count) << 32;
        uint64_t before = done + block_scan(own, total) - own;
        if (first) {
            write_short(p, texts, text, static_cast<uint32_t>(before));
        }
        uint32_t at = static_cast<uint32_t>(before >> 32);
        for (uint32_t i = 0; i < count && at + i < p.long_capacity; i++) {
            p.long_tiles[at + i] = {text, i};
        }
        done += total;
    }
    if (thread_index() == 0) {
        uint32_t shorts = static_cast<uint32_t>(done), longs = static_cast<uint32_t>(done >> 32);
        *p.short_count = smaller(shorts, p.short_capacity);
        *p.long_count  = smaller(longs, p.long_capacity);
    }
}

FL_KERNEL(fl_tiles, fl_cuda_tiles, FL_CUDA_TILES_THREADS, 1, tiles)
