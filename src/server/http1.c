/* SPDX-License-Identifier: Apache-2.0 */
/* http1.c - HTTP/1.1 as bytes: heads of requests, chunked bodies, reason phrases.
 *
 * Method  A head is read a line at a time and no line twice; a line that is not whole is looked at only for what
 *         cannot become a request any more (another protocol, more bytes than a line may have), so that
 *         noise is refused at once and not by a clock. A chunked body is read by a table of states, a
 *         byte at a time but for its data.
 * Memory  None. Threads: any.
 * Proof   tests/unit/test_server_http1.c, tests/fuzz/fuzz_http1.c, tests/server/test_transport_smuggling.py. */
#include "server/http1.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/number.h"

enum {
    METHOD_MAX = 32, /* as long as any that is registered */
    LINE_MAX   = METHOD_MAX + 1 + FL_LIMIT_URI + 1 + 8 + 2,
    EXT_MAX    = 256 /* of a chunk's size line */
};

/* RFC 9110 5.6.2. */
static bool is_tchar(char c) {
    static const uint32_t set[4] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff};
    unsigned char         u      = (unsigned char)c;
    return u < 128 && (set[u / 32] >> (u % 32) & 1) != 0;
}

static bool is_token(const char *text, size_t size) {
    size_t i = 0;
    while (i < size && is_tchar(text[i]))
        i++;
    return size > 0 && i == size;
}

/* What a header's value may hold: no control character but the tab. */
static bool is_value(char c) {
    return ((unsigned char)c >= 0x20 && c != 0x7F) || c == '\t';
}

static int refuse(fl_http_head *head, int status, const char *fault) {
    assert(status >= 400 && fault);
    head->fault = fault;
    return -status;
}

/* ---- The request line ---------------------------------------------------------------------------- */

/* Split "/path?query", or "http://host/path?query" as proxies send it. What was judged by a proxy is what we match:
 * nothing is decoded. */
static bool split_target(fl_http_head *head, char *data, size_t size) {
    char *at = data + head->target;
    if (strncasecmp(at, "http://", 7) == 0) {
        size_t host     = strcspn(at + 7, "/?");
        head->authority = head->target + 7;
        if (host == 0)
            return false;
        at += 7 + host;
        if (*at !=
            '/') { /* an empty path is "/"; its place is taken from the scheme, which was read */
            memmove(at - host - 1, at - host, host);
            head->authority--;
            *--at = '/';
        }
    }
    if (at[0] != '/' && strcmp(at, "*") != 0)
        return false;
    for (const char *c = data + head->target; *c != '\0'; c++) /* the host of HTTP/1.0 too */
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7F || *c == '#')
            return false;
    char *end = data + head->target + size, *mark = memchr(at, '?', (size_t)(end - at));
    if (mark != NULL)
        *mark = '\0';
    head->query = (uint32_t)((mark != NULL ? mark + 1 : end) - data);
    head->path  = (uint32_t)(at - data);
    return true;
}

static int take_request_line(fl_http_head *head, char *data, char *line, size_t size) {
    if (size == 0 && !head->skipped) { /* some clients end a body with a line of its own */
        head->skipped = true;
        return 0;
    }
    char *first = memchr(line, ' ', size), *last = line + size;
    while (last > line && *--last != ' ') {
    }
    if (first == NULL || !is_token(line, (size_t)(first - line)))
        return refuse(head, 400, "the request line has no method");
    if (first - line > METHOD_MAX)
        return refuse(head, 501, "the method is too long");
    if (last == first)
        return refuse(head, 400, "the request line has no version");
    const char *version = last + 1;
    size_t      target  = (size_t)(last - first - 1);
    bool        http    = line + size - version == 8 && memcmp(version, "HTTP/", 5) == 0 &&
                version[5] >= '0' && version[5] <= '9' && version[6] == '.' && version[7] >= '0' &&
                version[7] <= '9';
    if (http)
        head->minor = version[7] - '0';
    bool known   = http && version[5] == '1' && head->minor <= 1;
    head->method = (uint32_t)(line - data);
    head->target = (uint32_t)(first + 1 - data);
    *first = *last = '\0';
    if (memchr(data + head->target, '\0', target) != NULL || !split_target(head, data, target))
        return refuse(head, 400, "invalid request target");
    if (target > FL_LIMIT_URI)
        return refuse(head, 414, "the target is longer than 4096 bytes");
    if (!known) {
        return refuse(head, http ? 505 : 400,
                      http ? "the version is neither HTTP/1.1 nor HTTP/1.0"
                           : "the request line has no version");
    }
    return 0;
}

