/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - submit(): embedding without waiting.
 *
 * Types   Channel  a wakeup and a list of requests that ended: what an asyncio loop listens to.
 *         Job      one such request, with all that it borrows.
 * A done callback, on a thread of the library, moves the job into its channel's list and sends the wakeup. */
#include "channel.h"

#include <stdlib.h>

#include "failure.h"
#include "wakeup.h"
#include "work.h"

/* Jobs whose loop went away first: ended, and freed at the next submit. */
static struct {
    pthread_mutex_t lock;
    struct Job     *first;
} orphans = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Lives until its Channel and all its jobs are gone. */
typedef struct channel {
    pthread_mutex_t lock;
    unsigned        references;
    unsigned        generation; /* of fork_child */
    fp_wakeup       wakeup;     /* the Channel's: nobody sends once it is dead */
    bool            dead;       /* no loop listens any more */
    struct Job     *first, **last;
} channel;

typedef struct Job {
    PyObject_HEAD
    fp_work        work;
    channel       *channel;
    PyObject      *user; /* given back by take_done */
    fletch_ticket  ticket;
    fletch_outcome outcome;
    struct Job    *next;
} Job;

typedef struct Channel {
    PyObject_HEAD
    channel *channel;
} Channel;

PyTypeObject *fp_channel_type, *fp_job_type;

/* In a forked child nothing, for a thread of the parent may have held the lock: the few bytes stay. */
static void channel_drop(channel *c) {
    if (c->generation != fp_generation)
        return;
    pthread_mutex_lock(&c->lock);
    bool last = --c->references == 0;
    pthread_mutex_unlock(&c->lock);
    if (last) {
        pthread_mutex_destroy(&c->lock);
        free(c);
    }
}

/* On a thread of the library, or inside a call on the model: no Python here. The job's own reference, taken
 * when it was submitted, goes with it into the list. */
static void on_job_done(void *user, const fletch_outcome *outcome) {
    Job     *job = user;
    channel *c   = job->channel;
    job->outcome = *outcome;
    job->next    = NULL;
    pthread_mutex_lock(&c->lock);
    bool dead = c->dead;
    if (!dead) {
        bool wake = c->first == NULL;
        *c->last  = job;
        c->last   = &job->next;
        if (wake)
            fp_wakeup_send(&c->wakeup);
    }
    pthread_mutex_unlock(&c->lock);
    if (dead) {
        pthread_mutex_lock(&orphans.lock);
        job->next     = orphans.first;
        orphans.first = job;
        pthread_mutex_unlock(&orphans.lock);
    }
}

static void free_orphans(void) {
    pthread_mutex_lock(&orphans.lock);
    Job *job      = orphans.first;
    orphans.first = NULL;
    pthread_mutex_unlock(&orphans.lock);
    while (job != NULL) {
        Job *next = job->next;
        Py_DECREF((PyObject *)job);
        job = next;
    }
}

static void Job_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Job          *job  = (Job *)self;
    fp_work_free(&job->work);
    Py_XDECREF(job->user);
    if (job->channel != NULL)
        channel_drop(job->channel);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *Job_cancel(PyObject *self, PyObject *none) {
    Job *job = (Job *)self;
    int  status;
    (void)none;
    if (job->work.handle->generation != fp_generation || !fp_enter(job->work.handle)) {
        PyErr_Clear(); /* closed: it ended with that */
        Py_RETURN_FALSE;
    }
    Py_BEGIN_ALLOW_THREADS status = fletch_cancel(job->work.handle->model, job->ticket);
    Py_END_ALLOW_THREADS   fp_leave(job->work.handle);
    return PyBool_FromLong(status == FLETCH_OK);
}

