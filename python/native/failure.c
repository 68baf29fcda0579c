/* SPDX-License-Identifier: Apache-2.0 */
/* failure.c - exceptions out of the library's errors. The classes come from errors.py. */
#include "failure.h"

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

PyObject *set_errors(PyObject *self, PyObject *table) {
    (void)self;
    if (!PyDict_Check(table)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return NULL;
    }
    Py_XDECREF(errors);
    errors = Py_NewRef(table);
    Py_RETURN_NONE;
}
