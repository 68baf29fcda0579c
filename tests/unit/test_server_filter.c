/* SPDX-License-Identifier: Apache-2.0 */
/* test_server_filter.c - what a search's filter lets pass, and how long it takes whatever is in it.
 *
 * A key or a text is compared whole and un-escaped, NUL included; a number by its value; true is not 1. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "store/filter.h"

static bool passes(const char *filter_text, const char *metadata_text) {
    char        filter_copy[256], metadata_copy[256];
    fl_filter   filter;
    const char *wrong;
    snprintf(filter_copy, sizeof filter_copy, "%s", filter_text);
    snprintf(metadata_copy, sizeof metadata_copy, "%s", metadata_text);
    wrong = fl_filter_read(&filter, filter_copy, strlen(filter_copy));
    cr_assert_null(wrong, "%s: %s", filter_text, wrong);
    return fl_filter_passes(&filter, metadata_copy, strlen(metadata_copy));
}

Test(filter, is_exact) {
    static const struct {
        const char *filter, *metadata;
        bool        passes;
    } cases[] = {
        {"{}", "{}", true},
        {"{\"a\":1}", "{}", false},
        {"{\"a\":1}", "{\"b\":2, \"a\" : 1 }", true},
        {"{\"a\":1}", "{\"b\":{\"a\":1}}", false},
        {"{\"a\":1}", "{\"a\":[1]}", false},
        {"{\"a\":1.0}", "{\"a\":1}", true},
        {"{\"a\":1e2}", "{\"a\":100}", true},
        {"{\"a\":9007199254740993}", "{\"a\":9007199254740992}", false},
        {"{\"a\":1e400}", "{\"a\":1e401}", false},
        {"{\"a\":1e400}", "{\"a\":1e400}", true},
        {"{\"a\":true}", "{\"a\":1}", false},
        {"{\"a\":true}", "{\"a\":false}", false},
        {"{\"a\":null}", "{\"a\":null}", true},
        {"{\"a\":null}", "{\"b\":null}", false},
        {"{\"a\":\"1\"}", "{\"a\":1}", false},
        {"{\"\\u0061\":\"\\u0062\"}", "{\"a\":\"b\"}", true},
        {"{\"a\":\"b\"}", "{\"\\u0061\":\"\\u0062\"}", true},
        {"{\"a\":\"B\"}", "{\"a\":\"b\"}", false},
        {"{\"k\\u0000b\":1}", "{\"k\\u0000a\":1}", false},
        {"{\"k\\u0000a\":1}", "{\"k\\u0000a\":1}", true},
        {"{\"k\":\"x\\u0000b\"}", "{\"k\":\"x\\u0000a\"}", false},
        {"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", true},
        {"{\"a\":1,\"b\":2}", "{\"b\":3,\"a\":1}", false},
        {"{\"a\":1}", "no JSON", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect_eq(passes(cases[i].filter, cases[i].metadata), cases[i].passes, "%s of %s",
                     cases[i].filter, cases[i].metadata);
    }
}

static const char *read_keys(fl_filter *filter, size_t count) {
    static char text[FL_FILTER_MAX * 16];
    size_t      size = 0;
    for (size_t i = 0; i < count; i++) {
        size += (size_t)snprintf(text + size, sizeof text - size, "%s\"k%zu\":%zu",
                                 i > 0 ? "," : "{", i, i);
    }
    size += (size_t)snprintf(text + size, sizeof text - size, "}");
    return fl_filter_read(filter, text, size);
}

Test(filter, number_of_keys) {
    fl_filter filter;
    fl_buf    metadata = {0};
    cr_assert_null(read_keys(&filter, FL_FILTER_MAX));
    cr_assert_not_null(strstr(read_keys(&filter, FL_FILTER_MAX + 1), "at most 64"));
    cr_assert_null(read_keys(&filter, FL_FILTER_MAX));
    for (size_t i = 0; i < FL_FILTER_MAX; i++)
        fl_buf_printf(&metadata, "%s\"k%zu\":%zu", i > 0 ? "," : "{", i, i);
    fl_buf_puts(&metadata, "}");
    cr_assert(fl_filter_passes(&filter, metadata.data, metadata.size));
    fl_buf_free(&metadata);
}

Test(filter, only_scalars) {
    static const char *const wrong[] = {"[]", "1", "null", "{\"a\":[1]}", "{\"a\":{}}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char      text[32];
        fl_filter filter;
        snprintf(text, sizeof text, "%s", wrong[i]);
        cr_expect_not_null(fl_filter_read(&filter, text, strlen(text)), "%s", wrong[i]);
    }
}
