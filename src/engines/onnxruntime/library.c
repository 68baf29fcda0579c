/* SPDX-License-Identifier: Apache-2.0 */
/* library.c - open ONNX Runtime: probe it, check its version, copy our slots, make its environment.
 *
 * Role    fl_ort_acquire gives ort_engine.c the one library of the process; provider probes use it too.
 * Method  Loading a library runs its code, so that a file is looked at first: an ELF library for this
 *         machine that exports our door; a stranger is not loaded to see what it is. The version text is
 *         read before anything is asked for, since a library too old for our table prints a complaint of
 *         its own.
 * Privacy Official builds since 1.29 send telemetry unless ORT_DISABLE_TELEMETRY is set before the
 *         library is loaded, so that it is set here, always.
 * Memory  The one exception to "no mutable global state": ONNX Runtime's environment is one object
 *         per process whatever a caller wants. It is kept to the end of the process: what a provider
 *         left half made dies in ReleaseEnv (WebGPU without a Vulkan device), and making it again
 *         costs each opening a search.
 * Threads A lock around acquire. setenv is not safe beside another thread's getenv: the
 *         first model of a process that uses this engine should be opened before threads that read
 *         the environment start (or set the variable outside).
 * Proof   tests/unit/test_onnxruntime.c, tests/golden/test_onnxruntime.py. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/thread.h"
#include "engines/onnxruntime/locate.h"
#include "engines/onnxruntime/ort.h"

enum { PLUGINS_MAX = 8, REGISTERING_SECONDS = 30 };

static struct {
    pthread_mutex_t lock;
    fl_ort         *ort; /* owned by the process; NULL: none opened yet */
    fl_ort_plugin   plugins[PLUGINS_MAX];
    unsigned        plugin_count;
    bool            stuck; /* a plug-in does not come back, and holds ONNX Runtime's lock */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What a device said first since somebody asked. A lock of its own: whoever registers a plug-in may hear. */
static struct {
    pthread_mutex_t lock;
    char            words[FL_ORT_WORDS];
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char base_door[] = "OrtGetApiBase", factories[] = "CreateEpFactories";

/* ---- Opening ---------------------------------------------------------------------------------- */

/* Load the file and find its door; NULL, and why not in `why`. */
static const OrtApiBase *load(const char *path, char *why, size_t capacity) {
    const OrtApiBase *(*base)(void);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *words = dlerror();
        snprintf(why, capacity, "%s", words == NULL ? "it does not load" : words);
        return NULL;
    }
    void *symbol = dlsym(handle, "OrtGetApiBase");
    dlclose(handle); /* stays mapped: RTLD_NODELETE */
    snprintf(why, capacity, "it has no symbol OrtGetApiBase");
    memcpy(&base, &symbol, sizeof base); /* ISO C has no cast from object to function pointer */
    return symbol == NULL ? NULL : base();
}

/* NULL, or what keeps dlopen from touching the file, which has to export `door`. What cannot be read is
 * the loader's to tell. */
static const char *refusal(const char *path, const char *door) {
    fl_map map;
    if (strchr(path, '/') == NULL || fl_map_open(&map, path, NULL) < 0)
        return NULL; /* the loader finds a bare name */
    const char *why = fl_os_no_library(map.data, map.size);
    if (why == NULL && memmem(map.data, map.size, door, strlen(door) + 1) == NULL)
        why = door == factories ? "it has no symbol CreateEpFactories"
                                : "it has no symbol OrtGetApiBase";
    fl_map_close(&map);
    return why;
}

