/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c - see thread.h. */
#include "base/thread.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

void fl_thread_hold_signals(sigset_t *before) {
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    sigset_t         all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        sigdelset(&all, faults[i]); /* blocked, one of these would end the process unheard */
    }
    pthread_sigmask(SIG_SETMASK, &all, before);
}

int fl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg,
                    fletch_error *error) {
    sigset_t before;
    fl_thread_hold_signals(&before);
    int reason = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (reason == 0) {
        (void)pthread_setname_np(*thread, name);
        return FLETCH_OK;
    }
    char words[64];
    return fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE,
                   "cannot start a thread (%s): %s; raise the limit of threads (ulimit -u)", name,
                   strerror_r(reason, words, sizeof words));
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
