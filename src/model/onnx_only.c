/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_only.c - a folder whose model is an .onnx file: no weights for us to read, but sizes.
 *
 * Role    model.c opens such a folder without weights; an engine that reads .onnx files runs it,
 *         and every other one refuses it by name.
 * Method  The folder holds no safetensors, and an .onnx file in itself or in onnx/. Since the file
 *         is the network, an architecture that is not known does not matter either: config.json
 *         then only tells the width, the vocabulary and the longest text. Where it is missing too, the
 *         graph's outputs tell the width and whether the file pools, and tokenizer_config.json how
 *         long a text may be. A file may also be named itself; then it is taken, whatever is beside it.
 * Memory  none. Threads: during opening only.
 * Proof   tests/golden/test_onnxruntime.py, test_onnxruntime_files.py. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/proto.h"
#include "hub/model_files.h"
#include "model/model_private.h"

enum { SIZE_MAX_READ = 1 << 24, POSITIONS_DEFAULT = 512 };

static bool has_file(const char *folder, const char *name) {
    char path[FL_MODEL_PATH_MAX];
    return fl_path_join(path, sizeof path, folder, name, NULL) == 0 && fl_file_exists(path);
}

/* The first .onnx file of a folder by name, model.onnx before all others, into `path`. */
static bool find_onnx_file(const char *folder, char *path) {
    static const char usual[]    = "model.onnx";
    char              first[256] = "";
    DIR              *listing    = opendir(folder);
    if (listing == NULL)
        return false;
    for (struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        const char *name = entry->d_name;
        if (name[0] == '.' || !fl_path_ends_with(name, ".onnx") || strcmp(first, usual) == 0 ||
            (strcmp(name, usual) != 0 && first[0] != '\0' && strcmp(name, first) >= 0))
            continue;
        snprintf(first, sizeof first, "%s", name);
    }
    closedir(listing);
    return first[0] != '\0' && fl_path_join(path, FL_MODEL_PATH_MAX, folder, first, NULL) == 0;
}

/* The file that was named, or one of the folder; they have the same outputs. */
static bool find_file(const fl_model *model, char *path) {
    char below[FL_MODEL_PATH_MAX];
    if (model->onnx_file != NULL)
        return snprintf(path, FL_MODEL_PATH_MAX, "%s", model->onnx_file) < FL_MODEL_PATH_MAX;
    return find_onnx_file(model->folder, path) ||
           (fl_path_join(below, sizeof below, model->folder, "onnx", NULL) == 0 &&
            find_onnx_file(below, path));
}

bool fl_onnx_only(const fl_model *model) {
    char        path[FL_MODEL_PATH_MAX];
    const char *weights = model->own->transformer;
    if (model->onnx_file != NULL)
        return true;
    for (size_t i = 0; i < FL_WEIGHT_FORMS; i++)
        if (has_file(weights, fl_weight_forms[i].single) ||
            has_file(weights, fl_weight_forms[i].index))
            return false;
    return find_file(model, path);
}

bool fl_onnx_path(const char *name, char *folder, size_t capacity) {
    char        above[FL_MODEL_PATH_MAX];
    const char *slash = strrchr(name, '/');
    int         size  = slash == NULL ? 0 : (int)(slash - name);
    if (!fl_path_ends_with(name, ".onnx") || !fl_file_exists(name))
        return false;
    int written = snprintf(folder, capacity, "%.*s", size, name);
    if (slash == NULL || slash == name)
        written = snprintf(folder, capacity, "%s", slash == NULL ? "." : "/");
    if (written < 0 || (size_t)written >= capacity)
        return false;
    if (!has_file(folder, "tokenizer.json") && fl_path_ends_with(folder, "/onnx")) {
        snprintf(above, sizeof above, "%.*s", (int)(strlen(folder) - strlen("/onnx")), folder);
        if (has_file(above, "tokenizer.json"))
            snprintf(folder, capacity, "%s", above);
    }
    return true;
}

/* ---- What the file says of itself ------------------------------------------------------------- */

/* An output of the graph. */
typedef struct output {
    char     name[96];
    uint64_t type; /* of its elements: 1 float32, 10 float16 */
    uint32_t rank;
    uint64_t last; /* its last dimension; 0: free */
} output;

