/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - write small model folders for the tests of the model room.
 *
 * A folder is made below /tmp by folder_make and removed by folder_drop. tensors_begin, tensor_add and
 * tensors_end write a safetensors file whose header is well formed, unless the test asks otherwise. All
 * of it is for one test at a time; a failure to write fails the test. */
#ifndef FL_TESTS_UNIT_FOLDER_H
#define FL_TESTS_UNIT_FOLDER_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "model/tensor.h"

static char folder[64];

static inline void folder_make(void) {
    strcpy(folder, "/tmp/fl-test-model-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static inline void folder_drop(void) {
    fletch_error error;
    cr_assert_eq(fl_path_remove(folder, &error), 0, "%s", error.message);
}

/* folder/name; the folders in `name` are made. Valid until the eighth call from now. */
static inline const char *folder_path(const char *name) {
    static char path[8][512];
    static int  turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    char *slash = strrchr(path[turn], '/');
    *slash      = '\0';
    cr_assert_eq(fl_folder_make(path[turn], NULL), 0);
    *slash = '/';
    return path[turn];
}

static inline void folder_write_bytes(const char *name, const void *data, size_t size) {
    FILE *file = fopen(folder_path(name), "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(data, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

static inline void folder_write(const char *name, const char *text) {
    folder_write_bytes(name, text, strlen(text));
}

/* A safetensors file in the making. */
typedef struct tensors {
    fl_buf header, data;
} tensors;

static inline void tensors_begin(tensors *t) {
    memset(t, 0, sizeof *t);
    fl_buf_puts(&t->header, "{\"__metadata__\": {\"format\": \"pt\"}");
}

/* A tensor of `bytes` bytes at the end of the data. `shape` is JSON: "[2, 3]". */
static inline void tensor_add(tensors *t, const char *name, const char *dtype, const char *shape,
                              const void *data, size_t bytes) {
    fl_buf_printf(&t->header,
                  ", \"%s\": {\"dtype\": \"%s\", \"shape\": %s, \"data_offsets\": [%zu, %zu]}",
                  name, dtype, shape, t->data.size, t->data.size + bytes);
    fl_buf_append(&t->data, data, bytes);
}

/* F32 values start, start + 1, …: a slot that holds another tensor than it should is then seen. */
static inline void tensor_add_counting(tensors *t, const char *name, size_t rows, size_t columns,
                                       float start) {
    size_t count  = rows * (columns == 0 ? 1 : columns);
    float *values = malloc(count * sizeof *values);
    char   shape[64];
    for (size_t i = 0; i < count; i++)
        values[i] = start + (float)i;
    if (columns == 0)
        snprintf(shape, sizeof shape, "[%zu]", rows);
    else
        snprintf(shape, sizeof shape, "[%zu, %zu]", rows, columns);
    tensor_add(t, name, "F32", shape, values, count * sizeof *values);
    free(values);
}

/* The whole file: length, header, data. The caller frees *file. */
static inline void tensors_file(fl_buf *file, const char *header, const void *data, size_t size) {
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        fl_buf_putc(file, (char)(length >> 8 * i & 0xFF));
    fl_buf_append(file, header, length);
    fl_buf_append(file, data, size);
    cr_assert_not(file->failed);
}

static inline void tensors_end(tensors *t, const char *name) {
    fl_buf file = {0};
    fl_buf_puts(&t->header, "}");
    tensors_file(&file, t->header.data, t->data.data, t->data.size);
    folder_write_bytes(name, file.data, file.size);
    fl_buf_free(&file);
    fl_buf_free(&t->header);
    fl_buf_free(&t->data);
}

#endif
