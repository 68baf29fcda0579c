/* SPDX-License-Identifier: Apache-2.0 */
/* provider.c - the ordered chain of execution providers: the first that opens runs the model.
 *
 * Role    replica.c walks it when a set of replicas or a broken one is opened; `fletch doctor` asks it
 *         to describe the chain.
 * Method  provider.order is walked ("auto" stands for every provider whose hardware this machine has,
 *         best first). A provider is a device kind plus an engine that runs it: fletch's own where
 *         there is one, else ONNX Runtime; provider.engine chooses. A model that is only an .onnx file
 *         leaves the second. Each refusal is logged with its reason and how to mend it; when
 *         provider.fallback is true the walk goes on and the cpu stands at the end of every chain of
 *         several, otherwise the first entry of the list must do. One provider named alone is what was
 *         asked for and no wish: the cpu follows it only where provider.fallback was set to true, or
 *         where another program's word ([ai] provider, OP_DBUS_…) named it.
 * Errors  EPROVIDER with the last reason when none opens; a damaged model ends the walk at once, since
 *         another provider cannot mend it. Lack of memory does so on the cpu: a device's memory is its own.
 * Memory  none. Threads: reads the model and the configuration only.
 * Proof   tests/unit/test_fletch.c, tests/stress/test_schedule.c, tests/golden/test_onnxruntime.py. */
#include "scheduler/provider.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/error.h"
#include "scheduler/scheduler.h"
#include "scheduler/worker.h"

typedef struct provider {
    const char *name;   /* as the configuration stores it: "cuda", never "gpu" */
    const char *spoken; /* as in messages */
    const char *native; /* engine of our own, "" for none */
    /* two files of which one is there when the machine has such a device; "": none of this system has */
    const char *file, *other;
    const char *missing; /* what the machine lacks otherwise */
} provider;

#if defined(__APPLE__)
#define APPLE_HARDWARE "/"
#else
#define APPLE_HARDWARE ""
#endif
#if defined(_WIN32)
#define WINDOWS_HARDWARE "/"
#else
#define WINDOWS_HARDWARE ""
#endif
#if defined(__linux__) /* a simulated adapter has no such file: by its name alone */
#define GPU_HARDWARE "/dev/dri/renderD128"
#define NPU_HARDWARE "/dev/accel/accel0"
#else
#define GPU_HARDWARE "/"
#define NPU_HARDWARE "/"
#endif
#define NVIDIA_HARDWARE "/dev/nvidiactl", "/dev/dxg" /* the second: under Windows (WSL 2) */
#define NO_NVIDIA       "this machine has no NVIDIA driver (/dev/nvidiactl, /dev/dxg)"

static const char onnxruntime[] = "onnxruntime";

/* Best first: the order of "auto". */
static const provider providers[] = {
    {"plugin", "Plug-in", "", "", "", "onnxruntime.provider_library names no file"},
    {"cuda", "CUDA", "cuda", NVIDIA_HARDWARE, NO_NVIDIA},
    {"tensorrt", "TensorRT", "", NVIDIA_HARDWARE, NO_NVIDIA},
    {"coreml", "CoreML", "", APPLE_HARDWARE, "", "CoreML is part of macOS; this is another system"},
    {"directml", "DirectML", "", WINDOWS_HARDWARE, "",
     "DirectML is part of Windows; this is another system"},
    {"openvino", "OpenVINO", "", GPU_HARDWARE, NPU_HARDWARE,
     "this machine has no Intel GPU or NPU driver (/dev/dri, /dev/accel)"},
    {"webgpu", "WebGPU", "", GPU_HARDWARE, "", "this machine has no GPU driver (/dev/dri)"},
    {"cpu", "CPU", "cpu", "/", "", ""},
};

enum { PROVIDERS = sizeof providers / sizeof providers[0] };

