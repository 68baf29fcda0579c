/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_utf8.c - what must never break: exactly the byte strings of RFC 3629 are valid, decode
 * undoes encode, and repair replaces the parts that Unicode's table 3-8 replaces. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/utf8.h"

Test(utf8, every_code_point_survives_and_is_valid) {
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        char     text[4];
        unsigned length = fl_utf8_encode(c, text);
        unsigned again;
        cr_assert_eq(fl_utf8_valid_prefix(text, length), length, "U+%04X", c);
        cr_assert_eq(fl_utf8_decode(text, &again), c, "U+%04X", c);
        cr_assert_eq(again, length, "U+%04X", c);
        cr_assert_eq(fl_utf8_valid_prefix(text, length - 1), length == 1 ? 0 : 0, "torn U+%04X", c);
    }
}

Test(utf8, surrogates_and_large_values_encode_as_replacement) {
    uint32_t wrong[] = {0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF};
    for (size_t i = 0; i < 4; i++) {
        char text[4];
        cr_assert_eq(fl_utf8_encode(wrong[i], text), 3);
        cr_assert_eq(memcmp(text, "\xEF\xBF\xBD", 3), 0);
    }
}

/* RFC 3629's grammar, written as ranges; an independent statement of what is valid. */
static int rfc_valid(const unsigned char *p, size_t n) {
    static const struct {
        unsigned char low[4], high[4];
        size_t        length;
    } rule[] = {{{0x00}, {0x7F}, 1},
                {{0xC2, 0x80}, {0xDF, 0xBF}, 2},
                {{0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}, 3},
                {{0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}, 3},
                {{0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}, 3},
                {{0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}, 3},
                {{0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}, 4},
                {{0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}, 4},
                {{0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}, 4}};
    for (size_t at = 0; at < n;) {
        size_t step = 0;
        for (size_t r = 0; r < 9; r++) {
            size_t k = 0;
            while (k < rule[r].length && at + k < n && p[at + k] >= rule[r].low[k] &&
                   p[at + k] <= rule[r].high[k])
                k++;
            step = k == rule[r].length ? k : step;
        }
        if (step == 0)
            return 0;
        at += step;
    }
    return 1;
}

Test(utf8, all_strings_of_two_and_three_bytes_agree_with_the_rfc) {
    unsigned char p[4];
    for (uint32_t v = 0; v < 1u << 24; v++) {
        if ((v & 0xFF) != 0 && (v & 0xFF) < 0x78)
            continue; /* the last byte: 0 and the edges from 78 up */
        p[0]         = (unsigned char)(v >> 16);
        p[1]         = (unsigned char)(v >> 8);
        p[2]         = (unsigned char)v;
        size_t valid = fl_utf8_valid_prefix((const char *)p, 3);
        if ((valid == 3) != rfc_valid(p, 3))
            cr_assert_fail("%02X %02X %02X", p[0], p[1], p[2]);
        if ((fl_utf8_valid_prefix((const char *)p, 2) == 2) != rfc_valid(p, 2))
            cr_assert_fail("%02X %02X", p[0], p[1]);
    }
}

Test(utf8, four_byte_edges_agree_with_the_rfc) {
    static const unsigned char edge[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                         0xC0, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xF5, 0xFF};
    for (unsigned first = 0xE0; first < 0x100; first++) {
        for (size_t i = 0; i < sizeof edge * sizeof edge * sizeof edge; i++) {
            unsigned char p[4] = {(unsigned char)first, edge[i % sizeof edge],
                                  edge[i / sizeof edge % sizeof edge],
                                  edge[i / sizeof edge / sizeof edge]};
            if ((fl_utf8_valid_prefix((const char *)p, 4) == 4) != rfc_valid(p, 4))
                cr_assert_fail("%02X %02X %02X %02X", p[0], p[1], p[2], p[3]);
        }
    }
}

Test(utf8, a_bad_byte_is_found_wherever_it_stands) {
    char text[200];
    for (size_t at = 0; at < sizeof text; at++) {
        memset(text, 'a', sizeof text);
        text[at] = (char)0xFF;
        cr_assert_eq(fl_utf8_valid_prefix(text, sizeof text), at);
        cr_assert_eq(fl_utf8_valid_prefix(text, at), at);
        if (at + 1 < sizeof text) { /* an accent that straddles the blocks of 32 */
            memcpy(text + at, "\xC3\xA9", 2);
            cr_assert_eq(fl_utf8_valid_prefix(text, sizeof text), sizeof text);
        }
    }
    cr_assert_eq(fl_utf8_valid_prefix("", 0), 0);
    cr_assert_eq(fl_utf8_valid_prefix("a\0b", 3), 3, "NUL is text");
}

static void expect_repair(const char *text, size_t size, const char *expected) {
    fl_buf out = {0};
    fl_utf8_replace_invalid(&out, text, size);
    cr_assert_eq(out.size, strlen(expected));
    cr_assert_eq(memcmp(out.data, expected, out.size), 0);
    fl_buf_free(&out);
}

#define R "\xEF\xBF\xBD"
/* Unicode 15, section 3.9, tables 3-8 to 3-11. */
Test(utf8, repair_follows_unicode_tables) {
    expect_repair("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", 9, R R R R R R R R "A");
    expect_repair("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", 9, R R R R R R R R "A");
    expect_repair("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", 9, R R R R R "A" R R "B");
    expect_repair("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", 9, R R R R "A");
    expect_repair("ok\xE2\x82", 4, "ok" R);
}