/* "1.31.1" -> 31; EPROVIDER for what is no 1.x or too old. */
static int check_version(fl_ort *ort, const char *text, const fl_log *log, fletch_error *error) {
    unsigned major = 0;
    snprintf(ort->version, sizeof ort->version, "%s", text == NULL ? "" : text);
    if (sscanf(ort->version, "%u.%u", &major, &ort->minor) != 2)
        major = 0;
    if (major != 1 || ort->minor < FL_ORT_API_OLDEST)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.300s is ONNX Runtime \"%s\"; fletch needs 1.%d or newer and is tested up "
                       "to 1.%d. Install a newer one (make onnxruntime) or name it with "
                       "onnxruntime.library",
                       ort->path, ort->version, FL_ORT_API_OLDEST, FL_ORT_API_NEWEST);
    if (ort->minor > FL_ORT_API_NEWEST)
        fl_log_write(log, FL_LOG_INFO, "ONNX Runtime %s is newer than 1.%d, the newest tested",
                     ort->version, FL_ORT_API_NEWEST);
    return FLETCH_OK;
}

/* The library is silent on its own: sessions have loggers that lead to the caller's. What a device says
 * comes here alone, though: that WebGPU has no memory left is in no status, which tell of the
 * buffers that are missing then. */
static void hear(void *param, OrtLoggingLevel severity, const char *category, const char *logid,
                 const char *where, const char *message) {
    (void)param, (void)severity, (void)category, (void)logid, (void)where;
    if (strstr(message, "device error(") == NULL)
        return;
    pthread_mutex_lock(&heard.lock);
    if (heard.words[0] == '\0') /* the first is the cause of the others */
        fl_ort_words(message, heard.words);
    pthread_mutex_unlock(&heard.lock);
}

void fl_ort_heard(char out[FL_ORT_WORDS]) {
    pthread_mutex_lock(&heard.lock);
    memcpy(out, heard.words, sizeof heard.words);
    heard.words[0] = '\0';
    pthread_mutex_unlock(&heard.lock);
}

#define COPY_SLOT(index, type, name, parameters)                                                   \
    memcpy(&target->name, table + (index), sizeof target->name);
static void copy_slots(fl_ort_api *target, void *const *table) {
    FL_ORT_SLOTS(COPY_SLOT)
}
static void copy_editor_slots(fl_ort_editor_api *target, void *const *table) {
    FL_ORT_EDITOR_SLOTS(COPY_SLOT)
}
#undef COPY_SLOT

static int make_environment(fl_ort *ort, fletch_error *error) {
    OrtStatus *status =
        ort->api.CreateEnvWithCustomLogger(hear, NULL, ORT_LOG_ERROR, "fletch", &ort->env);
    if (status == NULL)
        status = ort->api.DisableTelemetryEvents(ort->env);
    if (status == NULL)
        status = ort->api.CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &ort->cpu);
    if (status == NULL)
        status = ort->api.GetAllocatorWithDefaultOptions(&ort->allocator);
    return fl_ort_check(ort, status, FLETCH_EPROVIDER, error,
                        "ONNX Runtime's environment cannot be made");
}

static int open_tables(fl_ort *ort, const OrtApiBase *base, const fl_log *log,
                       fletch_error *error) {
    FL_TRY(check_version(ort, base->GetVersionString(), log, error));
    const void *table = base->GetApi(FL_ORT_API_OLDEST);
    if (table == NULL)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.300s: OrtGetApiBase()->GetApi(%d) returns NULL; the library is damaged",
                       ort->path, FL_ORT_API_OLDEST);
    copy_slots(&ort->api, table);
    const void *editor = ort->api.GetModelEditorApi();
    if (editor == NULL)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.300s: GetModelEditorApi returns NULL: a minimal build of ONNX Runtime; "
                       "use a full one (make onnxruntime)",
                       ort->path);
    copy_editor_slots(&ort->editor, editor);
    return make_environment(ort, error);
}

/* The file behind a bare name, as the loader resolved it. */
static void resolve_path(fl_ort *ort, const OrtApiBase *base, const char *path) {
    Dl_info where;
    snprintf(ort->path, sizeof ort->path, "%s", path);
    if (strchr(path, '/') == NULL && dladdr((const void *)base, &where) != 0 && where.dli_fname)
        snprintf(ort->path, sizeof ort->path, "%s", where.dli_fname);
}