static const provider *find_provider(const char *name) {
    for (unsigned i = 0; i < PROVIDERS; i++)
        if (strcmp(name, providers[i].name) == 0)
            return &providers[i];
    return NULL;
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static void engine_options(fl_scheduler *s, const fl_config *config, const char *kind,
                           fl_engine_options *out) {
    int64_t threads = fl_config_int(config, FL_KEY_CPU_INTRA_OP_THREADS);
    memset(out, 0, sizeof *out);
    out->provider      = kind;
    out->threads       = threads > 0 ? (uint32_t)threads : fl_cpu_usable();
    out->isa           = fl_config_text(config, FL_KEY_CPU_ISA);
    out->precision     = fl_config_text(config, FL_KEY_PROVIDER_PRECISION);
    out->weights       = fl_config_text(config, FL_KEY_MODEL_WEIGHTS);
    out->portable      = is(fl_config_text(config, FL_KEY_PROVIDER_NUMERICS), "portable");
    out->deterministic = fl_config_bool(config, FL_KEY_PROVIDER_DETERMINISTIC);
    out->memory_limit  = (uint64_t)fl_config_int(config, FL_KEY_CUDA_MEMORY_LIMIT);
    out->config        = config;
    out->log           = fl_config_log(config);
    if (!s)
        return;
    out->folder       = s->folder;
    out->onnx_file    = s->onnx_file;
    out->batch_tokens = s->batch_tokens;
    out->batch_texts  = FL_BATCH_TEXTS_MAX;
    out->max_length   = s->max_length;
    out->usual_length = s->usual_length;
    out->trace        = s->trace;
    out->fp32_retries = &s->stats.counter[FLETCH_COUNT_FP32_RETRIES];
}

static bool has_hardware(const provider *p, const fl_config *config) {
    assert(p->file && p->other);
    if (is(p->name, "plugin")) /* whoever names one has it */
        return fl_config_text(config, FL_KEY_ONNXRUNTIME_PROVIDER_LIBRARY)[0] != '\0';
    return !fl_config_bool(config, FL_KEY_PROVIDER_HARDWARE_DETECTION) ||
           access(p->file, F_OK) == 0 || access(p->other, F_OK) == 0;
}

static const fl_engine_ops *usable_engine(const provider *p, const char *name,
                                          const fl_config *config, uint32_t device,
                                          fl_probe *probe) {
    const fl_engine_ops *ops = fl_engine_find(name);
    fl_engine_options    options;
    *probe = (fl_probe){.usable = false};
    if (!ops) {
        snprintf(probe->reason, sizeof probe->reason, "this build has no %s engine",
                 name[0] ? name : "such");
        return NULL;
    }
    engine_options(NULL, config, p->name, &options);
    options.device = device;
    ops->probe(&options, probe);
    return probe->usable ? ops : NULL;
}

/* Whether a device of the provider does not answer: another library would wait for it without a limit. */
static bool any_hangs(const provider *p, const fl_engine_ops *ops, const fl_config *config) {
    fl_engine_options options;
    fl_probe          probe = {.hangs = false};
    engine_options(NULL, config, p->name, &options);
    uint32_t count = ops->devices ? ops->devices(&options) : 0;
    for (options.device = 0; options.device < count && !probe.hangs; options.device++)
        ops->probe(&options, &probe);
    return probe.hangs;
}

/* Both engines refused: our own first, since it is the one to mend. */
static void also(fl_probe *probe, const char *reason) {
    size_t size = strlen(probe->reason);
    snprintf(probe->reason + size, sizeof probe->reason - size, "; ONNX Runtime: %s", reason);
}

/* The engine that runs a provider: our own unless the configuration or the
 * model asks for ONNX Runtime. `weights` false: the model is an .onnx file. */
static const fl_engine_ops *provider_engine(const provider *p, const fl_config *config,
                                            bool weights, uint32_t device, fl_probe *probe) {
    const char          *asked = fl_config_text(config, FL_KEY_PROVIDER_ENGINE);
    const fl_engine_ops *ops   = NULL;
    *probe                     = (fl_probe){.usable = false};
    if (is(asked, "native") && (!p->native[0] || !weights)) {
        snprintf(probe->reason, sizeof probe->reason,
                 "provider.engine native: %s; set provider.engine to auto or "
                 "onnxruntime",
                 weights ? "only ONNX Runtime runs this provider"
                         : "the model is only an .onnx file, which fletch's own "
                           "engines do not read");
        return NULL;
    }
    const bool own = !is(asked, onnxruntime) && p->native[0] && weights;
    if (own)
        ops = usable_engine(p, p->native, config, device, probe);
    if (!ops && !is(asked, "native") && !(is(p->name, "cpu") && weights && is(asked, "auto"))) {
        fl_probe second;
        ops = usable_engine(p, onnxruntime, config, device, &second);
        if (ops || !own)
            *probe = second;
        else
            also(probe, second.reason);
    }
    return ops;
}

/* A walk along the chain. */
typedef struct walk {
    fl_scheduler    *scheduler;
    const fl_config *config;
    fl_provider_fn   open;
    void            *arg;
    fletch_error    *error;   /* not NULL: refusals are logged from it */
    unsigned         refused; /* providers that could not be opened */
    bool             goes_on; /* after one that was refused */
} walk;

/* EPROVIDER means: not this one, the next may do. Every other failure would
 * meet the next one too.
 */
static int open_one(const walk *w, const provider *p) {
    assert(p && w->error);
    fl_probe             probe;
    bool                 weights = w->scheduler->encoder->layer != NULL;
    const fl_engine_ops *ops     = NULL;
    if (p->file[0] == '\0' && !has_hardware(p, w->config)) /* no library mends that */
        snprintf(probe.reason, sizeof probe.reason, "%s", p->missing);
    else
        ops = provider_engine(p, w->config, weights, 0, &probe);
    if (!ops)
        return fl_fail(w->error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%s execution provider requested but not available: %s", p->spoken,
                       probe.reason);
    fl_engine_options options;
    engine_options(w->scheduler, w->config, p->name, &options);
    fl_log_write(options.log, FL_LOG_DEBUG, "provider %s: %s", p->name, probe.reason);
    int status = w->open(w->arg, ops, p->name, &options, w->error);
    /* A card that our own engine does not serve, or not for this model, may do for ONNX Runtime. */
    if (status != FLETCH_EPROVIDER || !is(ops->name, p->native) || is(p->name, "cpu") ||
        !is(fl_config_text(w->config, FL_KEY_PROVIDER_ENGINE), "auto") ||
        any_hangs(p, ops, w->config))
        return status;
    ops = usable_engine(p, onnxruntime, w->config, 0, &probe);
    if (!ops) {
        const fletch_error own = *w->error;
        return fl_fail(w->error, status, own.where, "%s; ONNX Runtime: %s", own.message,
                       probe.reason);
    }
    fl_log_write(options.log, FL_LOG_INFO, "%s; trying ONNX Runtime", w->error->message);
    return w->open(w->arg, ops, p->name, &options, w->error);
}

static int try_next(walk *w, const provider *p, bool wanted) {
    int  status = open_one(w, p);
    bool full   = status == FLETCH_ENOMEM && w->goes_on && !is(p->name, "cpu");
    if (full)
        status = w->error->code = FLETCH_EPROVIDER;
    w->refused += status == FLETCH_EPROVIDER;
    if (status == FLETCH_EPROVIDER)
        fl_log_write(fl_config_log(w->config), wanted || full ? FL_LOG_WARNING : FL_LOG_DEBUG, "%s",
                     w->error->message);
    return status;
}

/* Whether refusals are passed over: not where one provider alone was named, by a name of ours, and
 * nobody asked for more. */
static bool goes_on(const fl_config *config) {
    char name[32];
    bool alone = !fl_config_is_foreign(config, FL_KEY_PROVIDER_ORDER) &&
                 !fl_config_list_item(config, FL_KEY_PROVIDER_ORDER, 1, name, sizeof name) &&
                 strcmp(fl_config_text(config, FL_KEY_PROVIDER_ORDER), "auto") != 0;
    return fl_config_bool(config, FL_KEY_PROVIDER_FALLBACK) &&
           (!alone || fl_config_is_set(config, FL_KEY_PROVIDER_FALLBACK));
}

/* Why a provider is tried: provider.order or the file of a plug-in names it, its "auto" takes it, or it
 * stands behind all of them. */
typedef enum candidacy { NAMED, CHOSEN, LAST } candidacy;

typedef struct candidate {
    const provider *provider;
    candidacy       why;
} candidate;

static void add_candidate(candidate *chain, unsigned *count, const provider *p, candidacy why) {
    for (unsigned i = 0; i < *count; i++)
        if (chain[i].provider == p)
            return;
    chain[(*count)++] = (candidate){p, why};
}

/* provider.order spelled out, each provider once; the first entry alone where refusals are not passed
 * over. Without auto_selection "auto" is the processor. Libraries of devices that the machine does not
 * have are not even looked for: that would cost every start a search. */
static int chain_of(const fl_config *config, candidate chain[PROVIDERS], unsigned *count,
                    fletch_error *error) {
    bool choose   = fl_config_bool(config, FL_KEY_PROVIDER_AUTO_SELECTION);
    bool fallback = goes_on(config);
    char name[32];
    *count = 0;
    for (unsigned i = 0; (i == 0 || fallback) &&
                         fl_config_list_item(config, FL_KEY_PROVIDER_ORDER, i, name, sizeof name);
         i++) {
        const provider *p = find_provider(name);
        if (!p && !is(name, "auto"))
            return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "provider.order: \"%s\" is not a provider", name);
        if (p)
            add_candidate(chain, count, p, NAMED);
        for (unsigned one = 0; !p && one < PROVIDERS; one++)
            if (is(providers[one].name, "cpu") || (choose && has_hardware(&providers[one], config)))
                add_candidate(chain, count, &providers[one],
                              is(providers[one].name, "plugin") ? NAMED : CHOSEN);
    }
    if (fallback)
        add_candidate(chain, count, find_provider("cpu"), LAST);
    return FLETCH_OK;
}

