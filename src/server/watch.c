/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - the thread that hears signals, and looks at the models once a second.
 *
 * Method  It does nothing that may block, and it is the first thread to start and the last to end: whatever
 *         else stands still (a disk, a log that nobody reads, an engine), a second signal ends the
 *         process. Reading the configuration again is therefore a worker's job.
 *         A handler sends the signal's number to the thread, which alone lets signals through (Windows calls it on
 *         a thread of its own).
 * Threads One.
 * Proof   tests/server/test_transport_drain.py, test_transport_operations.py, test_promises.py. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/os.h"
#include "base/thread.h"
#include "server/server_internal.h"
#include "store/store.h"

enum {
    TICK_MS       = 1000,
    GRACE_MOMENTS = 500 /* of 10 ms: for the clients of an engine that hangs to hear of it */
};

static const uint64_t second = 1000000000u;

/* An engine that does not come back cannot be mended from inside: tell the clients, and let whoever
 * started the process start it again. */
static void bite(fl_server *server) {
    static const struct timespec moment = {0, 10000000};
    fl_server_log_line(server->log, FL_LEVEL_ERROR,
                       "an engine has not answered for %llu s (server.watchdog_seconds); exiting "
                       "so that the process can be restarted",
                       (unsigned long long)(server->watchdog_ns / second));
    fl_transport_abandon(server);
    for (int i = 0; i < GRACE_MOMENTS && atomic_load(&server->inflight) > 0; i++)
        (void)nanosleep(&moment, NULL);
    fl_server_log_flush(server->log); /* the last line says why */
    _exit(70);
}

static void look_at_files(void *arg) { /* a worker: a disk may stand still */
    fl_server *server = arg;
    fl_files_look(server);
    atomic_store(&server->looking, false);
}

/* For server.idle_exit. Texts that are kept in memory alone keep the server, too. */
static bool is_idle(const fl_server *server, uint64_t now) {
    uint64_t worked = atomic_load(&server->worked_ns);
    return server->idle_exit_ns > 0 && atomic_load(&server->inflight) == 0 && now > worked &&
           now - worked >= server->idle_exit_ns &&
           (server->store == NULL || fl_store_lasts(server->store) ||
            fl_store_count(server->store) == 0);
}

static void look_at_models(fl_server *server) {
    uint64_t now = fl_clock_ns();
    fl_watch_lock(server);
    int state = atomic_load(&server->state);
    if (state >= FL_READY && state < FL_STOPPED) {
        fl_models_tick(server, now);
        if (server->watchdog_ns > 0 && fl_models_stuck(server, now, server->watchdog_ns))
            bite(server);
        if (is_idle(server, now) && !atomic_exchange(&server->idled, true))
            pthread_cond_broadcast(&server->stop);
        fl_notify("WATCHDOG=1");
        if (!atomic_exchange(&server->looking, true) &&
            !fl_workers_add(server->workers, look_at_files, server, 0, NULL))
            atomic_store(&server->looking, false);
    }
    fl_watch_unlock(server);
}

static void reload(void *arg) {
    fl_server *server = arg;
    int        once;
    do { /* asked again meanwhile: what was read may be old */
        atomic_store(&server->reloading, 1);
        fl_server_reload(server);
        once = 1;
    } while (!atomic_compare_exchange_strong(&server->reloading, &once, 0));
}

static void on_hangup(fl_server *server) {
    fl_watch_lock(server);
    if (atomic_load(&server->state) < FL_STOPPED && atomic_exchange(&server->reloading, 2) == 0 &&
        !fl_workers_add(server->workers, reload, server, 0, NULL))
        atomic_store(&server->reloading, 0);
    fl_watch_unlock(server);
}

/* Whether there is a controlling terminal. One that closes is gone when its SIGHUP comes. */
static bool has_terminal(void) {
    int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    fl_close(fd);
    return fd >= 0;
}

static void on_signal(fl_server *server, int number) {
    /* SIGHUP of a terminal that closes ends a server that was started on it, unless by nohup. */
    if (number == SIGHUP && (!server->on_terminal || has_terminal())) {
        on_hangup(server);
        return;
    }
    int before = atomic_fetch_add(&server->signals, 1);
    if (before == 0)
        atomic_store(&server->first_signal, number);
    if (before > 0 || atomic_load(&server->state) == FL_LOADING) {
        fl_paths_lock(server); /* for good: the process ends */
        for (size_t i = 0; i < server->listener_count; i++)
            if (server->listeners[i].path[0] != '\0')
                (void)unlink(server->listeners[i].path);
        _exit(before > 0 ? 128 + number : 0); /* asked twice, or nothing was under way */
    }
    fl_watch_lock(server);
    pthread_cond_broadcast(&server->stop);
    fl_watch_unlock(server);
}

static const int  heeded[] = {SIGTERM, SIGINT, SIGHUP};
static atomic_int teller   = -1; /* the socket into which the handler speaks */

enum { HEEDED = sizeof heeded / sizeof heeded[0] };

static void tell(int number) {
    const int  before = errno;
    const char byte   = (char)number;
    (void)send(atomic_load(&teller), &byte, 1,
               MSG_NOSIGNAL); /* full: so many signals are still to be heard */
    errno = before;
}

static void *watch(void *arg) {
    fl_server    *server = arg;
    struct pollfd heard  = {server->heard[0], POLLIN, 0};
    uint64_t      next   = fl_clock_ns();
    char          number = SIGTERM;
    sigset_t      set;
    sigemptyset(&set);
    for (size_t i = 0; i < HEEDED; i++)
        sigaddset(&set, heeded[i]);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    while (number != 0) {
        uint64_t now = fl_clock_ns();
        if (now >= next) {
            look_at_models(server);
            next = now + (uint64_t)TICK_MS * 1000000u;
        }
        (void)poll(&heard, 1, (int)((next - now) / 1000000) + 1);
        while (number != 0 && recv(server->heard[0], &number, 1, 0) == 1)
            if (number != 0)
                on_signal(server, number);
    }
    return NULL;
}

int fl_watch_start(fl_server *server, fletch_error *error) {
    struct sigaction action;
    if (!fl_os_pair(server->heard))
        return fl_fail_errno(error, errno, "cannot watch", "signals");
    server->on_terminal = has_terminal() && sigaction(SIGHUP, NULL, &action) == 0 &&
                          action.sa_handler != SIG_IGN; /* nohup */
    memset(&action, 0, sizeof action);
    action.sa_handler = tell;
    atomic_store(&teller, server->heard[1]);
    for (size_t i = 0; i < HEEDED; i++)
        (void)sigaction(heeded[i], &action, NULL);
    int status       = fl_thread_start(&server->watch, "watch", watch, server, error);
    server->watching = status == FLETCH_OK;
    return status;
}

void fl_watch_leave(fl_server *server) {
    fl_watch_lock(server);
    atomic_store(&server->state, FL_STOPPED);
    fl_watch_unlock(server);
}

void fl_watch_wait(fl_server *server) {
    fl_watch_lock(server);
    while (atomic_load(&server->signals) == 0 && !atomic_load(&server->idled))
        pthread_cond_wait(&server->stop, &server->watch_lock);
    fl_watch_unlock(server);
}

void fl_watch_stop(fl_server *server) {
    if (server->watching) {
        tell(0);
        pthread_join(server->watch, NULL);
        server->watching = false;
    }
    atomic_store(&teller, -1);
    fl_close(server->heard[0]);
    fl_close(server->heard[1]);
}
