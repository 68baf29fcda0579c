/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_header.h - the table of contents of one safetensors file, read and checked.
 *
 * Private to this room: safetensors.c maps files and asks for their tables. */
#ifndef FL_MODEL_SAFETENSORS_HEADER_H
#define FL_MODEL_SAFETENSORS_HEADER_H

#include "fletch.h"
#include "model/tensor.h"

/* Limits. The first is the format's own; the second keeps a hostile header from taking more than
 * about 200 MB of memory (the largest models published have some ten thousand tensors). */
enum { FL_HEADER_BYTES_MAX = 100000000, FL_TENSOR_COUNT_MAX = 1000000 };

/* Names to tensors, by open addressing; also the merged table of a sharded model. */
typedef struct fl_tensor_table {
    fl_tensor *tensors; /* owned [capacity], `count` used */
    char     **names; /* owned array; the strings are in `text` or borrowed from a shard's table */
    uint32_t  *buckets; /* owned [mask + 1]: index + 1 of a tensor, 0 empty */
    char      *text;    /* owned: all names of one file, NUL-terminated, end to end */
    void      *copies;  /* owned: tensors that do not lie in the file as they are needed; or NULL */
    size_t     count, capacity;
    size_t     mask;
    uint64_t   seed; /* random, so that no file can be made of names that collide */
} fl_tensor_table;

/* Read and check the whole of a file in memory. Tensors point into `data`. `source` is for
 * messages. */
int fl_header_read(fl_tensor_table *out, const unsigned char *data, size_t size, const char *source,
                   fletch_error *error);

/* An empty table; and one entry more: returns 0, -1 out of memory, 1 when the name is there
 * already. */
void fl_table_init(fl_tensor_table *table);
int  fl_table_add(fl_tensor_table *table, char *name, const fl_tensor *tensor);
void fl_table_free(fl_tensor_table *table);

const fl_tensor *fl_table_find(const fl_tensor_table *table, const char *name);

#endif
