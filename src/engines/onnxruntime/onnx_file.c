/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_file.c - walk an .onnx file before the library reads it: is it whole, where does it point?
 *
 * Role    ort_session.c calls it on the chosen file. An .onnx may name files beside it that hold its
 *         weights ("external data"); a file from a stranger could name any file of the machine, so
 *         each such name must stay inside the .onnx file's own folder, and the file must be there
 *         and long enough.
 * Method  An .onnx file is a protobuf: fields of (number, wire type), nested by length. The walk
 *         follows only the path model > graph > initializer and, for constants and subgraphs, node >
 *         attribute; every other field is stepped over with its bounds checked. The file is mapped,
 *         nothing is copied.
 * Errors  EMODEL with the byte offset for damage; with the tensor's file for external data.
 * Memory  The mapping, for the time of the call; depth of nesting is bounded.
 * Proof   tests/golden/test_onnxruntime_files.py with files made by the onnx package. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/proto.h"
#include "engines/onnxruntime/ort.h"

enum { DEPTH_MAX = 24, LOCATION_MAX = 1024 };

typedef struct walk {
    const char          *path;
    const unsigned char *start;
    fl_ort_names        *inputs;
    fl_buf              *data;  /* names of external data, ", " after each */
    uint64_t             bytes; /* of those files */
    fletch_error        *error;
    int                  status;
    bool                 has_graph;
    bool                 dynamic; /* quantises by the range of what is in the run */
} walk;

static void damaged(walk *w, const unsigned char *at) {
    if (w->status == FLETCH_OK)
        w->status = fl_fail(
            w->error, FLETCH_EMODEL, (size_t)(at - w->start),
            "%.350s is not a valid ONNX model: damaged at byte %zu; pull or export it again",
            w->path, (size_t)(at - w->start));
}

/* The next field of a message; false at its end or after damage. */
static bool next(walk *w, fl_proto_span *s, fl_proto_field *f) {
    int found = w->status == FLETCH_OK ? fl_proto_next(s, f) : 0;
    if (found < 0)
        damaged(w, s->at);
    return found > 0;
}

/* ---- External data ---------------------------------------------------------------------------- */

typedef struct external {
    char     location[LOCATION_MAX];
    uint64_t offset, length;
} external;

static uint64_t decimal(fl_proto_span s) {
    uint64_t value = 0;
    for (; s.at < s.end && *s.at >= '0' && *s.at <= '9'; s.at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*s.at - '0'), &value))
            return UINT64_MAX;
    return value;
}

/* StringStringEntryProto: 1 key, 2 value. */
static void read_entry(walk *w, fl_proto_span s, external *out) {
    fl_proto_field f;
    fl_proto_span  key = {0}, value = {0};
    while (next(w, &s, &f)) {
        if (f.number == 1 && f.wire == 2)
            key = f.body;
        if (f.number == 2 && f.wire == 2)
            value = f.body;
    }
    if (key.at == NULL || value.at == NULL)
        return;
    if (fl_proto_is(key, "location") && (size_t)(value.end - value.at) >= sizeof out->location)
        damaged(w, value.at); /* cut, it would name another file than the one that is read */
    else if (fl_proto_is(key, "location"))
        fl_proto_copy(value, out->location, sizeof out->location);
    else if (fl_proto_is(key, "offset"))
        out->offset = decimal(value);
    else if (fl_proto_is(key, "length"))
        out->length = decimal(value);
}

/* Cut a path to its folder, the slash included. */
static size_t folder_of(char *path) {
    char  *slash = strrchr(path, '/');
    size_t size  = slash == NULL ? 0 : (size_t)(slash - path + 1);
    path[size]   = '\0';
    return size;
}

/* Where the file really lies, links followed: in the folder of the .onnx file, as it was named or as
 * it really is. A Hugging Face cache is all links: snapshots/…/model.onnx and model.onnx_data each
 * lead to blobs/. A link that leads anywhere else is as good as "../" in a name. */
static bool stays_inside(const char *model, const char *data) {
    char real[FL_ORT_PATH_MAX], around[FL_ORT_PATH_MAX], named[FL_ORT_PATH_MAX];
    if (realpath(data, real) == NULL)
        return false;
    if (realpath(model, around) != NULL && strncmp(real, around, folder_of(around)) == 0)
        return true;
    snprintf(named, sizeof named, "%s", model);
    if (realpath(folder_of(named) == 0 ? "." : named, around) == NULL)
        return false;
    size_t size = strlen(around);
    return strncmp(real, around, size) == 0 && real[size] == '/';
}

/* Tensors of one file mostly follow each other, but need not. */
static void note_external(walk *w, const char *location, uint64_t bytes) {
    const size_t size = strlen(location);
    const char  *at   = w->data->size > 0 ? w->data->data : "";
    for (const char *end; (end = strstr(at, ", ")) != NULL; at = end + 2)
        if ((size_t)(end - at) == size && memcmp(at, location, size) == 0)
            return;
    fl_buf_printf(w->data, "%s, ", location);
    w->bytes += bytes;
}

