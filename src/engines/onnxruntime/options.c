/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - our configuration becomes ONNX Runtime's session options, provider included.
 *
 * Role    ort_session.c asks for them once per session; a provider's probe asks whether the library
 *         takes the provider at all, which needs no model.
 * Method  Each key is set through the library's own function. A provider is appended with string
 *         pairs; those of CUDA and TensorRT go through an object of their own, which starts from
 *         defaults at every update, so that all pairs are passed in one call.
 * Errors  A provider that the library refuses is EPROVIDER with the library's reason and how to mend
 *         it; a refused option is the library's own text.
 * Threads CPU runs get one thread each and the engine deals runs to its team: threads inside a run
 *         scale worse than texts side by side. A second session with several threads inside serves
 *         the batch that has fewer runs than threads. With parallel_execution the library's own inter-op
 *         pool works instead.
 * Proof   tests/unit/test_onnxruntime.c: every provider is appended to the real CPU library, whose
 *         refusal is the tested result; the keys are in its strings. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/os.h"
#include "engines/onnxruntime/ort.h"

enum { VALUE_MAX = FL_ORT_VALUE_MAX };

__attribute__((format(printf, 3, 4))) static void add(fl_ort_pairs *p, const char *key,
                                                      const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->text[p->count], VALUE_MAX, format, args);
    va_end(args);
    p->keys[p->count]   = key;
    p->values[p->count] = p->text[p->count];
    p->count++;
}

bool fl_ort_fixed_shapes(const char *provider) {
    return strcmp(provider, "tensorrt") == 0 || strcmp(provider, "coreml") == 0 ||
           strcmp(provider, "directml") == 0;
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

/* ---- Providers -------------------------------------------------------------------------------- */

static void collect_cuda(fl_ort_pairs *p, const fl_engine_options *o, const fl_ort_names *inputs) {
    const char *strategy = fl_config_text(o->config, FL_KEY_ONNXRUNTIME_ARENA_STRATEGY);
    (void)inputs;
    add(p, "device_id", "%u", o->device);
    add(p, "use_tf32", "0"); /* float32 means float32: the vectors are compared with the CPU's */
    add(p, "arena_extend_strategy", "%s",
        is(strategy, "as_requested") ? "kSameAsRequested" : "kNextPowerOfTwo");
    if (o->memory_limit > 0)
        add(p, "gpu_mem_limit", "%llu", (unsigned long long)o->memory_limit);
}

/* One profile for all runs that ort_plan.c may ask for: a shape outside it would rebuild the engine, and
 * so would an input that is left out. */
static void add_profile(fl_ort_pairs *p, const fl_engine_options *o, const fl_ort_names *inputs) {
    static const char *const keys[]    = {"trt_profile_min_shapes", "trt_profile_opt_shapes",
                                          "trt_profile_max_shapes"};
    const uint32_t           middle    = o->max_length < 128 ? o->max_length : 128;
    const uint32_t           rows[]    = {1, 8, FL_ORT_FIXED_ROWS};
    const uint32_t           lengths[] = {1, middle, o->max_length};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        size_t used = 0;
        add(p, keys[i], "%s", "");
        char *text = p->text[p->count - 1];
        for (size_t k = 0; k < inputs->count && used < VALUE_MAX; k++) {
            const char *name = inputs->names[k], *comma = k == 0 ? "" : ",";
            used += (size_t)(is(name, FL_ORT_SKIP_NAME)
                                 ? snprintf(text + used, VALUE_MAX - used, "%s%s:%u", comma, name,
                                            rows[i])
                                 : snprintf(text + used, VALUE_MAX - used, "%s%s:%ux%u", comma,
                                            name, rows[i], lengths[i]));
        }
    }
}

