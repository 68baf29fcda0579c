/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - find the driver and its companions once for the process, and say what is wrong.
 *
 * Role    The module's engines share the table; driver.h has the roles of the libraries.
 * Method  Counted under a lock: the first acquire opens, the last release closes what can be
 *         closed. The libraries stay mapped. Each refusal names the library, the version that was
 *         found and the step that mends it.
 * Memory  one table of the process. Threads: a lock around opening and closing.
 * Proof   tests/cuda/test_cuda_engine.c. */
#include "engines/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum { DRIVER_OLDEST = 12000 }; /* CUDA 12.0: every function of the table is there */

static struct {
    pthread_mutex_t lock;
    fl_cuda         cuda;
    unsigned        references;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- Results --------------------------------------------------------------------------------- */

int fl_cuda_check(const fl_cuda *cuda, CUresult result, int code, fletch_error *error,
                  const char *what) {
    if (result == CUDA_SUCCESS)
        return FLETCH_OK;
    const char *name = NULL, *text = NULL;
    cuda->cu.error_name(result, &name);
    cuda->cu.error_text(result, &text);
    return fl_fail(error, result == CUDA_ERROR_OUT_OF_MEMORY ? FLETCH_ENOMEM : code, FLETCH_NOWHERE,
                   "cuda: %.120s: %s (%s)", what, name ? name : "unknown failure",
                   text ? text : "unknown error");
}

int fl_cuda_lt_check(const fl_cuda *cuda, cublasStatus_t result, int code, fletch_error *error,
                     const char *what) {
    if (result == CUBLAS_STATUS_SUCCESS)
        return FLETCH_OK;
    const char *name = cuda->lt.status_name(result);
    return fl_fail(error, result == CUBLAS_STATUS_ALLOC_FAILED ? FLETCH_ENOMEM : code,
                   FLETCH_NOWHERE, "cuda: %.120s: cublasLt says %s", what,
                   name ? name : "an unknown status");
}

const char *fl_cuda_look_up(void *library, void *table, const fl_cuda_symbol *symbols,
                            size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (found == NULL)
            return symbols[i].name;
        /* ISO C has no cast from object to function pointer */
        memcpy((char *)table + symbols[i].offset, &found, sizeof found);
    }
    return NULL;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Stringified in two steps, so that cuda.h's renaming macros have their say before. */
#define TEXT(symbol)         #symbol
#define SYMBOL(name, symbol) {TEXT(symbol), offsetof(fl_cuda_calls, name)},
static const fl_cuda_symbol symbols[] = {FL_CUDA_CALLS(SYMBOL)};
#undef SYMBOL

static void *open_library(fletch_error *error) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *words = dlerror();
        fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                "no NVIDIA driver: %.200s; install it, or start the container with its devices "
                "(--gpus all)",
                words ? words : "libcuda.so.1 does not load");
    }
    return handle;
}

static int check_version(fl_cuda *cuda, fletch_error *error) {
    FL_TRY(fl_cuda_check(cuda, cuda->cu.driver_version(&cuda->driver_version), FLETCH_EPROVIDER,
                         error, "the driver's version cannot be read"));
    if (cuda->driver_version < DRIVER_OLDEST)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "CUDA driver %d.%d is older than %d.%d; update the NVIDIA driver",
                       cuda->driver_version / 1000, cuda->driver_version % 1000 / 10,
                       DRIVER_OLDEST / 1000, DRIVER_OLDEST % 1000 / 10);
    return FLETCH_OK;
}

static int open_driver(fl_cuda *cuda, fletch_error *error) {
    void *handle = open_library(error);
    if (handle == NULL)
        return FLETCH_EPROVIDER;
    const char *missing =
        fl_cuda_look_up(handle, &cuda->cu, symbols, sizeof symbols / sizeof symbols[0]);
    dlclose(handle); /* stays mapped: RTLD_NODELETE */
    /* The version is asked first where it can be: it explains why a function is missing. */
    FL_TRY(cuda->cu.driver_version ? check_version(cuda, error) : FLETCH_OK);
    if (missing != NULL)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "libcuda.so.1 has no function %s; update the NVIDIA driver", missing);
    return fl_cuda_check(cuda, cuda->cu.init(0), FLETCH_EPROVIDER, error,
                         "the driver does not start; check whether nvidia-smi works");
}

static int open_all(const char *cublaslt, const fl_log *log, fletch_error *error) {
    memset(&process.cuda, 0, sizeof process.cuda);
    int status = open_driver(&process.cuda, error);
    if (status == FLETCH_OK)
        status = fl_cuda_lt_open(&process.cuda, cublaslt, log, error);
    if (status == FLETCH_OK)
        fl_nvml_open(&process.cuda.nvml);
    return status;
}

int fl_cuda_acquire(const fl_cuda **out, const char *cublaslt, const fl_log *log,
                    fletch_error *error) {
    int status = FLETCH_OK;
    *out       = NULL;
    pthread_mutex_lock(&process.lock);
    if (process.references == 0)
        status = open_all(cublaslt, log, error);
    if (status == FLETCH_OK) {
        process.references++;
        *out = &process.cuda;
    }
    pthread_mutex_unlock(&process.lock);
    return status;
}

void fl_cuda_release(const fl_cuda *cuda) {
    if (cuda == NULL)
        return;
    pthread_mutex_lock(&process.lock);
    if (--process.references == 0)
        fl_nvml_close(&process.cuda.nvml);
    pthread_mutex_unlock(&process.lock);
}
