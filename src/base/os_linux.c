/* SPDX-License-Identifier: Apache-2.0 */
/* os_linux.c - Linux: futexes, affinity, sysfs, /proc, huge pages. See os.h and os_posix.c.
 *
 * Memory  Stack only. Threads: any; nothing is kept.
 * Proof   tests/unit/test_base_cpu.c, test_base_pool.c, test_base_number.c, test_memory.c,
 *         test_onnxruntime.c. */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/random.h>
#include <locale.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/cpu_isa.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/os_posix.h"
#include "base/thread.h"

const char *fl_os_reason(int errno_value, char *buffer, size_t capacity) {
#ifdef __GLIBC__
    return strerror_r(errno_value, buffer, capacity); /* GNU's returns the words */
#else
    (void)strerror_r(errno_value, buffer, capacity); /* POSIX's, in musl, a status */
    return buffer;
#endif
}

/* The system call by its number: glibc has a function for it since 2.25. */
bool fl_os_random(void *out, size_t size) {
    return syscall(SYS_getrandom, out, size, GRND_NONBLOCK) == (ssize_t)size;
}

/* "C" is static in libc: newlocale does no work and fails only without memory. */
double fl_os_strtod(const char *text) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return NAN;
    double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    return value;
}

/* ---- Threads --------------------------------------------------------------------------------- */

