/* SPDX-License-Identifier: Apache-2.0 */
/* windows_folders.c - folders, trees and patterns of names for posix.h.
 *
 * Memory  a folder that is open and what a pattern matches are on the heap; free them.
 * Threads any; nothing is kept.
 * Proof   tests/unit/test_base_file.c, test_onnxruntime.c (glob), under wine: tools/cross.sh windows. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "base/mem.h"
#include "base/windows/utf16.h"

struct posix_dir {
    HANDLE           search;
    bool             given; /* what FindFirstFile found */
    WIN32_FIND_DATAW found;
    struct dirent    entry;
};

DIR *opendir(const char *path) {
    wchar_t name[FL_WIDE_MAX];
    DIR    *dir = fl_alloc(sizeof *dir);
    if (dir == NULL || !fl_wide_path(path, name) || wcslen(name) + 3 > FL_WIDE_MAX) {
        errno = dir == NULL ? ENOMEM : errno;
        fl_free(dir);
        return NULL;
    }
    wcscat(name, name[wcslen(name) - 1] == L'\\' ? L"*" : L"\\*");
    dir->given  = false;
    dir->search = FindFirstFileW(name, &dir->found);
    if (dir->search == INVALID_HANDLE_VALUE) {
        (void)fl_windows_failed();
        fl_free(dir);
        return NULL;
    }
    return dir;
}

struct dirent *readdir(DIR *dir) {
    do {
        if (dir->given && !FindNextFileW(dir->search, &dir->found))
            return NULL;
        dir->given = true;
    } while (!fl_wide_to_text(dir->found.cFileName, dir->entry.d_name, sizeof dir->entry.d_name));
    return &dir->entry;
}

int closedir(DIR *dir) {
    FindClose(dir->search);
    fl_free(dir);
    return 0;
}

int nftw(const char *path, int (*visit)(const char *, const struct stat *, int, struct FTW *),
         int open_max, int flags) {
    struct stat status;
    struct FTW  place = {0, 0};
    char        below[PATH_MAX];
    int         result = stat(path, &status);
    if (result != 0 || !S_ISDIR(status.st_mode))
        return result != 0 ? -1 : visit(path, &status, FTW_F, &place);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && result == 0 && (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        errno  = ENAMETOOLONG;
        result = snprintf(below, sizeof below, "%s/%s", path, entry->d_name) < (int)sizeof below
                     ? nftw(below, visit, open_max, flags)
                     : -1;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return result != 0 ? result : visit(path, &status, FTW_DP, &place);
}

/* Whether the set at `at`, behind its [, holds c; *end is behind its ]. */
static bool in_set(const char *at, char c, const char **end) {
    const bool not_these = *at == '!' || *at == '^';
    bool       found     = false;
    at += not_these;
    for (const char *first = at; *at != '\0' && (*at != ']' || at == first); at++) {
        if (at[1] == '-' && at[2] != ']' && at[2] != '\0') {
            found = found || (c >= at[0] && c <= at[2]);
            at += 2;
        } else {
            found = found || c == *at;
        }
    }
    *end = at + (*at == ']');
    return found != not_these;
}

int fnmatch(const char *pattern, const char *text, int flags) {
    const bool whole = (flags & FNM_PATHNAME) == 0; /* a pattern takes slashes */
    for (;; pattern++, text++) {
        const char *end;
        if (*pattern == '*') {
            while (fnmatch(pattern + 1, text, flags) != 0) {
                if (*text == '\0' || (*text == '/' && !whole))
                    return 1;
                text++;
            }
            return 0;
        }
        if (*pattern == '\0' || *text == '\0')
            return *pattern != *text;
        if (*text == '/' && *pattern != '/' && !whole)
            return 1;
        if (*pattern == '[' && strchr(pattern, ']') != NULL) {
            if (!in_set(pattern + 1, *text, &end))
                return 1;
            pattern = end - 1;
        } else if (*pattern != '?' && *pattern != *text) {
            return 1;
        }
    }
}

static bool keep(glob_t *out, const char *path) {
    char **larger = fl_realloc_array(out->gl_pathv, out->gl_pathc + 1, sizeof *larger);
    char  *copy   = larger != NULL ? fl_strdup(path) : NULL;
    out->gl_pathv = larger != NULL ? larger : out->gl_pathv;
    if (copy != NULL)
        out->gl_pathv[out->gl_pathc++] = copy;
    return copy != NULL;
}

/* What matches `rest` below `path`, whose first `size` bytes are settled and end at a slash or are none. */
static void walk(char *path, size_t size, const char *rest, glob_t *out) {
    struct stat status;
    size_t      part = strcspn(rest, "/\\");
    while (part < strlen(rest) && strcspn(rest, "*?[") > part) /* no pattern in this part */
        part += 1 + strcspn(rest + part + 1, "/\\");
    const char *last = rest + part; /* behind the part that holds the pattern */
    const char *name = last;
    while (name > rest && name[-1] != '/' && name[-1] != '\\')
        name--;
    if (size + part + 2 > PATH_MAX)
        return;
    memcpy(path + size, rest, (size_t)(name - rest));
    size += (size_t)(name - rest);
    if (strcspn(name, "*?[") >= (size_t)(last - name)) {
        memcpy(path + size, name, (size_t)(last - name) + 1);
        if (stat(path, &status) == 0)
            (void)keep(out, path);
        return;
    }
    char pattern[256];
    (void)snprintf(pattern, sizeof pattern, "%.*s", (int)(last - name), name);
    path[size] = '\0';
    DIR *dir   = opendir(size > 0 ? path : ".");
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        const size_t length = strlen(entry->d_name);
        if ((entry->d_name[0] == '.' && pattern[0] != '.') || size + length + 2 > PATH_MAX ||
            fnmatch(pattern, entry->d_name, 0) != 0)
            continue;
        memcpy(path + size, entry->d_name, length + 1);
        if (*last == '\0') {
            (void)keep(out, path);
        } else {
            path[size + length] = '/';
            walk(path, size + length + 1, last + 1, out);
        }
    }
    if (dir != NULL)
        (void)closedir(dir);
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int glob(const char *pattern, int flags, void *none, glob_t *out) {
    char path[PATH_MAX];
    (void)flags;
    (void)none;
    *out = (glob_t){0, NULL};
    walk(path, 0, pattern, out);
    if (out->gl_pathc == 0)
        return 1;
    qsort(out->gl_pathv, out->gl_pathc, sizeof *out->gl_pathv, by_bytes);
    return 0;
}

void globfree(glob_t *hits) {
    for (size_t i = 0; i < hits->gl_pathc; i++)
        fl_free(hits->gl_pathv[i]);
    fl_free(hits->gl_pathv);
    *hits = (glob_t){0, NULL};
}
