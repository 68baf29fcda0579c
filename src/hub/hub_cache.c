/* SPDX-License-Identifier: Apache-2.0 */
/* hub_cache.c - the folders of the Hugging Face cache: paths, refs, links, marks, locks, walks.
 *
 * Role    hub.c, hub_manage.c and hub_pull.c touch the cache only through these functions.
 * In/Out  hub ids, commits and file names that were checked (hub_name.c, fl_path_is_safe).
 * Method  Everything that appears under a final name is whole: refs and blobs are written beside it
 *         and renamed. The lock is flock on .locks/…/<etag>.lock, which huggingface_hub's filelock
 *         takes too; the lock file stays after release, since removing it would split the waiters.
 * Memory  paths live on the stack; walks own their list of names.
 * Threads the file system is the only shared state.
 * Proof   tests/unit/test_hub.c, tests/golden/test_hub.py. */
#include "hub/hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"

enum {
    WALK_DEPTH_MAX = 16,
    COPY_BYTES     = 1 << 16,
    LOCK_POLL_NS   = 50 * 1000 * 1000 /* filelock polls as often */
};

int fl_hub_repo_at(fl_hub_repo *repo, const fl_hub_env *env, const char *id, fletch_error *error) {
    char name[FL_HUB_FOLDER_MAX] = "models--", locks[FL_HUB_PATH_MAX];
    snprintf(repo->id, sizeof repo->id, "%s", id);
    char *end = name + strlen(name);
    for (const char *c = repo->id; *c != '\0'; c++) {
        *end++ = *c == '/' ? '-' : *c;
        if (*c == '/')
            *end++ = '-';
    }
    FL_TRY(fl_path_join(repo->folder, sizeof repo->folder, env->cache, name, error));
    FL_TRY(fl_path_join(locks, sizeof locks, env->cache, ".locks", error));
    return fl_path_join(repo->locks, sizeof repo->locks, locks, name, error);
}

int fl_hub_repo_path(const fl_hub_repo *repo, const char *kind, const char *middle,
                     const char *rest, char out[FL_HUB_PATH_MAX], fletch_error *error) {
    int size = snprintf(out, FL_HUB_PATH_MAX, "%s/%s%s%s%s%s", repo->folder, kind,
                        middle[0] != '\0' ? "/" : "", middle, rest[0] != '\0' ? "/" : "", rest);
    if (size < 0 || size >= FL_HUB_PATH_MAX) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "a path in the cache of %s is longer than %d bytes", repo->id,
                       FL_HUB_PATH_MAX - 1);
    }
    return 0;
}

/* mkdir -p for the folder a file will lie in. */
static int make_parent(const char *path, fletch_error *error) {
    char  folder[FL_HUB_PATH_MAX];
    char *slash = memcpy(folder, path, strlen(path) + 1);
    slash       = strrchr(folder, '/');
    if (slash == NULL || slash == folder)
        return 0;
    *slash = '\0';
    return fl_folder_make(folder, error);
}

/* ---- refs and marks ---- */

bool fl_hub_ref_read(const fl_hub_repo *repo, const char *revision,
                     char commit[FL_HUB_COMMIT_MAX]) {
    if (fl_hub_commit_is_valid(revision)) {
        memcpy(commit, revision, FL_HUB_COMMIT_MAX);
        return true;
    }
    char   path[FL_HUB_PATH_MAX];
    fl_buf text  = {0};
    bool   found = false;
    /* A name found in the folder may be anything, and reading a pipe would wait for ever. */
    if (fl_hub_revision_is_valid(revision) &&
        fl_hub_repo_path(repo, "refs", revision, "", path, NULL) == 0 && fl_file_exists(path) &&
        fl_file_read(path, 256, &text, NULL) == 0) {
        while (text.size > 0 && (unsigned char)text.data[text.size - 1] <= ' ')
            text.data[--text.size] = '\0';
        found = text.size == FL_HUB_COMMIT_MAX - 1 && fl_hub_commit_is_valid(text.data);
        if (found)
            memcpy(commit, text.data, FL_HUB_COMMIT_MAX);
    }
    fl_buf_free(&text);
    return found;
}

int fl_hub_ref_write(const fl_hub_repo *repo, const char *revision, const char *commit,
                     fletch_error *error) {
    char known[FL_HUB_COMMIT_MAX];
    char path[FL_HUB_PATH_MAX];
    if (fl_hub_ref_read(repo, revision, known) && strcmp(known, commit) == 0)
        return 0; /* an unneeded write could fail on a cache that is read-only */
    FL_TRY(fl_hub_repo_path(repo, "refs", revision, "", path, error));
    FL_TRY(make_parent(path, error));
    return fl_atomic_put(path, commit, strlen(commit), FL_ATOMIC_DURABLE, error);
}

