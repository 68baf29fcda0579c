/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c - the CUDA engine as the core sees it: find its module, look it over, forward to it.
 *
 * Role    fl_cuda_engine_ops stands in the registry of every build. The engine itself is a module of its
 *         own, libfletch_cuda.so, so that program and library need nothing of CUDA to build or start.
 * Method  cuda.module names the file or its folder. Otherwise it is looked for beside the program or
 *         library that this code is in, where `make install` lays it, and along the dynamic loader's
 *         own path. The first place that has one decides: a module that does not fit is refused with
 *         its reason, and no other is tried behind its back. abi, layout and version are read before
 *         any function of it is called.
 * Memory  The one handle of the process, since a driver's contexts are the process's too. The module
 *         stays mapped: buffers that it allocated may outlive the model that asked for them.
 * Threads A lock around opening; afterwards the door is read through an atomic pointer.
 * Proof   tests/cli/test_cli_cuda.py with modules made for it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/os.h"
#include "engines/cuda/cuda_loader.h"

#define MODULE "libfletch_cuda.so"

enum { PLACE_MAX = 1024 };

static struct {
    pthread_mutex_t               lock;
    _Atomic(const fl_cuda_door *) door; /* NULL until a module was opened; never closed */
    char                          path[PLACE_MAX];
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- Opening ---------------------------------------------------------------------------------- */

static int check(const fl_cuda_door *door, const char *path, fletch_error *error) {
    static const char mend[] = "take the module of the same build (make cuda) or name it with "
                               "cuda.module";
    if (door->abi != FL_ENGINE_ABI)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.200s has engine ABI %u, this fletch has %d: %s", path, door->abi,
                       FL_ENGINE_ABI, mend);
    if (strcmp(door->version, FLETCH_VERSION) != 0)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.200s belongs to fletch %.30s, this is fletch %s: %s", path, door->version,
                       FLETCH_VERSION, mend);
    if (door->layout != FL_CUDA_LAYOUT || door->ops->abi != FL_ENGINE_ABI)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.200s was built from other sources of fletch %s: %s", path, FLETCH_VERSION,
                       mend);
    return FLETCH_OK;
}

/* Open one file; `path` without a slash is left to the dynamic loader. */
static int open_file(const char *path, fletch_error *error) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *words = dlerror();
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "the CUDA module does not load: %.300s", words ? words : path);
    }
    const fl_cuda_door *door = dlsym(handle, FL_CUDA_SYMBOL);
    int                 status;
    if (!door)
        status = fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                         "%.200s is not a CUDA module of fletch: it has no symbol " FL_CUDA_SYMBOL
                         "; build one with: make cuda",
                         path);
    else
        status = check(door, path, error);
    if (status < 0) {
        dlclose(handle);
        return status;
    }
    Dl_info where;
    bool    told = strchr(path, '/') == NULL && dladdr(door, &where) != 0 && where.dli_fname;
    snprintf(process.path, sizeof process.path, "%s", told ? where.dli_fname : path);
    atomic_store(&process.door, door);
    return FLETCH_OK;
}

/* ---- The search ------------------------------------------------------------------------------- */

/* FOLDER BELOW /libfletch_cuda.so -> out; false when there is no such file. */
static bool place(char out[PLACE_MAX], const char *folder, const char *below) {
    int size = snprintf(out, PLACE_MAX, "%s%s/" MODULE, folder, below);
    return size > 0 && size < PLACE_MAX && fl_file_exists(out);
}

/* Where the module lies seen from a program or library: in the same folder (a build), in
 * lib/fletch beside bin (installed), or in fletch/ below the library's folder. */
static bool around(char out[PLACE_MAX], char *file) {
    char *slash = strrchr(file, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return place(out, file, "") || place(out, file, "/" FL_CUDA_INSTALLED) ||
           place(out, file, "/fletch");
}

static bool find(char out[PLACE_MAX]) {
    char    file[PLACE_MAX];
    Dl_info where;
    if (dladdr(&process, &where) != 0 && where.dli_fname) {
        snprintf(file, sizeof file, "%s", where.dli_fname);
        if (around(out, file))
            return true;
    }
    return fl_os_program(file, sizeof file) && around(out, file);
}

static int open_named(const char *named, fletch_error *error) {
    char path[PLACE_MAX];
    if (fl_folder_exists(named)) {
        if (!place(path, named, ""))
            return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                           "cuda.module: the folder %.300s has no " MODULE, named);
        return open_file(path, error);
    }
    if (!fl_file_exists(named))
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE, "cuda.module: no such file: %.300s",
                       named);
    snprintf(path, sizeof path, "%s%s", strchr(named, '/') ? "" : "./", named);
    return open_file(path, error);
}

