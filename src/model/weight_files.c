/* SPDX-License-Identifier: Apache-2.0 */
/* weight_files.c - what a model's weights are as files: bytes, parameters, age.
 *
 * Role    fletch_model_info_get, and through it the lists of models that servers and tools show;
 *         fletch_model_file_at.
 * Method  The sizes of all weight files of the folder, links followed; parameters are the elements of the
 *         tensors of floating point (position ids are none).
 * Proof   tests/server/test_openai.py, test_ollama.py. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "hub/model_files.h"
#include "model/model_private.h"

static uint64_t count_parameters(const fl_safetensors *file) {
    uint64_t total = 0;
    for (size_t i = 0; i < fl_safetensors_count(file); i++) {
        const fl_tensor *tensor = fl_safetensors_find(file, fl_safetensors_name(file, i));
        uint64_t         count  = 1;
        for (uint32_t k = 0; k < tensor->rank; k++)
            count *= tensor->shape[k]; /* the header's reader has seen that it fits */
        if (tensor->dtype == FL_DTYPE_F64 || fl_dtype_is_real(tensor->dtype))
            total += count;
    }
    return total;
}

static void add_file(fl_weight_files *files, const char *path) {
    struct stat about;
    if (stat(path, &about) != 0)
        return;
    files->bytes += (uint64_t)about.st_size;
    files->modified = about.st_mtime > files->modified ? about.st_mtime : files->modified;
}

/* Of several forms a folder may have, those that count. */
static bool is_weights(const fl_model *model, const char *name) {
    const char *first = fl_model_file_at(model, 0), *torch = fl_weight_forms[1].ending;
    if (first != NULL && fl_path_ends_with(first, torch))
        return fl_path_ends_with(name, torch);
    return fl_path_ends_with(name, ".safetensors") || fl_path_ends_with(name, ".onnx");
}

void fl_weight_files_read(fl_model *model) {
    fl_weight_files *files  = &model->files;
    const char      *folder = model->own->base, *part;
    DIR             *opened = model->gguf ? NULL : opendir(folder);
    struct dirent   *entry;
    const char      *first = fl_model_file_at(model, 0);
    files->format          = model->gguf                                           ? "gguf"
                             : first == NULL                                       ? "onnx"
                             : fl_path_ends_with(first, fl_weight_forms[1].ending) ? "pytorch"
                                                                                   : "safetensors";
    for (size_t i = 0; model->gguf && (part = fl_model_file_at(model, i)) != NULL; i++)
        add_file(files, part);
    while (opened != NULL && (entry = readdir(opened)) != NULL) {
        char path[FL_MODEL_PATH_MAX];
        if (is_weights(model, entry->d_name) &&
            fl_path_join(path, sizeof path, folder, entry->d_name, NULL) == 0)
            add_file(files, path);
    }
    if (opened != NULL)
        closedir(opened);
    if (model->own->weights != NULL)
        files->parameters = count_parameters(model->own->weights);
}

const char *fl_model_file_at(const fl_model *model, size_t index) {
    const fl_safetensors *weights = model->own->weights;
    return weights != NULL ? fl_safetensors_path(weights, index) : NULL;
}

void fl_model_release_pages(const fl_model *model) {
    if (model->own->weights != NULL)
        fl_safetensors_release(model->own->weights);
}
