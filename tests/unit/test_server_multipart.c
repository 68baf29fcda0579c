/* SPDX-License-Identifier: Apache-2.0 */
/* test_server_multipart.c - forms to the letter: parts byte for byte, names with what they escape, and what is none. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "server/multipart.h"

#define TYPE        "multipart/form-data; boundary=b0"
#define NAMED(name) "Content-Disposition: form-data; name=\"" name "\"\r\n\r\n"

/* Every part as "name|filename|data;", and at the end the fault. Of a copy, so that a sanitizer sees overreads. */
static const char *read_form(const char *type, const char *body, size_t size) {
    static char  out[1024];
    fl_multipart in;
    fl_form_part part;
    char        *copy = malloc(size > 0 ? size : 1);
    memcpy(copy, body, size);
    out[0]    = '\0';
    bool good = fl_multipart_begin(&in, type, copy, size);
    while (good && fl_multipart_next(&in, &part)) {
        strncat(out, part.name.data, part.name.size);
        strcat(out, "|");
        strncat(out, part.filename.data != NULL ? part.filename.data : "-",
                part.filename.data != NULL ? part.filename.size : 1);
        strcat(out, "|");
        strncat(out, part.data.data, part.data.size);
        strcat(out, ";");
    }
    strcat(out, in.fault != NULL ? in.fault : "");
    free(copy);
    return out;
}

#define FORM_OF(type, body) read_form(type, body, sizeof(body) - 1)
#define FORM(body)          FORM_OF(TYPE, body)

Test(multipart, parts_are_what_stands_between_boundaries) {
    cr_expect_str_eq(FORM("--b0\r\n" NAMED("a") "1\r\n--b0\r\n" NAMED("b") "\r\n--b0--\r\n"),
                     "a|-|1;b|-|;");
    cr_expect_str_eq(FORM("--b0\r\n" NAMED("a") "\r\n--b\r\n-b0\r\n--b0--"), "a|-|\r\n--b\r\n-b0;");
    cr_expect_str_eq(FORM("before\r\n--b0 \t\r\nX: y\r\ncontent-disposition:form-data "
                          ";NAME=\"a\"\r\n\r\n1\r\n--b0--after"),
                     "a|-|1;");
    cr_expect_str_eq(FORM("--b0--"), "");
    cr_expect_str_eq(FORM_OF("Multipart/Form-Data; charset=x; Boundary=\"b 0\"",
                             "--b 0\r\n" NAMED("a") "1\r\n--b 0--"),
                     "a|-|1;");
}

Test(multipart, names_hold_what_their_quotes_hold) {
    cr_expect_str_eq(FORM("--b0\r\nContent-Disposition: form-data; name=\"a\"; filename=\"x; "
                          "name=\\\"y\\\\.z\"\r\n\r\n1\r\n--b0--"),
                     "a|x; name=\"y\\.z|1;");
    cr_expect_str_eq(FORM("--b0\r\nContent-Disposition: form-data; filename=\"\"; xname=\"q\"; "
                          "name=\"a\"\r\n\r\n1\r\n--b0--"),
                     "a||1;");
    cr_expect_str_eq(FORM("--b0\r\nContent-Disposition: form-data; filename*=UTF-8''x; "
                          "name=\"a\"\r\n\r\n1\r\n--b0--"),
                     "a|-|1;");
}

Test(multipart, what_is_no_form_says_why) {
    static const struct {
        const char *type, *body, *word;
    } rows[] = {
        {NULL, "", "Content-Type"},
        {"application/json", "{}", "Content-Type"},
        {"multipart/form-data", "--b0--", "no boundary"},
        {"multipart/form-data; boundary=", "--b0--", "1 to 70"},
        {"multipart/form-data; "
         "boundary=0123456789012345678901234567890123456789012345678901234567890123456789x",
         "", "1 to 70"},
        {TYPE, "", "lacks"},
        {TYPE, "--b", "lacks"},
        {TYPE, "--b0", "followed by"},
        {TYPE, "--b0\n", "followed by"},
        {TYPE, "--b0\r\nX: y", "headers"},
        {TYPE, "--b0\r\nX: y\r\n", "headers"},
        {TYPE, "--b0\r\nX: y\r\n\r\n", "no end"},
        {TYPE, "--b0\r\n" NAMED("a") "1", "no end"},
        {TYPE, "--b0\r\n" NAMED("a") "1\r\n--b", "no end"},
        {TYPE, "--b0\r\n\r\n1\r\n--b0--", "no name"},
        {TYPE, "--b0\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b0--", "no name"},
        {TYPE, "--b0\r\nContent-Disposition: form-data; name=\"a\r\n\r\n1\r\n--b0--", "no name"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *got = read_form(rows[i].type, rows[i].body, strlen(rows[i].body));
        cr_expect(strstr(got, rows[i].word) != NULL, "row %zu: %s", i, got);
    }
}