static int open_any(fletch_error *error) {
    char path[PLACE_MAX];
    if (find(path))
        return open_file(path, error);
    void *handle =
        dlopen(MODULE, RTLD_LAZY | RTLD_LOCAL); /* is there one along the loader's path? */
    if (!handle)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "this machine has no CUDA module (" MODULE
                       "): build it with: make cuda, or name it with cuda.module");
    dlclose(handle);
    return open_file(MODULE, error);
}

static int acquire(const fl_config *config, fletch_error *error) {
    const char *named  = fl_config_text(config, FL_KEY_CUDA_MODULE);
    int         status = FLETCH_OK;
    pthread_mutex_lock(&process.lock);
    if (!atomic_load(&process.door))
        status = named[0] ? open_named(named, error) : open_any(error);
    pthread_mutex_unlock(&process.lock);
    return status;
}

/* ---- The table: each function is the module's ------------------------------------------------- */

/* The module's table: only after acquire said OK, or from what it returned. */
static const fl_engine_ops *module(void) {
    return atomic_load(&process.door)->ops;
}

static void cuda_probe(const fl_engine_options *options, fl_probe *out) {
    fletch_error error;
    fl_error_clear(&error);
    out->usable = out->hangs = false;
    if (strcmp(options->provider, "cuda") != 0) {
        snprintf(out->reason, sizeof out->reason,
                 "the cuda engine runs the provider cuda, not %.50s", options->provider);
        return;
    }
    if (acquire(options->config, &error) < 0) {
        snprintf(out->reason, sizeof out->reason, "%.390s", error.message);
        return;
    }
    module()->probe(options, out);
    size_t size = strlen(out->reason);
    snprintf(out->reason + size, sizeof out->reason - size, " (module %.200s)", process.path);
}

static uint32_t cuda_devices(const fl_engine_options *options) {
    return acquire(options->config, NULL) < 0 ? 0 : module()->devices(options);
}

static int cuda_open(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                     fletch_error *error) {
    int status = acquire(options->config, error);
    return status < 0 ? status : module()->open(out, encoder, options, error);
}

static int cuda_forward(fl_engine *engine, uint32_t slot, const fl_batch *batch,
                        fletch_error *error) {
    return module()->forward(engine, slot, batch, error);
}

static void cuda_close(fl_engine *engine) {
    if (engine)
        module()->close(engine);
}

static void cuda_info(const fl_engine *engine, fl_engine_info *out) {
    module()->info(engine, out);
}

static uint64_t cuda_memory(const fl_engine *engine, uint32_t texts, uint32_t tokens,
                            uint32_t longest) {
    return module()->memory(engine, texts, tokens, longest);
}

static int cuda_warm(fl_engine *engine, fletch_error *error) {
    return module()->warm(engine, error);
}

static void *cuda_host_alloc(size_t bytes) {
    return module()->host_alloc(bytes);
}

static void cuda_host_free(void *block, size_t bytes) {
    module()->host_free(block, bytes);
}

static int cuda_describe(const fl_engine *engine, fletch_property_fn fn, void *user) {
    return module()->describe(engine, fn, user);
}

static void cuda_load(const fl_engine *engine, fl_device_load *out) {
    module()->load(engine, out);
}

const fl_engine_ops fl_cuda_engine_ops = {
    .abi        = FL_ENGINE_ABI,
    .name       = "cuda",
    .probe      = cuda_probe,
    .devices    = cuda_devices,
    .open       = cuda_open,
    .forward    = cuda_forward,
    .close      = cuda_close,
    .info       = cuda_info,
    .memory     = cuda_memory,
    .warm       = cuda_warm,
    .host_alloc = cuda_host_alloc,
    .host_free  = cuda_host_free,
    .describe   = cuda_describe,
    .load       = cuda_load,
};
