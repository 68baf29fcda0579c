/* SPDX-License-Identifier: Apache-2.0 */
/* test_model_tensor.c - what must never break: every F16 and BF16 value becomes the float32 of the same
 * value, at any alignment, and F32 passes bit for bit. Expected values are computed from the definition
 * of the formats with ldexp, not with the code under test. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "model/tensor.h"

/* (-1)^s 2^(e - bias) (1 + m / 2^bits); subnormal for e = 0; infinity or NaN for the largest e. */
static float value_of(unsigned bits, int exponent_bits, int mantissa_bits) {
    unsigned mantissa = bits & ((1U << mantissa_bits) - 1);
    unsigned exponent = bits >> mantissa_bits & ((1U << exponent_bits) - 1);
    int      bias     = (1 << (exponent_bits - 1)) - 1;
    float    sign     = bits >> (exponent_bits + mantissa_bits) ? -1.0F : 1.0F;
    if (exponent == (1U << exponent_bits) - 1)
        return mantissa == 0 ? sign * INFINITY : NAN;
    if (exponent == 0)
        return sign * ldexpf((float)mantissa, 1 - bias - mantissa_bits);
    return sign *
           ldexpf((float)(mantissa | 1U << mantissa_bits), (int)exponent - bias - mantissa_bits);
}

static void check_all(fl_dtype dtype, int exponent_bits, int mantissa_bits) {
    static unsigned char bytes[1 + 65536 * 2]; /* one byte in front: nothing is aligned */
    static float         out[65536];
    for (unsigned i = 0; i < 65536; i++) {
        bytes[1 + 2 * i] = (unsigned char)(i & 0xFF);
        bytes[2 + 2 * i] = (unsigned char)(i >> 8);
    }
    fl_tensor tensor = {
        .data = bytes + 1, .bytes = 65536 * 2, .dtype = dtype, .rank = 1, .shape = {65536}};
    fl_tensor_to_f32(&tensor, 0, 65536, out);
    for (unsigned i = 0; i < 65536; i++) {
        float expected = value_of(i, exponent_bits, mantissa_bits);
        if (isnan(expected))
            cr_assert(isnan(out[i]), "%04x", i);
        else
            cr_assert(out[i] == expected && signbit(out[i]) == signbit(expected),
                      "%04x: %g, not %g", i, (double)out[i], (double)expected);
    }
}

Test(tensor, every_f16_is_exact) {
    check_all(FL_DTYPE_F16, 5, 10);
}

Test(tensor, every_bf16_is_exact) {
    check_all(FL_DTYPE_BF16, 8, 7);
}

Test(tensor, f32_passes_bit_for_bit_from_any_place) {
    const uint32_t bits[4] = {0x7FC12345, 0x80000000, 0x00000001,
                              0x3F800000}; /* NaN, -0, denormal, 1 */
    unsigned char  bytes[3 + sizeof bits];
    uint32_t       out[3];
    memcpy(bytes + 3, bits, sizeof bits);
    fl_tensor tensor = {
        .data = bytes + 3, .bytes = sizeof bits, .dtype = FL_DTYPE_F32, .rank = 1, .shape = {4}};
    float values[3];
    fl_tensor_to_f32(&tensor, 1, 3, values);
    memcpy(out, values, sizeof out);
    cr_assert_arr_eq(out, bits + 1, sizeof out);
}

Test(tensor, a_range_starts_where_it_says) {
    const uint16_t halves[4] = {0x3C00, 0x4000, 0x4200, 0x4400}; /* 1, 2, 3, 4 */
    fl_tensor      tensor    = {
                .data = halves, .bytes = 8, .dtype = FL_DTYPE_F16, .rank = 2, .shape = {2, 2}};
    float out[2];
    fl_tensor_to_f32(&tensor, 2, 2, out);
    cr_assert_eq(out[0], 3.0F);
    cr_assert_eq(out[1], 4.0F);
}