static void collect_tensorrt(fl_ort_pairs *p, const fl_engine_options *o,
                             const fl_ort_names *inputs) {
    const char *cache     = fl_config_text(o->config, FL_KEY_TENSORRT_CACHE_DIR);
    const char *precision = o->precision == NULL ? "auto" : o->precision;
    add(p, "device_id", "%u", o->device);
    add(p, "trt_fp16_enable", "%d", is(precision, "fp16"));
    add(p, "trt_int8_enable", "%d", is(precision, "int8"));
    add(p, "trt_layer_norm_fp32_fallback", "%d", is(precision, "fp16"));
    if (o->memory_limit > 0)
        add(p, "trt_max_workspace_size", "%llu", (unsigned long long)o->memory_limit);
    if (cache[0] != '\0') {
        add(p, "trt_engine_cache_enable", "1");
        add(p, "trt_engine_cache_path", "%s", cache);
        add(p, "trt_timing_cache_enable", "1");
        add(p, "trt_timing_cache_path", "%s", cache);
    }
    add_profile(p, o, inputs);
}

static void collect_coreml(fl_ort_pairs *p, const fl_engine_options *o,
                           const fl_ort_names *inputs) {
    static const char *const ours[]   = {"all", "cpu", "cpu_and_gpu", "cpu_and_neural_engine"};
    static const char *const theirs[] = {"ALL", "CPUOnly", "CPUAndGPU", "CPUAndNeuralEngine"};
    const char              *asked    = fl_config_text(o->config, FL_KEY_COREML_COMPUTE_UNITS);
    (void)inputs;
    add(p, "ModelFormat", "MLProgram");
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (is(asked, ours[i]))
            add(p, "MLComputeUnits", "%s", theirs[i]);
}

static void collect_directml(fl_ort_pairs *p, const fl_engine_options *o,
                             const fl_ort_names *inputs) {
    (void)inputs;
    add(p, "device_id", "%u", o->device);
}

static OrtStatus *append_cuda(const fl_ort *ort, const fl_ort_pairs *p, OrtSessionOptions *target) {
    OrtCUDAProviderOptionsV2 *cuda   = NULL;
    OrtStatus                *status = ort->api.CreateCUDAProviderOptions(&cuda);
    if (status == NULL)
        status = ort->api.UpdateCUDAProviderOptions(cuda, p->keys, p->values, p->count);
    if (status == NULL)
        status = ort->api.SessionOptionsAppendExecutionProvider_CUDA_V2(target, cuda);
    if (cuda != NULL)
        ort->api.ReleaseCUDAProviderOptions(cuda);
    return status;
}

static OrtStatus *append_tensorrt(const fl_ort *ort, const fl_ort_pairs *p,
                                  OrtSessionOptions *target) {
    OrtTensorRTProviderOptionsV2 *tensorrt = NULL;
    OrtStatus                    *status   = ort->api.CreateTensorRTProviderOptions(&tensorrt);
    if (status == NULL)
        status = ort->api.UpdateTensorRTProviderOptions(tensorrt, p->keys, p->values, p->count);
    if (status == NULL)
        status = ort->api.SessionOptionsAppendExecutionProvider_TensorRT_V2(target, tensorrt);
    if (tensorrt != NULL)
        ort->api.ReleaseTensorRTProviderOptions(tensorrt);
    return status;
}

static OrtStatus *append_coreml(const fl_ort *ort, const fl_ort_pairs *p,
                                OrtSessionOptions *target) {
    return ort->api.SessionOptionsAppendExecutionProvider(target, "CoreML", p->keys, p->values,
                                                          p->count);
}

/* DirectML wants no memory plan and one operator after the other. */
static OrtStatus *append_directml(const fl_ort *ort, const fl_ort_pairs *p,
                                  OrtSessionOptions *target) {
    OrtStatus *status = ort->api.DisableMemPattern(target);
    if (status == NULL)
        status = ort->api.SetSessionExecutionMode(target, ORT_SEQUENTIAL);
    if (status == NULL)
        status = ort->api.SessionOptionsAppendExecutionProvider(target, "DML", p->keys, p->values,
                                                                p->count);
    return status;
}

