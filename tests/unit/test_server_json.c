/* SPDX-License-Identifier: Apache-2.0 */
/* test_server_json.c - what must never break: only RFC 8259 passes, with the same verdict as base/json; strings
 * are un-escaped in place to the right bytes; a fault names its place; a table of fields refuses what its
 * dialect refuses and ignores what it ignores. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_in.h"
#include "server/fields.h"
#include "server/limits.h"

/* What fields.c asks of a request. Criterion runs each test in a process of its own, so nothing is given back;
 * the list keeps the blocks known to a leak checker. */
static struct block {
    struct block *next;
    max_align_t   data[];
} * blocks;

void *fl_request_alloc(fl_http_request *request, size_t size) {
    (void)request;
    struct block *block = calloc(1, sizeof *block + size);
    block->next         = blocks;
    blocks              = block;
    return block->data;
}

/* Read anything, keep nothing: the verdict alone. A copy of exact size lets a sanitizer see overreads. */
static bool valid(const char *text, size_t size) {
    fl_json_in in;
    char      *body = malloc(size > 0 ? size : 1);
    memcpy(body, text, size);
    fl_json_in_begin(&in, body, size);
    in.depth_max = FL_LIMIT_JSON_DEPTH;
    bool good    = fl_json_in_skip(&in, NULL) && fl_json_in_end(&in);
    free(body);
    return good;
}

static bool twin_valid(const char *text, size_t size) {
    fl_json     *json = NULL;
    fletch_error error;
    int          status = fl_json_parse(&json, text, size, 1 << 20, 0, "twin", &error);
    fl_json_free(json);
    return status == 0;
}

#define TEXT(literal)                                                                              \
    { literal, sizeof(literal) - 1 }
typedef struct sample {
    const char *text;
    size_t      size;
} sample;

