/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_header.c - read the table of contents of a safetensors file and believe none of it.
 *
 * Role    safetensors.c calls it once per mapped file; fuzz_safetensors.c with whatever it
 *         invents.
 * In/Out  A whole file: [u64 little-endian N][N bytes of JSON][the byte buffer]. The JSON is
 *         {"name": {"dtype", "shape": [...], "data_offsets": [begin, end]}, …, "__metadata__":
 *         {string: string}}; offsets count from the start of the buffer.
 * Method  One pass of the pull reader over a copy of the header, in which the names stay. Then the
 *         ranges are sorted;
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
#include "base/json_in.h"
#include "base/mem.h"

typedef struct reading {
    fl_json_in    in;     /* over the table's text, where names stay */
    uint64_t      buffer; /* bytes after the header */
    const char   *source;
    fletch_error *error;
    int           status;
} reading;

/* Only the first failure is kept. False, so that callers can pass it on. */
static bool fail(reading *r, const char *what) {
    return fl_json_in_fail(&r->in, false, "%s", what);
}

static bool read_u64(reading *r, uint64_t *out) {
    fl_span number;
    *out = 0;
    if (!fl_json_in_number(&r->in, &number))
        return false;
    for (size_t i = 0; i < number.size; i++) {
        if (number.data[i] < '0' || number.data[i] > '9')
            return fail(r, "expected an integer");
        if (__builtin_mul_overflow(*out, 10U, out) ||
            __builtin_add_overflow(*out, (uint64_t)(number.data[i] - '0'), out))
            return fail(r, "number too large");
    }
    return true;
}

/* What is known of one tensor while its object is being read. */
typedef struct entry {
    fl_tensor tensor;
    uint64_t  begin, end;
    uint32_t  bits; /* of one element */
    bool      has_dtype, has_shape, has_offsets;
} entry;

static bool read_dtype(reading *r, entry *out) {
    fl_span name;
    if (!fl_json_in_string(&r->in, &name))
        return false;
    for (const fl_dtype_row *row = fl_dtypes; row->name != NULL; row++)
        if (fl_span_is(name, row->name)) {
            out->tensor.dtype = row->dtype;
            out->bits         = row->bits;
            return true;
        }
    return fail(r, "unknown dtype");
}

static bool read_shape(reading *r, entry *out) {
    if (!fl_json_in_enter(&r->in, FL_JSON_ARRAY))
        return false;
    while (fl_json_in_item(&r->in)) {
        if (out->tensor.rank == FL_RANK_MAX)
            return fail(r, "more than 8 dimensions");
        if (!read_u64(r, &out->tensor.shape[out->tensor.rank++]))
            return false;
    }
    return !r->in.failed;
}

static bool read_offsets(reading *r, entry *out) {
    if (!fl_json_in_enter(&r->in, FL_JSON_ARRAY))
        return false;
    if (!fl_json_in_item(&r->in) || !read_u64(r, &out->begin) || !fl_json_in_item(&r->in) ||
        !read_u64(r, &out->end) || fl_json_in_item(&r->in))
        return fail(r, "data_offsets needs two numbers");
    return !r->in.failed;
}

/* {"dtype": …, "shape": …, "data_offsets": …}; later versions of the format may add fields. */
static bool read_fields(reading *r, entry *out) {
    const struct {
        const char *name;
        bool       *seen;
        bool (*read)(reading *r, entry *out);
    } fields[] = {{"dtype", &out->has_dtype, read_dtype},
                  {"shape", &out->has_shape, read_shape},
                  {"data_offsets", &out->has_offsets, read_offsets}};
    enum { FIELDS = sizeof fields / sizeof *fields };
    fl_span key;
    if (!fl_json_in_enter(&r->in, FL_JSON_OBJECT))
        return false;
    while (fl_json_in_key(&r->in, &key)) {
        size_t i = 0;
        while (i < FIELDS && !fl_span_is(key, fields[i].name))
            i++;
        if (i < FIELDS && *fields[i].seen)
            return fail(r, "duplicate field");
        if (i < FIELDS)
            *fields[i].seen = true;
        if (i < FIELDS ? !fields[i].read(r, out) : !fl_json_in_skip(&r->in, NULL))
            return false;
    }
    return !r->in.failed;
}

