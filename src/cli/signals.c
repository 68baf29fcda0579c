/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c - an interrupted run ends at once and leaves no half-written output.
 *
 * Role    main.c installs the handlers; sink.c names the temporary files that are written.
 * Method  The handler itself removes the temporary files and ends the process with 128 + signal number:
 *         unlink, write and _exit are safe there, and the program answers Ctrl-C at once, even in the
 *         middle of a long batch. While the temporary is being made the signals are held back, so
 *         there is no moment at which a file exists that the handler does not know.
 *         SIGPIPE and SIGXFSZ are ignored: writing then fails with an errno that gets a message.
 *         A signal that was ignored when the program started (nohup, a shell's background job) stays
 *         ignored.
 *         With --partial the first signal is a wish: it is remembered, wakes a read that waits, and
 *         the run ends after the texts it is at. The second ends it at once.
 * Memory  The only globals of the program: fixed copies of the guarded names. Threads: the handler may
 *         run on any thread; each is published through an atomic flag.
 * Proof   tests/cli/test_cli_interrupt.py. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"

enum { GUARD_MAX = 4096 + 64 };

/* A run has at most two files under way. */
enum { GUARDS = 4 };
static char        guarded_path[GUARDS][GUARD_MAX];
static atomic_bool guarded[GUARDS];

static atomic_bool asking; /* the first signal is a wish */
static atomic_int  asked;  /* the signal that came */
static int         wake[2] = {
            -1, -1}; /* a pipe, written by the handler: a read that waits hears it on any thread */

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP};

enum { FATAL_COUNT = sizeof fatal_signals / sizeof fatal_signals[0] };

static void say(const char *text) {
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* nothing can be done about it here */
}

static void on_signal(int number) {
    int none = 0;
    if (atomic_load(&asking) && atomic_compare_exchange_strong(&asked, &none, number)) {
        ssize_t written = write(wake[1], "", 1);
        (void)written;
        return;
    }
    for (size_t i = 0; i < GUARDS; i++)
        if (atomic_load(&guarded[i]))
            (void)unlink(guarded_path[i]);
    say(fl_progress_on_screen() ? "\nfletch: interrupted\n" : "fletch: interrupted\n");
    _exit(128 + number);
}

void fl_signals_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < FATAL_COUNT; i++) {
        struct sigaction before;
        if (sigaction(fatal_signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN)
            continue;
        action.sa_handler = on_signal;
        (void)sigaction(fatal_signals[i], &action, NULL);
    }
    action.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &action, NULL);
    (void)sigaction(SIGXFSZ, &action, NULL);
}

void fl_signals_ask(void) {
    atomic_store(&asking, pipe(wake) == 0);
}

int fl_signals_asked(void) {
    return atomic_load(&asked);
}

ssize_t fl_signals_read(int fd, void *out, size_t size) {
    ssize_t count = -1;
    errno         = EINTR;
    while (count < 0 && errno == EINTR) {
        struct pollfd both[2] = {{fd, POLLIN, 0}, {wake[0], POLLIN, 0}};
        if (wake[0] >= 0)
            (void)poll(both, 2, -1);
        if (fl_signals_asked() != 0) {
            errno = ECANCELED;
            return -1;
        }
        count = read(fd, out, size);
    }
    return count;
}

static void mask(int how) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < FATAL_COUNT; i++)
        sigaddset(&set, fatal_signals[i]);
    (void)pthread_sigmask(how, &set, NULL);
}

void fl_signals_hold(void) {
    mask(SIG_BLOCK);
}

void fl_signals_release(void) {
    mask(SIG_UNBLOCK);
}

int fl_signals_guard(const char *path) {
    for (int i = 0; i < GUARDS && strlen(path) < GUARD_MAX; i++) {
        if (!atomic_load(&guarded[i])) {
            memcpy(guarded_path[i], path, strlen(path) + 1);
            atomic_store(&guarded[i], true);
            return i;
        }
    }
    return -1;
}

void fl_signals_let_go(int guard) {
    if (guard >= 0)
        atomic_store(&guarded[guard], false);
}