/* TypeProto.Tensor: 1 elem_type, 2 shape { 1 dim { 1 dim_value } }. */
static void read_tensor_type(fl_proto_span tensor, output *out) {
    fl_proto_field f, dim, value;
    while (fl_proto_next(&tensor, &f) > 0) {
        if (f.number == 1 && f.wire == 0)
            out->type = f.value;
        while (f.number == 2 && f.wire == 2 && fl_proto_next(&f.body, &dim) > 0) {
            if (dim.number != 1 || dim.wire != 2)
                continue;
            out->rank++;
            out->last = 0;
            while (fl_proto_next(&dim.body, &value) > 0)
                if (value.number == 1 && value.wire == 0)
                    out->last = value.value;
        }
    }
}

/* ValueInfoProto: 1 name, 2 type { 1 tensor_type }. */
static void read_output(fl_proto_span value, output *out) {
    fl_proto_field f, type;
    while (fl_proto_next(&value, &f) > 0) {
        if (f.number == 1 && f.wire == 2)
            fl_proto_copy(f.body, out->name, sizeof out->name);
        while (f.number == 2 && f.wire == 2 && fl_proto_next(&f.body, &type) > 0)
            if (type.number == 1 && type.wire == 2)
                read_tensor_type(type.body, out);
    }
}

/* As the engine chooses (ort_session.c): the vectors of tokens, else rows that are pooled already; of a network with
 * a row of its own that one. */
static void take_output(const output *o, bool own_row, fl_onnx_output *best) {
    bool floats = o->type == 1 || o->type == 10;
    bool pooled = o->rank == 2 && (own_row ? strcasecmp(o->name, "pooler_output") == 0
                                           : strcasecmp(o->name, "sentence_embedding") == 0 ||
                                                 strcasecmp(o->name, "sentence_embeddings") == 0 ||
                                                 strcasecmp(o->name, "text_embeds") == 0);
    if (!floats || o->last == 0 || o->last > SIZE_MAX_READ)
        return;
    if (!own_row && o->rank == 3 && (best->width == 0 || best->pooled))
        *best = (fl_onnx_output){.width = (uint32_t)o->last, .pooled = false};
    if (pooled && best->width == 0)
        *best = (fl_onnx_output){.width = (uint32_t)o->last, .pooled = true};
}

/* ModelProto: 7 graph { 12 output }. */
void fl_onnx_output_read(const fl_model *model, fl_onnx_output *out) {
    char   path[FL_MODEL_PATH_MAX];
    fl_map map = {0};
    *out       = (fl_onnx_output){.width = 0};
    if (!find_file(model, path) || fl_map_open(&map, path, NULL) < 0)
        return;
    fl_proto_span  file = fl_proto_of(map.data, map.size);
    fl_proto_field graph, f;
    while (fl_proto_next(&file, &graph) > 0) {
        while (graph.number == 7 && graph.wire == 2 && fl_proto_next(&graph.body, &f) > 0) {
            output o = {.rank = 0};
            if (f.number != 12 || f.wire != 2)
                continue;
            read_output(f.body, &o);
            take_output(&o, model->encoder.own_row, out);
        }
    }
    fl_map_close(&map);
}

/* The longest text that the tokenizer's own settings speak of. */
static uint32_t positions_of(fl_model *model) {
    const int64_t  most  = 1 << 20; /* "no limit" is written as 1e30 */
    int64_t        value = 0;
    fl_json_reader config;
    if (fl_model_read_tokenizer_config(model, &config, NULL) == 0)
        value = fl_json_int(&config, "model_max_length", 0, 0, INT64_MAX);
    return value > 0 && value <= most ? (uint32_t)value : POSITIONS_DEFAULT;
}

/* Without config.json: ids beyond the table are for the library to refuse. */
int fl_onnx_sizes_guess(fl_model *model, fletch_error *error) {
    fl_encoder_desc *desc = &model->encoder.desc;
    fl_onnx_output   out;
    fl_onnx_output_read(model, &out);
    if (out.width == 0)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: config.json is missing, and no output of the .onnx file is [batch, "
                       "sequence, width] or a sentence_embedding [batch, width] of fixed width; "
                       "put config.json beside it, or export the model for feature extraction.",
                       model->onnx_file != NULL ? model->onnx_file : model->folder);
    memset(desc, 0, sizeof *desc);
    desc->architecture = "onnx";
    desc->hidden       = out.width;
    desc->vocab        = INT32_MAX;
    desc->positions    = positions_of(model);
    model->own->bare   = true;
    return 0;
}

/* ---- What config.json says of it -------------------------------------------------------------- */

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
            "%s lacks hidden_size or vocab_size; with an .onnx file alone both are required.",
            config->source);
    return config->status;
}
