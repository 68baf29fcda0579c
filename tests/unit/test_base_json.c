/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_json.c - what must never break: only RFC 8259 passes, an error names the right byte, a
 * hostile document costs bounded time and memory, and getters never misread a type. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "base/utf8.h"

static int parse(fl_json **json, const char *text, int flags, fletch_error *error) {
    return fl_json_parse(json, text, strlen(text), 1 << 20, flags, "t.json", error);
}

Test(json, valid_documents_pass) {
    const char *valid[] = {"{}",
                           "[]",
                           " [1, 2.5, -0, 0.0e+7, 1E5]\n",
                           "\"a\"",
                           "12",
                           "-0.5",
                           "true",
                           "null",
                           "{\"a\":{\"b\":[null,true,false,\"\\u00e9\\ud83d\\ude00\\n\"]}}",
                           "\t\r\n {\"\" : 1}",
                           "\"\\u0000\"",
                           "[1000000000000000019884624838656]",
                           "\"\x7f\xc3\xa9\"",
                           "[[],{},[{}]]",
                           "1e400"};
    for (size_t i = 0; i < sizeof valid / sizeof valid[0]; i++) {
        fl_json     *json;
        fletch_error error;
        cr_assert_eq(parse(&json, valid[i], FL_JSON_UNIQUE_KEYS, &error), 0, "%s: %s", valid[i],
                     error.message);
        fl_json_free(json);
    }
}

Test(json, invalid_documents_fail_at_the_right_byte) {
    static const struct {
        const char *text;
        size_t      where;
    } row[] = {{"", 0},
               {"  ", 2},
               {"{", 1},
               {"[1,]", 3},
               {"{\"a\":1,}", 7},
               {"[1 2]", 3},
               {"{a:1}", 1},
               {"{'a':1}", 1},
               {"[NaN]", 1},
               {"[-Infinity]", 1},
               {"[Infinity]", 1},
               {"nul", 0},
               {"nulll", 4},
               {"TRUE", 0},
               {"[01]", 2},
               {"[+1]", 1},
               {"[.5]", 1},
               {"[1.]", 1},
               {"[1e]", 1},
               {"[0x10]", 2},
               {"[-]", 1},
               {"[1]x", 3},
               {"[1][2]", 3},
               {"{}}", 2},
               {"[1}", 2},
               {"{\"a\":1]", 6},
               {"{\"a\" 1}", 5},
               {"{\"a\"}", 4},
               {"\"abc", 4},
               {"\"a\nb\"", 2},
               {"\"\\x\"", 1},
               {"\"\\u12\"", 1},
               {"\"\\ud800\"", 1},
               {"\"\\udc00x\"", 1},
               {"\"\\ud800\\u0041\"", 1},
               {"[1] // note", 4},
               {"/* */ 1", 0},
               {"{\"a\\u0000b\":1}", 1},
               {"[\"a\xff\"]", 3},
               {"\xEF\xBB\xBF{}", 0},
               {"{1:2}", 1},
               {"[,1]", 1},
               {",", 0},
               {"]", 0},
               {"{\"a\":}", 5},
               {"{,}", 1},
               {"[\"\\", 2}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        fl_json     *json;
        fletch_error error;
        cr_assert_eq(parse(&json, row[i].text, 0, &error), FLETCH_EMODEL, "%s", row[i].text);
        cr_assert_null(json);
        cr_assert_eq(error.where, row[i].where, "%s: at %zu: %s", row[i].text, error.where,
                     error.message);
        cr_assert_eq(strncmp(error.message, "t.json: ", 8), 0, "%s", error.message);
    }
}

Test(json, a_nul_byte_is_not_the_end_of_the_text) {
    fl_json     *json;
    fletch_error error;
    cr_assert_eq(fl_json_parse(&json, "[1]\0[2]", 7, 100, 0, "t", &error), FLETCH_EMODEL);
    cr_assert_eq(error.where, 3);
    cr_assert_eq(fl_json_parse(&json, "[1]junk", 3, 100, 0, "t", &error), 0, "size is the end");
    fl_json_free(json);
    cr_assert_eq(fl_json_parse(&json, "12345", 2, 100, 0, "t", &error), 0);
    cr_assert_eq(fl_json_int64(json), 12);
    fl_json_free(json);
}

