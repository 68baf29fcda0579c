/* SPDX-License-Identifier: Apache-2.0 */
/* ort.h - the rooms inside the onnxruntime engine and the seams between them.
 *
 * Role    library.c finds and opens the library (fl_ort), ort_words.c says what it refuses and why,
 *         ort_files.c chooses the folder's .onnx file, graph*.c builds a graph from the descriptor
 *         instead, options.c turns our configuration into session options, ort_provider.c adds the
 *         provider to them, ort_session.c makes a session of a file or graph and matches its inputs
 *         and outputs, binding.c runs one group of texts, pooling.c pools what a model leaves
 *         unpooled, ort_engine.c is the vtable. docs/providers.md tells it from the user's side.
 * Threads fl_ort is shared by all sessions of the process and read-only once it is there. */
#ifndef FL_ENGINES_ONNXRUNTIME_ORT_H
#define FL_ENGINES_ONNXRUNTIME_ORT_H

#include "base/buf.h"
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

/* The process's library, opened by the first call that finds one and kept from then on. `library` is
 * the configuration's file or folder, "" for the usual places. EPROVIDER names every place that was
 * looked at, or what is wrong with the library that was found, and how to mend it. */
int fl_ort_acquire(const fl_ort **out, const char *library, const fl_log *log, fletch_error *error);

/* A library of execution providers of its own (onnxruntime.provider_library). */
typedef struct fl_ort_plugin {
    char path[512];
    char provider[64]; /* of its devices, as ONNX Runtime spells it; "": it lists none */
} fl_ort_plugin;
/* Registered by the first call and kept from then on. EPROVIDER: what is wrong with the file. */
int fl_ort_plugin_open(const fl_ort_plugin **out, const char *path, fletch_error *error);

/* ---- ort_words.c ------------------------------------------------------------------------------ */

/* What went wrong by the library's message, without the place in its source that it begins with. */
enum { FL_ORT_WORDS = 240 };
void fl_ort_words(const char *message, char out[FL_ORT_WORDS]);

/* library.c: the first that a device said of a fault, in the library's log and in no status, since this was
 * last called; "": nothing. Of the process: another model's device may have said it. */
void fl_ort_heard(char out[FL_ORT_WORDS]);

/* Whether such words mean that memory did not suffice. */
bool fl_ort_is_memory(const char *words);

/* Turn a status into an error and free it: NULL is FLETCH_OK, anything else fills *error with
 * "CONTEXT: the library's own words" and returns `code`. */
int fl_ort_check(const fl_ort *ort, OrtStatus *status, int code, fletch_error *error,
                 const char *context);

/* EPROVIDER: "WHAT: why; what mends it (ONNX Runtime 1.31.1, its file)". Where the words name nothing
 * that is known to be missing, `otherwise` is what mends it; "" for no advice. */
int fl_ort_refuse(const fl_ort *ort, const char *what, const char *message, const char *otherwise,
                  fletch_error *error);

/* ---- graph.c ---------------------------------------------------------------------------------- */

/* A graph built from the descriptor. */
typedef struct fl_ort_graph {
    OrtModel *model;
    bool masks; /* padding is masked in attention. false (provider cpu): the texts of a run must
                        be equally long, fl_ort_plan.slack 0; that attention is faster */
} fl_ort_graph;

/* Inputs  input_ids, attention_mask [batch, sequence] int64; pool_skip [batch] int64 (tokens at the
 *         head left out of pooling); with segments token_type_ids [batch, sequence] int64.
 * Output  sentence_embedding [batch, width] float32, pooled as encoder->pooling says.
 * EUNSUPPORTED names a switch of the descriptor that the graph does not express. The encoder's
 * weights are read in place and must outlive the session. */
int  fl_ort_graph_build(const fl_ort *ort, const fl_encoder *encoder,
                        const fl_engine_options *options, fl_ort_graph *out, fletch_error *error);
void fl_ort_graph_free(const fl_ort *ort, fl_ort_graph *graph); /* after the session; idempotent */
/* The session is there and ONNX Runtime has packed copies of the matrices: give the pages of theirs
 * in the mapped files back to the kernel. They come back by themselves if they are read again. */
void fl_ort_graph_settle(const fl_encoder *encoder);

/* ---- ort_files.c ---------------------------------------------------------------------------------- */

enum { FL_ORT_PATH_MAX = 4096 };

/* The folder's .onnx file for a precision ("auto", "fp32", "fp16", "int8" …): 1 and its path, 0
 * when the folder has no .onnx file at all, ECONFIG when it has some but none of that precision.
 * *precision is what the file holds, static. */
int fl_ort_file_choose(const char *folder, const char *precision, char path[FL_ORT_PATH_MAX],
                       const char **taken, fletch_error *error);

/* What a file of this name holds by the same names; "fp32" for a name that is none of them. Static. */
const char *fl_ort_file_precision(const char *path);

/* Whether the folder's modules change a row between pooling and Normalize (Dense, LayerNorm): an
 * exported sentence_embedding has that done already. */
