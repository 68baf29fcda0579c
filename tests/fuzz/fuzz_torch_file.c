/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_torch_file.c - any bytes as a file of torch.save.
 *
 * Whatever comes in, the reader gives a table or an error that says something, runs nothing and leaks nothing.
 * In a table that passed every tensor lies inside the file or was copied, its shape makes up its bytes, and it is
 * found under its name. A libFuzzer that knows nothing of zip makes few archives, so what does not begin as a file of
 * torch is taken for the pickle of an archive with one storage of 8 bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/torch_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STORAGE = 8, HEAD = 30, RECORD = 46, END = 22, ROOM = 1 << 16 };

static void put(uint8_t *at, uint64_t number, size_t size) {
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)(number >> 8 * i);
}

/* A member and its record in the list; where the next goes. */
static size_t add(uint8_t *file, size_t at, uint8_t *record, const char *name, const uint8_t *data,
                  size_t size) {
    size_t length = strlen(name);
    memset(file + at, 0, HEAD);
    memset(record, 0, RECORD);
    put(file + at, 0x04034b50, 4);
    put(file + at + 26, length, 2);
    memcpy(file + at + HEAD, name, length);
    memcpy(file + at + HEAD + length, data, size);
    put(record, 0x02014b50, 4);
    put(record + 20, size, 4);
    put(record + 24, size, 4);
    put(record + 28, length, 2);
    put(record + 42, at, 4);
    memcpy(record + RECORD, name, length);
    return at + HEAD + length + size;
}

static size_t wrap(uint8_t *file, const uint8_t *pickle, size_t size) {
    static const uint8_t storage[STORAGE] = {0, 0, 128, 63};
    uint8_t              list[2 * (RECORD + 16)];
    const size_t first = RECORD + strlen("a/data.pkl"), both = first + RECORD + strlen("a/data/0");
    size_t       at = add(file, 0, list, "a/data.pkl", pickle, size);
    at              = add(file, at, list + first, "a/data/0", storage, sizeof storage);
    memcpy(file + at, list, both);
    memset(file + at + both, 0, END);
    put(file + at + both, 0x06054b50, 4);
    put(file + at + both + 8, 2, 2);
    put(file + at + both + 10, 2, 2);
    put(file + at + both + 12, both, 4);
    put(file + at + both + 16, at, 4);
    return at + both + END;
}

static void check(const uint8_t *data, size_t size) {
    fl_tensor_table table;
    fletch_error    error  = {0};
    int             status = fl_torch_read(&table, data, size, "fuzz", &error);
    if (status != 0) {
        if (error.code != status || error.message[0] == '\0' || table.tensors != NULL)
            abort();
        return;
    }
    for (size_t i = 0; i < table.count; i++) {
        const fl_tensor *tensor = &table.tensors[i];
        const uint8_t   *begin  = tensor->data;
        uint64_t         bytes  = fl_dtypes[tensor->dtype].bits / 8;
        bool             copied = begin < data || begin >= data + size;
        for (uint32_t k = 0; k < tensor->rank; k++)
            bytes *= tensor->shape[k];
        if (tensor->bytes > size ||
            (copied ? table.copies == NULL : begin > data + size - tensor->bytes) ||
            bytes != tensor->bytes || tensor->rank > FL_RANK_MAX ||
            fl_table_find(&table, table.names[i]) != tensor)
            abort();
    }
    fl_table_free(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (fl_torch_begins(data, size)) {
        check(data, size);
    } else if (size <= ROOM) {
        uint8_t *file = malloc(size + 1024);
        if (file == NULL)
            return 0;
        check(file, wrap(file, data, size));
        free(file);
    }
    return 0;
}
