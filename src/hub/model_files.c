/* SPDX-License-Identifier: Apache-2.0 */
/* model_files.c - which file names are weights, and which of them is GGUF.
 *
 * Role    and In/Out: model_files.h.
 * Memory  none. Threads: no state but the file system. Proof: tests/golden/test_hub.py, test_gguf_file.py. */
#include "hub/model_files.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

const fl_weight_form fl_weight_forms[FL_WEIGHT_FORMS] = {
    {"model.safetensors", "model.safetensors.index.json", ".safetensors"},
    {"pytorch_model.bin", "pytorch_model.bin.index.json", ".bin"}};

bool fl_gguf_begins(const unsigned char *data, size_t size) {
    return size >= 4 && memcmp(data, "GGUF", 4) == 0;
}

/* The first of several parts counts, the others do not. */
bool fl_gguf_is_later_part(const char *name) {
    const char *of = strstr(name, "-of-");
    return of != NULL && of - name > 6 && of[-6] == '-' && strncmp(of - 5, "00001", 5) != 0;
}

bool fl_gguf_is_file(const char *path) {
    fl_map map  = {0};
    bool   is_a = fl_file_exists(path) && fl_map_open(&map, path, NULL) == 0 &&
                (fl_path_ends_with(path, ".gguf") || fl_gguf_begins(map.data, map.size));
    fl_map_close(&map);
    return is_a;
}
