/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.c - one text that tells a model's files from any others.
 *
 * Method  The SHA-256 of the list "name sha256\n" of the folder's model files, sorted by name, those of its modules
 *         and adapters after them. What the hub adds for people (README, images) does not count, so that
 *         a copy that has only what fletch reads has the same fingerprint. Of a GGUF the hash of its parts'
 *         hashes.
 * Memory  names and one list, freed. Threads: any.
 * Proof   tests/cli/test_vector_id.py, test_cli_faults.py; tests/server/test_start.py. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_state.h"
#include "base/json.h"
#include "base/sha256.h"
#include "hub/hub_cache.h"
#include "hub/model_files.h"
#include "model/model_private.h"
#include "model/safetensors.h"

enum { ROUTES_DEPTH = 2 };

/* Where a folder has these, those of torch are not read. Heads in a file of their own say nothing of the rest. */
static bool is_safe_weights(const char *name) {
    return strcmp(name, "model.safetensors") == 0 ||
           strcmp(name, "model.safetensors.index.json") == 0 ||
           strcmp(name, "adapter_model.safetensors") == 0;
}

static bool is_torch(const char *name) {
    return strncmp(name, "pytorch_model", strlen("pytorch_model")) == 0 &&
           fl_path_ends_with(name, ".bin");
}

