/* SPDX-License-Identifier: Apache-2.0 */
/* locate.c - where an ONNX Runtime library may lie on this machine, likeliest first.
 *
 * Role    library.c opens the first place that holds a usable one.
 * In/Out  the configuration's onnxruntime.library -> a visit of each file that exists.
 * Method  A file or folder that the configuration names is the only place. Otherwise: beside the
 *         program (and ../lib), the .cache/onnxruntime that `make onnxruntime` fills, the Python of
 *         VIRTUAL_ENV, the dynamic loader's own search (LD_LIBRARY_PATH, ldconfig), the usual
 *         library folders, and the Python that PATH finds. A wheel keeps the library as
 *         onnxruntime/capi/libonnxruntime.so.1.31.1; no Python is run to find it. In a folder with
 *         several the highest version is taken.
 * Memory  none kept. Threads: reads the environment, as getenv does.
 * Proof   tests/unit/test_onnxruntime.c with folders made for it. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/os.h"
#include "engines/onnxruntime/locate.h"

#if defined(__APPLE__)
#define LIBRARY_PATTERN "libonnxruntime*.dylib"
#define LIBRARY_LOADER  "libonnxruntime.dylib"
#elif defined(_WIN32)
#define LIBRARY_PATTERN "onnxruntime.dll"
#define LIBRARY_LOADER  "onnxruntime.dll"
#else
#define LIBRARY_PATTERN "libonnxruntime.so*"
#define LIBRARY_LOADER  "libonnxruntime.so.1"
#endif

#define DIGITS "0123456789"

enum { PLACE_MAX = 1024 };

typedef struct search {
    fl_ort_visit_fn fn;
    void           *user;
    int             found; /* what fn stopped with */
} search;

static void visit(search *s, const char *path) {
    if (s->found == 0)
        s->found = s->fn(s->user, path);
}

/* Whether a is a later version than b: runs of digits are numbers. */
static bool is_later(const char *a, const char *b) {
    for (; *a != '\0' && *a == *b; a++, b++) {
    }
    const size_t left = strspn(a, DIGITS), right = strspn(b, DIGITS);
    return left != right ? left > right : strcmp(a, b) > 0;
}

/* Every library of a folder, whose name may be a pattern; the highest version first. */
static void visit_folder(search *s, const char *folder) {
    char pattern[PLACE_MAX];
    if (s->found != 0 || folder[0] == '\0' ||
        (size_t)snprintf(pattern, sizeof pattern, "%s/%s", folder, LIBRARY_PATTERN) >=
            sizeof pattern)
        return;
    glob_t hits;
    if (glob(pattern, 0, NULL, &hits) != 0)
        return;
    size_t best = hits.gl_pathc;
    for (size_t i = 0; i < hits.gl_pathc; i++)
        if (fl_file_exists(hits.gl_pathv[i]) &&
            (best == hits.gl_pathc || is_later(hits.gl_pathv[i], hits.gl_pathv[best])))
            best = i;
    if (best < hits.gl_pathc)
        visit(s, hits.gl_pathv[best]);
    globfree(&hits);
}

static void visit_below(search *s, const char *folder, const char *below) {
    char place[PLACE_MAX];
    if ((size_t)snprintf(place, sizeof place, "%s/%s", folder, below) < sizeof place)
        visit_folder(s, place);
}

/* The onnxruntime wheel of the Python whose prefix this is. */
static void visit_python(search *s, const char *prefix) {
    visit_below(s, prefix, "lib/python3*/site-packages/onnxruntime/capi");
    visit_below(s, prefix, "lib/python3*/dist-packages/onnxruntime/capi");
    visit_below(s, prefix, "Lib/site-packages/onnxruntime/capi");
}

static void visit_program(search *s) {
    static const char *const around[] = {".", "../lib", "../.cache/onnxruntime",
                                         "../../.cache/onnxruntime"};
    char                     folder[PLACE_MAX];
    char                    *slash;
    if (!fl_os_program(folder, sizeof folder) || (slash = strrchr(folder, '/')) == NULL)
        return;
    *slash = '\0';
    for (size_t i = 0; i < sizeof around / sizeof around[0]; i++)
        visit_below(s, folder, around[i]);
}

int fl_ort_locate(const char *library, fl_ort_visit_fn fn, void *user) {
    static const char *const folders[] = {"/usr/local/lib",       "/usr/lib",
                                          "/usr/lib64",           "/usr/lib/*-linux-gnu",
                                          "/opt/onnxruntime/lib", "/opt/homebrew/lib"};
    search                   s         = {.fn = fn, .user = user};
    if (library != NULL && library[0] != '\0') {
        if (fl_folder_exists(library))
            visit_folder(&s, library);
        else
            visit(&s, library);
        return s.found;
    }
    visit_program(&s);
    const char *environment = getenv("VIRTUAL_ENV"), *home = getenv("HOME");
    char        prefix[PLACE_MAX];
    if (environment != NULL && environment[0] != '\0')
        visit_python(&s, environment);
    visit(&s, LIBRARY_LOADER);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        visit_folder(&s, folders[i]);
    if (fl_path_prefix("python3", prefix, sizeof prefix))
        visit_python(&s, prefix);
    if (home != NULL && home[0] != '\0')
        visit_below(&s, home, ".local/lib/python3*/site-packages/onnxruntime/capi");
    return s.found;
}