static int open_library(fl_ort **out, const char *path, const fl_log *log, fletch_error *error) {
    setenv("ORT_DISABLE_TELEMETRY", "1", 1);
    char              words[200];
    const char       *why  = refusal(path, base_door);
    const OrtApiBase *base = why == NULL ? load(path, words, sizeof words) : NULL;
    if (base == NULL)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.220s is not a usable ONNX Runtime library: %.199s", path,
                       why != NULL ? why : words);
    fl_ort *ort = fl_alloc_zero(1, sizeof *ort);
    if (ort == NULL)
        return fl_fail_nomem(error, sizeof *ort, "ONNX Runtime");
    resolve_path(ort, base, path);
    int status = open_tables(ort, base, log, error);
    if (status < 0) {
        fl_free(ort); /* an environment that was half made stays */
        return status;
    }
    fl_log_write(log, FL_LOG_DEBUG, "ONNX Runtime %s from %s", ort->version, ort->path);
    *out = ort;
    return FLETCH_OK;
}

/* ---- The search ------------------------------------------------------------------------------- */

typedef struct attempt {
    fl_ort       *ort;
    const fl_log *log;
    fletch_error  first; /* of the first file that was there and refused */
    bool          refused;
    bool          named; /* by the configuration: its refusal counts even when there is no file */
} attempt;

static int try_path(void *user, const char *path) {
    attempt     *a = user;
    fletch_error error;
    fl_error_clear(&error);
    int status = open_library(&a->ort, path, a->log, &error);
    if (status == FLETCH_OK)
        return 1;
    if (status == FLETCH_ENOMEM) {
        a->first   = error;
        a->refused = true;
        return 1;
    }
    /* The loader's bare name stands for "not installed" when nothing has it. */
    if (!a->refused && (a->named || strchr(path, '/') != NULL)) {
        a->first   = error;
        a->refused = true;
    }
    if (strchr(path, '/') != NULL)
        fl_log_write(a->log, FL_LOG_DEBUG, "%s", error.message);
    return 0;
}

static int open_first(fl_ort **out, const char *library, const fl_log *log, fletch_error *error) {
    attempt a = {.log = log, .named = library != NULL && library[0] != '\0'};
    fl_ort_locate(library, try_path, &a);
    *out = a.ort;
    if (a.ort != NULL)
        return FLETCH_OK;
    if (a.refused)
        return fl_fail(error, a.first.code, FLETCH_NOWHERE, "%s", a.first.message);
    if (a.named)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "onnxruntime.library: no ONNX Runtime library in the folder %.300s",
                       library);
    return fl_fail(
        error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
        "no ONNX Runtime library (libonnxruntime) was found beside the program, in the "
        "library folders or in a Python's onnxruntime package. Get one with `make "
        "onnxruntime` or `pip install onnxruntime`, or name it with onnxruntime.library");
}

int fl_ort_acquire(const fl_ort **out, const char *library, const fl_log *log,
                   fletch_error *error) {
    int status = FLETCH_OK;
    pthread_mutex_lock(&process.lock);
    if (process.stuck)
        status = fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                         "ONNX Runtime still registers the plug-in that was opened before; restart "
                         "the program without onnxruntime.provider_library");
    else if (process.ort == NULL)
        status = open_first(&process.ort, library, log, error);
    *out = process.ort;
    pthread_mutex_unlock(&process.lock);
    return status;
}

/* ---- Plug-ins --------------------------------------------------------------------------------- */

/* One registration, which may never end. */
typedef struct registration {
    const fl_ort   *ort;
    char            name[32], path[FL_OS_PATH], native[FL_OS_PATH];
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    OrtStatus      *status;
    bool            over, left; /* by who waits: the thread frees it */
} registration;

static void free_registration(registration *r) {
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    fl_free(r);
}