bool fl_ort_folder_has_layers(const char *folder);

/* The names of a graph's inputs. */
enum { FL_ORT_INPUTS_MAX = 8, FL_ORT_NAME_MAX = 96 };
#define FL_ORT_SKIP_NAME "pool_skip" /* the one input of a built graph that has one dimension */
typedef struct fl_ort_names {
    char   names[FL_ORT_INPUTS_MAX][FL_ORT_NAME_MAX];
    size_t count;
} fl_ort_names;

/* onnx_file.c: walk the protobuf: damage is EMODEL with the byte offset; external data must lie
 * inside the file's folder, exist and be long enough. *dynamic: it quantises by ranges that it finds over a
 * whole run, so that a text's row would depend on its companions. `data` gets the names of the external files, each
 * with ", " behind it; *bytes: of all. */
int fl_ort_file_check(const char *path, fl_ort_names *inputs, bool *dynamic, fl_buf *data,
                      uint64_t *bytes, fletch_error *error);

/* ---- options.c, ort_provider.c ---------------------------------------------------------------- */

/* Session options of our configuration with the provider appended. `inside` threads work on one run
 * together; with more than one of them the weights are read where they are and not packed, since
 * such a session is a second one of the same model. EPROVIDER when the library
 * refuses the provider: its own words and how to mend it. */
int fl_ort_options_make(const fl_ort *ort, const fl_engine_options *options,
                        const fl_ort_names *inputs, unsigned inside, OrtSessionOptions **out,
                        fletch_error *error);

/* The string pairs that a provider is given. */
enum { FL_ORT_PAIRS_MAX = 16, FL_ORT_VALUE_MAX = 512 };
typedef struct fl_ort_pairs {
    const char *keys[FL_ORT_PAIRS_MAX];
    const char *values[FL_ORT_PAIRS_MAX];
    char        text[FL_ORT_PAIRS_MAX][FL_ORT_VALUE_MAX];
    size_t      count;
} fl_ort_pairs;
size_t fl_ort_provider_pairs(const fl_engine_options *options, const fl_ort_names *inputs,
                             fl_ort_pairs *out);

/* The provider into session options. */
int fl_ort_provider_append(const fl_ort *ort, const fl_engine_options *options,
                           const fl_ort_names *inputs, OrtSessionOptions *target,
                           fletch_error *error);

/* Whether the library holds the provider ("cuda"), and why not. No device is asked for cpu. */
int fl_ort_provider_check(const fl_ort *ort, const fl_engine_options *options, fletch_error *error);

/* ort_devices.c: devices of a provider that the library takes, at least 1: what the library lists, else
 * what NVIDIA's driver counts. */
uint32_t fl_ort_devices_count(const fl_ort *ort, const fl_engine_options *options);
/* Device `index` of those that the library lists for a provider by its own name for it; NULL: none. */
const OrtEpDevice *fl_ort_device_listed(const fl_ort *ort, const char *theirs, uint32_t index);
/* Devices that the driver library `name` ("libcuda.so.1") shows this process; 0 when it is not there
 * or says nothing. CUDA_VISIBLE_DEVICES counts. */
uint32_t fl_ort_driver_devices(const char *name);
/* The provider as ONNX Runtime spells it ("CUDAExecutionProvider"), or NULL: none of that name, or a
 * plug-in that lists no device. */
const char *fl_ort_provider_name(const fl_engine_options *options);

/* The library's name for host memory that the provider's device copies fast ("CudaPinned"), or NULL. */
const char *fl_ort_provider_pinned(const char *provider);

/* The provider that onnxruntime.provider_library holds. */
#define FL_ORT_PLUGIN "plugin"

/* Lengths and texts of a run are rounded up to a few shapes: providers that compile per shape. */
bool fl_ort_fixed_shapes(const char *provider);
enum { FL_ORT_FIXED_ROWS = 64 }; /* texts of such a run: memory is taken for the largest shape */

/* ---- ort_session.c -------------------------------------------------------------------------------- */

typedef enum fl_ort_role {
    FL_ORT_IDS,
    FL_ORT_MASK,
    FL_ORT_TYPES,     /* 0, and 1 from the batch's segment on */
    FL_ORT_POSITIONS, /* position_offset + 0, 1, 2 … */
    FL_ORT_SKIP,      /* tokens at the head left out of pooling; of a built graph */
    FL_ORT_ROLES
} fl_ort_role;

typedef struct fl_ort_input {
    char                      name[FL_ORT_NAME_MAX];
    fl_ort_role               role;
    ONNXTensorElementDataType type; /* ONNX_I64 or ONNX_I32 */
} fl_ort_input;