/* ---- Header lines -------------------------------------------------------------------------------- */

/* 0, 400 for what is no plain number, 413 for one beyond 64 bits. */
static int parse_length(const char *text, uint64_t *out) {
    *out = 0;
    if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text))
        return 400;
    for (const char *at = text; *at != '\0'; at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, (uint64_t)(*at - '0'), out))
            return 413;
    return *out != UINT64_MAX ? 0 : 413;
}

/* Host = uri-host [ ":" port ]: no user, no path, nothing that would need another reading. */
static bool is_host(const char *text) {
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "-._~!$&'()*+,;=%:[]");
    return size > 0 && text[size] == '\0';
}

static void take_connection(fl_http_head *head, const char *list) {
    while (*list != '\0') {
        size_t size = strcspn(list, ", \t");
        head->wants_close |= size == 5 && strncasecmp(list, "close", 5) == 0;
        head->wants_keep |= size == 10 && strncasecmp(list, "keep-alive", 10) == 0;
        list += size;
        list += strspn(list, ", \t");
    }
}

/* The headers that say where the request ends and what becomes of the connection. */
static int take_meaning(fl_http_head *head, const char *data, uint32_t name, uint32_t value) {
    const char *key = data + name, *text = data + value;
    if (strcasecmp(key, "content-length") == 0) {
        if (head->has_length)
            return refuse(head, 400, "more than one Content-Length");
        head->has_length = true;
        int wrong        = parse_length(text, &head->length);
        if (wrong != 0) {
            return refuse(head, wrong,
                          wrong == 413 ? "Content-Length is too large"
                                       : "Content-Length is not a number");
        }
    } else if (strcasecmp(key, "transfer-encoding") == 0) {
        if (head->chunked || strcasecmp(text, "chunked") != 0)
            return refuse(head, 400, "the only supported transfer coding is chunked");
        head->chunked = true;
    } else if (strcasecmp(key, "host") == 0) {
        if (head->host != 0)
            return refuse(head, 400, "more than one Host");
        if (!is_host(text))
            return refuse(head, 400, "invalid Host header");
        head->host = value;
    } else if (strcasecmp(key, "connection") == 0) {
        take_connection(head, text);
    } else if (strcasecmp(key, "expect") == 0) {
        if (strcasecmp(text, "100-continue") != 0)
            return refuse(head, 417, "the only supported expectation is 100-continue");
        head->expects = true;
    }
    return 0;
}

static int take_field(fl_http_head *head, char *data, char *line, size_t size) {
    if (head->count == FL_LIMIT_HEADERS)
        return refuse(head, 431, "more than 100 header lines");
    if (line[0] == ' ' || line[0] == '\t')
        return refuse(head, 400, "a header line is folded");
    char *colon = memchr(line, ':', size), *end = line + size;
    if (colon == NULL)
        return refuse(head, 400, "a header line has no colon");
    if (!is_token(line, (size_t)(colon - line)))
        return refuse(head, 400, "invalid header name");
    char *value = colon + 1;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (const char *at = value; at < end; at++)
        if (!is_value(*at))
            return refuse(head, 400, "a header's value holds a control character");
    *colon = *end                    = '\0';
    head->field[head->count].name    = (uint32_t)(line - data);
    head->field[head->count++].value = (uint32_t)(value - data);
    return take_meaning(head, data, (uint32_t)(line - data), (uint32_t)(value - data));
}

