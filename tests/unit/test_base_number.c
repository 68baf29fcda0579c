/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_number.c - what must never break: float text reads back as the same float, no shorter
 * decimal does, and none of that length is nearer. The reference is libc: strtof and %.{0..8}e. */
#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Significant digits of a decimal text. */
static int digit_count(const char *text) {
    char digits[64];
    int  count = 0;
    for (; *text != '\0' && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' && (count > 0 || *text != '0'))
            digits[count++] = *text;
    while (count > 0 && digits[count - 1] == '0')
        count--;
    return count;
}

static void check_bits(uint32_t bits) {
    float value = float_of(bits);
    if (!isfinite(value) || value == 0.0f)
        return;
    char   text[FL_F32_TEXT_MAX + 1];
    size_t length = fl_f32_text(text, value);
    text[length]  = '\0';
    if (length > FL_F32_TEXT_MAX || bits_of(strtof(text, NULL)) != bits)
        cr_assert_fail("%08x: \"%s\" reads back differently", bits, text);
    /* The nearest decimal with 1, 2 … digits; the first that reads back is the reference. (At powers
     * of two, where the interval is lopsided, a farther one of the same or less length may do.) */
    char reference[64];
    int  digits = 1;
    for (; digits < 9; digits++) {
        snprintf(reference, sizeof reference, "%.*e", digits - 1, (double)value);
        if (bits_of(strtof(reference, NULL)) == bits)
            break;
    }
    snprintf(reference, sizeof reference, "%.*e", digits - 1, (double)value);
    int ours = digit_count(text);
    if (ours > digits)
        cr_assert_fail("%08x: \"%s\" is longer than %s", bits, text, reference);
    if (ours == digits &&
        fabs(strtod(text, NULL) - (double)value) > fabs(strtod(reference, NULL) - (double)value))
        cr_assert_fail("%08x: \"%s\" is farther than %s", bits, text, reference);
}

Test(number, every_exponent_and_its_neighbours) {
    for (uint32_t exponent = 0; exponent < 255; exponent++) {
        for (int32_t d = -8; d <= 8; d++) {
            check_bits((exponent << 23) + (uint32_t)d);
            check_bits((exponent << 23) + 0x2AAAAA + (uint32_t)d);
        }
    }
}

Test(number, small_denormals_and_small_integers) {
    for (uint32_t i = 1; i < 3000; i++) {
        check_bits(i);
        check_bits(bits_of((float)i));
        check_bits(bits_of((float)i / 1000.0f));
    }
}

Test(number, powers_of_ten_and_their_neighbours) {
    for (int power = -45; power <= 38; power++) {
        uint32_t bits = bits_of((float)pow(10.0, power));
        for (int32_t d = -4; d <= 4; d++)
            check_bits((bits + (uint32_t)d) & 0x7FFFFFFF);
    }
}

Test(number, random_bit_patterns) {
    uint64_t state = 0x9E3779B97F4A7C15u;
    for (int i = 0; i < 150000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        check_bits((uint32_t)(state >> 32));
    }
}

Test(number, notation_is_that_of_json) {
    static const struct {
        float       value;
        const char *text;
    } row[] = {{0.0f, "0"},
               {-0.0f, "-0"},
               {1.0f, "1"},
               {0.1f, "0.1"},
               {-3e-7f, "-3e-7"},
               {123456.78f, "123456.78"},
               {1e-5f, "0.00001"},
               {9.9e-6f, "9.9e-6"},
               {1e15f, "1000000000000000"},
               {9.999999e15f, "9999999000000000"},
               {1e16f, "1e16"},
               {1.5e20f, "1.5e20"},
               {16777216.0f, "16777216"},
               {3.4028235e38f, "3.4028235e38"},
               {1.1754944e-38f, "1.1754944e-38"},
               {1e-45f, "1e-45"},
               {-0.05f, "-0.05"},
               {INFINITY, "null"},
               {NAN, "null"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char text[FL_F32_TEXT_MAX + 1];
        text[fl_f32_text(text, row[i].value)] = '\0';
        cr_assert_str_eq(text, row[i].text);
    }
}

Test(number, u64_text_over_the_whole_range) {
    uint64_t values[] = {0, 9, 10, 99, 100, 4294967296u, UINT64_MAX};
    for (size_t i = 0; i < 7; i++) {
        char text[21], expected[21];
        text[fl_u64_text(text, values[i])] = '\0';
        snprintf(expected, sizeof expected, "%llu", (unsigned long long)values[i]);
        cr_assert_str_eq(text, expected);
    }
}

Test(number, integers_are_whole_texts_in_range) {
    int64_t value;
    cr_assert(fl_parse_i64("9223372036854775807", &value) && value == INT64_MAX);
    cr_assert(fl_parse_i64("-9223372036854775808", &value) && value == INT64_MIN);
    cr_assert(fl_parse_i64("+7", &value) && value == 7);
    const char *wrong[] = {"",
                           "-",
                           "9223372036854775808",
                           "-9223372036854775809",
                           " 1",
                           "1 ",
                           "1.0",
                           "0x10",
                           "1e3",
                           "--1",
                           "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_assert_not(fl_parse_i64(wrong[i], &value), "\"%s\"", wrong[i]);
}

Test(number, reals_are_decimal_finite_and_ignore_the_locale) {
    double value;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* a decimal comma where it is installed */
    cr_assert(fl_parse_f64("-1.5e-3", &value) && value == -0.0015);
    cr_assert(fl_parse_f64(".5", &value) && value == 0.5);
    cr_assert(fl_parse_f64("5.", &value) && value == 5.0);
    const char *wrong[] = {"",    ".",  "1,5", "inf",   "nan", "0x1p3", "1e",
                           "1e+", " 1", "1 ",  "1e999", "-",   "1.2.3", "e5"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_assert_not(fl_parse_f64(wrong[i], &value), "\"%s\"", wrong[i]);
}

Test(number, sizes_with_units) {
    static const struct {
        const char *text;
        uint64_t    bytes;
    } row[] = {{"268435456", 268435456},
               {"256MiB", 268435456},
               {"1.5 GiB", 1610612736},
               {"64k", 65536},
               {"64K", 65536},
               {"64kB", 64000},
               {"2M", 2097152},
               {"5 MB", 5000000},
               {"1T", 1099511627776},
               {"0", 0},
               {"12 B", 12},
               {"18446744073709551615", UINT64_MAX}};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        cr_assert(fl_parse_size(row[i].text, &bytes), "%s", row[i].text);
        cr_assert_eq(bytes, row[i].bytes, "%s gave %llu", row[i].text, (unsigned long long)bytes);
    }
    const char *wrong[] = {"",          "-1",        "1.5",   "k",      "1  MiB",
                           "1 ",        "1kk",       "1.MiB", "1MiBs",  "1e3",
                           ".5 M",      "0x10",      "1PB",   "1 KiB ", "18446744073709551616",
                           "16777216T", "1.1234567M"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_assert_not(fl_parse_size(wrong[i], &bytes), "\"%s\"", wrong[i]);
}
