/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - GGUF's quantised types: a block of values that share scales is taken apart, or becomes float32.
 *
 * Role    tensor.c widens every range of such a tensor that an engine packs or looks up; no float32 copy of a
 *         whole matrix is made. The cpu engine keeps the parts as they are (its groups.c).
 * In/Out  A block of 32 or 256 values as it lies in the file, little-endian -> its parts, or as many floats.
 * Method  d and m are half floats, q the small integers:
 *         Q4_0, Q5_0, Q8_0   d (q - 8), d (q - 16), d q
 *         Q4_1, Q5_1         d q + m
 *         Q4_K, Q5_K         (d s) q - (m t), with 6 bits of s and t for each 32 values
 *         Q6_K               (d s) (q - 32), with 8 bits of s for each 16 values
 *         Every product and sum is rounded by itself, in this order, as the gguf package has it: the
 *         values are the same to the last bit.
 * Memory  none. Threads: pure functions.
 * Proof   tests/golden/test_gguf_file.py: random blocks of every type against the gguf package. */
#include <assert.h>
#include <string.h>

#include "base/half.h"
#include "model/tensor.h"

enum { SMALL = 32, LARGE = 256 };

static uint16_t half_at(const unsigned char *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half;
}

/* Nibbles: the lower ones are the first 16 values; `high` has a fifth bit of each, NULL: none. */
static void small_values(const unsigned char *nibbles, const unsigned char *high, int centre,
                         int8_t *q) {
    for (unsigned i = 0; i < SMALL; i++) {
        unsigned low = i < 16 ? nibbles[i] & 15U : nibbles[i - 16] >> 4U;
        unsigned bit = high != NULL ? (unsigned)high[i / 8] >> i % 8 & 1U : 0;
        q[i]         = (int8_t)((int)(low | bit << 4U) - centre);
    }
}

static void split_q4_0(const unsigned char *block, fl_block_parts *out) {
    out->scale = half_at(block);
    small_values(block + 2, NULL, 8, out->q);
}

static void split_q4_1(const unsigned char *block, fl_block_parts *out) {
    out->scale = half_at(block);
    out->least = half_at(block + 2);
    small_values(block + 4, NULL, 0, out->q);
}

static void split_q5_0(const unsigned char *block, fl_block_parts *out) {
    out->scale = half_at(block);
    small_values(block + 6, block + 2, 16, out->q);
}

static void split_q5_1(const unsigned char *block, fl_block_parts *out) {
    out->scale = half_at(block);
    out->least = half_at(block + 2);
    small_values(block + 8, block + 4, 0, out->q);
}

static void split_q8_0(const unsigned char *block, fl_block_parts *out) {
    out->scale = half_at(block);
    memcpy(out->q, block + 2, SMALL);
}

/* Six bits of scale and of minimum for run `s` of eight: the first four runs have bytes of their own, whose upper
 * two bits belong to the last four. */
static void run_scales(const unsigned char *packed, unsigned s, int8_t *scale, int8_t *least) {
    assert(s < FL_BLOCK_RUNS_MAX);
    unsigned a = packed[s % 4], b = packed[4 + s % 4], both = packed[8 + s % 4];
    *scale = (int8_t)(s < 4 ? a & 63U : (both & 15U) | (a >> 2U & 48U));
    *least = (int8_t)(s < 4 ? b & 63U : both >> 4U | (b >> 2U & 48U));
}

/* d, m, 12 bytes of scales, a fifth bit of all values where there is one, nibbles. */
static void split_large(const unsigned char *block, bool fifth, fl_block_parts *out) {
    const unsigned char *high = block + 16, *nibbles = high + (fifth ? LARGE / 8 : 0);
    out->scale = half_at(block);
    out->least = half_at(block + 2);
    for (unsigned s = 0; s < LARGE / 32; s++) {
        run_scales(block + 4, s, &out->scale_code[s], &out->least_code[s]);
        for (unsigned i = 0; i < 32; i++) {
            unsigned q = (unsigned)nibbles[s / 2 * 32 + i] >> (s % 2 * 4) & 15U;
            q |= fifth ? ((unsigned)high[i] >> s & 1U) << 4U : 0;
            out->q[s * 32 + i] = (int8_t)q;
        }
    }
}

static void split_q4_k(const unsigned char *block, fl_block_parts *out) {
    split_large(block, false, out);
}

static void split_q5_k(const unsigned char *block, fl_block_parts *out) {
    split_large(block, true, out);
}

/* 128 bytes of lower nibbles, 64 of upper pairs of bits, 16 scales, d. */
static void split_q6_k(const unsigned char *block, fl_block_parts *out) {
    const unsigned char *high = block + LARGE / 2, *scales = high + LARGE / 4;
    out->scale = half_at(scales + LARGE / 16);
    memcpy(out->scale_code, scales, LARGE / 16);
    for (unsigned s = 0; s < LARGE / 32; s++) {
        const unsigned half = s / 4, quarter = s % 4;
        for (unsigned i = 0; i < 32; i++) {
            unsigned q = block[half * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15U;
            q |= (high[half * 32 + i] >> quarter * 2 & 3U) << 4U;
            out->q[s * 32 + i] = (int8_t)((int)q - 32);
        }
    }
}

/* From FL_DTYPE_Q4_0 on, in the order of fl_dtype. */
static const fl_block_row blocks[] = {
    {"Q4_0", SMALL, 18, .groups = {.bits = 4, .run = 32}, split_q4_0},
    {"Q4_1", SMALL, 20, .groups = {.bits = 4, .run = 32, .least = true}, split_q4_1},
    {"Q5_0", SMALL, 22, .groups = {.bits = 8, .run = 32}, split_q5_0},
    {"Q5_1", SMALL, 24, .groups = {.bits = 8, .run = 32, .least = true}, split_q5_1},
    {"Q8_0", SMALL, 34, .groups = {.bits = 8, .run = 32}, split_q8_0},
    {"Q4_K", LARGE, 144, .groups = {.bits = 4, .run = 32, .least = true, .coded = true},
     split_q4_k},
    {"Q5_K", LARGE, 176, .groups = {.bits = 8, .run = 32, .least = true, .coded = true},
     split_q5_k},
    {"Q6_K", LARGE, 210, .groups = {.bits = 8, .run = 16, .coded = true}, split_q6_k},
};

const fl_block_row *fl_block_of(fl_dtype dtype) {
    return dtype < FL_DTYPE_Q4_0 || dtype >= FL_DTYPE_PACKED ? NULL
                                                             : &blocks[dtype - FL_DTYPE_Q4_0];
}

void fl_block_widen(const fl_block_row *row, const unsigned char *block, float *out) {
    assert(row->values <= FL_BLOCK_VALUES_MAX && FL_BLOCK_VALUES_MAX % row->values == 0);
    fl_block_parts  parts;
    const fl_groups g = row->groups;
    row->split(block, &parts);
    const float scale = fl_half_to_f32(parts.scale),
                least = g.least ? fl_half_to_f32(parts.least) : 0.0f;
    for (uint32_t run = 0; run < row->values / g.run; run++) {
        const int8_t *q = parts.q + run * g.run;
        float         d = g.coded ? scale * (float)parts.scale_code[run] : scale;
        float         m = g.coded && g.least ? -(least * (float)parts.least_code[run]) : least;
        for (uint32_t i = 0; i < g.run; i++) {
            float value          = d * (float)q[i];
            out[run * g.run + i] = g.least ? value + m : value;
        }
    }
}
