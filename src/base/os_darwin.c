/* SPDX-License-Identifier: Apache-2.0 */
/* os_darwin.c - macOS: sleepers under a lock, sysctl, Mach's account of memory. See os.h and os_posix.c.
 *
 * Method  There is no futex that programs may use before macOS 14.4: a word's sleepers share one of a few
 *         pairs of lock and condition, chosen by its address. A thread cannot be tied to a processor.
 * Memory  Stack only, and the pairs. Threads: any.
 * Proof   compiled and linked by tools/cross.sh macos; never run. */
#include "base/os.h"

#include <errno.h>
#include <libproc.h>
#include <limits.h>
#include <mach-o/dyld.h>
#include <mach-o/fat.h>
#include <mach-o/loader.h>
#include <mach/mach.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <unistd.h>
#include <xlocale.h>

#include "base/clock.h"
#include "base/cpu_isa.h"
#include "base/mem.h"
#include "base/os_posix.h"
#include "base/thread.h"

const char *fl_os_reason(int errno_value, char *buffer, size_t capacity) {
    (void)strerror_r(errno_value, buffer, capacity);
    return buffer;
}

bool fl_os_random(void *out, size_t size) {
    return getentropy(out, size) == 0;
}

double fl_os_strtod(const char *text) {
    return strtod_l(text, NULL, NULL); /* NULL is the C locale */
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { PAIRS = 8 };

#define PAIR                                                                                       \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER }

static struct {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
} pairs[PAIRS] = {PAIR, PAIR, PAIR, PAIR, PAIR, PAIR, PAIR, PAIR};

static size_t pair_of(const atomic_uint *word) {
    return (uintptr_t)word / 64 % PAIRS;
}

void fl_os_wait(atomic_uint *word, unsigned expected) {
    const size_t i = pair_of(word);
    pthread_mutex_lock(&pairs[i].lock);
    if (atomic_load(word) == expected)
        pthread_cond_wait(&pairs[i].changed, &pairs[i].lock);
    pthread_mutex_unlock(&pairs[i].lock);
}

void fl_os_wake(atomic_uint *word) {
    const size_t i = pair_of(word);
    pthread_mutex_lock(&pairs[i].lock); /* who has read the old value sleeps by now */
    pthread_mutex_unlock(&pairs[i].lock);
    pthread_cond_broadcast(&pairs[i].changed);
}

uint64_t fl_os_thread(void) {
    uint64_t number = 0;
    (void)pthread_threadid_np(NULL, &number);
    return number;
}

bool fl_os_thread_gone(uint64_t thread) {
    struct proc_threadinfo about;
    errno = 0;
    return proc_pidinfo(getpid(), PROC_PIDTHREADID64INFO, thread, &about, sizeof about) <= 0 &&
           errno == ESRCH;
}

/* A thread names only itself here. */
void fl_os_thread_name(pthread_t thread, const char *name) {
    if (pthread_equal(thread, pthread_self()))
        (void)pthread_setname_np(name);
}

void fl_cond_init(pthread_cond_t *cond) {
    pthread_cond_init(cond, NULL);
}

void fl_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns) {
    if (until_ns == UINT64_MAX) {
        pthread_cond_wait(cond, lock);
        return;
    }
    const uint64_t  now  = fl_clock_ns();
    const uint64_t  left = until_ns > now ? until_ns - now : 0;
    struct timespec wait = {.tv_sec  = (time_t)(left / 1000000000U),
                            .tv_nsec = (long)(left % 1000000000U)};
    pthread_cond_timedwait_relative_np(cond, lock, &wait);
}

/* Asked every millisecond. */
int pthread_mutex_timedlock(pthread_mutex_t *lock, const struct timespec *until) {
    static const struct timespec moment = {0, 1000000};
    struct timespec              now;
    int                          code;
    while ((code = pthread_mutex_trylock(lock)) == EBUSY) {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec > until->tv_sec ||
            (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec))
            return ETIMEDOUT;
        (void)nanosleep(&moment, NULL);
    }
    return code;
}

/* ---- Processors ------------------------------------------------------------------------------ */

/* A number of sysctl, of 32 or 64 bits; 0: there is none. */
static uint64_t number_of(const char *name) {
    uint64_t value = 0;
    size_t   size  = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 ? value : 0;
}