typedef struct provider {
    const char *name;    /* ours */
    const char *theirs;  /* in GetAvailableProviders */
    const char *package; /* that holds it */
    const char *pinned;  /* host memory that its device copies fast, as CreateMemoryInfo calls it */
    void (*collect)(fl_ort_pairs *pairs, const fl_engine_options *options,
                    const fl_ort_names *inputs);
    OrtStatus *(*append)(const fl_ort *ort, const fl_ort_pairs *pairs, OrtSessionOptions *target);
} provider;

static const provider providers[] = {
    {"cpu", "CPUExecutionProvider", "onnxruntime", NULL, NULL, NULL},
    {"cuda", "CUDAExecutionProvider", "onnxruntime-gpu (with CUDA and cuDNN on the library path)",
     "CudaPinned", collect_cuda, append_cuda},
    {"tensorrt", "TensorrtExecutionProvider", "onnxruntime-gpu (with TensorRT on the library path)",
     "CudaPinned", collect_tensorrt, append_tensorrt},
    {"coreml", "CoreMLExecutionProvider", "onnxruntime for macOS", NULL, collect_coreml,
     append_coreml},
    {"directml", "DmlExecutionProvider", "onnxruntime-directml for Windows", NULL, collect_directml,
     append_directml},
};

static const provider *find_provider(const char *name) {
    for (size_t i = 0; i < sizeof providers / sizeof providers[0]; i++)
        if (is(name, providers[i].name))
            return &providers[i];
    return NULL;
}

const char *fl_ort_provider_name(const char *name) {
    const provider *p = find_provider(name);
    return p == NULL ? NULL : p->theirs;
}

const char *fl_ort_provider_pinned(const char *name) {
    const provider *p = find_provider(name);
    return p == NULL ? NULL : p->pinned;
}

static int refuse(const fl_ort *ort, const provider *p, const char *why, fletch_error *error) {
    return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                   "%.150s (ONNX Runtime %s) gives no %s: %.120s. Install %s and name its library "
                   "with onnxruntime.library",
                   ort->path, ort->version, p->theirs, why, p->package);
}

size_t fl_ort_provider_pairs(const fl_engine_options *options, const fl_ort_names *inputs,
                             fl_ort_pairs *out) {
    const provider *p = find_provider(options->provider);
    out->count        = 0;
    if (p != NULL && p->collect != NULL)
        p->collect(out, options, inputs);
    return out->count;
}

static OrtStatus *append_one(const fl_ort *ort, const provider *p, const fl_engine_options *o,
                             const fl_ort_names *inputs, OrtSessionOptions *target) {
    fl_ort_pairs pairs = {.count = 0};
    p->collect(&pairs, o, inputs);
    OrtStatus *status = p->append(ort, &pairs, target);
    if (status != NULL || !is(p->name, "tensorrt"))
        return status;
    /* What TensorRT leaves runs on CUDA; without it, on the processor. */
    pairs.count = 0;
    collect_cuda(&pairs, o, inputs);
    OrtStatus *rest = append_cuda(ort, &pairs, target);
    if (rest != NULL)
        ort->api.ReleaseStatus(rest);
    return NULL;
}

static int append(const fl_ort *ort, const fl_engine_options *o, const fl_ort_names *inputs,
                  OrtSessionOptions *target, fletch_error *error) {
    const provider *p = find_provider(o->provider);
    if (p == NULL)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "the onnxruntime engine has no provider named %s", o->provider);
    OrtStatus *status = p->append == NULL ? NULL : append_one(ort, p, o, inputs, target);
    if (status == NULL)
        return FLETCH_OK;
    int code = refuse(ort, p, ort->api.GetErrorMessage(status), error);
    ort->api.ReleaseStatus(status);
    return code;
}

/* ---- The session's own options ---------------------------------------------------------------- */

