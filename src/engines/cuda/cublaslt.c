/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt.c - find libcublasLt.so: named, on the loader's path, in a toolkit, in a Python.
 *
 * Role    driver.c calls it once after the driver is open.
 * Method  A file or folder that cuda.cublaslt names is the only place. Otherwise the toolkit that
 *         CUDA_PATH names goes first, of whatever version: who sets it means it. Then major version
 *         13 goes before 12, and of each the loader's own search (LD_LIBRARY_PATH, ldconfig) before
 *         the toolkits below /usr/local, before the nvidia packages of the Python of VIRTUAL_ENV
 *         and of PATH. The first file that loads with every function decides.
 * Memory  none; the library stays mapped. Threads: under the lock of driver.c; reads the
 *         environment as getenv does.
 * Proof   tests/cuda/test_cuda_engine.c. */
#include <dlfcn.h>
#include <glob.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "engines/cuda/driver.h"

enum { PLACE_MAX = 1024, LT_OLDEST = 120000 };

#define TEXT(symbol)         #symbol
#define SYMBOL(name, symbol) {TEXT(symbol), offsetof(fl_cuda_lt_calls, name)},
static const fl_cuda_symbol symbols[] = {FL_CUDA_LT_CALLS(SYMBOL)};
#undef SYMBOL

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

typedef struct search {
    fl_cuda      *cuda;
    const fl_log *log;
    bool          found;
    char          refused[256]; /* why the first file that was there is not usable */
} search;

static void refuse(search *s, const char *path, const char *why) {
    fl_log_write(s->log, FL_LOG_DEBUG, "cuda: %s: %s", path, why);
    if (s->refused[0] == '\0')
        snprintf(s->refused, sizeof s->refused, "%.120s: %.130s", path, why);
}

/* Try one file; a name without a slash is left to the loader and may simply not be there. */
static void visit(search *s, const char *path) {
    if (s->found)
        return;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *words = dlerror();
        if (strchr(path, '/') != NULL)
            refuse(s, path, words ? words : "it does not load");
        return;
    }
    fl_cuda_lt_calls *lt = &s->cuda->lt;
    const char *missing  = fl_cuda_look_up(handle, lt, symbols, sizeof symbols / sizeof *symbols);
    dlclose(handle); /* stays mapped: RTLD_NODELETE */
    if (missing != NULL) {
        char why[96];
        snprintf(why, sizeof why, "it has no function %s", missing);
        refuse(s, path, why);
        return;
    }
    s->cuda->lt_version = (unsigned)lt->version();
    if (s->cuda->lt_version < LT_OLDEST) {
        refuse(s, path, "it is older than version 12");
        return;
    }
    Dl_info where;
    void   *inside;
    memcpy(&inside, &lt->create, sizeof inside);
    bool told = dladdr(inside, &where) != 0 && where.dli_fname != NULL;
    snprintf(s->cuda->lt_path, sizeof s->cuda->lt_path, "%s", told ? where.dli_fname : path);
    s->found = true;
}

/* FOLDER/NAME, where the folder may be a pattern; the highest of several first. */
static void visit_folder(search *s, const char *folder, const char *below, const char *name) {
    char   pattern[PLACE_MAX];
    glob_t hits;
    if (s->found ||
        (size_t)snprintf(pattern, sizeof pattern, "%s%s/%s", folder, below, name) >= sizeof pattern)
        return;
    if (glob(pattern, 0, NULL, &hits) != 0)
        return;
    for (size_t i = hits.gl_pathc; i-- > 0;)
        visit(s, hits.gl_pathv[i]);
    globfree(&hits);
}

/* The packages nvidia-cublas (13) and nvidia-cublas-cu12 of the Python with this prefix. */
static void visit_python(search *s, const char *prefix, const char *name) {
    visit_folder(s, prefix, "/lib/python3*/*-packages/nvidia/cu13/lib", name);
    visit_folder(s, prefix, "/lib/python3*/*-packages/nvidia/cublas/lib", name);
}

static void visit_all(search *s, const char *name) {
    static const char *const folders[]   = {"/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64",
                                            "/opt/cuda/lib64"};
    const char              *environment = getenv("VIRTUAL_ENV");
    char                     prefix[PLACE_MAX];
    visit(s, name);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        visit_folder(s, folders[i], "", name);
    if (environment != NULL && environment[0] != '\0')
        visit_python(s, environment, name);
    if (fl_path_prefix("python3", prefix, sizeof prefix))
        visit_python(s, prefix, name);
}

static void visit_toolkit(search *s) {
    const char *toolkit = getenv("CUDA_PATH");
    if (toolkit == NULL || toolkit[0] == '\0')
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        visit_folder(s, toolkit, "/lib64", names[i]);
}

static void visit_named(search *s, const char *named) {
    if (!fl_folder_exists(named)) {
        visit(s, named);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        visit_folder(s, named, "", names[i]);
}

int fl_cuda_lt_open(fl_cuda *cuda, const char *named, const fl_log *log, fletch_error *error) {
    search s      = {.cuda = cuda, .log = log};
    bool   is_key = named != NULL && named[0] != '\0';
    if (is_key)
        visit_named(&s, named);
    else
        visit_toolkit(&s);
    for (size_t i = 0; !is_key && i < sizeof names / sizeof *names; i++)
        visit_all(&s, names[i]);
    if (s.found)
        return FLETCH_OK;
    if (s.refused[0] != '\0')
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "no usable libcublasLt: %s; name another with cuda.cublaslt", s.refused);
    if (is_key)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "cuda.cublaslt: no libcublasLt.so.13 or .12 at %.200s", named);
    return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                   "no libcublasLt.so.13 or .12 on the library path, below /usr/local/cuda or in a "
                   "Python's nvidia packages; install CUDA's cuBLAS (pip install nvidia-cublas), "
                   "or name the file with cuda.cublaslt");
}
