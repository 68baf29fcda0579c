/* SPDX-License-Identifier: Apache-2.0 */
/* proto_w.c - the fields of a protobuf message onto a buffer.
 *
 * Role    server/otlp_spans.c and otlp_metrics.c write what a collector of OpenTelemetry takes.
 * Proof   tests/server/test_otlp.py. */
#include "base/proto_w.h"

#include <string.h>

enum { VARINT, FIXED64, BYTES, FIXED32 = 5, LENGTH = 4 };

static void put_varint(fl_buf *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        fl_buf_putc(out, (char)(value | 0x80));
    fl_buf_putc(out, (char)value);
}

static void put_key(fl_buf *out, uint32_t field, uint32_t wire) {
    put_varint(out, (uint64_t)field << 3 | wire);
}

/* The lowest byte first, whatever the machine's order. */
static void put_fixed(fl_buf *out, uint64_t value, size_t size) {
    char bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(value >> (8 * i));
    fl_buf_append(out, bytes, size);
}

size_t fl_proto_w_begin(fl_buf *out, uint32_t field) {
    put_key(out, field, BYTES);
    put_fixed(out, 0, LENGTH);
    return out->size;
}

void fl_proto_w_end(fl_buf *out, size_t begun) {
    size_t size = out->size - begun;
    for (size_t i = 0; !out->failed && i < LENGTH; i++) {
        out->data[begun - LENGTH + i] =
            (char)((size >> (7 * i) & 0x7F) | (i + 1 < LENGTH ? 0x80 : 0));
    }
}

void fl_proto_w_number(fl_buf *out, uint32_t field, uint64_t value) {
    put_key(out, field, VARINT);
    put_varint(out, value);
}

void fl_proto_w_fixed64(fl_buf *out, uint32_t field, uint64_t value) {
    put_key(out, field, FIXED64);
    put_fixed(out, value, sizeof value);
}

void fl_proto_w_fixed32(fl_buf *out, uint32_t field, uint32_t value) {
    put_key(out, field, FIXED32);
    put_fixed(out, value, sizeof value);
}

void fl_proto_w_double(fl_buf *out, uint32_t field, double value) {
    put_key(out, field, FIXED64);
    fl_proto_w_put_double(out, value);
}

void fl_proto_w_bytes(fl_buf *out, uint32_t field, const void *data, size_t size) {
    put_key(out, field, BYTES);
    put_varint(out, size);
    fl_buf_append(out, data, size);
}

void fl_proto_w_text(fl_buf *out, uint32_t field, const char *text) {
    fl_proto_w_bytes(out, field, text, strlen(text));
}

void fl_proto_w_put_u64(fl_buf *out, uint64_t value) {
    put_fixed(out, value, sizeof value);
}

void fl_proto_w_put_double(fl_buf *out, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_fixed(out, bits, sizeof bits);
}
