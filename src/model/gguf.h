/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.h - the header of a GGUF file (llama.cpp's format), read and checked: metadata and tensors.
 *
 * Private to this room: safetensors.c takes the tensors; the metadata says what model it is. Everything borrows
 * from the bytes of the file, names of tensors apart. Once a header has been read, every text and array of it
 * lies inside the file. */
#ifndef FL_MODEL_GGUF_H
#define FL_MODEL_GGUF_H

#include "base/json_in.h"
#include "model/safetensors_header.h"

/* As the format numbers them. */
typedef enum fl_gguf_type {
    FL_GGUF_U8,
    FL_GGUF_I8,
    FL_GGUF_U16,
    FL_GGUF_I16,
    FL_GGUF_U32,
    FL_GGUF_I32,
    FL_GGUF_F32,
    FL_GGUF_BOOL,
    FL_GGUF_TEXT,
    FL_GGUF_ARRAY,
    FL_GGUF_U64,
    FL_GGUF_I64,
    FL_GGUF_F64,
    FL_GGUF_TYPES
} fl_gguf_type;

typedef struct fl_gguf_value {
    fl_span              key;
    fl_gguf_type         type; /* of an array: its items' */
    bool                 array;
    uint64_t             count; /* of items; 1 */
    const unsigned char *data;  /* the first */
} fl_gguf_value;

typedef struct fl_gguf {
    fl_gguf_value  *values; /* owned [count] */
    size_t          count, room;
    fl_tensor_table tensors;
} fl_gguf;

/* `source` is for messages. EMODEL for damage; EUNSUPPORTED for a version or a type that is not read. */
int  fl_gguf_read(fl_gguf *out, const unsigned char *data, size_t size, const char *source,
                  fletch_error *error);
void fl_gguf_free(fl_gguf *file);

/* NULL: there is none of that key. */
const fl_gguf_value *fl_gguf_find(const fl_gguf *file, const char *key);

/* A value, or item `index` of an array that has it, as what is asked for; false: it is something else. */
bool fl_gguf_whole(const fl_gguf_value *value, uint64_t index, uint64_t *out);
bool fl_gguf_real(const fl_gguf_value *value, uint64_t index, double *out);
bool fl_gguf_flag(const fl_gguf_value *value, bool *out);
bool fl_gguf_text(const fl_gguf_value *value, fl_span *out);

/* The format's number of a type that is read. */
uint32_t fl_gguf_number_of(fl_dtype dtype);
/* How many bytes the items of a value take in the file. */
size_t fl_gguf_bytes(const fl_gguf_value *value);

/* Walk an array of texts: *at begins as value->data. */
fl_span fl_gguf_next(const unsigned char **at);

#endif
