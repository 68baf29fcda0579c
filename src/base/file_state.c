/* SPDX-License-Identifier: Apache-2.0 */
/* file_state.c - whether a large file is what it was, without reading all of it; its hash, read once.
 *
 * State   Size, number and both times of a file, and some pages of its content. The time of the last change is the one
 *         that nobody can set back: a file written in place has another state, even with its size and time of writing
 *         as before. On disks without such a time the pages tell other content apart.
 * Hashes  FOLDER/HASH, a line of the state and the SHA-256 for each file, HASH that of its path without links. A
 *         server that starts reads the weights' numbers anyway, but hashing them costs several times that: 60 of
 *         the 165 ms of processor time until MiniLM's first answer, seconds for larger models. What others may write
 *         is not read. Writers that meet have a temporary each; the last one stays.
 * Threads any.
 * Proof   tests/unit/test_base_file.c, tests/cli/test_vector_id.py. */
#include "base/file_state.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/sha256.h"

enum {
    SAMPLES = 64, /* pages */
    SAMPLE  = 4096,
    PAYS    = 16 << 20, /* bytes from which a hash is kept: less is read in a blink */
    DIGITS  = 64
};
static const int64_t settled_ns = 2000000000; /* the coarsest clock of a disk */

_Static_assert(sizeof(fl_file_state) == 5 * sizeof(uint64_t), "a state has no padding");

/* False: they cannot be read. */
static bool sample(int fd, uint64_t bytes, uint64_t *out) {
    unsigned char  page[SAMPLE];
    const size_t   size = bytes < sizeof page ? (size_t)bytes : sizeof page;
    const uint64_t last = bytes - size;
    *out                = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        const uint64_t at = i == SAMPLES - 1 ? last : last / (SAMPLES - 1) * i;
        if (!fl_fd_copy(fd, at, size, page))
            return false;
        *out = fl_hash_fold(*out ^ fl_checksum(page, size), 0x9E3779B97F4A7C15U);
    }
    return true;
}

const char *fl_file_state_read(int fd, fl_file_state *out) {
    fl_os_file      file;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (!fl_os_look(fd, &file))
        return "this system does not report when a file changed";
    *out = (fl_file_state){.size       = file.size,
                           .node       = file.node,
                           .written_ns = file.written_ns,
                           .changed_ns = file.changed_ns};
    if (!sample(fd, file.size, &out->sample))
        return "the file cannot be read";
    return file.changed_ns > (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - settled_ns
               ? "the file changed a moment ago; the next opening will do"
               : NULL;
}

/* ---- Hashes ---------------------------------------------------------------------------------- */

/* Where the hash of the file at `path` is kept; false: nowhere. */
static bool find_record(const char *path, char out[FL_OS_PATH]) {
    char real[PATH_MAX], name[80], hex[DIGITS + 1];
    if (realpath(path, real) == NULL)
        return false;
    fl_sha256_hex(real, strlen(real), hex);
    (void)snprintf(name, sizeof name, "fletch/sha256/%s", hex);
    return fl_path_cache(name, out, FL_OS_PATH);
}

/* A record up to its hash; so many bytes. */
static int put_state(char out[160], const fl_file_state *s) {
    return snprintf(out, 160, "1 %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %016" PRIx64 " ",
                    s->size, s->node, s->written_ns, s->changed_ns, s->sample);
}

/* Whether a hash is kept of the file in that state. */
static bool recall(const char *record, const fl_file_state *state, char hex[DIGITS + 1]) {
    char         want[160], found[160 + DIGITS + 1];
    const size_t size = (size_t)put_state(want, state), all = size + DIGITS + 1;
    fl_os_file   file;
    int          fd = fl_regular_open(record, NULL, NULL);
    if (fd < 0)
        return false;
    const bool read =
        fl_os_look(fd, &file) && file.guarded && file.size == all && fl_fd_copy(fd, 0, all, found);
    close(fd);
    if (!read || memcmp(found, want, size) != 0 || found[all - 1] != '\n')
        return false;
    memcpy(hex, found + size, DIGITS);
    hex[DIGITS] = '\0';
    return strspn(hex, "0123456789abcdef") == DIGITS;
}

/* Without a word where it cannot be: the next time reads the file again. */
static void keep(char *record, const fl_file_state *state, const char *hex) {
    char  text[160 + DIGITS + 1];
    int   size = put_state(text, state);
    char *name = strrchr(record, '/');
    size += snprintf(text + size, sizeof text - (size_t)size, "%s\n", hex);
    *name                = '\0';
    const bool is_folder = fl_folder_make(record, NULL) == FLETCH_OK;
    *name                = '/';
    if (is_folder)
        (void)fl_atomic_put(record, text, (size_t)size, FL_ATOMIC_CHECKED, NULL);
}

int fl_file_sha256_kept(const char *path, char hex[65], fletch_error *error) {
    char          record[FL_OS_PATH];
    fl_file_state before, after;
    uint64_t      size;
    hex[0] = '\0';
    int fd = fl_regular_open(path, &size, error);
    if (fd < 0)
        return fd;
    const bool kept =
        size >= PAYS && fl_file_state_read(fd, &before) == NULL && find_record(path, record);
    int status = FLETCH_OK;
    if (!kept || !recall(record, &before, hex)) {
        status = fl_fd_sha256(fd, path, hex, error);
        if (status == FLETCH_OK && kept && fl_file_state_read(fd, &after) == NULL &&
            memcmp(&before, &after, sizeof before) == 0)
            keep(record, &before, hex);
    }
    close(fd);
    return status;
}