static bool is_model_file(const char *name) {
    static const char *const endings[] = {".json",  ".txt", ".safetensors", ".onnx",
                                          ".model", ".pt",  ".jinja",       ".metadata"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (fl_path_ends_with(name, endings[i]) && strcmp(name, endings[i]) != 0)
            return true;
    return is_torch(name) || strcmp(name, FL_HUB_NIBBLES) == 0;
}

/* What cannot be read is left out: a folder may hold a link to nowhere. Want of memory is no reason: the same files
 * would have another fingerprint. */
static int add_file(fl_buf *list, const char *folder, const char *name, fletch_error *error) {
    char path[4096], hex[65];
    int  status = fl_path_join(path, sizeof path, folder, name, NULL);
    status      = status == FLETCH_OK ? fl_file_sha256_kept(path, hex, error) : status;
    if (status == FLETCH_OK)
        fl_buf_printf(list, "%s %s\n", name, hex);
    return status == FLETCH_ENOMEM ? status : FLETCH_OK;
}

/* A GGUF file is all there is of a model, whatever it is called: Ollama names it by its hash. */
static int file_fingerprint(const char *path, char out[65], fletch_error *error) {
    fl_safetensors *file;
    fl_buf          list = {0};
    char            hex[65];
    FL_TRY(fl_safetensors_open(&file, path, error));
    int status = 0;
    for (size_t i = 0; status == 0 && fl_safetensors_path(file, i) != NULL; i++) {
        status = fl_file_sha256_kept(fl_safetensors_path(file, i), hex, error);
        fl_buf_printf(&list, "gguf %s\n", hex);
    }
    fl_safetensors_close(file);
    if (status == 0 && list.failed)
        status = fl_fail_nomem(error, list.size, "a fingerprint");
    if (status == 0)
        fl_sha256_hex(list.data, list.size, out);
    fl_buf_free(&list);
    return status;
}

static int gather(fl_hub_names *out, const char *folder, const char *below, unsigned depth,
                  fletch_error *error);

/* Adds folder/below/name, once: what modules.json names is mostly there by its name. "" is folder/below itself. */
static int gather_inner(fl_hub_names *out, const char *folder, const char *below, const char *name,
                        unsigned depth, fletch_error *error) {
    char path[FL_MODEL_PATH_MAX], inner[FL_MODEL_PATH_MAX];
    int  length = (int)strlen(name);
    while (length > 0 && name[length - 1] == '/')
        length--;
    int size = snprintf(inner, sizeof inner, "%s%.*s/", below, length, name);
    if (length == 0 || size >= (int)sizeof inner)
        return 0; /* no folder is opened by a name so long, either */
    for (size_t i = 0; i < out->count; i++)
        if (strncmp(out->name[i], inner, (size_t)size) == 0)
            return 0;
    if (fl_path_join(path, sizeof path, folder, inner, NULL) != 0 || !fl_folder_exists(path))
        return 0;
    return gather(out, folder, inner, depth, error);
}

/* Each of `list`: a path, or an object with one. */
static int gather_listed(fl_hub_names *out, const char *folder, const char *below, fl_json *list,
                         unsigned depth, fletch_error *error) {
    int status = 0;
    for (size_t i = 0; status == 0 && fl_json_is(list, FL_JSON_ARRAY) && i < fl_json_count(list);
         i++) {
        fl_json    *item = fl_json_item(list, i);
        const char *name = fl_json_text(item);
        if (fl_json_is(item, FL_JSON_OBJECT))
            name = fl_json_text(fl_json_get(item, "path"));
        if (name != NULL && fl_path_is_safe(name))
            status = gather_inner(out, folder, below, name, depth, error);
    }
    return status;
}

/* The folders that folder/below/file names: modules.json's paths, or the routes of router_config.json. A file that
 * cannot be read names none; it counts by its bytes. */
static int gather_named(fl_hub_names *out, const char *folder, const char *below, const char *file,
                        unsigned depth, fletch_error *error) {
    char     path[FL_MODEL_PATH_MAX], inner[FL_MODEL_PATH_MAX];
    fl_json *root = NULL;
    snprintf(inner, sizeof inner, "%s%s", below, file);
    if (!fl_hub_names_has(out, inner) || fl_path_join(path, sizeof path, folder, inner, NULL) != 0)
        return 0;
    int status = fl_json_read(&root, path, FL_CONFIG_BYTES_MAX, NULL);
    if (status < 0)
        return status == FLETCH_ENOMEM ? fl_fail_nomem(error, FL_CONFIG_BYTES_MAX, file) : 0;
    status         = gather_listed(out, folder, below, root, depth, error);
    fl_json *lists = fl_json_is(root, FL_JSON_OBJECT) ? fl_json_get(root, "structure") : NULL;
    if (!fl_json_is(lists, FL_JSON_OBJECT))
        lists = NULL;
    FL_JSON_EACH(lists, route, list)
    status = status == 0 ? gather_listed(out, folder, below, list, depth, error) : status;
    fl_json_free(root);
    return status;
}

/* Adds the model files of folder/below ("" or with a slash at its end), then of the folders in it that count. Those
 * of a router's routes, two folders deep, are the last: links could lead round for ever. */
static int gather(fl_hub_names *out, const char *folder, const char *below, unsigned depth,
                  fletch_error *error) {
    const bool   top = depth == 0, adapters = strcmp(below, "adapters/") == 0;
    fl_hub_names here = {0};
    char         path[FL_MODEL_PATH_MAX];
    bool         safetensors = false;
    int          status      = fl_path_join(path, sizeof path, folder, below, error);
    if (status == 0)
        status = fl_hub_names_read(&here, path, error);
    for (size_t i = 0; i < here.count; i++)
        safetensors = safetensors || is_safe_weights(here.name[i]);
    for (size_t i = 0; status == 0 && i < here.count; i++) {
        snprintf(path, sizeof path, "%s%s", below, here.name[i]);
        if (is_model_file(here.name[i]) && !(safetensors && is_torch(here.name[i])))
            status = fl_hub_names_add(out, path, error);
    }
    for (size_t i = 0; status == 0 && (top || adapters) && i < here.count; i++)
        if (adapters || fl_hub_is_module(here.name[i]) || strcmp(here.name[i], "adapters") == 0)
            status = gather_inner(out, folder, below, here.name[i], depth + 1, error);
    if (status == 0 && top)
        status = gather_named(out, folder, below, "modules.json", depth + 1, error);
    if (status == 0 && depth < ROUTES_DEPTH)
        status = gather_named(out, folder, below, "router_config.json", depth + 1, error);
    fl_hub_names_free(&here);
    return status;
}

static int folder_fingerprint(const char *folder, char out[65], fletch_error *error) {
    if (fl_gguf_is_file(folder))
        return file_fingerprint(folder, out, error);
    fl_hub_names names  = {0};
    fl_buf       list   = {0};
    int          status = gather(&names, folder, "", 0, error);
    for (size_t i = 0; status == 0 && i < names.count; i++)
        status = add_file(&list, folder, names.name[i], error);
    fl_hub_names_free(&names);
    if (status == 0)
        status = list.failed      ? fl_fail_nomem(error, list.size, "a fingerprint")
                 : list.size == 0 ? fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                                            "%.400s holds no model file", folder)
                                  : FLETCH_OK;
    if (status == 0)
        fl_sha256_hex(list.data, list.size, out);
    fl_buf_free(&list);
    return status;
}

int fl_model_fingerprint(const char *folder, const char *base, char out[65], fletch_error *error) {
    char both[2 * 65 + 1], other[65];
    out[0] = '\0';
    FL_TRY(folder_fingerprint(folder, out, error));
    if (base == NULL || strcmp(base, folder) == 0)
        return FLETCH_OK;
    FL_TRY(folder_fingerprint(base, other, error));
    snprintf(both, sizeof both, "%s %s", out, other);
    fl_sha256_hex(both, strlen(both), out);
    return FLETCH_OK;
}
