/* SPDX-License-Identifier: Apache-2.0 */
/* embed.cu - fl_embed: token ids become rows, normed where the model has a norm there.
 *
 * Method  A warp per token. The text is found by a search of cu with 32 probes at a time: two or
 *         three reads for any batch. The position is the place in the text; where the architecture
 *         has a padding row (pad_token), a literal pad token takes that row and the others are
 *         counted without it.
 * Limit   Bytes: a word row (from the table, scattered), a position row (from the cache) and a row
 *         out per token: 16-bit hidden 384 about 1.5 kB from memory. The search hides behind other
 *         warps.
 * Measure share of the forward pass; if the search shows at batch 1, let the host send it. */
#include "norm.cuh"

/* The last text whose first token is not behind `token`. */
FL_FN uint32_t text_of_token(const uint32_t *cu, uint32_t texts, uint32_t token) {
    uint32_t low = 0, high = texts; /* cu[low] <= token < cu[high] */
    while (high - low > 1) {
        uint32_t step  = (high - low + FL_CUDA_WARP - 1) / FL_CUDA_WARP;
        uint32_t probe = low + lane_index() * step;
        uint32_t found = bits_set(warp_ballot(probe < high && cu[probe] <= token));
        low += (found - 1) * step;
        high = smaller(low + step, high);
    }
    return low;
}

/* Pad tokens of the text before `token`, counted 32 at a time. */
FL_FN uint32_t pads_before(const int32_t *ids, uint32_t first, uint32_t token, int32_t pad) {
    uint32_t count = 0;
    for (uint32_t start = first; start < token; start += FL_CUDA_WARP) {
        uint32_t at = start + lane_index();
        count += bits_set(warp_ballot(at < token && ids[at] == pad));
    }
    return count;
}

FL_FN uint32_t position_row(const fl_cuda_embed &p, uint32_t first, uint32_t token) {
    uint32_t place = token - first;
    if (p.pad_token >= 0) {
        if (p.ids[token] == p.pad_token) {
            return static_cast<uint32_t>(p.pad_token);
        }
        place -= pads_before(p.ids, first, token, p.pad_token);
    }
    return place + p.position_offset;
}

template <typename T> struct embed_source {
    const T *word, *position, *type; /* rows */

    FL_METHOD void operator()(uint32_t column, float (&v)[FL_PIECE]) const {
        load_piece(T(), word, column, v);
        add_piece(T(), position, column, v);
        add_piece(T(), type, column, v);
    }
};

template <typename T> FL_FN void embed(const fl_cuda_embed &p) {
    uint32_t token = row_of_warp();
    if (token >= p.meta->tokens) {
        return;
    }
    uint32_t text      = text_of_token(p.cu, p.meta->texts, token);
    size_t   position  = position_row(p, p.cu[text], token);
    const T *positions = static_cast<const T *>(p.position);
    size_t   id        = static_cast<size_t>(p.ids[token]);
    const T *type      = static_cast<const T *>(p.type);
    if (p.segment != nullptr && token - p.cu[text] >= p.segment[text]) {
        type += p.hidden;
    }
    if (p.places != nullptr && lane_index() == 0) {
        p.places[token] = token - p.cu[text];
    }

    embed_source<T> source = {static_cast<const T *>(p.word) + id * p.hidden,
                              positions ? positions + position * p.hidden : nullptr, type};
    size_t          at     = static_cast<size_t>(token) * p.hidden;
    T              *x      = static_cast<T *>(p.x) + at;
    norm_row<T>({p.norm_w, p.norm_b, x, p.norm_w == nullptr ? x : nullptr,
                 p.e4m3.rows == nullptr ? p.e4m3.rows : p.e4m3.rows + at, p.e4m3.factor, p.hidden,
                 false, p.eps},
                source);
}

FL_KERNELS_OF_TYPES(fl_embed, fl_cuda_embed, FL_CUDA_ROW_THREADS, 2, embed)
