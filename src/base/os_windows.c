/* SPDX-License-Identifier: Apache-2.0 */
/* os_windows.c - Windows: WaitOnAddress, affinity, VirtualAlloc, views of files. See os.h and windows/posix.h.
 *
 * Method  No huge pages: they take a privilege. A processor group has 64 processors; those of the process's
 *         own group are used.
 * Memory  Stack only, but for what a table of processors takes for the time of a call.
 * Threads any; nothing is kept.
 * Proof   the tests of os_linux.c under wine: tools/cross.sh windows. */
#include "base/os.h"

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <locale.h>
#include <math.h>
#include <ntsecapi.h>
#include <psapi.h>

#include "base/clock.h"
#include "base/cpu_isa.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/windows/utf16.h"

const char *fl_os_reason(int errno_value, char *buffer, size_t capacity) {
    (void)snprintf(buffer, capacity, "%s", posix_strerror(errno_value));
    return buffer;
}

bool fl_os_random(void *out, size_t size) {
    return RtlGenRandom(out, (ULONG)size);
}

double fl_os_strtod(const char *text) {
    _locale_t plain = _create_locale(LC_ALL, "C");
    if (plain == NULL)
        return NAN;
    double value = _strtod_l(text, NULL, plain);
    _free_locale(plain);
    return value;
}

/* ---- Threads --------------------------------------------------------------------------------- */

void fl_os_wait(atomic_uint *word, unsigned expected) {
    (void)WaitOnAddress((volatile void *)(uintptr_t)word, &expected, sizeof expected, INFINITE);
}

void fl_os_wake(atomic_uint *word) {
    WakeByAddressAll((void *)(uintptr_t)word);
}

uint64_t fl_os_thread(void) {
    return GetCurrentThreadId();
}

bool fl_os_thread_gone(uint64_t thread) {
    HANDLE open = OpenThread(SYNCHRONIZE, FALSE, (DWORD)thread);
    if (open == NULL)
        return GetLastError() == ERROR_INVALID_PARAMETER;
    bool gone = WaitForSingleObject(open, 0) == WAIT_OBJECT_0;
    CloseHandle(open);
    return gone;
}

void fl_os_thread_name(pthread_t thread, const char *name) {
    (void)pthread_setname_np(thread, name);
}

void fl_cond_init(pthread_cond_t *cond) {
    pthread_cond_init(cond, NULL);
}

