/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_header.c - read the table of contents of a safetensors file and believe none of it.
 *
 * Role    safetensors.c calls it once per mapped file; fuzz_safetensors.c with whatever it
 *         invents.
 * In/Out  A whole file: [u64 little-endian N][N bytes of JSON][the byte buffer]. The JSON is
 *         {"name": {"dtype", "shape": [...], "data_offsets": [begin, end]}, …, "__metadata__":
 *         {string: string}}; offsets count from the start of the buffer.
 * Method  One pass of a small strict JSON reader that knows this one shape: 100 MB of it cost 100
 *         MB, where a generic tree would cost fifteen times that. Then the ranges are sorted;
 *         they must tile the buffer exactly, without hole or overlap, so that two tensors can
 *         never share bytes and no byte is hidden. Every check of the format's reference reader
 *         is made. Stricter than it in two points: a name may not hold NUL, a tensor has at most
 *         8 dimensions.
 * Memory  the table (freed by fl_table_free). Threads: reentrant.
 * Proof   tests/unit/test_safetensors.c, tests/fuzz/fuzz_safetensors.c,
 *         tests/golden/test_damage.py. */
#include "model/safetensors_header.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/utf8.h"

enum { VALUE_DEPTH_MAX = 64 }; /* of a field this reader does not know and skips */

typedef struct cursor {
    const unsigned char *start; /* of the file, for offsets in messages */
    const unsigned char *at, *end;
    uint64_t             buffer; /* bytes behind the header */
    char                *text;   /* where the next decoded string goes */
    const char          *source;
    fletch_error        *error;
    int                  status;
} cursor;

/* Fail at the current byte; only the first failure is kept. Returns false so that callers can
 * pass it on. */
static bool fail_at(cursor *c, const char *what) {
    if (c->status == 0)
        c->status =
            fl_fail(c->error, FLETCH_EMODEL, (size_t)(c->at - c->start),
                    "%s: header: %s at byte %zu.", c->source, what, (size_t)(c->at - c->start));
    return false;
}

static void skip_space(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t'))
        c->at++;
}

/* Take one punctuation byte, spaces in front of it skipped. */
static bool take(cursor *c, unsigned char byte) {
    skip_space(c);
    if (c->at >= c->end || *c->at != byte)
        return false;
    c->at++;
    return true;
}

static bool expect(cursor *c, unsigned char byte, const char *what) {
    return take(c, byte) || fail_at(c, what);
}

static bool read_hex4(cursor *c, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, c->at++) {
        int digit = c->at < c->end ? fl_hex_digit((char)*c->at) : -1;
        if (digit < 0)
            return fail_at(c, "bad \\u escape");
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

/* The part of an escape after \u, surrogate pairs joined; appended to c->text. */
static bool read_unicode_escape(cursor *c) {
    uint32_t code, low;
    if (!read_hex4(c, &code))
        return false;
    if (code == 0)
        return fail_at(c, "NUL in a string");
    if (code >= 0xDC00 && code <= 0xDFFF)
        return fail_at(c, "lone surrogate");
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (c->end - c->at < 2 || c->at[0] != '\\' || c->at[1] != 'u')
            return fail_at(c, "lone surrogate");
        c->at += 2;
        if (!read_hex4(c, &low))
            return false;
        if (low < 0xDC00 || low > 0xDFFF)
            return fail_at(c, "lone surrogate");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    c->text += fl_utf8_encode(code, c->text);
    return true;
}

static bool read_escape(cursor *c) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    unsigned char     byte  = c->at < c->end ? *c->at : 0;
    const char       *found = byte == 0 ? NULL : strchr(from, byte);
    if (byte == 'u') {
        c->at++;
        return read_unicode_escape(c);
    }
    if (found == NULL)
        return fail_at(c, "bad escape");
    c->at++;
    *c->text++ = to[found - from];
    return true;
}

/* A string, decoded and NUL-terminated at c->text, which moves behind it. Decoding never makes a
 * string longer than its quoted form, so a text buffer of the header's size is enough for all of
 * them. */
static char *read_string(cursor *c) {
    char *string = c->text;
    if (!expect(c, '"', "a string was expected"))
        return NULL;
    for (;;) {
        if (c->at >= c->end) {
            fail_at(c, "a string has no end");
            return NULL;
        }
        unsigned char byte = *c->at;
        if (byte < 0x20) {
            fail_at(c, "control character in a string");
            return NULL;
        }
        c->at++;
        if (byte == '"')
            break;
        if (byte != '\\')
            *c->text++ = (char)byte;
        else if (!read_escape(c))
            return NULL;
    }
    *c->text++ = '\0';
    return string;
}

