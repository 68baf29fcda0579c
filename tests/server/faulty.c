/* SPDX-License-Identifier: Apache-2.0 */
/* faulty.c - what makes the whole program a server whose engine goes wrong when a test says so.
 *
 * Role    Linked with all of src/cli and src/server, and with the fault engine in place of the real ones:
 *         build/tests/fletch_faulty takes the same command line as fletch.
 * In/Out  A thread reads standard input, which `serve` does not use. One command a line:
 *             plan FAULT AT TIMES LATE_MS    the AT-th forward from now goes wrong, TIMES times
 *             alloc N                        the N-th allocation from now fails once
 *         and says "ok" on standard output when it is in force.
 * Threads Its own, before main begins. Proof: tests/server/test_promises.py. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "fault_engine.h"

static const char *const names[FL_FAULTS] = {"none",      "late",     "broken",     "nomem",
                                             "nomem_all", "bad_text", "silent_nan", "hang"};

static void obey(const char *line) {
    char               name[32];
    long long          at, times, late;
    unsigned long long n;
    if (sscanf(line, "alloc %llu", &n) == 1) {
        fl_alloc_fail_after(n);
        return;
    }
    if (sscanf(line, "plan %31s %lld %lld %lld", name, &at, &times, &late) != 4)
        return;
    for (unsigned i = 0; i < FL_FAULTS; i++) {
        if (strcmp(names[i], name) == 0) {
            fl_fault_plan plan = {.slots   = 1,
                                  .devices = 1,
                                  .planned = (fl_fault)i,
                                  .at      = at,
                                  .times   = times,
                                  .late_ms = (uint64_t)late};
            fl_fault_set(&plan);
        }
    }
}

static void *listen_to_test(void *arg) {
    char line[128];
    (void)arg;
    /* Until main is far enough: on Windows it sets modes of the streams, and would wait for who reads one. */
    while (fl_fault_opens() == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    while (fgets(line, sizeof line, stdin) != NULL) {
        obey(line);
        printf("ok %s", line);
        fflush(stdout);
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    sigset_t  all, before; /* signals are for the server's threads */
    sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    if (pthread_create(&thread, NULL, listen_to_test, NULL) == 0)
        pthread_detach(thread);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}
