/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle.c - from the first socket to the last reply: start, load, serve, reload, drain.
 *
 * Role    fl_server_run is the whole life of `fletch serve`.
 * Method  First what can be judged at once: options, keys, names of models, the store. Then the sockets (a
 *         port that is taken is told before anything is loaded), then the threads, so that /live answers
 *         and /ready says "loading"; then the models are opened and warmed, and the store is compared with
 *         them; then ready. Only then is said where: what stands on standard output can be used.
 *         SIGTERM: /ready turns 503 and replies ask clients to close (server.lame_duck_ms, so that load
 *         balancers notice while everything is still answered); then no connection is accepted and new
 *         requests are refused; what runs may finish for server.drain_seconds; then it is given
 *         up. SIGINT, a person at the keyboard, skips the wait. A second signal ends the process.
 *         server.idle_exit is an end like SIGINT, with nothing under way; what connects to a socket of systemd
 *         meanwhile waits there for the next process.
 *         SIGHUP reads the configuration's log level and the key file again; what fails leaves the
 *         old in force and says so.
 * Memory  fl_server is made and freed here. Threads: main; fl_server_reload: watch.
 * Proof   tests/server/test_transport_drain.py, test_transport_operations.py, test_promises.py. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"
#include "server/otlp.h"
#include "server/serve.h"

enum {
    LEAVE_MS     = 2000,
    HANDSHAKE_MS = 1, /* for connections that have begun; others try again in a second */
    SHARE_MIN    = 8 * 1024 * 1024
};

/* ---- Options ----------------------------------------------------------------------------------------- */

const char *fl_server_option(const fl_server *server, const char *key) {
    const char *value = fletch_config_get(server->config, key, NULL);
    return value != NULL ? value : "";
}

uint64_t fl_server_number(const fl_server *server, const char *key, uint64_t none) {
    uint64_t value;
    return fl_parse_size(fl_server_option(server, key), &value) ? value : none;
}

fl_keys *fl_server_keys(fl_server *server) {
    fl_keys_lock(server);
    fl_keys *keys = fl_keys_hold(server->keys);
    fl_keys_unlock(server);
    return keys;
}

bool fl_server_has_keys(fl_server *server) {
    fl_keys_lock(server);
    bool has = server->keys != NULL;
    fl_keys_unlock(server);
    return has;
}

/* ---- Reload ------------------------------------------------------------------------------------------- */

static void use_keys(fl_server *server, fl_keys *keys) {
    fl_keys_lock(server);
    fl_keys *old = server->keys;
    server->keys = keys;
    fl_keys_unlock(server);
    fl_keys_drop(old);
}

void fl_server_reload(fl_server *server) {
    fletch_error error = {0};
    char         state[96];
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)(fl_clock_ns() / 1000));
    fl_notify(state);
    fletch_config *config = server->reload(server->user, &error);
    if (config == NULL) {
        fl_server_log_line(server->log, FL_LEVEL_ERROR, "reload failed, nothing was changed: %s",
                           error.message);
        fl_notify("READY=1");
        return;
    }
    const char *path = fletch_config_get(config, "server.api_key_file", NULL);
    fl_keys    *keys = NULL;
    bool        open = path == NULL || path[0] == '\0';
    if (fl_keys_load(&keys, path, &error) < 0) {
        fl_server_log_line(server->log, FL_LEVEL_ERROR, "API keys unchanged: %s", error.message);
    } else if (open && fl_server_has_keys(server)) {
        fl_server_log_line(server->log, FL_LEVEL_ERROR,
                           "API keys unchanged: turning them off needs a restart");
    } else {
        size_t count = fl_keys_count(keys);
        use_keys(server, keys);
        fl_server_log_line(server->log, FL_LEVEL_INFO, "reloaded: %zu API keys", count);
    }
    const char *level = fletch_config_get(config, "server.log_level", NULL);
    fl_server_log_level(server->log, fl_server_log_level_of(level != NULL ? level : "info"));
    fletch_config_free(config);
    fl_notify("READY=1");
}

/* ---- Start ---------------------------------------------------------------------------------------------- */