Test(json, depth_64_passes_and_65_fails) {
    char text[400];
    for (int objects = 0; objects < 2; objects++) {
        for (int depth = 64; depth <= 65; depth++) {
            size_t size = 0;
            for (int i = 0; i < depth; i++)
                size += (size_t)sprintf(text + size, objects ? "{\"\":" : "[");
            size += (size_t)sprintf(text + size, objects ? "0" : "");
            for (int i = 0; i < depth; i++)
                text[size++] = objects ? '}' : ']';
            text[size] = '\0';
            fl_json     *json;
            fletch_error error;
            int          status = parse(&json, text, 0, &error);
            cr_assert_eq(status, depth == 64 ? 0 : FLETCH_EMODEL, "%d: %s", depth, error.message);
            fl_json_free(json);
        }
    }
}

Test(json, size_limit_is_exact) {
    fl_json     *json;
    fletch_error error;
    cr_assert_eq(fl_json_parse(&json, "[1]", 3, 3, 0, "t", &error), 0);
    fl_json_free(json);
    cr_assert_eq(fl_json_parse(&json, "[1]", 3, 2, 0, "t", &error), FLETCH_EMODEL);
}

/* 20 million numbers of one digit: refused before they take more than 256 MiB beside the text. */
Test(json, a_bomb_is_refused) {
    size_t size = 40000001;
    char  *text = malloc(size);
    text[0]     = '[';
    for (size_t i = 1; i + 2 <= size; i += 2)
        memcpy(text + i, "0,", 2);
    text[size - 1] = ']';
    fl_json     *json;
    fletch_error error;
    text[size - 2] = '0';
    cr_assert_eq(fl_json_parse(&json, text, size, size, 0, "t", &error), FLETCH_EMODEL);
    cr_assert_not_null(strstr(error.message, "memory"), "%s", error.message);
    free(text);
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* A document of every code point, one string each, written as escapes; NUL only as a value. */
static void write_escapes(fl_buf *out, bool keys, bool upper) {
    for (uint32_t c = keys; c <= 0x10FFFF; c += c == 0xD7FF ? 0x801 : 1) {
        unsigned units[2] = {c < 0x10000 ? c : 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF)};
        fl_buf_puts(out, c == keys ? keys ? "{\"" : "[\"" : ",\"");
        for (int i = 0; i < (c < 0x10000 ? 1 : 2); i++)
            fl_buf_printf(out, upper ? "\\u%04X" : "\\u%04x", units[i]);
        fl_buf_puts(out, keys ? "\":1" : "\"");
    }
    fl_buf_putc(out, keys ? '}' : ']');
}

Test(json, every_code_point_may_be_an_escape) {
    for (int form = 0; form < 4; form++) {
        bool         keys = (form & 1) != 0;
        fl_buf       text = {0};
        fl_json     *json;
        fletch_error error;
        size_t       i = 0;
        write_escapes(&text, keys, form >= 2);
        cr_assert_eq(
            fl_json_parse(&json, text.data, text.size, text.size, FL_JSON_UNIQUE_KEYS, "t", &error),
            0, "%s", error.message);
        for (uint32_t c = keys; c <= 0x10FFFF; c += c == 0xD7FF ? 0x801 : 1, i++) {
            char        expected[5] = {0};
            size_t      size        = fl_utf8_encode(c, expected);
            fl_json    *value       = NULL;
            const char *found =
                keys ? fl_json_member(json, i, &value) : fl_json_text(fl_json_item(json, i));
            size_t found_size = keys ? strlen(found) : fl_json_text_size(fl_json_item(json, i));
            cr_assert(found_size == size && memcmp(found, expected, size + 1) == 0, "U+%04X", c);
            cr_assert(!keys || fl_json_get(json, expected) == value, "U+%04X", c);
        }
        cr_assert_eq(i, fl_json_count(json));
        fl_json_free(json);
        fl_buf_free(&text);
    }
}

/* ---- Tables that stay text ---------------------------------------------------------------------- */

