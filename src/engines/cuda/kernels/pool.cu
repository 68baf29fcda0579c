/* SPDX-License-Identifier: Apache-2.0 */
/* pool.cu - fl_pool: the rows of a text become one row, in the six ways of sentence-transformers.
 *
 * Method  A block per text. Every way is a sum or a maximum over a range of tokens, weighted or
 *         not, divided by a number: the plan. Threads stand side by side over the columns, 8 each;
 *         where the row is narrow several groups of them take every n-th token, and the groups'
 *         results are put together in their order. So the sum depends on the text's length and the
 *         hidden size alone.
 * Skip    The first `skip` tokens (a prompt that is left out) are out of the max, the means and the
 *         last token; cls is the first token that is left; weights count from the text's head. A
 *         text of which nothing is left gives 0 (max: -1e9), cls its token 0.
 * Limit   Bytes: every row once per kind, and a row out.
 * Measure only if it shows: texts / SMs blocks of short loops; several texts to a block would help
 *         16-token texts. */
#include "elements.cuh"

/* fl_pooling of model/encoder.h; the conformance tool checks that they agree. */
enum {
    FL_CUDA_POOL_CLS,
    FL_CUDA_POOL_MAX,
    FL_CUDA_POOL_MEAN,
    FL_CUDA_POOL_MEAN_SQRT_LEN,
    FL_CUDA_POOL_WEIGHTED_MEAN,
    FL_CUDA_POOL_LAST_TOKEN
};

struct pool_plan {
    uint32_t first, end; /* tokens of the text */
    bool     maximum, by_position;
    float    divisor;
};

FL_FN pool_plan plan_pooling(int32_t kind, uint32_t tokens, uint32_t skip) {
    float     count = tokens > skip ? static_cast<float>(tokens - skip) : 1e-9f;
    pool_plan plan  = {skip, tokens, false, false, 1.0f};
    switch (kind) {
    case FL_CUDA_POOL_CLS:
        plan.first = skip < tokens ? skip : 0;
        plan.end   = plan.first < tokens ? plan.first + 1 : tokens;
        break;
    case FL_CUDA_POOL_MAX: plan.maximum = true; break;
    case FL_CUDA_POOL_MEAN: plan.divisor = count; break;
    case FL_CUDA_POOL_MEAN_SQRT_LEN: plan.divisor = sqrtf(count); break;
    case FL_CUDA_POOL_WEIGHTED_MEAN: {
        float all        = 0.5f * static_cast<float>(tokens) * static_cast<float>(tokens + 1);
        float head       = 0.5f * static_cast<float>(skip) * static_cast<float>(skip + 1);
        plan.by_position = true;
        plan.divisor     = fmaxf(all - head, 1e-9f);
        break;
    }
    default: plan.first = tokens > skip ? tokens - 1 : tokens; break;
    }
    return plan;
}

/* NaN must show: a maximum would pass over it. */
FL_FN float combine(const pool_plan &plan, float so_far, float value) {
    if (!plan.maximum) {
        return so_far + value;
    }
    return value > so_far || isnan(value) ? value : so_far;
}

template <typename T>
FL_FN void pool_tokens(const pool_plan &plan, const T *x, uint32_t hidden, uint32_t group,
                       uint32_t groups, float (&v)[FL_PIECE]) {
    for (int i = 0; i < FL_PIECE; i++) {
        v[i] = plan.maximum ? -1e9f : 0.0f;
    }
#pragma unroll 4
    for (uint32_t token = plan.first + group; token < plan.end; token += groups) {
        float more[FL_PIECE], weight = plan.by_position ? static_cast<float>(token + 1) : 1.0f;
        load_piece(T(), x, static_cast<size_t>(token) * hidden, more);
        for (int i = 0; i < FL_PIECE; i++) {
            v[i] = combine(plan, v[i], more[i] * weight);
        }
    }
}

/* Columns [first, first + 8 * columns) of one kind; false where a value is not finite. */
template <typename T>
FL_FN bool pool_columns(const pool_plan &plan, const T *x, uint32_t hidden, uint32_t first,
                        uint32_t columns, float *out) {
    FL_SHARED(float, parts, FL_CUDA_POOL_THREADS *FL_PIECE);
    uint32_t groups = FL_CUDA_POOL_THREADS / columns, group = thread_index() / columns;
    uint32_t column = first + thread_index() % columns * FL_PIECE;
    bool     works = group < groups && column < hidden, finite = true;
    if (works) {
        float v[FL_PIECE];
        pool_tokens<T>(plan, x + column, hidden, group, groups, v);
        store_piece(float(), parts, thread_index() * FL_PIECE, v);
    }
    block_sync();
    if (works && group == 0) {
        float v[FL_PIECE];
        load_piece(float(), parts, thread_index() * FL_PIECE, v);
        for (uint32_t g = 1; g < groups; g++) {
            float more[FL_PIECE];
            load_piece(float(), parts, (g * columns + thread_index()) * FL_PIECE, more);
            for (int i = 0; i < FL_PIECE; i++) {
                v[i] = combine(plan, v[i], more[i]);
            }
        }
        for (int i = 0; i < FL_PIECE; i++) {
            v[i] /= plan.divisor;
            finite = finite && isfinite(v[i]);
        }
        store_piece(float(), out, column, v);
    }
    block_sync(); /* the next columns write the same array */
    return finite;
}

/* One word for the block: 1 where any thread saw a value that is not finite. */
FL_FN void tell_bad(uint32_t *bad, bool finite) {
    enum { WARPS = FL_CUDA_POOL_THREADS / FL_CUDA_WARP };
    FL_SHARED(uint32_t, seen, WARPS);
    uint32_t votes = warp_ballot(!finite);
    if (lane_index() == 0) {
        seen[warp_index()] = votes;
    }
    block_sync();
    if (thread_index() == 0) {
        uint32_t any = 0;
        for (uint32_t w = 0; w < WARPS; w++) {
            any |= seen[w];
        }
        *bad = any != 0;
    }
}

template <typename T> FL_FN void pool(const fl_cuda_pool &p) {
    uint32_t text = block_x();
    if (text >= p.meta->texts) {
        return;
    }
    uint32_t tokens = p.cu[text + 1] - p.cu[text];
    uint32_t skip   = p.skip != nullptr ? smaller(p.skip[text], tokens) : 0;
    uint32_t wide   = smaller(p.hidden / FL_PIECE, FL_CUDA_POOL_THREADS);
    const T *x      = static_cast<const T *>(p.x) + static_cast<size_t>(p.cu[text]) * p.hidden;
    bool     finite = true;
    for (uint32_t k = 0; k < p.kinds; k++) {
        pool_plan plan = plan_pooling(p.kind[k], tokens, skip);
        float    *out  = p.rows + (static_cast<size_t>(text) * p.kinds + k) * p.hidden;
        for (uint32_t first = 0; first < p.hidden; first += wide * FL_PIECE) {
            finite = pool_columns<T>(plan, x, p.hidden, first, wide, out) && finite;
        }
    }
    tell_bad(p.bad + text, finite);
}

FL_KERNELS_OF_TYPES(fl_pool, fl_cuda_pool, FL_CUDA_POOL_THREADS, 4, pool)
