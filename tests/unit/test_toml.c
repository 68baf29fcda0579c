/* SPDX-License-Identifier: Apache-2.0 */
/* test_toml.c - what must never break in the TOML reader.
 *
 * Values come out exactly as TOML 1.0 says; what is not TOML is refused with the line and column a
 * person can jump to; dates are refused by name; depth and size are bounded; a failed allocation is
 * an error, not a crash. The expected values are those of the TOML 1.0 text. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "config/toml.h"

static fl_toml_document *parse(const char *text) {
    fl_toml_document *document;
    fletch_error      error;
    const int         status = fl_toml_parse(&document, text, strlen(text), "t", &error);
    cr_assert_eq(status, 0, "%s: %s", text, error.message);
    return document;
}

/* The value at "a.b.c", tables only. */
static const fl_toml *at(const fl_toml_document *document, const char *path) {
    const fl_toml *node = fl_toml_root(document);
    char           part[64];
    while (node != NULL && *path != '\0') {
        const size_t size = strcspn(path, ".");
        memcpy(part, path, size);
        part[size] = '\0';
        node       = fl_toml_find(document, node, part);
        path += size + (path[size] == '.');
    }
    cr_assert_not_null(node);
    return node;
}

static void expect_string(const char *text, const char *expected) {
    fl_toml_document *document = parse(text);
    const fl_toml    *node     = at(document, "s");
    cr_expect_eq(node->type, FL_TOML_STRING);
    cr_expect_str_eq(node->text, expected, "%s: got %s", text, node->text);
    cr_expect_eq(node->text_size, strlen(expected));
    fl_toml_free(document);
}

static void expect_integer(const char *text, int64_t expected) {
    fl_toml_document *document = parse(text);
    cr_expect_eq(at(document, "n")->type, FL_TOML_INTEGER, "%s", text);
    cr_expect_eq(at(document, "n")->integer, expected, "%s", text);
    fl_toml_free(document);
}

static void expect_float(const char *text, double expected) {
    fl_toml_document *document = parse(text);
    cr_expect_eq(at(document, "n")->type, FL_TOML_FLOAT, "%s", text);
    cr_expect_eq(at(document, "n")->number, expected, "%s", text);
    fl_toml_free(document);
}

/* Refused with a message that begins with "t:LINE:COLUMN: " and holds `words`. */
static void refuse(const char *text, const char *place, const char *words) {
    fl_toml_document *document;
    fletch_error      error;
    const int         status = fl_toml_parse(&document, text, strlen(text), "t", &error);
    cr_expect_lt(status, 0, "accepted: %s", text);
    cr_expect_null(document);
    if (status == 0)
        return;
    cr_expect_eq(strncmp(error.message, place, strlen(place)), 0, "%s: wanted %s, got %s", text,
                 place, error.message);
    cr_expect_not_null(strstr(error.message, words), "%s: wanted %s, got %s", text, words,
                       error.message);
}

Test(toml, strings) {
    expect_string("s = \"a\\tb\\u00e9\\U0001F600\\\"\\\\\"", "a\tb\xC3\xA9\xF0\x9F\x98\x80\"\\");
    expect_string("s = 'C:\\new'", "C:\\new");
    expect_string("s = \"\"", "");
    expect_string("s = \"\"\"\nfirst\nsecond\"\"\"", "first\nsecond");
    expect_string("s = \"\"\"\\\n   a \\\n\n   b\"\"\"", "a b");
    expect_string("s = \"\"\"\"\"two\"\"\"\"\"", "\"\"two\"\"");
    expect_string("s = '''it's ''it'''", "it's ''it");
    expect_string("s = '''\r\nx\r\ny'''", "x\r\ny");
}

Test(toml, integers_in_all_bases) {
    expect_integer("n = 0", 0);
    expect_integer("n = +1_000", 1000);
    expect_integer("n = -17", -17);
    expect_integer("n = 0xDEAD_beef", 0xDEADBEEF);
    expect_integer("n = 0o755", 0755);
    expect_integer("n = 0b1101", 13);
    expect_integer("n = 9223372036854775807", INT64_MAX);
    expect_integer("n = -9223372036854775808", INT64_MIN);
    expect_integer("n = 0x7fffffffffffffff", INT64_MAX);
    refuse("n = 9223372036854775808", "t:1:5: ", "out of range");
    refuse("n = 0x8000000000000000", "t:1:5: ", "");
    refuse("n = 01", "t:1:5: ", "'01'");
    refuse("n = 1__0", "t:1:5: ", "");
    refuse("n = _1", "t:1:5: ", "");
    refuse("n = 1_", "t:1:5: ", "");
    refuse("n = +0x1", "t:1:5: ", "");
    refuse("n = 0x", "t:1:5: ", "");
}

