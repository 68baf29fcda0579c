/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - our configuration becomes ONNX Runtime's session options, provider included.
 *
 * Role    ort_session.c asks for them once per session; a provider's probe asks whether the library
 *         takes the provider at all, which needs no model.
 * Method  Each key is set through the library's own function; ort_provider.c adds the provider.
 * Errors  A refused option is the library's own text.
 * Threads CPU runs get one thread each and the engine deals runs to its team: threads inside a run
 *         scale worse than texts side by side. A second session with several threads inside serves
 *         the batch that has fewer runs than threads. With parallel_execution the library's own inter-op
 *         pool works instead.
 * Proof   tests/unit/test_onnxruntime.c. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/os.h"
#include "engines/onnxruntime/ort.h"

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
    return fl_ort_provider_append(ort, o, inputs, s, error);
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
