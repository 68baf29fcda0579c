/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_mem.c - what must never break: no size overflows, every allocation is counted and can be
 * made to fail, and an error or a note is always one printable line of UTF-8 that fits. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

Test(mem, products_that_overflow_give_null) {
    cr_assert_null(fl_alloc_array(SIZE_MAX / 2, 3));
    cr_assert_null(fl_alloc_zero(SIZE_MAX / 2, 3));
    char *block = fl_alloc(8);
    memcpy(block, "kept", 5);
    cr_assert_null(fl_realloc_array(block, SIZE_MAX / 2, 3));
    cr_assert_str_eq(block, "kept");
    fl_free(block);
    cr_assert_null(fl_big_alloc(SIZE_MAX));
    cr_assert_null(fl_big_alloc(SIZE_MAX - (1 << 20)));
}

Test(mem, size_zero_gives_a_valid_pointer) {
    void *blocks[] = {fl_alloc(0), fl_alloc_zero(0, 8), fl_alloc_array(8, 0),
                      fl_realloc_array(NULL, 0, 4), fl_alloc_aligned(0, 64)};
    for (size_t i = 0; i < 5; i++) {
        cr_assert_not_null(blocks[i], "%zu", i);
        fl_free(blocks[i]);
    }
}

Test(mem, every_kind_is_counted_and_fails_on_demand) {
    for (int kind = 0; kind < 7; kind++) {
        for (int fail = 0; fail < 2; fail++) {
            uint64_t before = fl_alloc_count();
            fl_alloc_fail_after((uint64_t)fail);
            void *block = NULL;
            switch (kind) {
            case 0: block = fl_alloc(10); break;
            case 1: block = fl_alloc_zero(2, 5); break;
            case 2: block = fl_alloc_array(2, 5); break;
            case 3: block = fl_realloc_array(NULL, 2, 5); break;
            case 4: block = fl_strdup("text"); break;
            case 5: block = fl_alloc_aligned(10, 64); break;
            default: block = fl_big_alloc(10); break;
            }
            cr_assert_eq(fl_alloc_count(), before + 1, "kind %d", kind);
            cr_assert_eq(block == NULL, fail == 1, "kind %d fail %d", kind, fail);
            if (kind == 6)
                fl_big_free(block, 10);
            else
                fl_free(block);
        }
    }
}

Test(mem, only_the_nth_allocation_fails_and_only_once) {
    fl_alloc_fail_after(3);
    for (int i = 1; i <= 6; i++) {
        void *block = fl_alloc(1);
        cr_assert_eq(block == NULL, i == 3, "allocation %d", i);
        fl_free(block);
    }
}

Test(mem, zeroed_blocks_are_zero_and_aligned) {
    size_t         size = (2u << 20) + 12345;
    unsigned char *big  = fl_big_alloc(size);
    cr_assert_eq((uintptr_t)big % (2u << 20), 0);
    for (size_t i = 0; i < size; i++)
        cr_assert_eq(big[i], 0, "byte %zu", i);
    memset(big, 1, size);
    fl_big_free(big, size);
    fl_big_free(NULL, size);
    void *aligned = fl_alloc_aligned(100, 64);
    cr_assert_eq((uintptr_t)aligned % 64, 0);
    fl_free(aligned);
}

Test(mem, strndup_stops_at_size_or_nul) {
    char *a = fl_strndup("abcdef", 3);
    char *b = fl_strndup("ab", 10);
    cr_assert_str_eq(a, "abc");
    cr_assert_str_eq(b, "ab");
    fl_free(a);
    fl_free(b);
}

Test(error, null_error_is_allowed_everywhere) {
    cr_assert_eq(fl_fail(NULL, FLETCH_EMODEL, 1, "x"), FLETCH_EMODEL);
    cr_assert_eq(fl_fail_nomem(NULL, 1, "x"), FLETCH_ENOMEM);
    cr_assert_eq(fl_fail_errno(NULL, ENOSPC, "cannot write", "f"), FLETCH_ENOSPC);
    fl_error_prefix(NULL, "x");
    fl_error_clear(NULL);
}

Test(error, long_message_is_cut_at_a_whole_character) {
    char text[2000];
    for (int shift = 0; shift < 4; shift++) {
        size_t size = (size_t)shift;
        memset(text, 'a', size);
        while (size < 1900) {
            memcpy(text + size, "\xE2\x82\xAC", 3); /* the euro sign */
            size += 3;
        }
        text[size] = '\0';
        fletch_error error;
        fl_fail(&error, FLETCH_EINVAL, 7, "%s", text);
        size_t length = strlen(error.message);
        cr_assert_eq(fl_utf8_valid_prefix(error.message, length), length);
        cr_assert_geq(length, sizeof error.message - 4);
        cr_assert_eq(strncmp(error.message, text, length), 0);
    }
}

