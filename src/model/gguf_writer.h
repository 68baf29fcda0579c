/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_writer.h - the header of a GGUF file, written: metadata value by value, then the list of tensors.
 *
 *     fl_gguf_writer w = {0};
 *     fl_gguf_put_text(&w, "general.architecture", "bert", 4);
 *     fl_gguf_put_array(&w, "tokenizer.ggml.tokens", FL_GGUF_TEXT, 2);
 *     fl_gguf_put_item(&w, "[PAD]", 5), fl_gguf_put_item(&w, "[CLS]", 5);
 *
 * Private to this room. Memory: the buffer's, which remembers a failed growth. Threads: a writer belongs to one.
 * Proof: tests/golden/test_gguf_export.py. */
#ifndef FL_MODEL_GGUF_WRITER_H
#define FL_MODEL_GGUF_WRITER_H

#include "base/buf.h"
#include "model/gguf.h"

enum { FL_GGUF_ALIGNMENT = 32 };

typedef struct fl_gguf_writer {
    fl_buf   values; /* of the metadata, as they stand in the file */
    uint64_t count;  /* of them */
} fl_gguf_writer;

void fl_gguf_put_u32(fl_gguf_writer *w, const char *key, uint32_t value);
void fl_gguf_put_f32(fl_gguf_writer *w, const char *key, float value);
void fl_gguf_put_flag(fl_gguf_writer *w, const char *key, bool value);
void fl_gguf_put_text(fl_gguf_writer *w, const char *key, const char *text, size_t size);
/* The caller appends `count` items: texts by fl_gguf_put_item, others to w->values as they are. */
void fl_gguf_put_array(fl_gguf_writer *w, const char *key, fl_gguf_type type, uint64_t count);
void fl_gguf_put_item(fl_gguf_writer *w, const char *text, size_t size);
/* A value of a file that was read. */
void fl_gguf_put_value(fl_gguf_writer *w, const fl_gguf_value *value);

/* The file up to its list of `count` tensors; then each, whose data begins at *offset, which is moved to where the next
 * one's does; at the end, and behind the data of each, zeros up to FL_GGUF_ALIGNMENT. */
void fl_gguf_begin(fl_buf *out, const fl_gguf_writer *w, uint64_t count);
void fl_gguf_put_tensor(fl_buf *out, const char *name, const fl_tensor *tensor, uint64_t *offset);
static inline uint64_t fl_gguf_padding(uint64_t size) {
    return (FL_GGUF_ALIGNMENT - size % FL_GGUF_ALIGNMENT) % FL_GGUF_ALIGNMENT;
}

#endif
