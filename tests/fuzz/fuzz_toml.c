/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_toml.c - any bytes as a TOML document.
 *
 * Whatever comes in, every key is visited once with its texts in reach, or there is an error that
 * says something; nothing leaks. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int look(void *user, const fl_toml_item *item) {
    size_t *seen = user;
    if (item->line == 0 || item->column == 0)
        abort();
    *seen += strlen(item->path);
    const char *value = item->values;
    for (size_t i = 0; i < item->count; i++, value += strlen(value) + 1)
        *seen += strlen(value);
    const bool bare = item->kind == FL_TOML_TABLE || item->kind == FL_TOML_TABLES;
    if ((bare && item->count != 0) || (item->kind == FL_TOML_VALUE && item->count != 1))
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fletch_error error;
    size_t       seen = 0;
    if (fl_toml_parse((const char *)data, size, "fuzz", look, &seen, &error) != 0 &&
        (error.code == 0 || error.message[0] == '\0'))
        abort();
    return 0;
}
