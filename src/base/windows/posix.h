/* SPDX-License-Identifier: Apache-2.0 */
/* posix.h - what POSIX has and mingw-w64 has not; included before every file of a build for Windows.
 *
 * Role    The rooms are written for POSIX; what they call by its name is here, over Win32. What systems do in
 *         ways that are not POSIX's is behind os.h.
 * Paths   UTF-8, / and \ alike, whatever the process's code page is: every call goes to Windows in UTF-16.
 * Files   Always binary, and shared so that a file which is open can be renamed and removed, as fletch does.
 *         Links are read as what they lead to and none is made (that takes a privilege): the hub cache
 *         then keeps copies, as huggingface_hub does there. Permissions are the folder's.
 * Locks   flock's are on a byte far behind the end: Windows refuses to read what another has locked.
 * Signals Ctrl-C is SIGINT, Ctrl-Break and the end of the console are SIGTERM; a thread cannot hold them back. */
#ifndef FL_BASE_WINDOWS_POSIX_H
#define FL_BASE_WINDOWS_POSIX_H

#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <limits.h>
#include <process.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* ---- Files ----------------------------------------------------------------------------------- */

#define O_CLOEXEC   0x1000000
#define O_NOFOLLOW  0
#define O_NONBLOCK  0x2000000 /* of sockets alone */
#define O_NOCTTY    0
#define O_DIRECTORY 0
#undef PATH_MAX
#define PATH_MAX       4096
#define PIPE_BUF       4096
#define LOCK_SH        1
#define LOCK_EX        2
#define LOCK_NB        4
#define LOCK_UN        8
#define EDQUOT         10069
#define S_ISLNK(mode)  ((void)(mode), 0)
#define S_ISSOCK(mode) ((void)(mode), 0)

int     posix_open(const char *path, int flags, ...);
int     posix_close(int fd); /* of a socket too */
ssize_t posix_read(int fd, void *out, size_t size);
ssize_t posix_write(int fd, const void *data, size_t size);
ssize_t posix_pread(int fd, void *out, size_t size, int64_t offset);
ssize_t posix_pwrite(int fd, const void *data, size_t size, int64_t offset);
int     posix_fsync(int fd);
int     posix_rename(const char *from, const char *to);
int     posix_unlink(const char *path);
int     posix_rmdir(const char *path);
int     posix_remove(const char *path);
int     posix_link(const char *from, const char *to);
int     posix_mkdir(const char *path, unsigned mode);
int     posix_access(const char *path, int mode);
int     posix_mkostemp(char *path, int flags);
char   *posix_mkdtemp(char *path);
char   *posix_realpath(const char *path, char *out); /* out is not NULL */
FILE   *posix_fopen(const char *path, const char *mode);
int     posix_flock(int fd, int operation);
#define open                      posix_open
#define close                     posix_close
#define read                      posix_read
#define write                     posix_write
#define pread                     posix_pread
#define pwrite                    posix_pwrite
#define fsync                     posix_fsync
#define rename                    posix_rename
#define unlink                    posix_unlink
#define rmdir                     posix_rmdir
#define remove                    posix_remove
#define link                      posix_link
#define mkdir                     posix_mkdir
#define access                    posix_access
#define mkostemp                  posix_mkostemp
#define mkstemp(path)             posix_mkostemp(path, 0)
#define mkdtemp                   posix_mkdtemp
#define realpath                  posix_realpath
#define fopen                     posix_fopen
#define flock                     posix_flock
#define tell                      posix_tell /* io.h has a function of that name, and so have files of ours */
#define pipe(fds)                 _pipe(fds, 65536, O_BINARY)
#define fchmod(fd, mode)          ((void)(fd), (void)(mode), 0)
#define symlink(to, path)         ((void)(to), (void)(path), errno = EPERM, -1)
#define readlink(path, out, size) ((void)(path), (void)(out), (void)(size), errno = EINVAL, -1)

