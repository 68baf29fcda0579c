/* SPDX-License-Identifier: Apache-2.0 */
/* test_server_out.c - what must never break: a float read back from a reply is the float that was written, nothing
 * that is not finite is ever written, base64 is RFC 4648's on every instruction set. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_out.h"
#include "server/base64.h"

static uint32_t next(uint32_t *state) { /* xorshift */
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

Test(server_out, floats_read_back_as_they_were) {
    enum { COUNT = 20000 };
    float   *row   = malloc(COUNT * sizeof *row);
    uint32_t state = 1;
    for (int i = 0; i < COUNT; i++)
        do {
            uint32_t bits = next(&state);
            memcpy(&row[i], &bits, sizeof bits);
        } while (!isfinite(row[i]));
    row[0]     = -0.0f;
    fl_buf out = {0};
    cr_assert(fl_json_out_floats(&out, row, COUNT));
    cr_assert(out.data[0] == '[' && out.data[out.size - 1] == ']' && out.data[out.size] == '\0');
    char *p = out.data + 1;
    for (int i = 0; i < COUNT; i++) {
        char *end;
        float back = strtof(p, &end);
        cr_assert(memcmp(&back, &row[i], sizeof back) == 0, "%d: %.9g became %.9g", i,
                  (double)row[i], (double)back);
        cr_assert_eq(*end, i == COUNT - 1 ? ']' : ',');
        p = end + 1;
    }
    fl_buf_free(&out);
    free(row);
}

Test(server_out, short_lists_have_their_brackets) {
    fl_buf  out   = {0};
    float   f[2]  = {0.5f, -1.0f};
    int8_t  i8[4] = {-128, -7, 0, 127};
    uint8_t u8[4] = {0, 9, 10, 255};
    int32_t ids[] = {0, 30522, INT32_MAX};
    fl_json_out_floats(&out, f, 0);
    fl_json_out_floats(&out, f, 1);
    fl_json_out_floats(&out, f, 2);
    fl_json_out_bytes(&out, i8, 4, true);
    fl_json_out_bytes(&out, u8, 4, false);
    fl_json_out_bytes(&out, u8, 0, false);
    fl_json_out_ids(&out, ids, 0);
    fl_json_out_ids(&out, ids, 3);
    fl_json_out_rows(&out, f, 0, 2);
    fl_json_out_rows(&out, f, 2, 1);
    fl_json_out_u64(&out, UINT64_MAX);
    cr_assert_str_eq(out.data, "[][0.5][0.5,-1][-128,-7,0,127][0,9,10,255][]"
                               "[][0,30522,2147483647][][[0.5],[-1]]18446744073709551615");
    fl_buf_free(&out);
}

Test(server_out, what_is_not_finite_is_never_written) {
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        for (size_t at = 0; at < 9; at++) {
            float  row[9] = {0};
            fl_buf out    = {0};
            row[at]       = bad[i];
            cr_assert_not(fl_json_out_floats(&out, row, 9));
            cr_assert_eq(out.size, 0);
            cr_assert_not(fl_json_out_rows(&out, row, 3, 3));
            fl_buf_free(&out);
        }
    }
}

Test(server_out, base64_is_that_of_the_rfc) {
    static const char *const row[][2] = {{"", ""},
                                         {"f", "Zg=="},
                                         {"fo", "Zm8="},
                                         {"foo", "Zm9v"},
                                         {"foob", "Zm9vYg=="},
                                         {"fooba", "Zm9vYmE="},
                                         {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        fl_buf out = {0};
        fl_base64_put(&out, fl_base64_ref, row[i][0], strlen(row[i][0]));
        cr_assert_eq(out.size, strlen(row[i][1]) + 2);
        cr_assert(memcmp(out.data + 1, row[i][1], out.size - 2) == 0, "%s", out.data);
        fl_buf_free(&out);
    }
    const float two[2] = {0.1f, 0.2f}; /* the value Ollama's tests expect */
    fl_buf      out    = {0};
    fl_base64_put(&out, fl_base64_best(), two, sizeof two);
    cr_assert_str_eq(out.data, "\"zczMPc3MTD4=\"");
    fl_buf_free(&out);
}

/* Every length, exact allocations so that a sanitizer sees a byte too many, all digits. */
Test(server_out, base64_is_the_same_on_every_instruction_set) {
    fl_base64_fn best  = fl_base64_best();
    uint32_t     state = 7;
    for (size_t size = 0; size < 400; size++) {
        uint8_t *data = malloc(size > 0 ? size : 1);
        char    *a    = malloc(fl_base64_size(size) + 1);
        char    *b    = malloc(fl_base64_size(size) > 0 ? fl_base64_size(size) : 1);
        for (size_t i = 0; i < size; i++)
            data[i] = (uint8_t)(next(&state) >> 11);
        fl_base64_ref(a, data, size);
        best(b, data, size);
        cr_assert(memcmp(a, b, fl_base64_size(size)) == 0, "%zu bytes", size);
        free(data);
        free(a);
        free(b);
    }
}
