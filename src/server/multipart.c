/* SPDX-License-Identifier: Apache-2.0 */
/* multipart.c - multipart/form-data (RFC 7578), as far as forms with files need it.
 *
 * Method  The boundary is looked for with the line end in front that belongs to it. Of a part's headers
 *         Content-Disposition is read, and there name and filename; the others are stepped over.
 * Memory  None: parts are spans of the body, in which escaped quotes of names are undone.
 * Threads A reader belongs to one. Proof tests/unit/test_server_multipart.c, fuzz_multipart.c. */
#include "server/multipart.h"

#include <string.h>
#include <strings.h>

static bool fail(fl_multipart *in, const char *fault) {
    in->fault = fault;
    return false;
}

bool fl_multipart_begin(fl_multipart *in, const char *type, char *body, size_t size) {
    static const char form[] = "multipart/form-data";
    *in                      = (fl_multipart){.at = body, .end = body + size};
    if (type == NULL || strncasecmp(type, form, sizeof form - 1) != 0)
        return fail(in, "expected Content-Type: multipart/form-data");
    const char *found = strcasestr(type, "boundary=");
    if (found == NULL)
        return fail(in, "Content-Type has no boundary");
    found += strlen("boundary=");
    bool   quoted = *found == '"';
    size_t length = quoted ? strcspn(++found, "\"") : strcspn(found, "; \t");
    if (length == 0 || length > FL_BOUNDARY_MAX)
        return fail(in, "a boundary has 1 to 70 characters");
    memcpy(in->mark, "\r\n--", 4);
    memcpy(in->mark + 4, found, length);
    in->mark_size = length + 4;
    if (size + 2 < in->mark_size || memcmp(body, in->mark + 2, in->mark_size - 2) != 0) {
        char *first = memmem(body, size, in->mark, in->mark_size); /* a preamble is stepped over */
        if (first == NULL)
            return fail(in, "the body lacks the boundary that Content-Type names");
        in->at = first + 2;
    }
    in->at += in->mark_size - 2;
    return true;
}

/* The quoted value of `key` among the parameters of a header's line, its escapes undone; data NULL: it has none. */
static fl_span parameter(char *at, char *end, const char *key) {
    size_t size = strlen(key);
    while ((at = memchr(at, ';', (size_t)(end - at))) != NULL) {
        for (at++; at < end && (*at == ' ' || *at == '\t'); at++) {
        }
        bool is = (size_t)(end - at) > size && strncasecmp(at, key, size) == 0 && at[size] == '=';
        for (; at < end && *at != '=' && *at != ';'; at++) {
        }
        if (end - at < 2 || at[0] != '=' || at[1] != '"')
            continue;
        char *value = at + 2, *out = value;
        for (at = value; at < end && *at != '"'; at++) { /* a quote or a backslash may be escaped */
            at += *at == '\\' && end - at > 1 && (at[1] == '"' || at[1] == '\\');
            *out = is ? *at : *out;
            out += is;
        }
        if (is && at < end)
            return (fl_span){value, (size_t)(out - value)};
    }
    return (fl_span){NULL, 0};
}

static void read_header(fl_form_part *part, char *line, char *end) {
    static const char wanted[] = "content-disposition:";
    if ((size_t)(end - line) > sizeof wanted - 1 &&
        strncasecmp(line, wanted, sizeof wanted - 1) == 0) {
        part->filename = parameter(line, end, "filename");
        part->name     = parameter(line, end, "name");
    }
}

bool fl_multipart_next(fl_multipart *in, fl_form_part *part) {
    *part = (fl_form_part){0};
    if (in->end - in->at >= 2 && memcmp(in->at, "--", 2) == 0)
        return false;
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\t'))
        in->at++;
    if (in->end - in->at < 2 || memcmp(in->at, "\r\n", 2) != 0)
        return fail(in, "a boundary is followed by neither a line end nor --");
    for (in->at += 2;;) {
        char *end = memmem(in->at, (size_t)(in->end - in->at), "\r\n", 2);
        if (end == NULL)
            return fail(in, "the headers of a part have no end");
        char *line = in->at;
        in->at     = end + 2;
        if (line == end)
            break;
        read_header(part, line, end);
    }
    char *end = memmem(in->at - 2, (size_t)(in->end - in->at) + 2, in->mark, in->mark_size);
    if (end == NULL)
        return fail(in, "the last part has no end");
    part->data = (fl_span){in->at, end > in->at ? (size_t)(end - in->at) : 0};
    in->at     = end + in->mark_size;
    return part->name.data != NULL || fail(in, "a part has no name");
}
