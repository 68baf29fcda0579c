/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - read, map and atomically write files; make, remove and check paths.
 *
 * Role    the model folder, the hub cache and the command line's output files.
 * Method  a file is written under an unguessable temporary name, with its own in it, in its final folder
 *         (rename is atomic only within one file system), made durable, then renamed: a reader
 *         sees the old file or the whole new one. A link at the final name is replaced, not
 *         followed. Permissions are the kernel's 0666 less the umask, as for any file a program
 *         makes.
 * Errors  name the path; a full disk is FLETCH_ENOSPC with a hint, a missing file FLETCH_ENOTFOUND.
 * Memory  a mapping borrows the page cache; names and buffers come from base/mem.h.
 * Threads no shared state; a structure belongs to one thread at a time.
 * Proof   tests/unit/test_base_file.c. */
#include "base/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"

/* ---- Reading --------------------------------------------------------------------------------- */

static int open_restarting(const char *path, int flags, mode_t mode) {
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int fl_regular_open(const char *path, uint64_t *size, fletch_error *error) {
    /* O_NONBLOCK: opening a named pipe must not wait for its writer; files ignore it. */
    int fd = open_restarting(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fl_fail_errno(error, errno, "cannot open", path);
    struct stat status;
    int         result = fd;
    if (fstat(fd, &status) != 0) {
        result = fl_fail_errno(error, errno, "cannot read", path);
    } else if (!S_ISREG(status.st_mode)) {
        result = fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "not a regular file: %s is %s", path,
                         S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
    } else if (size != NULL) {
        *size = (uint64_t)status.st_size;
    }
    if (result < 0)
        close(fd);
    return result;
}

int fl_map_open(fl_map *map, const char *path, fletch_error *error) {
    uint64_t size = 0;
    int      fd   = fl_regular_open(path, &size, error);
    *map          = (fl_map){0};
    if (fd < 0)
        return fd;
    int result = 0;
    if (size > 0) {
        void *data = fl_os_map(fd, (size_t)size);
        if (data != NULL) {
            *map = (fl_map){data, (size_t)size, fd};
            return 0;
        }
        result = fl_fail_errno(error, errno, "cannot map", path);
    }
    close(fd);
    return result;
}

/* fl_os_unmap takes void *, the mapping is const to everybody else. */
static void *unconst(const unsigned char *data) {
    return (void *)(uintptr_t)data;
}

void fl_map_close(fl_map *map) {
    if (map->data != NULL) {
        fl_os_unmap(unconst(map->data), map->size);
        close(map->fd);
    }
    *map = (fl_map){0};
}

/* Linux caches files in pieces of up to 2 MiB, aligned to their size, and from 6.18 on maps the whole piece
 * for one byte of it: what lies around a tensor is there again when its neighbour is read. */
void fl_map_release(const fl_map *map, const void *from, size_t size) {
    assert(from || size == 0);
    enum { PIECE = 2 << 20 };
    size_t first = (size_t)((const unsigned char *)from - map->data);
    size_t last  = (first + size + PIECE - 1) & ~(size_t)(PIECE - 1);
    first &= ~(size_t)(PIECE - 1);
    fl_pages_release(map->data + first, (last < map->size ? last : map->size) - first);
}

bool fl_fd_copy(int fd, uint64_t at, size_t size, void *out) {
    size_t done = 0;
    while (done < size) {
        ssize_t count = pread(fd, (char *)out + done, size - done, (off_t)(at + done));
        if (count == 0 || (count < 0 && errno != EINTR))
            return false;
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

bool fl_map_copy(const fl_map *map, const void *from, size_t size, void *out) {
    return fl_fd_copy(map->fd, (uint64_t)((const unsigned char *)from - map->data), size, out);
}

static int fail_too_large(const char *path, size_t size_max, fletch_error *error) {
    return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                   "%s is larger than %zu bytes, the limit for such a file", path, size_max);
}

/* Read to the end; works for pipes, whose size is not known before. */
static int read_to_end(int fd, const char *path, size_t size_max, fl_buf *out,
                       fletch_error *error) {
    enum { CHUNK = 64 * 1024 };
    size_t start = out->size;
    for (;;) {
        size_t room = out->capacity > out->size ? out->capacity - out->size - 1 : 0;
        if (room == 0) {
            if (!fl_buf_reserve(out, CHUNK))
                return fl_fail_nomem(error, out->size + CHUNK, path);
            room = out->capacity - out->size - 1;
        }
        ssize_t count = read(fd, out->data + out->size, room);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EISDIR) {
            return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "not a file: %s is a folder",
                           path);
        }
        if (count < 0)
            return fl_fail_errno(error, errno, "cannot read", path);
        if (count == 0)
            return 0;
        out->size += (size_t)count;
        out->data[out->size] = '\0';
        if (out->size - start > size_max)
            return fail_too_large(path, size_max, error);
    }
}

/* The file of `fd`, of `size` bytes as far as that is known; closes it. */
static int read_open(int fd, const char *path, uint64_t size, size_t size_max, fl_buf *out,
                     fletch_error *error) {
    int    result = 0;
    size_t start  = out->size;
    if (size > size_max)
        result = fail_too_large(path, size_max, error);
    else if (size > 0 && !fl_buf_reserve(out, (size_t)size + 1))
        result = fl_fail_nomem(error, (size_t)size, path);
    else
        result = read_to_end(fd, path, size_max, out, error);
    close(fd);
    if (result < 0 && start == 0) {
        fl_buf_free(out); /* a failed read appends nothing */
    } else if (result < 0) {
        out->size            = start;
        out->data[out->size] = '\0';
    }
    return result;
}

int fl_file_read(const char *path, size_t size_max, fl_buf *out, fletch_error *error) {
    uint64_t size = 0;
    int      fd   = fl_regular_open(path, &size, error);
    return fd < 0 ? fd : read_open(fd, path, size, size_max, out, error);
}

int fl_pipe_read(const char *path, size_t size_max, fl_buf *out, fletch_error *error) {
    int fd = open_restarting(path, O_RDONLY | O_NOCTTY, 0);
    return fd < 0 ? fl_fail_errno(error, errno, "cannot open", path)
                  : read_open(fd, path, 0, size_max, out, error);
}

/* ---- Folders --------------------------------------------------------------------------------- */

bool fl_file_exists(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

int fl_file_find(char *path, size_t capacity, const char *folder, const char *name,
                 fletch_error *error) {
    struct stat status;
    FL_TRY(fl_path_join(path, capacity, folder, name, error));
    if (stat(path, &status) == 0) {
        if (S_ISREG(status.st_mode))
            return 1;
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s is %s, not a file", path,
                       S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
    }
    int reason = errno;
    if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode) &&
        (reason == ENOENT || reason == ENOTDIR || reason == ELOOP)) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s is a dangling symbolic link",
                       path);
    }
    if (reason == ENOENT || reason == ENOTDIR)
        return 0;
    return fl_fail_errno(error, reason, "cannot open", path);
}

