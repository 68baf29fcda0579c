/* SPDX-License-Identifier: Apache-2.0 */
/* ort_provider.c - the execution providers that ONNX Runtime has: names, options, how they are added.
 *
 * Role    options.c adds one to a session's options; the engine's probe asks whether the library takes
 *         it at all, which needs no model.
 * Method  A provider is appended with string pairs; those of CUDA and TensorRT go through an object
 *         of their own, which starts from defaults at every update, so that all pairs are passed in
 *         one call.
 * Errors  A provider that the library refuses is EPROVIDER with the library's reason and how to mend
 *         it.
 * Memory  none. Threads: any; the table is constant.
 * Proof   tests/unit/test_onnxruntime.c: every provider is appended to the real CPU library, whose
 *         refusal is the tested result; the keys are in its strings. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
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
    return strcmp(provider, "cpu") != 0 && strcmp(provider, "cuda") != 0;
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

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

/* Half precision is the graph's own: the provider keeps the types that it finds. In float32 it would
 * take less where the processor or GPU has it. A plug-in is given the device that it lists, and no name. */
static void collect_openvino(fl_ort_pairs *p, const fl_engine_options *o,
                             const fl_ort_names *inputs) {
    static const char        exact[]  = "\"INFERENCE_PRECISION_HINT\": \"f32\"";
    static const char *const ours[]   = {"gpu", "npu", "cpu"};
    static const char *const theirs[] = {"GPU", "NPU", "CPU"};
    const char              *asked    = fl_config_text(o->config, FL_KEY_OPENVINO_DEVICE);
    const char              *cache    = fl_config_text(o->config, FL_KEY_OPENVINO_CACHE_DIR);
    const bool               half     = o->precision != NULL && is(o->precision, "fp16");
    const char *plugin = fl_config_text(o->config, FL_KEY_ONNXRUNTIME_PROVIDER_LIBRARY);
    (void)inputs;
    if (cache[0] != '\0')
        add(p, "cache_dir", "%s", cache);
    if (plugin[0] != '\0') {
        if (!half)
            add(p, "load_config", "{\"CPU\": {%s}, \"GPU\": {%s}}", exact, exact);
        return;
    }
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (is(asked, ours[i]) && o->device == 0)
            add(p, "device_type", "%s", theirs[i]);
        else if (is(asked, ours[i]))
            add(p, "device_type", "%s.%u", theirs[i], o->device);
    add(p, "precision", "%s", half ? "ACCURACY" : "FP32");
    if (is(asked, "cpu"))
        add(p, "num_of_threads", "%u", o->threads);
}