unsigned fl_os_processors(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

unsigned fl_cpu_choose(const char *root, uint16_t *cpus, unsigned count, unsigned usable) {
    (void)root, (void)cpus; /* in the order in which the system numbers them */
    return count < usable ? count : usable;
}

uint16_t fl_cpu_node(const char *root, uint16_t cpu) {
    (void)root, (void)cpu;
    return 0;
}

unsigned fl_cpu_cores(uint16_t out[FL_CORES_MAX]) {
    unsigned count = fl_os_processors();
    count          = count < FL_CORES_MAX ? count : FL_CORES_MAX;
    for (unsigned cpu = 0; cpu < count; cpu++)
        out[cpu] = (uint16_t)cpu;
    return count;
}

void fl_cpu_pin(uint16_t core) {
    (void)core;
}

/* The fast cores' caches, where there are two kinds of cores. */
void fl_os_caches(fl_cpu *out) {
    static const struct {
        const char *name, *plain;
        unsigned    level;
    } caches[] = {{"hw.perflevel0.l1dcachesize", "hw.l1dcachesize", 1},
                  {"hw.perflevel0.l2cachesize", "hw.l2cachesize", 2},
                  {"hw.perflevel0.l3cachesize", "hw.l3cachesize", 3}};
    for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
        uint64_t bytes = number_of(caches[i].name);
        bytes          = bytes > 0 ? bytes : number_of(caches[i].plain);
        if (bytes > 0 && bytes <= UINT32_MAX)
            fl_cpu_set_cache(out, caches[i].level, (uint32_t)bytes);
    }
}

void fl_os_arm(fl_cpu *out) {
    out->neon         = number_of("hw.optional.arm64") != 0;
    out->neon_dotprod = number_of("hw.optional.arm.FEAT_DotProd") != 0;
    out->neon_i8mm    = number_of("hw.optional.arm.FEAT_I8MM") != 0;
    out->neon_bf16    = number_of("hw.optional.arm.FEAT_BF16") != 0;
}

bool fl_os_amx(void) {
    return false;
}

/* ---- Memory and files ------------------------------------------------------------------------ */

void fl_posix_huge(void *block, size_t size) {
    (void)block, (void)size;
}

static bool is_of_file(void *data) {
    vm_address_t                   at   = (vm_address_t)(uintptr_t)data;
    vm_size_t                      size = 0;
    vm_region_extended_info_data_t about;
    mach_msg_type_number_t         count  = VM_REGION_EXTENDED_INFO_COUNT;
    mach_port_t                    object = MACH_PORT_NULL;
    return vm_region_64(mach_task_self(), &at, &size, VM_REGION_EXTENDED_INFO,
                        (vm_region_info_t)&about, &count, &object) != KERN_SUCCESS ||
           about.external_pager != 0;
}

/* MADV_DONTNEED keeps the contents here: the pages of a block are mapped anew, to be zeros. */
void fl_os_pages_release(void *data, size_t size) {
    if (is_of_file(data)) {
        (void)madvise(data, size, MADV_DONTNEED);
    } else {
        (void)mmap(data, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0);
    }
}

bool fl_os_move(void *from, void *to, size_t size) {
    (void)from, (void)to, (void)size;
    return false;
}

bool fl_big_pages(size_t *page) {
    *page = fl_os_page();
    return false;
}

uint64_t fl_os_memory(void) {
    return number_of("hw.memsize");
}

bool fl_os_memory_left(const char *root, uint64_t *total, uint64_t *available) {
    vm_statistics64_data_t about;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    (void)root;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&about, &count) !=
        KERN_SUCCESS)
        return false;
    *total     = fl_os_memory();
    *available = ((uint64_t)about.free_count + about.inactive_count) * fl_os_page();
    return *total > 0;
}

bool fl_os_mapping(const char *path, uintptr_t *begin, uintptr_t *end) {
    (void)path, (void)begin, (void)end;
    return false;
}

/* ---- Sockets --------------------------------------------------------------------------------- */

int fl_os_accept(int listener) {
    const int fd = accept(listener, NULL, NULL);
    if (fd >= 0)
        fl_os_tame(fd);
    return fd;
}

void fl_os_hush(int listener) {
    (void)listener;
}

/* ---- Memory of the process ------------------------------------------------------------------- */

uint64_t fl_os_resident(const char *root) {
    struct mach_task_basic_info about;
    mach_msg_type_number_t      count = MACH_TASK_BASIC_INFO_COUNT;
    (void)root;
    return task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&about, &count) ==
                   KERN_SUCCESS
               ? about.resident_size
               : 0;
}

uint64_t fl_os_resident_peak(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss : 0; /* in bytes here */
}

bool fl_os_program(char *out, size_t capacity) {
    uint32_t size = (uint32_t)capacity;
    out[0]        = '\0';
    return _NSGetExecutablePath(out, &size) == 0;
}

const char *fl_os_no_library(const unsigned char *data, size_t size) {
    struct mach_header_64 head;
    uint32_t              magic = 0;
    memcpy(&magic, data, size < sizeof magic ? 0 : sizeof magic);
    if (magic == FAT_CIGAM)
        return NULL; /* for several processors: the loader looks */
    if (size < sizeof head || magic != MH_MAGIC_64)
        return "it is not a Mach-O file";
    memcpy(&head, data, sizeof head);
    if (head.filetype != MH_DYLIB && head.filetype != MH_BUNDLE)
        return "it is not a shared library";
    const struct mach_header *ours = _dyld_get_image_header(0);
    return ours != NULL && head.cputype == ours->cputype
               ? NULL
               : "it is built for another kind of processor";
}