/* One tensor's object, and the sizes must agree. */
static bool read_entry(reading *r, entry *out) {
    memset(out, 0, sizeof *out);
    if (!read_fields(r, out))
        return false;
    if (!out->has_dtype || !out->has_shape || !out->has_offsets)
        return fail(r, "missing dtype, shape or data_offsets before");
    uint64_t bits = out->bits;
    for (uint32_t i = 0; i < out->tensor.rank; i++)
        if (__builtin_mul_overflow(bits, out->tensor.shape[i], &bits))
            return fail(r, "shape too large");
    if (out->begin > out->end)
        return fail(r, "data_offsets run backwards");
    if (out->end > r->buffer)
        return fail(r, "data_offsets reach past the end of the file");
    if (bits % 8 != 0 || bits / 8 != out->end - out->begin)
        return fail(r, "shape and data_offsets disagree");
    out->tensor.bytes = out->end - out->begin;
    return true;
}

/* null or an object of strings. */
static bool read_metadata(reading *r) {
    fl_span text;
    if (fl_json_in_peek(&r->in) == FL_JSON_NULL)
        return fl_json_in_null(&r->in);
    if (!fl_json_in_enter(&r->in, FL_JSON_OBJECT))
        return false;
    while (fl_json_in_key(&r->in, &text))
        if (!fl_json_in_string(&r->in, &text))
            return false;
    return !r->in.failed;
}

/* Begin of each tensor, beside its index, for sorting. */
typedef struct range {
    uint64_t begin, end;
} range;

static bool add_entry(reading *r, fl_tensor_table *table, range **ranges, size_t *room, char *name,
                      const entry *found) {
    if (table->count == FL_TENSOR_COUNT_MAX)
        return fail(r, "more than 1000000 tensors");
    int added = -1;
    if (fl_array_reserve(ranges, room, table->count + 1, sizeof **ranges)) {
        (*ranges)[table->count] = (range){found->begin, found->end};
        added                   = fl_table_add(table, name, &found->tensor);
    }
    if (added < 0)
        r->status = fl_fail_nomem(r->error, sizeof *found, "a safetensors header");
    return added == 0 || (added > 0 && fail(r, "duplicate name"));
}

static bool read_entries(reading *r, fl_tensor_table *table, range **ranges, size_t *room) {
    bool    metadata = false;
    fl_span key;
    if (!fl_json_in_enter(&r->in, FL_JSON_OBJECT))
        return false;
    while (fl_json_in_key(&r->in, &key)) {
        char *name     = table->text + (key.data - table->text);
        name[key.size] = '\0'; /* over the closing quote, or before it */
        if (memchr(name, '\0', key.size) != NULL)
            return fail(r, "NUL in a name");
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata)
                return fail(r, "duplicate __metadata__");
            metadata = true;
            if (!read_metadata(r))
                return false;
            continue;
        }
        entry found;
        if (!read_entry(r, &found) || !add_entry(r, table, ranges, room, name, &found))
            return false;
    }
    return fl_json_in_end(&r->in);
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
                       "%s: header length %llu exceeds the limit of %d bytes.", source,
                       (unsigned long long)length, FL_HEADER_BYTES_MAX);
    if (length > size - 8)
        return fl_fail(error, FLETCH_EMODEL, 0,
                       "%s: header length %llu reaches past the end of the file (%zu bytes).",
                       source, (unsigned long long)length, size);
    *out = length;
    return 0;
}

/* Offsets become pointers; each is known to be inside. `ranges` is still in table order. */
static void place_tensor(fl_tensor_table *table, const range *ranges, const unsigned char *buffer) {
    for (size_t i = 0; i < table->count; i++)
        table->tensors[i].data = buffer + ranges[i].begin;
}

int fl_header_read(fl_tensor_table *out, const unsigned char *data, size_t size, const char *source,
                   fletch_error *error) {
    uint64_t length = 0;
    fl_table_init(out);
    FL_TRY(header_size(data, size, source, &length, error));
    out->text = fl_alloc((size_t)length + 1);
    if (out->text == NULL)
        return fl_fail_nomem(error, (size_t)length + 1, "a safetensors header");

    memcpy(out->text, data + 8, (size_t)length);

    range  *ranges = NULL;
    size_t  room   = 0;
    reading r      = {.buffer = size - 8 - length, .source = source, .error = error};
    fl_json_in_begin(&r.in, out->text, (size_t)length);
    if (!read_entries(&r, out, &ranges, &room) && r.status == 0)
        r.status = fl_fail(error, FLETCH_EMODEL, 8 + r.in.at, "%s: header: %s at byte %zu.", source,
                           r.in.message, 8 + r.in.at);
    int status = r.status;
    if (status == 0) {
        place_tensor(out, ranges, data + 8 + length);
        status = check_tiling(ranges, out->count, size - 8 - length, source, error);
    }
    fl_free(ranges);
    if (status != 0)
        fl_table_free(out);
    return status;
}
