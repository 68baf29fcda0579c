/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c - what a model's folder says about its weights: bytes, parameters, element type, age.
 *
 * Role    models.c notes them once; /v1/models and /api/tags tell them.
 * Method  The sizes of all weight files, links followed; the number of parameters and the element type from
 *         the headers of the safetensors files, which name the shape of each tensor. Buffers of integers
 *         (position ids) are no parameters. What cannot be read is told as 0 or "", never guessed: the
 *         model itself was opened, so a fault here is no reason to refuse it.
 * Memory  One header at a time. Threads: main, while models are opened.
 * Proof   tests/server/test_ollama.py, test_openai.py. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/internal.h"

enum { HEADER_MAX = 64 << 20, LENGTH_BYTES = 8 };

static bool ends_with(const char *name, const char *ending) {
    size_t size = strlen(name), tail = strlen(ending);
    return size > tail && strcmp(name + size - tail, ending) == 0;
}

/* The header of a safetensors file as text in *out; false when it has none. */
static bool read_header(const char *path, fl_buf *out) {
    unsigned char length[LENGTH_BYTES];
    uint64_t      size = 0;
    int           fd   = open(path, O_RDONLY | O_CLOEXEC);
    bool          good = fd >= 0 && read(fd, length, sizeof length) == (ssize_t)sizeof length;
    for (size_t i = sizeof length; good && i-- > 0;) {
        size = size << 8 | length[i];
    }
    good = good && size > 0 && size <= HEADER_MAX && fl_buf_reserve(out, (size_t)size);
    while (good && out->size < size) {
        ssize_t got = read(fd, out->data + out->size, (size_t)size - out->size);
        good        = got > 0;
        out->size += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return good;
}

/* Elements of a tensor {"dtype", "shape"}; 0 for a buffer of integers and for what is no tensor. */
static uint64_t count_tensor(fl_json *tensor, fl_facts *out) {
    fl_json_reader reader = {.object = tensor, .source = ""};
    const char    *dtype  = fl_json_string(&reader, "dtype", "");
    fl_json       *shape  = fl_json_array(&reader, "shape");
    uint64_t       count  = 1;
    if (reader.status < 0 || shape == NULL || strchr("FB", dtype[0]) == NULL ||
        strcmp(dtype, "BOOL") == 0) {
        return 0;
    }
    for (size_t i = 0; i < json_object_array_length(shape); i++) {
        int64_t side = json_object_get_int64(json_object_array_get_idx(shape, i));
        if (side < 0 || __builtin_mul_overflow(count, (uint64_t)side, &count)) {
            return 0;
        }
    }
    if (out->dtype[0] == '\0') {
        (void)snprintf(out->dtype, sizeof out->dtype, "%s", dtype);
    }
    return count;
}

static void count_parameters(const char *path, fl_facts *out) {
    fl_buf   text = {0};
    fl_json *json = NULL;
    if (read_header(path, &text) &&
        fl_json_parse(&json, text.data, text.size, HEADER_MAX, 0, path, NULL) == FLETCH_OK &&
        json_object_is_type(json, json_type_object)) {
        struct json_object_iterator at  = json_object_iter_begin(json),
                                    end = json_object_iter_end(json);
        for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
            if (strcmp(json_object_iter_peek_name(&at), "__metadata__") != 0) {
                out->parameters += count_tensor(json_object_iter_peek_value(&at), out);
            }
        }
    }
    fl_json_free(json);
    fl_buf_free(&text);
}

void fl_facts_read(const char *folder, fl_facts *out) {
    DIR           *opened = opendir(folder);
    struct dirent *entry;
    memset(out, 0, sizeof *out);
    while (opened != NULL && (entry = readdir(opened)) != NULL) {
        bool        tensors = ends_with(entry->d_name, ".safetensors");
        char        path[4096];
        struct stat about;
        if ((!tensors && !ends_with(entry->d_name, ".onnx")) ||
            fl_path_join(path, sizeof path, folder, entry->d_name, NULL) < 0 ||
            stat(path, &about) != 0) {
            continue;
        }
        out->bytes += (uint64_t)about.st_size;
        out->modified = about.st_mtime > out->modified ? about.st_mtime : out->modified;
        out->format   = tensors ? "safetensors" : out->format == NULL ? "onnx" : out->format;
        if (tensors) {
            count_parameters(path, out);
        }
    }
    if (opened != NULL) {
        (void)closedir(opened);
    }
    out->format = out->format != NULL ? out->format : "";
}