static int check_exposure(fl_server *server, fletch_error *error) {
    bool        insecure = strcmp(fl_server_option(server, "server.insecure"), "true") == 0;
    const char *where    = fl_sockets_exposed(server);
    server->confined     = where == NULL;
    if (fl_server_has_keys(server) || insecure || where == NULL)
        return FLETCH_OK;
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "%s is reachable from other machines and no API key is required; set "
                   "server.api_key_file, or --server-insecure if that is intended",
                   where);
}

static void init(fl_server *server, const fl_serve *serve) {
    memset(server, 0, sizeof *server);
    server->config   = serve->config;
    server->reload   = serve->reload;
    server->user     = serve->user;
    server->heard[0] = server->heard[1] = -1;
    server->start_time                  = (uint64_t)time(NULL);
    server->max_body                    = fl_server_number(server, "server.max_body", SIZE_MAX / 4);
    server->max_bodies  = fl_server_number(server, "server.max_body_memory", SIZE_MAX / 4);
    server->deadline_ms = fl_server_number(server, "server.deadline_ms", 0);
    server->watchdog_ns = fl_server_number(server, "server.watchdog_seconds", 0) * 1000000000u;
    server->header_ns   = fl_server_number(server, "server.header_seconds", 10) * 1000000000u;
    server->body_ns     = fl_server_number(server, "server.body_seconds", 60) * 1000000000u;
    server->write_ns    = fl_server_number(server, "server.write_seconds", 30) * 1000000000u;
    atomic_store(&server->max_replies,
                 fl_server_number(server, "server.max_reply_memory", SIZE_MAX / 4));
    server->compress        = fl_server_number(server, "server.compress", UINT64_MAX);
    server->hosts           = fl_server_option(server, "server.allowed_hosts");
    server->idle_ns         = fl_server_number(server, "server.idle_seconds", 120) * 1000000000u;
    server->idle_exit_ns    = fl_server_number(server, "server.idle_exit", 0) * 1000000000u;
    server->cors            = fl_server_option(server, "server.cors_origin");
    server->max_connections = fl_server_number(server, "server.max_connections", 16384);
    pthread_mutex_init(&server->watch_lock, NULL);
    pthread_cond_init(&server->stop, NULL);
    pthread_mutex_init(&server->keys_lock, NULL);
    pthread_mutex_init(&server->paths_lock, NULL);
    pthread_mutex_init(&server->pieces_lock, NULL);
    pthread_mutex_init(&server->pulls_lock, NULL);
    pthread_mutex_init(&server->pool_lock, NULL);
}

/* What the library says, by the same words for the same levels. */
static void on_library(void *user, int level, const char *message) {
    fl_server_log_line(user, level < FL_LEVEL_TRACE ? level : FL_LEVEL_TRACE, "%s", message);
}

static void take_log(const fl_server *server, fletch_config *config, int level) {
    fletch_config_set_log(config, on_library, server->log);
    fletch_config_set_trace_log(config, level == FL_LEVEL_TRACE);
}

/* What is as by default stays unsaid, since some of that is chosen when a model is opened. */
fletch_config *fl_server_config_copy(const fl_server *server, fletch_error *error) {
    fletch_config       *copy = fletch_config_new();
    const fletch_option *option;
    if (copy == NULL) {
        (void)fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory for a configuration");
        return NULL;
    }
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++) {
        const char *origin = "default";
        const char *value  = fletch_config_get(server->config, option->key, &origin);
        if (strcmp(origin, "default") != 0 &&
            fletch_config_set(copy, option->key, value, error) < 0) {
            fletch_config_free(copy);
            return NULL;
        }
    }
    take_log(server, copy, fl_server_log_level_of(fl_server_option(server, "server.log_level")));
    return copy;
}

static int open_parts(fl_server *server, const fl_serve *serve, fletch_error *error) {
    int level = fl_server_log_level_of(fl_server_option(server, "server.log_level"));
    FL_TRY(fl_server_log_open(&server->log, fl_server_option(server, "server.log_format"), level,
                              error));
    take_log(server, serve->config, level);
    FL_TRY(fl_metrics_open(&server->metrics, fl_server_option(server, "server.metrics_prefix"),
                           error));
    fl_keys *keys = NULL;
    FL_TRY(fl_keys_load(&keys, fl_server_option(server, "server.api_key_file"), error));
    use_keys(server, keys);
    server->guarded = keys != NULL; /* stays so: a reload cannot open what was guarded */
    FL_TRY(fl_seed_open(server, error));
    FL_TRY(fl_otlp_open(&server->otlp, server, error));
    return fl_batches_open(server, error);
}

