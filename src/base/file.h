/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - read, map and atomically write files; join and check paths.
 *
 * Every error names the path. Mapped files are read-only and private; a file that shrinks under a
 * mapping is outside the contract (as with every mmap reader). */
#ifndef FL_BASE_FILE_H
#define FL_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "fletch.h"

typedef struct fl_map {
    const unsigned char *data; /* NULL for an empty file */
    size_t               size;
    int                  fd; /* for fl_map_copy; only where data is not NULL */
} fl_map;

/* Map a whole regular file. ENOTFOUND, EIO, or EINVAL for a folder or device. On failure *map is empty. */
int  fl_map_open(fl_map *map, const char *path, fletch_error *error);
void fl_map_close(fl_map *map); /* idempotent */

/* Give the pages of [from, from + size) back, and those that a kernel may have brought along with them; they
 * come again when they are read. Any thread, and others may be reading there. */
void fl_map_release(const fl_map *map, const void *from, size_t size);

/* Copy bytes of the mapping to `out` without bringing its pages into the process. False: the file does not
 * give them any more. Any thread. */
bool fl_map_copy(const fl_map *map, const void *from, size_t size, void *out);

/* Bytes [at, at + size) of an open file; where it stands does not change. False: it does not give them. */
bool fl_fd_copy(int fd, uint64_t at, size_t size, void *out);

/* Open a regular file to be read; its size goes to *size unless that is NULL. The descriptor, or ENOTFOUND,
 * EIO, or EINVAL for a folder, pipe or device: opening a pipe would wait for who writes it, and a device may
 * have no end. */
int fl_regular_open(const char *path, uint64_t *size, fletch_error *error);

/* Append the whole of a regular file to *out; refuses more than `size_max` bytes. On failure nothing is
 * appended, and a buffer that was empty holds no memory. */
int fl_file_read(const char *path, size_t size_max, fl_buf *out, fletch_error *error);

/* The same of whatever can be read, a pipe too: for a name that the user gave, `<(...)` of a shell. */
int fl_pipe_read(const char *path, size_t size_max, fl_buf *out, fletch_error *error);

bool fl_file_exists(const char *path); /* a regular file, links followed */

/* For a file of `folder` that may be absent, whose path goes to path[capacity]: 1 a regular file, 0 nothing has that
 * name, FLETCH_EMODEL for a name that leads to no file (a broken link, a folder, a pipe, a device), or as fl_path_join
 * and fl_file_read where it is too long or the folder may not be searched. Reading on as if the file were absent
 * would give other vectors. */
int fl_file_find(char *path, size_t capacity, const char *folder, const char *name,
                 fletch_error *error);

bool fl_folder_exists(const char *path);

/* mkdir -p. */
int fl_folder_make(const char *path, fletch_error *error);

/* Remove a file or a folder with everything in it; links are removed, not followed. */
int fl_path_remove(const char *path, fletch_error *error);

/* Write a file so that its final name never shows a half: temporary name beside it, fsync, rename. A link
 * at the final name is replaced, not followed. Permissions: 0666 less the umask. */
typedef enum fl_atomic_care {
    FL_ATOMIC_DURABLE, /* content and name are on the disk when the commit returns */
    FL_ATOMIC_CONTENT, /* the content is; the name follows with the next fl_parent_sync */
    FL_ATOMIC_CHECKED  /* neither: a reader that finds it torn after a power cut knows what to do */
} fl_atomic_care;

typedef struct fl_atomic_file {
    int            fd;        /* -1 when not open */
    char          *path;      /* owned: final name */
    char          *temporary; /* owned */
    fl_atomic_care care;      /* durable unless the caller says otherwise after the opening */
} fl_atomic_file;
int  fl_atomic_open(fl_atomic_file *file, const char *path, fletch_error *error);
int  fl_atomic_write(fl_atomic_file *file, const void *data, size_t size, fletch_error *error);
int  fl_atomic_commit(fl_atomic_file *file, fletch_error *error); /* closes; on failure aborts */
void fl_atomic_abort(fl_atomic_file *file); /* idempotent; removes the temporary */

/* The whole of a file in one go. */
int fl_atomic_put(const char *path, const void *data, size_t size, fl_atomic_care care,
                  fletch_error *error);

/* A temporary of `path` that nobody writes any more, left by a process that was killed: its name into
 * out[capacity]; false when there is none. */
bool fl_atomic_leftover(const char *path, char *out, size_t capacity);

/* Remove what killed writers left in `folder`: temporaries of this host that nobody holds, and, where
 * `everywhere`, those of all hosts (nobody writes there any more). Gives their number. */
size_t fl_atomic_sweep(const char *folder, bool everywhere);

/* After a rename: make the new name durable by syncing its folder. Some file systems cannot; the data
 * itself is safe then, so there is nothing to report. */
void fl_parent_sync(const char *path);

/* "a/b" into out[capacity]; FLETCH_ENOSPC when it does not fit. */
int fl_path_join(char *out, size_t capacity, const char *a, const char *b, fletch_error *error);

/* The folder above the one where PATH finds `program`, as "FOLDER/..": the prefix that it is installed
 * under. False: PATH finds none, or it does not fit. Reads the environment, as getenv does. */
bool fl_path_prefix(const char *program, char *out, size_t capacity);

/* Where this user's programs keep what they can make again, as the XDG rules say: "~/.cache/NAME". False: no HOME
 * says where, or it does not fit. Reads the environment. */
bool fl_path_cache(const char *name, char *out, size_t capacity);

/* Whether a relative path from a file or server stays inside its folder: not empty, not absolute, no
 * "..", no backslash, no control character. */
bool fl_path_is_safe(const char *relative);

/* Whether a name or path ends so. */
bool fl_path_ends_with(const char *path, const char *end);

/* write(2) all bytes, restarting on EINTR and short writes; 0 or -1 with errno. */
int fl_write_all(int fd, const void *data, size_t size);

void fl_close(int fd); /* negative: none; errno stays as it was */

#endif
