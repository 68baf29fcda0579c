/* SPDX-License-Identifier: Apache-2.0 */
/* event_log.c - one line per event on standard error, for a machine or for a person.
 *
 * Role    Every file of the server writes here; one line per request at level info.
 * In/Out  Events in; JSON objects or short lines out. A line never holds a text, a vector or a key, and
 *         control characters are escaped, so that no client can write a line of its own.
 * Method  Lines are gathered in one buffer under a lock and written by a thread of their own: a terminal
 *         or a log collector that stands still must not hold up an I/O thread. When half a megabyte
 *         waits, further lines are counted and dropped, and the count is logged. At the end the writer has
 *         a second; a reader that stands still then costs lines, never the end of the process.
 * Memory  Two buffers that swap places. Threads: any.
 * Proof   tests/server/test_transport_operations.py. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/locked.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/server_internal.h"

enum { WAITING_MAX = 512 * 1024, END_MS = 1000, POLL_MS = 100 };

FL_LOCK_ROLE(log_role); /* the lock of fl_server_log */

struct fl_server_log {
    pthread_mutex_t  lock;
    pthread_cond_t   more;
    fl_buf waiting   FL_GUARDED_BY(log_role);
    fl_buf           writing; /* the writer's */
    bool             json;
    bool writes      FL_GUARDED_BY(log_role); /* lines of `writing` are under way */
    _Atomic uint64_t end_ns;                  /* ending: when the writer gives up; 0: not ending */
    _Atomic int      level;
    _Atomic uint64_t dropped;
    uint64_t         told;  /* of `dropped`, those that were logged; writer */
    atomic_bool      ended; /* the writer will touch nothing of this any more */
    pthread_t        writer;
};

FL_LOCK_OF(log_role, fl_server_log, lock, lock, unlock);

static const char *const names[] = {"error", "warning", "info", "debug", "trace"};

