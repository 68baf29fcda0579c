/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_buf.c - what must never break: a buffer is always NUL-terminated, keeps its bytes through
 * growth, and after a failed growth keeps what it has and reports it once at the end. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

Test(buf, appends_of_every_kind_end_in_one_terminated_text) {
    fl_buf buf = {0};
    fl_buf_puts(&buf, "a");
    fl_buf_putc(&buf, 'b');
    fl_buf_append(&buf, "c\0d", 3);
    fl_buf_printf(&buf, "%d-%s", 42, "e");
    cr_assert_eq(buf.size, 9);
    cr_assert_eq(memcmp(buf.data, "abc\0d42-e", 10), 0);
    fl_buf_free(&buf);
    cr_assert_null(buf.data);
}

Test(buf, growth_keeps_every_byte) {
    fl_buf buf = {0};
    for (int i = 0; i < 100000; i++)
        fl_buf_putc(&buf, (char)(i * 7));
    cr_assert_eq(buf.size, 100000);
    for (int i = 0; i < 100000; i++)
        cr_assert_eq(buf.data[i], (char)(i * 7), "byte %d", i);
    cr_assert_eq(buf.data[buf.size], '\0');
    fl_buf_free(&buf);
}

Test(buf, printf_longer_than_the_room_left_is_whole) {
    fl_buf buf = {0};
    fl_buf_puts(&buf, "x");
    fl_buf_printf(&buf, "%5000d", 7);
    cr_assert_eq(buf.size, 5001);
    cr_assert_eq(strlen(buf.data), 5001);
    cr_assert_eq(buf.data[5000], '7');
    fl_buf_free(&buf);
}

Test(buf, failed_growth_is_remembered_and_keeps_the_content) {
    fl_buf buf = {0};
    fl_buf_puts(&buf, "kept");
    fl_alloc_fail_after(1);
    fl_buf_printf(&buf, "%4000d", 1);
    cr_assert(buf.failed);
    fl_buf_puts(&buf, "later");
    cr_assert_str_eq(buf.data, "kept");
    cr_assert_null(fl_buf_take(&buf));
    fl_buf_puts(&buf, "usable again");
    cr_assert_str_eq(buf.data, "usable again");
    fl_buf_free(&buf);
}

Test(buf, impossible_size_fails_instead_of_wrapping) {
    fl_buf buf = {0};
    fl_buf_puts(&buf, "x");
    cr_assert_not(fl_buf_reserve(&buf, SIZE_MAX - 1));
    cr_assert(buf.failed);
    fl_buf_clear(&buf);
    cr_assert_not(fl_buf_reserve(&buf, SIZE_MAX));
    fl_buf_clear(&buf);
    fl_alloc_fail_after(1); /* sanitizers stop the program at such a size */
    cr_assert_not(fl_buf_reserve(&buf, SIZE_MAX / 2 + 10), "and the doubling ends");
    fl_buf_free(&buf);
}

Test(buf, clear_keeps_the_capacity_so_reuse_allocates_nothing) {
    fl_buf buf = {0};
    fl_buf_printf(&buf, "%3000d", 1);
    uint64_t before = fl_alloc_count();
    fl_buf_clear(&buf);
    cr_assert_str_eq(buf.data, "");
    fl_buf_printf(&buf, "%3000d", 2);
    cr_assert_eq(fl_alloc_count(), before);
    fl_buf_free(&buf);
}

Test(buf, take_of_nothing_is_an_empty_text) {
    fl_buf buf  = {0};
    char  *text = fl_buf_take(&buf);
    cr_assert_str_eq(text, "");
    cr_assert_null(buf.data);
    fl_free(text);
}
