/* SPDX-License-Identifier: Apache-2.0 */
/* windows_system.c - libraries, environment and signals for posix.h.
 *
 * Memory  dlerror and dladdr keep their words per thread, as POSIX has it; nothing else is kept.
 * Proof   tests/unit under wine: tools/cross.sh windows. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <stdatomic.h>
#include <strings.h>

#include "base/mem.h"
#include "base/windows/utf16.h"

/* ---- Libraries ------------------------------------------------------------------------------- */

static _Thread_local char failure[256]; /* "": none */
static _Thread_local char place[PATH_MAX];

static void *told(void *handle) {
    const DWORD last = GetLastError();
    failure[0]       = '\0';
    if (handle == NULL && FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS,
                                         NULL, last, MAKELANGID(LANG_ENGLISH, SUBLANG_ENGLISH_US),
                                         failure, sizeof failure, NULL) == 0)
        (void)snprintf(failure, sizeof failure, "error %lu of Windows", last);
    failure[strcspn(failure, "\r\n")] = '\0';
    return handle;
}

void *dlopen(const char *path, int flags) {
    wchar_t    name[FL_WIDE_MAX], full[FL_WIDE_MAX];
    const bool placed = strpbrk(path, "/\\") != NULL;
    DWORD      modes;
    HMODULE    module = NULL;
    if (!fl_wide_path(path, name)) {
        SetLastError(ERROR_INVALID_NAME);
        return told(NULL);
    }
    SetThreadErrorMode(SEM_FAILCRITICALERRORS, &modes); /* no window that asks somebody */
    if (!placed)
        module = LoadLibraryW(name);
    else if (GetFullPathNameW(name, FL_WIDE_MAX, full, NULL) < FL_WIDE_MAX)
        module = LoadLibraryExW(full, NULL, LOAD_WITH_ALTERED_SEARCH_PATH); /* its own folder too */
    void *handle = told((void *)module);
    SetThreadErrorMode(modes, NULL);
    if (module != NULL && flags & RTLD_NODELETE) {
        (void)GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN |
                                     GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                                 (const wchar_t *)handle, &module);
    }
    return handle;
}

void *dlsym(void *handle, const char *name) {
    FARPROC found = GetProcAddress((HMODULE)handle, name);
    void   *symbol;
    memcpy(&symbol, &found, sizeof symbol); /* ISO C has no cast from a function pointer */
    return told(symbol);
}

int dlclose(void *handle) {
    return FreeLibrary((HMODULE)handle) ? 0 : -1;
}

const char *dlerror(void) {
    return failure[0] != '\0' ? failure : NULL;
}

int dladdr(const void *address, Dl_info *out) {
    wchar_t name[FL_WIDE_MAX];
    HMODULE module = NULL;
    if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                            (const wchar_t *)address, &module) ||
        GetModuleFileNameW(module, name, FL_WIDE_MAX) >= FL_WIDE_MAX ||
        !fl_wide_to_text(name, place, sizeof place))
        return 0;
    out->dli_fname = place;
    return 1;
}

/* ---- Text and environment -------------------------------------------------------------------- */

/* The C library has no words for what it does not raise itself. */
const char *posix_strerror(int number) {
    static const struct {
        int         number;
        const char *words;
    } table[] = {{EDQUOT, "Disk quota exceeded"},
                 {EADDRINUSE, "Address already in use"},
                 {EADDRNOTAVAIL, "Cannot assign requested address"},
                 {EAFNOSUPPORT, "Address family not supported"},
                 {ECONNREFUSED, "Connection refused"},
                 {ECONNRESET, "Connection reset by peer"},
                 {EHOSTUNREACH, "No route to host"},
                 {ENOBUFS, "No buffer space available"},
                 {ETIMEDOUT, "Connection timed out"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].number == number)
            return table[i].words;
    return (strerror)(number); /* the C library's own: no macro */
}

char *strcasestr(const char *text, const char *wanted) {
    const size_t size = strlen(wanted);
    for (; strncasecmp(text, wanted, size) != 0; text++)
        if (*text == '\0')
            return NULL;
    return (char *)(uintptr_t)text;
}

char *strndup(const char *text, size_t size) {
    const size_t length = strnlen(text, size);
    char        *copy   = malloc(length + 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

void *memmem(const void *text, size_t size, const void *wanted, size_t length) {
    const char *at = text;
    for (; size >= length; at++, size--)
        if (memcmp(at, wanted, length) == 0)
            return (void *)(uintptr_t)at;
    return NULL;
}

int setenv(const char *name, const char *value, int replace) {
    return !replace && getenv(name) != NULL ? 0 : _putenv_s(name, value) == 0 ? 0 : -1;
}

int unsetenv(const char *name) {
    return _putenv_s(name, "") == 0 ? 0 : -1;
}

int uname(struct utsname *out) {
    DWORD size = sizeof out->nodename;
    DWORD version =
        GetVersion(); /* of Windows 8.1 and later as far as the program's manifest says */
    snprintf(out->sysname, sizeof out->sysname, "Windows");
    snprintf(out->release, sizeof out->release, "%u.%u", LOBYTE(LOWORD(version)),
             HIBYTE(LOWORD(version)));
    snprintf(out->machine, sizeof out->machine, "x86_64");
    return GetComputerNameA(out->nodename, &size) ? 0 : -1;
}

/* ---- Signals --------------------------------------------------------------------------------- */

static void (*_Atomic handlers[NSIG])(int);

/* Windows forgets a handler when it calls it. */
static void again(int number) {
    (void)signal(number, again);
    handlers[number](number);
}

/* Ctrl-Break and the end of the console are SIGTERM. Windows asks the last handler first: this one before
 * the C library's, which would let the program end with its console at once, stop a service when any user logs
 * off, and under wine know nothing but Ctrl-C. */
static BOOL WINAPI on_console(DWORD event) {
    if (event == CTRL_C_EVENT)
        return FALSE; /* the C library's: SIGINT */
    if (event == CTRL_BREAK_EVENT || event == CTRL_CLOSE_EVENT)
        (void)raise(SIGTERM);
    if (event == CTRL_CLOSE_EVENT)
        Sleep(INFINITE); /* Windows ends the process when this returns, or in 5 s */
    return TRUE; /* the end of a session or of the machine: services alone hear of it, and their manager tells them */
}

static void watch_console(void) {
    static atomic_flag watched = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&watched))
        (void)SetConsoleCtrlHandler(on_console, TRUE);
}

int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
    if (before != NULL)
        *before = (struct sigaction){.sa_handler = SIG_DFL};
    if (number == 0 || action == NULL)
        return 0; /* one that Windows has not */
    const bool own   = action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
    handlers[number] = action->sa_handler;
    const bool set   = signal(number, own ? again : action->sa_handler) != SIG_ERR;
    if (set && number == SIGTERM && own)
        watch_console();
    return set ? 0 : -1;
}

const char *strsignal(int number) {
    return number == SIGINT ? "Interrupt" : "Terminated";
}