/* The conditions of winpthreads know the time of day alone; who sets it makes a wait longer or shorter once. */
void fl_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns) {
    if (until_ns == UINT64_MAX) {
        pthread_cond_wait(cond, lock);
        return;
    }
    struct timespec until;
    const uint64_t  now = fl_clock_ns();
    clock_gettime(CLOCK_REALTIME, &until);
    const uint64_t left = (until_ns > now ? until_ns - now : 0) + (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(left / 1000000000U);
    until.tv_nsec = (long)(left % 1000000000U);
    pthread_cond_timedwait(cond, lock, &until);
}

/* ---- Processors ------------------------------------------------------------------------------ */

static uint64_t affinity(void) {
    DWORD_PTR own = 0, all = 0;
    return GetProcessAffinityMask(GetCurrentProcess(), &own, &all) && own != 0 ? own : 1;
}

unsigned fl_os_processors(void) {
    return (unsigned)__builtin_popcountll(affinity());
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
    const uint64_t mask  = affinity();
    unsigned       count = 0;
    for (uint16_t cpu = 0; cpu < 64 && count < FL_CORES_MAX; cpu++)
        if ((mask >> cpu & 1) != 0)
            out[count++] = cpu;
    return fl_cpu_choose("", out, count, fl_cpu_usable());
}

void fl_cpu_pin(uint16_t core) {
    if (core < 64)
        (void)SetThreadAffinityMask(GetCurrentThread(), (DWORD_PTR)1 << core);
}

void fl_os_caches(fl_cpu *out) {
    DWORD size = 0;
    (void)GetLogicalProcessorInformation(NULL, &size);
    SYSTEM_LOGICAL_PROCESSOR_INFORMATION *table = fl_alloc(size);
    if (table == NULL || !GetLogicalProcessorInformation(table, &size))
        size = 0;
    for (size_t i = 0; i < size / sizeof *table; i++) {
        const CACHE_DESCRIPTOR *cache = &table[i].Cache;
        if (table[i].Relationship == RelationCache && (table[i].ProcessorMask & 1) != 0 &&
            (cache->Type == CacheData || cache->Type == CacheUnified))
            fl_cpu_set_cache(out, cache->Level, cache->Size);
    }
    fl_free(table);
}

void fl_os_arm(fl_cpu *out) {
    (void)out;
}

bool fl_os_amx(void) {
    return false;
}

/* ---- Memory and files ------------------------------------------------------------------------ */

size_t fl_os_page(void) {
    SYSTEM_INFO about;
    GetSystemInfo(&about);
    return about.dwPageSize;
}

bool fl_big_pages(size_t *page) {
    *page = fl_os_page();
    return false;
}

/* Windows aligns to 64 KiB. For more a larger place is taken to see where one is, and let go; another thread may
 * be there first. */
void *fl_os_pages(size_t size) {
    enum { TRIES = 16 };
    void *block = NULL;
    if (size < FL_BIG_ALIGNMENT)
        return VirtualAlloc(NULL, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    for (int i = 0; i < TRIES && block == NULL && size <= SIZE_MAX - FL_BIG_ALIGNMENT; i++) {
        char *place = VirtualAlloc(NULL, size + FL_BIG_ALIGNMENT, MEM_RESERVE, PAGE_NOACCESS);
        if (place == NULL)
            return NULL;
        (void)VirtualFree(place, 0, MEM_RELEASE);
        place += -(uintptr_t)place & (FL_BIG_ALIGNMENT - 1);
        block = VirtualAlloc(place, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    }
    return block;
}

void fl_os_pages_free(void *block, size_t size) {
    (void)size;
    (void)VirtualFree(block, 0, MEM_RELEASE);
}

void fl_os_pages_cut(void *block, size_t size, size_t kept) {
    (void)VirtualFree((char *)block + kept, size - kept, MEM_DECOMMIT);
}

bool fl_os_move(void *from, void *to, size_t size) {
    (void)from, (void)to, (void)size;
    return false;
}

/* They leave the working set. Those of a block are zeroed for it and stay committed: to commit them anew could
 * fail, and then the next write would end the program. */
void fl_os_pages_release(void *data, size_t size) {
    MEMORY_BASIC_INFORMATION about;
    if (VirtualQuery(data, &about, sizeof about) != 0 && about.Type == MEM_PRIVATE)
        memset(data, 0, size);
    (void)VirtualUnlock(data, size); /* what it does to pages that are not locked */
}

void *fl_os_map(int fd, size_t size) {
    HANDLE map  = CreateFileMappingW((HANDLE)_get_osfhandle(fd), NULL, PAGE_READONLY, 0, 0, NULL);
    void  *data = map != NULL ? MapViewOfFile(map, FILE_MAP_READ, 0, 0, size) : NULL;
    if (data == NULL)
        (void)fl_windows_failed();
    if (map != NULL)
        CloseHandle(map); /* the view keeps it */
    return data;
}

void fl_os_unmap(void *data, size_t size) {
    (void)size;
    (void)UnmapViewOfFile(data);
}

bool fl_os_mapping(const char *path, uintptr_t *begin, uintptr_t *end) {
    (void)path, (void)begin, (void)end;
    return false;
}

uint64_t fl_os_open_files(uint64_t wanted) {
    enum { HANDLES = 1 << 24 }; /* of a process */
    (void)wanted;
    return HANDLES;
}

uint64_t fl_os_files_open(void) {
    DWORD count = 0;
    return GetProcessHandleCount(GetCurrentProcess(), &count) ? count : 0;
}

static double seconds_of(FILETIME time) {
    return (double)((uint64_t)time.dwHighDateTime << 32 | time.dwLowDateTime) / 1e7;
}

double fl_os_processor_seconds(void) {
    FILETIME begun, ended, kernel, user;
    return GetProcessTimes(GetCurrentProcess(), &begun, &ended, &kernel, &user)
               ? seconds_of(kernel) + seconds_of(user)
               : 0;
}

uint64_t fl_os_memory(void) {
    uint64_t total, available;
    return fl_os_memory_left("", &total, &available) ? total : 0;
}

bool fl_os_memory_left(const char *root, uint64_t *total, uint64_t *available) {
    MEMORYSTATUSEX about = {.dwLength = sizeof about};
    (void)root;
    if (!GlobalMemoryStatusEx(&about))
        return false;
    *total     = about.ullTotalPhys;
    *available = about.ullAvailPhys;
    return true;
}

static PROCESS_MEMORY_COUNTERS counters(void) {
    PROCESS_MEMORY_COUNTERS out = {.cb = sizeof out};
    (void)GetProcessMemoryInfo(GetCurrentProcess(), &out, sizeof out);
    return out;
}

uint64_t fl_os_resident(const char *root) {
    (void)root;
    return counters().WorkingSetSize;
}

uint64_t fl_os_resident_peak(void) {
    return counters().PeakWorkingSetSize;
}

const void *fl_os_native_path(const char *path, void *buffer, size_t capacity) {
    wchar_t      name[FL_WIDE_MAX];
    const size_t size = fl_wide_path(path, name) ? (wcslen(name) + 1) * sizeof *name : SIZE_MAX;
    return size <= capacity ? memcpy(buffer, name, size) : NULL;
}

char **fl_os_environment(void) {
    return _environ;
}

unsigned fl_os_columns(int fd) {
    CONSOLE_SCREEN_BUFFER_INFO about;
    HANDLE                     screen = (HANDLE)_get_osfhandle(fd);
    return GetConsoleScreenBufferInfo(screen, &about)
               ? (unsigned)(about.srWindow.Right - about.srWindow.Left + 1)
               : 0;
}

bool fl_os_program(char *out, size_t capacity) {
    wchar_t name[FL_WIDE_MAX];
    out[0]           = '\0';
    const DWORD size = GetModuleFileNameW(NULL, name, FL_WIDE_MAX);
    return size > 0 && size < FL_WIDE_MAX && fl_wide_to_text(name, out, capacity);
}

bool fl_os_look(int fd, fl_os_file *out) {
    (void)fd, (void)out; /* who may write a file stands in lists that a mode does not express */
    return false;
}

const char *fl_os_no_library(const unsigned char *data, size_t size) {
    const IMAGE_DOS_HEADER *first = (const void *)data;
    IMAGE_NT_HEADERS64      head;
    if (size < sizeof *first || first->e_magic != IMAGE_DOS_SIGNATURE || first->e_lfanew < 0 ||
        (size_t)first->e_lfanew > size - sizeof *first ||
        size - (size_t)first->e_lfanew < sizeof head)
        return "it is not a DLL";
    memcpy(&head, data + first->e_lfanew, sizeof head);
    if (head.Signature != IMAGE_NT_SIGNATURE ||
        (head.FileHeader.Characteristics & IMAGE_FILE_DLL) == 0)
        return "it is not a DLL";
    return head.FileHeader.Machine == IMAGE_FILE_MACHINE_AMD64
               ? NULL
               : "it is built for another kind of processor";
}