/* A string that is compared and forgotten: its room in the text buffer is given back. */
static const char *read_passing_string(cursor *c) {
    char *string = read_string(c);
    if (string != NULL)
        c->text = string;
    return string;
}

static bool read_u64(cursor *c, uint64_t *out) {
    skip_space(c);
    const unsigned char *first = c->at;
    *out                       = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(*out, 10U, out) ||
            __builtin_add_overflow(*out, (uint64_t)(*c->at - '0'), out))
            return fail_at(c, "number too large");
    if (c->at == first || (*first == '0' && c->at - first > 1))
        return fail_at(c, "a whole number was expected");
    if (c->at < c->end && (*c->at == '.' || *c->at == 'e' || *c->at == 'E'))
        return fail_at(c, "a whole number was expected");
    return true;
}

/* Digits of a number that is skipped; at least one. */
static bool skip_digits(cursor *c) {
    const unsigned char *first = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9')
        c->at++;
    return c->at > first || fail_at(c, "bad number");
}

static bool skip_number(cursor *c) {
    if (*c->at == '-')
        c->at++;
    bool zero = c->at < c->end && *c->at == '0';
    if (zero)
        c->at++;
    else if (!skip_digits(c))
        return false;
    if (c->at < c->end && *c->at == '.') {
        c->at++;
        if (!skip_digits(c))
            return false;
    }
    if (c->at < c->end && (*c->at == 'e' || *c->at == 'E')) {
        c->at++;
        if (c->at < c->end && (*c->at == '+' || *c->at == '-'))
            c->at++;
        return skip_digits(c);
    }
    return true;
}

static bool skip_scalar(cursor *c) {
    static const char *const words[] = {"true", "false", "null"};
    if (c->at < c->end && *c->at == '"')
        return read_passing_string(c) != NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(c->end - c->at) >= size && memcmp(c->at, words[i], size) == 0) {
            c->at += size;
            return true;
        }
    }
    if (c->at < c->end && (*c->at == '-' || (*c->at >= '0' && *c->at <= '9')))
        return skip_number(c);
    return fail_at(c, "a value was expected");
}

/* Skip the value of a field that later versions of the format may add. Without recursion:
 * `closer` is the stack of brackets that are open. */
static bool skip_value(cursor *c) {
    char   closer[VALUE_DEPTH_MAX];
    size_t depth = 0;
    for (;;) {
        skip_space(c);
        unsigned char open  = c->at < c->end ? *c->at : 0;
        bool          empty = false;
        if (open == '{' || open == '[') {
            if (depth == VALUE_DEPTH_MAX)
                return fail_at(c, "nested too deeply");
            closer[depth++] = open == '{' ? '}' : ']';
            c->at++;
            empty = take(c, (unsigned char)closer[depth - 1]);
            if (empty)
                depth--;
        } else if (!skip_scalar(c)) {
            return false;
        }
        bool opened = (open == '{' || open == '[') && !empty;
        while (!opened && depth > 0 && !take(c, ',')) {
            if (!expect(c, (unsigned char)closer[depth - 1], "a comma or bracket was expected"))
                return false;
            depth--;
        }
        if (depth == 0)
            return true;
        if (closer[depth - 1] == '}' &&
            (read_passing_string(c) == NULL || !expect(c, ':', "a colon was expected")))
            return false;
    }
}

static const struct {
    const char *name;
    fl_dtype    dtype;
    uint32_t    bits;
} dtypes[] = {
    {"F32", FL_DTYPE_F32, 32},
    {"F16", FL_DTYPE_F16, 16},
    {"BF16", FL_DTYPE_BF16, 16},
    {"F64", FL_DTYPE_F64, 64},
    {"I64", FL_DTYPE_I64, 64},
    {"I32", FL_DTYPE_I32, 32},
    {"I16", FL_DTYPE_I16, 16},
    {"I8", FL_DTYPE_I8, 8},
    {"U8", FL_DTYPE_U8, 8},
    {"BOOL", FL_DTYPE_BOOL, 8},
    {"U64", FL_DTYPE_OTHER, 64},
    {"U32", FL_DTYPE_OTHER, 32},
    {"U16", FL_DTYPE_OTHER, 16},
    {"C64", FL_DTYPE_OTHER, 64},
    {"F8_E4M3", FL_DTYPE_OTHER, 8},
    {"F8_E5M2", FL_DTYPE_OTHER, 8},
    {"F8_E8M0", FL_DTYPE_OTHER, 8},
    {"F8_E4M3FNUZ", FL_DTYPE_OTHER, 8},
    {"F8_E5M2FNUZ", FL_DTYPE_OTHER, 8},
    {"F6_E2M3", FL_DTYPE_OTHER, 6},
    {"F6_E3M2", FL_DTYPE_OTHER, 6},
    {"F4", FL_DTYPE_OTHER, 4},
};

