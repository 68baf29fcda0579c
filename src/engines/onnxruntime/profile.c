/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c - ONNX Runtime's own profile becomes spans of our Chrome trace.
 *
 * Role    ort_engine.c calls it when a traced replica closes; options.c switched profiling on.
 * Method  The library writes its profile as JSON when it is told to end; the events of kernels
 *         ("cat": "Node") are read back, laid on the track "onnxruntime", and the file is removed.
 *         Its clock is the time of day, ours is monotonic: both are read once to find the distance.
 *         A trace keeps only pointers to names, so that operators are named from a table.
 * Memory  The file's tree for the time of the call; files beyond FILE_BYTES_MAX are left where they
 *         are and named in the log.
 * Proof   tests/golden/test_onnxruntime.py. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engines/onnxruntime/ort.h"

static const size_t FILE_BYTES_MAX = (size_t)256 << 20;

/* Operators of encoders, as ONNX and ONNX Runtime's own domain name them. */
static const char *const operators[] = {"Add",
                                        "Attention",
                                        "BiasGelu",
                                        "Cast",
                                        "Concat",
                                        "ConstantOfShape",
                                        "Div",
                                        "Equal",
                                        "Erf",
                                        "Expand",
                                        "FusedGemm",
                                        "FusedMatMul",
                                        "Gather",
                                        "Gelu",
                                        "Gemm",
                                        "MatMul",
                                        "Mul",
                                        "LayerNormalization",
                                        "Pow",
                                        "ReduceMean",
                                        "ReduceSum",
                                        "Reshape",
                                        "Shape",
                                        "MultiHeadAttention",
                                        "Slice",
                                        "Softmax",
                                        "Split",
                                        "Sqrt",
                                        "Sub",
                                        "SkipLayerNormalization",
                                        "Squeeze",
                                        "Tanh",
                                        "Transpose",
                                        "Unsqueeze",
                                        "Where",
                                        "EmbedLayerNormalization",
                                        "FastGelu",
                                        "QuickGelu",
                                        "Max",
                                        "Min",
                                        "GatherND",
                                        "SimplifiedLayerNormalization",
                                        "MatMulIntegerToFloat",
                                        "DynamicQuantizeMatMul",
                                        "DynamicQuantizeLinear",
                                        "ReduceMax"};

static const char *static_name(const char *name) {
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (strcmp(name, operators[i]) == 0)
            return operators[i];
    return "operator";
}

/* Time of day minus monotonic time. */
static int64_t clock_distance(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)fl_clock_ns();
}

static void record(fl_trace *trace, fl_json *event, int64_t origin_ns) {
    fl_json_reader reader = {.object = event, .source = "profile"};
    if (strcmp(fl_json_string(&reader, "cat", ""), "Node") != 0)
        return;
    int64_t        start = fl_json_int(&reader, "ts", 0, 0, INT64_MAX / 1000);
    int64_t        time  = fl_json_int(&reader, "dur", 0, 0, INT64_MAX / 1000);
    fl_json_reader args  = {.object = fl_json_object(&reader, "args"), .source = "profile"};
    const char    *name  = static_name(fl_json_string(&args, "op_name", ""));
    int64_t        begin = origin_ns + start * 1000;
    if (begin >= 0)
        fl_trace_span(trace, "onnxruntime", name, (uint64_t)begin, (uint64_t)(begin + time * 1000),
                      NULL, 0);
}

static void merge_file(fl_trace *trace, const char *path, int64_t origin_ns, const fl_log *log) {
    fl_json     *root = NULL;
    fletch_error error;
    if (fl_json_read(&root, path, FILE_BYTES_MAX, &error) < 0) {
        fl_log_write(log, FL_LOG_WARNING, "ONNX Runtime's profile is not in the trace: %s",
                     error.message);
        return;
    }
    if (fl_json_is(root, FL_JSON_ARRAY))
        for (size_t i = 0; i < fl_json_count(root); i++)
            record(trace, fl_json_item(root, i), origin_ns);
    fl_json_free(root);
    remove(path);
}

void fl_ort_profile_merge(const fl_ort *ort, OrtSession *session, fl_trace *trace,
                          const fl_log *log) {
    uint64_t   start  = 0;
    char      *path   = NULL;
    OrtStatus *status = ort->api.SessionGetProfilingStartTimeNs(session, &start);
    if (status == NULL)
        status = ort->api.SessionEndProfiling(session, ort->allocator, &path);
    if (path != NULL && path[0] != '\0')
        merge_file(trace, path, (int64_t)start - clock_distance(), log);
    if (status == NULL)
        status = ort->api.AllocatorFree(ort->allocator, path);
    if (status != NULL)
        ort->api.ReleaseStatus(status);
}
