/* SPDX-License-Identifier: Apache-2.0 */
/* failure.c - exceptions out of the library's errors. The classes come from errors.py. */
#include "failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PyObject *errors; /* {code: class}, given by errors.py */

PyObject *fp_make_error(int code, size_t where, const char *message) {
    PyObject *key   = PyLong_FromLong(code);
    PyObject *class = errors != NULL && key != NULL ? PyDict_GetItemWithError(errors, key) : NULL;
    PyObject *made =
        PyObject_CallFunction(class != NULL ? class : PyExc_RuntimeError, "s", message);
    PyObject *place = where == FLETCH_NOWHERE ? Py_NewRef(Py_None) : PyLong_FromSize_t(where);
    PyObject *name  = PyUnicode_FromString(fletch_status_name(code));
    if (made != NULL && class != NULL && place != NULL && name != NULL) {
        (void)PyObject_SetAttrString(made, "where", place);
        (void)PyObject_SetAttrString(made, "code", name);
    }
    Py_XDECREF(key);
    Py_XDECREF(place);
    Py_XDECREF(name);
    return made;
}

void *fp_raise(int code, size_t where, const char *message) {
    PyObject *made = fp_make_error(code, where, message);
    if (made != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(made), made);
        Py_DECREF(made);
    }
    return NULL;
}

void *fp_raise_fletch(const fletch_error *error) {
    return fp_raise(error->code, error->where, error->message);
}

/* "text 4 is ..." becomes "text 4100 is ..."; any other message stays as it is. */
static void move_text(char *message, size_t capacity, size_t first) {
    static const char head[] = "text ";
    const size_t      size   = sizeof head - 1;
    char              moved[sizeof((fletch_error *)0)->message], *rest;
    if (strncmp(message, head, size) == 0 && message[size] >= '0' && message[size] <= '9') {
        const unsigned long long number = strtoull(message + size, &rest, 10);
        (void)snprintf(moved, sizeof moved, "%s%llu%s", head, number + first, rest);
        (void)snprintf(message, capacity, "%s", moved);
    }
}

void fp_move_error(fletch_error *error, size_t first) {
    if (error->where != FLETCH_NOWHERE) {
        error->where += first;
        move_text(error->message, sizeof error->message, first);
    }
}

/* move_message(message, first) -> message */
PyObject *move_message(PyObject *self, PyObject *args) {
    PyObject  *given;
    Py_ssize_t first, size;
    char       text[sizeof((fletch_error *)0)->message];
    (void)self;
    if (!PyArg_ParseTuple(args, "Un", &given, &first))
        return NULL;
    const char *message = PyUnicode_AsUTF8AndSize(given, &size);
    if (message == NULL || (size_t)size != strlen(message)) { /* not of the library: as it is */
        PyErr_Clear();
        return Py_NewRef(given);
    }
    (void)snprintf(text, sizeof text, "%s", message);
    move_text(text, sizeof text, (size_t)first);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "ignore");
}

PyObject *set_errors(PyObject *self, PyObject *table) {
    (void)self;
    if (!PyDict_Check(table)) {
        PyErr_SetString(PyExc_TypeError, "expected a dict");
        return NULL;
    }
    Py_XDECREF(errors);
    errors = Py_NewRef(table);
    Py_RETURN_NONE;
}
