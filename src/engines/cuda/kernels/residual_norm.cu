/* SPDX-License-Identifier: Apache-2.0 */
/* residual_norm.cu - fl_residual_norm: LayerNorm of a row, a product's row and its bias together.
 *
 * Method  A warp per row, all of it in registers: norm.cuh. out may be x, since a lane writes only
 *         what it alone has read.
 * Limit   Bytes: 3 rows of hidden values per token. On an H200 (4.8 TB/s) 16k tokens of 16-bit 384
 *         take 8 us from memory, less where the rows are still in the L2 (50 MB).
 * Measure bytes / time against the copy speed of the device. */
#include "norm.cuh"

template <typename T> struct residual_source {
    const T     *x, *y; /* rows */
    const float *bias;

    FL_METHOD void operator()(uint32_t column, float (&v)[FL_PIECE]) const {
        load_piece(T(), x, column, v);
        add_piece(T(), y, column, v);
        add_piece(float(), bias, column, v);
    }
};

template <typename T> FL_FN void residual_norm(const fl_cuda_residual_norm &p) {
    uint32_t token = row_of_warp();
    if (token >= p.meta->tokens) {
        return;
    }
    size_t             at     = static_cast<size_t>(token) * p.hidden;
    residual_source<T> source = {static_cast<const T *>(p.x) + at, static_cast<const T *>(p.y) + at,
                                 p.bias};
    norm_row<T>(
        norm_of_row(p.norm_w, p.norm_b, static_cast<T *>(p.out) + at, p.e4m3, at, p.hidden, p.eps),
        source);
}

FL_KERNELS_OF_TYPES(fl_residual_norm, fl_cuda_residual_norm, FL_CUDA_ROW_THREADS, 2, residual_norm)