void fl_os_wait(atomic_uint *word, unsigned expected) {
    /* EAGAIN (it changed) and EINTR both mean: look again, which every caller does. */
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void fl_os_wake(atomic_uint *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

uint64_t fl_os_thread(void) {
    return (uint64_t)syscall(SYS_gettid);
}

bool fl_os_thread_gone(uint64_t thread) {
    return syscall(SYS_tgkill, getpid(), (pid_t)thread, 0) != 0 && errno == ESRCH;
}

void fl_os_thread_name(pthread_t thread, const char *name) {
    (void)pthread_setname_np(thread, name);
}

void fl_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

void fl_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns) {
    if (until_ns == UINT64_MAX) {
        pthread_cond_wait(cond, lock);
        return;
    }
    struct timespec until = {.tv_sec  = (time_t)(until_ns / 1000000000U),
                             .tv_nsec = (long)(until_ns % 1000000000U)};
    pthread_cond_timedwait(cond, lock, &until);
}

/* ---- Processors ------------------------------------------------------------------------------ */

/* Those in the affinity mask; the mask is as long as the kernel's, which only trying tells. */
unsigned fl_os_processors(void) {
    enum { CPUS_MAX = 1 << 16 };
    for (size_t cpus = CPU_SETSIZE; cpus <= CPUS_MAX; cpus *= 2) {
        cpu_set_t *set   = CPU_ALLOC(cpus);
        size_t     bytes = CPU_ALLOC_SIZE(cpus);
        if (set == NULL)
            break;
        bool     known = sched_getaffinity(0, bytes, set) == 0;
        bool     small = !known && errno == EINVAL;
        unsigned count = known ? (unsigned)CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (known)
            return count;
        if (!small)
            break;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

/* A processor; `core` is the first of the siblings, and `rank` which of those that are given it is. */
typedef struct place {
    uint16_t cpu, node, core, rank;
} place;

/* /sys/devices/system/cpu/cpuN has a link nodeM and the list of siblings; without them it is alone on node 0. */
static place place_of(const char *root, uint16_t cpu) {
    enum { NODES_MAX = 64 };
    char  folder[PATH_MAX], path[PATH_MAX + 16], list[64];
    place out = {.cpu = cpu, .core = cpu};
    (void)snprintf(folder, sizeof folder, "%s/sys/devices/system/cpu/cpu%u", root, cpu);
    for (uint16_t node = 0; node < NODES_MAX; node++) {
        (void)snprintf(path, sizeof path, "%s/node%u", folder, node);
        if (access(path, F_OK) == 0) {
            out.node = node;
            break;
        }
    }
    if (fl_small_read(folder, "/topology/thread_siblings_list", list, sizeof list))
        out.core = (uint16_t)strtoul(list, NULL, 10);
    return out;
}

uint16_t fl_cpu_node(const char *root, uint16_t cpu) {
    return place_of(root, cpu).node;
}

static int by_place(const void *a, const void *b) {
    const place *x = a, *y = b;
    return x->node != y->node   ? x->node - y->node
           : x->core != y->core ? x->core - y->core
                                : x->cpu - y->cpu;
}

static int by_rank(const void *a, const void *b) {
    const place *x = a, *y = b;
    return x->rank != y->rank ? x->rank - y->rank : by_place(a, b);
}

unsigned fl_cpu_choose(const char *root, uint16_t *cpus, unsigned count, unsigned usable) {
    place at[FL_CORES_MAX];
    for (unsigned i = 0; i < count; i++)
        at[i] = place_of(root, cpus[i]);
    qsort(at, count, sizeof *at, by_place);
    for (unsigned i = 1; i < count; i++) {
        bool sibling = at[i].core == at[i - 1].core;
        at[i].rank   = sibling ? at[i - 1].rank + 1 : 0;
    }
    if (usable < count) {
        qsort(at, count, sizeof *at, by_rank);
        count = usable;
        qsort(at, count, sizeof *at, by_place);
    }
    for (unsigned i = 0; i < count; i++)
        cpus[i] = at[i].cpu;
    return count;
}

unsigned fl_cpu_cores(uint16_t out[FL_CORES_MAX]) {
    cpu_set_t set;
    unsigned  count = 0;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_SET(0, &set);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE && count < FL_CORES_MAX; cpu++)
        if (CPU_ISSET(cpu, &set))
            out[count++] = (uint16_t)cpu;
    return fl_cpu_choose("", out, count, fl_cpu_usable());
}

void fl_cpu_pin(uint16_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (core < CPU_SETSIZE) {
        CPU_SET(core, &set);
        (void)sched_setaffinity(0, sizeof set, &set);
    }
}

/* Caches as the kernel lists them: level, type, and a size like "48K". */
void fl_os_caches(fl_cpu *out) {
    enum { CACHES_MAX = 8 };
    for (int i = 0; i < CACHES_MAX; i++) {
        char folder[80], level[16], type[32], size[32];
        (void)snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu0/cache/index%d", i);
        if (!fl_small_read(folder, "/level", level, sizeof level) ||
            !fl_small_read(folder, "/type", type, sizeof type) ||
            !fl_small_read(folder, "/size", size, sizeof size))
            return;
        char    *unit;
        uint64_t bytes = strtoull(size, &unit, 10);
        bytes *= *unit == 'K' ? 1024 : *unit == 'M' ? 1024 * 1024 : 1;
        if (type[0] != 'I' && bytes <= UINT32_MAX) /* Data or Unified */
            fl_cpu_set_cache(out, (unsigned)(level[0] - '0'), (uint32_t)bytes);
    }
}

void fl_os_arm(fl_cpu *out) {
    /* asm/hwcap.h of AArch64, which another processor's has not */
    enum { ASIMD = 1 << 1, ASIMD_DOT = 1 << 20, I8MM = 1 << 13, BF16 = 1 << 14 };
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    out->neon         = (first & ASIMD) != 0;
    out->neon_dotprod = (first & ASIMD_DOT) != 0;
    out->neon_i8mm    = (second & I8MM) != 0;
    out->neon_bf16    = (second & BF16) != 0;
}

bool fl_os_amx(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, SYSCALL = 158 /* arch_prctl */ };
    return syscall(SYSCALL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* ---- Memory and files ------------------------------------------------------------------------ */

void fl_posix_huge(void *block, size_t size) {
    madvise(block, size, MADV_HUGEPAGE);
}

void fl_os_pages_release(void *data, size_t size) {
    madvise(data, size, MADV_DONTNEED);
}

bool fl_os_move(void *from, void *to, size_t size) {
    return mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
}

/* A line of /proc/self/maps: "BEGIN-END rights offset device node      PATH". */
bool fl_os_mapping(const char *path, uintptr_t *begin, uintptr_t *end) {
    enum { MAPS_MAX = 64 * 1024 * 1024 };
    fl_buf maps  = {0};
    bool   found = false;
    (void)fl_file_read("/proc/self/maps", MAPS_MAX, &maps, NULL);
    for (const char *line = maps.data; !found && line != NULL && *line != '\0';) {
        const size_t size = strcspn(line, "\n");
        const char  *name = memchr(line, '/', size);
        char        *dash = NULL;
        *begin            = strtoul(line, &dash, 16);
        *end              = *dash == '-' ? strtoul(dash + 1, NULL, 16) : 0;
        found             = name != NULL && (size_t)(line + size - name) == strlen(path) &&
                memcmp(name, path, strlen(path)) == 0 && *end != 0;
        line += size + (line[size] == '\n');
    }
    fl_buf_free(&maps);
    return found;
}

/* ---- Sockets --------------------------------------------------------------------------------- */

int fl_os_accept(int listener) {
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

void fl_os_hush(int listener) {
    /* Offset 13 of a TCP header holds the flags, 2 is SYN: those segments are dropped, all others pass. */
    struct sock_filter no_syn[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
    const struct sock_fprog program = {sizeof no_syn / sizeof no_syn[0], no_syn};
    (void)setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

/* ---- Memory of the machine ------------------------------------------------------------------- */
uint64_t fl_os_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES);
    return pages > 0 ? (uint64_t)pages * fl_os_page() : 0;
}

bool fl_os_memory_left(const char *root, uint64_t *total, uint64_t *available) {
    char text[4096];
    if (!fl_small_read(root, "/proc/meminfo", text, sizeof text))
        return false;
    *total     = fl_small_number(text, "MemTotal:") * 1024;
    *available = fl_small_number(text, "MemAvailable:") * 1024;
    *available = *available > 0 ? *available : *total; /* a kernel before 3.14 does not say */
    return *total > 0;
}

uint64_t fl_os_resident(const char *root) {
    char               text[128];
    unsigned long long size, resident;
    bool               told = fl_small_read(root, "/proc/self/statm", text, sizeof text) &&
                sscanf(text, "%llu %llu", &size, &resident) == 2;
    return told ? resident * fl_os_page() : 0;
}

/* Not getrusage where it can be helped: Linux counts there what the parent held before it became this
 * program, so that a large caller would be told as us. */
uint64_t fl_os_resident_peak(void) {
    char          text[4096];
    struct rusage usage = {.ru_maxrss = 0};
    uint64_t      kib   = 0;
    if (fl_small_read("", "/proc/self/status", text, sizeof text))
        kib = fl_small_number(text, "VmHWM:");
    if (kib == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        kib = (uint64_t)usage.ru_maxrss;
    return kib * 1024;
}

bool fl_big_pages(size_t *page) {
    char text[128];
    *page         = fl_os_page();
    int     fd    = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[count > 0 ? count : 0] = '\0';
    bool offered = strstr(text, "[always]") != NULL || strstr(text, "[madvise]") != NULL;
    return offered && prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0;
}

bool fl_os_program(char *out, size_t capacity) {
    ssize_t size             = readlink("/proc/self/exe", out, capacity - 1);
    out[size > 0 ? size : 0] = '\0';
    return size > 0;
}

extern const ElfW(Ehdr) __ehdr_start
    __attribute__((visibility("hidden"))); /* ours, from the linker */

const char *fl_os_no_library(const unsigned char *data, size_t size) {
    ElfW(Ehdr) head;
    if (size < sizeof head || memcmp(data, ELFMAG, SELFMAG) != 0)
        return "it is not an ELF file";
    memcpy(&head, data, sizeof head);
    if (head.e_type != ET_DYN)
        return "it is not a shared library";
    bool ours = head.e_machine == __ehdr_start.e_machine &&
                head.e_ident[EI_CLASS] == __ehdr_start.e_ident[EI_CLASS] &&
                head.e_ident[EI_DATA] == __ehdr_start.e_ident[EI_DATA];
    return ours ? NULL : "it is built for another kind of processor";
}