Test(json, tables_stay_text_and_are_checked_all_the_same) {
    const int  flags = FL_JSON_UNIQUE_KEYS | FL_JSON_TABLES_LATER;
    const char text[] =
        "{\"vocab\":[1],\"a\":{\"vocab\":{\"b\\u0041\":7,\"c\":8},\"merges\":[\"x\"],"
        "\"d\":{\"vocab\":[2]},\"e\":9}}";
    fl_json     *json;
    fl_json_in   in;
    fl_span      key;
    int64_t      id = 0;
    fletch_error error;
    cr_assert_eq(parse(&json, text, flags, &error), 0, "%s", error.message);
    fl_json *a = fl_json_get(json, "a"), *table = fl_json_get(a, "vocab");
    cr_assert(fl_json_is(table, FL_JSON_OBJECT));
    cr_assert(fl_json_is(fl_json_get(a, "merges"), FL_JSON_ARRAY));
    cr_assert_eq(fl_json_count(table) + fl_json_count(fl_json_get(a, "merges")), 0);
    cr_assert_null(fl_json_get(table, "c"));
    cr_assert_eq(fl_json_int64(fl_json_get(a, "e")), 9);
    cr_assert_eq(fl_json_count(fl_json_get(json, "vocab")), 1, "not inside an object of the root");
    cr_assert_eq(fl_json_count(fl_json_get(fl_json_get(a, "d"), "vocab")), 1, "too deep");
    cr_assert(!fl_json_later(a, &in) && !fl_json_later(NULL, &in));
    cr_assert(fl_json_later(table, &in) && fl_json_in_enter(&in, FL_JSON_OBJECT));
    cr_assert(fl_json_in_key(&in, &key) && fl_span_is(key, "bA"));
    cr_assert(fl_json_in_integer(&in, &id) && id == 7);
    cr_assert(fl_json_in_key(&in, &key) && fl_span_is(key, "c") && fl_json_in_skip(&in, NULL));
    cr_assert(!fl_json_in_key(&in, &key) && fl_json_in_end(&in));
    fl_json_free(json);
    cr_assert_eq(parse(&json, "{\"a\":{\"vocab\":{\"b\":01}}}", flags, &error), FLETCH_EMODEL);
    cr_assert_eq(parse(&json, "{\"a\":{\"vocab\":[\"\\ud800\"]}}", flags, &error), FLETCH_EMODEL);
    cr_assert_eq(parse(&json, "{\"a\":{\"merges\":[1,]}}", flags, &error), FLETCH_EMODEL);
    cr_assert_null(json);
}

/* ---- Trees ----------------------------------------------------------------------------------- */

Test(json, members_keep_their_order_and_the_last_of_equal_keys_wins) {
    /* Below, at and above the size from which objects have an index. */
    for (int n = 1; n <= 300; n += n < 40 ? 1 : 37) {
        fl_buf       text = {0};
        fl_json     *json;
        fletch_error error;
        fl_buf_putc(&text, '{');
        for (int i = 0; i < 2 * n; i++) /* every key twice, the second time the other way round */
            fl_buf_printf(&text, "%s\"k%d\":[%d]", i == 0 ? "" : ",", i < n ? i : 2 * n - 1 - i, i);
        fl_buf_putc(&text, '}');
        cr_assert_eq(fl_json_parse(&json, text.data, text.size, text.size, 0, "t", &error), 0);
        cr_assert_eq(fl_json_count(json), n);
        for (int i = 0; i < n; i++) {
            char     key[16];
            fl_json *value;
            snprintf(key, sizeof key, "k%d", i);
            cr_assert_str_eq(fl_json_member(json, (size_t)i, &value), key);
            cr_assert_eq(fl_json_int64(fl_json_item(value, 0)), 2 * n - 1 - i);
            cr_assert_eq(fl_json_get(json, key), value);
        }
        cr_assert_not(fl_json_find(json, "k", NULL));
        cr_assert_not(fl_json_find(json, "k1000", NULL));
        fl_json_free(json);
        fl_buf_free(&text);
    }
}

