/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c - turn the elements of a mapped array into float32.
 *
 * Role    Engines call this when they pack weights, modules.c when it loads dense layers.
 * In/Out  I8, little-endian F32, F16 or BF16, GGUF's blocks (blocks.c), or what packed.c reads, at any alignment
 *         (the format promises none) -> float32.
 * Method  Integer arithmetic on the bits, without branches, so that the compiler vectorises it
 *         and the result does not depend on the rounding or flush-to-zero mode of the calling
 *         thread. All three conversions are exact: every half and every bfloat16 is a float32.
 *         An adapter is added here, in float32 as torch does: whoever packs or reads a row gets the
 *         weights of the task, and no second copy of them ever exists.
 * Memory  none. Threads: pure functions.
 * Proof   tests/unit/test_model_tensor.c: all 65536 values of both small types. */
#include "model/tensor.h"

#include <assert.h>
#include <string.h>

#include "base/half.h"

const fl_dtype_row fl_dtypes[] = {
    {"F32", FL_DTYPE_F32, 32},
    {"F16", FL_DTYPE_F16, 16},
    {"BF16", FL_DTYPE_BF16, 16},
    {"F64", FL_DTYPE_F64, 64},
    {"I64", FL_DTYPE_I64, 64},
    {"I32", FL_DTYPE_I32, 32},
    {"I16", FL_DTYPE_I16, 16},
    {"I8", FL_DTYPE_I8, 8},
    {"U8", FL_DTYPE_U8, 8},
    {"BOOL", FL_DTYPE_BOOL, 8},
    {"F8_E4M3", FL_DTYPE_F8, 8},
    {"U64", FL_DTYPE_OTHER, 64},
    {"U32", FL_DTYPE_OTHER, 32},
    {"U16", FL_DTYPE_OTHER, 16},
    {"C64", FL_DTYPE_OTHER, 64},
    {"F8_E5M2", FL_DTYPE_OTHER, 8},
    {"F8_E8M0", FL_DTYPE_OTHER, 8},
    {"F8_E4M3FNUZ", FL_DTYPE_OTHER, 8},
    {"F8_E5M2FNUZ", FL_DTYPE_OTHER, 8},
    {"F6_E2M3", FL_DTYPE_OTHER, 6},
    {"F6_E3M2", FL_DTYPE_OTHER, 6},
    {"F4", FL_DTYPE_OTHER, 4},
    {NULL, FL_DTYPE_OTHER, 0},
};

const char *fl_dtype_name(fl_dtype dtype) {
    assert(dtype < FL_DTYPE_END);
    const fl_block_row *block = fl_block_of(dtype);
    return block != NULL              ? block->name
           : dtype == FL_DTYPE_PACKED ? "packed"
           : dtype < FL_DTYPE_OTHER   ? fl_dtypes[dtype].name
                                      : "other";
}

uint64_t fl_dtype_bytes(fl_dtype dtype, uint64_t count) {
    assert(dtype < FL_DTYPE_END);
    const fl_block_row *block = fl_block_of(dtype);
    return block != NULL ? count / block->values * block->bytes
                         : count * (fl_dtypes[dtype].bits / 8);
}

bool fl_tensor_holds(const fl_tensor *tensor, uint64_t count) {
    assert(tensor->rank <= FL_RANK_MAX);
    return tensor->packed != NULL
               ? count / tensor->packed->columns <= tensor->packed->rows - tensor->packed_row
               : tensor->bytes >= fl_dtype_bytes(tensor->dtype, count);
}

/* A range may begin and end inside a block. */
static void widen(const fl_block_row *row, const unsigned char *data, uint64_t first,
                  uint64_t count, float *out) {
    float whole[FL_BLOCK_VALUES_MAX];
    for (uint64_t done = 0, n; done < count; done += n) {
        uint64_t at = (first + done) / row->values, skip = (first + done) % row->values;
        n = row->values - skip < count - done ? row->values - skip : count - done;
        fl_block_widen(row, data + at * row->bytes, n == row->values ? out + done : whole);
        if (n < row->values)
            memcpy(out + done, whole + skip, n * sizeof *out);
    }
}

