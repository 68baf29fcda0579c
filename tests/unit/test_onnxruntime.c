/* SPDX-License-Identifier: Apache-2.0 */
/* test_onnxruntime.c - the engine's parts, and the slot table against the real library.
 *
 * Where the library is there (make onnxruntime, or a Python environment with onnxruntime), the table
 * is used on it; without it those tests pass over, and say so. Rows are compared with the double
 * forward of engine_toy.h; plans and poolings need no library. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine_toy.h"
#include "engines/onnxruntime/ort.h"

static const char library[] = ""; /* the usual places; FLETCH_ONNXRUNTIME_LIBRARY is read by main */

static const char *library_file(void) {
    const char *named = getenv("FLETCH_ONNXRUNTIME_LIBRARY");
    return named == NULL ? library : named;
}

/* NULL, and a word about it, when this machine has none. */
static const fl_ort *acquire(void) {
    const fl_ort *ort;
    fletch_error  error;
    if (fl_ort_acquire(&ort, library_file(), NULL, &error) < 0) {
        fprintf(stderr, "passed over: %s\n", error.message);
        return NULL;
    }
    return ort;
}

/* ---- The library ------------------------------------------------------------------------------ */

/* First: where all tests share a process, as under TSan, the library is loaded once. */
Test(onnxruntime, telemetry_is_off_before_loading) {
    setenv("ORT_DISABLE_TELEMETRY", "0", 1);
    const fl_ort *ort = acquire();
    if (ort == NULL)
        return;
    cr_assert_str_eq(getenv("ORT_DISABLE_TELEMETRY"), "1");
}