Test(server_json, valid_bodies_pass) {
    static const sample row[] = {
        TEXT("{}"),
        TEXT("[]"),
        TEXT(" \t\r\n{ } \n"),
        TEXT("\"\""),
        TEXT("0"),
        TEXT("-0"),
        TEXT("-0.0e-0"),
        TEXT("1E400"),
        TEXT("123456789012345678901234567890"),
        TEXT("[1,-2.5,3e7,true,false,null,\"a\",{},[]]"),
        TEXT("{\"a\":{\"b\":[1,{\"c\":[]}]},\"\":0}"),
        TEXT("{\"a\":1,\"a\":2}"),
        TEXT("\"\\u0000\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\""),
        TEXT("\"\x7f\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""),
        TEXT("\"0123456789abcdef0123456789abcdef\\n0123456789abcdef\""),
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        cr_assert(valid(row[i].text, row[i].size), "%s", row[i].text);
        cr_assert(twin_valid(row[i].text, row[i].size), "%s", row[i].text);
    }
}

Test(server_json, invalid_bodies_fail) {
    static const sample row[] = {
        TEXT(""),
        TEXT(" "),
        TEXT("{"),
        TEXT("["),
        TEXT("[1,]"),
        TEXT("[,1]"),
        TEXT("[1 2]"),
        TEXT("[1"),
        TEXT("[1}"),
        TEXT("{\"a\":1]"),
        TEXT("{\"a\":1,}"),
        TEXT("{,}"),
        TEXT("{\"a\"}"),
        TEXT("{\"a\":}"),
        TEXT("{\"a\" 1}"),
        TEXT("{a:1}"),
        TEXT("{'a':1}"),
        TEXT("{1:2}"),
        TEXT("{\"a\":1 \"b\":2}"),
        TEXT("[1]]"),
        TEXT("[1][2]"),
        TEXT("{}x"),
        TEXT("NaN"),
        TEXT("-Infinity"),
        TEXT("Infinity"),
        TEXT("nul"),
        TEXT("nulll"),
        TEXT("TRUE"),
        TEXT("tru"),
        TEXT("falsy"),
        TEXT("01"),
        TEXT("-01"),
        TEXT("+1"),
        TEXT(".5"),
        TEXT("1."),
        TEXT("1.e3"),
        TEXT("1e"),
        TEXT("1e+"),
        TEXT("0x10"),
        TEXT("-"),
        TEXT("1_000"),
        TEXT("\"a"),
        TEXT("\"a\\"),
        TEXT("\"a\\\""),
        TEXT("\"\\x41\""),
        TEXT("\"\\u12\""),
        TEXT("\"\\u12G4\""),
        TEXT("\"\\ud800\""),
        TEXT("\"\\ud800\\u0041\""),
        TEXT("\"\\ud800\\ud800\""),
        TEXT("\"\\udc00\""),
        TEXT("\"\\ud83d\\ude0"),
        TEXT("\"a\nb\""),
        TEXT("\"a\tb\""),
        TEXT("\"\0\""),
        TEXT("\"\xff\""),
        TEXT("\"\xc0\x80\""),
        TEXT("\"\xed\xa0\x80\""),
        TEXT("\"\xf4\x90\x80\x80\""),
        TEXT("\"\xe2\x82\""),
        TEXT("\xef\xbb\xbf{}"),
        TEXT("/* c */ {}"),
        TEXT("{} // c"),
        TEXT("{}\0"),
        TEXT("[\x0b]"),
        TEXT("[\xc2\xa0]"),
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        cr_assert_not(valid(row[i].text, row[i].size), "sample %zu: %s", i, row[i].text);
        cr_assert_not(twin_valid(row[i].text, row[i].size), "sample %zu: %s", i, row[i].text);
    }
}

Test(server_json, every_prefix_of_a_body_is_invalid) {
    static const char text[] =
        "{\"inputs\": [\"a\\u00e9\\ud83d\\ude00\", \"b\"], \"n\": -12.5e3, \"t\": [true, null]}";
    for (size_t size = 0; size < sizeof text - 1; size++)
        cr_assert_not(valid(text, size), "%zu bytes passed", size);
    cr_assert(valid(text, sizeof text - 1));
}

Test(server_json, nesting_has_a_limit_and_costs_no_stack) {
    for (size_t depth = FL_LIMIT_JSON_DEPTH - 1; depth <= FL_LIMIT_JSON_DEPTH + 1; depth++) {
        char text[2 * (FL_LIMIT_JSON_DEPTH + 1)];
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        cr_assert_eq(valid(text, 2 * depth), depth <= FL_LIMIT_JSON_DEPTH);
    }
    size_t million = 1 << 20;
    char  *deep    = malloc(million);
    memset(deep, '[', million);
    cr_assert_not(valid(deep, million));
    free(deep);
}

Test(server_json, strings_are_unescaped_in_place) {
    static const struct {
        const char *json;
        sample      want;
    } row[] = {
        {"\"plain\"", TEXT("plain")},
        {"\"\"", TEXT("")},
        {"\"a\\nb\\t\\\"\\\\\\/\"", TEXT("a\nb\t\"\\/")},
        {"\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00!\"",
         TEXT("A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!")},
        {"\"a\\u0000b\"", TEXT("a\0b")},
        {"\"0123456789abcdefXYZ\\n0123456789abcdefXYZ\\n0123456789abcdefXYZ\"",
         TEXT("0123456789abcdefXYZ\n0123456789abcdefXYZ\n0123456789abcdefXYZ")},
        {"\"\\n\\n\\n\\n0123456789abcdef0123456789abcdef0123456789abcdef\"",
         TEXT("\n\n\n\n0123456789abcdef0123456789abcdef0123456789abcdef")},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        fl_json_in in;
        fl_span    span;
        char      *body = strdup(row[i].json);
        fl_json_in_begin(&in, body, strlen(body));
        cr_assert(fl_json_in_string(&in, &span) && fl_json_in_end(&in), "%s", row[i].json);
        cr_assert_eq(span.size, row[i].want.size, "%s", row[i].json);
        cr_assert(memcmp(span.data, row[i].want.text, span.size) == 0, "%s", row[i].json);
        cr_assert(span.data >= body && span.data + span.size <= body + strlen(row[i].json));
        free(body);
    }
}

/* Escapes before a fault must not move its place: they are overwritten, not counted anew. */
Test(server_json, a_fault_names_its_line_and_column) {
    static const struct {
        const char *text;
        size_t      line, column;
    } row[] = {
        {"{\"a\": x}", 1, 7},
        {"{\n  \"a\": \"\\n\\n\",\n  \"b\": x}", 3, 8},
        {"{\"inputs\": \"\\u00e9\\u00e9\"} x", 1, 28},
        {"[1,\r\n2,\n\n,]", 4, 1},
        {"", 1, 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        fl_json_in in;
        fl_span    key;
        char      *body = strdup(row[i].text);
        fl_json_in_begin(&in, body, strlen(body));
        if (fl_json_in_peek(&in) == FL_JSON_OBJECT) {
            (void)fl_json_in_enter(&in, FL_JSON_OBJECT);
            while (fl_json_in_key(&in, &key))
                if (fl_json_in_peek(&in) == FL_JSON_STRING)
                    (void)fl_json_in_string(&in, &key);
                else
                    (void)fl_json_in_skip(&in, NULL);
        } else {
            (void)fl_json_in_skip(&in, NULL);
        }
        cr_assert_not(fl_json_in_end(&in), "%s", row[i].text);
        cr_assert_eq(in.line, row[i].line, "%s: line %zu", row[i].text, in.line);
        cr_assert_eq(in.column, row[i].column, "%s: column %zu", row[i].text, in.column);
        cr_assert_not(in.mistyped);
        free(body);
    }
}

Test(server_json, integers_are_what_json_schema_calls_so) {
    static const struct {
        const char *text;
        bool        good;
        int64_t     value;
    } row[] = {{"0", true, 0},
               {"-0", true, 0},
               {"42", true, 42},
               {"-999999999999999999", true, -999999999999999999},
               {"999999999999999999", true, 999999999999999999},
               {"1000000000000000000", false, 0},
               {"99999999999999999999999999", false, 0},
               {"1.0", true, 1},
               {"-12.000", true, -12},
               {"1e0", true, 1},
               {"1.0e1", true, 10},
               {"1e3", true, 1000},
               {"120E-1", true, 12},
               {"9007199254740992.0", true, 9007199254740992},
               {"9007199254740994.0", false, 0},
               {"1.5", false, 0},
               {"1.01", false, 0},
               {"12e-1", false, 0},
               {"1e-400", true, 0},
               {"1E400", false, 0}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        fl_json_in in;
        int64_t    value = -1;
        char      *body  = strdup(row[i].text);
        fl_json_in_begin(&in, body, strlen(body));
        cr_assert_eq(fl_json_in_integer(&in, &value), row[i].good, "%s", row[i].text);
        cr_assert(!row[i].good || value == row[i].value, "%s", row[i].text);
        cr_assert(row[i].good || in.mistyped, "%s", row[i].text);
        free(body);
    }
}

/* ---- Fields ------------------------------------------------------------------------------------ */

typedef struct target {
    fl_body_input input, other;
    fl_span       model;
    int64_t       dimensions;
    int           flag, word;
    unsigned      words;
} target;

#define AT(member) offsetof(target, member)
static const fl_field inner[]  = {{.name   = "list",
                                   .type   = FL_FIELD_INPUT,
                                   .flags  = FL_FIELD_REQUIRED,
                                   .offset = AT(other),
                                   .forms  = FL_INPUT_TEXTS},
                                  {0}};
static const fl_field fields[] = {
    {.name   = "input",
     .type   = FL_FIELD_INPUT,
     .flags  = FL_FIELD_REQUIRED,
     .offset = AT(input),
     .forms  = FL_INPUT_ALL},
    {.name = "model", .type = FL_FIELD_STRING, .flags = FL_FIELD_NULL, .offset = AT(model)},
    {.name = "dimensions", .type = FL_FIELD_INT, .offset = AT(dimensions), .min = 1, .max = 100},
    {.name = "flag", .type = FL_FIELD_BOOL, .offset = AT(flag)},
    {.name = "word", .type = FL_FIELD_WORD, .offset = AT(word), .words = "float|base64"},
    {.name = "words", .type = FL_FIELD_WORDS, .offset = AT(words), .words = "a|b|c"},
    {.name = "inner", .type = FL_FIELD_INNER, .inner = inner},
    {.name = "any", .type = FL_FIELD_ANY},
    {0}};

static bool read_body(const char *text, target *out, fl_json_in *in) {
    fl_http_request request = {.body_size = strlen(text)};
    request.body            = fl_request_alloc(&request, request.body_size);
    memcpy(request.body, text, request.body_size);
    memset(out, 0, sizeof *out);
    return fl_fields_read(&request, in, fields, out);
}

Test(server_fields, a_body_fills_the_struct) {
    target     t;
    fl_json_in in;
    cr_assert(
        read_body("{\"unknown\":{\"input\":[1]},\"input\":[\"a\",\"\\u00e9\",\"\"],\"model\":\"m\","
                  "\"dimensions\":7,\"flag\":false,\"word\":\"base64\",\"words\":[\"c\",\"a\"],"
                  "\"inner\":{\"list\":[\"x\"]},\"any\":[1,{}],\"unknown\":1}",
                  &t, &in),
        "%s", in.message);
    cr_assert_eq(t.input.form, FL_INPUT_TEXTS);
    cr_assert_eq(t.input.count, 3);
    cr_assert(t.input.empty);
    cr_assert(t.input.lengths[1] == 2 && memcmp(t.input.texts[1], "\xc3\xa9", 2) == 0);
    cr_assert(fl_span_is(t.model, "m"));
    cr_assert_eq(t.dimensions, 7);
    cr_assert_eq(t.flag, -1);
    cr_assert_eq(t.word, 2);
    cr_assert_eq(t.words, 5);
    cr_assert_eq(t.other.count, 1);
}

/* What JSON Schema calls an integer, however it is spelled. */
Test(server_fields, integers_are_numbers_without_a_fraction) {
    target     t;
    fl_json_in in;
    cr_assert(read_body("{\"input\":[12.0,12e0,1.2E+1,120e-1,0.0,-0]}", &t, &in));
    for (int i = 0; i < 4; i++)
        cr_assert_eq(t.input.ids[i], 12);
    cr_assert(t.input.ids[4] == 0 && t.input.ids[5] == 0);
}

Test(server_fields, inputs_come_in_four_forms) {
    target     t;
    fl_json_in in;
    cr_assert(read_body("{\"input\":\"one\"}", &t, &in));
    cr_assert(t.input.form == FL_INPUT_TEXT && t.input.count == 1 && !t.input.empty);
    cr_assert(read_body("{\"input\":[7,8,9]}", &t, &in));
    cr_assert(t.input.form == FL_INPUT_IDS && t.input.count == 1 && t.input.ids[2] == 9);
    cr_assert(t.input.offsets[0] == 0 && t.input.offsets[1] == 3);
    cr_assert(read_body("{\"input\":[[7],[8,9],[10]]}", &t, &in));
    cr_assert(t.input.form == FL_INPUT_ID_LISTS && t.input.count == 3);
    cr_assert(t.input.offsets[1] == 1 && t.input.offsets[2] == 3 && t.input.offsets[3] == 4);
    cr_assert(read_body("{\"input\":[]}", &t, &in));
    cr_assert(t.input.count == 0 && t.input.empty);
    cr_assert(read_body("{\"input\":[[]]}", &t, &in));
    cr_assert(t.input.count == 1 && t.input.empty);
}

/* Arrays double as they grow: nothing may get lost on the way. */
Test(server_fields, long_lists_keep_every_item) {
    enum { COUNT = 5000 };
    fl_buf text = {0}, lists = {0};
    fl_buf_puts(&text, "{\"input\":[");
    fl_buf_puts(&lists, "{\"input\":[");
    for (int i = 0; i < COUNT; i++) {
        fl_buf_printf(&text, "%s\"t%d\"", i > 0 ? "," : "", i);
        fl_buf_printf(&lists, "%s[%d,%d]", i > 0 ? "," : "", i, 2 * i);
    }
    fl_buf_puts(&text, "]}");
    fl_buf_puts(&lists, "]}");
    target     t;
    fl_json_in in;
    cr_assert(read_body(text.data, &t, &in), "%s", in.message);
    cr_assert_eq(t.input.count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        char   want[16];
        size_t size = (size_t)snprintf(want, sizeof want, "t%d", i);
        cr_assert(t.input.lengths[i] == size && memcmp(t.input.texts[i], want, size) == 0);
    }
    cr_assert(read_body(lists.data, &t, &in), "%s", in.message);
    cr_assert_eq(t.input.count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        cr_assert(t.input.offsets[i] == 2 * i && t.input.ids[2 * i] == i &&
                  t.input.ids[2 * i + 1] == 2 * i);
    }
    fl_buf_free(&text);
    fl_buf_free(&lists);
}

Test(server_fields, wrong_meanings_are_named) {
    static const struct {
        const char *text, *part;
        bool        mistyped;
    } row[] = {
        {"{}", "missing field `input`", true},
        {"[]", "expected an object", true},
        {"\"x\"", "expected an object", true},
        {"{\"input\":\"a\",\"input\":\"b\"}", "duplicate field `input`", true},
        {"{\"input\":\"a\",\"in\\u0070ut\":\"b\"}", "duplicate field `input`", true},
        {"{\"input\":null}", "input: invalid type: null", true},
        {"{\"input\":7}", "input: invalid type: a number", true},
        {"{\"input\":[\"a\",7]}", "input[1]: invalid type: a number", true},
        {"{\"input\":[7,\"a\"]}", "input[1]: invalid type: a string", true},
        {"{\"input\":[[7],[8,null]]}", "input[1]: invalid type: null", true},
        {"{\"input\":[-1]}", "expected a token id", true},
        {"{\"input\":[4294967296]}", "expected a token id", true},
        {"{\"input\":[1.5]}", "expected an integer", true},
        {"{\"input\":[12e-1]}", "expected an integer", true},
        {"{\"input\":[1e19]}", "expected an integer", true},
        {"{\"input\":[1e400]}", "expected an integer", true},
        {"{\"input\":[{}]}", "input[0]: invalid type: an object", true},
        {"{\"input\":\"a\",\"dimensions\":0}", "dimensions: invalid value", true},
        {"{\"input\":\"a\",\"dimensions\":101}", "expected one from 1 to 100", true},
        {"{\"input\":\"a\",\"dimensions\":null}", "dimensions: invalid type: null", true},
        {"{\"input\":\"a\",\"flag\":\"true\"}", "flag: invalid type: a string", true},
        {"{\"input\":\"a\",\"word\":\"Float\"}", "word: unknown variant `Float`", true},
        {"{\"input\":\"a\",\"words\":[\"a\",\"z\"]}", "words: unknown variant `z`", true},
        {"{\"input\":\"a\",\"inner\":{}}", "inner: missing field `list`", true},
        {"{\"input\":\"a\",\"inner\":{\"list\":[1]}}", "inner.list[0]: invalid type", true},
        {"{\"input\":\"a\",\"any\":[1,]}", "trailing comma", false},
        {"{\"input\":\"a\"} {}", "trailing characters", false},
        {"{\"input\":\"a\"", "EOF", false},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        target     t;
        fl_json_in in;
        cr_assert_not(read_body(row[i].text, &t, &in), "%s", row[i].text);
        cr_assert_neq(strstr(in.message, row[i].part), NULL, "%s: %s", row[i].text, in.message);
        cr_assert_eq(in.mistyped, row[i].mistyped, "%s: %s", row[i].text, in.message);
    }
}
