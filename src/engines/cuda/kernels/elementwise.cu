/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.cu - fl_bias_act, fl_glu and fl_dequantize: what stands between two products.
 *
 * Method  A warp per row, 8 values a lane; the grid's y deals the columns, so that a small batch
 *         still fills the device and a large one has long rows per warp.
 * Limit   Bytes: 16-bit width 1536 is 6 kB per token in and out (bias_act), 9 kB (dequantize, which
 *         reads int32), if the activation is cheap: activation.cuh.
 * Measure against cuBLASLt's own epilogue with GELU (tanh), which saves both passes. */
#include "activation.cuh"

template <typename T> FL_FN void bias_act(const fl_cuda_bias_act &p) {
    uint32_t token = row_of_warp();
    if (token >= p.meta->tokens) {
        return;
    }
    T       *row  = static_cast<T *>(p.x) + static_cast<size_t>(token) * p.width;
    uint32_t step = FL_STEP * grid_y();
    for (uint32_t column = block_y() * FL_STEP + lane_index() * FL_PIECE; column < p.width;
         column += step) {
        float v[FL_PIECE];
        load_piece(T(), row, column, v);
        add_piece(float(), p.bias, column, v);
        activate(T(), p.activation, v);
        store_piece(T(), row, column, v);
    }
}

template <typename T> FL_FN void glu(const fl_cuda_glu &p) {
    uint32_t token = row_of_warp();
    if (token >= p.meta->tokens) {
        return;
    }
    T       *row  = static_cast<T *>(p.x) + static_cast<size_t>(token) * p.width * 2;
    uint32_t step = FL_STEP * grid_y();
    for (uint32_t column = block_y() * FL_STEP + lane_index() * FL_PIECE; column < p.width;
         column += step) {
        float gate[FL_PIECE], up[FL_PIECE];
        load_piece(T(), row, column, gate);
        load_piece(T(), row, p.width + column, up);
        add_piece(float(), p.bias, column, gate);
        add_piece(float(), p.bias, p.width + column, up);
        activate(T(), p.activation, gate);
        for (int i = 0; i < FL_PIECE; i++) {
            gate[i] *= up[i];
        }
        store_piece(T(), row, column, gate);
    }
}

FL_FN void load_sums(const int32_t *at, float scale, float (&v)[FL_PIECE]) {
    fl_words4 low = load16(at), high = load16(at + 4);
    for (int i = 0; i < 4; i++) {
        v[i]     = static_cast<float>(static_cast<int32_t>(low.w[i])) * scale;
        v[i + 4] = static_cast<float>(static_cast<int32_t>(high.w[i])) * scale;
    }
}

template <typename T> FL_FN void dequantize(const fl_cuda_dequantize &p) {
    uint32_t token = row_of_warp();
    if (token >= p.meta->tokens) {
        return;
    }
    size_t         at    = static_cast<size_t>(token) * p.width;
    const int32_t *sums  = p.sums + at;
    float          scale = p.row_scales[token];
    uint32_t       step  = FL_STEP * grid_y();
    for (uint32_t column = block_y() * FL_STEP + lane_index() * FL_PIECE; column < p.width;
         column += step) {
        float v[FL_PIECE], column_scales[FL_PIECE];
        load_sums(sums + column, scale, v);
        load_piece(float(), p.column_scales, column, column_scales);
        for (int i = 0; i < FL_PIECE; i++) {
            v[i] *= column_scales[i];
        }
        add_piece(float(), p.bias, column, v);
        activate(T(), p.activation, v);
        store_piece(T(), static_cast<T *>(p.out) + at, column, v);
    }
}

FL_KERNELS_OF_TYPES(fl_bias_act, fl_cuda_bias_act, FL_CUDA_ROW_THREADS, 4, bias_act)
FL_KERNELS_OF_TYPES(fl_glu, fl_cuda_glu, FL_CUDA_ROW_THREADS, 4, glu)
FL_KERNELS_OF_TYPES(fl_dequantize, fl_cuda_dequantize, FL_CUDA_ROW_THREADS, 4, dequantize)
