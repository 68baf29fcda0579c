/* SPDX-License-Identifier: Apache-2.0 */
/* convert.h - a float32 row in the element types that clients ask for.
 *
 * Role    one forward pass can be answered in several types (Cohere's embedding_types), so the server
 *         always embeds to float32 and converts when it writes.
 * Method  exactly fletch.h's definition of fletch_dtype, so that a type chosen here and one chosen with
 *         `fletch embed --dtype` give the same bytes.
 * Proof   tests/unit/test_server_json.c; tests/server compares with the command line. */
#ifndef FL_SERVER_CONVERT_H
#define FL_SERVER_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

/* Writes fletch_row_bytes(count, dtype) bytes to out; false when a value is not finite. */
bool fl_convert(void *out, const float *row, size_t count, fletch_dtype dtype);

const char *fl_convert_name(fletch_dtype dtype); /* "float32", "int8" … */

#endif
