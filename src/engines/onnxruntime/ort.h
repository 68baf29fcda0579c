/* SPDX-License-Identifier: Apache-2.0 */
/* ort.h - the rooms inside the onnxruntime engine and the seams between them.
 *
 * Role    library.c finds and opens the library (fl_ort), files.c chooses the folder's .onnx file,
 *         graph*.c builds a graph from the descriptor instead, options.c turns our configuration
 *         into session options, session.c makes a session of a file or graph and matches its inputs
 *         and outputs, binding.c runs one group of texts, pooling.c pools what a model leaves
 *         unpooled, engine.c is the vtable. docs/providers.md tells it from the user's side.
 * Threads fl_ort is shared by all sessions of the process and read-only once it is there. */
#ifndef FL_ENGINES_ONNXRUNTIME_ORT_H
#define FL_ENGINES_ONNXRUNTIME_ORT_H

#include "engines/engine.h"
#include "engines/onnxruntime/api.h"

/* ---- library.c -------------------------------------------------------------------------------- */

/* The open library: its functions and its one environment. */
typedef struct fl_ort {
    fl_ort_api        api;
    fl_ort_editor_api editor;
    OrtEnv           *env;
    OrtMemoryInfo    *cpu;       /* memory of this machine, for tensors over our own buffers */
    OrtAllocator     *allocator; /* frees the strings that the library gives out */
    unsigned          minor;     /* 31 of "1.31.1" */
    char              version[32];
    char              path[512]; /* the file */
} fl_ort;

/* The process's library, opened by the first call and counted from then on. `library` is the
 * configuration's file or folder, "" for the usual places. EPROVIDER names every place that was
 * looked at, or what is wrong with the library that was found, and how to mend it. */
int fl_ort_acquire(const fl_ort **out, const char *library, const fl_log *log, fletch_error *error);
void fl_ort_release(const fl_ort *ort); /* NULL is a no-op */

/* Turn a status into an error and free it: NULL is FLETCH_OK, anything else fills *error with
 * "CONTEXT: the library's own words" and returns `code`. */
int fl_ort_check(const fl_ort *ort, OrtStatus *status, int code, fletch_error *error,
                 const char *context);

/* ---- graph.c ---------------------------------------------------------------------------------- */

/* A graph built from the descriptor. The session made of it reads `owned` as long as it lives. */
typedef struct fl_ort_graph {
    OrtModel *model;
    void     *owned; /* weights that had to be converted or moved; of graph.c */
} fl_ort_graph;

/* Inputs  input_ids, attention_mask [batch, sequence] int64; pool_skip [batch] int64 (tokens at the
 *         head left out of pooling).
 * Output  sentence_embedding [batch, width] float32, pooled as encoder->pooling says.
 * EUNSUPPORTED names a switch of the descriptor that the graph does not express. The encoder's
 * weights are read in place and must outlive the session. */
int  fl_ort_graph_build(const fl_ort *ort, const fl_encoder *encoder,
                        const fl_engine_options *options, fl_ort_graph *out, fletch_error *error);
void fl_ort_graph_free(const fl_ort *ort, fl_ort_graph *graph); /* after the session; idempotent */

#endif
