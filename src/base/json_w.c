/* SPDX-License-Identifier: Apache-2.0 */
/* json_w.c - write JSON: commas, quotes and brackets. See json_w.h. */
#include "base/json_w.h"

#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"

void fl_json_w_raw(fl_json_w *w, const char *key) {
    assert(w->out);
    if (w->more)
        fl_buf_putc(w->out, ',');
    w->more = true;
    if (key != NULL) {
        fl_buf_putc(w->out, '"');
        fl_buf_puts(w->out, key);
        fl_buf_puts(w->out, "\":");
    }
}

static void open_level(fl_json_w *w, const char *key, bool array) {
    assert(w->depth < 64);
    uint64_t bit = 1ull << w->depth++;
    fl_json_w_raw(w, key);
    fl_buf_putc(w->out, array ? '[' : '{');
    w->arrays = array ? w->arrays | bit : w->arrays & ~bit;
    w->more   = false;
}

void fl_json_w_object(fl_json_w *w, const char *key) {
    open_level(w, key, false);
}

void fl_json_w_array(fl_json_w *w, const char *key) {
    open_level(w, key, true);
}

void fl_json_w_end(fl_json_w *w) {
    assert(w->depth > 0);
    w->depth--;
    fl_buf_putc(w->out, (w->arrays >> w->depth & 1) != 0 ? ']' : '}');
    w->more = true;
}

void fl_json_w_bytes(fl_json_w *w, const char *key, const char *text, size_t size) {
    fl_json_w_raw(w, key);
    fl_json_quote(w->out, text, size);
}

void fl_json_w_null(fl_json_w *w, const char *key) {
    fl_json_w_raw(w, key);
    fl_buf_puts(w->out, "null");
}

void fl_json_w_text(fl_json_w *w, const char *key, const char *text) {
    if (text == NULL)
        fl_json_w_null(w, key);
    else
        fl_json_w_bytes(w, key, text, strlen(text));
}

void fl_json_w_u64(fl_json_w *w, const char *key, uint64_t value) {
    char digits[20];
    fl_json_w_raw(w, key);
    fl_buf_append(w->out, digits, fl_u64_text(digits, value));
}

void fl_json_w_i64(fl_json_w *w, const char *key, int64_t value) {
    char     digits[20];
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    fl_json_w_raw(w, key);
    fl_buf_puts(w->out, value < 0 ? "-" : "");
    fl_buf_append(w->out, digits, fl_u64_text(digits, size));
}

void fl_json_w_bool(fl_json_w *w, const char *key, bool value) {
    fl_json_w_raw(w, key);
    fl_buf_puts(w->out, value ? "true" : "false");
}
