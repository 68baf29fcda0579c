/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - GGUF's quantised types: a block of values that share scales becomes float32.
 *
 * Role    tensor.c calls it for every range of such a tensor that an engine packs or looks up; no
 *         float32 copy of a whole matrix is made.
 * In/Out  A block of 32 or 256 values as it lies in the file, little-endian -> as many floats.
 * Method  d and m are half floats, q the small integers:
 *         Q4_0, Q5_0, Q8_0   d (q - 8), d (q - 16), d q
 *         Q4_1, Q5_1         d q + m
 *         Q4_K, Q5_K         (d s) q - (m t), with 6 bits of s and t for each 32 values
 *         Q6_K               (d s) (q - 32), with 8 bits of s for each 16 values
 *         Every product and sum is rounded by itself, in this order, as the gguf package has it: the
 *         values are the same to the last bit.
 * Memory  none. Threads: pure functions.
 * Proof   tests/golden/test_gguf_file.py: random blocks of every type against the gguf package. */
#include <string.h>

#include "model/tensor.h"

enum { SMALL = 32, LARGE = 256 };

static float half_at(const unsigned char *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return fl_half_to_f32(half);
}

/* Nibbles: the lower ones are the first 16 values; `high` has a fifth bit of each, NULL: none. */
static void small_values(const unsigned char *nibbles, const unsigned char *high, int8_t *q) {
    for (unsigned i = 0; i < SMALL; i++) {
        unsigned low = i < 16 ? nibbles[i] & 15U : nibbles[i - 16] >> 4U;
        unsigned bit = high != NULL ? (unsigned)high[i / 8] >> i % 8 & 1U : 0;
        q[i]         = (int8_t)(low | bit << 4U);
    }
}

static void widen_small(const unsigned char *block, const unsigned char *high, int centre,
                        float *out) {
    int8_t q[SMALL];
    float  d = half_at(block);
    small_values(high != NULL ? high + 4 : block + 2, high, q);
    for (unsigned i = 0; i < SMALL; i++)
        out[i] = d * (float)(q[i] - centre);
}

static void widen_small_min(const unsigned char *block, const unsigned char *high, float *out) {
    int8_t q[SMALL];
    float  d = half_at(block), m = half_at(block + 2);
    small_values(high != NULL ? high + 4 : block + 4, high, q);
    for (unsigned i = 0; i < SMALL; i++)
        out[i] = d * (float)q[i] + m;
}

static void widen_q4_0(const unsigned char *block, float *out) {
    widen_small(block, NULL, 8, out);
}

static void widen_q4_1(const unsigned char *block, float *out) {
    widen_small_min(block, NULL, out);
}

static void widen_q5_0(const unsigned char *block, float *out) {
    widen_small(block, block + 2, 16, out);
}

static void widen_q5_1(const unsigned char *block, float *out) {
    widen_small_min(block, block + 4, out);
}

static void widen_q8_0(const unsigned char *block, float *out) {
    float d = half_at(block);
    for (unsigned i = 0; i < SMALL; i++)
        out[i] = (float)(signed char)block[2 + i] * d;
}

/* Six bits of scale and of minimum for run `s` of eight: the first four runs have bytes of their own, whose upper
 * two bits belong to the last four. */
static void run_scales(const unsigned char *packed, unsigned s, float *scale, float *minimum) {
    unsigned a = packed[s % 4], b = packed[4 + s % 4], both = packed[8 + s % 4];
    *scale   = (float)(s < 4 ? a & 63U : (both & 15U) | (a >> 2U & 48U));
    *minimum = (float)(s < 4 ? b & 63U : both >> 4U | (b >> 2U & 48U));
}

/* d, m, 12 bytes of scales, a fifth bit of all values where there is one, nibbles. */
static void widen_large(const unsigned char *block, bool fifth, float *out) {
    const unsigned char *high = block + 16, *nibbles = high + (fifth ? LARGE / 8 : 0);
    const float          d = half_at(block), m = half_at(block + 2);
    for (unsigned s = 0; s < LARGE / 32; s++) {
        float scale, minimum;
        run_scales(block + 4, s, &scale, &minimum);
        scale *= d;
        minimum *= m;
        for (unsigned i = 0; i < 32; i++) {
            unsigned q = (unsigned)nibbles[s / 2 * 32 + i] >> (s % 2 * 4) & 15U;
            q |= fifth ? ((unsigned)high[i] >> s & 1U) << 4U : 0;
            out[s * 32 + i] = scale * (float)q - minimum;
        }
    }
}

static void widen_q4_k(const unsigned char *block, float *out) {
    widen_large(block, false, out);
}

static void widen_q5_k(const unsigned char *block, float *out) {
    widen_large(block, true, out);
}

/* 128 bytes of lower nibbles, 64 of upper pairs of bits, 16 scales, d. */
static void widen_q6_k(const unsigned char *block, float *out) {
    const unsigned char *high = block + LARGE / 2, *scales = high + LARGE / 4;
    const float          d = half_at(scales + LARGE / 16);
    for (unsigned s = 0; s < LARGE / 32; s++) {
        const unsigned half = s / 4, quarter = s % 4;
        for (unsigned i = 0; i < 32; i++) {
            unsigned q = block[half * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15U;
            q |= (high[half * 32 + i] >> quarter * 2 & 3U) << 4U;
            unsigned at = s * 32 + i;
            out[at]     = d * (float)(signed char)scales[at / 16] * (float)((int)q - 32);
        }
    }
}

/* From FL_DTYPE_Q4_0 on, in the order of fl_dtype. */
static const fl_block_row blocks[] = {
    {"Q4_0", SMALL, 18, widen_q4_0},  {"Q4_1", SMALL, 20, widen_q4_1},
    {"Q5_0", SMALL, 22, widen_q5_0},  {"Q5_1", SMALL, 24, widen_q5_1},
    {"Q8_0", SMALL, 34, widen_q8_0},  {"Q4_K", LARGE, 144, widen_q4_k},
    {"Q5_K", LARGE, 176, widen_q5_k}, {"Q6_K", LARGE, 210, widen_q6_k},
};

const fl_block_row *fl_block_of(fl_dtype dtype) {
    return dtype < FL_DTYPE_Q4_0 ? NULL : &blocks[dtype - FL_DTYPE_Q4_0];
}
