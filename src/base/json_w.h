/* SPDX-License-Identifier: Apache-2.0 */
/* json_w.h - write JSON: commas, quotes and brackets are its business.
 *
 *     fl_json_w w = {.out = &buf};
 *     fl_json_w_object(&w, NULL);
 *     fl_json_w_text(&w, "name", "fletch");
 *     fl_json_w_array(&w, "sizes");
 *     fl_json_w_u64(&w, NULL, 384);
 *     fl_json_w_end(&w), fl_json_w_end(&w);           {"name":"fletch","sizes":[384]}
 *
 * `key` names a member of an object; NULL: an item of an array, or the root. Keys are ours and plain: they
 * are not escaped. Memory: the buffer's, which remembers a failed growth. Threads: a writer belongs to one.
 * Proof: tests/unit/test_base_json.c. */
#ifndef FL_BASE_JSON_W_H
#define FL_BASE_JSON_W_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct fl_json_w {
    fl_buf  *out;
    uint64_t arrays; /* bit d: level d is an array */
    unsigned depth;  /* open levels, at most 63 */
    bool     more;   /* a value stands before the next one */
} fl_json_w;

void fl_json_w_object(fl_json_w *w, const char *key);
void fl_json_w_array(fl_json_w *w, const char *key);
void fl_json_w_end(fl_json_w *w); /* of the innermost level */

void fl_json_w_text(fl_json_w *w, const char *key, const char *text); /* NULL: null */
void fl_json_w_bytes(fl_json_w *w, const char *key, const char *text, size_t size);
void fl_json_w_u64(fl_json_w *w, const char *key, uint64_t value);
void fl_json_w_i64(fl_json_w *w, const char *key, int64_t value);
void fl_json_w_bool(fl_json_w *w, const char *key, bool value);
void fl_json_w_null(fl_json_w *w, const char *key);

/* A value that the caller writes into w->out himself, right after this. */
void fl_json_w_raw(fl_json_w *w, const char *key);

#endif
