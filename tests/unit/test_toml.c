/* SPDX-License-Identifier: Apache-2.0 */
/* test_toml.c - what must never break in the TOML reader.
 *
 * Keys and values come out as TOML 1.0 says; what is not TOML, and what no option can use, is refused
 * with the line and column a person can jump to; depth and size are bounded; a failed allocation is
 * an error, not a crash. The expected values are those of the TOML 1.0 text. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "config/toml.h"

/* What was visited, as lines: path=value, path=[a|b], path=nested, [path], [[path]]. */
static int note(void *user, const fl_toml_item *item) {
    fl_buf     *out   = user;
    const char *value = item->values;
    switch (item->kind) {
    case FL_TOML_TABLE: fl_buf_printf(out, "[%s]\n", item->path); return 0;
    case FL_TOML_TABLES: fl_buf_printf(out, "[[%s]]\n", item->path); return 0;
    case FL_TOML_NESTED: fl_buf_printf(out, "%s=nested\n", item->path); return 0;
    case FL_TOML_VALUE: fl_buf_printf(out, "%s=%s\n", item->path, value); return 0;
    case FL_TOML_LIST: break;
    }
    fl_buf_printf(out, "%s=[", item->path);
    for (size_t i = 0; i < item->count; i++, value += strlen(value) + 1)
        fl_buf_printf(out, "%s%s", i > 0 ? "|" : "", value);
    fl_buf_puts(out, "]\n");
    return 0;
}

static void expect(const char *text, const char *visited) {
    fl_buf       out = {0};
    fletch_error error;
    const int    status = fl_toml_parse(text, strlen(text), "t", note, &out, &error);
    cr_expect_eq(status, 0, "%s: %s", text, error.message);
    cr_expect_str_eq(out.size > 0 ? out.data : "", visited, "%s: got %s", text, out.data);
    fl_buf_free(&out);
}

/* Refused with a message that begins with "t:LINE:COLUMN: " and holds `words`. */
static void refuse(const char *text, const char *place, const char *words) {
    fl_buf       out = {0};
    fletch_error error;
    const int    status = fl_toml_parse(text, strlen(text), "t", note, &out, &error);
    cr_expect_eq(status, FLETCH_ECONFIG, "accepted: %s", text);
    cr_expect_eq(strncmp(error.message, place, strlen(place)), 0, "%s: wanted %s, got %s", text,
                 place, error.message);
    cr_expect_not_null(strstr(error.message, words), "%s: wanted %s, got %s", text, words,
                       error.message);
    fl_buf_free(&out);
}

Test(toml, strings) {
    expect("s = \"a\\tb\\u00e9\\U0001F600\\\"\\\\\"", "s=a\tb\xC3\xA9\xF0\x9F\x98\x80\"\\\n");
    expect("s = 'C:\\new'", "s=C:\\new\n");
    expect("s = \"\"", "s=\n");
    expect("s = \"\"\"\nfirst\nsecond\"\"\"", "s=first\nsecond\n");
    expect("s = \"\"\"\\\n   a \\\n\n   b\"\"\"", "s=a b\n");
    expect("s = \"\"\"\"\"two\"\"\"\"\"", "s=\"\"two\"\"\n");
    expect("s = '''it's ''it'''", "s=it's ''it\n");
    expect("s = '''\r\nx\r\ny'''", "s=x\r\ny\n");
}

Test(toml, numbers_are_decimal) {
    expect("n = 0\nn = +1_000\nn = -17\nn = true", "n=0\nn=1000\nn=-17\nn=true\n");
    expect("n = 3.1415\nn = 5e+22\nn = -6.6E-34\nn = 2_2.4_9",
           "n=3.1415\nn=5e+22\nn=-6.6E-34\nn=22.49\n");
    static const char *const wrong[] = {
        "01", "1__0", "_1",   "1_",         "+0x1", "0x10",     "0o7",  "0b1",   ".7",   "7.",
        "1e", "3.e1", "00.5", "1979-05-27", "inf",  "07:32:00", "True", "latin", "1.1.1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "n = %s", wrong[i]);
        refuse(text, "t:1:5: ", "text needs quotes");
    }
}

Test(toml, tables_dotted_keys_and_arrays) {
    expect(
        "a.b . \"c d\" = 1 # comment\n[ x.y ]\nlist = [1, 'two',\n # inside\n 3.0,]\nnone = []\n",
        "a.b.c d=1\n[x.y]\nx.y.list=[1|two|3.0]\nx.y.none=[]\n");
    expect("[x]\nt = {p.q = 1, r = {s = 2}, e = {}}\nu = 3", "[x]\nx.t.p.q=1\nx.t.r.s=2\nx.u=3\n");
    expect("n = [1, [2, {k = true}]]\nm = [{a = 1}]\nk = 1", "n=nested\nm=nested\nk=1\n");
    expect("[[row]]\nn = 1\n[row.sub]\nm = 3\n", "[[row]]\nrow.n=1\n[row.sub]\nrow.sub.m=3\n");
    expect("\xEF\xBB\xBF"
           "a = 1",
           "a=1\n");
    expect("", "");
}

