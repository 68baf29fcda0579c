/* SPDX-License-Identifier: Apache-2.0 */
/* base64.h - bytes to base64 text (RFC 4648 §4, padded).
 *
 * Role    openai-python asks for base64 when its caller says nothing, so this is the hot way out.
 * Method  one form per instruction set, all give the same text; fl_base64_best says which to use.
 * Proof   tests/unit/test_server_out.c: RFC's vectors, and both forms equal on random bytes. */
#ifndef FL_SERVER_BASE64_H
#define FL_SERVER_BASE64_H

#include <stddef.h>

#include "base/buf.h"

/* Write the text of data[size] to out[fl_base64_size(size)]; not terminated. */
typedef void (*fl_base64_fn)(char *out, const void *data, size_t size);

static inline size_t fl_base64_size(size_t size) {
    return (size + 2) / 3 * 4; /* callers bound size: results are far below SIZE_MAX / 2 */
}

void fl_base64_ref(char *out, const void *data, size_t size);
#if defined(__x86_64__)
void fl_base64_avx2(char *out, const void *data, size_t size);
#endif

/* "\"AAAA\"", in JSON. */
void fl_base64_put(fl_buf *out, fl_base64_fn encode, const void *data, size_t size);

/* The fastest form for this processor; cheap enough to ask per request. */
fl_base64_fn fl_base64_best(void);

#endif