/* Errors come back as a status as well, so that all of it is for those who want to know more. */
static void pass_on(void *param, OrtLoggingLevel severity, const char *category, const char *logid,
                    const char *where, const char *message) {
    (void)severity, (void)category, (void)logid, (void)where;
    fl_log_write(param, FL_LOG_DEBUG, "onnxruntime: %s", message);
}

/* fl_log is only read, but the library takes any pointer. */
static OrtStatus *set_log(const fl_ort *ort, const fl_engine_options *o, OrtSessionOptions *s) {
    void *param;
    memcpy(&param, &o->log, sizeof param);
    OrtStatus *status = ort->api.SetUserLoggingFunction(s, pass_on, param);
    return status != NULL ? status : ort->api.SetSessionLogSeverityLevel(s, ORT_LOG_WARNING);
}

/* The library's own threads on the processors of ours: "2;3;4", counted from 1, the caller's not
 * among them. */
static OrtStatus *set_cores(const fl_ort *ort, const fl_engine_options *o, OrtSessionOptions *s) {
    char   text[4096];
    size_t used = 0;
    for (uint32_t i = 1; i < o->threads && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%u", i == 1 ? "" : ";",
                                 o->cores[i] + 1U);
    return used < sizeof text
               ? ort->api.AddSessionConfigEntry(s, "session.intra_op_thread_affinities", text)
               : NULL;
}

/* Several threads inside a run; between runs they wait without burning the processors that the
 * lanes use. */
static OrtStatus *set_inside(const fl_ort *ort, const fl_engine_options *o, unsigned inside,
                             OrtSessionOptions *s) {
    OrtStatus *status = ort->api.SetIntraOpNumThreads(s, (int)inside);
    if (status != NULL || inside <= 1)
        return status;
    status = ort->api.AddSessionConfigEntry(s, "session.disable_prepacking", "1");
    if (status == NULL)
        status = ort->api.AddSessionConfigEntry(s, "session.force_spinning_stop", "1");
    return status == NULL && o->cores != NULL ? set_cores(ort, o, s) : status;
}

static OrtStatus *set_threads(const fl_ort *ort, const fl_engine_options *o, unsigned inside,
                              OrtSessionOptions *s) {
    bool       parallel = fl_config_bool(o->config, FL_KEY_CPU_PARALLEL_EXECUTION);
    int        inter    = (int)fl_config_int(o->config, FL_KEY_CPU_INTER_OP_THREADS);
    OrtStatus *status   = set_inside(ort, o, inside, s);
    if (status == NULL)
        status = ort->api.SetInterOpNumThreads(s, parallel ? inter : 1);
    if (status == NULL)
        status = ort->api.SetSessionExecutionMode(s, parallel ? ORT_PARALLEL : ORT_SEQUENTIAL);
    return status;
}

static OrtStatus *set_memory(const fl_ort *ort, const fl_engine_options *o, OrtSessionOptions *s) {
    /* Plans go by shape, and a plan made for parallel operators would be wrong. */
    bool pattern = fl_config_bool(o->config, FL_KEY_ONNXRUNTIME_MEMORY_PATTERN) &&
                   !fl_config_bool(o->config, FL_KEY_CPU_PARALLEL_EXECUTION);
    bool       arena  = fl_config_bool(o->config, FL_KEY_ONNXRUNTIME_CPU_ARENA);
    OrtStatus *status = pattern ? ort->api.EnableMemPattern(s) : ort->api.DisableMemPattern(s);
    if (status == NULL)
        status = arena ? ort->api.EnableCpuMemArena(s) : ort->api.DisableCpuMemArena(s);
    return status;
}

