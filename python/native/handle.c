/* SPDX-License-Identifier: Apache-2.0 */
/* handle.c - the type Handle: an open model, opened and closed. */
#include "handle.h"

#include <string.h>

#include "failure.h"
#include "log_lines.h"

PyTypeObject *fp_handle_type;

bool fp_enter(Handle *handle) {
    if (handle->generation != fp_generation) {
        PyErr_SetString(PyExc_RuntimeError, "this model belongs to the parent process");
        return false;
    }
    pthread_mutex_lock(&handle->lock);
    bool open = !handle->closed;
    handle->callers += open;
    pthread_mutex_unlock(&handle->lock);
    if (!open)
        fp_raise(FLETCH_ECANCELLED, FLETCH_NOWHERE, "the model is closed");
    return open;
}

void fp_leave(Handle *handle) {
    pthread_mutex_lock(&handle->lock);
    bool last = --handle->callers == 0 && handle->closed;
    pthread_mutex_unlock(&handle->lock);
    if (last) {
        Py_BEGIN_ALLOW_THREADS fletch_close(handle->model);
        Py_END_ALLOW_THREADS
    }
}

PyObject *Handle_close(PyObject *self, PyObject *none) {
    Handle *handle = (Handle *)self;
    (void)none;
    if (handle->generation == fp_generation) {
        pthread_mutex_lock(&handle->lock);
        bool ours      = !handle->closed;
        handle->closed = true;
        handle->callers += ours; /* fp_leave() closes, when nobody else is inside */
        pthread_mutex_unlock(&handle->lock);
        if (ours)
            fp_leave(handle);
    }
    Py_RETURN_NONE;
}

static void Handle_dealloc(PyObject *self) {
    PyTypeObject *type   = Py_TYPE(self);
    Handle       *handle = (Handle *)self;
    if (handle->model != NULL)
        Py_XDECREF(Handle_close(self, NULL)); /* nothing in a child: it is the parent's */
    pthread_mutex_destroy(&handle->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int set_options(fletch_config *config, PyObject *options, fletch_error *error) {
    int status = FLETCH_OK;
    for (Py_ssize_t i = 0; status == FLETCH_OK && i < PyTuple_Size(options); i++) {
        const char *key, *value;
        if (!PyArg_ParseTuple(PyTuple_GetItem(options, i), "ss", &key, &value))
            return 1;
        status = strcmp(key, "preset") == 0 ? fletch_config_preset(config, value, error)
                 : strcmp(key, "env") == 0  ? fletch_config_load_env(config, error)
                 : strcmp(key, "file") == 0 ? fletch_config_load(config, value, error)
                                            : fletch_config_set(config, key, value, error);
    }
    return status;
}

fletch_config *fp_make_config(PyObject *options) {
    fletch_error   error  = {0};
    fletch_config *config = fletch_config_new();
    if (config == NULL)
        return PyErr_NoMemory(), NULL;
    int status = set_options(config, options, &error);
    if (status != FLETCH_OK) {
        fletch_config_free(config);
        return status < 0 ? fp_raise_fletch(&error) : NULL;
    }
    fletch_config_set_log(config, fp_on_log, NULL);
    return config;
}

/* open_model(name or None, ((key, value), …), tokenizer_only) -> Handle */
PyObject *open_model(PyObject *self, PyObject *args) {
    const char   *name;
    PyObject     *options;
    int           tokenizer_only, status;
    fletch_error  error = {0};
    fletch_model *model = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "zOp", &name, &options, &tokenizer_only))
        return NULL;
    fletch_config *config = fp_make_config(options);
    if (config == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = tokenizer_only
                                        ? fletch_open_tokenizer(&model, name, config, &error)
                                        : fletch_open(&model, name, config, &error);
    Py_END_ALLOW_THREADS   fletch_config_free(config);
    if (status < 0)
        return fp_raise_fletch(&error);
    Handle *handle =
        (Handle *)((allocfunc)PyType_GetSlot(fp_handle_type, Py_tp_alloc))(fp_handle_type, 0);
    if (handle == NULL) {
        fletch_close(model);
        return NULL;
    }
    handle->model      = model;
    handle->generation = fp_generation;
    pthread_mutex_init(&handle->lock, NULL);
    return (PyObject *)handle;
}

PyObject *Handle_dimensions(PyObject *self, void *closure) {
    (void)closure;
    if (!fp_enter((Handle *)self))
        return NULL;
    size_t dimensions = fletch_dimensions(((Handle *)self)->model);
    fp_leave((Handle *)self);
    return PyLong_FromSize_t(dimensions);
}

/* Dimensions of a sparse vector; 0: the model gives none. */
PyObject *Handle_sparse(PyObject *self, void *closure) {
    fletch_model_info info = {.size = sizeof info};
    (void)closure;
    if (!fp_enter((Handle *)self))
        return NULL;
    (void)fletch_model_info_get(((Handle *)self)->model, &info, NULL);
    fp_leave((Handle *)self);
    return PyLong_FromUnsignedLong(info.sparse);
}

/* Whether calls may go to it: it is open, and of this process. */
PyObject *Handle_usable(PyObject *self, void *closure) {
    const Handle *handle = (Handle *)self;
    (void)closure;
    return PyBool_FromLong(handle->generation == fp_generation);
}

static PyMethodDef Handle_methods[] = {
    {"embed", (PyCFunction)(void (*)(void))Handle_embed, METH_FASTCALL, NULL},
    {"submit", (PyCFunction)(void (*)(void))Handle_submit, METH_FASTCALL, NULL},
    {"tokenize", Handle_tokenize, METH_VARARGS, NULL},
    {"chunk", Handle_chunk, METH_VARARGS, NULL},
    {"decode", Handle_decode, METH_VARARGS, NULL},
    {"token_text", Handle_token_text, METH_O, NULL},
    {"describe", Handle_describe, METH_NOARGS, NULL},
    {"fingerprint", Handle_fingerprint, METH_NOARGS, NULL},
    {"vector_id", Handle_vector_id, METH_NOARGS, NULL},
    {"vector_parts", Handle_vector_parts, METH_NOARGS, NULL},
    {"stats", Handle_stats, METH_NOARGS, NULL},
    {"close", Handle_close, METH_NOARGS, NULL},
    {"scores", Handle_scores, METH_VARARGS, NULL},
    {"lists", Handle_lists, METH_VARARGS, NULL},
    {"outputs", Handle_outputs, METH_VARARGS, NULL},
    {"labels", Handle_labels, METH_NOARGS, NULL},
    {NULL}};
static PyGetSetDef Handle_getset[] = {{"dimensions", Handle_dimensions, NULL, NULL, NULL},
                                      {"sparse", Handle_sparse, NULL, NULL, NULL},
                                      {"usable", Handle_usable, NULL, NULL, NULL},
                                      {NULL}};
static PyType_Slot Handle_slots[]  = {{Py_tp_dealloc, Handle_dealloc},
                                      {Py_tp_methods, Handle_methods},
                                      {Py_tp_getset, Handle_getset},
                                      {0, NULL}};

PyType_Spec fp_handle_spec = {"fletch._fletch.Handle", sizeof(Handle), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, Handle_slots};