static void convert(const fl_tensor *tensor, uint64_t first, uint64_t count, float *out) {
    const unsigned char *data  = tensor->data;
    const fl_block_row  *block = fl_block_of(tensor->dtype);
    if (block != NULL) {
        widen(block, data, first, count, out);
        return;
    }
    if (tensor->packed != NULL) {
        fl_packed_to_f32(tensor, first, count, out);
        return;
    }
    if (tensor->dtype == FL_DTYPE_F32) {
        memcpy(out, data + first * sizeof(float), count * sizeof(float));
        return;
    }
    if (tensor->dtype == FL_DTYPE_I8) {
        for (uint64_t i = 0; i < count; i++)
            out[i] = (float)(signed char)data[first + i];
        return;
    }
    data += first * sizeof(uint16_t);
    if (tensor->dtype == FL_DTYPE_F16) {
        for (uint64_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, data + i * sizeof half, sizeof half);
            out[i] = fl_half_to_f32(half);
        }
        return;
    }
    for (uint64_t i = 0; i < count; i++) { /* BF16: the upper half of a float32 */
        uint16_t half;
        memcpy(&half, data + i * sizeof half, sizeof half);
        out[i] = fl_bfloat16_to_f32(half);
    }
}

/* out[n] += scale * left · right[.., column ..]; columns side by side, for vectors. */
static void add_product(const fl_adapter *a, const float *left, uint64_t column, uint64_t n,
                        float *out) {
    enum { AT_ONCE = 64 };
    for (uint64_t first = 0, some; first < n; first += some) {
        float sum[AT_ONCE] = {0};
        some               = n - first < AT_ONCE ? n - first : AT_ONCE;
        for (uint32_t k = 0; k < a->rank; k++) {
            const float *right = a->right + (uint64_t)k * a->columns + column + first;
            for (uint64_t i = 0; i < some; i++)
                sum[i] += left[k] * right[i];
        }
        for (uint64_t i = 0; i < some; i++)
            out[first + i] += sum[i] * a->scale;
    }
}

/* Turned: row i of the first half of a head is the file's 2i, of the second 2i + 1. */
uint64_t fl_tensor_row(const fl_tensor *tensor, uint64_t row) {
    if (tensor->run > 0)
        return row / tensor->run * tensor->step + row % tensor->run;
    if (tensor->turned == 0)
        return row;
    uint64_t in = row % tensor->turned, half = tensor->turned / 2;
    return row - in + (in < half ? 2 * in : 2 * (in - half) + 1);
}

uint64_t fl_tensor_span(const fl_tensor *tensor) {
    const uint64_t rows = tensor->shape[0];
    if (tensor->across > 0)
        return fl_dtype_bytes(tensor->dtype, (tensor->shape[1] - 1) * tensor->across + rows);
    return tensor->run == 0 ? tensor->bytes
                            : tensor->bytes / rows * (fl_tensor_row(tensor, rows - 1) + 1);
}

static void convert_rows(const fl_tensor *tensor, uint64_t first, uint64_t count, float *out) {
    assert(!fl_tensor_in_order(tensor));
    const uint64_t columns = tensor->rank > 1 ? tensor->shape[1] : 1;
    if (tensor->across > 0) {
        for (uint64_t i = first; i < first + count; i++)
            convert(tensor, i % columns * tensor->across + i / columns, 1, out + i - first);
        return;
    }
    for (uint64_t done = 0, n; done < count; done += n) {
        uint64_t row = (first + done) / columns, column = (first + done) % columns;
        n = columns - column < count - done ? columns - column : count - done;
        convert(tensor, fl_tensor_row(tensor, row) * columns + column, n, out + done);
    }
}

void fl_tensor_to_f32(const fl_tensor *tensor, uint64_t first, uint64_t count, float *out) {
    assert((tensor->data || tensor->packed) && out);
    const fl_adapter *a = tensor->adapter;
    float             left[FL_ADAPTER_RANK_MAX];
    (fl_tensor_in_order(tensor) ? convert : convert_rows)(tensor, first, count, out);
    for (uint64_t done = 0, n; a != NULL && done < count; done += n) {
        uint64_t row = (first + done) / a->columns, column = (first + done) % a->columns;
        n = a->columns - column < count - done ? a->columns - column : count - done;
        convert(&a->left, fl_tensor_row(tensor, row) * a->rank, a->rank, left);
        add_product(a, left, column, n, out + done);
    }
}