Test(onnxruntime, every_slot_is_filled) {
    const fl_ort *ort = acquire();
    if (ort == NULL)
        return;
#define CHECK_SLOT(index, type, name, parameters)                                                  \
    cr_assert(ort->api.name != NULL, "slot %d, %s, is empty", index, #name);
    FL_ORT_SLOTS(CHECK_SLOT)
#undef CHECK_SLOT
#define CHECK_SLOT(index, type, name, parameters)                                                  \
    cr_assert(ort->editor.name != NULL, "editor slot %d, %s, is empty", index, #name);
    FL_ORT_EDITOR_SLOTS(CHECK_SLOT)
#undef CHECK_SLOT
    cr_assert(ort->minor >= FL_ORT_API_OLDEST);
    cr_assert_not_null(strstr(ort->api.GetBuildInfoString(), "Build Info"));
}

Test(onnxruntime, slots_are_the_functions_that_they_are_called) {
    const fl_ort *ort = acquire();
    if (ort == NULL)
        return;
    OrtStatus *status = ort->api.CreateStatus(ORT_INVALID_GRAPH, "words of ours");
    cr_assert_eq(ort->api.GetErrorCode(status), ORT_INVALID_GRAPH);
    cr_assert_str_eq(ort->api.GetErrorMessage(status), "words of ours");
    ort->api.ReleaseStatus(status);
    OrtSessionOptions *options;
    int                has;
    char               value[16];
    size_t             size = sizeof value;
    cr_assert_null(ort->api.CreateSessionOptions(&options));
    cr_assert_null(ort->api.AddSessionConfigEntry(options, "session.disable_prepacking", "1"));
    cr_assert_null(ort->api.HasSessionConfigEntry(options, "session.disable_prepacking", &has));
    cr_assert_eq(has, 1);
    cr_assert_null(
        ort->api.GetSessionConfigEntry(options, "session.disable_prepacking", value, &size));
    cr_assert_str_eq(value, "1");
    cr_assert_null(ort->api.AddFreeDimensionOverrideByName(options, "batch", 4));
    cr_assert_null(ort->api.SetDeterministicCompute(options, true));
    status = ort->api.SetSessionExecutionMode(options, (ExecutionMode)7);
    cr_assert_not_null(status, "an execution mode that does not exist is refused");
    ort->api.ReleaseStatus(status);
    status = ort->api.SetSessionGraphOptimizationLevel(options, (GraphOptimizationLevel)50);
    cr_assert_not_null(status);
    ort->api.ReleaseStatus(status);
    ort->api.ReleaseSessionOptions(options);
}

Test(onnxruntime, one_environment_however_often) {
    const fl_ort *first = acquire();
    if (first == NULL)
        return;
    const fl_ort *second = acquire();
    cr_assert_eq(first, second);
    cr_assert_not_null(second->env);
}

/* ---- Providers -------------------------------------------------------------------------------- */

static fl_engine_options options_for(const fl_config *config, const char *provider) {
    return (fl_engine_options){.provider     = provider,
                               .folder       = "/nowhere",
                               .threads      = 2,
                               .batch_tokens = 4096,
                               .batch_texts  = 128,
                               .max_length   = 64,
                               .precision    = "fp32",
                               .config       = config};
}

Test(onnxruntime, the_cpu_library_refuses_every_device) {
    static const char *const names[] = {"cuda",     "tensorrt", "coreml",
                                        "directml", "openvino", "webgpu"};
    const fl_ort            *ort     = acquire();
    if (ort == NULL)
        return;
    fl_config *config = fletch_config_new();
    fletch_config_set(config, "onnxruntime.library", library_file(), NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fl_engine_options  options = options_for(config, names[i]);
        OrtSessionOptions *made;
        fl_ort_names       inputs = {.count = 2, .names = {"input_ids", "attention_mask"}};
        fletch_error       error;
        fl_probe           found;
        cr_assert_eq(fl_ort_options_make(ort, &options, &inputs, 1, &made, &error),
                     FLETCH_EPROVIDER);
        cr_assert_null(made);
        cr_assert_not_null(strstr(error.message, "ExecutionProvider"), "%s", error.message);
        cr_assert_not_null(strstr(error.message, ort->path), "%s", error.message);
        fl_ort_engine_ops.probe(&options, &found);
        cr_assert_not(found.usable);
        cr_assert_eq(fl_ort_engine_ops.devices(&options), 0);
    }
    fl_engine_options cpu = options_for(config, "cpu"), plugin = options_for(config, "plugin");
    cr_assert_eq(fl_ort_engine_ops.devices(&cpu), 1);
    cr_assert_eq(fl_ort_engine_ops.devices(&plugin), 0, "no file is named");
    fletch_config_free(config);
}

/* Messages of onnxruntime-gpu 1.31.1, as it gave them on a machine without a GPU, or (cuDNN, an old
 * driver) as its sources word them. */
#define SOURCE "/onnxruntime_src/onnxruntime/core/"
#define CALLED                                                                                     \
    SOURCE "session/provider_bridge_ort.cc:2043 onnxruntime::Provider& "                           \
           "onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load "   \
           "library /opt/ort/libonnxruntime_providers_cuda.so with error: "
static const struct {
    const char *message, *words, *remedy;
} refusals[] = {
    {CALLED "libcuda.so.1: cannot open shared object file: No such file or directory\n",
     "libcuda.so.1: cannot open shared object file: No such file or directory",
     "The NVIDIA driver is missing"},
    {CALLED "libcudnn.so.9: cannot open shared object file: No such file or directory\n",
     "libcudnn.so.9: cannot open shared object file: No such file or directory", "Install cuDNN"},
    {SOURCE
     "providers/cuda/cuda_execution_provider_info.cc:63 static "
     "onnxruntime::CUDAExecutionProviderInfo "
     "onnxruntime::CUDAExecutionProviderInfo::FromProviderOptions(const "
     "onnxruntime::ProviderOptions&) [ONNXRuntimeError] : 1 : FAIL : "
     "provider_options_utils.h:187 Parse Failed to parse provider option \"device_id\": CUDA "
     "failure 34: CUDA driver is a stub library ; GPU=-1 ; hostname=vm ; file=" SOURCE
     "providers/cuda/cuda_execution_provider_info.cc ; line=70 ; "
     "expr=cudaGetDeviceCount(&num_devices); \n",
     "Failed to parse provider option \"device_id\": CUDA failure 34: CUDA driver is a stub "
     "library",
     "toolkit's stub"},
    {"/src/webgpu_context.cc:123 n::C::Init(const n::Config&)::<lambda()>::<lambda(w::Status, "
     "w::Adapter*)> status == w::Status::Success was false. Failed to get a WebGPU adapter: No "
     "supported adapters\n",
     "Failed to get a WebGPU adapter: No supported adapters", "Install a driver"},
    {CALLED "/usr/lib/libcuda.so.1: undefined symbol: cuTensorMapEncodeTiled\n",
     "/usr/lib/libcuda.so.1: undefined symbol: cuTensorMapEncodeTiled",
     "Install a newer NVIDIA driver"},
    {"WebGPU device error(3): vkAllocateMemory failed with VK_ERROR_OUT_OF_DEVICE_MEMORY\n - While "
     "calling [Device].CreateBuffer([BufferDescriptor]).\n    at CheckVkOOMThenSuccessImpl "
     "(/build/dawn/VulkanError.cpp:119)\n",
     "out of memory: vkAllocateMemory failed with VK_ERROR_OUT_OF_DEVICE_MEMORY - While calling "
     "[Device].CreateBuffer([BufferDescriptor])",
     "Take another"},
    {"Non-zero status code returned while running MemcpyToHost node. Name:'Memcpy_token_7' Status "
     "Message: /src/buffer_manager.cc:553 n::B::Download(B, void*, size_t) const::<lambda(S, V)> s "
     "== S::Success was false. [Device] is lost\n    at F (/build/f.cpp:1)\n",
     "[Device] is lost", "Take another"},
    {"Exception from src/core.cpp:117:\nException from src/config.cpp:266:\nWrong value F32\n",
     "Wrong value F32", "Take another"},
    {"WebGPU device error(2): no such binding", "no such binding", "Take another"},
    {"WebGPU device error(3): MTLDevice gives nothing", "out of memory: MTLDevice gives nothing",
     "Take another"},
    {"a.cc:7 f it failed.\n", "it failed", "Take another"},
    {"/a.cc:7 void f(int (*)(char)) const it failed.\n", "it failed", "Take another"},
    {"[ONNXRuntimeError] : 11 : EP_FAIL : wrapped: [ONNXRuntimeError] : 1 : FAIL : within",
     "within", "Take another"},
    {"[ONNXRuntimeError] : cut", "[ONNXRuntimeError] : cut", "Take another"},
    {"see file.h:3", "see file.h:3", "Take another"},
    {"", "", "Take another"},
};

Test(onnxruntime, want_of_memory_is_known_by_its_words) {
    static const char *const memory[] = {"Failed to allocate memory for requested buffer",
                                         "CUDA failure 2: out of memory", "std::bad_alloc",
                                         "failed with VK_ERROR_OUT_OF_DEVICE_MEMORY"};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        cr_expect(fl_ort_is_memory(memory[i]), "%s", memory[i]);
    cr_expect_not(fl_ort_is_memory("[Device] is lost"));
    cr_expect_not(fl_ort_is_memory(""));
}

Test(onnxruntime, a_refusal_is_told_by_its_reason_and_what_is_missing) {
    fl_ort ort = {.version = "1.31.1", .path = "/opt/ort/libonnxruntime.so"};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char         words[FL_ORT_WORDS];
        fletch_error error;
        fl_ort_words(refusals[i].message, words);
        cr_expect_str_eq(words, refusals[i].words);
        cr_assert_eq(fl_ort_refuse(&ort, "no X", refusals[i].message, "Take another", &error),
                     FLETCH_EPROVIDER);
        cr_expect_not_null(strstr(error.message, refusals[i].words), "%s", error.message);
        cr_expect_not_null(strstr(error.message, refusals[i].remedy), "%s", error.message);
        cr_expect_not_null(
            strstr(error.message, "(ONNX Runtime 1.31.1, /opt/ort/libonnxruntime.so)"), "%s",
            error.message);
    }
}

/* The keys that ONNX Runtime's documentation of each provider lists. */
static const char *const documented[] = {"device_id",
                                         "use_tf32",
                                         "arena_extend_strategy",
                                         "gpu_mem_limit",
                                         "trt_fp16_enable",
                                         "trt_int8_enable",
                                         "trt_layer_norm_fp32_fallback",
                                         "trt_max_workspace_size",
                                         "trt_engine_cache_enable",
                                         "trt_engine_cache_path",
                                         "trt_timing_cache_enable",
                                         "trt_timing_cache_path",
                                         "trt_profile_min_shapes",
                                         "trt_profile_opt_shapes",
                                         "trt_profile_max_shapes",
                                         "ModelFormat",
                                         "MLComputeUnits",
                                         "device_type",
                                         "precision",
                                         "num_of_threads",
                                         "cache_dir",
                                         "powerPreference",
                                         "dawnBackendType"};

static bool is_documented(const char *key) {
    for (size_t i = 0; i < sizeof documented / sizeof documented[0]; i++)
        if (strcmp(key, documented[i]) == 0)
            return true;
    return false;
}

static const char *value_of(const fl_ort_pairs *pairs, const char *key) {
    for (size_t i = 0; i < pairs->count; i++)
        if (strcmp(pairs->keys[i], key) == 0)
            return pairs->values[i];
    return "(none)";
}

Test(onnxruntime, openvino_as_a_plugin_is_told_of_float32_and_of_no_device) {
    fl_config   *config = fletch_config_new();
    fl_ort_names inputs = {.count = 0};
    fl_ort_pairs pairs;
    fletch_config_set(config, "onnxruntime.provider_library", "/opt/plugin.so", NULL);
    fl_engine_options options = options_for(config, "openvino");
    fl_ort_provider_pairs(&options, &inputs, &pairs);
    cr_expect_str_eq(value_of(&pairs, "device_type"), "(none)");
    cr_expect_str_eq(value_of(&pairs, "precision"), "(none)");
    cr_expect_not_null(
        strstr(value_of(&pairs, "load_config"), "\"INFERENCE_PRECISION_HINT\": \"f32\""));
    options.precision = "fp16"; /* the graph's own */
    cr_expect_eq(fl_ort_provider_pairs(&options, &inputs, &pairs), 0);
    fletch_config_free(config);
}

Test(onnxruntime, options_of_providers_are_documented_keys) {
    static const char *const names[] = {"cpu",      "cuda",     "tensorrt", "coreml",
                                        "directml", "openvino", "webgpu"};
    fl_config               *config  = fletch_config_new();
    fl_ort_names inputs = {.count = 3, .names = {"input_ids", "attention_mask", FL_ORT_SKIP_NAME}};
    fl_ort_pairs pairs;
    fletch_config_set(config, "tensorrt.cache_dir", "/var/cache/trt", NULL);
    fletch_config_set(config, "coreml.compute_units", "cpu_and_gpu", NULL);
    fletch_config_set(config, "onnxruntime.arena_strategy", "as_requested", NULL);
    fletch_config_set(config, "webgpu.backend", "vulkan", NULL);
    fletch_config_set(config, "webgpu.power_preference", "low", NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fl_engine_options options = options_for(config, names[i]);
        options.device            = 3;
        options.memory_limit      = 1 << 20;
        options.precision         = "fp16";
        fl_ort_provider_pairs(&options, &inputs, &pairs);
        for (size_t k = 0; k < pairs.count; k++)
            cr_assert(is_documented(pairs.keys[k]), "%s: %s", names[i], pairs.keys[k]);
        if (strcmp(names[i], "cuda") == 0 || strcmp(names[i], "tensorrt") == 0 ||
            strcmp(names[i], "directml") == 0)
            cr_assert_str_eq(value_of(&pairs, "device_id"), "3");
        if (strcmp(names[i], "openvino") == 0) {
            cr_assert_str_eq(value_of(&pairs, "device_type"), "GPU.3");
            cr_assert_str_eq(value_of(&pairs, "precision"), "ACCURACY");
        }
        if (strcmp(names[i], "webgpu") == 0) {
            cr_assert_str_eq(value_of(&pairs, "powerPreference"), "low-power");
            cr_assert_str_eq(value_of(&pairs, "dawnBackendType"), "Vulkan");
        }
        if (strcmp(names[i], "cuda") == 0) {
            cr_assert_str_eq(value_of(&pairs, "gpu_mem_limit"), "1048576");
            cr_assert_str_eq(value_of(&pairs, "arena_extend_strategy"), "kSameAsRequested");
        }
        if (strcmp(names[i], "tensorrt") == 0) {
            cr_assert_str_eq(value_of(&pairs, "trt_fp16_enable"), "1");
            cr_assert_str_eq(value_of(&pairs, "trt_int8_enable"), "0");
            cr_assert_str_eq(value_of(&pairs, "trt_engine_cache_path"), "/var/cache/trt");
            cr_assert_str_eq(value_of(&pairs, "trt_profile_max_shapes"),
                             "input_ids:64x64,attention_mask:64x64,pool_skip:64");
        }
        if (strcmp(names[i], "coreml") == 0)
            cr_assert_str_eq(value_of(&pairs, "MLComputeUnits"), "CPUAndGPU");
    }
    fletch_config_free(config);
}

/* ---- Plans ------------------------------------------------------------------------------------ */

enum { TEXTS = 300, LONGEST = 100 };

static void make_lengths(uint64_t seed, uint32_t cu[TEXTS + 1]) {
    cu[0] = 0;
    for (uint32_t i = 0; i < TEXTS; i++)
        cu[i + 1] = cu[i] + 1 + toy_draw(&seed, LONGEST);
}

static void check_plan(const fl_ort_plan *plan, const fl_batch *batch) {
    bool     seen[TEXTS] = {false};
    uint32_t done        = 0;
    for (uint32_t g = 0; g < plan->group_count; g++) {
        const fl_ort_group *group = &plan->groups[g];
        cr_assert_eq(group->first, done);
        cr_assert(group->count >= 1 && group->rows >= group->count);
        cr_assert(group->rows <= fl_ort_plan_rows_max(plan));
        cr_assert(group->rows * group->length <= fl_ort_plan_tokens_max(plan));
        uint64_t padding = 0;
        for (uint32_t i = 0; i < group->count; i++) {
            uint32_t text   = plan->order[group->first + i];
            uint32_t length = batch->cu[text + 1] - batch->cu[text];
            cr_assert_not(seen[text]);
            seen[text] = true;
            cr_assert(length <= group->length);
            padding += group->length - length;
        }
        uint64_t part = (uint64_t)group->length * group->count * plan->slack / 8;
        if (!plan->fixed)
            cr_assert(padding <= (part > plan->run_tokens ? part : plan->run_tokens));
        done += group->count;
    }
    cr_assert_eq(done, batch->texts);
}

Test(onnxruntime, every_text_is_in_one_run_of_its_length) {
    uint32_t cu[TEXTS + 1];
    for (uint64_t seed = 1; seed < 20; seed++)
        for (unsigned kind = 0; kind < 5; kind++) {
            fl_ort_plan plan = {.tokens_max = 512};
            plan.slack       = kind == 1;
            plan.run_tokens  = kind == 4 ? 60 : 0;
            plan.fixed       = kind == 2;
            plan.single      = kind == 3;
            make_lengths(seed, cu);
            fl_batch batch = {.cu = cu, .texts = TEXTS, .tokens = cu[TEXTS]};
            cr_assert_eq(fl_ort_plan_open(&plan, TEXTS, LONGEST, NULL), 0);
            fl_ort_plan_make(&plan, &batch, (unsigned)(seed % 5));
            check_plan(&plan, &batch);
            if (plan.single)
                cr_assert_eq(plan.group_count, TEXTS);
            else
                cr_assert(plan.group_count < TEXTS);
            fl_ort_plan_close(&plan);
        }
}

/* 32 sentences of 5 to 36 tokens: on a device a run costs more than the padding that saves it. */
Test(onnxruntime, sentences_of_mixed_length_share_a_run_on_devices) {
    uint32_t cu[33] = {0};
    for (uint32_t i = 0; i < 32; i++)
        cu[i + 1] = cu[i] + 5 + i * 7 % 32;
    fl_batch batch = {.cu = cu, .texts = 32, .tokens = cu[32]};
    for (int kind = 0; kind < 3; kind++) {
        fl_ort_plan plan = {.tokens_max = 16384, .fixed = kind == 1};
        plan.slack       = kind < 2;
        plan.run_tokens  = kind < 2 ? 2048 : 0;
        plan.rows_limit  = plan.fixed ? FL_ORT_FIXED_ROWS : 0;
        cr_assert_eq(fl_ort_plan_open(&plan, 32, LONGEST, NULL), 0);
        fl_ort_plan_make(&plan, &batch, 1);
        check_plan(&plan, &batch);
        cr_assert(kind == 2 ? plan.group_count == 32 : plan.group_count == 1, "%u runs",
                  plan.group_count);
        fl_ort_plan_close(&plan);
    }
}

Test(onnxruntime, fixed_shapes_are_few) {
    bool        shapes[LONGEST + 1][FL_ORT_FIXED_ROWS + 1] = {{false}};
    uint32_t    cu[TEXTS + 1], count = 0;
    fl_ort_plan plan = {.tokens_max = 4096, .fixed = true, .rows_limit = FL_ORT_FIXED_ROWS};
    cr_assert_eq(fl_ort_plan_open(&plan, TEXTS, LONGEST, NULL), 0);
    for (uint64_t seed = 1; seed < 200; seed++) {
        make_lengths(seed, cu);
        fl_batch batch = {.cu = cu, .texts = (uint32_t)(seed % TEXTS) + 1};
        batch.tokens   = cu[batch.texts];
        fl_ort_plan_make(&plan, &batch, 1);
        for (uint32_t g = 0; g < plan.group_count; g++) {
            bool *seen = &shapes[plan.groups[g].length][plan.groups[g].rows];
            count += !*seen;
            *seen = true;
        }
    }
    cr_assert(count <= 4 * 7, "%u shapes", count); /* 16 32 64 100, and 1 2 4 … 64 rows */
    fl_ort_plan_close(&plan);
}

/* ---- Pooling ---------------------------------------------------------------------------------- */

Test(onnxruntime, poolings_are_those_of_sentence_transformers) {
    enum { HIDDEN = 5, LENGTH = 7 };
    uint64_t seed = 3;
    float    x[LENGTH * HIDDEN], out[HIDDEN * FL_POOL_COUNT];
    double   wide[LENGTH * HIDDEN];
    for (size_t i = 0; i < LENGTH * HIDDEN; i++)
        wide[i] = x[i] = toy_uniform(&seed, -2, 2);
    fl_pooling modes[FL_POOL_COUNT];
    for (int p = 0; p < FL_POOL_COUNT; p++)
        modes[p] = (fl_pooling)p;
    const fl_rows rows = {x, HIDDEN, NULL};
    for (uint32_t skip = 0; skip < LENGTH; skip++) {
        cr_assert(fl_pool_rows(modes, FL_POOL_COUNT, &rows, HIDDEN, LENGTH, skip, out));
        for (size_t p = 0; p < FL_POOL_COUNT; p++)
            for (size_t c = 0; c < HIDDEN; c++)
                cr_assert(fabs(out[p * HIDDEN + c] -
                               toy_pool((fl_pooling)p, wide, HIDDEN, LENGTH, skip, c)) <= 1e-5,
                          "pooling %zu, skip %u", p, skip);
    }
    fl_pool_rows(modes, FL_POOL_COUNT, &rows, HIDDEN, LENGTH, LENGTH, out); /* all a prompt */
    cr_assert_eq(out[FL_POOL_MEAN * HIDDEN], 0.0f);
    cr_assert_eq(out[FL_POOL_LAST_TOKEN * HIDDEN], 0.0f);
    cr_assert_eq(out[FL_POOL_MAX * HIDDEN], -1e9f);
    x[3] = NAN;
    cr_assert_not(fl_pool_rows(modes, FL_POOL_COUNT, &rows, HIDDEN, LENGTH, 0, out));
}

Test(onnxruntime, rows_that_ids_choose_pool_to_the_bytes_of_rows_in_a_row) {
    enum { ENTRIES = 40, HIDDEN = 35, LENGTH = 9 };
    const int32_t ids[LENGTH] = {7, 39, 0, 7, 12, 38, 1, 7, 20};
    uint64_t      seed        = 4;
    float         table[ENTRIES * HIDDEN], x[LENGTH * HIDDEN];
    float         chosen[HIDDEN * FL_POOL_COUNT], copied[HIDDEN * FL_POOL_COUNT];
    for (size_t i = 0; i < ENTRIES * HIDDEN; i++)
        table[i] = (float)toy_uniform(&seed, -2, 2);
    for (size_t i = 0; i < LENGTH; i++)
        memcpy(x + i * HIDDEN, table + ids[i] * HIDDEN, HIDDEN * sizeof *x);
    fl_pooling modes[FL_POOL_COUNT];
    for (int p = 0; p < FL_POOL_COUNT; p++)
        modes[p] = (fl_pooling)p;
    for (uint32_t skip = 0; skip <= LENGTH; skip++) {
        fl_pool_rows(modes, FL_POOL_COUNT, &(fl_rows){table, HIDDEN, ids}, HIDDEN, LENGTH, skip,
                     chosen);
        fl_pool_rows(modes, FL_POOL_COUNT, &(fl_rows){x, HIDDEN, NULL}, HIDDEN, LENGTH, skip,
                     copied);
        cr_assert_arr_eq(chosen, copied, sizeof chosen, "skip %u", skip);
    }
}

/* ---- The engine ------------------------------------------------------------------------------- */

static const toy_spec spec = {.layers        = 2,
                              .hidden        = 48,
                              .heads         = 3,
                              .head_dim      = 16,
                              .mlp           = 64,
                              .vocab         = 50,
                              .positions     = 70,
                              .pooling       = {FL_POOL_MEAN},
                              .pooling_count = 1};

typedef struct fixture {
    toy          t;
    fl_config   *config;
    int32_t      ids[40 * 70];
    uint32_t     cu[41], skips[40];
    float        out[40 * 64];
    float       *rows[40];
    fl_batch     batch;
    fletch_error error;
} fixture;

static fl_engine *open_toy(fixture *f, const char *key, const char *value) {
    fl_engine *engine = NULL;
    toy_make(&f->t, &spec, 11);
    f->config = fletch_config_new();
    fletch_config_set(f->config, "onnxruntime.library", library_file(), NULL);
    if (key != NULL)
        cr_assert_eq(fletch_config_set(f->config, key, value, NULL), 0);
    fl_engine_options options = options_for(f->config, "cpu");
    options.max_length        = spec.positions;
    f->cu[0]                  = 0;
    for (uint32_t i = 0; i < 40; i++) {
        f->cu[i + 1] = f->cu[i] + 1 + toy_draw(&f->t.state, i < 20 ? 5 : spec.positions);
        f->rows[i]   = f->out + i * 48;
        f->skips[i]  = 0;
    }
    for (uint32_t i = 0; i < f->cu[40]; i++)
        f->ids[i] = (int32_t)toy_draw(&f->t.state, spec.vocab);
    f->batch =
        (fl_batch){.ids = f->ids, .cu = f->cu, .texts = 40, .tokens = f->cu[40], .rows = f->rows};
    fl_ort_engine_ops.open(&engine, &f->t.encoder, &options, &f->error);
    cr_assert_not_null(engine, "%s", f->error.message);
    return engine;
}

static void close_toy(fixture *f, fl_engine *engine) {
    fl_ort_engine_ops.close(engine);
    fletch_config_free(f->config);
    toy_free(&f->t);
}

static void check_rows(fixture *f, uint32_t skip) {
    double want[64];
    for (uint32_t i = 0; i < 40; i++) {
        toy_forward(&f->t.encoder, f->ids + f->cu[i], f->cu[i + 1] - f->cu[i], skip, want);
        for (size_t c = 0; c < 48; c++)
            cr_assert(fabs(f->rows[i][c] - want[c]) <= 2e-5, "text %u: %g, expected %g", i,
                      f->rows[i][c], want[c]);
    }
}

static bool there_is_none(void) {
    const fl_ort *ort = acquire();
    return ort == NULL;
}

Test(onnxruntime, rows_are_those_of_the_formula_wherever_they_go) {
    static fixture f;
    static float   first[40 * 48], scattered[40 * 64];
    if (there_is_none())
        return;
    fl_engine *engine = open_toy(&f, NULL, NULL);
    cr_assert_eq(fl_ort_engine_ops.forward(engine, 0, &f.batch, &f.error), 0, "%s",
                 f.error.message);
    check_rows(&f, 0);
    memcpy(first, f.out, sizeof first);
    for (uint32_t i = 0; i < 40; i++) /* far from each other: nothing can be written in place */
        f.rows[i] = scattered + (39 - i) * 64;
    uint64_t before = fl_alloc_count();
    cr_assert_eq(fl_ort_engine_ops.forward(engine, 0, &f.batch, &f.error), 0);
    cr_assert_eq(fl_alloc_count(), before, "forward allocates nothing");
    for (uint32_t i = 0; i < 40; i++)
        cr_assert_eq(memcmp(f.rows[i], first + i * 48, 48 * sizeof(float)), 0, "text %u", i);
    close_toy(&f, engine);
}

Test(onnxruntime, without_binding_the_bytes_are_the_same) {
    static fixture f;
    static float   bound[40 * 48];
    if (there_is_none())
        return;
    fl_engine *engine = open_toy(&f, NULL, NULL);
    cr_assert_eq(fl_ort_engine_ops.forward(engine, 0, &f.batch, &f.error), 0);
    memcpy(bound, f.out, sizeof bound);
    close_toy(&f, engine);
    memset(f.out, 0, sizeof f.out);
    engine = open_toy(&f, "io.binding", "false");
    cr_assert_eq(fl_ort_engine_ops.forward(engine, 0, &f.batch, &f.error), 0);
    cr_assert_eq(memcmp(bound, f.out, sizeof bound), 0);
    close_toy(&f, engine);
}

Test(onnxruntime, prompts_are_left_out) {
    static fixture f;
    if (there_is_none())
        return;
    fl_engine *engine = open_toy(&f, NULL, NULL);
    f.batch.pool_skip = f.skips;
    for (uint32_t i = 0; i < 40; i++)
        f.skips[i] = 2 < f.cu[i + 1] - f.cu[i] ? 2 : 0;
    cr_assert_eq(fl_ort_engine_ops.forward(engine, 0, &f.batch, &f.error), 0, "%s",
                 f.error.message);
    double want[64];
    for (uint32_t i = 0; i < 40; i++) {
        toy_forward(&f.t.encoder, f.ids + f.cu[i], f.cu[i + 1] - f.cu[i], f.skips[i], want);
        for (size_t c = 0; c < 48; c++)
            cr_assert(fabs(f.rows[i][c] - want[c]) <= 2e-5);
    }
    close_toy(&f, engine);
}

static int count_line(void *user, const char *name, const char *value, const char *origin) {
    (void)origin;
    if (strcmp(name, "onnxruntime.runs") == 0)
        cr_assert_not_null(strstr(value, "of them bound"));
    if (strcmp(name, "onnxruntime.io_binding") == 0)
        cr_assert_str_eq(value, "on");
    ++*(int *)user;
    return 0;
}

Test(onnxruntime, it_says_what_it_is) {
    static fixture f;
    int            lines = 0;
    if (there_is_none())
        return;
    fl_engine     *engine = open_toy(&f, NULL, NULL);
    fl_engine_info info;
    fl_ort_engine_ops.info(engine, &info);
    cr_assert_eq(info.slots, 1);
    cr_assert_str_eq(info.precision, "fp32");
    cr_assert(info.resident_bytes > 0);
    cr_assert_eq(fl_ort_engine_ops.warm(engine, &f.error), 0, "%s", f.error.message);
    cr_assert_eq(fl_ort_engine_ops.describe(engine, count_line, &lines), 0);
    cr_assert(lines >= 8);
    cr_assert(fl_ort_engine_ops.memory(engine, 8, 512, 70) > 0);
    close_toy(&f, engine);
}

Test(onnxruntime, opening_survives_every_lack_of_memory) {
    if (there_is_none())
        return;
    toy        t;
    fl_config *config = fletch_config_new();
    fletch_config_set(config, "onnxruntime.library", library_file(), NULL);
    toy_make(&t, &spec, 5);
    bool opened = false;
    for (uint64_t n = 1; n < 2000 && !opened; n++) {
        fl_engine        *engine  = NULL;
        fl_engine_options options = options_for(config, "cpu");
        fletch_error      error;
        fl_alloc_fail_after(n);
        int status = fl_ort_engine_ops.open(&engine, &t.encoder, &options, &error);
        fl_alloc_fail_after(0);
        cr_assert(status == 0 || status == FLETCH_ENOMEM, "%d %s", status, error.message);
        opened = status == 0;
        fl_ort_engine_ops.close(engine);
    }
    cr_assert(opened);
    toy_free(&t);
    fletch_config_free(config);
}