struct posix_stat {
    unsigned        st_mode;
    uint64_t        st_dev, st_ino;
    int64_t         st_nlink, st_size, st_mtime;
    struct timespec st_mtim;
};

int posix_stat(const char *path, struct posix_stat *out);
int posix_fstat(int fd, struct posix_stat *out);
#undef stat
#undef fstat
#define stat  posix_stat
#define fstat posix_fstat
#define lstat posix_stat

struct statvfs {
    uint64_t f_bavail, f_frsize, f_bsize;
};

int statvfs(const char *path, struct statvfs *out);

/* ---- Folders and patterns -------------------------------------------------------------------- */

struct dirent {
    char d_name[1024]; /* of at most 255 UTF-16 units */
};

typedef struct posix_dir DIR;

DIR           *opendir(const char *path);
struct dirent *readdir(DIR *dir);
int            closedir(DIR *dir);

struct FTW {
    int base, level;
};

enum { FTW_F, FTW_D, FTW_DP };
#define FTW_DEPTH 1 /* the only order there is */
#define FTW_PHYS  2
int nftw(const char *path, int (*visit)(const char *, const struct posix_stat *, int, struct FTW *),
         int open_max, int flags);

#define FNM_PATHNAME 1                                         /* the only flag there is */
int fnmatch(const char *pattern, const char *text, int flags); /* *, ? and [a-z] */

typedef struct glob_t {
    size_t gl_pathc;
    char **gl_pathv;
} glob_t;

/* 0, or 1 when nothing matches; no flags, the names sorted by bytes */
int  glob(const char *pattern, int flags, void *none, glob_t *out);
void globfree(glob_t *hits);

/* ---- Libraries ------------------------------------------------------------------------------- */

#define RTLD_LAZY     1
#define RTLD_NOW      2
#define RTLD_LOCAL    0
#define RTLD_NODELETE 4

typedef struct Dl_info {
    const char *dli_fname; /* until this thread asks again */
} Dl_info;

void       *dlopen(const char *path, int flags);
void       *dlsym(void *handle, const char *name);
int         dlclose(void *handle);
const char *dlerror(void);
int         dladdr(const void *address, Dl_info *out);

/* ---- Text, time, the machine ----------------------------------------------------------------- */

#define strerror(number)    posix_strerror(number)
#define gmtime_r(time, out) (gmtime_s(out, time) == 0 ? (out) : NULL)

const char *posix_strerror(int number); /* of sockets too */

char *strcasestr(const char *text, const char *wanted);
char *strndup(const char *text, size_t size);
void *memmem(const void *text, size_t size, const void *wanted, size_t length);
int   setenv(const char *name, const char *value, int replace);
int   unsetenv(const char *name);

struct utsname {
    char sysname[16], nodename[256], release[32], machine[16];
};

int uname(struct utsname *out);

/* ---- Signals --------------------------------------------------------------------------------- */

#undef SIGTERM
#define SIGTERM     SIGBREAK
#define SIGHUP      0 /* one that Windows has not */
#define SIGBUS      0
#define SIGPIPE     0
#define SIGXFSZ     0
#define SIG_BLOCK   0
#define SIG_UNBLOCK 1
#define SIG_SETMASK 2
#define sigset_t    posix_signals
typedef int posix_signals;

struct sigaction {
    void (*sa_handler)(int);
    posix_signals sa_mask;
    int           sa_flags;
};

const char *strsignal(int number);
int         sigaction(int number, const struct sigaction *action, struct sigaction *before);
#undef pthread_sigmask
#define sigfillset(set)        ((void)(*(set) = -1))
#define sigemptyset(set)       ((void)(*(set) = 0))
#define sigaddset(set, number) ((void)(set), (void)(number))
#define sigdelset(set, number) ((void)(set), (void)(number))
static inline int pthread_sigmask(int how, const posix_signals *set, posix_signals *before) {
    (void)how, (void)set, (void)before;
    return 0;
}

int posix_main(int argc, char **argv); /* what main is compiled as; windows_program.c calls it */

#endif
