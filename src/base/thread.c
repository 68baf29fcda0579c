/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c - see thread.h. */
#include "base/thread.h"

#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"

void fl_thread_hold_signals(sigset_t *before) {
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    sigset_t         all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&all, faults[i]); /* blocked, one of these would end the process unheard */
    pthread_sigmask(SIG_SETMASK, &all, before);
}

int fl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg,
                    fletch_error *error) {
    sigset_t before;
    fl_thread_hold_signals(&before);
    int reason = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (reason == 0) {
        fl_os_thread_name(*thread, name);
        return FLETCH_OK;
    }
    char words[64];
    return fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE,
                   "cannot start a thread (%s): %s; raise the limit of threads (ulimit -u)", name,
                   fl_os_reason(reason, words, sizeof words));
}