Test(json, values_of_other_types_are_nothing) {
    fl_json     *json, *value;
    fletch_error error;
    cr_assert_eq(parse(&json, "[null,true,12,\"a\",[1],{\"k\":null}]", 0, &error), 0);
    for (size_t i = 0; i < 7; i++) { /* the last is past the end */
        value = fl_json_item(json, i);
        cr_assert_eq(fl_json_true(value), i == 1);
        cr_assert_eq(fl_json_is_int(value), i == 2);
        cr_assert_eq(fl_json_int64(value), i == 2 ? 12 : 0);
        cr_assert_eq(fl_json_f64(value), i == 2 ? 12.0 : 0.0);
        cr_assert_eq(fl_json_text(value) != NULL, i == 3);
        cr_assert_eq(fl_json_text_size(value), i == 3);
        cr_assert_eq(fl_json_count(value), i == 4 || i == 5);
        cr_assert_eq(fl_json_item(value, 0) != NULL, i == 4);
        cr_assert_eq(fl_json_find(value, "k", NULL), i == 5);
        cr_assert_null(fl_json_get(value, "k"));
    }
    fl_json_free(json);
}

/* Numbers are read as strtod and strtoll read them, whatever the locale of the host. */
Test(json, numbers_are_exact) {
    static const char *const text[] = {"-13.529880523681641",
                                       "0.1",
                                       "5e-324",
                                       "1e308",
                                       "1e400",
                                       "-0.0",
                                       "9007199254740993",
                                       "123456789012345678901234567890.5e-10"};
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        fl_json     *json;
        fletch_error error;
        cr_assert_eq(parse(&json, text[i], 0, &error), 0);
        double expected = strtod(text[i], NULL), found = fl_json_f64(json);
        cr_assert_eq(memcmp(&expected, &found, sizeof found), 0, "%s: %.17g", text[i], found);
        fl_json_free(json);
    }
    static const struct {
        const char *text;
        int64_t     value;
    } whole[] = {{"9223372036854775807", INT64_MAX},
                 {"9223372036854775808", INT64_MAX},
                 {"-9223372036854775808", INT64_MIN},
                 {"-9223372036854775809", INT64_MIN},
                 {"-0", 0},
                 {"9007199254740993", 9007199254740993}};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        fl_json     *json;
        fletch_error error;
        cr_assert_eq(parse(&json, whole[i].text, 0, &error), 0);
        cr_assert(fl_json_is_int(json));
        cr_assert_eq(fl_json_int64(json), whole[i].value, "%s", whole[i].text);
        fl_json_free(json);
    }
}

Test(json, duplicate_keys_are_named_when_asked) {
    static const struct {
        const char *text;
        size_t      where;
    } row[] = {{"{\"a\":1,\"a\":2}", 7},
               {"{\"x\":[{\"a\":1},{\"k\":{\"a\":3},\"k\":2}]}", 27},
               {"{\"a\":{\"a\":1},\"b\":{\"c\":1,\"c\":1}}", 24},
               {"{\"a\\\"b\":1,\"a\\\"b\":2}", 10},
               {"{\"a\":1,\"\\u0061\":2}", 7}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        fl_json     *json;
        fletch_error error;
        cr_assert_eq(parse(&json, row[i].text, FL_JSON_UNIQUE_KEYS, &error), FLETCH_EMODEL, "%s",
                     row[i].text);
        cr_assert_null(json);
        cr_assert_eq(error.where, row[i].where, "%s: %zu", row[i].text, error.where);
        cr_assert_eq(parse(&json, row[i].text, 0, &error), 0, "without the flag the last one wins");
        fl_json_free(json);
    }
    fl_json     *json;
    fletch_error error;
    cr_assert_eq(parse(&json, "[{\"a\":1},{\"a\":1},{\"b\":{\"a\":1},\"a\":1}]",
                       FL_JSON_UNIQUE_KEYS, &error),
                 0, "the same key in different objects is none");
    fl_json_free(json);
}

static const char document[] = "{\"s\":\"text\",\"n\":null,\"i\":512,\"f\":0.5,\"whole\":512.0,"
                               "\"big\":1000000000000000019884624838656,"
                               "\"e30\":1e30,\"min\":-1e30,\"t\":true,\"o\":{\"x\":1},\"a\":[1],"
                               "\"nul\":\"a\\u0000b\",\"inf\":1e999}";

static fl_json_reader reader_of(fl_json **json, fletch_error *error) {
    cr_assert_eq(parse(json, document, 0, error), 0);
    return (fl_json_reader){.object = *json, .source = "t.json", .error = error, .status = 0};
}