int fl_server_log_level_of(const char *name) {
    for (int i = 0; i <= FL_LEVEL_TRACE; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return FL_LEVEL_INFO;
}

/* In pieces that a pipe takes whole once it takes anything, so that no write blocks. */
static void write_some(fl_server_log *log, const char *data, size_t size) {
    struct pollfd fd = {STDERR_FILENO, POLLOUT, 0};
    while (size > 0) {
        uint64_t end = atomic_load(&log->end_ns);
        if (end != 0 && fl_clock_ns() > end)
            return;
        if (poll(&fd, 1, POLL_MS) <= 0)
            continue;
        ssize_t written = write(STDERR_FILENO, data, size < PIPE_BUF ? size : PIPE_BUF);
        if (written < 0 && errno != EINTR && errno != EAGAIN)
            return;
        data += written > 0 ? written : 0;
        size -= written > 0 ? (size_t)written : 0;
    }
}

static void *write_lines(void *arg) {
    fl_server_log *log = arg;
    lock(log);
    while (atomic_load(&log->end_ns) == 0 || log->waiting.size > 0) {
        if (log->waiting.size == 0) {
            pthread_cond_wait(&log->more, &log->lock);
            continue;
        }
        fl_buf full  = log->waiting;
        log->waiting = log->writing;
        log->writing = full;
        log->writes  = true;
        unlock(log);
        write_some(log, log->writing.data, log->writing.size);
        fl_buf_clear(&log->writing);
        uint64_t dropped = atomic_load(&log->dropped);
        if (dropped > log->told) {
            fl_server_log_line(log, FL_LEVEL_WARNING, "%llu log lines were dropped",
                               (unsigned long long)(dropped - log->told));
            log->told = dropped;
        }
        lock(log);
        log->writes = false;
    }
    unlock(log);
    atomic_store(&log->ended, true);
    return NULL;
}

int fl_server_log_open(fl_server_log **out, const char *format, int level, fletch_error *error) {
    *out               = NULL;
    fl_server_log *log = fl_alloc_zero(1, sizeof *log);
    if (log == NULL)
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory for the log");
    pthread_mutex_init(&log->lock, NULL);
    pthread_cond_init(&log->more, NULL);
    log->json =
        strcmp(format, "json") == 0 || (strcmp(format, "auto") == 0 && isatty(STDERR_FILENO) == 0);
    atomic_store(&log->level, level);
    int status = fl_thread_start(&log->writer, "log", write_lines, log, error);
    if (status < 0) {
        fl_free(log);
        return status;
    }
    *out = log;
    return FLETCH_OK;
}

void fl_server_log_flush(fl_server_log *log) {
    static const struct timespec moment = {0, 1000000};
    const uint64_t               end    = fl_clock_ns() + END_MS * 1000000ull;
    lock(log);
    while ((log->waiting.size > 0 || log->writes) && fl_clock_ns() < end) {
        unlock(log);
        (void)nanosleep(&moment, NULL);
        lock(log);
    }
    unlock(log);
}

/* Windows does not say whether a pipe takes anything, so there the writer may be held in its write for good. */
static bool has_ended(fl_server_log *log) {
    static const struct timespec moment = {0, 1000000};
    const uint64_t               end    = atomic_load(&log->end_ns) + END_MS * 1000000ull;
    while (!atomic_load(&log->ended) && fl_clock_ns() < end)
        (void)nanosleep(&moment, NULL);
    return atomic_load(&log->ended);
}

void fl_server_log_close(fl_server_log *log) {
    if (log == NULL)
        return;
    lock(log);
    atomic_store(&log->end_ns, fl_clock_ns() + END_MS * 1000000ull);
    pthread_cond_signal(&log->more);
    unlock(log);
    if (!has_ended(log)) {
        (void)pthread_detach(log->writer);
        return; /* it ends with the process, and what it reads must stay until then */
    }
    pthread_join(log->writer, NULL);
    pthread_cond_destroy(&log->more);
    pthread_mutex_destroy(&log->lock);
    fl_buf_free(&log->waiting);
    fl_buf_free(&log->writing);
    fl_free(log);
}

void fl_server_log_level(fl_server_log *log, int level) {
    atomic_store(&log->level, level);
}

static bool wants(const fl_server_log *log, int level) {
    return level <= atomic_load_explicit(&log->level, memory_order_relaxed);
}

uint64_t fl_server_log_dropped(const fl_server_log *log) {
    return atomic_load(&log->dropped);
}

static void write_time(char out[32], bool whole) {
    struct timespec now;
    struct tm       parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t size = strftime(out, 24, whole ? "%Y-%m-%dT%H:%M:%S" : "%H:%M:%S", &parts);
    snprintf(out + size, 32 - size, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

/* Begin a line; false when it is not to be written. */
FL_MAY_ACQUIRE(log_role)
FL_UNCHECKED static bool begin_line(fl_server_log *log, int level) {
    if (!wants(log, level))
        return false;
    char now[32];
    write_time(now, log->json);
    lock(log);
    if (log->waiting.size > WAITING_MAX || log->waiting.failed) {
        if (log->waiting.failed)
            fl_buf_free(&log->waiting);
        unlock(log);
        (void)atomic_fetch_add(&log->dropped, 1);
        return false;
    }
    fl_buf_printf(&log->waiting, log->json ? "{\"ts\":\"%s\",\"level\":\"%s\"" : "%s %-7s ", now,
                  names[level]);
    return true;
}

FL_RELEASES(log_role) static void end_line(fl_server_log *log) {
    fl_buf_puts(&log->waiting, log->json ? "}\n" : "\n");
    pthread_cond_signal(&log->more);
    unlock(log);
}

/* Text for a terminal: what would steer it becomes a space. */
static void put_plain(fl_buf *out, const char *text) {
    for (const char *at = text; *at != '\0'; at++)
        fl_buf_putc(out, (unsigned char)*at < 0x20 || *at == 0x7F ? ' ' : *at);
}

void fl_server_log_line(fl_server_log *log, int level, const char *format, ...) {
    char    message[1024];
    va_list list;
    if (log == NULL || !wants(log, level))
        return;
    va_start(list, format);
    (void)vsnprintf(message, sizeof message, format, list);
    va_end(list);
    if (!begin_line(log, level))
        return;
    if (log->json) {
        fl_buf_puts(&log->waiting, ",\"msg\":");
        fl_json_quote(&log->waiting, message, strlen(message));
    } else {
        put_plain(&log->waiting, message);
    }
    end_line(log);
}

static double milliseconds(uint64_t ns) {
    return (double)ns / 1e6;
}

/* What clients choose (method, request id, trace id) was checked when it was read: a token of at most 32 bytes,
 * letters and digits. */
void fl_server_log_request(fl_server_log *log, const fl_http_request *request, int status) {
    const fl_route *route = request->route;
    bool            quiet = route != NULL && (route->flags & FL_ROUTE_QUIET) != 0 && status < 500;
    double          took  = milliseconds(fl_clock_ns() - request->start_ns);
    const char     *where = route != NULL ? route->path : "unmatched";
    const char     *who   = request->key != NULL ? fl_api_key_name(request->key) : "";
    int level = quiet ? FL_LEVEL_DEBUG : status >= 500 ? FL_LEVEL_WARNING : FL_LEVEL_INFO;
    if (!begin_line(log, level))
        return;
    fl_buf *out = &log->waiting;
    if (!log->json) {
        fl_buf_printf(out, "%d %s %s %.1f ms", status, request->method, where, took);
        if (request->texts > 0) {
            fl_buf_printf(out, ", %llu texts, %llu tokens", (unsigned long long)request->texts,
                          (unsigned long long)request->tokens);
        }
        fl_buf_printf(out, " id=%s%s%s", request->id, who[0] != '\0' ? " key=" : "", who);
        end_line(log);
        return;
    }
    fl_buf_printf(out,
                  ",\"msg\":\"request\",\"request_id\":\"%s\",\"method\":\"%s\",\"route\":\"%s\","
                  "\"status\":%d,\"ms\":%.3f,\"bytes_in\":%zu,\"bytes_out\":%zu",
                  request->id, request->method, where, status, took, request->body_size,
                  request->reply.body.size);
    if (request->texts > 0) {
        fl_buf_printf(out,
                      ",\"texts\":%llu,\"tokens\":%llu,\"tokenize_ms\":%.3f,\"queue_ms\":%.3f,"
                      "\"infer_ms\":%.3f",
                      (unsigned long long)request->texts, (unsigned long long)request->tokens,
                      milliseconds(request->tokenize_ns), milliseconds(request->queue_ns),
                      milliseconds(request->forward_ns));
    }
    if (request->trace_id[0] != '\0') {
        fl_buf_printf(out, ",\"trace_id\":\"%s\",\"span_id\":\"%s\"", request->trace_id,
                      request->span_id);
    }
    if (who[0] != '\0') {
        fl_buf_puts(out, ",\"key\":");
        fl_json_quote(out, who, strlen(who));
    }
    end_line(log);
}
