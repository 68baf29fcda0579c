/* SPDX-License-Identifier: Apache-2.0 */
/* proto.h - the fields of a protobuf message, one after the other, where they lie.
 *
 * A message is fields of (number, wire type), nested by length. Walking one needs no schema: what is not
 * asked for is stepped over, and every length is checked against its message.
 * Memory  none: spans point into the message. Threads: any. */
#ifndef FL_BASE_PROTO_H
#define FL_BASE_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message, or bytes, within it: [at, end). */
typedef struct fl_proto_span {
    const unsigned char *at, *end;
} fl_proto_span;

/* Bytes as a message; of an empty file they are NULL, to which C adds no zero. */
static inline fl_proto_span fl_proto_of(const unsigned char *data, size_t size) {
    return (fl_proto_span){data, size > 0 ? data + size : data};
}

typedef struct fl_proto_field {
    uint32_t      number, wire; /* wire 0: value; 2: body; 1 and 5: eight and four bytes in body */
    uint64_t      value;
    fl_proto_span body;
} fl_proto_field;

/* The next field: 1; 0 at the message's end; -1 when it is damaged, and then message->at is where. */
int fl_proto_next(fl_proto_span *message, fl_proto_field *field);

bool fl_proto_is(fl_proto_span span, const char *text);
/* A copy with a NUL, cut to `capacity`. */
void fl_proto_copy(fl_proto_span span, char *out, size_t capacity);

#endif
