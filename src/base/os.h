/* SPDX-License-Identifier: Apache-2.0 */
/* os.h - what an operating system does in its own way: os_linux.c, os_darwin.c (both with os_posix.c) or
 * os_windows.c, of which CMake takes one.
 *
 * The same files hold fl_cpu_cores and fl_cpu_pin (cpu.h), fl_big_pages (mem.h), fl_cond_init and
 * fl_cond_wait_until (thread.h). What POSIX names is called by that name: on Windows windows/posix.h has it. */
#ifndef FL_BASE_OS_H
#define FL_BASE_OS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/cpu.h"

#if defined(__APPLE__) /* what POSIX has, and macOS has not or by another name */
#define st_mtim                 st_mtimespec
#define st_ctim                 st_ctimespec
#define pthread_mutex_timedlock darwin_mutex_timedlock
int pthread_mutex_timedlock(pthread_mutex_t *lock, const struct timespec *until);
#endif

/* The system's words for an errno; may use the buffer. */
const char *fl_os_reason(int errno_value, char *buffer, size_t capacity);

/* Random bytes nobody can guess, at most 256; false when there are none yet (early boot). */
bool fl_os_random(void *out, size_t size);

/* strtod whose point is a point, whatever locale the caller's program has set. */
double fl_os_strtod(const char *text);

/* Sleep while *word is `expected`; may return early. Wake all who sleep on it. */
void fl_os_wait(atomic_uint *word, unsigned expected);
void fl_os_wake(atomic_uint *word);

/* The system's number of the calling thread, and whether that of such a number has ended. */
uint64_t fl_os_thread(void);
bool     fl_os_thread_gone(uint64_t thread);
/* At most 15 bytes, for debuggers */
void fl_os_thread_name(pthread_t thread, const char *name);

/* Processors this process may be scheduled on, at least 1; no quota is looked at. */
unsigned fl_os_processors(void);
/* The sizes of the first processor's caches, as far as the system lists them. */
void fl_os_caches(fl_cpu *out);
/* The instruction sets of an AArch64 processor; nothing on another. */
void fl_os_arm(fl_cpu *out);
/* Whether this process may use AMX's tile registers; asks for them. */
bool fl_os_amx(void);

/* Bytes of a page. */
size_t fl_os_page(void);
/* Whole zeroed pages; aligned and advised for huge ones where the system backs such blocks so. */
void *fl_os_pages(size_t size);
void  fl_os_pages_free(void *block, size_t size);
/* Give back the pages of block[size] behind the first `kept` bytes; it is freed with `kept` from then on. */
void fl_os_pages_cut(void *block, size_t size, size_t kept);
/* fl_pages_release, of whole pages. */
void fl_os_pages_release(void *data, size_t size);
/* Move whole pages to where others are mapped, without a copy; false, with nothing moved, where that cannot be. */
bool fl_os_move(void *from, void *to, size_t size);

/* The first `size` bytes of an open file, for reading; NULL with errno. */
void *fl_os_map(int fd, size_t size);
void  fl_os_unmap(void *data, size_t size);

/* What tells the content of an open file from what it was before without reading it. Who writes the file may set the
 * time of writing, but not that of the last change. */
typedef struct fl_os_file {
    uint64_t size, node;             /* bytes; the file system's number of the file */
    int64_t  written_ns, changed_ns; /* Unix time */
    unsigned readers;                /* who may read it: bits of a mode */
    bool     guarded;                /* nobody but this user and the system's may write it */
} fl_os_file;
/* False: the system does not tell, as Windows does not. */
bool fl_os_look(int fd, fl_os_file *out);

/* Where this process has mapped a file that is given by its path without links; false: nowhere, or it cannot be
 * told, as outside of Linux. */
bool fl_os_mapping(const char *path, uintptr_t *begin, uintptr_t *end);

/* Let a socket not block, and end with this program. */
void fl_os_tame(int fd);
/* Accept who waits: such a socket; -1 with errno. */
int fl_os_accept(int listener);
/* Begin no more connections on a TCP listener; those that have begun can still be accepted. Where the system has no
 * such thing they begin until it is closed. */
void fl_os_hush(int listener);
/* Two of them: what is sent into the second is received from the first. False with errno. */
bool fl_os_pair(int fds[2]);

/* Let this process open so many files, if the system does; how many it may open now. */
uint64_t fl_os_open_files(uint64_t wanted);
uint64_t fl_os_files_open(void); /* how many it has open */
double   fl_os_processor_seconds(void);

/* The machine's memory, whatever a control group says; 0: unknown. */
uint64_t fl_os_memory(void);
/* The same and what of it could be had; `root` is "" or, where these are files, a stand-in tree. */
bool fl_os_memory_left(const char *root, uint64_t *total, uint64_t *available);
/* What this process holds in memory now, and the most that it held; 0: unknown. */
uint64_t fl_os_resident(const char *root);
uint64_t fl_os_resident_peak(void);

/* A path as the system's own calls take it: on Windows in UTF-16 inside the buffer; NULL with errno. */
enum { FL_OS_PATH = 8448 };
const void *fl_os_native_path(const char *path, void *buffer, size_t capacity);
/* "NAME=value" of this process, ended by NULL; may be NULL. */
char **fl_os_environment(void);
/* Columns of the terminal behind a descriptor; 0 where there is none. */
unsigned fl_os_columns(int fd);
/* The running program's file; false when it cannot be told. */
bool fl_os_program(char *out, size_t capacity);
/* NULL, or why dlopen must not touch a file with this content. */
const char *fl_os_no_library(const unsigned char *data, size_t size);

#endif
