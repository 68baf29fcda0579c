/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_only.c - a folder whose model is an .onnx file: no weights for us to read, but sizes.
 *
 * Role    model.c opens such a folder without weights; an engine that reads .onnx files runs it,
 *         and every other one refuses it by name.
 * Method  The folder holds no safetensors, and an .onnx file in itself or in onnx/. Since the file
 *         is the network, an architecture that is not known does not matter either: config.json
 *         then only tells the width, the vocabulary and the longest text.
 * Memory  none. Threads: during opening only.
 * Proof   tests/golden/test_onnxruntime.py, test_onnxruntime_files.py. */
#include <dirent.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { SIZE_MAX_READ = 1 << 24, POSITIONS_DEFAULT = 512 };

static bool has_file(const char *folder, const char *name) {
    char path[FL_MODEL_PATH_MAX];
    return fl_path_join(path, sizeof path, folder, name, NULL) == 0 && fl_file_exists(path);
}

static bool has_onnx_file(const char *folder) {
    DIR *listing = opendir(folder);
    bool found   = false;
    if (listing == NULL)
        return false;
    for (struct dirent *entry = readdir(listing); entry != NULL && !found;
         entry                = readdir(listing)) {
        const size_t size = strlen(entry->d_name);
        found             = size > 5 && strcmp(entry->d_name + size - 5, ".onnx") == 0;
    }
    closedir(listing);
    return found;
}

bool fl_onnx_only(const fl_model *model) {
    char        below[FL_MODEL_PATH_MAX];
    const char *weights = model->own->transformer;
    if (has_file(weights, "model.safetensors") || has_file(weights, "model.safetensors.index.json"))
        return false;
    return has_onnx_file(model->folder) ||
           (fl_path_join(below, sizeof below, model->folder, "onnx", NULL) == 0 &&
            has_onnx_file(below));
}

int fl_onnx_sizes_read(fl_encoder_desc *desc, fl_json_reader *config) {
    static const char *const widths[] = {"hidden_size", "d_model", "dim", "n_embd"};
    fl_free(desc->layer);
    memset(desc, 0, sizeof *desc);
    desc->architecture = "onnx";
    for (size_t i = 0; i < sizeof widths / sizeof widths[0] && desc->hidden == 0; i++)
        desc->hidden = (uint32_t)fl_json_int(config, widths[i], 0, 0, SIZE_MAX_READ);
    desc->vocab     = (uint32_t)fl_json_int(config, "vocab_size", 0, 0, SIZE_MAX_READ);
    desc->positions = (uint32_t)fl_json_int(config, "max_position_embeddings", POSITIONS_DEFAULT, 1,
                                            SIZE_MAX_READ);
    desc->pad_token = (uint32_t)fl_json_int(config, "pad_token_id", 0, 0, SIZE_MAX_READ);
    if (config->status == 0 && (desc->hidden == 0 || desc->vocab == 0))
        return fl_fail(
            config->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s tells no hidden_size or no vocab_size; with an .onnx file alone these are "
            "needed.",
            config->source);
    return config->status;
}
