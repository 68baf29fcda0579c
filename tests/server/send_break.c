/* SPDX-License-Identifier: Apache-2.0 */
/* send_break.c - send_break PROCESS EVENT: what a console sends to a program of Windows for a key or for its
 * end, by number: 1 is Ctrl-Break, 2 the closed window, 5 the end of a session, 6 of the machine.
 *
 * Role    Signals of Linux do not reach a program under wine, but for Ctrl-C. tests/server/serving.py calls
 *         this where it sends SIGTERM elsewhere.
 * Method  The thread that a console starts in its programs is started without a console. */
#include <windows.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const uintptr_t event = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    HANDLE          process =
        argc == 3 ? OpenProcess(PROCESS_ALL_ACCESS, FALSE, strtoul(argv[1], NULL, 10)) : NULL;
    FARPROC routine = GetProcAddress(GetModuleHandleW(L"kernel32"), "CtrlRoutine");
    HANDLE  thread  = NULL;
    if (process != NULL && routine != NULL) {
        thread = CreateRemoteThread(process, NULL, 0, (LPTHREAD_START_ROUTINE)(void *)routine,
                                    (void *)event, 0, NULL);
    }
    if (thread == NULL)
        fprintf(stderr, "send_break: error %lu\n", GetLastError());
    return thread == NULL;
}
