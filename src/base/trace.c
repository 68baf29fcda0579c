/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - spans of time, kept in a ring per thread and written as a Chrome trace when it stops.
 *
 * Role    profile.file: the runtime and the engines record; chrome://tracing and Perfetto show.
 * Method  A thread's ring hangs on a pthread key that belongs to the trace, so finding it is one
 *         lookup and there is no global state. Only its thread writes a ring, and says so in `busy`
 *         before it looks whether the trace is on; who stops it turns `on` off and then waits for
 *         every ring that is busy, so that none is read while it is written. The lock guards the
 *         list of rings and their names: a thread takes it when it records for the first time or
 *         takes another name, and never for as long as a file is being written.
 *         There is no destructor on the key: a thread may end at the very moment of close, and
 *         would touch what is freed. Instead, a program that starts threads for ever gets no more
 *         than RINGS_MAX rings: past that, a new thread takes over the ring of one that the
 *         kernel no longer knows.
 *         Spans on a track (time in the queue) may overlap, but Perfetto wants those of one thread
 *         nested; so a track is drawn as as many lanes as overlap: sorted by begin, each span goes
 *         to the first lane that is free; the file says how many found none.
 * Out     {"displayTimeUnit":"ns","traceEvents":[…],"otherData":{"dropped_spans":"0",…}}: metadata
 *         events (M) with the names, then complete events (X) in microseconds with nanoseconds
 *         behind the point. Process 1 holds the threads, process 2 the tracks.
 * Memory  RING_SPANS spans (3 MiB, touched as they fill) per thread; one array more at close.
 * Threads see trace.h.
 * Proof   tests/unit/test_base_trace.c, also under ThreadSanitizer; tests/cli/test_stats.py. */
#include "base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/locked.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/utf8.h"

enum {
    RING_SPANS  = 1 << 16,
    RINGS_MAX   = 256, /* before the rings of dead threads are taken over */
    LANES_MAX   = 16,  /* of one track: nobody reads more; what overlaps further is left out */
    NAME_SIZE   = 64,
    FLUSH_BYTES = 1 << 16,
    THREADS_PID = 1, /* "processes" of the file */
    TRACKS_PID  = 2
};

typedef struct span {
    const char *name;     /* static */
    const char *argument; /* static, or NULL: no number */
    const char *track;    /* static, or NULL: the thread's own */
    int64_t     value;
    uint64_t    begin_ns, end_ns;
} span;

typedef struct ring {
    struct ring      *next;   /* list of the trace */
    uint64_t          thread; /* the kernel's number; changes when the ring is taken over */
    char              name[NAME_SIZE]; /* "" until fl_trace_thread */
    atomic_bool       busy;            /* its thread is at it */
    _Atomic(uint64_t) written;         /* spans so far; span i is in slot i % RING_SPANS */
    span              spans[RING_SPANS];
} ring;

FL_LOCK_ROLE(rings_role); /* `lock`: rings, their thread numbers and names */

struct fl_trace {
    pthread_key_t        key; /* of each thread's ring */
    pthread_mutex_t      lock;
    pthread_mutex_t      turn; /* one starts or stops at a time */
    atomic_bool          on;
    bool writing         FL_GUARDED_BY(rings_role); /* rings keep their threads and names */
    ring *rings          FL_GUARDED_BY(rings_role);
    unsigned ring_count  FL_GUARDED_BY(rings_role);
    uint64_t             opened_ns; /* 0 of the file; changes while it is off */
    atomic_uint_fast64_t lost;      /* spans of threads for which there was no memory */
    char                *path;      /* owned */
    fl_atomic_file       file;      /* where the file is written … */
    int device; /* … unless the path is a pipe or a device, which has no temporary name: its fd, or -1 */
};

FL_LOCK_OF(rings_role, fl_trace, lock, lock, unlock);

/* ---- Recording ------------------------------------------------------------------------------- */