/* The empty line is there: what only the whole head can show. */
static int finish(fl_http_head *head, const char *data) {
    if (head->chunked && head->has_length)
        return refuse(head, 400, "both Content-Length and Transfer-Encoding");
    if (head->chunked && head->minor == 0)
        return refuse(head, 400, "Transfer-Encoding belongs to HTTP/1.1");
    if (head->host == 0 && head->minor == 1)
        return refuse(head, 400, "no Host");
    if (head->authority != 0 && head->host != 0) {
        size_t size = head->path - head->authority;
        if (strlen(data + head->host) != size ||
            strncasecmp(data + head->host, data + head->authority, size) != 0)
            return refuse(head, 400, "Host and the target name different hosts");
    }
    head->length  = head->chunked ? UINT64_MAX : head->length;
    head->expects = head->expects && head->minor == 1 && head->length > 0;
    return 1;
}

/* The line is not whole yet: whether it may still become one. */
static int wait(fl_http_head *head, const char *line, size_t size) {
    bool first = head->path == 0;
    if (!first) {
        return head->lines + size > FL_LIMIT_HEADER_BYTES
                   ? refuse(head, 431, "headers larger than 16 KiB")
                   : 0;
    }
    for (size_t i = 0; i < size && line[i] != ' ' && line[i] != '\r'; i++) {
        if (!is_tchar(line[i]))
            return refuse(head, 400, "the request line has no method");
        if (i == METHOD_MAX)
            return refuse(head, 501, "the method is too long");
    }
    return size > LINE_MAX ? refuse(head, 414, "the target is longer than 4096 bytes") : 0;
}

int fl_http_head_read(fl_http_head *head, char *data, size_t size) {
    assert(data || size == 0);
    for (;;) {
        char  *line = data + head->size;
        size_t left = size - head->size;
        char  *end  = left > 0 ? memchr(line, '\n', left) : NULL;
        if (end == NULL)
            return wait(head, line, left);
        size_t length = (size_t)(end - line);
        if (length == 0 || line[length - 1] != '\r')
            return refuse(head, 400, "a line ends in LF without CR");
        bool first = head->path == 0;
        head->size += (uint32_t)length + 1;
        head->lines += first ? 0 : (uint32_t)length + 1;
        if (head->lines > FL_LIMIT_HEADER_BYTES)
            return refuse(head, 431, "headers larger than 16 KiB");
        int status = first         ? take_request_line(head, data, line, length - 1)
                     : length == 1 ? finish(head, data)
                                   : take_field(head, data, line, length - 1);
        if (status != 0)
            return status;
    }
}

const char *fl_http_header(const fl_http_head *head, const char *data, const char *name) {
    assert(name);
    for (uint32_t i = 0; i < head->count; i++)
        if (strcasecmp(data + head->field[i].name, name) == 0)
            return data + head->field[i].value;
    return NULL;
}

/* ---- Chunks -------------------------------------------------------------------------------------- */

enum {
    SIZE,
    EXT, /* ; */
    EXT_NAME,
    EXT_NAMED, /* and a blank */
    EXT_EQUALS,
    EXT_TOKEN,
    EXT_QUOTED,
    EXT_ESCAPED,
    EXT_WHOLE, /* a value in quotes */
    EXT_BLANK, /* behind a value */
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER,
    NAME,
    VALUE,
    VALUE_LF,
    END_LF,
    END
};

static int take_size(fl_http_chunks *chunks, char c) {
    int digit = fl_hex_digit(c);
    if (digit >= 0) {
        if (chunks->left >> 60 != 0)
            return -413;
        chunks->left = chunks->left << 4 | (unsigned)digit;
        chunks->digits++;
        return chunks->digits > 16 ? -413 : SIZE;
    }
    if (chunks->digits == 0)
        return -400;
    return c == '\r' ? SIZE_LF : c == ';' ? EXT : -400;
}