typedef struct fl_ort_session {
    const fl_ort             *ort;
    OrtSession               *session;
    fl_ort_graph              graph; /* empty for a file */
    fl_ort_input              inputs[FL_ORT_ROLES];
    size_t                    input_count;
    char                      output[128];
    ONNXTensorElementDataType output_type; /* ONNX_F32 or ONNX_F16 */
    bool                      pooled;      /* [texts, width]; else [texts, length, hidden] */
    bool                      skips;       /* has an input for pool_skip, or leaves pooling to us */
    bool                      processor;   /* the provider is cpu */
    const char               *pinned;      /* fl_ort_provider_pinned; static */
    uint32_t                  device;
    bool                      dynamic;   /* see fl_ort_file_check */
    const char               *precision; /* static */
    uint64_t                  bytes;     /* of the weights, about */
    char   source[FL_ORT_PATH_MAX];      /* the file, or "built from the descriptor" */
    fl_buf data;                         /* owned: files beside it that hold weights: "a, b" */
} fl_ort_session;

int  fl_ort_session_open(fl_ort_session *out, const fl_ort *ort, const fl_encoder *encoder,
                         const fl_engine_options *options, unsigned inside, fletch_error *error);
void fl_ort_session_close(fl_ort_session *session); /* idempotent */

/* ---- ort_plan.c ----------------------------------------------------------------------------------- */

enum { FL_ORT_SHAPE_BITS = 32 };

/* One run: texts order[first .. first + count), padded to `length` tokens and `rows` texts. */
typedef struct fl_ort_group {
    uint32_t first, count, length, rows;
} fl_ort_group;

typedef struct fl_ort_plan {
    uint32_t     *order;  /* owned [texts_max]: indices into the batch, by falling length */
    fl_ort_group *groups; /* owned [texts_max] */
    uint32_t     *counts; /* owned [max_length + 2] */
    uint32_t      group_count, texts_max, max_length;
    /* policy */
    uint32_t tokens_max; /* of a run with more than one text, padding counted */
    bool     fixed;      /* few shapes: lengths and rows are rounded up to powers of two */
    uint32_t rows_limit; /* texts of a run at most; 0: the budget alone */
    bool     single;     /* every text alone */
    uint32_t slack;      /* eighths of a run that may be padding */
    uint32_t
        run_tokens; /* padding that costs no more than another run; 0 and slack 0: no padding */
    /* shapes met so far, each of which such a provider compiles once */
    uint32_t seen[FL_ORT_SHAPE_BITS]; /* [log2 length]: bit log2 rows */
    uint64_t compilations;
} fl_ort_plan;

int  fl_ort_plan_open(fl_ort_plan *plan, uint32_t texts_max, uint32_t max_length,
                      fletch_error *error);
void fl_ort_plan_close(fl_ort_plan *plan);
/* `lanes` runs can be under way at once: no group should keep the others waiting. */
void fl_ort_plan_make(fl_ort_plan *plan, const fl_batch *batch, unsigned lanes);
/* The most rows, and the most padded tokens, that a run of this policy can have. */
uint32_t fl_ort_plan_rows_max(const fl_ort_plan *plan);
uint32_t fl_ort_plan_tokens_max(const fl_ort_plan *plan);

/* ---- binding.c -------------------------------------------------------------------------------- */

/* The buffers of one run at a time. */
typedef struct fl_ort_lane {
    const fl_ort_session *session;
    OrtIoBinding         *binding;              /* NULL: plain Run */
    void                 *inputs[FL_ORT_ROLES]; /* owned by `block`: [tokens_max] of int64 */
    void                 *output;               /* owned by `block` */
    void                 *block;                /* owned: of `pinned`, or big */
    size_t                block_bytes;
    OrtAllocator     *pinned; /* the session's, of memory that its device copies fast; or NULL */
    OrtMemoryInfo    *place;  /* owned: what that memory is called, where outputs are bound */
    uint32_t          tokens_max, rows_max;
    uint32_t          hidden, width;
    const fl_encoder *encoder; /* its pooling and descriptor; borrowed from the engine */
    const fl_log     *log;
    fletch_error      error; /* of this lane's last run */
    /* counters, read by describe */
    uint64_t runs, bound_runs, direct_rows, copied_rows;
} fl_ort_lane;

int    fl_ort_lane_open(fl_ort_lane *lane, const fl_ort_session *session, const fl_encoder *encoder,
                        const fl_ort_plan *plan, bool bind, fletch_error *error);
void   fl_ort_lane_close(fl_ort_lane *lane); /* idempotent */
size_t fl_ort_lane_bytes(const fl_ort_session *session, const fl_encoder *encoder, uint32_t tokens,
                         uint32_t rows);
/* Run one group and write its rows. */
int fl_ort_lane_run(fl_ort_lane *lane, const fl_batch *batch, const uint32_t *order,
                    const fl_ort_group *group);

/* ---- profile.c -------------------------------------------------------------------------------- */

/* Move the library's own profile into the trace and remove its file. */
void fl_ort_profile_merge(const fl_ort *ort, OrtSession *session, fl_trace *trace,
                          const fl_log *log);

extern const fl_engine_ops fl_ort_engine_ops;

#endif
