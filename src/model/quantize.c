/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.c - float32 values become elements of a type of GGUF: the other way round than blocks.c.
 *
 * Role    gguf_export.c writes every tensor through it.
 * In/Out  count float32 values, whole blocks where the type has blocks -> fl_dtype_bytes(type, count) bytes.
 * Method  Of a block of 32 (x its values, q rounded and kept to its range):
 *         Q8_0         d = max|x| / 127         q = x / d, halves away from 0
 *         Q4_0, Q5_0   d = peak / -8 or -16     q = x / d + 8 or 16, where peak is the first x of the largest size
 *         Q4_1, Q5_1   d = (max - min) / 15 or 31, m = min      q = (x - m) / d
 *         1 / d is rounded and multiplied by; d and m are halves only where they are stored. Every operation is
 *         rounded by itself, in this order, as the gguf package has it: the bytes are the same.
 * Memory  none. Threads: pure functions.
 * Proof   tests/golden/test_gguf_export.py: every type against the gguf package. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "model/tensor.h"

enum { BLOCK = 32 };

static void put_half(unsigned char **at, float value) {
    uint16_t half = fl_half_of(value);
    memcpy(*at, &half, sizeof half);
    *at += sizeof half;
}

static float inverse_of(float scale) {
    return scale == 0.0f ? 0.0f : 1.0f / scale;
}

/* Where 1 / d is infinite, d is stored as 0 and q says nothing. */
static unsigned whole_of(float value, unsigned most) {
    unsigned q = value >= 0.0f && value < 256.0f ? (unsigned)value : 0;
    return q < most ? q : most;
}

static void put_q8_0(const float *x, unsigned char *out) {
    float most = 0.0f;
    for (unsigned i = 0; i < BLOCK; i++)
        most = fmaxf(most, fabsf(x[i]));
    const float scale = most / 127.0f, inverse = inverse_of(scale);
    put_half(&out, scale);
    for (unsigned i = 0; i < BLOCK; i++) {
        float size = fabsf(x[i] * inverse), floor = floorf(size);
        int   q = (int)whole_of(floor + floorf(2.0f * (size - floor)), 127);
        out[i]  = (unsigned char)(x[i] < 0.0f ? -q : q);
    }
}

/* The fifth bits of all values, where there are five, then nibbles: the lower ones are the first 16 values. */
static void put_bits(const unsigned *q, unsigned bits, unsigned char *out) {
    if (bits == 5)
        for (unsigned i = 0; i < BLOCK; i += 8, out++) {
            *out = 0;
            for (unsigned k = 0; k < 8; k++)
                *out |= (unsigned char)(q[i + k] >> 4 << k);
        }
    for (unsigned i = 0; i < BLOCK / 2; i++)
        out[i] = (unsigned char)((q[i] & 15U) | (q[i + BLOCK / 2] & 15U) << 4);
}

static void put_centred(const float *x, unsigned bits, unsigned char *out) {
    const float centre = (float)(1U << (bits - 1));
    float       peak   = x[0];
    unsigned    q[BLOCK];
    for (unsigned i = 1; i < BLOCK; i++)
        peak = fabsf(x[i]) > fabsf(peak) ? x[i] : peak;
    const float scale = peak / -centre, inverse = inverse_of(scale);
    for (unsigned i = 0; i < BLOCK; i++)
        q[i] = whole_of(x[i] * inverse + (centre + 0.5f), (1U << bits) - 1);
    put_half(&out, scale);
    put_bits(q, bits, out);
}

static void put_from_least(const float *x, unsigned bits, unsigned char *out) {
    const unsigned most  = (1U << bits) - 1;
    float          least = x[0], largest = x[0];
    unsigned       q[BLOCK];
    for (unsigned i = 1; i < BLOCK; i++) {
        least   = fminf(least, x[i]);
        largest = fmaxf(largest, x[i]);
    }
    const float scale = (largest - least) / (float)most, inverse = inverse_of(scale);
    for (unsigned i = 0; i < BLOCK; i++)
        q[i] = whole_of((x[i] - least) * inverse + 0.5f, most);
    put_half(&out, scale);
    put_half(&out, least);
    put_bits(q, bits, out);
}

static void put_block(fl_dtype dtype, const float *x, unsigned char *out) {
    const bool four = dtype == FL_DTYPE_Q4_0 || dtype == FL_DTYPE_Q4_1;
    if (dtype == FL_DTYPE_Q8_0)
        put_q8_0(x, out);
    else if (fl_block_of(dtype)->groups.least)
        put_from_least(x, four ? 4 : 5, out);
    else
        put_centred(x, four ? 4 : 5, out);
}

void fl_tensor_from_f32(fl_dtype dtype, const float *values, uint64_t count, unsigned char *out) {
    assert(values && out);
    const fl_block_row *row = fl_block_of(dtype);
    if (dtype == FL_DTYPE_F32)
        memcpy(out, values, count * sizeof *values);
    for (uint64_t i = 0; row != NULL && i < count / row->values; i++)
        put_block(dtype, values + i * row->values, out + i * row->bytes);
    for (uint64_t i = 0; (dtype == FL_DTYPE_F16 || dtype == FL_DTYPE_BF16) && i < count; i++) {
        uint16_t half = dtype == FL_DTYPE_F16 ? fl_half_of(values[i]) : fl_bfloat16_of(values[i]);
        memcpy(out + i * sizeof half, &half, sizeof half);
    }
}
