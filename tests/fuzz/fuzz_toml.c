/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_toml.c - any bytes as a TOML document.
 *
 * Whatever comes in, the reader returns a tree or an error and leaks nothing; a tree can be walked
 * to its leaves, its keys are found again, and its levels are bounded. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const fl_toml_document *document, const fl_toml *node, int depth) {
    if (depth > FL_TOML_DEPTH_MAX || node->line == 0 || node->column == 0)
        abort();
    if (node->text[node->text_size] != '\0' || node->key[node->key_size] != '\0')
        abort();
    size_t count = 0;
    for (const fl_toml *child = node->first; child != NULL; child = child->next, count++) {
        if (node->type == FL_TOML_TABLE && strlen(child->key) == child->key_size &&
            fl_toml_find(document, node, child->key) != child)
            abort();
        walk(document, child, depth + 1);
    }
    if (count != node->count)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_toml_document *document;
    fletch_error      error;
    if (fl_toml_parse(&document, (const char *)data, size, "fuzz", &error) == 0)
        walk(document, fl_toml_root(document), 0);
    else if (document != NULL || error.code == 0 || error.message[0] == '\0')
        abort();
    fl_toml_free(document);
    return 0;
}