int fl_provider_walk(fl_scheduler *scheduler, const fl_config *config, const char *only,
                     fl_provider_fn open, void *arg, fletch_error *error) {
    assert(open && (!only || find_provider(only)));
    fletch_error own;
    candidate    chain[PROVIDERS];
    unsigned     count;
    bool         fallback = goes_on(config);
    walk         w        = {scheduler, config, open, arg, error ? error : &own, 0, fallback};
    int          status   = FLETCH_EPROVIDER;
    if (only != NULL)
        return open_one(&w, find_provider(only));
    FL_TRY(chain_of(config, chain, &count, error));
    for (unsigned i = 0; i < count && status == FLETCH_EPROVIDER; i++) {
        const candidate *c = &chain[i];
        if (c->why == LAST)
            fl_log_write(fl_config_log(config), FL_LOG_WARNING,
                         "no provider of provider.order is usable: falling back to cpu");
        else if (c->why == NAMED && w.refused > 0)
            fl_log_write(fl_config_log(config), FL_LOG_WARNING, "falling back to %s",
                         c->provider->name);
        /* a refusal is the error itself where nobody follows */
        status = try_next(&w, c->provider, c->why == NAMED ? fallback : c->why == LAST);
    }
    if (status == FLETCH_OK && w.refused > 0)
        fl_stats_add(&scheduler->stats, FLETCH_COUNT_PROVIDER_FALLBACKS, 1);
    return status;
}

