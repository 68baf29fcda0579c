/* SPDX-License-Identifier: Apache-2.0 */
/* windows.c - embed(): the call that waits.
 *
 * Up to a handful of texts go in one blocking call, whose thread carries the batch itself. More go in windows, two of
 * them in flight, and the thread looks at Python's signals every 100 ms: an interrupt cancels and raises. */
#include <stdlib.h>
#include <time.h>

#include "failure.h"
#include "work.h"

/* macOS and Windows let a condition wait by the time of day alone: where somebody sets that, Ctrl-C is heard later. */
#if defined(__linux__)
#define WAIT_CLOCK CLOCK_MONOTONIC
#else
#define WAIT_CLOCK CLOCK_REALTIME
#endif

enum {
    DIRECT_TEXTS = 32,        /* up to here one blocking call */
    DIRECT_BYTES = 64 * 1024, /* and short enough that nobody waits to interrupt it */
    WINDOW_TEXTS = 4096,
    WINDOW_BYTES = 4 * 1024 * 1024,
    TOLD_TEXTS   = 32, /* the least of a window where somebody hears of rows, */
    TOLD_TIMES   = 20, /* about so often */
    FLIGHTS      = 2,
    POLL_MS      = 100
};

typedef struct wait_room {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    size_t          window; /* texts of one */
    size_t          rows;   /* written */
    unsigned        ended;  /* windows that ended since they were looked at */
    fletch_error    error;  /* of the first text to blame */
} wait_room;

typedef struct flight {
    wait_room    *room;
    fletch_ticket ticket;
    size_t        first, count;
    bool          busy; /* under the room's lock */
} flight;

/* Under the lock: the error of the earliest text is the one to tell, and a real one before "cancelled". */
static void keep_error(wait_room *room, const fletch_error *error, size_t first) {
    fletch_error own = *error;
    fp_move_error(&own, first);
    bool better = room->error.code == 0 ||
                  (room->error.code == FLETCH_ECANCELLED && own.code != FLETCH_ECANCELLED) ||
                  (own.code != FLETCH_ECANCELLED && own.where < room->error.where);
    if (better)
        room->error = own;
}

static void on_flight_done(void *user, const fletch_outcome *outcome) {
    flight    *f    = user;
    wait_room *room = f->room;
    pthread_mutex_lock(&room->lock);
    f->busy = false;
    room->ended++;
    if (outcome->error.code == FLETCH_OK)
        room->rows += f->count;
    else
        keep_error(room, &outcome->error, f->first);
    pthread_cond_signal(&room->changed);
    pthread_mutex_unlock(&room->lock);
}

static bool send_window(fp_work *w, flight *f, size_t first) {
    fletch_error         error = {0};
    fletch_embed_options options;
    size_t         count   = fp_window_at(&w->request.texts, first, f->room->window, WINDOW_BYTES);
    fletch_request request = fp_work_part(w, first, count, &options);
    request.lane           = FLETCH_LANE_BULK;
    f->first               = first;
    f->count               = count;
    f->busy                = true;
    int status = fletch_submit(w->handle->model, &request, on_flight_done, f, &f->ticket, &error);
    if (status < 0) {
        f->busy = false;
        if (status != FLETCH_EBUSY) { /* too much waits already: this call waits, too */
            pthread_mutex_lock(&f->room->lock);
            keep_error(f->room, &error, first);
            pthread_mutex_unlock(&f->room->lock);
        }
    }
    return status == FLETCH_OK;
}

/* Until a window ended, or 100 ms; returns whether nothing is in flight, and the rows that are written. */
static bool wait_a_while(wait_room *room, const flight *flights, size_t *rows) {
    struct timespec until;
    clock_gettime(WAIT_CLOCK, &until);
    until.tv_nsec += POLL_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&room->lock);
    while (room->ended == 0 && pthread_cond_timedwait(&room->changed, &room->lock, &until) == 0) {
    }
    room->ended = 0;
    *rows       = room->rows;
    bool idle   = true;
    for (size_t i = 0; i < FLIGHTS; i++)
        idle = idle && !flights[i].busy;
    pthread_mutex_unlock(&room->lock);
    return idle;
}