Test(json, getters_read_values_and_fall_back) {
    fl_json       *json;
    fletch_error   error;
    fl_json_reader r = reader_of(&json, &error);
    cr_assert_str_eq(fl_json_string(&r, "s", "d"), "text");
    cr_assert_str_eq(fl_json_string(&r, "n", "d"), "d");
    cr_assert_str_eq(fl_json_string(&r, "absent", "d"), "d");
    cr_assert_eq(fl_json_int(&r, "i", 1, 0, 1000), 512);
    cr_assert_eq(fl_json_int(&r, "whole", 1, 0, 1000), 512);
    cr_assert_eq(fl_json_int(&r, "absent", -7, 0, 1000), -7);
    cr_assert_eq(fl_json_int(&r, "big", 1, 0, INT64_MAX), INT64_MAX);
    cr_assert_eq(fl_json_int(&r, "e30", 1, 0, INT64_MAX), INT64_MAX);
    cr_assert_eq(fl_json_int(&r, "min", 1, INT64_MIN, 0), INT64_MIN);
    cr_assert_eq(fl_json_double(&r, "f", 1), 0.5);
    cr_assert_eq(fl_json_double(&r, "i", 1), 512.0);
    cr_assert_eq(fl_json_double(&r, "n", 2), 2.0);
    cr_assert(fl_json_bool(&r, "t", false));
    cr_assert(fl_json_bool(&r, "absent", true));
    cr_assert_not_null(fl_json_object(&r, "o"));
    cr_assert_not_null(fl_json_array(&r, "a"));
    cr_assert_null(fl_json_array(&r, "n"));
    cr_assert(fl_json_has(&r, "s"));
    cr_assert_not(fl_json_has(&r, "n"));
    cr_assert_not(fl_json_has(&r, "absent"));
    cr_assert_eq(r.status, 0);
    fl_json_reader empty = {.object = NULL, .source = "t", .error = &error, .status = 0};
    cr_assert_eq(fl_json_int(&empty, "i", 3, 0, 9), 3);
    cr_assert_not(fl_json_has(&empty, "i"));
    cr_assert_eq(empty.status, 0);
    fl_json_free(json);
}

Test(json, a_wrong_type_fails_names_the_key_and_stays_failed) {
    static const char *keys[] = {"i", "s", "f", "s", "s", "a", "o", "nul", "inf", "big", "t"};
    for (int i = 0; i < 11; i++) {
        fl_json       *json;
        fletch_error   error;
        fl_json_reader r = reader_of(&json, &error);
        switch (i) {
        case 0: cr_assert_str_eq(fl_json_string(&r, "i", "d"), "d"); break;
        case 1: cr_assert_eq(fl_json_int(&r, "s", 5, 0, 9), 5); break;
        case 2: cr_assert_eq(fl_json_int(&r, "f", 5, 0, 9), 5); break;
        case 3: cr_assert_eq(fl_json_double(&r, "s", 5), 5.0); break;
        case 4: cr_assert(fl_json_bool(&r, "s", true)); break;
        case 5: cr_assert_null(fl_json_object(&r, "a")); break;
        case 6: cr_assert_null(fl_json_array(&r, "o")); break;
        case 7: cr_assert_str_eq(fl_json_string(&r, "nul", "d"), "d"); break;
        case 8: cr_assert_eq(fl_json_double(&r, "inf", 5), 5.0); break;
        case 9: cr_assert_eq(fl_json_int(&r, "big", 5, 0, 1000), 5); break;
        default: cr_assert_eq(fl_json_int(&r, "t", 5, 0, 1), 5); break;
        }
        cr_assert_eq(r.status, FLETCH_EMODEL, "case %d", i);
        char quoted[32];
        snprintf(quoted, sizeof quoted, "t.json: \"%s\"", keys[i]);
        cr_assert_eq(strncmp(error.message, quoted, strlen(quoted)), 0, "%s", error.message);
        fletch_error first = error;
        cr_assert_eq(fl_json_int(&r, "i", 77, 0, 1000), 77, "after an error: the fallback");
        fl_json_bool(&r, "s", false);
        cr_assert_str_eq(error.message, first.message, "the first error stays");
        fl_json_free(json);
    }
    fl_json     *list;
    fletch_error error;
    cr_assert_eq(parse(&list, "[1]", 0, &error), 0);
    fl_json_reader r = {.object = list, .source = "t", .error = &error, .status = 0};
    fl_json_int(&r, "i", 1, 0, 9);
    cr_assert_eq(r.status, FLETCH_EMODEL, "an array is no configuration");
    fl_json_free(list);
}