Test(toml, errors_name_line_and_column) {
    refuse("a = 1\nb = \n", "t:2:5: ", "expected a value, found end of line");
    refuse("a", "t:1:2: ", "expected '=' after the key, found end of file");
    refuse("\n\n  = 1", "t:3:3: ", "expected a key, found '='");
    refuse("a = 1 b = 2", "t:1:7: ", "expected the end of the line, found 'b'");
    refuse("a = \"x\ny\"", "t:1:5: ", "not closed before the end of its line");
    refuse("a = \"\"\"x\ny", "t:2:2: ", "opened in line 1 is not closed");
    refuse("\"\"\"a\nb\"\"\" = 1", "t:2:5: ", "more than one line");
    refuse("a = \"\\q\"", "t:1:6: ", "unknown escape");
    refuse("a = \"\\ud800\"", "t:1:8: ", "U+D800 is not a Unicode character");
    refuse("a = \"\\u0000\"", "t:1:8: ", "NUL");
    refuse("a = \"\\u00\"", "t:1:8: ", "4 hexadecimal digits");
    refuse("a = [1 2]", "t:1:8: ", "expected ',' or ']'");
    refuse("a = [,]", "t:1:6: ", "expected a value");
    refuse("a = {b = 1,}", "t:1:12: ", "expected a key");
    refuse("a = {b = 1\n}", "t:1:11: ", "found end of line");
    refuse("[a", "t:1:3: ", "expected ']'");
    refuse("[[a]", "t:1:4: ", "expected ']]'");
    refuse("\xC3\xA9 = 1", "t:1:1: ", "expected a key, found '\xC3\xA9'");
    refuse("a = \"\xC3\xA9\" x", "t:1:9: ", "found 'x'"); /* columns are code points */
    refuse("a = \"\x01\"", "t:1:6: ", "control character 0x01");
    refuse("# \x7F", "t:1:3: ", "control character 0x7f");
    refuse("a = 1\r", "t:1:6: ", "byte 0x0d");
    refuse("a = 1\n\"\xFF\" = 2", "t:2:2: ", "byte 0xff is not UTF-8");
}

Test(toml, depth_and_size_are_bounded) {
    fl_buf text = {0};
    fl_buf_puts(&text, "a = ");
    for (int i = 0; i < 100000; i++)
        fl_buf_putc(&text, '[');
    refuse(text.data, "t:1:", "more than 64 levels");
    fl_buf_clear(&text);
    for (int i = 0; i < 100000; i++)
        fl_buf_puts(&text, "a={b=");
    refuse(text.data, "t:1:", "");
    fl_buf_free(&text);
    fletch_error error;
    char        *lines = fl_alloc(FL_TOML_SIZE_MAX + 1);
    memset(lines, '\n', FL_TOML_SIZE_MAX + 1);
    cr_expect_eq(fl_toml_parse(lines, FL_TOML_SIZE_MAX + 1, "t", note, NULL, &error),
                 FLETCH_ECONFIG);
    cr_expect_eq(fl_toml_parse(lines, FL_TOML_SIZE_MAX, "t", note, NULL, &error), 0);
    fl_free(lines);
}

static int stop_at_b(void *user, const fl_toml_item *item) {
    (void)user;
    return strcmp(item->path, "b") == 0 ? FLETCH_ENOTFOUND : 0;
}

Test(toml, the_visitor_ends_the_reading) {
    fletch_error error;
    cr_expect_eq(fl_toml_parse("a = 1\nb = 2\n?", 13, "t", stop_at_b, NULL, &error),
                 FLETCH_ENOTFOUND);
}

Test(toml, a_failed_allocation_is_an_error) {
    fl_buf text = {0};
    fl_buf_puts(&text, "a = [1, \"two\\n\"]\nb = '");
    for (int i = 0; i < 2000; i++)
        fl_buf_putc(&text, 'x');
    fl_buf_puts(&text, "'\n[[b]]\nc = {x.y = 4.5}\n");
    int      status = FLETCH_ENOMEM;
    uint64_t n      = 0;
    while (status == FLETCH_ENOMEM && ++n < 100) {
        size_t       seen = 0;
        fletch_error error;
        fl_alloc_fail_after(n);
        status = fl_toml_parse(text.data, text.size, "t", stop_at_b, &seen, &error);
        fl_alloc_fail_after(0);
        cr_expect(status == FLETCH_ENOTFOUND || status == FLETCH_ENOMEM);
    }
    cr_expect_eq(status, FLETCH_ENOTFOUND);
    cr_expect_gt(n, 2);
    fl_buf_free(&text);
}