/* The same inside of the extensions of a chunk's size, RFC 9112 7.1.1: ; name [= value], blanks around both. Nobody
 * reads them, but who reads them otherwise than we do would see another message. */
static int take_extension(int state, char c) {
    bool blank = c == ' ' || c == '\t', ascii = is_value(c) && (unsigned char)c < 0x80;
    int  after = c == ';' ? EXT : blank ? EXT_BLANK : -400;
    switch (state) {
    case EXT: return blank ? EXT : is_tchar(c) ? EXT_NAME : -400;
    case EXT_NAME:
        return is_tchar(c) ? EXT_NAME
               : c == '\r' ? SIZE_LF
               : c == '='  ? EXT_EQUALS
               : blank     ? EXT_NAMED
                           : after;
    case EXT_NAMED: return c == '=' ? EXT_EQUALS : blank ? EXT_NAMED : after;
    case EXT_EQUALS:
        return blank ? EXT_EQUALS : c == '"' ? EXT_QUOTED : is_tchar(c) ? EXT_TOKEN : -400;
    case EXT_TOKEN: return is_tchar(c) ? EXT_TOKEN : c == '\r' ? SIZE_LF : after;
    case EXT_QUOTED:
        return c == '"' ? EXT_WHOLE : c == '\\' ? EXT_ESCAPED : ascii ? EXT_QUOTED : -400;
    case EXT_ESCAPED: return ascii ? EXT_QUOTED : -400;
    case EXT_WHOLE: return c == '\r' ? SIZE_LF : after;
    default: return after;
    }
}

/* The state after byte `c` of a line, or the negative of a status. */
static int take_byte(fl_http_chunks *chunks, char c) {
    if (chunks->state >= EXT && chunks->state < SIZE_LF)
        return ++chunks->line <= EXT_MAX ? take_extension(chunks->state, c) : -400;
    switch (chunks->state) {
    case SIZE: return take_size(chunks, c);
    case SIZE_LF:
        chunks->line = chunks->digits = 0;
        chunks->count += chunks->left > 0;
        return c != '\n' ? -400 : chunks->left > 0 ? DATA : TRAILER;
    case DATA_CR: return c == '\r' ? DATA_LF : -400;
    case DATA_LF: return c == '\n' ? SIZE : -400;
    case TRAILER: return c == '\r' ? END_LF : is_tchar(c) ? NAME : -400;
    case NAME: return c == ':' ? VALUE : is_tchar(c) ? NAME : -400;
    case VALUE: return c == '\r' ? VALUE_LF : is_value(c) ? VALUE : -400;
    case VALUE_LF: return c == '\n' ? TRAILER : -400;
    default: return c == '\n' ? END : -400;
    }
}

int fl_http_chunks_read(fl_http_chunks *chunks, const char *data, size_t size, size_t *used,
                        const char **at, size_t *count) {
    size_t i = 0;
    *used    = 0;
    while (i < size) {
        if (chunks->state == DATA) {
            size_t piece = chunks->left < size - i ? (size_t)chunks->left : size - i;
            *at          = data + i;
            *count       = piece;
            *used        = i + piece;
            chunks->left -= piece;
            chunks->state = chunks->left == 0 ? DATA_CR : DATA;
            return FL_CHUNK_DATA;
        }
        int next = take_byte(chunks, data[i++]);
        if (next < 0)
            return next;
        if (next >= TRAILER && ++chunks->line > FL_LIMIT_HEADER_BYTES)
            return -431;
        chunks->state = next;
        if (next == END) {
            *used = i;
            return FL_CHUNK_END;
        }
    }
    *used = i;
    return FL_CHUNK_MORE;
}

/* ---- Reason phrases ------------------------------------------------------------------------------ */

const char *fl_http_reason(int status) {
    static const struct {
        int         status;
        const char *phrase;
    } phrases[] = {
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {424, "Failed Dependency"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {507, "Insufficient Storage"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
        if (phrases[i].status == status)
            return phrases[i].phrase;
    return "Refused";
}
