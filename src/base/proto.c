/* SPDX-License-Identifier: Apache-2.0 */
/* proto.c - the next field of a protobuf message.
 *
 * Role    .onnx files: the model room reads their outputs, the onnxruntime engine checks them whole.
 * Proof   tests/golden/test_onnxruntime_files.py: every cut of a file; tests/fuzz. */
#include "base/proto.h"

#include <string.h>

static bool read_number(fl_proto_span *s, uint64_t *out) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        unsigned char byte = *s->at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

int fl_proto_next(fl_proto_span *message, fl_proto_field *f) {
    const unsigned char *begin = message->at;
    uint64_t             key, size = 0;
    if (message->at == message->end)
        return 0;
    bool good = read_number(message, &key);
    f->number = good ? (uint32_t)(key >> 3) : 0;
    f->wire   = good ? (uint32_t)(key & 7) : 7;
    switch (f->wire) {
    case 0: good = read_number(message, &f->value); break;
    case 1: size = 8; break;
    case 2: good = read_number(message, &size); break;
    case 5: size = 4; break;
    default: good = false;
    }
    if (!good || f->number == 0 || size > (uint64_t)(message->end - message->at)) {
        message->at = begin;
        return -1;
    }
    f->body = (fl_proto_span){message->at, message->at + size};
    message->at += size;
    return 1;
}

bool fl_proto_is(fl_proto_span span, const char *text) {
    size_t size = (size_t)(span.end - span.at);
    return size == strlen(text) && memcmp(span.at, text, size) == 0;
}

void fl_proto_copy(fl_proto_span span, char *out, size_t capacity) {
    size_t size = (size_t)(span.end - span.at);
    size        = size < capacity ? size : capacity - 1;
    memcpy(out, span.at, size);
    out[size] = '\0';
}
