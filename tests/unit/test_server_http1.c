/* SPDX-License-Identifier: Apache-2.0 */
/* test_server_http1.c - heads and chunks to the letter: what passes, what is refused, and with which status. */
#include <criterion/criterion.h>
#include <string.h>

#include "server/http1.h"

#define LINE "GET / HTTP/1.1\r\n"
#define HOST LINE "Host: a\r\n"

static fl_http_head head;
static char         data[64 * 1024];

static int read_head(const char *text, size_t size) {
    memset(&head, 0, sizeof head);
    memcpy(data, text, size);
    return fl_http_head_read(&head, data, size);
}

Test(http1, what_two_parsers_could_cut_differently_is_refused) {
    static const struct {
        int         status;
        size_t      size; /* 0: to the NUL */
        const char *text;
    } rows[] = {
        {400, 0, HOST ": x\r\n\r\n"},
        {400, sizeof HOST "\0zz: x\r\n\r\n" - 1, HOST "\0zz: x\r\n\r\n"},
        {400, sizeof HOST "\0\r\n\r\n" - 1, HOST "\0\r\n\r\n"},
        {400, sizeof HOST "a: b\0c\r\n\r\n" - 1, HOST "a: b\0c\r\n\r\n"},
        {400, 0, HOST "Content-Length:\r\n 36\r\n\r\n"},
        {400, 0, HOST "Content-Length: 3\r\n 6\r\n\r\n"},
        {400, 0, HOST "Content-Length: 3\r\n\t6\r\n\r\n"},
        {400, 0, HOST "Transfer-Encoding: chu\r\n nked\r\n\r\n"},
        {400, 0, HOST "Transfer-Encoding:\r\n chunked\r\n\r\n"},
        {400, 0, LINE " Host: a\r\n\r\n"},
        {400, sizeof HOST "Transfer-Encoding: chunked\0, identity\r\n\r\n" - 1,
         HOST "Transfer-Encoding: chunked\0, identity\r\n\r\n"},
        {400, sizeof HOST "Content-Length: 14\0000\r\n\r\n" - 1,
         HOST "Content-Length: 14\0000\r\n\r\n"},
        {400, 0, HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"},
        {400, 0, HOST "Content-Length: 5, 5\r\n\r\n"},
        {400, 0, HOST "Content-Length: +5\r\n\r\n"},
        {400, 0, HOST "Content-Length:\r\n\r\n"},
        {400, 0, HOST "Content-Length: 0x5\r\n\r\n"},
        {413, 0, HOST "Content-Length: 18446744073709551621\r\n\r\n"},
        {413, 0, HOST "Content-Length: 18446744073709551615\r\n\r\n"},
        {400, 0, HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, 0, HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, 0, HOST "Transfer-Encoding: gzip, chunked\r\n\r\n"},
        {400, 0, HOST "Transfer-Encoding: \"chunked\"\r\n\r\n"},
        {400, 0, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, 0, HOST "a : b\r\n\r\n"},
        {400, 0, HOST "a\r\n\r\n"},
        {400, 0, HOST "\xc3\xa9: b\r\n\r\n"},
        {400, 0, HOST "a: b\n\r\n"},
        {400, 0, HOST "a: b\rc: d\r\n\r\n"},
        {400, 0, HOST "\n"},
        {400, 0, LINE "\r\n"},
        {400, 0, HOST "Host: a\r\n\r\n"},
        {400, 0, LINE "Host:\r\n\r\n"},
        {400, 0, LINE "Host: a b\r\n\r\n"},
        {400, 0, LINE "Host: a/b\r\n\r\n"},
        {400, 0, "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, 0, "GET http://x@a/ HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, 0, "GET http:// HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, 0, "GET http://b HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, 0, "GET http://a#b HTTP/1.0\r\n\r\n"},
        {400, 0, "GET http://a\3/ HTTP/1.0\r\n\r\n"},
        {400, 0, "GET http://a:\rb/ HTTP/1.0\r\n\r\n"},
        {400, 0, "GET //a#b HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, 0, "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, 0, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, 0, "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, 0, " GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, 0, "GET /\r\n"},
        {400, 0, "GET / HTTP/1.1 \r\n"},
        {400, 0, "GET / http/1.1\r\n"},
        {400, 0, "\r\n\r\n" HOST "\r\n"},
        {505, 0, "GET / HTTP/1.2\r\nHost: a\r\n\r\n"},
        {505, 0, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
        {417, 0, HOST "Expect: a cake\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t size = rows[i].size != 0 ? rows[i].size : strlen(rows[i].text);
        cr_assert_eq(read_head(rows[i].text, size), -rows[i].status, "row %zu: %s", i,
                     rows[i].text);
        cr_assert_not_null(head.fault);
    }
}

Test(http1, an_absolute_target_may_have_no_path) {
    cr_assert_eq(read_head("GET http://a:1 HTTP/1.1\r\nHost: A:1\r\n\r\n", 39), 1);
    cr_assert_str_eq(data + head.path, "/");
    cr_assert_str_eq(data + head.query, "");
    cr_assert_eq(read_head("GET http://a?b=/c HTTP/1.0\r\n\r\n", 30), 1);
    cr_assert_str_eq(data + head.path, "/");
    cr_assert_str_eq(data + head.query, "b=/c");
}

Test(http1, noise_is_refused_before_its_line_ends) {
    cr_assert_eq(read_head("\x16\x03\x01\x02", 4), -400);
    cr_assert_eq(read_head("\0\0\0\0", 4), -400);
    memset(data, 'A', sizeof data);
    memset(&head, 0, sizeof head);
    cr_assert_eq(fl_http_head_read(&head, data, 33), -501);
    cr_assert_eq(read_head("PROXY TCP4 ", 11), 0);
    memcpy(data, "GET /", 5);
    memset(&head, 0, sizeof head);
    cr_assert_eq(fl_http_head_read(&head, data, 5000), -414);
    memcpy(data, HOST, sizeof HOST - 1);
    memset(&head, 0, sizeof head);
    cr_assert_eq(fl_http_head_read(&head, data, 20000), -431);
}

Test(http1, a_head_is_read_in_any_pieces) {
    static const char text[] =
        "\r\nPOST http://A:1/b?c=d?e HTTP/1.1\r\nhOST: a:1\r\nX:\t y z \t\r\nEmpty:\r\n"
        "Content-Length: 0012\r\nConnection: x, CLOSE\r\nExpect: 100-Continue\r\n\r\nrest";
    size_t whole = sizeof text - 1 - 4;
    memset(&head, 0, sizeof head);
    for (size_t i = 0; i < whole; i++) {
        memcpy(data, text, i == 0 ? 1 : 0); /* the reader's own NULs stay */
        data[i] = text[i];
        cr_assert_eq(fl_http_head_read(&head, data, i + 1), i + 1 == whole, "byte %zu", i);
    }
    cr_assert_eq(head.size, whole);
    cr_assert_str_eq(data + head.method, "POST");
    cr_assert_str_eq(data + head.path, "/b");
    cr_assert_str_eq(data + head.query, "c=d?e");
    cr_assert_str_eq(fl_http_header(&head, data, "x"), "y z");
    cr_assert_str_eq(fl_http_header(&head, data, "EMPTY"), "");
    cr_assert_null(fl_http_header(&head, data, "y"));
    cr_assert(head.length == 12 && head.expects && !fl_http_keeps(&head));
}

Test(http1, how_long_a_connection_lives) {
    static const struct {
        const char *text;
        bool        keeps;
    } rows[] = {
        {HOST "\r\n", true},
        {HOST "Connection: close\r\n\r\n", false},
        {HOST "Connection: keep-alive, close\r\n\r\n", false},
        {HOST "Connection: closed\r\n\r\n", true},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_assert_eq(read_head(rows[i].text, strlen(rows[i].text)), 1);
        cr_assert_eq(fl_http_keeps(&head), rows[i].keeps, "row %zu", i);
    }
}

static int read_chunks(const char *text, size_t size, size_t *end) {
    fl_http_chunks chunks = {0};
    const char    *at;
    size_t         used, count;
    int            found;
    *end = 0;
    do {
        found = fl_http_chunks_read(&chunks, text + *end, size - *end, &used, &at, &count);
        *end += used;
    } while (found == FL_CHUNK_DATA);
    return found;
}

Test(http1, chunks) {
    static const struct {
        int         found;
        const char *text;
    } rows[] = {
        {FL_CHUNK_END, "0\r\n\r\n"},
        {FL_CHUNK_END, "3\r\nabc\r\n0\r\n\r\n"},
        {FL_CHUNK_END, "0003;a=b; c=\"d\"\r\nabc\r\n0;x\r\nA: b\r\nC:\r\n\r\n"},
        {FL_CHUNK_END, "3; a\t=\t\"\\\"; x\" ;b = c ; d\r\nabc\r\n0\r\n\r\n"},
        {-400, "3;\r\nabc\r\n0\r\n\r\n"},
        {-400, "3; ;a\r\nabc\r\n0\r\n\r\n"},
        {-400, "3;a=\r\nabc\r\n0\r\n\r\n"},
        {-400, "3;a;\r\nabc\r\n0\r\n\r\n"},
        {-400, "3;a=\"b\r\nabc\r\n0\r\n\r\n"},
        {-400, "3;a=b\"c\r\nabc\r\n0\r\n\r\n"},
        {-400, "3;a=\"b\"c\r\nabc\r\n0\r\n\r\n"},
        {-400, "3;a b\r\nabc\r\n0\r\n\r\n"},
        {-400, "3;a \r\nabc\r\n0\r\n\r\n"},
        {FL_CHUNK_MORE, "3\r\nabc\r\n0\r\n"},
        {FL_CHUNK_MORE, "a\r\nabc"},
        {-400, "3;\nabc\r\n0\r\n\r\n"},
        {-400, "3\nabc\r\n0\r\n\r\n"},
        {-400, "3\rabc\r\n0\r\n\r\n"},
        {-400, "3 \r\nabc\r\n0\r\n\r\n"},
        {-400, " 3\r\nabc\r\n0\r\n\r\n"},
        {-400, "+3\r\nabc\r\n0\r\n\r\n"},
        {-400, "0x3\r\nabc\r\n0\r\n\r\n"},
        {-400, "\r\n"},
        {-400, "3;a=\x01\r\nabc\r\n0\r\n\r\n"},
        {-400, "3\r\nabcd\r\n0\r\n\r\n"},
        {-400, "3\r\nabc0\r\n\r\n"},
        {-400, "0\r\n: x\r\n\r\n"},
        {-400, "0\r\na : x\r\n\r\n"},
        {-400, "0\r\na: x\r\n b\r\n\r\n"},
        {-400, "0\r\na: x\n\r\n"},
        {-400, "0\r\na\r\n\r\n"},
        {-400, "0\r\n\n"},
        {-413, "10000000000000000\r\n"},
        {-413, "00000000000000003\r\nabc\r\n"},
    };
    size_t end;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t size = strlen(rows[i].text);
        cr_assert_eq(read_chunks(rows[i].text, size, &end), rows[i].found, "row %zu", i);
        cr_assert(rows[i].found < 0 || end == size, "row %zu", i);
    }
    cr_assert_eq(read_chunks("0\r\n\r\nGET /", 10, &end), FL_CHUNK_END);
    cr_assert_eq(end, 5, "what follows is the next request");
}
