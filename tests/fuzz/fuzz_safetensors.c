/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c - any bytes as a safetensors file.
 *
 * Whatever comes in, the reader gives a table or an error and leaks nothing. In a table that passed,
 * every tensor lies inside the buffer, its shape makes up its bytes, it is found under its name, and
 * the sizes add up to the buffer: the ranges tile it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensor(const fl_tensor_table *table, size_t index, const uint8_t *data,
                         size_t size) {
    const fl_tensor *tensor = &table->tensors[index];
    const uint8_t   *begin  = tensor->data;
    if (begin < data + 8 || tensor->bytes > size || begin > data + size - tensor->bytes)
        abort();
    if (fl_table_find(table, table->names[index]) != tensor || tensor->rank > FL_RANK_MAX)
        abort();
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    if ((tensor->dtype == FL_DTYPE_F32 && count * 4 != tensor->bytes) ||
        ((tensor->dtype == FL_DTYPE_F16 || tensor->dtype == FL_DTYPE_BF16) &&
         count * 2 != tensor->bytes))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_tensor_table table;
    fletch_error    error  = {0};
    int             status = fl_header_read(&table, data, size, "fuzz", &error);
    if (status != 0) {
        if (error.code != status || error.message[0] == '\0' || table.tensors != NULL)
            abort();
        return 0;
    }
    uint64_t total = 0, header = 0;
    for (size_t i = 0; i < table.count; i++) {
        check_tensor(&table, i, data, size);
        total += table.tensors[i].bytes;
    }
    for (int i = 7; i >= 0; i--)
        header = header << 8 | data[i];
    if (total + header + 8 != size)
        abort();
    fl_table_free(&table);
    return 0;
}
