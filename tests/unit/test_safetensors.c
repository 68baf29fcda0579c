/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors.c - what must never break: no byte of a file is used before its header has passed
 * every check of the format, and a hostile header costs no more than its length. The verdicts are those
 * of the format's own reader (tests/golden/test_damage.py asks it about these cases and thousands more). */
#include "base/mem.h"
#include "base/utf8.h"
#include "folder.h"
#include "model/safetensors.h"
#include "model/safetensors_header.h"

TestSuite(safetensors, .init = folder_make, .fini = folder_drop);

static int check_bytes(const unsigned char *data, size_t size, fletch_error *error) {
    fl_tensor_table table;
    int             status = fl_header_read(&table, data, size, "bytes", error);
    if (status == 0)
        fl_table_free(&table);
    return status;
}

/* The verdict on a header followed by `size` bytes of data. */
static int check(const char *header, size_t size, fletch_error *error) {
    fl_buf file = {0};
    char  *data = calloc(1, size + 1);
    tensors_file(&file, header, data, size);
    int status = check_bytes((const unsigned char *)file.data, file.size, error);
    fl_buf_free(&file);
    free(data);
    return status;
}

static void accepts(const char *header, size_t size) {
    fletch_error error;
    cr_expect_eq(check(header, size, &error), 0, "%s: %s", header, error.message);
}

static void refuses(const char *header, size_t size, const char *because) {
    fletch_error error = {0};
    cr_expect_eq(check(header, size, &error), FLETCH_EMODEL, "%s", header);
    cr_expect_not_null(strstr(error.message, because), "%s: %s", header, error.message);
}

#define ONE(shape, from, to)                                                                       \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

Test(safetensors, well_formed_headers_pass) {
    accepts("{}", 0);
    accepts(" \n{} \t\r", 0);
    accepts("{\"__metadata__\":{\"a\":\"b\"}}", 0);
    accepts("{\"__metadata__\":null}", 0);
    accepts("{\"a\":" ONE("[1]", "0", "4") ",\"b\":" ONE("[2,1]", "4", "12") "}", 12);
    accepts("{\"b\":" ONE("[2,1]", "4", "12") ",\"a\":" ONE("[1]", "0", "4") "}", 12);
    accepts("{\"scalar\":" ONE("[]", "0", "4") ",\"none\":" ONE("[0,3]", "4", "4") "}", 4);
    accepts("{\"a\":{\"x\":{\"y\":[1,-2e5,\"s\",null,{},[]]},\"dtype\":\"F4\",\"shape\":[2],"
            "\"data_offsets\":[0,1]}}",
            1);
}

