/* SPDX-License-Identifier: Apache-2.0 */
/* residual_norm.cu - fl_residual_norm: norm of a row, to which a product's row may have to be added.
 *
 * Method  A warp per row, all of it in registers: norm.cuh. out and sum may be x or y, since a lane
 *         writes only what it alone has read. Products add to x themselves (cublasLt's beta), but for
 *         those in int8: then y is not there, and a row is read once and written once.
 * Limit   Bytes: 2 rows of hidden values per token. On an H200 (4.8 TB/s) 16k tokens of 16-bit 384
 *         take 5 us from memory, less where the rows are still in the L2 (50 MB).
 * Measure bytes / time against the copy speed of the device. */
#include "norm.cuh"

template <typename T> struct residual_source {
    const T *x, *y; /* rows */

    FL_METHOD void operator()(uint32_t column, float (&v)[FL_PIECE]) const {
        load_piece(T(), x, column, v);
        add_piece(T(), y, column, v);
    }
};

template <typename T> FL_FN void residual_norm(const fl_cuda_residual_norm &p) {
    uint32_t token = row_of_warp();
    if (token >= p.meta->tokens) {
        return;
    }
    size_t             at     = static_cast<size_t>(token) * p.hidden;
    const T           *y      = static_cast<const T *>(p.y);
    T                 *sum    = static_cast<T *>(p.sum);
    residual_source<T> source = {static_cast<const T *>(p.x) + at, y == nullptr ? y : y + at};
    norm_row<T>({p.norm_w, p.norm_b, static_cast<T *>(p.out) + at, sum == nullptr ? sum : sum + at,
                 p.e4m3.rows == nullptr ? p.e4m3.rows : p.e4m3.rows + at, p.e4m3.factor, p.hidden,
                 p.rms != 0, p.eps},
                source);
}

FL_KERNELS_OF_TYPES(fl_residual_norm, fl_cuda_residual_norm, FL_CUDA_ROW_THREADS, 2, residual_norm)
