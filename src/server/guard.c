/* SPDX-License-Identifier: Apache-2.0 */
/* guard.c - what a request must look like before anybody believes it.
 *
 * Role    transport.c calls it when the headers of a request are there and no byte of the body.
 * In/Out  Header lines of libmicrohttpd in; pass or refuse with status, word and sentence out.
 * Method  A proxy in front and this server must agree where one request ends and the next begins. Every
 *         request that two parsers could cut differently is refused and its connection closed: both
 *         Content-Length and Transfer-Encoding, two Content-Lengths or Hosts, a space before the colon,
 *         a length that is no plain number, any transfer coding but "chunked". libmicrohttpd, told
 *         not to be strict, lets these pass or answers in words of its own (see byhand.c).
 *         Targets are split but never decoded: what a proxy judged is what we match.
 * Memory  None. Threads: I/O.
 * Proof   tests/server/test_transport_smuggling.py, test_transport_paths.py, test_transport.py. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "server/internal.h"

typedef struct survey {
    size_t      count, bytes;
    unsigned    hosts, lengths, codings;
    const char *length, *coding;
    bool        bad_name, bad_value, expects;
} survey;

/* RFC 9110 token. */
static bool is_token(const char *text) {
    static const char marks[] = "!#$%&'*+-.^_`|~";
    if (text[0] == '\0') {
        return false;
    }
    for (const char *at = text; *at != '\0'; at++) {
        bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
        if (!letter && !(*at >= '0' && *at <= '9') && strchr(marks, *at) == NULL) {
            return false;
        }
    }
    return true;
}

static bool has_control(const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if ((*at < 0x20 && *at != '\t') || *at == 0x7F) {
            return true;
        }
    }
    return false;
}

static enum MHD_Result on_header(void *user, enum MHD_ValueKind kind, const char *name,
                                 const char *value) {
    survey *found = user;
    (void)kind;
    value = value == NULL ? "" : value;
    found->count++;
    found->bytes += strlen(name) + strlen(value) + 4;
    found->bad_name |= !is_token(name);
    found->bad_value |= has_control(value);
    if (strcasecmp(name, "host") == 0) {
        found->hosts++;
    } else if (strcasecmp(name, "content-length") == 0) {
        found->lengths++;
        found->length = value;
    } else if (strcasecmp(name, "transfer-encoding") == 0) {
        found->codings++;
        found->coding = value;
    } else if (strcasecmp(name, "expect") == 0) {
        found->expects = strcasecmp(value, "100-continue") == 0;
    }
    return MHD_YES;
}

static void refuse(fl_verdict *verdict, int status, const char *code, const char *message) {
    verdict->status  = status;
    verdict->code    = code;
    verdict->message = message;
}

/* 0, 400 for what is no plain number, 413 for one beyond 64 bits. */
static int parse_length(const char *text, uint64_t *out) {
    *out = 0;
    if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text)) {
        return 400;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, (uint64_t)(*at - '0'), out)) {
            return 413;
        }
    }
    return *out != UINT64_MAX ? 0 : 413;
}