int fl_hub_mark_absent(const fl_hub_repo *repo, const char *commit, const char *relative,
                       fletch_error *error) {
    char path[FL_HUB_PATH_MAX];
    FL_TRY(fl_hub_repo_path(repo, ".no_exist", commit, relative, path, error));
    FL_TRY(make_parent(path, error));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return fl_fail_errno(error, errno, "cannot write", path);
    close(fd);
    return 0;
}

/* huggingface_hub's listing of a commit, where a snapshot_download left one, answers as well. */
static bool tree_lacks(const fl_hub_repo *repo, const char *commit, const char *relative) {
    char     path[FL_HUB_PATH_MAX];
    char     name[FL_HUB_COMMIT_MAX + 8];
    fl_json *tree = NULL;
    snprintf(name, sizeof name, "%s.json", commit);
    if (fl_hub_repo_path(repo, "trees", name, "", path, NULL) != 0 || !fl_file_exists(path) ||
        fl_json_read(&tree, path, FL_HUB_JSON_MAX, NULL) != 0)
        return false;
    fl_json *files = fl_json_get(tree, "files");
    bool     lacks = fl_json_is(files, FL_JSON_OBJECT) && !fl_json_find(files, relative, NULL);
    fl_json_free(tree);
    return lacks;
}

bool fl_hub_known_absent(const fl_hub_repo *repo, const char *commit, const char *relative) {
    char path[FL_HUB_PATH_MAX];
    if (fl_hub_repo_path(repo, ".no_exist", commit, relative, path, NULL) != 0)
        return false;
    return fl_file_exists(path) || tree_lacks(repo, commit, relative);
}

/* ---- links ---- */

/* Copy a blob to `target` under a temporary name, then rename. */
static int copy_file(const char *source, const char *target, fletch_error *error) {
    int in = fl_regular_open(source, NULL, error);
    if (in < 0)
        return in;
    char          *block  = fl_alloc(COPY_BYTES);
    fl_atomic_file file   = {.fd = -1};
    int            status = block == NULL ? fl_fail_nomem(error, COPY_BYTES, "a copy")
                                          : fl_atomic_open(&file, target, error);
    while (status == 0) {
        ssize_t got = read(in, block, COPY_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = fl_fail_errno(error, errno, "cannot read", source);
        } else if (got == 0) {
            status = fl_atomic_commit(&file, error);
            break;
        } else {
            status = fl_atomic_write(&file, block, (size_t)got, error);
        }
    }
    fl_atomic_abort(&file);
    fl_free(block);
    close(in);
    return status;
}

/* Whether `path` is a link that says exactly `target`. */
static bool link_says(const char *path, const char *target) {
    char    text[FL_HUB_PATH_MAX];
    ssize_t size = readlink(path, text, sizeof text - 1);
    if (size < 0)
        return false;
    text[size] = '\0';
    return strcmp(text, target) == 0;
}

/* Make or replace a link; false when this file system or user may have none. */
static bool make_link(const char *target, const char *path, int *status, fletch_error *error) {
    int reason = EEXIST; /* why there is no link yet; link_says has an errno of its own */
    *status    = 0;
    for (int round = 0; round < 2 && reason == EEXIST; round++) {
        if (symlink(target, path) == 0)
            return true;
        reason = errno;
        if (reason == EEXIST && link_says(path, target))
            return true;
        if (reason == EEXIST && unlink(path) != 0 && errno != ENOENT)
            reason = errno;
    }
    if (reason == EPERM || reason == ENOTSUP || reason == ENOSYS || reason == EINVAL)
        return false;
    *status = fl_fail_errno(error, reason, "cannot link", path);
    return true;
}

int fl_hub_link(const fl_hub_env *env, const fl_hub_repo *repo, const char *commit,
                const char *relative, const char *etag, bool fresh, fletch_error *error) {
    char pointer[FL_HUB_PATH_MAX];
    char blob[FL_HUB_PATH_MAX];
    int  status = 0;
    FL_TRY(fl_hub_repo_path(repo, "snapshots", commit, relative, pointer, error));
    FL_TRY(fl_hub_repo_path(repo, "blobs", etag, "", blob, error));
    FL_TRY(make_parent(pointer, error));
    fl_buf target = {0}; /* ../../blobs/<etag>, and one more ../ per folder of the name */
    fl_buf_puts(&target, "../../");
    for (const char *c = relative; *c != '\0'; c++)
        if (*c == '/')
            fl_buf_puts(&target, "../");
    fl_buf_puts(&target, "blobs/");
    fl_buf_puts(&target, etag);
    if (target.failed) {
        status = fl_fail_nomem(error, target.size, "a link");
    } else if (!env->symlinks || !make_link(target.data, pointer, &status, error)) {
        if (!fresh)
            status = copy_file(blob, pointer, error);
        else if (rename(blob, pointer) != 0)
            status = fl_fail_errno(error, errno, "cannot move the file to", pointer);
    }
    fl_buf_free(&target);
    return status;
}