/* None while the rings are written to the file. */
FL_REQUIRES(rings_role) static ring *take_over(fl_trace *trace) {
    for (ring *r = trace->rings; r != NULL && !trace->writing; r = r->next) {
        if (fl_os_thread_gone(r->thread)) {
            /* Acquire: its owner's spans are ours now. */
            (void)atomic_load_explicit(&r->written, memory_order_acquire);
            r->name[0] = '\0';
            return r;
        }
    }
    return NULL;
}

static ring *register_thread(fl_trace *trace) {
    const int cause = errno; /* a span must not disturb what its caller is about to report */
    lock(trace);
    ring *r = trace->ring_count >= RINGS_MAX ? take_over(trace) : NULL;
    if (r == NULL && !(trace->writing && trace->ring_count >= RINGS_MAX) &&
        (r = fl_alloc(sizeof *r)) != NULL) {
        r->next    = trace->rings;
        r->name[0] = '\0';
        atomic_init(&r->busy, false);
        atomic_init(&r->written, 0);
        trace->rings = r;
        trace->ring_count++;
    }
    if (r != NULL)
        r->thread = fl_os_thread();
    unlock(trace);
    if (r != NULL && pthread_setspecific(trace->key, r) != 0) {
        r->thread = 0; /* never gone, never used: no memory is left for a second one anyway */
        r         = NULL;
    }
    errno = cause;
    return r;
}

static ring *ring_of(fl_trace *trace) {
    ring *r = pthread_getspecific(trace->key);
    return r != NULL ? r : register_thread(trace);
}

static void put(fl_trace *trace, const span *s) {
    ring *r = ring_of(trace);
    if (r == NULL) {
        atomic_fetch_add_explicit(&trace->lost, 1, memory_order_relaxed);
        return;
    }
    atomic_store(&r->busy, true);
    if (atomic_load(&trace->on) &&
        (s->begin_ns >= trace->opened_ns || s->end_ns >= trace->opened_ns)) {
        const uint64_t at         = atomic_load_explicit(&r->written, memory_order_relaxed);
        r->spans[at % RING_SPANS] = *s;
        atomic_store_explicit(&r->written, at + 1, memory_order_release);
    }
    atomic_store_explicit(&r->busy, false, memory_order_release);
}

bool fl_trace_is_on(const fl_trace *trace) {
    return atomic_load_explicit(&trace->on, memory_order_relaxed);
}

void fl_trace_span(fl_trace *trace, const char *track, const char *name, uint64_t begin_ns,
                   uint64_t end_ns, const char *argument, int64_t value) {
    if (trace == NULL || !fl_trace_is_on(trace))
        return;
    put(trace, &(span){.name     = name,
                       .argument = argument,
                       .track    = track,
                       .value    = value,
                       .begin_ns = begin_ns,
                       .end_ns   = end_ns});
}

void fl_trace_thread(fl_trace *trace, const char *name) {
    ring *r = trace != NULL ? ring_of(trace) : NULL;
    if (r == NULL || strncmp(r->name, name, NAME_SIZE - 1) == 0) /* nobody else writes it */
        return;
    const size_t size = strnlen(name, NAME_SIZE - 1);
    lock(trace);
    memcpy(r->name, name, size);
    r->name[size] = '\0';
    unlock(trace);
}

/* ---- The file -------------------------------------------------------------------------------- */

typedef struct writer {
    fl_trace     *trace;
    const ring   *rings; /* the list as it was when the trace stopped */
    unsigned      ring_count;
    fletch_error *error;
    fl_buf        buf;
    fl_buf        name; /* a name made valid UTF-8 */
    const char   *comma;
    int           status;
} writer;