/* What is known of one tensor while its object is being read. */
typedef struct entry {
    fl_tensor tensor;
    uint64_t  begin, end;
    uint32_t  bits; /* of one element */
    bool      has_dtype, has_shape, has_offsets;
} entry;

static bool read_dtype(cursor *c, entry *out) {
    const char *name = read_passing_string(c);
    if (name == NULL)
        return false;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            out->tensor.dtype = dtypes[i].dtype;
            out->bits         = dtypes[i].bits;
            return true;
        }
    return fail_at(c, "unknown dtype");
}

static bool read_shape(cursor *c, entry *out) {
    if (!expect(c, '[', "shape is no array"))
        return false;
    if (take(c, ']'))
        return true;
    do {
        if (out->tensor.rank == FL_RANK_MAX)
            return fail_at(c, "more than 8 dimensions");
        if (!read_u64(c, &out->tensor.shape[out->tensor.rank++]))
            return false;
    } while (take(c, ','));
    return expect(c, ']', "shape has no end");
}

static bool read_offsets(cursor *c, entry *out) {
    return expect(c, '[', "data_offsets is no array") && read_u64(c, &out->begin) &&
           expect(c, ',', "data_offsets needs two numbers") && read_u64(c, &out->end) &&
           expect(c, ']', "data_offsets needs two numbers");
}

static bool read_field(cursor *c, entry *out) {
    const char *key = read_passing_string(c);
    if (key == NULL)
        return false;
    bool  is_dtype = strcmp(key, "dtype") == 0, is_shape = strcmp(key, "shape") == 0;
    bool  is_offsets = strcmp(key, "data_offsets") == 0;
    bool *seen       = is_dtype     ? &out->has_dtype
                       : is_shape   ? &out->has_shape
                       : is_offsets ? &out->has_offsets
                                    : NULL;
    if (!expect(c, ':', "a colon was expected"))
        return false;
    if (seen == NULL)
        return skip_value(c);
    if (*seen)
        return fail_at(c, "a field is there twice");
    *seen = true;
    return is_dtype ? read_dtype(c, out) : is_shape ? read_shape(c, out) : read_offsets(c, out);
}

/* {"dtype": …, "shape": …, "data_offsets": …}, and the sizes must agree. */
static bool read_entry(cursor *c, entry *out) {
    memset(out, 0, sizeof *out);
    if (!expect(c, '{', "an object was expected"))
        return false;
    if (!take(c, '}')) {
        do {
            if (!read_field(c, out))
                return false;
        } while (take(c, ','));
        if (!expect(c, '}', "a comma or bracket was expected"))
            return false;
    }
    if (!out->has_dtype || !out->has_shape || !out->has_offsets)
        return fail_at(c, "dtype, shape or data_offsets is missing before");
    uint64_t bits = out->bits;
    for (uint32_t i = 0; i < out->tensor.rank; i++)
        if (__builtin_mul_overflow(bits, out->tensor.shape[i], &bits))
            return fail_at(c, "shape too large");
    if (out->begin > out->end)
        return fail_at(c, "data_offsets run backwards");
    if (out->end > c->buffer)
        return fail_at(c, "data_offsets reach past the end of the file");
    if (bits % 8 != 0 || bits / 8 != out->end - out->begin)
        return fail_at(c, "shape and data_offsets disagree");
    out->tensor.bytes = out->end - out->begin;
    return true;
}

static bool read_metadata(cursor *c) {
    skip_space(c);
    if (c->at < c->end && *c->at == 'n')
        return skip_scalar(c); /* null */
    if (!expect(c, '{', "__metadata__ is no object"))
        return false;
    if (take(c, '}'))
        return true;
    do {
        if (read_passing_string(c) == NULL || !expect(c, ':', "a colon was expected") ||
            read_passing_string(c) == NULL)
            return false;
    } while (take(c, ','));
    return expect(c, '}', "__metadata__ has no end");
}

/* Begin of each tensor, beside its index, for sorting. */
typedef struct range {
    uint64_t begin, end;
} range;