int fl_hub_file_hash(const char *path, const char *etag, char hex[65], fletch_error *error) {
    return strlen(etag) == 64 ? fl_file_sha256(path, hex, error)
                              : fl_file_git_sha1(path, hex, error);
}

/* ---- locks ---- */

/* Whether the locked file is still the one at `path`: its owner may have removed it meanwhile. */
static bool lock_is_current(int fd, const char *path) {
    struct stat held;
    struct stat named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

int fl_hub_lock(const fl_hub_repo *repo, const char *etag, int (*wait)(void *user), void *user,
                int *fd, fletch_error *error) {
    char name[FL_HUB_ID_MAX];
    char path[FL_HUB_PATH_MAX];
    *fd = -1;
    FL_TRY(fl_folder_make(repo->locks, error));
    snprintf(name, sizeof name, "%s.lock", etag);
    FL_TRY(fl_path_join(path, sizeof path, repo->locks, name, error));
    for (;;) {
        int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
        if (lock < 0)
            return fl_fail_errno(error, errno, "cannot lock", path);
        if (flock(lock, LOCK_EX | LOCK_NB) == 0 ? lock_is_current(lock, path)
                                                : errno != EWOULDBLOCK && errno != EINTR) {
            /* Held, or a file system without locks: there the hash check at the end must do. */
            *fd = lock;
            return 0;
        }
        close(lock);
        if (wait != NULL && wait(user) != 0) {
            return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE,
                           "cancelled while another process downloads the same file");
        }
        struct timespec pause = {0, LOCK_POLL_NS};
        nanosleep(&pause, NULL);
    }
}

void fl_hub_unlock(int fd) {
    if (fd >= 0)
        close(fd); /* gives the lock back */
}

/* ---- names and walks ---- */

static int compare_names(const void *a, const void *b) {
    const char *const *left  = a;
    const char *const *right = b;
    return strcmp(*left, *right);
}

int fl_hub_names_add(fl_hub_names *names, const char *name, fletch_error *error) {
    char *copy = fl_strdup(name);
    if (copy == NULL ||
        !fl_array_reserve(&names->name, &names->room, names->count + 1, sizeof *names->name)) {
        fl_free(copy);
        return fl_fail_nomem(error, strlen(name) + 1, "a list of files");
    }
    names->name[names->count++] = copy;
    return 0;
}

bool fl_hub_names_has(const fl_hub_names *names, const char *name) {
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0)
            return true;
    return false;
}

void fl_hub_names_free(fl_hub_names *names) {
    for (size_t i = 0; i < names->count; i++)
        fl_free(names->name[i]);
    fl_free(names->name);
    *names = (fl_hub_names){0};
}

int fl_hub_names_read(fl_hub_names *names, const char *folder, fletch_error *error) {
    *names   = (fl_hub_names){0};
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : fl_fail_errno(error, errno, "cannot list", folder);
    }
    int            status = 0;
    struct dirent *entry;
    while (status == 0 && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = fl_hub_names_add(names, entry->d_name, error);
    closedir(dir);
    if (status != 0)
        fl_hub_names_free(names);
    else if (names->count > 1)
        qsort(names->name, names->count, sizeof *names->name, compare_names);
    return status;
}

static int walk(const char *root, const char *below, unsigned depth, fl_hub_walk_fn fn, void *user,
                fletch_error *error) {
    char         folder[FL_HUB_PATH_MAX];
    fl_hub_names names;
    if (below[0] == '\0')
        snprintf(folder, sizeof folder, "%s", root);
    else
        FL_TRY(fl_path_join(folder, sizeof folder, root, below, error));
    int status = fl_hub_names_read(&names, folder, error);
    for (size_t i = 0; status == 0 && i < names.count; i++) {
        char        relative[FL_HUB_PATH_MAX];
        char        path[FL_HUB_PATH_MAX];
        struct stat info;
        status = fl_path_join(path, sizeof path, folder, names.name[i], error);
        if (status != 0)
            break;
        int size = snprintf(relative, sizeof relative, "%s%s%s", below, below[0] ? "/" : "",
                            names.name[i]);
        if (size < 0 || (size_t)size >= sizeof relative) {
            status =
                fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "a path below %s is too long", root);
        } else if (lstat(path, &info) != 0) {
            status = errno == ENOENT ? 0 : fl_fail_errno(error, errno, "cannot read", path);
        } else if (!S_ISDIR(info.st_mode)) {
            status = fn(user, relative);
        } else if (depth + 1 < WALK_DEPTH_MAX) {
            status = walk(root, relative, depth + 1, fn, user, error);
        }
    }
    fl_hub_names_free(&names);
    return status;
}

int fl_hub_walk(const char *folder, fl_hub_walk_fn fn, void *user, fletch_error *error) {
    return walk(folder, "", 0, fn, user, error);
}