Test(error, names_from_files_cannot_send_eight_bit_controls) {
    fletch_error error;
    fl_fail(&error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s",
            "\xc2\x9b"
            "31mred \xc2\xa9");
    cr_assert_str_eq(error.message, "?"
                                    "?31mred \xc2\xa9");
}

Test(error, names_from_files_cannot_drive_the_terminal) {
    fletch_error error;
    fl_fail(&error, FLETCH_EMODEL, FLETCH_NOWHERE, "key \"%s\"", "\x1b[31mred\r\n\x7f\xff\xc3(");
    cr_assert_str_eq(error.message, "key \"?[31mred? ?"
                                    "??"
                                    "(\"");
}

Test(error, old_message_may_be_an_argument_of_the_new_one) {
    fletch_error error;
    fl_fail(&error, FLETCH_EIO, 3, "inner");
    fl_fail(&error, FLETCH_EMODEL, 4, "outer (%s)", error.message);
    cr_assert_str_eq(error.message, "outer (inner)");
    fl_error_prefix(&error, "file %s", "a.json");
    cr_assert_str_eq(error.message, "file a.json: outer (inner)");
    cr_assert_eq(error.code, FLETCH_EMODEL);
    cr_assert_eq(error.where, 4);
    fl_error_clear(&error);
    cr_assert_eq(error.code, FLETCH_OK);
    cr_assert_eq(error.where, FLETCH_NOWHERE);
    cr_assert_str_eq(error.message, "");
}

Test(error, errno_values_map_to_the_public_status) {
    fletch_error error;
    cr_assert_eq(fl_fail_errno(&error, ENOENT, "cannot open", "/x"), FLETCH_ENOTFOUND);
    cr_assert_eq(fl_fail_errno(&error, ENOTDIR, "cannot open", "/x"), FLETCH_ENOTFOUND);
    cr_assert_eq(fl_fail_errno(&error, EACCES, "cannot open", "/x"), FLETCH_EIO);
    cr_assert_eq(fl_fail_errno(&error, EDQUOT, "cannot write", "/x"), FLETCH_ENOSPC);
    cr_assert_eq(fl_fail_errno(&error, ENOSPC, "cannot write", "/x"), FLETCH_ENOSPC);
    cr_assert_eq(strncmp(error.message, "cannot write /x: No space left", 30), 0, "%s",
                 error.message);
    cr_assert_not_null(strstr(error.message, "free some space"));
}

static void keep(void *user, int level, const char *message) {
    char *line = user;
    line[0]    = (char)('0' + level);
    strcpy(line + 1, message);
}

Test(log, note_arrives_cut_and_printable) {
    char   line[1100];
    fl_log log = {.fn = keep, .user = line};
    fl_log_write(&log, FL_LOG_WARNING, "a\x1b%s", "b");
    cr_assert_str_eq(line, "1a?b");
    fl_log_write(&log, FL_LOG_INFO, "%2000d", 1);
    cr_assert_eq(strlen(line), 1024);
    fl_log_write(NULL, FL_LOG_INFO, "x");
    log.fn = NULL;
    fl_log_write(&log, FL_LOG_INFO, "x");
}

Test(mem, big_blocks_grow_and_are_trimmed) {
    const size_t sizes[] = {1000, 700000, 5000000, 40000000, 40000001};
    uint8_t     *block   = NULL;
    size_t       size    = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *grown = fl_big_grow(block, size, sizes[i]);
        cr_assert_not_null(grown);
        for (size_t at = 0; at < sizes[i]; at += 997) {
            cr_assert_eq(grown[at], at < size ? (uint8_t)(at % 251) : 0, "%zu of %zu", at,
                         sizes[i]);
            grown[at] = (uint8_t)(at % 251);
        }
        block = grown;
        size  = sizes[i];
    }
    cr_assert_null(fl_big_grow(block, size, SIZE_MAX));
    size_t left = fl_big_trim(block, size, 3000);
    cr_assert(left >= 3000 && left < 100000);
    cr_assert_eq(block[2991], 2991 % 251);
    fl_big_free(block, left);
}

Test(error, a_list_has_whole_words_alone) {
    char list[12] = "";
    fl_error_list(list, sizeof list, "bert");
    fl_error_list(list, sizeof list, "mpnet"); /* 11 bytes and the end */
    cr_assert_str_eq(list, "bert, mpnet");
    fl_error_list(list, sizeof list, "t5");
    cr_assert_str_eq(list, "bert, mpnet");
    list[4] = '\0';
    fl_error_list(list, sizeof list, "longest");
    fl_error_list(list, sizeof list, "t5");
    cr_assert_str_eq(list, "bert, t5");
}