static void *run_registration(void *arg) {
    registration *r      = arg;
    OrtStatus    *status = r->ort->api.RegisterExecutionProviderLibrary(
           r->ort->env, r->name, fl_os_native_path(r->path, r->native, sizeof r->native));
    pthread_mutex_lock(&r->lock);
    r->status = status;
    r->over   = true;
    bool left = r->left;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (left)
        free_registration(r);
    return NULL;
}

/* It runs code of the file: in a thread of its own, which is left when it takes too long. */
static int run_bounded(const char *path, OrtStatus **refused, fletch_error *error) {
    registration *r = fl_alloc_zero(1, sizeof *r);
    pthread_t     thread;
    if (r == NULL)
        return fl_fail_nomem(error, sizeof *r, "a plug-in's registration");
    r->ort = process.ort;
    snprintf(r->name, sizeof r->name, "fletch%u", process.plugin_count);
    /* A relative path would be looked for beside ONNX Runtime; what is nowhere, the loader may know by its name. */
    if (realpath(path, r->path) == NULL)
        snprintf(r->path, sizeof r->path, "%s", path);
    pthread_mutex_init(&r->lock, NULL);
    fl_cond_init(&r->changed);
    int status = fl_thread_start(&thread, "fl-plugin", run_registration, r, error);
    if (status != FLETCH_OK) {
        free_registration(r);
        return status;
    }
    pthread_detach(thread);
    const uint64_t until = fl_clock_ns() + REGISTERING_SECONDS * UINT64_C(1000000000);
    pthread_mutex_lock(&r->lock);
    while (!r->over && fl_clock_ns() < until)
        fl_cond_wait_until(&r->changed, &r->lock, until);
    r->left       = !r->over;
    bool over     = r->over;
    *refused      = r->status;
    process.stuck = r->left;
    pthread_mutex_unlock(&r->lock);
    if (over)
        free_registration(r);
    return over ? FLETCH_OK
                : fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                          "onnxruntime.provider_library: %.250s did not register within %d "
                          "seconds; it hangs, or waits for a device",
                          path, REGISTERING_SECONDS);
}

/* Make the library's file known to ONNX Runtime; the devices that its list has gained are the plug-in's. */
static int register_plugin(fl_ort_plugin *out, const char *path, fletch_error *error) {
    const fl_ort             *ort    = process.ort;
    const OrtEpDevice *const *all    = NULL;
    size_t                    before = 0, after = 0;
    const char               *why = refusal(path, factories);
    if (why != NULL)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "onnxruntime.provider_library: %.250s is not an execution provider: %s",
                       path, why);
    OrtStatus *status = ort->api.GetEpDevices(ort->env, &all, &before);
    if (status == NULL)
        FL_TRY(run_bounded(path, &status, error));
    if (status == NULL)
        status = ort->api.GetEpDevices(ort->env, &all, &after);
    if (status != NULL) {
        int code = fl_ort_refuse(ort, path, ort->api.GetErrorMessage(status), "", error);
        ort->api.ReleaseStatus(status);
        return code;
    }
    snprintf(out->path, sizeof out->path, "%s", path);
    if (after > before)
        snprintf(out->provider, sizeof out->provider, "%s", ort->api.EpDevice_EpName(all[before]));
    return FLETCH_OK;
}

int fl_ort_plugin_open(const fl_ort_plugin **out, const char *path, fletch_error *error) {
    int      status = FLETCH_OK;
    unsigned i      = 0;
    pthread_mutex_lock(&process.lock);
    while (i < process.plugin_count && strcmp(process.plugins[i].path, path) != 0)
        i++;
    if (i == PLUGINS_MAX)
        status =
            fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                    "onnxruntime.provider_library: a process can open at most %d", PLUGINS_MAX);
    else if (i == process.plugin_count)
        status = register_plugin(&process.plugins[i], path, error);
    if (status == FLETCH_OK && i == process.plugin_count)
        process.plugin_count++;
    *out = &process.plugins[i < PLUGINS_MAX ? i : 0];
    pthread_mutex_unlock(&process.lock);
    return status;
}