/* submit(channel, user, lane, deadline_ms, texts, out, …[, spans, counts, overlap]) -> Job */
PyObject *Handle_submit(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    enum { OWN = 4 };
    if (count < OWN + FP_WORK_ARGS || Py_TYPE(args[0]) != fp_channel_type) {
        PyErr_SetString(PyExc_TypeError, "submit is internal: use Model");
        return NULL;
    }
    if (((Channel *)args[0])->channel->generation != fp_generation) {
        PyErr_SetString(PyExc_RuntimeError, "this channel belongs to the parent process");
        return NULL;
    }
    free_orphans();
    Job *job = (Job *)((allocfunc)PyType_GetSlot(fp_job_type, Py_tp_alloc))(fp_job_type, 0);
    if (job == NULL)
        return NULL;
    if (!fp_work_take(&job->work, self, args + OWN, count - OWN) || !fp_enter(job->work.handle)) {
        Py_DECREF((PyObject *)job);
        return NULL;
    }
    fletch_request *request = &job->work.request;
    fletch_error    error   = {0};
    int             status;
    request->lane        = (fletch_lane)PyLong_AsLong(args[2]);
    request->deadline_ms = (uint32_t)PyLong_AsUnsignedLong(args[3]);
    job->user            = Py_NewRef(args[1]);
    job->channel         = ((Channel *)args[0])->channel;
    pthread_mutex_lock(&job->channel->lock);
    job->channel->references++;
    pthread_mutex_unlock(&job->channel->lock);
    Py_INCREF((PyObject *)job); /* the request's, until take_done */
    Py_BEGIN_ALLOW_THREADS status =
        fletch_submit(job->work.handle->model, request, on_job_done, job, &job->ticket, &error);
    Py_END_ALLOW_THREADS fp_leave((Handle *)self);
    if (status < 0) {
        Py_DECREF((PyObject *)job);
        Py_DECREF((PyObject *)job);
        return fp_raise_fletch(&error);
    }
    return (PyObject *)job;
}

PyObject *make_channel(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    Channel *made =
        (Channel *)((allocfunc)PyType_GetSlot(fp_channel_type, Py_tp_alloc))(fp_channel_type, 0);
    channel *c = made != NULL ? calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        Py_XDECREF((PyObject *)made);
        return PyErr_NoMemory();
    }
    if (!fp_wakeup_open(&c->wakeup)) {
        free(c);
        Py_DECREF((PyObject *)made);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->references = 1;
    c->generation = fp_generation;
    c->last       = &c->first;
    made->channel = c;
    return (PyObject *)made;
}

/* Nothing in a forked child: the jobs are the parent's, and a read would eat its wake-up. */
static Job *take_list(channel *c, bool dead) {
    if (c->generation != fp_generation)
        return NULL;
    pthread_mutex_lock(&c->lock);
    fp_wakeup_drain(&c->wakeup);
    Job *job = c->first;
    c->first = NULL;
    c->last  = &c->first;
    c->dead  = c->dead || dead;
    pthread_mutex_unlock(&c->lock);
    return job;
}

static void Channel_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    channel      *c    = ((Channel *)self)->channel;
    if (c != NULL) {
        for (Job *job = take_list(c, true), *next; job != NULL; job = next) {
            next = job->next;
            Py_DECREF((PyObject *)job);
        }
        fp_wakeup_close(&c->wakeup); /* in a forked child its copy */
        channel_drop(c);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *Channel_fileno(PyObject *self, PyObject *none) {
    (void)none;
    return PyLong_FromLong(((Channel *)self)->channel->wakeup.fd);
}

/* [(user, None or error), …] of the requests that ended. */
static PyObject *Channel_take_done(PyObject *self, PyObject *none) {
    PyObject *list = PyList_New(0);
    (void)none;
    for (Job *job = take_list(((Channel *)self)->channel, false), *next; job != NULL; job = next) {
        const fletch_error *error = &job->outcome.error;
        PyObject           *what  = error->code == FLETCH_OK
                                        ? Py_NewRef(Py_None)
                                        : fp_make_error(error->code, error->where, error->message);
        PyObject           *pair  = what != NULL ? Py_BuildValue("(ON)", job->user, what) : NULL;
        if (list == NULL || pair == NULL || PyList_Append(list, pair) < 0)
            PyErr_WriteUnraisable(job->user);
        Py_XDECREF(pair);
        next = job->next;
        Py_DECREF((PyObject *)job);
    }
    return list;
}

void fp_channel_after_fork(void) {
    pthread_mutex_init(&orphans.lock, NULL);
    orphans.first = NULL;
}

static PyMethodDef Job_methods[] = {{"cancel", Job_cancel, METH_NOARGS, NULL}, {NULL}};
static PyType_Slot Job_slots[]   = {
      {Py_tp_dealloc, Job_dealloc}, {Py_tp_methods, Job_methods}, {0, NULL}};
PyType_Spec fp_job_spec = {"fletch._fletch.Job", sizeof(Job), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, Job_slots};

static PyMethodDef Channel_methods[] = {{"fileno", Channel_fileno, METH_NOARGS, NULL},
                                        {"take_done", Channel_take_done, METH_NOARGS, NULL},
                                        {NULL}};
static PyType_Slot Channel_slots[]   = {
      {Py_tp_dealloc, Channel_dealloc}, {Py_tp_methods, Channel_methods}, {0, NULL}};
PyType_Spec fp_channel_spec = {"fletch._fletch.Channel", sizeof(Channel), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               Channel_slots};
