/* SPDX-License-Identifier: Apache-2.0 */
/* proto_w.h - write a protobuf message, field by field, as proto.h reads one.
 *
 *     size_t span = fl_proto_w_begin(&buf, 2);
 *     fl_proto_w_text(&buf, 5, "POST /embed");
 *     fl_proto_w_number(&buf, 6, 2);
 *     fl_proto_w_end(&buf, span);
 *
 * A message inside another has its length in front, which is known at its end: four bytes are kept for it, and
 * the number is padded to them, as protobuf's readers allow; so none is larger than 256 MiB.
 * Memory: the buffer's, which remembers a failed growth. Threads: any, each with a buffer of its own.
 * Proof: tests/server/test_otlp.py decodes with Google's library. */
#ifndef FL_BASE_PROTO_W_H
#define FL_BASE_PROTO_W_H

#include <stdint.h>

#include "base/buf.h"

size_t fl_proto_w_begin(fl_buf *out, uint32_t field); /* a message, or a packed list */
void   fl_proto_w_end(fl_buf *out, size_t begun);

void fl_proto_w_number(fl_buf *out, uint32_t field, uint64_t value); /* any integer, enum, bool */
void fl_proto_w_fixed64(fl_buf *out, uint32_t field, uint64_t value);
void fl_proto_w_fixed32(fl_buf *out, uint32_t field, uint32_t value);
void fl_proto_w_double(fl_buf *out, uint32_t field, double value);
void fl_proto_w_bytes(fl_buf *out, uint32_t field, const void *data, size_t size);
void fl_proto_w_text(fl_buf *out, uint32_t field, const char *text);

/* Items of a packed list. */
void fl_proto_w_put_u64(fl_buf *out, uint64_t value);
void fl_proto_w_put_double(fl_buf *out, double value);

#endif