/* Three blocks of d = 1 and q = 0, 1, 2 …: any range is that part of the whole. */
Test(tensor, a_range_may_begin_and_end_inside_a_block) {
    unsigned char blocks[3 * 34];
    float         out[96];
    for (int i = 0; i < 3; i++) {
        memcpy(blocks + i * 34, "\x00\x3C", 2);
        for (int k = 0; k < 32; k++)
            blocks[i * 34 + 2 + k] = (unsigned char)(i * 32 + k);
    }
    fl_tensor tensor = {
        .data = blocks, .bytes = sizeof blocks, .dtype = FL_DTYPE_Q8_0, .rank = 1, .shape = {96}};
    for (uint64_t first = 0; first < 96; first++)
        for (uint64_t count = 0; first + count <= 96; count++) {
            fl_tensor_to_f32(&tensor, first, count, out);
            for (uint64_t i = 0; i < count; i++)
                cr_assert_eq(out[i], (float)(first + i));
        }
}

/* Two heads of four rows: what the file has as 0 2 1 3 is read as 0 1 2 3. */
Test(tensor, rows_in_turns_are_read_in_order) {
    const float file[8][2] = {{0, 1}, {4, 5}, {2, 3}, {6, 7}, {8, 9}, {12, 13}, {10, 11}, {14, 15}};
    float       out[16];
    fl_tensor   tensor = {.data   = file,
                          .bytes  = sizeof file,
                          .dtype  = FL_DTYPE_F32,
                          .rank   = 2,
                          .shape  = {8, 2},
                          .turned = 4};
    for (uint64_t first = 0; first < 16; first++) {
        fl_tensor_to_f32(&tensor, first, 16 - first, out);
        for (uint64_t i = first; i < 16; i++)
            cr_assert_eq(out[i - first], (float)i);
    }
}

/* Rows of two "heads" of two rows each, the second of three parts that lie head by head; a range begins and ends
 * within a row. */
Test(tensor, rows_of_a_part_that_lies_head_by_head) {
    float     whole[12 * 3], out[4 * 3];
    fl_tensor part = {.data  = whole + 2 * 3,
                      .bytes = 4 * 3 * sizeof(float),
                      .dtype = FL_DTYPE_F32,
                      .rank  = 2,
                      .shape = {4, 3},
                      .run   = 2,
                      .step  = 6};
    for (size_t i = 0; i < 12 * 3; i++)
        whole[i] = (float)i;
    static const unsigned rows[] = {2, 3, 8, 9};
    for (size_t first = 0; first < 12; first++) {
        fl_tensor_to_f32(&part, first, 12 - first, out);
        for (size_t i = first; i < 12; i++)
            cr_assert_eq((unsigned)out[i - first], rows[i / 3] * 3 + i % 3);
    }
    cr_assert(!fl_tensor_in_order(&part));
    cr_assert_eq(fl_tensor_span(&part), 8 * 3 * sizeof(float), "rows 2 to 9");
}

/* Rows 1 and 2 of four, which the file has column by column. */
Test(tensor, rows_of_a_matrix_that_lies_across) {
    float     whole[4 * 3], out[2 * 3];
    fl_tensor part = {.data   = whole + 1,
                      .bytes  = 2 * 3 * sizeof(float),
                      .dtype  = FL_DTYPE_F32,
                      .rank   = 2,
                      .shape  = {2, 3},
                      .across = 4};
    for (size_t row = 0; row < 4; row++)
        for (size_t column = 0; column < 3; column++)
            whole[column * 4 + row] = (float)(10 * row + column);
    for (size_t first = 0; first < 6; first++) {
        fl_tensor_to_f32(&part, first, 6 - first, out);
        for (size_t i = first; i < 6; i++)
            cr_assert_eq((unsigned)out[i - first], 10 * (1 + i / 3) + i % 3);
    }
    cr_assert(!fl_tensor_in_order(&part));
    cr_assert_eq(fl_tensor_span(&part), 10 * sizeof(float), "from [1, 0] to [2, 2]");
}

Test(tensor, names_are_those_of_the_format) {
    cr_assert_str_eq(fl_dtype_name(FL_DTYPE_BF16), "BF16");
    cr_assert_str_eq(fl_dtype_name(FL_DTYPE_BOOL), "BOOL");
    cr_assert_str_eq(fl_dtype_name(FL_DTYPE_OTHER), "other");
    cr_assert_str_eq(fl_dtype_name(FL_DTYPE_Q6_K), "Q6_K");
}