static void check_external(walk *w, const external *e) {
    char        path[FL_ORT_PATH_MAX];
    const char *slash  = strrchr(w->path, '/');
    int         folder = slash == NULL ? 0 : (int)(slash - w->path + 1);
    struct stat what;
    uint64_t    need;
    if (!fl_path_is_safe(e->location)) {
        w->status = fl_fail(w->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                            "%.200s: external data in \"%.160s\", outside the model's folder, is "
                            "not read; put the file beside the model and export it again",
                            w->path, e->location);
        return;
    }
    snprintf(path, sizeof path, "%.*s%s", folder, w->path, e->location);
    if (stat(path, &what) != 0 || !S_ISREG(what.st_mode)) {
        w->status = fl_fail(w->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                            "%.200s: its external data %.160s is missing; pull or export the model "
                            "again",
                            w->path, e->location);
        return;
    }
    if (!stays_inside(w->path, path)) {
        w->status = fl_fail(w->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                            "%.200s: its external data %.120s is a link that leads outside the "
                            "model's folder and is not followed; put the file itself beside the "
                            "model, or pull the model again",
                            w->path, e->location);
        return;
    }
    note_external(w, e->location, (uint64_t)what.st_size);
    if (__builtin_add_overflow(e->offset, e->length, &need) || need > (uint64_t)what.st_size)
        w->status =
            fl_fail(w->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                    "%.200s: its external data %.160s is truncated (%lld bytes, %llu are needed); "
                    "pull or export the model again",
                    w->path, e->location, (long long)what.st_size, (unsigned long long)need);
}

/* TensorProto: 13 external_data, 14 data_location (1: external). */
static void walk_tensor(walk *w, fl_proto_span s) {
    fl_proto_field f;
    external       e       = {.location = ""};
    bool           outside = false;
    while (next(w, &s, &f)) {
        if (f.number == 13 && f.wire == 2)
            read_entry(w, f.body, &e);
        outside = outside || (f.number == 14 && f.wire == 0 && f.value == 1);
    }
    if (w->status == FLETCH_OK && (outside || e.location[0] != '\0'))
        check_external(w, &e);
}

/* SparseTensorProto: 1 values, 2 indices. */
static void walk_sparse(walk *w, fl_proto_span s) {
    fl_proto_field f;
    while (next(w, &s, &f))
        if ((f.number == 1 || f.number == 2) && f.wire == 2)
            walk_tensor(w, f.body);
}

/* ---- The graph -------------------------------------------------------------------------------- */

/* ValueInfoProto: 1 name. */
static void read_input(walk *w, fl_proto_span s) {
    fl_proto_field f;
    while (next(w, &s, &f))
        if (f.number == 1 && f.wire == 2 && w->inputs->count < FL_ORT_INPUTS_MAX)
            fl_proto_copy(f.body, w->inputs->names[w->inputs->count++], FL_ORT_NAME_MAX);
}

static void walk_graph(walk *w, fl_proto_span s, unsigned depth);

/* AttributeProto: 5 t, 6 g, 10 tensors, 11 graphs, 22 sparse_tensor, 23 sparse_tensors. */
static void walk_attribute(walk *w, fl_proto_span s, unsigned depth) {
    fl_proto_field f;
    while (next(w, &s, &f)) {
        if (f.wire != 2)
            continue;
        if (f.number == 5 || f.number == 10)
            walk_tensor(w, f.body);
        if (f.number == 22 || f.number == 23)
            walk_sparse(w, f.body);
        if (f.number == 6 || f.number == 11)
            walk_graph(w, f.body, depth + 1);
    }
}

/* NodeProto: 4 op_type, 5 attribute. DynamicQuantizeLinear, DynamicQuantizeMatMul, … */
static void walk_node(walk *w, fl_proto_span s, unsigned depth) {
    static const char dynamic[] = "DynamicQuantize";
    fl_proto_field    f;
    while (next(w, &s, &f)) {
        if (f.number == 5 && f.wire == 2)
            walk_attribute(w, f.body, depth);
        if (f.number == 4 && f.wire == 2 && (size_t)(f.body.end - f.body.at) > strlen(dynamic) &&
            memcmp(f.body.at, dynamic, strlen(dynamic)) == 0)
            w->dynamic = true;
    }
}

/* GraphProto: 1 node, 5 initializer, 11 input, 15 sparse_initializer. */
static void walk_graph(walk *w, fl_proto_span s, unsigned depth) {
    fl_proto_field f;
    if (depth > DEPTH_MAX) {
        damaged(w, s.at);
        return;
    }
    while (next(w, &s, &f)) {
        if (f.wire != 2)
            continue;
        switch (f.number) {
        case 1: walk_node(w, f.body, depth); break;
        case 5: walk_tensor(w, f.body); break;
        case 11:
            if (depth == 0)
                read_input(w, f.body);
            break;
        case 15: walk_sparse(w, f.body); break;
        default: break;
        }
    }
}

/* FunctionProto: 7 node. */
static void walk_function(walk *w, fl_proto_span s) {
    fl_proto_field f;
    while (next(w, &s, &f))
        if (f.number == 7 && f.wire == 2)
            walk_node(w, f.body, 1);
}

/* ModelProto: 7 graph, 25 functions. */
int fl_ort_file_check(const char *path, fl_ort_names *inputs, bool *dynamic, fl_buf *data,
                      uint64_t *bytes, fletch_error *error) {
    fl_map map = {0};
    FL_TRY(fl_map_open(&map, path, error));
    walk w = {.path = path, .start = map.data, .inputs = inputs, .data = data, .error = error};
    fl_proto_span  s = fl_proto_of(map.data, map.size);
    fl_proto_field f;
    inputs->count = 0;
    while (next(&w, &s, &f)) {
        if (f.number == 7 && f.wire == 2) {
            w.has_graph = true;
            walk_graph(&w, f.body, 0);
        }
        if (f.number == 25 && f.wire == 2)
            walk_function(&w, f.body);
    }
    if (w.status == FLETCH_OK && !w.has_graph)
        w.status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%.350s holds no ONNX graph; pull or export it again", path);
    if (w.status == FLETCH_OK && data->failed)
        w.status = fl_fail_nomem(error, data->size, "the names of external data");
    *dynamic = w.dynamic;
    *bytes   = map.size + w.bytes;
    fl_map_close(&map);
    return w.status;
}