/* Everything that can be wrong before a socket listens. */
static int check(fl_server *server, const fl_serve *serve, bool *opening, fletch_error *error) {
    int status = open_parts(server, serve, error);
    /* A file that is named and not there is a mistake of the configuration, whatever the system says. */
    if (status == FLETCH_EIO || status == FLETCH_ENOTFOUND || status == FLETCH_EDENIED)
        status = error->code = FLETCH_ECONFIG;
    FL_TRY(status);
    status = fl_models_check(serve->config, serve->models, serve->model_count, error);
    if (status == FLETCH_OK)
        status = fl_demand_open(server, error);
    *opening = status < 0;
    return status;
}

static int start(fl_server *server, fletch_error *error) {
    const unsigned cores = fl_os_processors();
    fl_raise_file_limit(server);
    FL_TRY(fl_sockets_open(server, error));
    FL_TRY(check_exposure(server, error));
    FL_TRY(fl_workers_open(&server->workers, cores > 2 ? cores / 2 : 2, error));
    FL_TRY(fl_watch_start(server, error));
    return fl_transport_start(server, error);
}

/* Of what memory.limit leaves when the models are there, bodies and replies may have a quarter each; the rest is for
 * the work on them. */
static void share_memory(fl_server *server) {
    uint64_t limit = fl_server_number(server, "memory.limit", 0), used = fl_os_resident("");
    uint64_t share = limit > used ? (limit - used) / 4 : 0;
    share          = share > SHARE_MIN ? share : SHARE_MIN;
    if (limit > 0 && share < atomic_load(&server->max_bodies))
        atomic_store(&server->max_bodies, share);
    if (limit > 0 && share < atomic_load(&server->max_replies))
        atomic_store(&server->max_replies, share);
}

static void announce(const fl_server *server) {
    const fl_served *first = fl_server_model_at(server, 0);
    for (size_t i = 0; i < server->listener_count; i++)
        printf("listening on %s\n", server->listeners[i].where);
    printf("ready: ");
    if (first != NULL) {
        printf("%s, %u dimensions, %u tokens, %s", first->name, first->info.dimensions,
               first->info.max_length, server->pinned_count > 1 ? "and more models" : "one model");
    }
    if (server->demand != NULL) {
        printf("%s%zu models on demand", first != NULL ? ", " : "",
               server->model_count - server->pinned_count);
    }
    printf("%s, process %d\n", server->guarded ? ", API key required" : "", (int)getpid());
    (void)fflush(stdout);
    fl_notify("READY=1");
}

/* ---- Drain ------------------------------------------------------------------------------------------------ */

static void sleep_ms(unsigned milliseconds) {
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    (void)nanosleep(&time, NULL);
}

static bool wait_idle(const fl_server *server, uint64_t limit_ns) {
    uint64_t end = fl_clock_ns() + limit_ns;
    while (atomic_load(&server->inflight) > 0 && fl_clock_ns() < end)
        sleep_ms(5);
    return atomic_load(&server->inflight) == 0;
}

/* Connections that are idle, or sending a head, may have a request on its way: it is answered yet. */
static void let_leave(fl_server *server) {
    uint64_t end = fl_clock_ns() + LEAVE_MS * 1000000u;
    atomic_store(&server->closing_ns, fl_clock_ns());
    atomic_store(&server->state, FL_CLOSING);
    fl_transport_wake(server);
    while (atomic_load(&server->open) > 0 && fl_clock_ns() < end)
        sleep_ms(5);
}

