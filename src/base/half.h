/* SPDX-License-Identifier: Apache-2.0 */
/* half.h - float16 and back: 5 bits of exponent with bias 15 and 10 of mantissa, where float32 has 8 with bias 127
 * and 23.
 *
 * bfloat16 is the upper half of a float32.
 *
 * A normal number moves its bits by 13 and its exponent by 127 - 15 = 112. A subnormal one counts 2^-24, which a
 * conversion of integers gives exactly. Infinity and NaN have the largest exponent of either. */
#ifndef FL_BASE_HALF_H
#define FL_BASE_HALF_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* NaN keeps its payload. */
static inline float fl_half_to_f32(uint16_t half) {
    uint32_t size   = half & 0x7FFFU;
    uint32_t rebias = size >= 0x7C00U ? 2U * (112U << 23) : 112U << 23;
    uint32_t bits   = (size << 13) + rebias;
    float    value  = (float)(int32_t)size * 0x1p-24f;
    if (size >= 0x0400U)
        memcpy(&value, &bits, sizeof value);
    return half & 0x8000U ? -value : value;
}

/* The nearest, ties to even; what is too large becomes infinite. */
static inline uint16_t fl_half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000U, size = bits & 0x7FFFFFFFU;
    if (size > 0x7F800000U)
        return (uint16_t)(sign | 0x7E00U); /* NaN */
    if (size >= 0x477FF000U)
        return (uint16_t)(sign | 0x7C00U);
    if (size < 0x38800000U)
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(value) * 0x1p24f));
    return (uint16_t)(sign | (size + 0xFFFU + (size >> 13 & 1U) - 0x38000000U) >> 13);
}

static inline float fl_bfloat16_to_f32(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float    value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The upper half of a float32: the nearest, ties to even. */
static inline uint16_t fl_bfloat16_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bool none = (bits & 0x7FFFFFFFU) > 0x7F800000U; /* stays NaN */
    return (uint16_t)((none ? bits | 0x400000U : bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

#endif
