/* SPDX-License-Identifier: Apache-2.0 */
/* json_out.c - write the parts of a JSON text that are long: lists of numbers.
 *
 * Role    one row of a result is some 400 numbers; what surrounds it is a handful of short strings.
 * Method  reserve for the worst case, write without checks, take the size once. A reply of the server
 *         grows a pooled buffer, so after the first requests nothing is allocated.
 * Memory  the caller's buffer. Threads: any; a buffer belongs to one.
 * Proof   tests/unit/test_server_out.c. */
#include "base/json_out.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/number.h"

/* Room for `count` elements of `each` bytes and brackets; NULL when there is none. */
static char *room_for(fl_buf *out, size_t count, size_t each) {
    size_t bytes;
    if (fl_mul_overflow(count, each, &bytes) || fl_add_overflow(bytes, 2, &bytes)) {
        out->failed = true;
        return NULL;
    }
    return fl_buf_reserve(out, bytes) ? out->data + out->size : NULL;
}

static void settle(fl_buf *out, const char *end) {
    out->size            = (size_t)(end - out->data);
    out->data[out->size] = '\0';
}

bool fl_json_out_floats(fl_buf *out, const float *row, size_t count) {
    assert(row || count == 0);
    float sum = 0.0f; /* 0 * x is NaN for NaN and infinity, else 0 */
    for (size_t i = 0; i < count; i++)
        sum += 0.0f * row[i];
    if (sum != 0.0f)
        return false;
    char *p = room_for(out, count, FL_F32_TEXT_MAX + 1);
    if (p == NULL)
        return true; /* the buffer remembers */
    *p++ = '[';
    for (size_t i = 0; i < count; i++) {
        p += fl_f32_text(p, row[i]);
        *p++ = ',';
    }
    p -= count > 0;
    *p++ = ']';
    settle(out, p);
    return true;
}

bool fl_json_out_rows(fl_buf *out, const float *rows, size_t count, size_t columns) {
    bool finite = true;
    fl_buf_putc(out, '[');
    for (size_t i = 0; i < count && finite; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        finite = fl_json_out_floats(out, rows + i * columns, columns);
    }
    fl_buf_putc(out, ']');
    return finite;
}

bool fl_json_out_float(fl_buf *out, float value) {
    char text[FL_F32_TEXT_MAX];
    if (!isfinite(value))
        return false;
    fl_buf_append(out, text, fl_f32_text(text, value));
    return true;
}

/* -128..255 in at most four characters. */
static char *put_small(char *p, int value) {
    if (value < 0) {
        *p++  = '-';
        value = -value;
    }
    if (value >= 100)
        *p++ = (char)('0' + value / 100);
    if (value >= 10)
        *p++ = (char)('0' + value / 10 % 10);
    *p++ = (char)('0' + value % 10);
    return p;
}

void fl_json_out_bytes(fl_buf *out, const void *row, size_t count, bool is_signed) {
    assert(row || count == 0);
    char *p = room_for(out, count, 5);
    if (p == NULL)
        return;
    *p++ = '[';
    for (size_t i = 0; i < count; i++) {
        p    = put_small(p, is_signed ? ((const int8_t *)row)[i] : ((const uint8_t *)row)[i]);
        *p++ = ',';
    }
    p -= count > 0;
    *p++ = ']';
    settle(out, p);
}

void fl_json_out_ids(fl_buf *out, const int32_t *ids, size_t count) {
    assert(ids || count == 0);
    char *p = room_for(out, count, 11);
    if (p == NULL)
        return;
    *p++ = '[';
    for (size_t i = 0; i < count; i++) {
        p += fl_u64_text(p, (uint64_t)ids[i]);
        *p++ = ',';
    }
    p -= count > 0;
    *p++ = ']';
    settle(out, p);
}

void fl_json_out_u64(fl_buf *out, uint64_t value) {
    char text[20];
    fl_buf_append(out, text, fl_u64_text(text, value));
}