bool fl_folder_exists(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Make one folder; one that is there, also made by another process just now, is success. */
static int make_one(const char *path, fletch_error *error) {
    if (mkdir(path, 0777) == 0)
        return 0;
    int reason = errno;
    if (fl_folder_exists(path))
        return 0;
    return fl_fail_errno(error, reason, "cannot make the folder", path);
}

int fl_folder_make(const char *path, fletch_error *error) {
    if (path[0] == '\0')
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "the name of a folder is empty");
    char *name = fl_strdup(path);
    if (name == NULL)
        return fl_fail_nomem(error, strlen(path) + 1, "a folder's name");
    int result = 0;
    for (char *slash = strchr(name + 1, '/'); slash != NULL && result == 0;
         slash       = strchr(slash + 1, '/')) {
        *slash = '\0';
        result = make_one(name, error);
        *slash = '/';
    }
    if (result == 0)
        result = make_one(name, error);
    fl_free(name);
    return result;
}

/* nftw calls this for a folder's content before the folder; links come as links. */
static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status;
    (void)kind;
    (void)place;
    return remove(path) == 0 || errno == ENOENT ? 0 : errno;
}

int fl_path_remove(const char *path, fletch_error *error) {
    enum { OPEN_FOLDERS = 16 };
    int reason = nftw(path, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    if (reason == 0)
        return 0;
    return fl_fail_errno(error, reason < 0 ? errno : reason, "cannot remove", path);
}

/* ---- Writing --------------------------------------------------------------------------------- */

void fl_close(int fd) {
    int reason = errno;
    if (fd >= 0)
        (void)close(fd);
    errno = reason;
}

int fl_write_all(int fd, const void *data, size_t size) {
    assert(data || size == 0);
    enum { STEP = 1 << 30 }; /* Linux writes at most 2 GiB at a time */
    const char *bytes = data;
    while (size > 0) {
        ssize_t count = write(fd, bytes, size < STEP ? size : STEP);
        if (count >= 0) {
            bytes += count;
            size -= (size_t)count;
        } else if (errno == EAGAIN) {
            /* A pipe that another process made non-blocking: wait, do not spin. */
            struct pollfd ready = {.fd = fd, .events = POLLOUT, .revents = 0};
            (void)poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

/* A name nobody can guess, so that nobody can put a link there first. */
static uint32_t random_name(void) {
    uint32_t value;
    if (!fl_os_random(&value, sizeof value))
        value = (uint32_t)fl_clock_ns() ^ (uint32_t)getpid() << 16; /* O_EXCL still protects */
    return value;
}

/* Which host a temporary was made on: locks are not seen from every other one. */
static uint32_t host_name(void) {
    struct utsname self;
    if (uname(&self) != 0)
        return 0;
    return (uint32_t)fl_hash(self.nodename, strlen(self.nodename), 0);
}

/* The folder part of a path with its slash, "" for a bare name. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* ".NAME.fletch-HHHHHHHHRRRRRRRR.tmp", of the host and at random: hidden, told apart from other files, and
 * shorter than the 255 bytes that a name may have. */
enum { TEMPORARY_NAME = 220, TEMPORARY_MORE = 32, TEMPORARY_END = 20 };

/* Say that someone writes this temporary; some disks have no locks. False: somebody who sweeps was faster. */
static bool hold(int fd) {
    struct stat status;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return false;
    return fstat(fd, &status) != 0 || status.st_nlink > 0;
}

int fl_atomic_open(fl_atomic_file *file, const char *path, fletch_error *error) {
    enum { TRIES = 13 };
    size_t folder   = folder_length(path);
    size_t capacity = strlen(path) + TEMPORARY_MORE;
    *file           = (fl_atomic_file){.fd = -1};
    if (path[folder] == '\0')
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "\"%s\" is not a file name", path);
    file->path      = fl_strdup(path);
    file->temporary = fl_alloc(capacity);
    if (file->path == NULL || file->temporary == NULL) {
        fl_atomic_abort(file);
        return fl_fail_nomem(error, capacity, "a file name");
    }
    for (int i = 0; i < TRIES && file->fd < 0; i++) {
        if (i >
            0) /* whoever lost its turn between the two calls below begins the next one with a fresh one */
            (void)nanosleep(&(struct timespec){.tv_nsec = 100000L << i}, NULL);
        (void)snprintf(file->temporary, capacity, "%.*s.%.*s.fletch-%08" PRIx32 "%08" PRIx32 ".tmp",
                       (int)folder, path, TEMPORARY_NAME, path + folder, host_name(),
                       random_name());
        file->fd = open_restarting(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOCTTY, 0666);
        if (file->fd < 0 && errno != EEXIST)
            break;
        if (file->fd >= 0 && !hold(file->fd)) {
            (void)unlink(file->temporary);
            close(file->fd);
            file->fd = -1;
            errno    = EEXIST;
        }
    }
    if (file->fd < 0) {
        int reason = errno;
        fl_free(file->temporary); /* it was not made by us: nothing to unlink */
        file->temporary = NULL;
        fl_atomic_abort(file);
        return fl_fail_errno(error, reason, "cannot write beside", path);
    }
    return 0;
}

/* For writing: over NFS a file that is open to be read alone cannot be locked as a writer locks it. */
static int open_temporary(const char *folder, const char *name, char path[PATH_MAX]) {
    const bool fits = fl_path_join(path, PATH_MAX, folder, name, NULL) == 0;
    return fits ? open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
}

bool fl_atomic_leftover(const char *path, char *out, size_t capacity) {
    assert(capacity > 0);
    const size_t folder = folder_length(path);
    char         name[PATH_MAX], whole[PATH_MAX];
    const int    size = snprintf(name, sizeof name, ".%.*s.fletch-", TEMPORARY_NAME, path + folder);
    (void)snprintf(out, capacity, "%.*s", (int)folder, path);
    DIR *entries = opendir(folder > 0 ? out : ".");
    bool found   = false;
    for (struct dirent *entry; entries != NULL && !found && (entry = readdir(entries)) != NULL;) {
        if (strlen(entry->d_name) != (size_t)size + TEMPORARY_END ||
            strncmp(entry->d_name, name, (size_t)size) != 0)
            continue;
        const int fd = open_temporary(folder > 0 ? out : ".", entry->d_name, whole);
        found        = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0;
        if (fd >= 0)
            close(fd);
        if (found)
            (void)snprintf(out, capacity, "%.*s%s", (int)folder, path, entry->d_name);
    }
    if (entries != NULL)
        closedir(entries);
    return found;
}

/* Whether a file's name is that of a temporary, of any host or of `host` alone. */
static bool is_temporary(const char *name, bool any_host, uint32_t host) {
    const size_t size = strlen(name);
    char         digits[9];
    if (name[0] != '.' || size < TEMPORARY_END + 8 || strcmp(name + size - 4, ".tmp") != 0 ||
        strncmp(name + size - TEMPORARY_END - 8, ".fletch-", 8) != 0)
        return false;
    (void)snprintf(digits, sizeof digits, "%08" PRIx32, host);
    return any_host || strncmp(name + size - TEMPORARY_END, digits, 8) == 0;
}

size_t fl_atomic_sweep(const char *folder, bool everywhere) {
    DIR           *entries = opendir(folder);
    const uint32_t host    = host_name();
    size_t         swept   = 0;
    char           path[PATH_MAX];
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (!is_temporary(entry->d_name, everywhere, host))
            continue;
        const int fd = open_temporary(folder, entry->d_name, path);
        if (fd < 0)
            continue;
        /* the lock is held until the name is gone, so that a writer who comes now sees it */
        const bool mine = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (mine || (everywhere && errno != EWOULDBLOCK)) /* some disks have no locks */
            swept += unlink(path) == 0;
        close(fd);
    }
    if (entries != NULL)
        closedir(entries);
    return swept;
}

int fl_atomic_write(fl_atomic_file *file, const void *data, size_t size, fletch_error *error) {
    assert(file->fd >= 0 && (data || size == 0));
    if (fl_write_all(file->fd, data, size) != 0)
        return fl_fail_errno(error, errno, "cannot write", file->path);
    return 0;
}

void fl_parent_sync(const char *path) {
    char   folder[PATH_MAX] = ".";
    size_t length           = folder_length(path);
    if (length >= sizeof folder)
        return; /* no path the kernel takes is that long */
    if (length > 0) {
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    int folder_fd = open_restarting(folder, O_RDONLY | O_DIRECTORY, 0);
    if (folder_fd >= 0) {
        (void)fsync(folder_fd);
        close(folder_fd);
    }
}

int fl_atomic_commit(fl_atomic_file *file, fletch_error *error) {
    if (file->fd < 0)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "no file is open");
    int reason = 0;
    if (file->care != FL_ATOMIC_CHECKED && fsync(file->fd) != 0 && errno != EINVAL)
        reason = errno; /* EINVAL: cannot be synced */
    /* Network disks report a full disk when a descriptor is closed. It is a second one: with the
     * first the lock would go, and who sweeps would take the temporary before it has its name. */
    const int second = dup(file->fd);
    if ((second < 0 || (close(second) != 0 && errno != EINTR)) && reason == 0)
        reason = errno;
    if (reason == 0 && rename(file->temporary, file->path) != 0)
        reason = errno;
    if (reason != 0) {
        int status = fl_fail_errno(error, reason, "cannot write", file->path);
        fl_atomic_abort(file);
        return status;
    }
    fl_free(file->temporary); /* renamed away: abort must not unlink it */
    file->temporary = NULL;
    if (file->care == FL_ATOMIC_DURABLE)
        fl_parent_sync(file->path);
    fl_atomic_abort(file);
    return 0;
}

void fl_atomic_abort(fl_atomic_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary != NULL)
        (void)unlink(file->temporary);
    fl_free(file->temporary);
    fl_free(file->path);
    *file = (fl_atomic_file){.fd = -1};
}

int fl_atomic_put(const char *path, const void *data, size_t size, fl_atomic_care care,
                  fletch_error *error) {
    fl_atomic_file file;
    FL_TRY(fl_atomic_open(&file, path, error));
    file.care  = care;
    int status = fl_atomic_write(&file, data, size, error);
    status     = status == 0 ? fl_atomic_commit(&file, error) : status;
    fl_atomic_abort(&file);
    return status;
}

/* ---- Paths ----------------------------------------------------------------------------------- */

int fl_path_join(char *out, size_t capacity, const char *a, const char *b, fletch_error *error) {
    assert(capacity > 0 && a && b);
    size_t      length = strlen(a);
    const char *middle = length == 0 || a[length - 1] == '/' ? "" : "/";
    int         needed = snprintf(out, capacity, "%s%s%s", a, middle, b);
    if (needed < 0 || (size_t)needed >= capacity) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "the path %.200s/%.200s is too long; use a shorter folder name", a, b);
    }
    return 0;
}