static void flush(writer *w) {
    if (w->status == 0 && (w->buf.failed || w->name.failed))
        w->status = fl_fail_nomem(w->error, FLUSH_BYTES, "the trace");
    if (w->status == 0 && w->trace->device >= 0) {
        if (fl_write_all(w->trace->device, w->buf.data, w->buf.size) != 0)
            w->status = fl_fail_errno(w->error, errno, "cannot write", w->trace->path);
    } else if (w->status == 0) {
        w->status = fl_atomic_write(&w->trace->file, w->buf.data, w->buf.size, w->error);
    }
    fl_buf_clear(&w->buf);
}

/* Names come from the code, but a thread's may hold what a driver says and be cut in mid-character. */
static void put_name(writer *w, const char *name) {
    fl_buf_clear(&w->name);
    fl_utf8_replace_invalid(&w->name, name, strlen(name));
    fl_json_quote(&w->buf, w->name.data != NULL ? w->name.data : "", w->name.size);
}

static void put_event_start(writer *w, const char *name, char phase, int pid, int tid) {
    if (w->buf.size >= FLUSH_BYTES)
        flush(w);
    fl_buf_printf(&w->buf, "%s{\"name\":", w->comma);
    put_name(w, name);
    fl_buf_printf(&w->buf, ",\"ph\":\"%c\",\"pid\":%d,\"tid\":%d", phase, pid, tid);
    w->comma = ",\n";
}

/* {"name":"thread_name","ph":"M","pid":1,"tid":3,"args":{"name":"feeder"}} */
static void put_metadata(writer *w, const char *what, int pid, int tid, const char *name) {
    put_event_start(w, what, 'M', pid, tid);
    fl_buf_puts(&w->buf, ",\"args\":{\"name\":");
    put_name(w, name);
    fl_buf_puts(&w->buf, "}}");
}

static void put_order(writer *w, int pid, int tid) {
    put_event_start(w, "thread_sort_index", 'M', pid, tid);
    fl_buf_printf(&w->buf, ",\"args\":{\"sort_index\":%d}}", tid);
}

static void put_span(writer *w, const span *s, int pid, int tid) {
    const uint64_t opened = w->trace->opened_ns;
    const uint64_t ts     = s->begin_ns > opened ? s->begin_ns - opened : 0;
    const uint64_t end    = s->end_ns > opened ? s->end_ns - opened : 0;
    const uint64_t dur    = end > ts ? end - ts : 0;
    put_event_start(w, s->name, 'X', pid, tid);
    fl_buf_printf(&w->buf, ",\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64 ".%03u", ts / 1000,
                  (unsigned)(ts % 1000), dur / 1000, (unsigned)(dur % 1000));
    if (s->argument != NULL) {
        fl_buf_puts(&w->buf, ",\"args\":{");
        put_name(w, s->argument);
        fl_buf_printf(&w->buf, ":%" PRId64 "}", s->value);
    }
    fl_buf_putc(&w->buf, '}');
}

static uint64_t ring_kept(uint64_t written) {
    return written < RING_SPANS ? written : RING_SPANS;
}

/* The thread's own spans; those on tracks are gathered in `tracked`. Returns how many were lost. */
static uint64_t put_ring(writer *w, const ring *r, int tid, span *tracked, size_t *tracked_count) {
    const uint64_t written = atomic_load_explicit(&r->written, memory_order_acquire);
    const uint64_t kept    = ring_kept(written);
    char           name[NAME_SIZE];
    lock(w->trace);
    if (r->name[0] != '\0')
        memcpy(name, r->name, sizeof name);
    else
        (void)snprintf(name, sizeof name, "thread %ld", (long)r->thread);
    unlock(w->trace);
    put_metadata(w, "thread_name", THREADS_PID, tid, name);
    put_order(w, THREADS_PID, tid);
    for (uint64_t i = written - kept; i < written; i++) {
        const span *s = &r->spans[i % RING_SPANS];
        if (s->track != NULL)
            tracked[(*tracked_count)++] = *s;
        else
            put_span(w, s, THREADS_PID, tid);
    }
    return written - kept;
}