/* Send what fits, then wait a while. True: all is over. Without the GIL. */
static bool step(fp_work *w, flight *flights, size_t *next, bool *stop, size_t *rows) {
    wait_room *room = flights[0].room;
    for (size_t i = 0; i < FLIGHTS; i++) {
        pthread_mutex_lock(&room->lock);
        *stop     = *stop || room->error.code != FLETCH_OK;
        bool free = !flights[i].busy;
        pthread_mutex_unlock(&room->lock);
        if (*stop || *next == w->request.texts.count)
            break;
        if (free && send_window(w, &flights[i], *next))
            *next += flights[i].count;
    }
    if (*stop) {
        for (size_t i = 0; i < FLIGHTS; i++) {
            (void)fletch_cancel(w->handle->model,
                                flights[i].ticket); /* not found: it ended already */
        }
    }
    bool idle = wait_a_while(room, flights, rows);
    return idle && (*stop || *next == w->request.texts.count);
}

/* On the heap: a daemon thread that the interpreter ends while it waits takes its stack with it, and the
 * windows in flight still write here. */
typedef struct voyage {
    wait_room room;
    flight    flights[FLIGHTS];
} voyage;

static voyage *voyage_new(void) {
    pthread_condattr_t clock;
    voyage            *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    v->room.error.where = FLETCH_NOWHERE;
    pthread_mutex_init(&v->room.lock, NULL);
    pthread_condattr_init(&clock);
#if defined(__linux__)
    pthread_condattr_setclock(&clock, WAIT_CLOCK);
#endif
    pthread_cond_init(&v->room.changed, &clock);
    pthread_condattr_destroy(&clock);
    for (size_t i = 0; i < FLIGHTS; i++)
        v->flights[i].room = &v->room;
    return v;
}

static size_t window_for(size_t count, const PyObject *progress) {
    size_t part = progress == Py_None ? WINDOW_TEXTS : count / TOLD_TIMES;
    return part < TOLD_TEXTS ? TOLD_TEXTS : part < WINDOW_TEXTS ? part : WINDOW_TEXTS;
}

static bool say_rows(PyObject *progress, size_t rows) {
    PyObject *result = PyObject_CallFunction(progress, "n", (Py_ssize_t)rows);
    Py_XDECREF(result);
    return result != NULL;
}

static PyObject *embed_windows(fp_work *w, PyObject *progress) {
    voyage *v    = voyage_new();
    size_t  next = 0, rows = 0, told = 0;
    bool    over = false, stop = false, raised = false;
    if (v == NULL)
        return PyErr_NoMemory();
    v->room.window = window_for(w->request.texts.count, progress);
    while (!over) {
        Py_BEGIN_ALLOW_THREADS over   = step(w, v->flights, &next, &stop, &rows);
        Py_END_ALLOW_THREADS   raised = raised || PyErr_CheckSignals() < 0;
        if (!raised && progress != Py_None && rows > told) {
            raised = !say_rows(progress, rows - told);
            told   = rows;
        }
        pthread_mutex_lock(&w->handle->lock);
        stop = stop || raised || w->handle->closed;
        pthread_mutex_unlock(&w->handle->lock);
    }
    fletch_error error = v->room.error;
    pthread_cond_destroy(&v->room.changed);
    pthread_mutex_destroy(&v->room.lock);
    free(v);
    if (raised)
        return NULL;
    if (error.code != FLETCH_OK)
        return fp_raise_fletch(&error);
    if (stop && rows < w->request.texts.count)
        return fp_raise(FLETCH_ECANCELLED, FLETCH_NOWHERE, "the model was closed in the meantime");
    Py_RETURN_NONE;
}

/* embed(texts, out, dtype, cols, prompt, prompt_name, dimensions, max_length, normalize, truncate, tokens,
 * truncated, status, progress) */
PyObject *Handle_embed(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    fp_work   w;
    PyObject *result = NULL;
    if (!fp_work_take(&w, self, args, count) || !fp_enter(w.handle)) {
        fp_work_free(&w);
        return NULL;
    }
    size_t    n     = w.request.texts.count;
    bool      small = n <= DIRECT_TEXTS && fp_window_at(&w.request.texts, 0, n, DIRECT_BYTES) == n;
    PyObject *progress = count > FP_WORK_ARGS ? args[FP_WORK_ARGS] : Py_None;
    if (small) {
        fletch_error           error = {0};
        int                    status;
        Py_BEGIN_ALLOW_THREADS status =
            fletch_embed(w.handle->model, &w.request.texts, &w.options, &w.request.out, &error);
        Py_END_ALLOW_THREADS result = status < 0 ? fp_raise_fletch(&error) : Py_NewRef(Py_None);
        if (status >= 0 && progress != Py_None && n > 0 && !say_rows(progress, n)) {
            Py_DECREF(result);
            result = NULL;
        }
    } else {
        result = embed_windows(&w, progress);
    }
    fp_leave(w.handle);
    fp_work_free(&w);
    return result;
}
