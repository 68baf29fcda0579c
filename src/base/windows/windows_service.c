/* SPDX-License-Identifier: Apache-2.0 */
/* windows_service.c - `fletch serve` as a service, where the service control manager of Windows has started it
 * (`sc create`, docs/deploy.md); anywhere else it runs as it is.
 *
 * Method  The manager ends a service that does not report to it. Its stop, and the machine's shutdown, are the
 *         SIGTERM of other systems, so that requests are finished; the exit code is the service's own.
 * Who     A service has no standard streams. A program with any must not ask the manager: under wine it could be given
 *         the part of another service that is starting. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "base/windows/service.h"

static struct {
    int                   argc, code;
    char                **argv;
    SERVICE_STATUS_HANDLE handle;
} service;

static void report(DWORD state) {
    const bool     failed = state == SERVICE_STOPPED && service.code != 0;
    SERVICE_STATUS status = {.dwServiceType      = SERVICE_WIN32_OWN_PROCESS,
                             .dwCurrentState     = state,
                             .dwControlsAccepted = SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_SHUTDOWN,
                             .dwWin32ExitCode    = failed ? ERROR_SERVICE_SPECIFIC_ERROR : NO_ERROR,
                             .dwServiceSpecificExitCode = failed ? (DWORD)service.code : 0,
                             .dwWaitHint = state == SERVICE_STOP_PENDING ? 60000 : 0 /* ms */};
    if (state != SERVICE_RUNNING)
        status.dwControlsAccepted = 0;
    (void)SetServiceStatus(service.handle, &status);
}

static DWORD WINAPI on_control(DWORD what, DWORD type, void *data, void *user) {
    (void)type, (void)data, (void)user;
    if (what != SERVICE_CONTROL_STOP && what != SERVICE_CONTROL_SHUTDOWN)
        return what == SERVICE_CONTROL_INTERROGATE ? NO_ERROR : ERROR_CALL_NOT_IMPLEMENTED;
    report(SERVICE_STOP_PENDING);
    (void)raise(SIGTERM);
    return NO_ERROR;
}

static void WINAPI service_main(DWORD argc, wchar_t **argv) {
    (void)argc, (void)argv; /* of `sc start`; those of `sc create` are the program's own */
    service.handle = RegisterServiceCtrlHandlerExW(L"", on_control, NULL);
    report(SERVICE_RUNNING);
    service.code = posix_main(service.argc, service.argv);
    report(SERVICE_STOPPED);
}

static bool is_service(int argc, char **argv) {
    return argc > 1 && strcmp(argv[1], "serve") == 0 && GetStdHandle(STD_INPUT_HANDLE) == NULL &&
           GetStdHandle(STD_OUTPUT_HANDLE) == NULL && GetStdHandle(STD_ERROR_HANDLE) == NULL;
}

int fl_windows_run(int argc, char **argv) {
    wchar_t              nameless[] = L"";
    SERVICE_TABLE_ENTRYW table[]    = {{nameless, service_main}, {NULL, NULL}};
    service.argc                    = argc;
    service.argv                    = argv;
    if (is_service(argc, argv) && StartServiceCtrlDispatcherW(table))
        return service.code;
    return posix_main(argc, argv);
}