static int compare_tracked(const void *a, const void *b) {
    const span *x = a, *y = b;
    const int   order = strcmp(x->track, y->track);
    if (order != 0)
        return order;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* spans[count] of one track, by begin; lanes are numbered from *tid. Returns how many were left out. */
static uint64_t put_track(writer *w, const span *spans, size_t count, int *tid) {
    uint64_t busy_until[LANES_MAX], hidden = 0;
    int      lanes = 0;
    for (size_t i = 0; i < count; i++) {
        int lane = 0;
        while (lane < lanes && busy_until[lane] > spans[i].begin_ns)
            lane++;
        if (lane == LANES_MAX) {
            hidden++;
            continue;
        }
        lanes += lane == lanes;
        busy_until[lane] = spans[i].end_ns;
        put_span(w, &spans[i], TRACKS_PID, *tid + lane);
    }
    for (int lane = 0; lane < lanes; lane++) {
        put_metadata(w, "thread_name", TRACKS_PID, *tid + lane, spans[0].track);
        put_order(w, TRACKS_PID, *tid + lane);
    }
    *tid += lanes;
    return hidden;
}

static uint64_t put_tracks(writer *w, span *spans, size_t count) {
    uint64_t hidden = 0;
    int      tid    = 1;
    if (count == 0)
        return 0;
    put_metadata(w, "process_name", TRACKS_PID, 0, "fletch: queue and devices");
    qsort(spans, count, sizeof *spans, compare_tracked);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && !strcmp(spans[end].track, spans[first].track); end++) {
        }
        hidden += put_track(w, spans + first, end - first, &tid);
    }
    return hidden;
}

static size_t count_tracked(const ring *rings) {
    size_t count = 0;
    for (const ring *r = rings; r != NULL; r = r->next) {
        const uint64_t written = atomic_load_explicit(&r->written, memory_order_acquire);
        for (uint64_t i = 0; i < ring_kept(written); i++)
            count += r->spans[i].track != NULL;
    }
    return count;
}

