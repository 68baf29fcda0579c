/* SPDX-License-Identifier: Apache-2.0 */
/* os_posix.c - what Linux and macOS do alike: pages, files, sockets, the terminal. See os.h.
 *
 * Memory  Stack only. Threads: any; nothing is kept.
 * Proof   tests/unit/test_base_mem.c, test_base_file.c; tests/server. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/os_posix.h"

extern char **environ; /* POSIX has it in no header */

size_t fl_os_page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

void *fl_os_pages(size_t size) {
    size_t slack = size >= FL_BIG_ALIGNMENT ? FL_BIG_ALIGNMENT : 0; /* room to align; cut below */
    size_t mapped;
    if (fl_add_overflow(size, slack, &mapped))
        return NULL;
    char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    if (slack == 0)
        return base;
    size_t before = (size_t)(-(uintptr_t)base & (FL_BIG_ALIGNMENT - 1));
    if (before != 0)
        munmap(base, before);
    if (slack != before)
        munmap(base + before + size, slack - before);
    fl_posix_huge(base + before, size);
    return base + before;
}

void fl_os_pages_free(void *block, size_t size) {
    munmap(block, size);
}

void fl_os_pages_cut(void *block, size_t size, size_t kept) {
    munmap((char *)block + kept, size - kept);
}

void *fl_os_map(int fd, size_t size) {
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    return data == MAP_FAILED ? NULL : data;
}

void fl_os_unmap(void *data, size_t size) {
    munmap(data, size);
}

static int64_t nanoseconds(struct timespec time) {
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

bool fl_os_look(int fd, fl_os_file *out) {
    struct stat status;
    if (fstat(fd, &status) != 0)
        return false;
    const bool own = status.st_uid == geteuid() || status.st_uid == 0;
    *out           = (fl_os_file){.size       = (uint64_t)status.st_size,
                                  .node       = (uint64_t)status.st_ino,
                                  .written_ns = nanoseconds(status.st_mtim),
                                  .changed_ns = nanoseconds(status.st_ctim),
                                  .readers    = status.st_mode & (S_IRUSR | S_IRGRP | S_IROTH),
                                  .guarded    = own && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0};
    return true;
}

/* ---- Sockets and files ----------------------------------------------------------------------- */

void fl_os_tame(int fd) {
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

bool fl_os_pair(int fds[2]) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        return false;
    fl_os_tame(fds[0]);
    fl_os_tame(fds[1]);
    return true;
}

uint64_t fl_os_open_files(uint64_t wanted) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    struct rlimit more = limit;
    more.rlim_cur =
        limit.rlim_max != RLIM_INFINITY && limit.rlim_max < wanted ? limit.rlim_max : wanted;
    const bool raised = more.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &more) == 0;
    return raised ? more.rlim_cur : limit.rlim_cur;
}

uint64_t fl_os_files_open(void) {
    uint64_t count  = 0;
    DIR     *folder = opendir("/proc/self/fd");
    folder          = folder != NULL ? folder : opendir("/dev/fd"); /* macOS */
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        (void)closedir(folder);
    return count > 3 ? count - 3 : 0; /* ".", ".." and the folder itself */
}

double fl_os_processor_seconds(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

const void *fl_os_native_path(const char *path, void *buffer, size_t capacity) {
    (void)buffer, (void)capacity;
    return path;
}

char **fl_os_environment(void) {
    return environ;
}

unsigned fl_os_columns(int fd) {
    struct winsize window;
    return ioctl(fd, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
}