Test(toml, floats) {
    expect_float("n = 3.1415", 3.1415);
    expect_float("n = -0.01", -0.01);
    expect_float("n = 5e+22", 5e+22);
    expect_float("n = 6.626e-34", 6.626e-34);
    expect_float("n = 224_617.445_991_228", 224617.445991228);
    expect_float("n = +inf", HUGE_VAL);
    expect_float("n = -inf", -HUGE_VAL);
    fl_toml_document *document = parse("n = nan");
    cr_expect(isnan(at(document, "n")->number));
    fl_toml_free(document);
    refuse("n = .7", "t:1:5: ", "");
    refuse("n = 7.", "t:1:5: ", "");
    refuse("n = 3.e+20", "t:1:5: ", "");
    refuse("n = 00.5", "t:1:5: ", "");
}

Test(toml, tables_dotted_keys_and_arrays) {
    fl_toml_document *document = parse("a.b.c = 1 # comment\n"
                                       "[x.y]\n"
                                       "list = [1, [\"two\", 3.0,],\n  # inside\n  {k = true}]\n"
                                       "[x]\n"
                                       "\"quoted key\" = {p.q = 1, r = 2}\n"
                                       "[[row]]\nn = 1\n[[row]]\nn = 2\n[row.sub]\nm = 3\n");
    cr_expect_eq(at(document, "a.b.c")->integer, 1);
    const fl_toml *list = at(document, "x.y.list");
    cr_expect_eq(list->count, 3);
    cr_expect_eq(list->first->next->count, 2);
    cr_expect_eq(list->first->next->next->first->integer, 1);
    cr_expect_eq(at(document, "x.quoted key.p.q")->integer, 1);
    const fl_toml *rows = at(document, "row");
    cr_expect_eq(rows->type, FL_TOML_ARRAY);
    cr_expect_eq(rows->count, 2);
    cr_expect_eq(rows->first->count, 1);
    cr_expect_eq(fl_toml_find(document, rows->first->next, "sub")->first->integer, 3);
    fl_toml_free(document);
}

Test(toml, every_table_is_defined_once) {
    refuse("[a]\n[a]\n", "t:2:2: ", "'a' is already defined in line 1");
    refuse("a = 1\na = 2\n", "t:2:1: ", "'a' is already defined in line 1");
    refuse("a = 1\n'a' = 2\n", "t:2:1: ", "already defined");
    refuse("a.b = 1\n[a]\n", "t:2:2: ", "already defined");
    refuse("a = {b = 1}\n[a.c]\n", "t:2:2: ", "already defined");
    refuse("a = {b = 1}\na.c = 2\n", "t:2:1: ", "already complete");
    refuse("[a.b]\nx = 1\n[a]\nb.y = 2\n", "t:4:1: ", "already complete");
    refuse("a = []\n[[a]]\n", "t:2:3: ", "already defined");
    refuse("[[a]]\n[a]\n", "t:2:2: ", "already defined");
    refuse("a = 1\na.b = 2\n", "t:2:1: ", "already complete");
    refuse("t = {a = 1, a = 2}", "t:1:13: ", "already defined");
    fl_toml_free(parse("[a.b]\n[a]\nc = 1\n[a.d]\n"));
    fl_toml_free(parse("a.b = 1\na.c = 2\n"));
    fl_toml_free(parse("[a]\nb.c = 1\n[a.b.d]\n"));
}

