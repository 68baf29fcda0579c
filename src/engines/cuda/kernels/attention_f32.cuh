/* SPDX-License-Identifier: Apache-2.0 */
/* attention_f32.cuh - the same in float32, by plain multiply-adds: the precision that others are
 * judged by, and the retry of rows that a narrower type could not hold.
 *
 * Method  A warp takes 4 query rows at a time. For the scores a lane has a key, 32 keys to a block;
 *         for the output it has D / 32 columns, and the 4 x 32 probabilities pass through shared
 *         memory. Online softmax as in attention.cuh.
 * Limit   The L1 (a key's row is read by one lane, 16 bytes at a time) and float units; no attempt
 *         at more: who wants speed has 16 bits. */
#ifndef FL_ENGINES_CUDA_KERNELS_ATTENTION_F32_CUH
#define FL_ENGINES_CUDA_KERNELS_ATTENTION_F32_CUH

#include "attention.cuh"

enum { FL_PLAIN_ROWS = 4 };

template <int D> struct plain_state {
    float o[FL_PLAIN_ROWS][D / FL_CUDA_WARP];
    float top[FL_PLAIN_ROWS], sum[FL_PLAIN_ROWS];
};

/* scores[r] of this lane's key with query rows row + r. */
template <int D>
FL_FN void plain_scores(float (&scores)[FL_PLAIN_ROWS], const attention_view &view, uint32_t row,
                        uint32_t key) {
    global_rows queries = {view.q, view.stride, view.tokens - 1};
    global_rows keys    = {view.k, view.stride, view.tokens - 1};
    for (int r = 0; r < FL_PLAIN_ROWS; r++) {
        scores[r] = 0.0f;
    }
#pragma unroll 4
    for (uint32_t chunk = 0; chunk < D / 4; chunk++) {
        fl_words4 k = load16(keys.at(key, chunk));
#pragma unroll
        for (int r = 0; r < FL_PLAIN_ROWS; r++) {
            fl_words4 q = load16(queries.at(row + r, chunk));
            for (int i = 0; i < 4; i++) {
                scores[r] += word_float(q.w[i]) * word_float(k.w[i]);
            }
        }
    }
}

/* One block of up to 32 keys. */
template <int D>
FL_FN void plain_block(plain_state<D> &s, const fl_cuda_attention &p, const attention_view &view,
                       uint32_t head, uint32_t row, uint32_t first_key, float *shared) {
    float    scores[FL_PLAIN_ROWS];
    uint32_t key = first_key + lane_index(), count = smaller(view.tokens - first_key, FL_CUDA_WARP);
    plain_scores<D>(scores, view, row, key);
#pragma unroll
    for (int r = 0; r < FL_PLAIN_ROWS; r++) {
        int32_t distance = static_cast<int32_t>(key) - static_cast<int32_t>(row) - r;
        float   score    = (scores[r] * p.scale + bias_at(p, distance, head)) * FL_LOG2E;
        score            = key < view.tokens ? score : -INFINITY;
        float top = fmaxf(s.top[r], warp_max(score)), factor = exp2f(s.top[r] - top);
        float weight = exp2f(score - top);
        s.sum[r]     = s.sum[r] * factor + weight; /* this lane's share */
        s.top[r]     = top;
        for (int c = 0; c < D / FL_CUDA_WARP; c++) {
            s.o[r][c] *= factor;
        }
        shared[lane_index() * FL_PLAIN_ROWS + r] = weight;
    }
    warp_sync();
    for (uint32_t k = 0; k < count; k++) {
        fl_words4    weights = load16(shared + k * FL_PLAIN_ROWS);
        const float *v = reinterpret_cast<const float *>(view.v + (first_key + k) * view.stride);
#pragma unroll
        for (int c = 0; c < D / FL_CUDA_WARP; c++) {
            float value = v[lane_index() + c * FL_CUDA_WARP];
            for (int r = 0; r < FL_PLAIN_ROWS; r++) {
                s.o[r][c] += word_float(weights.w[r]) * value;
            }
        }
    }
    warp_sync(); /* the next block writes the same words */
}

/* 16 query rows from first_row on, all keys. */
template <int D>
FL_FN void plain_rows(const fl_cuda_attention &p, uint32_t text, uint32_t head,
                      uint32_t first_row) {
    FL_SHARED(float, weights, FL_CUDA_ATTENTION_THREADS *FL_PLAIN_ROWS);
    float         *own  = weights + warp_index() * FL_CUDA_WARP * FL_PLAIN_ROWS;
    attention_view view = view_of<float, D>(p, text, head);
    uint32_t       end  = smaller(first_row + FL_QUERY_ROWS, view.tokens);
    for (uint32_t row = first_row; row < end; row += FL_PLAIN_ROWS) {
        plain_state<D> s;
        for (int r = 0; r < FL_PLAIN_ROWS; r++) {
            s.top[r] = FL_LEAST;
            s.sum[r] = 0.0f;
            for (int c = 0; c < D / FL_CUDA_WARP; c++) {
                s.o[r][c] = 0.0f;
            }
        }
        int32_t  lowest = static_cast<int32_t>(row) - p.before;
        uint32_t first  = lowest > 0 ? static_cast<uint32_t>(lowest) / FL_CUDA_WARP : 0;
        uint32_t above = smaller(row + FL_PLAIN_ROWS + static_cast<uint32_t>(p.after), view.tokens);
        for (uint32_t key = first * FL_CUDA_WARP; key < above; key += FL_CUDA_WARP) {
            plain_block<D>(s, p, view, head, row, key, own);
        }
#pragma unroll
        for (uint32_t r = 0; r < FL_PLAIN_ROWS; r++) {
            float  factor = 1.0f / warp_sum(s.sum[r]);
            float *out    = reinterpret_cast<float *>(view.out + (row + r) * view.out_stride);
            for (int c = 0; c < D / FL_CUDA_WARP && row + r < end; c++) {
                out[lane_index() + c * FL_CUDA_WARP] = s.o[r][c] * factor;
            }
        }
    }
}

#endif