/* True when every reply has left. */
static bool drain(fl_server *server) {
    static const uint64_t second  = 1000000000u;
    uint64_t              lame    = fl_server_number(server, "server.lame_duck_ms", 0);
    uint64_t              seconds = fl_server_number(server, "server.drain_seconds", 0);
    int                   number  = atomic_load(&server->first_signal);
    atomic_store(&server->state, FL_LAME_DUCK);
    fl_batches_stop(server);
    fl_transport_wake(server);
    fl_notify("STOPPING=1");
    fl_server_log_line(server->log, FL_LEVEL_INFO, "%s: draining, %d requests in flight",
                       number != 0 ? strsignal(number) : "idle (server.idle_exit)",
                       atomic_load(&server->inflight));
    if (number != 0 && number != SIGINT) /* nobody waits for a person, or sends to who is idle */
        sleep_ms((unsigned)lame);
    fl_sockets_hush(server);
    sleep_ms(HANDSHAKE_MS);
    atomic_store(&server->state, FL_DRAINING);
    fl_transport_quiesce(server);
    if (wait_idle(server, seconds * second)) {
        let_leave(server);
        return true;
    }
    fl_server_log_line(server->log, FL_LEVEL_WARNING,
                       "%d requests did not finish within server.drain_seconds: cancelled",
                       atomic_load(&server->inflight));
    fl_demand_leave(server);
    fl_transport_cancel(server);
    if (wait_idle(server, 2 * second))
        return false;
    fl_transport_abandon(
        server); /* an engine that does not come back: its memory cannot be freed */
    (void)wait_idle(server, second);
    fl_server_log_flush(server->log); /* not closed: what does not come back may still speak */
    fl_sockets_close(server);
    _exit(1);
}

/* `served`: it has been ready, so that there is something to tell. */
static void stop(fl_server *server, bool served, int code) {
    fl_batches_join(server); /* while the watch still ends an engine that hangs */
    fl_watch_leave(server);
    fl_transport_stop(server);
    fl_demand_leave(server);
    fl_pulls_close(server);
    const bool ended = fl_demand_stop(server); /* before the workers, which its thread wakes */
    fl_workers_close(server->workers);
    fl_otlp_close(server->otlp, served);
    if (!ended) { /* every reply has left: nothing is lost with what it reads */
        fl_server_log_flush(server->log);
        fl_sockets_close(server);
        _exit(code);
    }
    fl_seed_close(server);
    fl_batches_close(server);
    fl_models_close(server);
    fl_sockets_close(server);
    fl_request_pool_free(server);
    fl_demand_free(server);
    use_keys(server, NULL);
    fl_metrics_close(server->metrics);
    fletch_config_set_log(server->config, NULL, NULL);
    fl_server_log_close(server->log);
    fl_watch_stop(server); /* last: a second signal ends whatever stands still above */
    pthread_mutex_destroy(&server->watch_lock);
    pthread_cond_destroy(&server->stop);
    pthread_mutex_destroy(&server->keys_lock);
    pthread_mutex_destroy(&server->paths_lock);
    pthread_mutex_destroy(&server->pieces_lock);
    pthread_mutex_destroy(&server->pulls_lock);
    pthread_mutex_destroy(&server->pool_lock);
}

static int load(fl_server *server, const fl_serve *serve, bool *opening, fletch_error *error) {
    FL_TRY(check(server, serve, opening, error));
    FL_TRY(start(server, error));
    int status = fl_models_open(server, serve->models, serve->model_count, error);
    *opening   = status < 0;
    FL_TRY(status);
    FL_TRY(fl_demand_start(server, error));
    FL_TRY(fl_seed_load(server, error));
    return fl_batches_start(server, error);
}

int fl_server_run(const fl_serve *serve, bool *opening, int *code, fletch_error *error) {
    fl_server *server = fl_alloc_zero(1, sizeof *server);
    *opening          = false;
    *code             = 0;
    if (server == NULL)
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory for the server");
    init(server, serve);
    fl_files_guard();
    int status = load(server, serve, opening, error);
    if (status == FLETCH_OK) {
        share_memory(server);
        atomic_store(&server->worked_ns, fl_clock_ns());
        atomic_store(&server->state, FL_READY);
        fl_transport_wake(server);
        announce(server);
        fl_watch_wait(server);
        *code = drain(server) ? 0 : 1;
    }
    stop(server, status == FLETCH_OK, *code);
    fl_free(server);
    return status;
}