static OrtStatus *set_graph(const fl_ort *ort, const fl_engine_options *o, OrtSessionOptions *s) {
    static const GraphOptimizationLevel levels[] = {ORT_DISABLE_ALL, ORT_ENABLE_BASIC,
                                                    ORT_ENABLE_EXTENDED, ORT_ENABLE_ALL};
    int64_t    level  = fl_config_int(o->config, FL_KEY_ONNXRUNTIME_GRAPH_OPTIMIZATION_LEVEL);
    OrtStatus *status = ort->api.SetSessionGraphOptimizationLevel(s, levels[level & 3]);
    if (status == NULL && o->deterministic)
        status = ort->api.SetDeterministicCompute(s, true);
    return status;
}

static OrtStatus *set_profile(const fl_ort *ort, const fl_engine_options *o, OrtSessionOptions *s) {
    char        prefix[256], native[FL_OS_PATH];
    const char *folder = getenv("TMPDIR");
    if (o->trace == NULL)
        return NULL;
    snprintf(prefix, sizeof prefix, "%.180s/fletch-onnxruntime-%ld-%llu",
             folder != NULL && folder[0] != '\0' ? folder : "/tmp", (long)getpid(),
             (unsigned long long)fl_clock_ns());
    return ort->api.EnableProfiling(s, fl_os_native_path(prefix, native, sizeof native));
}

static int fill(const fl_ort *ort, const fl_engine_options *o, const fl_ort_names *inputs,
                unsigned inside, OrtSessionOptions *s, fletch_error *error) {
    typedef OrtStatus *(*step)(const fl_ort *, const fl_engine_options *, OrtSessionOptions *);
    static const step steps[] = {set_log, set_memory, set_graph, set_profile};
    OrtStatus        *refused = set_threads(ort, o, inside, s);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && refused == NULL; i++)
        refused = steps[i](ort, o, s);
    FL_TRY(fl_ort_check(ort, refused, FLETCH_EPROVIDER, error,
                        "ONNX Runtime refuses a session option"));
    return append(ort, o, inputs, s, error);
}

int fl_ort_options_make(const fl_ort *ort, const fl_engine_options *options,
                        const fl_ort_names *inputs, unsigned inside, OrtSessionOptions **out,
                        fletch_error *error) {
    *out       = NULL;
    int status = fl_ort_check(ort, ort->api.CreateSessionOptions(out), FLETCH_ENOMEM, error,
                              "ONNX Runtime's session options");
    if (status == FLETCH_OK)
        status = fill(ort, options, inputs, inside, *out, error);
    if (status < 0 && *out != NULL) {
        ort->api.ReleaseSessionOptions(*out);
        *out = NULL;
    }
    return status;
}

/* ---- Probe ------------------------------------------------------------------------------------ */

static bool is_compiled_in(const fl_ort *ort, const provider *p) {
    char     **names  = NULL;
    int        count  = 0;
    bool       found  = false;
    OrtStatus *status = ort->api.GetAvailableProviders(&names, &count);
    if (status != NULL) {
        ort->api.ReleaseStatus(status);
        return false;
    }
    for (int i = 0; i < count; i++)
        found = found || is(names[i], p->theirs);
    status = ort->api.ReleaseAvailableProviders(names, count);
    if (status != NULL)
        ort->api.ReleaseStatus(status);
    return found;
}

/* GetAvailableProviders says what is compiled in; only appending says whether it can be used. */
int fl_ort_provider_check(const fl_ort *ort, const fl_engine_options *options,
                          fletch_error *error) {
    const provider    *p = find_provider(options->provider);
    OrtSessionOptions *made;
    if (p != NULL && !is_compiled_in(ort, p))
        return refuse(ort, p, "it is not compiled in", error);
    fl_engine_options quiet  = *options;
    fl_ort_names      inputs = {.count = 2, .names = {"input_ids", "attention_mask"}};
    quiet.trace              = NULL;
    int status               = fl_ort_options_make(ort, &quiet, &inputs, 1, &made, error);
    if (status == FLETCH_OK)
        ort->api.ReleaseSessionOptions(made);
    return status;
}
