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
 * Memory  A fixed table of the process: a signal handler has no other; what a closed model leaves is used again.
 * Threads fl_files_note and fl_files_drop who opens and closes models; fl_files_look a worker; the handler any, by the
 *         atomics alone.
 * Proof   tests/server/test_promises.py. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/locked.h"
#include "base/os.h"
#include "server/server_internal.h"

enum { FILES_MAX = 2048 };

FL_LOCK_ROLE(files_role); /* table_lock */

static struct noted {
    char               path[512] FL_GUARDED_BY(files_role); /* without links */
    struct stat then   FL_GUARDED_BY(files_role);
    _Atomic uintptr_t  begin, end;                /* where it is mapped; 0: nowhere */
    fl_served *_Atomic served;                    /* NULL: the row is free */
    bool replaced      FL_GUARDED_BY(files_role); /* told */
} noted[FILES_MAX];

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; /* of all but the atomics */

FL_ACQUIRES(files_role) FL_UNCHECKED static void lock(void) {
    pthread_mutex_lock(&table_lock);
}

FL_RELEASES(files_role) FL_UNCHECKED static void unlock(void) {
    pthread_mutex_unlock(&table_lock);
}

static _Atomic size_t noted_count;

#ifdef SA_SIGINFO /* Windows has no such signal: it lets nobody cut a file that is mapped */
static uintptr_t page_bytes;

static void on_bus(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (size_t i = 0; i < atomic_load(&noted_count); i++) {
        if (at >= atomic_load(&noted[i].begin) && at < atomic_load(&noted[i].end)) {
            void      *page   = (void *)(at & ~(page_bytes - 1));
            fl_served *served = atomic_load(&noted[i].served);
            if (served != NULL)
                atomic_store(&served->spoiled, true);
            if (mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                page)
                return;
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

FL_REQUIRES(files_role) static void note(fl_served *served, const char *path) {
    size_t        count = atomic_load(&noted_count), at = 0;
    struct noted *file;
    char          real[PATH_MAX];
    while (at < count && atomic_load(&noted[at].served) != NULL)
        at++;
    file = &noted[at];
    if (at == FILES_MAX || realpath(path, real) == NULL || strlen(real) >= sizeof file->path ||
        stat(real, &file->then) != 0)
        return; /* it is served all the same, unguarded */
    memcpy(file->path, real, strlen(real) + 1);
    file->replaced = false;
    atomic_store(&file->served, served);
    uintptr_t begin = 0, end = 0;
    (void)fl_os_mapping(real, &begin, &end);
    atomic_store(&file->begin, begin);
    atomic_store(&file->end, end);
    if (at == count)
        atomic_store(&noted_count, count + 1);
}

void fl_files_note(fl_served *served) {
    const char *path;
    lock();
    for (size_t i = 0; (path = fletch_model_file_at(served->model, i)) != NULL; i++)
        note(served, path);
    unlock();
}

void fl_files_drop(const fl_served *served) {
    lock();
    for (size_t i = 0; i < atomic_load(&noted_count); i++) {
        if (atomic_load(&noted[i].served) == served) {
            atomic_store(&noted[i].end, 0);
            atomic_store(&noted[i].begin, 0);
            atomic_store(&noted[i].served, NULL);
        }
    }
    unlock();
}

static bool is_written(const struct stat *then, const struct stat *now) {
    return now->st_size != then->st_size || now->st_mtim.tv_sec != then->st_mtim.tv_sec ||
           now->st_mtim.tv_nsec != then->st_mtim.tv_nsec;
}

/* One file. A disk that stands still holds up who opens models, which it would do anyway. */
FL_REQUIRES(files_role) static void look_at(fl_server *server, struct noted *file) {
    fl_served  *served = atomic_load(&file->served);
    struct stat now;
    if (served == NULL || stat(file->path, &now) != 0)
        return; /* deleted: the mapping keeps it */
    bool same = now.st_ino == file->then.st_ino && now.st_dev == file->then.st_dev;
    if (!same && !file->replaced) {
        file->replaced = true;
        fl_server_log_line(server->log, FL_LEVEL_WARNING,
                           "%s was replaced; the model keeps what it has loaded, restart the "
                           "server to serve the new file",
                           file->path);
    }
    bool spoiled = atomic_load(&served->spoiled);
    if ((same && is_written(&file->then, &now)) || spoiled) {
        atomic_store(&served->spoiled, true);
        if (!served->spoiled_told) {
            served->spoiled_told = true;
            fl_server_log_line(server->log, FL_LEVEL_ERROR,
                               "%s was modified while being served: model %s no longer answers, "
                               "restart the server",
                               file->path, served->name);
        }
    }
}

void fl_files_look(fl_server *server) {
    lock();
    for (size_t i = 0; i < atomic_load(&noted_count); i++)
        look_at(server, &noted[i]);
    unlock();
}