Test(safetensors, lies_about_sizes_are_refused) {
    refuses("{\"a\":" ONE("[2]", "0", "4") "}", 4, "disagree");
    refuses("{\"a\":" ONE("[1]", "4", "0") "}", 4, "backwards");
    refuses("{\"a\":" ONE("[1]", "0", "4") "}", 3, "past the end");
    refuses("{\"a\":" ONE("[1]", "0", "4") "}", 5, "end at offset 4");
    refuses("{\"a\":" ONE("[1]", "0", "4") ",\"b\":" ONE("[1]", "2", "6") "}", 6, "overlap");
    refuses("{\"a\":" ONE("[1]", "0", "4") ",\"b\":" ONE("[1]", "0", "4") "}", 4, "overlap");
    refuses("{\"a\":" ONE("[1]", "0", "4") ",\"b\":" ONE("[1]", "8", "12") "}", 12, "hole");
    refuses("{\"a\":" ONE("[4611686018427387904,4611686018427387904]", "0", "0") "}", 0,
            "too large");
    refuses("{\"a\":" ONE("[18446744073709551616]", "0", "0") "}", 0, "too large");
    refuses("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "disagree");
    refuses("{\"a\":" ONE("[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "8 dimensions");
}

Test(safetensors, text_that_is_no_header_is_refused) {
    refuses("", 0, "EOF");
    refuses("[]", 0, "expected");
    refuses("{} x", 0, "trailing");
    refuses("{\"a\":1}", 0, "expected");
    refuses("{\"a\xFF\":1}", 0, "UTF-8");
    refuses("{\"a\\u0000\":1}", 0, "NUL");
    refuses("{\"a\\ud800\":1}", 0, "surrogate");
    refuses("{\"a\\x\":1}", 0, "escape");
    refuses("{\"a", 0, "EOF");
    refuses("{\"a\":" ONE("[1.0]", "0", "4") "}", 4, "integer");
    refuses("{\"a\":" ONE("[01]", "0", "4") "}", 4, "expected");
    refuses("{\"a\":" ONE("[-1]", "0", "4") "}", 4, "integer");
    refuses("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype");
    refuses("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "missing");
    refuses("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            "duplicate");
    refuses("{\"a\":" ONE("[1]", "0", "4") ",\"a\":" ONE("[1]", "4", "8") "}", 8, "duplicate");
    refuses("{\"a\":" ONE("[1]", "0", "4") ",\"\\u0061\":" ONE("[1]", "4", "8") "}", 8,
            "duplicate");
    refuses("{\"__metadata__\":{\"a\":1}}", 0, "expected");
}

Test(safetensors, the_length_field_is_not_believed) {
    const unsigned char short_file[7] = {0}, over[10] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    const unsigned char huge[8] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    fletch_error        error;
    cr_expect_eq(check_bytes(short_file, sizeof short_file, &error), FLETCH_EMODEL);
    cr_expect_eq(check_bytes(over, sizeof over, &error), FLETCH_EMODEL);
    cr_expect_not_null(strstr(error.message, "past the end"));
    cr_expect_eq(check_bytes(huge, sizeof huge, &error), FLETCH_EMODEL);
    cr_expect_not_null(strstr(error.message, "limit"));
    cr_expect_eq(check_bytes(NULL, 0, &error), FLETCH_EMODEL);
}

Test(safetensors, nesting_is_bounded_without_recursion) {
    fl_buf       header = {0};
    fletch_error error;
    fl_buf_puts(&header, "{\"a\":{\"x\":");
    for (int i = 0; i < 1000000; i++)
        fl_buf_putc(&header, '[');
    cr_expect_eq(check(header.data, 0, &error), FLETCH_EMODEL);
    cr_expect_not_null(strstr(error.message, "recursion limit"));
    fl_buf_free(&header);
}

/* Names written as escapes are the names they stand for. */
Test(safetensors, every_code_point_may_be_an_escape) {
    fl_buf header = {0};
    for (uint32_t c = 1; c <= 0x10FFFF; c += c == 0xD7FF ? 0x801 : 1) {
        char     expected[5] = {0};
        unsigned high = 0xD7C0 + (c >> 10), low = 0xDC00 + (c & 0x3FF);
        (void)fl_utf8_encode(c, expected);
        fl_buf_clear(&header);
        fl_buf_puts(&header, "01234567{\"");
        fl_buf_printf(&header, c < 0x10000 ? "\\u%04x" : "\\u%04X\\u%04x", c < 0x10000 ? c : high,
                      low);
        fl_buf_puts(&header, "\":" ONE("[0]", "0", "0") "}");
        uint64_t        size = header.size - 8;
        fl_tensor_table table;
        fletch_error    error;
        memcpy(header.data, &size, sizeof size);
        cr_assert_eq(
            fl_header_read(&table, (const unsigned char *)header.data, header.size, "t", &error), 0,
            "%s", error.message);
        cr_assert_str_eq(table.names[0], expected, "U+%04X", c);
        fl_table_free(&table);
    }
    fl_buf_free(&header);
}

/* n names that differ only at their end, tiling n bytes; every name is found again. */
Test(safetensors, many_names_are_all_found) {
    enum { COUNT = 50000 };
    tensors t;
    char    name[64];
    tensors_begin(&t);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "encoder.layer.with.a.long.common.start.%d", i);
        tensor_add(&t, name, "U8", "[1]", &(unsigned char){(unsigned char)i}, 1);
    }
    tensors_end(&t, "many.safetensors");
    fl_safetensors *file;
    fletch_error    error;
    cr_assert_eq(fl_safetensors_open(&file, folder_path("many.safetensors"), &error), 0, "%s",
                 error.message);
    cr_assert_eq(fl_safetensors_count(file), COUNT);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "encoder.layer.with.a.long.common.start.%d", i);
        const fl_tensor *found = fl_safetensors_find(file, name);
        cr_assert_not_null(found, "%s", name);
        cr_assert_eq(*(const unsigned char *)found->data, (unsigned char)i);
        cr_assert_str_eq(fl_safetensors_name(file, (size_t)i), name);
    }
    cr_assert_null(fl_safetensors_find(file, "encoder.layer.with.a.long.common.start."));
    fl_safetensors_close(file);
}

Test(safetensors, released_pages_hold_the_same_bytes) {
    tensors t;
    tensors_begin(&t);
    tensor_add_counting(&t, "a", 3000, 0, 1);
    tensor_add_counting(&t, "b", 3000, 0, 5);
    tensors_end(&t, "model.safetensors");
    fl_safetensors *file;
    fletch_error    error;
    float           values[3000];
    cr_assert_eq(fl_safetensors_open_folder(&file, folder, &error), 0, "%s", error.message);
    const fl_tensor *a = fl_safetensors_find(file, "a"), *b = fl_safetensors_find(file, "b");
    cr_assert(a->map && b->map);
    fl_pages_release(a->data, a->bytes);
    fl_pages_release(b->data, b->bytes);
    fl_tensor_to_f32(b, 0, 3000, values);
    for (int i = 0; i < 3000; i++)
        cr_assert_eq(values[i], (float)(5 + i));
    fl_safetensors_close(file);
}

/* ---- Sharded models -------------------------------------------------------------------------- */

static void write_shards(const char *index) {
    tensors t;
    tensors_begin(&t);
    tensor_add_counting(&t, "x", 2, 0, 1);
    tensor_add_counting(&t, "y", 1, 2, 3);
    tensors_end(&t, "one.safetensors");
    tensors_begin(&t);
    tensor_add_counting(&t, "z", 1, 0, 7);
    tensors_end(&t, "two.safetensors");
    folder_write("model.safetensors.index.json", index);
}

Test(safetensors, shards_are_one_model) {
    fl_safetensors *file;
    fletch_error    error;
    float           value;
    write_shards("{\"metadata\":{\"total_size\":20},\"weight_map\":{\"x\":\"one.safetensors\","
                 "\"z\":\"two.safetensors\",\"y\":\"one.safetensors\"}}");
    cr_assert_eq(fl_safetensors_open_folder(&file, folder, &error), 0, "%s", error.message);
    cr_assert_eq(fl_safetensors_count(file), 3);
    fl_tensor_to_f32(fl_safetensors_find(file, "z"), 0, 1, &value);
    cr_assert_eq(value, 7.0F);
    fl_tensor_to_f32(fl_safetensors_find(file, "y"), 1, 1, &value);
    cr_assert_eq(value, 4.0F);
    cr_assert(fl_safetensors_find(file, "z")->map);
    fl_safetensors_close(file);
}

static void index_refused(const char *map, const char *because) {
    char            index[512];
    fl_safetensors *file  = NULL;
    fletch_error    error = {0};
    snprintf(index, sizeof index, "{\"weight_map\":%s}", map);
    write_shards(index);
    cr_expect_eq(fl_safetensors_open_folder(&file, folder, &error), FLETCH_EMODEL, "%s", map);
    cr_expect_null(file);
    cr_expect_not_null(strstr(error.message, because), "%s: %s", map, error.message);
}

Test(safetensors, an_index_is_not_believed) {
    index_refused("{\"x\":\"../one.safetensors\"}", "leaves the folder");
    index_refused("{\"x\":\"a/../../one.safetensors\"}", "leaves the folder");
    index_refused("{\"x\":\"/etc/passwd\"}", "leaves the folder");
    index_refused("{\"x\":\"\"}", "leaves the folder");
    index_refused("{\"x\":\"three.safetensors\"}", "three.safetensors is missing");
    index_refused("{\"x\":\"one.safetensors\",\"z\":\"one.safetensors\"}", "does not hold z");
    index_refused("{\"x\":5}", "not a string");
    index_refused("{}", "no weight_map");
    index_refused("[]", "weight_map");
    index_refused("{\"x\":\"model.safetensors.index.json\"}", "header");
}

Test(safetensors, a_folder_without_weights_says_what_to_do) {
    fl_safetensors *file;
    fletch_error    error;
    cr_expect_eq(fl_safetensors_open_folder(&file, folder, &error), FLETCH_EMODEL);
    cr_expect_not_null(strstr(error.message, "model.safetensors"));
    folder_write("pytorch_model.bin", "pickle");
    cr_expect_eq(fl_safetensors_open_folder(&file, folder, &error), FLETCH_EUNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "torch.save"));
    cr_expect_eq(fl_safetensors_open(&file, folder_path("none"), &error), FLETCH_ENOTFOUND);
    fl_safetensors_close(NULL);
}

Test(safetensors, each_allocation_may_fail) {
    fletch_error error;
    write_shards("{\"weight_map\":{\"x\":\"one.safetensors\",\"z\":\"two.safetensors\"}}");
    for (uint64_t n = 1;; n++) {
        fl_safetensors *file = NULL;
        fl_alloc_fail_after(n);
        int status = fl_safetensors_open_folder(&file, folder, &error);
        fl_alloc_fail_after(0);
        fl_safetensors_close(file);
        if (status == 0)
            break;
        cr_assert_eq(status, FLETCH_ENOMEM, "allocation %d: %s", (int)n, error.message);
        cr_assert_lt(n, 1000);
    }
}
