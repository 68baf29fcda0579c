/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - round float32 to half, bfloat16, int8 or e4m3, to nearest and ties to even.
 *
 * Role    cuda_weights.c calls it on chunks of a tensor, from several threads.
 * Method  Integer arithmetic without branches where possible, so that the compiler vectorises it.
 *           half      rebias the exponent by 112 and round 13 bits away; below 2^-14 let the
 *                     addition of 0.5, whose last bit is 2^-24, do the rounding; 65520 and more
 *                     are infinite
 *           bfloat16  round the lower half away; NaN keeps a bit of its payload
 *           int8      value / (largest / 127), the largest of the row
 *           e4m3      value / scale: as half, with a bias of 7, 20 bits to round away and 2^14,
 *                     whose last bit is 2^-9, to add below 2^-6; what is beyond 448, the largest,
 *                     becomes that; what is not finite NaN, the one pattern above it
 * Memory  none. Threads: pure functions.
 * Proof   tests/cuda/kernels.c: every e4m3 number; tests/cuda/test_cuda_engine.c: vectors of every
 *         precision, and NaN that stays NaN. */
#include "engines/cuda/convert.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t f16_of(float value) {
    const uint32_t least_normal = 113U << 23, too_large = 143U << 23, infinite = 255U << 23;
    uint32_t       bits = bits_of(value), sign = bits >> 16 & 0x8000U, size = bits & 0x7FFFFFFFU;
    uint32_t       normal = (size - (112U << 23) + 0xFFFU + (size >> 13 & 1U)) >> 13;
    uint32_t subnormal = bits_of(float_of(size < least_normal ? size : 0) + 0.5f) - bits_of(0.5f);
    uint32_t half      = size < least_normal ? subnormal : normal;
    half               = size >= too_large ? 0x7C00U : half;
    half               = size > infinite ? 0x7E00U : half;
    return (uint16_t)(sign | half);
}

void fl_cuda_to_f16(const float *in, size_t count, uint16_t *out) {
    for (size_t i = 0; i < count; i++)
        out[i] = f16_of(in[i]);
}

void fl_cuda_to_bf16(const float *in, size_t count, uint16_t *out) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(in[i]), rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
        uint32_t nan = bits >> 16 | 0x40U;
        out[i]       = (uint16_t)((bits & 0x7FFFFFFFU) > 255U << 23 ? nan : rounded);
    }
}

static uint8_t e4m3_of(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 24 & 0x80U, size = bits & 0x7FFFFFFFU;
    uint32_t normal    = (size - (120U << 23) + 0x7FFFFU + (size >> 20 & 1U)) >> 20;
    uint32_t subnormal = bits_of(float_of(size) + 0x1p14f) - bits_of(0x1p14f);
    uint32_t code      = size < bits_of(0x1p-6f) ? subnormal : normal;
    code               = size >= bits_of((float)FL_CUDA_E4M3_MOST) ? 0x7EU : code;
    code               = size >= 255U << 23 ? 0x7FU : code;
    return (uint8_t)(sign | code);
}

void fl_cuda_to_e4m3(const float *in, size_t count, float scale, uint8_t *out) {
    float inverse = 1.0f / scale;
    for (size_t i = 0; i < count; i++)
        out[i] = e4m3_of(in[i] * inverse);
}

float fl_cuda_largest(const float *in, size_t count, float most) {
    float odd = 0.0f;
    for (size_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(in[i]));
        odd += in[i] * 0.0f; /* NaN as soon as one value is not finite */
    }
    return most + odd;
}

float fl_cuda_to_q8(const float *in, size_t count, int8_t *out) {
    float largest = fl_cuda_largest(in, count, 0.0f);
    if (largest == 0.0f || isnan(largest)) {
        memset(out, 0, count);
        return largest; /* a damaged weight must not pass as a vector */
    }
    float scale = largest / 127.0f, inverse = 127.0f / largest;
    for (size_t i = 0; i < count; i++)
        out[i] = (int8_t)lrintf(fmaxf(-127.0f, fminf(127.0f, in[i] * inverse)));
    return scale;
}
