/* SPDX-License-Identifier: Apache-2.0 */
/* ort_files.c - which .onnx file of a folder is meant.
 *
 * Role    ort_session.c asks when a session is to be made of a file; the model room asks nothing here,
 *         it only sees that a folder without safetensors has a model.onnx.
 * Method  The names are those that optimum, sentence-transformers and transformers.js give their
 *         files, in the folder itself and in onnx/. The precision picks the table; a quantised file
 *         made for an instruction set is taken only on processors that have it. A plain file comes
 *         before an optimised one: ONNX Runtime optimises it for the machine it is on.
 * Memory  none. Threads: any.
 * Proof   tests/unit/test_onnxruntime.c: folders with each name. */
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engines/onnxruntime/ort.h"

enum { JSON_BYTES_MAX = 1 << 20 };

typedef enum needs { NEEDS_NOTHING, NEEDS_VNNI, NEEDS_AVX512, NEEDS_AVX2, NEEDS_ARM } needs;

typedef struct variant {
    const char *precision;
    const char *name; /* without .onnx */
    needs       processor;
} variant;

/* Best first within a precision. */
static const variant variants[] = {
    {"fp32", "model", NEEDS_NOTHING},
    {"fp32", "model_optimized", NEEDS_NOTHING},
    {"fp32", "model_O3", NEEDS_NOTHING},
    {"fp32", "model_O2", NEEDS_NOTHING},
    {"fp32", "model_O1", NEEDS_NOTHING},
    {"fp32", "text_model", NEEDS_NOTHING}, /* of a network of images and texts */
    {"fp16", "model_fp16", NEEDS_NOTHING},
    {"fp16", "model_float16", NEEDS_NOTHING},
    {"fp16", "model_O4", NEEDS_NOTHING},
    {"fp16", "text_model_fp16", NEEDS_NOTHING},
    {"bf16", "model_bf16", NEEDS_NOTHING},
    {"int8", "model_qint8_avx512_vnni", NEEDS_VNNI},
    {"int8", "model_qint8_avx512", NEEDS_AVX512},
    {"int8", "model_quint8_avx2", NEEDS_AVX2},
    {"int8", "model_qint8_arm64", NEEDS_ARM},
    {"int8", "model_quantized", NEEDS_NOTHING},
    {"int8", "model_int8", NEEDS_NOTHING},
    {"int8", "model_uint8", NEEDS_NOTHING},
    {"int8", "text_model_quantized", NEEDS_NOTHING},
    {"int8", "text_model_int8", NEEDS_NOTHING},
    {"int8", "text_model_uint8", NEEDS_NOTHING},
};

static bool runs_here(needs processor, const fl_cpu *cpu) {
    switch (processor) {
    case NEEDS_VNNI: return cpu->avx512_vnni;
    case NEEDS_AVX512: return cpu->avx512f && cpu->avx512bw;
    case NEEDS_AVX2: return cpu->avx2;
    case NEEDS_ARM: return cpu->neon;
    case NEEDS_NOTHING: break;
    }
    return true;
}

static bool find(const char *folder, const variant *v, char path[FL_ORT_PATH_MAX]) {
    static const char *const places[] = {"", "onnx/"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int size = snprintf(path, FL_ORT_PATH_MAX, "%s/%s%s.onnx", folder, places[i], v->name);
        if (size > 0 && size < FL_ORT_PATH_MAX && fl_file_exists(path))
            return true;
    }
    return false;
}

int fl_ort_file_choose(const char *folder, const char *precision, char path[FL_ORT_PATH_MAX],
                       const char **taken, fletch_error *error) {
    fl_cpu         cpu;
    bool           chooses = strcmp(precision, "auto") == 0;
    const char    *wanted  = chooses ? "fp32" : precision;
    const variant *first   = NULL; /* of another precision, that runs here */
    char           others[160];
    size_t         used = 0;
    others[0]           = '\0';
    fl_cpu_detect(&cpu);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        const variant *v = &variants[i];
        if (!find(folder, v, path))
            continue;
        if (strcmp(v->precision, wanted) == 0 && runs_here(v->processor, &cpu)) {
            *taken = v->precision;
            return 1;
        }
        if (first == NULL && runs_here(v->processor, &cpu))
            first = v;
        if (used < sizeof others)
            used += (size_t)snprintf(others + used, sizeof others - used, "%s%s.onnx",
                                     used == 0 ? "" : ", ", v->name);
    }
    if (used == 0)
        return 0;
    if (chooses && first != NULL) { /* a folder that was published in one precision alone */
        *taken = first->precision;
        return find(folder, first, path);
    }
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "provider.precision %s: %.200s has no .onnx file of that precision for this "
                   "processor, only %s; choose the precision of one of these",
                   precision, folder, others);
}

const char *fl_ort_file_precision(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    size_t      stem = strlen(name) - strlen(".onnx");
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        if (strlen(variants[i].name) == stem && strncmp(variants[i].name, name, stem) == 0)
            return variants[i].precision;
    return "fp32";
}

static bool changes_rows(fl_json *module) {
    fl_json_reader reader = {.object = module, .source = "modules.json"};
    const char    *type   = fl_json_string(&reader, "type", "");
    const char    *last   = strrchr(type, '.');
    last                  = last == NULL ? type : last + 1;
    return strcmp(last, "Dense") == 0 || strcmp(last, "LayerNorm") == 0;
}

bool fl_ort_folder_has_layers(const char *folder) {
    char     path[FL_ORT_PATH_MAX];
    fl_json *root  = NULL;
    bool     found = false;
    if (fl_path_join(path, sizeof path, folder, "modules.json", NULL) != 0 ||
        !fl_file_exists(path) || fl_json_read(&root, path, JSON_BYTES_MAX, NULL) != 0)
        return false;
    if (fl_json_is(root, FL_JSON_ARRAY))
        for (size_t i = 0; i < fl_json_count(root); i++)
            found = found || changes_rows(fl_json_item(root, i));
    fl_json_free(root);
    return found;
}