static void collect_webgpu(fl_ort_pairs *p, const fl_engine_options *o,
                           const fl_ort_names *inputs) {
    const char *backend = fl_config_text(o->config, FL_KEY_WEBGPU_BACKEND);
    const char *power   = fl_config_text(o->config, FL_KEY_WEBGPU_POWER_PREFERENCE);
    (void)inputs;
    add(p, "powerPreference", "%s", is(power, "low") ? "low-power" : "high-performance");
    if (!is(backend, "auto"))
        add(p, "dawnBackendType", "%s", is(backend, "vulkan") ? "Vulkan" : "D3D12");
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

static OrtStatus *append_openvino(const fl_ort *ort, const fl_ort_pairs *p,
                                  OrtSessionOptions *target) {
    return ort->api.SessionOptionsAppendExecutionProvider(target, "OpenVINO", p->keys, p->values,
                                                          p->count);
}

static OrtStatus *append_webgpu(const fl_ort *ort, const fl_ort_pairs *p,
                                OrtSessionOptions *target) {
    return ort->api.SessionOptionsAppendExecutionProvider(target, "WebGPU", p->keys, p->values,
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
    const char *theirs;  /* in GetAvailableProviders; "": as the plug-in says */
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
    {"openvino", "OpenVINOExecutionProvider", "onnxruntime-openvino", NULL, collect_openvino,
     append_openvino},
    {"webgpu", "WebGpuExecutionProvider", "onnxruntime-webgpu", NULL, collect_webgpu,
     append_webgpu},
    {FL_ORT_PLUGIN, "", "", NULL, NULL, NULL},
};

static const provider *find_provider(const char *name) {
    for (size_t i = 0; i < sizeof providers / sizeof providers[0]; i++)
        if (is(name, providers[i].name))
            return &providers[i];
    return NULL;
}

/* The plug-in that the configuration names; NULL: none. */
static int open_plugin(const fl_engine_options *o, const fl_ort_plugin **out, fletch_error *error) {
    const char *path = fl_config_text(o->config, FL_KEY_ONNXRUNTIME_PROVIDER_LIBRARY);
    *out             = NULL;
    return path[0] == '\0' || is(o->provider, "cpu") ? FLETCH_OK
                                                     : fl_ort_plugin_open(out, path, error);
}

const char *fl_ort_provider_name(const fl_engine_options *o) {
    const provider      *p = find_provider(o->provider);
    const fl_ort_plugin *plugin;
    if (p == NULL || p->theirs[0] != '\0')
        return p == NULL ? NULL : p->theirs;
    return open_plugin(o, &plugin, NULL) == FLETCH_OK && plugin != NULL && plugin->provider[0]
               ? plugin->provider
               : NULL;
}

const char *fl_ort_provider_pinned(const char *name) {
    const provider *p = find_provider(name);
    return p == NULL ? NULL : p->pinned;
}

/* What is to be had where the library has no such provider at all. */
static int refuse(const fl_ort *ort, const provider *p, const char *theirs, const char *message,
                  bool there, fletch_error *error) {
    char what[80], package[160];
    snprintf(what, sizeof what, "no %s", theirs);
    snprintf(package, sizeof package, "Install %s and name its library with onnxruntime.library",
             p->package);
    return fl_ort_refuse(ort, what, message, there ? "" : package, error);
}

/* A plug-in of a provider that is known takes what that takes: OpenVINO's would compute in less than float32
 * where it is not told to. */
static const provider *find_options(const fl_engine_options *o) {
    const provider *p      = find_provider(o->provider);
    const char     *theirs = p != NULL && p->theirs[0] == '\0' ? fl_ort_provider_name(o) : NULL;
    for (size_t i = 0; theirs != NULL && i < sizeof providers / sizeof providers[0]; i++)
        if (is(theirs, providers[i].theirs))
            return &providers[i];
    return p;
}

size_t fl_ort_provider_pairs(const fl_engine_options *options, const fl_ort_names *inputs,
                             fl_ort_pairs *out) {
    const provider *p = find_options(options);
    out->count        = 0;
    if (p != NULL && p->collect != NULL)
        p->collect(out, options, inputs);
    return out->count;
}

static bool is_compiled_in(const fl_ort *ort, const char *theirs) {
    char     **names  = NULL;
    int        count  = 0;
    bool       found  = false;
    OrtStatus *status = ort->api.GetAvailableProviders(&names, &count);
    if (status != NULL) {
        ort->api.ReleaseStatus(status);
        return false;
    }
    for (int i = 0; i < count; i++)
        found = found || is(names[i], theirs);
    status = ort->api.ReleaseAvailableProviders(names, count);
    if (status != NULL)
        ort->api.ReleaseStatus(status);
    return found;
}

static OrtStatus *append_built_in(const fl_ort *ort, const provider *p, const fl_engine_options *o,
                                  const fl_ort_names *inputs, const fl_ort_pairs *pairs,
                                  OrtSessionOptions *target) {
    OrtStatus *status = p->append(ort, pairs, target);
    if (status != NULL || !is(p->name, "tensorrt"))
        return status;
    /* What TensorRT leaves runs on CUDA; without it, on the processor. */
    fl_ort_pairs rest = {.count = 0};
    collect_cuda(&rest, o, inputs);
    status = append_cuda(ort, &rest, target);
    if (status != NULL)
        ort->api.ReleaseStatus(status);
    return NULL;
}

/* By the list of devices: a provider that is a library of its own. */
static OrtStatus *append_device(const fl_ort *ort, const char *theirs, const fl_engine_options *o,
                                const fl_ort_pairs *pairs, OrtSessionOptions *target) {
    const OrtEpDevice *device = fl_ort_device_listed(ort, theirs, o->device);
    return device == NULL
               ? ort->api.CreateStatus(ORT_EP_FAIL, "it is not compiled in, and no plug-in of that "
                                                    "name lists a device")
               : ort->api.SessionOptionsAppendExecutionProvider_V2(
                     target, ort->env, &device, 1, pairs->keys, pairs->values, pairs->count);
}

int fl_ort_provider_append(const fl_ort *ort, const fl_engine_options *o,
                           const fl_ort_names *inputs, OrtSessionOptions *target,
                           fletch_error *error) {
    const provider      *p = find_provider(o->provider);
    const fl_ort_plugin *plugin;
    fl_ort_pairs         pairs;
    if (p == NULL)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "the onnxruntime engine has no provider named %s", o->provider);
    FL_TRY(open_plugin(o, &plugin, error));
    const char *theirs = fl_ort_provider_name(o);
    if (is(o->provider, "cpu"))
        return FLETCH_OK;
    if (theirs == NULL)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "onnxruntime.provider_library: %.300s lists no device on this machine, or "
                       "needs a newer ONNX Runtime than %s",
                       plugin == NULL ? "(none)" : plugin->path, ort->version);
    bool built = is_compiled_in(ort, theirs);
    fl_ort_provider_pairs(o, inputs, &pairs);
    OrtStatus *status = built ? append_built_in(ort, p, o, inputs, &pairs, target)
                              : append_device(ort, theirs, o, &pairs, target);
    if (status == NULL)
        return FLETCH_OK;
    const char *message = ort->api.GetErrorMessage(status);
    fl_log_write(o->log, FL_LOG_DEBUG, "onnxruntime: %s", message);
    int code = refuse(ort, p, theirs, message, built || plugin != NULL, error);
    ort->api.ReleaseStatus(status);
    return code;
}

