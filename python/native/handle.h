/* SPDX-License-Identifier: Apache-2.0 */
/* handle.h - an open model. Callers inside the library are counted, and the last one out of a closed handle
 * closes the model, so that close() beside embed() is no race. */
#ifndef FP_HANDLE_H
#define FP_HANDLE_H
#include "extension.h"

typedef struct Handle {
    PyObject_HEAD
    fletch_model   *model;
    pthread_mutex_t lock;
    unsigned        callers;    /* inside the library now */
    unsigned        generation; /* of fork_child */
    bool            closed;
} Handle;

/* Before and after every use of handle->model. False: raised, for the model is closed or the parent's. */
bool fp_enter(Handle *handle);
void fp_leave(Handle *handle);

/* A configuration of (key, value) pairs, of which preset, env and file are calls of their own; NULL: raised. */
fletch_config *fp_make_config(PyObject *options);

#endif
