/* SPDX-License-Identifier: Apache-2.0 */
/* changed_files.c - weights that somebody changes on the disk while they are served.
 *
 * Role    An engine reads its largest tables where the file is mapped. A file that is replaced (written beside and
 *         renamed, as every download does) leaves the mapping as it was. One that is written in place gives other
 *         vectors under the same fingerprint; one that is cut short kills who reads beyond its end.
 * Method  When a model is loaded the files that it has mapped are noted: which inode, how large, when written. A
 *         worker looks at them once a second; the same inode with another size or time spoils the model: everything
 *         it is asked is refused, /ready says so, and the log tells to start again.
 *         A read beyond the end of a noted file is SIGBUS. The handler puts a page of zeros there and spoils the
 *         model; what was computed from it is refused, since that is asked after the work is done.
 * Memory  A fixed table of the process: a signal handler has no other. Threads: fl_files_note main, while nothing is
 *         served; fl_files_look a worker; the handler any.
 * Proof   tests/server/test_promises.py. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/os.h"
#include "server/server_internal.h"

enum { FILES_MAX = 2048 };

static struct noted {
    char              path[512]; /* without links */
    struct stat       then;
    _Atomic uintptr_t begin, end; /* where it is mapped; 0: nowhere */
    fl_served        *served;
    bool              replaced; /* told */
} noted[FILES_MAX];

static _Atomic size_t noted_count;

#ifdef SA_SIGINFO /* Windows has no such signal: it lets nobody cut a file that is mapped */
static uintptr_t page_bytes;

static void on_bus(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (size_t i = 0; i < atomic_load(&noted_count); i++) {
        if (at >= atomic_load(&noted[i].begin) && at < atomic_load(&noted[i].end)) {
            void *page = (void *)(at & ~(page_bytes - 1));
            atomic_store(&noted[i].served->spoiled, true);
            if (mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                page) {
                return;
            }
        }
    }
    (void)signal(number, SIG_DFL); /* not ours: the read is tried again, and that is the end */
}

void fl_files_guard(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    page_bytes          = fl_os_page();
    action.sa_sigaction = on_bus;
    action.sa_flags     = SA_SIGINFO;
    (void)sigaction(SIGBUS, &action, NULL);
}
#else
void fl_files_guard(void) {}
#endif

static void note(fl_served *served, const char *path) {
    size_t        count = atomic_load(&noted_count);
    struct noted *file  = &noted[count];
    char          real[PATH_MAX];
    if (count == FILES_MAX || realpath(path, real) == NULL || strlen(real) >= sizeof file->path ||
        stat(real, &file->then) != 0) {
        return; /* it is served all the same, unguarded */
    }
    memcpy(file->path, real, strlen(real) + 1);
    file->served    = served;
    file->replaced  = false;
    uintptr_t begin = 0, end = 0;
    (void)fl_os_mapping(real, &begin, &end);
    atomic_store(&file->begin, begin);
    atomic_store(&file->end, end);
    atomic_store(&noted_count, count + 1);
}

void fl_files_note(fl_served *served) {
    const char *path;
    for (size_t i = 0; (path = fletch_model_file_at(served->model, i)) != NULL; i++) {
        note(served, path);
    }
}

void fl_files_forget(void) {
    atomic_store(&noted_count, 0);
}

static bool is_written(const struct stat *then, const struct stat *now) {
    return now->st_size != then->st_size || now->st_mtim.tv_sec != then->st_mtim.tv_sec ||
           now->st_mtim.tv_nsec != then->st_mtim.tv_nsec;
}

void fl_files_look(fl_server *server) {
    for (size_t i = 0; i < atomic_load(&noted_count); i++) {
        struct noted *file = &noted[i];
        struct stat   now;
        if (stat(file->path, &now) != 0) {
            continue; /* deleted: the mapping keeps it */
        }
        bool same = now.st_ino == file->then.st_ino && now.st_dev == file->then.st_dev;
        if (!same && !file->replaced) {
            file->replaced = true;
            fl_server_log_line(server->log, FL_LEVEL_WARNING,
                               "%s was replaced; the model goes on with what it has loaded, start "
                               "the server again to serve the new file",
                               file->path);
        }
        bool spoiled = atomic_load(&file->served->spoiled);
        if ((same && is_written(&file->then, &now)) || spoiled) {
            atomic_store(&file->served->spoiled, true);
            if (!file->served->spoiled_told) {
                file->served->spoiled_told = true;
                fl_server_log_line(server->log, FL_LEVEL_ERROR,
                                   "%s was written while it was served: model %s answers nothing "
                                   "any more, start the server again",
                                   file->path, file->served->name);
            }
        }
    }
}
