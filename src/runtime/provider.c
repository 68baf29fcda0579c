/* SPDX-License-Identifier: Apache-2.0 */
/* provider.c - the ordered chain of execution providers: the first that opens runs the model.
 *
 * Role    open.c calls it once per model; `fletch doctor` asks it to describe the chain.
 * Method  provider.order is walked ("auto" stands for every provider this build knows, best first).
 *         A provider is an engine plus a device kind. Each refusal is logged with its reason and
 *         how to mend it; when provider.fallback is true the walk goes on and the cpu stands at the
 *         end of every chain, otherwise the first entry of the list must do.
 * Errors  EPROVIDER with the last reason when none opens; a damaged model or lack of memory ends
 *         the walk at once, since another provider cannot mend it.
 * Memory  none beyond the engine, which the model owns. Threads: during opening only.
 * Proof   tests/unit/test_fletch.c. */
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"
#include "runtime/runtime.h"

typedef struct provider {
    const char *name;   /* as the configuration stores it: "cuda", never "gpu" */
    const char *engine; /* NULL: no engine of this build runs it */
    const char *absent; /* why not */
} provider;

/* Best first: the order of "auto". */
static const provider providers[] = {
    {"cuda", NULL, "this build has no CUDA engine; use the cpu provider"},
    {"tensorrt", NULL, "this build has no ONNX Runtime engine; use the cpu provider"},
    {"coreml", NULL, "this build has no ONNX Runtime engine; use the cpu provider"},
    {"directml", NULL, "this build has no ONNX Runtime engine; use the cpu provider"},
    {"cpu", "cpu", ""},
};

enum { PROVIDERS = sizeof providers / sizeof providers[0] };

static const provider *find_provider(const char *name) {
    for (unsigned i = 0; i < PROVIDERS; i++)
        if (strcmp(name, providers[i].name) == 0)
            return &providers[i];
    return NULL;
}

static void engine_options(const fl_config *config, const char *kind, fl_engine_options *out) {
    int64_t threads = fl_config_int(config, FL_KEY_CPU_INTRA_OP_THREADS);
    memset(out, 0, sizeof *out);
    out->provider  = kind;
    out->threads   = threads > 0 ? (uint32_t)threads : fl_cpu_usable();
    out->isa       = fl_config_text(config, FL_KEY_CPU_ISA);
    out->precision = fl_config_text(config, FL_KEY_PROVIDER_PRECISION);
    out->config    = config;
    out->log       = fl_config_log(config);
}

static const fl_engine_ops *provider_engine(const provider *p, const fl_config *config,
                                            fl_probe *probe) {
    probe->usable = false;
    if (!p->engine) {
        snprintf(probe->reason, sizeof probe->reason, "%s", p->absent);
        return NULL;
    }
    if (strcmp(fl_config_text(config, FL_KEY_PROVIDER_ENGINE), "onnxruntime") == 0) {
        snprintf(
            probe->reason, sizeof probe->reason,
            "provider.engine asks for onnxruntime, which this build does not have; use native");
        return NULL;
    }
    const fl_engine_ops *ops = fl_engine_find(p->engine);
    if (!ops) {
        snprintf(probe->reason, sizeof probe->reason, "this build has no %s engine", p->engine);
        return NULL;
    }
    fl_engine_options options;
    engine_options(config, p->name, &options);
    ops->probe(&options, probe);
    return probe->usable ? ops : NULL;
}

/* EPROVIDER means: not this one, the next may do. Every other failure would meet the next one too.
 */
static int open_one(fletch_model *m, const provider *p, fletch_error *error) {
    fl_probe             probe;
    const fl_engine_ops *ops = provider_engine(p, m->config, &probe);
    if (!ops)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE, "provider %s: %s", p->name,
                       probe.reason);
    fl_engine_options options;
    engine_options(m->config, p->name, &options);
    options.folder       = m->model->folder;
    options.batch_tokens = m->batch_tokens + m->length_limit;
    options.batch_texts  = FL_BATCH_TEXTS_MAX;
    options.max_length   = m->length_limit;
    int status           = ops->open(&m->engine, &m->model->encoder, &options, error);
    if (status < 0)
        return status;
    m->ops = ops;
    snprintf(m->provider, sizeof m->provider, "%s", p->name);
    fl_log_write(options.log, FL_LOG_DEBUG, "provider %s: %s", p->name, probe.reason);
    return FLETCH_OK;
}

/* `error` is not NULL: the refusal is logged from it. */
static int try_next(fletch_model *m, const provider *p, bool wanted, fletch_error *error) {
    int status = open_one(m, p, error);
    if (status == FLETCH_EPROVIDER)
        fl_log_write(fl_config_log(m->config), wanted ? FL_LOG_WARNING : FL_LOG_DEBUG, "%s",
                     error->message);
    return status;
}

static int try_auto(fletch_model *m, fletch_error *error) {
    int status = FLETCH_EPROVIDER;
    for (unsigned i = 0; i < PROVIDERS && status == FLETCH_EPROVIDER; i++)
        status = try_next(m, &providers[i], false, error);
    return status;
}

int fl_provider_open(fletch_model *m, fletch_error *error) {
    fletch_error  own;
    fletch_error *e = error ? error : &own; /* refusals are logged from it */
    char          name[32];
    int           status   = FLETCH_EPROVIDER;
    bool          saw_cpu  = false;
    bool          fallback = fl_config_bool(m->config, FL_KEY_PROVIDER_FALLBACK);
    for (unsigned i = 0;
         status == FLETCH_EPROVIDER && (i == 0 || fallback) &&
         fl_config_list_item(m->config, FL_KEY_PROVIDER_ORDER, i, name, sizeof name);
         i++) {
        if (strcmp(name, "auto") == 0) {
            status  = try_auto(m, e);
            saw_cpu = true; /* it stands at the end of auto */
            continue;
        }
        const provider *p = find_provider(name);
        if (!p)
            return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "provider.order: \"%s\" is no provider", name);
        saw_cpu = saw_cpu || strcmp(p->name, "cpu") == 0;
        status  = try_next(m, p, true, e);
    }
    if (status == FLETCH_EPROVIDER && !saw_cpu && fallback) {
        fl_log_write(fl_config_log(m->config), FL_LOG_WARNING,
                     "no provider of provider.order is usable: falling back to cpu");
        status = try_next(m, find_provider("cpu"), true, e);
    }
    return status;
}

int fl_provider_describe(const fl_config *config, fletch_property_fn fn, void *user) {
    for (unsigned i = 0; i < PROVIDERS; i++) {
        fl_probe probe;
        bool     usable = provider_engine(&providers[i], config, &probe) != NULL;
        char     name[48], value[sizeof probe.reason + 16];
        snprintf(name, sizeof name, "provider.%s", providers[i].name);
        snprintf(value, sizeof value, "%s: %s", usable ? "usable" : "no", probe.reason);
        int stop = fn(user, name, value, "");
        if (stop)
            return stop;
    }
    return 0;
}