bool fl_path_prefix(const char *program, char *out, size_t capacity) {
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        const int size = (int)strcspn(path, ":");
        if ((size_t)snprintf(out, capacity, "%.*s/%s", size, path, program) < capacity &&
            access(out, X_OK) == 0)
            return (size_t)snprintf(out, capacity, "%.*s/..", size, path) < capacity;
        path += size + (path[size] == ':');
    }
    return false;
}

bool fl_path_cache(const char *name, char *out, size_t capacity) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool  set = xdg != NULL && xdg[0] == '/'; /* the rules have others ignored */
    if (!set && (home == NULL || home[0] == '\0'))
        return false;
    return (size_t)snprintf(out, capacity, "%s%s/%s", set ? xdg : home, set ? "" : "/.cache",
                            name) < capacity;
}

bool fl_path_ends_with(const char *path, const char *end) {
    assert(path && end);
    size_t size = strlen(path), tail = strlen(end);
    return size >= tail && strcmp(path + size - tail, end) == 0;
}

bool fl_path_is_safe(const char *relative) {
    assert(relative);
    if (relative[0] == '\0' || relative[0] == '/')
        return false;
    for (const char *p = relative; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7F || c == '\\')
            return false;
        bool at_start = p == relative || p[-1] == '/';
        if (at_start && p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
            return false;
    }
    return true;
}