void fl_guard_headers(struct MHD_Connection *mc, const char *version, fl_verdict *verdict) {
    survey found;
    int    wrong = 0;
    memset(&found, 0, sizeof found);
    memset(verdict, 0, sizeof *verdict);
    (void)MHD_get_connection_values(mc, MHD_HEADER_KIND, on_header, &found);
    verdict->expects = found.expects;
    verdict->length  = found.codings > 0 ? UINT64_MAX : 0;
    if (found.count > FL_LIMIT_HEADERS) {
        refuse(verdict, 431, "headers_too_large", "more than 100 header lines");
    } else if (found.bytes > FL_LIMIT_HEADER_BYTES) {
        refuse(verdict, 431, "headers_too_large", "headers larger than 16 KiB");
    } else if (found.bad_name) {
        refuse(verdict, 400, "bad_request", "a header's name is not a token");
    } else if (found.bad_value) {
        refuse(verdict, 400, "bad_request", "a header's value holds a control character");
    } else if (found.codings > 0 && found.lengths > 0) {
        refuse(verdict, 400, "bad_request", "both Content-Length and Transfer-Encoding");
    } else if (found.codings > 1 ||
               (found.codings == 1 && strcasecmp(found.coding, "chunked") != 0)) {
        refuse(verdict, 400, "bad_request", "the only transfer coding taken is chunked");
    } else if (found.codings == 1 && version != NULL &&
               strcmp(version, MHD_HTTP_VERSION_1_1) != 0) {
        refuse(verdict, 400, "bad_request", "Transfer-Encoding belongs to HTTP/1.1");
    } else if (found.lengths > 1) {
        refuse(verdict, 400, "bad_request", "more than one Content-Length");
    } else if (found.lengths == 1 && (wrong = parse_length(found.length, &verdict->length)) != 0) {
        refuse(verdict, wrong, wrong == 413 ? "payload_too_large" : "bad_request",
               wrong == 413 ? "Content-Length is larger than any body"
                            : "Content-Length is not a number");
    } else if (found.hosts > 1) {
        refuse(verdict, 400, "bad_request", "more than one Host");
    } else if (found.hosts == 0 && version != NULL && strcmp(version, MHD_HTTP_VERSION_1_1) == 0) {
        refuse(verdict, 400, "bad_request", "no Host");
    }
}

bool fl_guard_target(fl_buf *uri, const char **path, const char **query) {
    char *at = uri->data;
    if (strncasecmp(at, "http://", 7) == 0) { /* the form that proxies send */
        char *slash = strpbrk(at + 7, "/?");
        if (slash == NULL || *slash == '?') {
            return false;
        }
        at = slash;
    }
    if (at[0] != '/' && strcmp(at, "*") != 0) {
        return false;
    }
    for (const unsigned char *c = (const unsigned char *)at; *c != '\0'; c++) {
        if (*c <= 0x20 || *c >= 0x7F) {
            return false;
        }
    }
    *path      = at;
    *query     = "";
    char *mark = strchr(at, '?');
    if (mark != NULL) {
        *mark  = '\0';
        *query = mark + 1;
    }
    return true;
}

static bool good_id(const char *id) {
    size_t size = strlen(id);
    if (size == 0 || size > FL_LIMIT_REQUEST_ID) {
        return false;
    }
    return strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == size;
}

static bool is_hex(const char *text, size_t size) {
    return strspn(text, "0123456789abcdef") >= size;
}

/* 00-<32 hex>-<16 hex>-<2 hex>; a later version may be longer, its first four fields are the same. */
static bool good_parent(const char *text) {
    size_t size = strlen(text);
    if (size < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-' || !is_hex(text, 2) ||
        !is_hex(text + 3, 32) || !is_hex(text + 36, 16) || !is_hex(text + 53, 2)) {
        return false;
    }
    if (strncmp(text, "ff", 2) == 0 || (strncmp(text, "00", 2) == 0 && size != 55) ||
        (size > 55 && text[55] != '-')) {
        return false;
    }
    return strspn(text + 3, "0") < 32 && strspn(text + 36, "0") < 16;
}

static void random_hex(char *out, size_t digits) {
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != (ssize_t)sizeof bytes) {
        uint64_t salt = (uint64_t)(uintptr_t)out ^ (uint64_t)errno;
        memcpy(bytes, &salt, sizeof salt); /* ids need to differ, not to be secret */
    }
    for (size_t i = 0; i < digits; i++) {
        out[i] = "0123456789abcdef"[(bytes[i / 2] >> (i % 2 * 4)) & 15];
    }
    out[digits] = '\0';
}

void fl_guard_identity(fl_request *request, const char *id, const char *traceparent) {
    if (id != NULL && good_id(id)) {
        memcpy(request->id, id, strlen(id) + 1);
    } else {
        random_hex(request->id, 32);
    }
    request->trace_id[0] = request->span_id[0] = '\0';
    if (traceparent != NULL && good_parent(traceparent)) {
        memcpy(request->trace_id, traceparent + 3, 32);
        request->trace_id[32] = '\0';
        random_hex(request->span_id, 16);
    }
}