bool fl_provider_is_usable(const fl_scheduler *scheduler, const fl_config *config, const char *name,
                           uint32_t device) {
    assert(find_provider(name));
    fl_probe probe;
    bool     weights = scheduler->encoder->layer != NULL;
    return provider_engine(find_provider(name), config, weights, device, &probe) && !probe.hangs;
}

/* Usable, or why not: a device that is not there explains more than a library
 * that is not. */
static bool describe_one(const provider *p, const fl_config *config, fl_probe *probe) {
    if (!has_hardware(p, config)) {
        probe->usable = false;
        snprintf(probe->reason, sizeof probe->reason, "%s", p->missing);
        return false;
    }
    return provider_engine(p, config, true, 0, probe) && !probe->hangs;
}

/* Who of provider.order is opened now, and who takes over when it falls out, one after the other. */
static int describe_chain(const fl_config *config, const bool usable[PROVIDERS],
                          fletch_property_fn fn, void *user) {
    candidate chain[PROVIDERS];
    char      value[128] = "";
    unsigned  count, found = 0;
    if (chain_of(config, chain, &count, NULL) < 0)
        return 0; /* opening says what is wrong */
    for (unsigned i = 0; i < count; i++) {
        size_t size = strlen(value);
        if (usable[chain[i].provider - providers])
            snprintf(value + size, sizeof value - size, "%s%s", found++ ? ", then " : "",
                     chain[i].provider->name);
    }
    return fn(user, "provider.chain", found ? value : "none",
              found > 1   ? "the selected provider, and its fallback"
              : found > 0 ? "no fallback is configured"
                          : "the reason is above");
}

/* What runs the provider cpu besides our own engine, and other providers:
 * found, or why not. */
static int describe_onnxruntime(const fl_config *config, fletch_property_fn fn, void *user) {
    fl_probe probe;
    char     value[sizeof probe.reason + 16];
    bool     usable = usable_engine(find_provider("cpu"), onnxruntime, config, 0, &probe) != NULL;
    snprintf(value, sizeof value, "%s: %s", usable ? "usable" : "no", probe.reason);
    return fn(user, onnxruntime, value, "");
}

/* The devices behind the first, where a provider has several. */
static int describe_devices(const provider *p, const fl_config *config, fletch_property_fn fn,
                            void *user) {
    const fl_engine_ops *ops = fl_engine_find(p->native);
    fl_engine_options    options;
    engine_options(NULL, config, p->name, &options);
    uint32_t count = ops && ops->devices ? ops->devices(&options) : 0;
    int      stop  = 0;
    for (options.device = 1; options.device < count && stop == 0; options.device++) {
        fl_probe probe = {.usable = false};
        char     name[48];
        snprintf(name, sizeof name, "provider.%s.%u", p->name, options.device);
        ops->probe(&options, &probe);
        stop = fn(user, name, probe.reason, "");
    }
    return stop;
}

int fl_provider_describe(const fl_config *config, fletch_property_fn fn, void *user) {
    bool usable[PROVIDERS];
    for (unsigned i = 0; i < PROVIDERS; i++) {
        fl_probe probe;
        char     name[48], value[sizeof probe.reason + 16];
        usable[i] = describe_one(&providers[i], config, &probe);
        snprintf(name, sizeof name, "provider.%s", providers[i].name);
        snprintf(value, sizeof value, "%s: %s", usable[i] ? "usable" : "no", probe.reason);
        int stop = fn(user, name, value, "");
        if (stop == 0 && usable[i] && is(providers[i].name, "cuda"))
            stop = describe_devices(&providers[i], config, fn, user);
        if (stop)
            return stop;
    }
    int stop = describe_onnxruntime(config, fn, user);
    return stop ? stop : describe_chain(config, usable, fn, user);
}
