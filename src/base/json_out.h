/* SPDX-License-Identifier: Apache-2.0 */
/* json_out.h - write the parts of a JSON text that are long: lists of numbers.
 *
 * Role    the server's dialects and the command line put brackets and names with fl_buf_puts, and everything that comes
 *         n times with these.
 * Method  room for the longest form is reserved once per list, then numbers go straight into the buffer:
 *         the shortest decimal that reads back as the same float32 (base/number.h).
 * Memory  the caller's fl_buf; a failed growth is remembered there. Threads: a buffer belongs to one.
 * Proof   tests/unit/test_server_out.c. */
#ifndef FL_BASE_JSON_OUT_H
#define FL_BASE_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* "[0.1,-2]"; false, and nothing useful written, when a value is not finite: JSON has no word for it. */
bool fl_json_out_floats(fl_buf *out, const float *row, size_t count);

/* "[[0.1,-2],[1,0]]" of `count` rows; as above. */
bool fl_json_out_rows(fl_buf *out, const float *rows, size_t count, size_t columns);

/* "0.1"; as above. */
bool fl_json_out_float(fl_buf *out, float value);

void fl_json_out_bytes(fl_buf *out, const void *row, size_t count, bool is_signed);

/* "[7,9]"; none is below 0. */
void fl_json_out_ids(fl_buf *out, const int32_t *ids, size_t count);

void fl_json_out_u64(fl_buf *out, uint64_t value);

#endif
