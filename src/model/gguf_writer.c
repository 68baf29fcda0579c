/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_writer.c - see gguf_writer.h. The format is told in gguf.c. */
#include "model/gguf_writer.h"

#include <assert.h>
#include <string.h>

static void put_key(fl_gguf_writer *w, const char *key, fl_gguf_type type) {
    assert(key);
    fl_gguf_put_item(w, key, strlen(key));
    fl_buf_append(&w->values, &(uint32_t){type}, sizeof(uint32_t));
    w->count++;
}

void fl_gguf_put_u32(fl_gguf_writer *w, const char *key, uint32_t value) {
    put_key(w, key, FL_GGUF_U32);
    fl_buf_append(&w->values, &value, sizeof value);
}

void fl_gguf_put_f32(fl_gguf_writer *w, const char *key, float value) {
    put_key(w, key, FL_GGUF_F32);
    fl_buf_append(&w->values, &value, sizeof value);
}

void fl_gguf_put_flag(fl_gguf_writer *w, const char *key, bool value) {
    put_key(w, key, FL_GGUF_BOOL);
    fl_buf_putc(&w->values, value);
}

void fl_gguf_put_text(fl_gguf_writer *w, const char *key, const char *text, size_t size) {
    put_key(w, key, FL_GGUF_TEXT);
    fl_gguf_put_item(w, text, size);
}

void fl_gguf_put_array(fl_gguf_writer *w, const char *key, fl_gguf_type type, uint64_t count) {
    put_key(w, key, FL_GGUF_ARRAY);
    fl_buf_append(&w->values, &(uint32_t){type}, sizeof(uint32_t));
    fl_buf_append(&w->values, &count, sizeof count);
}

void fl_gguf_put_item(fl_gguf_writer *w, const char *text, size_t size) {
    fl_buf_append(&w->values, &(uint64_t){size}, sizeof(uint64_t));
    fl_buf_append(&w->values, text, size);
}

void fl_gguf_put_value(fl_gguf_writer *w, const fl_gguf_value *value) {
    fl_gguf_put_item(w, value->key.data, value->key.size);
    if (value->array)
        fl_buf_append(&w->values, &(uint32_t){FL_GGUF_ARRAY}, sizeof(uint32_t));
    fl_buf_append(&w->values, &(uint32_t){value->type}, sizeof(uint32_t));
    if (value->array)
        fl_buf_append(&w->values, &value->count, sizeof value->count);
    fl_buf_append(&w->values, value->data, fl_gguf_bytes(value));
    w->count++;
}

void fl_gguf_begin(fl_buf *out, const fl_gguf_writer *w, uint64_t count) {
    fl_buf_puts(out, "GGUF");
    fl_buf_append(out, &(uint32_t){3}, sizeof(uint32_t)); /* the version */
    fl_buf_append(out, &count, sizeof count);
    fl_buf_append(out, &w->count, sizeof w->count);
    fl_buf_append(out, w->values.data, w->values.size);
    out->failed = out->failed || w->values.failed;
}

void fl_gguf_put_tensor(fl_buf *out, const char *name, const fl_tensor *tensor, uint64_t *offset) {
    assert(name && tensor->rank > 0); /* its data comes later */
    fl_buf_append(out, &(uint64_t){strlen(name)}, sizeof(uint64_t));
    fl_buf_puts(out, name);
    fl_buf_append(out, &tensor->rank, sizeof tensor->rank);
    for (uint32_t k = tensor->rank; k-- > 0;) /* the first is that of a row */
        fl_buf_append(out, &tensor->shape[k], sizeof tensor->shape[k]);
    fl_buf_append(out, &(uint32_t){fl_gguf_number_of(tensor->dtype)}, sizeof(uint32_t));
    fl_buf_append(out, offset, sizeof *offset);
    *offset += tensor->bytes + fl_gguf_padding(tensor->bytes);
}