static void put_all(writer *w) {
    fl_trace    *trace         = w->trace;
    const size_t tracked_size  = count_tracked(w->rings);
    size_t       tracked_count = 0;
    uint64_t     dropped       = atomic_load(&trace->lost);
    span        *tracked       = fl_alloc_array(tracked_size, sizeof *tracked);
    if (tracked == NULL) {
        w->status = fl_fail_nomem(w->error, tracked_size * sizeof *tracked, "the trace");
        return;
    }
    fl_buf_puts(&w->buf, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    put_metadata(w, "process_name", THREADS_PID, 0, "fletch");
    int tid = (int)w->ring_count; /* the list is newest first */
    for (const ring *r = w->rings; r != NULL; r = r->next)
        dropped += put_ring(w, r, tid--, tracked, &tracked_count);
    const uint64_t hidden = put_tracks(w, tracked, tracked_count);
    fl_buf_printf(&w->buf,
                  "\n],\"otherData\":{\"program\":\"fletch " FLETCH_VERSION
                  "\",\"dropped_spans\":\"%" PRIu64 "\",\"hidden_spans\":\"%" PRIu64 "\"}}\n",
                  dropped, hidden);
    flush(w);
    fl_free(tracked);
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* A pipe or a device is written as it is: there is nothing to rename onto. */
static int open_target(fl_trace *trace, fletch_error *error) {
    struct stat status;
    if (stat(trace->path, &status) != 0 || S_ISREG(status.st_mode))
        return fl_atomic_open(&trace->file, trace->path, error);
    if (S_ISDIR(status.st_mode))
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "profile.file: %s is a folder; give the name of a file", trace->path);
    trace->device = open(trace->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (trace->device < 0)
        return fl_fail_errno(error, errno, "cannot write", trace->path);
    return 0;
}

FL_UNCHECKED static void trace_free(fl_trace *trace) {
    for (ring *r = trace->rings, *next; r != NULL; r = next) {
        next = r->next;
        fl_free(r);
    }
    fl_free(trace->path);
    fl_free(trace);
}

/* An empty trace from now on. It is off, and its file is open. */
static void turn_on(fl_trace *trace) {
    lock(trace);
    for (ring *r = trace->rings; r != NULL; r = r->next)
        atomic_store(&r->written, 0);
    unlock(trace);
    atomic_store(&trace->lost, 0);
    trace->opened_ns = fl_clock_ns();
    atomic_store(&trace->on, true);
}

static void drop_target(fl_trace *trace) {
    if (trace->device >= 0)
        close(trace->device);
    else
        fl_atomic_abort(&trace->file);
    trace->device = -1;
}

/* Off, and into the file. Threads that want the lock do not wait for the disk. */
static int write_file(fl_trace *trace, fletch_error *error) {
    writer w = {.trace = trace, .error = error, .comma = ""};
    atomic_store(&trace->on, false);
    lock(trace);
    for (ring *r = trace->rings; r != NULL; r = r->next)
        while (atomic_load(&r->busy))
            (void)sched_yield();
    trace->writing = true;
    w.rings        = trace->rings; /* new ones are put in front */
    w.ring_count   = trace->ring_count;
    unlock(trace);
    put_all(&w);
    lock(trace);
    trace->writing = false;
    unlock(trace);
    fl_buf_free(&w.buf);
    fl_buf_free(&w.name);
    if (w.status == 0 && trace->device < 0)
        return fl_atomic_commit(&trace->file, error);
    drop_target(trace);
    return w.status;
}

int fl_trace_start(fl_trace *trace, fletch_error *error) {
    pthread_mutex_lock(&trace->turn);
    const int status = fl_trace_is_on(trace) ? fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE,
                                                       "%s is already being traced", trace->path)
                                             : open_target(trace, error);
    if (status == 0)
        turn_on(trace);
    pthread_mutex_unlock(&trace->turn);
    return status;
}

int fl_trace_stop(fl_trace *trace, fletch_error *error) {
    pthread_mutex_lock(&trace->turn);
    const int status = fl_trace_is_on(trace) ? write_file(trace, error)
                                             : fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                                                       "no trace to %s is running", trace->path);
    pthread_mutex_unlock(&trace->turn);
    return status;
}

int fl_trace_open(fl_trace **out, const char *path, bool on, fletch_error *error) {
    *out            = NULL;
    fl_trace *trace = fl_alloc_zero(1, sizeof *trace);
    if (trace == NULL)
        return fl_fail_nomem(error, sizeof *trace, "the trace");
    trace->device  = -1;
    trace->file.fd = -1;
    trace->path    = fl_strdup(path);
    atomic_init(&trace->lost, 0);
    atomic_init(&trace->on, false);
    int status = trace->path != NULL ? open_target(trace, error)
                                     : fl_fail_nomem(error, strlen(path) + 1, "the trace's name");
    if (status == 0 && pthread_key_create(&trace->key, NULL) != 0) {
        drop_target(trace);
        status = fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE,
                         "profile.file: this process has run out of thread-specific keys; close "
                         "other models that trace");
    }
    if (status < 0) {
        trace_free(trace);
        return status;
    }
    pthread_mutex_init(&trace->lock, NULL);
    pthread_mutex_init(&trace->turn, NULL);
    if (on)
        turn_on(trace);
    else
        drop_target(trace); /* it was to be seen whether it opens */
    *out = trace;
    return 0;
}

int fl_trace_close(fl_trace *trace, fletch_error *error) {
    if (trace == NULL)
        return 0;
    const int status = fl_trace_is_on(trace) ? write_file(trace, error) : 0;
    pthread_key_delete(trace->key);
    pthread_mutex_destroy(&trace->lock);
    pthread_mutex_destroy(&trace->turn);
    trace_free(trace);
    return status;
}