/* A model that does nothing: IR 7, opset 13, y = Identity(x) of one float. */
static const unsigned char nothing[] = {
    0x08, 0x07, 0x12, 0x00, 0x3a, 0x37, 0x0a, 0x10, 0x0a, 0x01, 'x',  0x12, 0x01, 'y',
    0x22, 0x08, 'I',  'd',  'e',  'n',  't',  'i',  't',  'y',  0x12, 0x01, 'g',  0x5a,
    0x0f, 0x0a, 0x01, 'x',  0x12, 0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02,
    0x08, 0x01, 0x62, 0x0f, 0x0a, 0x01, 'y',  0x12, 0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12,
    0x04, 0x0a, 0x02, 0x08, 0x01, 0x42, 0x04, 0x0a, 0x00, 0x10, 0x0d};

/* WebGPU makes its device when it is appended and gives it up with a session alone: without one the device stays,
 * and with it the weights of every model that was closed (ONNX Runtime 1.27). */
static int spend(const fl_ort *ort, const fl_engine_options *options, const OrtSessionOptions *made,
                 fletch_error *error) {
    OrtSession *session = NULL;
    if (!is(options->provider, "webgpu"))
        return FLETCH_OK;
    OrtStatus *refused =
        ort->api.CreateSessionFromArray(ort->env, nothing, sizeof nothing, made, &session);
    if (refused == NULL) {
        ort->api.ReleaseSession(session);
        return FLETCH_OK;
    }
    int code = fl_ort_refuse(ort, "WebGpuExecutionProvider makes no session",
                             ort->api.GetErrorMessage(refused), "", error);
    ort->api.ReleaseStatus(refused);
    return code;
}

/* Only appending says whether it can be used. */
int fl_ort_provider_check(const fl_ort *ort, const fl_engine_options *options,
                          fletch_error *error) {
    OrtSessionOptions *made;
    fl_engine_options  quiet  = *options;
    fl_ort_names       inputs = {.count = 2, .names = {"input_ids", "attention_mask"}};
    quiet.trace               = NULL;
    int status                = fl_ort_options_make(ort, &quiet, &inputs, 1, &made, error);
    if (status == FLETCH_OK) {
        status = spend(ort, options, made, error);
        ort->api.ReleaseSessionOptions(made);
    }
    return status;
}