static bool add_entry(cursor *c, fl_tensor_table *table, range **ranges, size_t *room, char *name,
                      const entry *found) {
    if (table->count == FL_TENSOR_COUNT_MAX)
        return fail_at(c, "more than 1000000 tensors");
    if (table->count == *room) {
        size_t more  = *room == 0 ? 256 : *room * 2;
        range *grown = fl_realloc_array(*ranges, more, sizeof *grown);
        if (grown == NULL) {
            c->status = fl_fail_nomem(c->error, more * sizeof *grown, "a safetensors header");
            return false;
        }
        *ranges = grown;
        *room   = more;
    }
    (*ranges)[table->count] = (range){found->begin, found->end};
    int added               = fl_table_add(table, name, &found->tensor);
    if (added < 0)
        c->status = fl_fail_nomem(c->error, sizeof *found, "a safetensors header");
    return added == 0 || (added > 0 && fail_at(c, "a name is there twice"));
}

static bool read_entries(cursor *c, fl_tensor_table *table, range **ranges, size_t *room) {
    bool metadata = false;
    if (!expect(c, '{', "an object was expected"))
        return false;
    if (take(c, '}'))
        return true;
    do {
        char *name = read_string(c);
        if (name == NULL || !expect(c, ':', "a colon was expected"))
            return false;
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata)
                return fail_at(c, "__metadata__ is there twice");
            metadata = true;
            if (!read_metadata(c))
                return false;
            continue;
        }
        entry found;
        if (!read_entry(c, &found) || !add_entry(c, table, ranges, room, name, &found))
            return false;
    } while (take(c, ','));
    return expect(c, '}', "a comma or bracket was expected");
}

static int compare_ranges(const void *a, const void *b) {
    const range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The ranges must tile [0, size) exactly. */
static int check_tiling(range *ranges, size_t count, uint64_t size, const char *source,
                        fletch_error *error) {
    uint64_t at = 0;
    if (count > 0)
        qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].begin != at)
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s: header: tensors %s at offset %llu.", source,
                           ranges[i].begin < at ? "overlap" : "leave a hole",
                           (unsigned long long)ranges[i].begin);
        at = ranges[i].end;
    }
    if (at != size)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: tensors end at offset %llu but the file at %llu.", source,
                       (unsigned long long)at, (unsigned long long)size);
    return 0;
}

/* The length field, and whether that many bytes can be a header at all. */
static int header_size(const unsigned char *data, size_t size, const char *source, uint64_t *out,
                       fletch_error *error) {
    if (size < 8)
        return fl_fail(error, FLETCH_EMODEL, 0, "%s: %zu bytes are too few for a safetensors file.",
                       source, size);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | data[i];
    if (length > FL_HEADER_BYTES_MAX)
        return fl_fail(error, FLETCH_EMODEL, 0,
                       "%s: header length %llu is over the limit of %d bytes.", source,
                       (unsigned long long)length, FL_HEADER_BYTES_MAX);
    if (length > size - 8)
        return fl_fail(error, FLETCH_EMODEL, 0,
                       "%s: header length %llu reaches past the end of the file (%zu bytes).",
                       source, (unsigned long long)length, size);
    size_t valid = fl_utf8_valid_prefix((const char *)data + 8, (size_t)length);
    if (valid != length)
        return fl_fail(error, FLETCH_EMODEL, 8 + valid, "%s: header is not UTF-8 at byte %zu.",
                       source, 8 + valid);
    *out = length;
    return 0;
}

/* Offsets become pointers; each is known to be inside. `ranges` is still in table order. */
static void place(fl_tensor_table *table, const range *ranges, const unsigned char *buffer) {
    for (size_t i = 0; i < table->count; i++)
        table->tensors[i].data = buffer + ranges[i].begin;
}

int fl_header_read(fl_tensor_table *out, const unsigned char *data, size_t size, const char *source,
                   fletch_error *error) {
    uint64_t length = 0;
    int      status = header_size(data, size, source, &length, error);
    fl_table_init(out);
    if (status != 0)
        return status;
    out->text = fl_alloc((size_t)length + 1);
    if (out->text == NULL)
        return fl_fail_nomem(error, (size_t)length + 1, "a safetensors header");

    range *ranges = NULL;
    size_t room   = 0;
    cursor c      = {.start  = data,
                     .at     = data + 8,
                     .end    = data + 8 + length,
                     .buffer = size - 8 - length,
                     .text   = out->text,
                     .source = source,
                     .error  = error};
    if (read_entries(&c, out, &ranges, &room)) {
        skip_space(&c);
        if (c.at != c.end)
            fail_at(&c, "text after the end");
    }
    status = c.status;
    if (status == 0) {
        place(out, ranges, c.end);
        status = check_tiling(ranges, out->count, size - 8 - length, source, error);
    }
    fl_free(ranges);
    if (status != 0)
        fl_table_free(out);
    return status;
}