Test(json, a_writer_puts_commas_and_brackets) {
    fl_buf    out = {0};
    fl_json_w w   = {.out = &out};
    fl_json_w_object(&w, NULL);
    fl_json_w_array(&w, "empty"), fl_json_w_end(&w);
    fl_json_w_array(&w, "list");
    fl_json_w_u64(&w, NULL, UINT64_MAX);
    fl_json_w_i64(&w, NULL, INT64_MIN);
    fl_json_w_object(&w, NULL), fl_json_w_end(&w);
    fl_json_w_null(&w, NULL);
    fl_json_w_end(&w);
    fl_json_w_object(&w, "in");
    fl_json_w_text(&w, "a", "\"\n");
    fl_json_w_text(&w, "b", NULL);
    fl_json_w_bytes(&w, "c", "x\0y", 3);
    fl_json_w_end(&w);
    fl_json_w_bool(&w, "t", true);
    fl_json_w_raw(&w, "r"), fl_buf_puts(&out, "0.5");
    fl_json_w_i64(&w, "z", 0);
    fl_json_w_end(&w);
    cr_assert_str_eq(out.data,
                     "{\"empty\":[],\"list\":[18446744073709551615,-9223372036854775808,{},"
                     "null],\"in\":{\"a\":\"\\\"\\n\",\"b\":null,\"c\":\"x\\u0000y\"},"
                     "\"t\":true,\"r\":0.5,\"z\":0}");
    fl_buf_free(&out);
}

Test(json, quoting_round_trips_every_byte) {
    char text[300];
    for (int i = 0; i < 128; i++)
        text[i] = (char)i;
    memcpy(text + 128, "\xC3\xA9\xF0\x9F\x98\x80", 6);
    fl_buf out = {0};
    fl_json_quote(&out, text, 134);
    fl_json     *json;
    fletch_error error;
    cr_assert_eq(fl_json_parse(&json, out.data, out.size, 10000, 0, "t", &error), 0, "%s",
                 error.message);
    cr_assert_eq(fl_json_text_size(json), 134);
    cr_assert_eq(memcmp(fl_json_text(json), text, 134), 0);
    fl_json_free(json);
    fl_buf_clear(&out);
    fl_json_quote(&out, "a\"\\\n\x01/\x7f", 7);
    cr_assert_str_eq(out.data, "\"a\\\"\\\\\\n\\u0001/\x7f\"");
    fl_buf_free(&out);
}

Test(json, compact_drops_space_outside_of_strings_only) {
    static const char *const pairs[][2] = {
        {"{ \"a b\" :\t[ 1 ,\r\n 2 ] }", "{\"a b\":[1,2]}"},
        {"\" \\\" \" ", "\" \\\" \""}, /* an escaped quote does not end a string */
        {"[\"\\\\\" , \" \\\\ \" ]", "[\"\\\\\",\" \\\\ \"]"},
        {" null ", "null"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        fl_buf out = {0};
        fl_json_compact(&out, pairs[i][0], strlen(pairs[i][0]));
        fl_buf_putc(&out, '\0');
        cr_assert_str_eq(out.data, pairs[i][1]);
        fl_buf_free(&out);
    }
}

Test(json, read_names_the_file_and_survives_failed_allocations) {
    char path[] = "/tmp/fl-test-json-XXXXXX";
    int  fd     = mkstemp(path);
    cr_assert_eq(write(fd, "{\"a\":[1,2]}", 11), 11);
    close(fd);
    fl_json     *json;
    fletch_error error;
    int          status = FLETCH_ENOMEM;
    for (uint64_t n = 1; status != 0; n++) {
        fl_alloc_fail_after(n);
        status = fl_json_read(&json, path, 100, &error);
        cr_assert(status == 0 || (status == FLETCH_ENOMEM && json == NULL));
        cr_assert_lt(n, 20);
    }
    fl_alloc_fail_after(0);
    fl_json_free(json);
    unlink(path);
    cr_assert_eq(fl_json_read(&json, path, 100, &error), FLETCH_ENOTFOUND);
    cr_assert_not_null(strstr(error.message, path));
}