Test(toml, errors_name_line_and_column) {
    refuse("a = 1\nb = \n", "t:2:5: ", "expected a value, found end of line");
    refuse("a", "t:1:2: ", "expected '=' after the key 'a', found end of file");
    refuse("\n\n  = 1", "t:3:3: ", "expected a key, found '='");
    refuse("a = 1 b = 2", "t:1:7: ", "expected the end of the line, found 'b'");
    refuse("a = \"x\ny\"", "t:1:5: ", "not closed before the end of its line");
    refuse("a = \"\"\"x\ny", "t:2:2: ", "opened in line 1 is not closed");
    refuse("a = \"\\q\"", "t:1:6: ", "unknown escape");
    refuse("a = \"\\ud800\"", "t:1:8: ", "U+D800 is not a Unicode character");
    refuse("a = [1 2]", "t:1:8: ", "expected ',' or ']'");
    refuse("a = {b = 1,}", "t:1:12: ", "expected a key");
    refuse("a = {b = 1\n}", "t:1:11: ", "found end of line");
    refuse("[a", "t:1:3: ", "expected ']'");
    refuse("[[a]", "t:1:4: ", "expected ']]'");
    refuse("a = yes", "t:1:5: ", "text needs quotes");
    refuse("\xC3\xA9 = 1", "t:1:1: ", "expected a key, found '\xC3\xA9'");
    refuse("a = \"\xC3\xA9\" x", "t:1:9: ", "found 'x'"); /* columns are code points */
    refuse("a = \"\x01\"", "t:1:6: ", "control character 0x01");
    refuse("# \x7F", "t:1:3: ", "control character 0x7f");
    refuse("a = 1\r", "t:1:6: ", "byte 0x0d");
    refuse("a = 1\n\"\xFF\" = 2", "t:2:2: ", "byte 0xff is not UTF-8");
}

Test(toml, dates_are_refused_by_name) {
    static const char *const dates[] = {"d = 1979-05-27T07:32:00Z", "d = 1979-05-27",
                                        "d = 07:32:00", "d = [1979-05-27 07:32:00]"};
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++) {
        fl_toml_document *document;
        fletch_error      error;
        cr_expect_eq(fl_toml_parse(&document, dates[i], strlen(dates[i]), "t", &error),
                     FLETCH_EUNSUPPORTED);
        cr_expect_eq(error.code, FLETCH_EUNSUPPORTED);
        cr_expect_not_null(strstr(error.message, "dates and times"), "%s", error.message);
    }
}

Test(toml, depth_is_bounded) {
    fl_buf text = {0};
    fl_buf_puts(&text, "a = ");
    for (int i = 0; i < 100000; i++)
        fl_buf_putc(&text, '[');
    refuse(text.data, "t:1:", "more than 64 levels");
    fl_buf_clear(&text);
    for (int i = 0; i < 100; i++)
        fl_buf_puts(&text, "a.");
    fl_buf_puts(&text, "a = 1");
    refuse(text.data, "t:1:", "more than 64 levels");
    fl_buf_free(&text);
}

Test(toml, size_is_bounded) {
    fl_toml_document *document;
    fletch_error      error;
    char             *text = fl_alloc(FL_TOML_SIZE_MAX + 1);
    memset(text, '\n', FL_TOML_SIZE_MAX + 1);
    cr_expect_eq(fl_toml_parse(&document, text, FL_TOML_SIZE_MAX + 1, "t", &error), FLETCH_ECONFIG);
    cr_expect_eq(fl_toml_parse(&document, text, FL_TOML_SIZE_MAX, "t", &error), 0);
    fl_toml_free(document);
    fl_free(text);
}

/* The key index must not make a large file slow: with a linear look through the table this test
 * would run for minutes and be stopped. */
Test(toml, a_hundred_thousand_keys, .timeout = 120) {
    fl_buf text = {0};
    for (int i = 0; i < 100000; i++)
        fl_buf_printf(&text, "k%d = %d\n", i, i);
    fl_toml_document *document = parse(text.data);
    cr_expect_eq(fl_toml_root(document)->count, 100000);
    cr_expect_eq(at(document, "k99999")->integer, 99999);
    fl_toml_free(document);
    fl_buf_free(&text);
}

Test(toml, byte_order_mark_and_empty_documents) {
    fl_toml_document *document = parse("\xEF\xBB\xBF"
                                       "a = 1");
    cr_expect_eq(at(document, "a")->column, 1);
    fl_toml_free(document);
    fletch_error error;
    cr_expect_eq(fl_toml_parse(&document, NULL, 0, "t", &error), 0);
    cr_expect_eq(fl_toml_root(document)->count, 0);
    fl_toml_free(document);
}

Test(toml, a_failed_allocation_is_an_error) {
    static const char text[] = "a = [1, \"two\\n\", {x.y = 'three'}]\n[[b]]\nc = 4.5\n";
    int               status = FLETCH_ENOMEM;
    for (uint64_t n = 1; status == FLETCH_ENOMEM && n < 100; n++) {
        fl_toml_document *document;
        fletch_error      error;
        fl_alloc_fail_after(n);
        status = fl_toml_parse(&document, text, strlen(text), "t", &error);
        fl_alloc_fail_after(0);
        cr_expect(status == 0 || (status == FLETCH_ENOMEM && document == NULL));
        fl_toml_free(document);
    }
    cr_expect_eq(status, 0);
}
