/* SPDX-License-Identifier: Apache-2.0 */
/* number.h - numbers to text and back, exactly, without locale.
 *
 * fl_f32_text writes the shortest decimal that reads back as the same float32 (of those the nearest to
 * it), in the style of JSON: "0.1", "-3e-7", "1", "123456.78"; plain notation for 1e-5 <= |x| < 1e16.
 * Infinities and NaN have no JSON form: they are written as "null", and a caller that can meet them must
 * refuse them before. */
#ifndef FL_BASE_NUMBER_H
#define FL_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_F32_TEXT_MAX = 24 };

size_t fl_f32_text(char out[FL_F32_TEXT_MAX], float value); /* length; not terminated */
size_t fl_u64_text(char out[20], uint64_t value);           /* length; not terminated */

/* No NaN and no infinity among them. */
bool fl_all_finite(const float *values, size_t count);

/* 0 to 15, or -1. */
static inline int fl_hex_digit(char c) {
    char lower = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The number of four hexadecimal digits at `at` of `size` bytes of text, or -1. */
static inline int fl_hex4(const char *text, size_t at, size_t size) {
    int value = 0;
    for (size_t i = at; i < at + 4; i++) {
        int digit = i < size ? fl_hex_digit(text[i]) : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Whole text must be a number; no spaces, no locale. */
bool fl_parse_i64(const char *text, int64_t *out);
bool fl_parse_f64(const char *text, double *out);

/* At most six digits behind the point, one space before the unit, fractions of a byte cut off.
 * "268435456", "256MiB", "1.5 GiB", "64k" (k, M, G, T and KiB… are powers of 1024; kB, MB … of 1000). */
bool fl_parse_size(const char *text, uint64_t *out);

#endif
