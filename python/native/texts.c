/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c - the type Texts; str and sequences of str become one. ASCII strings give their own memory, others the
 * UTF-8 that CPython makes once and keeps with the string. A sequence is copied first, for others may change it. */
#include "texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

PyTypeObject *fp_texts_type;

static void Texts_dealloc(PyObject *self) {
    Texts        *texts = (Texts *)self;
    PyTypeObject *type  = Py_TYPE(self);
    Py_XDECREF(texts->owner);
    for (size_t i = 0; i < texts->chunk_count; i++)
        if (texts->chunks[i].release != NULL)
            texts->chunks[i].release(&texts->chunks[i]);
    free(texts->chunks);
    free(texts->pointers);
    free(texts->lengths);
    free(texts->nulls);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

bool fp_texts_make_room(Texts *texts, size_t count) {
    texts->pointers = malloc((count + 1) * sizeof *texts->pointers);
    texts->lengths  = malloc((count + 1) * sizeof *texts->lengths);
    if (texts->pointers == NULL || texts->lengths == NULL) {
        PyErr_NoMemory();
        return false;
    }
    texts->view =
        (fletch_texts){.count = count, .pointers = texts->pointers, .lengths = texts->lengths};
    return true;
}

bool fp_texts_mark_null(Texts *texts, size_t row, size_t count, bool allowed) {
    if (!allowed) {
        PyErr_Format(PyExc_ValueError,
                     "text %zu is null; fill the nulls, drop them, or ask for on_error='null'",
                     row);
        return false;
    }
    if (texts->nulls == NULL && (texts->nulls = calloc(count + 1, 1)) == NULL) {
        PyErr_NoMemory();
        return false;
    }
    texts->nulls[row] = 1;
    texts->null_count++;
    texts->pointers[row] = "";
    texts->lengths[row]  = 0;
    return true;
}

const char *fp_utf8_of(PyObject *item, size_t index, size_t *size) {
    Py_ssize_t  length = 0;
    const char *bytes  = PyUnicode_AsUTF8AndSize(item, &length);
    *size              = (size_t)length;
    if (bytes == NULL && PyErr_ExceptionMatches(PyExc_UnicodeError)) {
        char message[160];
        PyErr_Clear();
        snprintf(message, sizeof message,
                 "text %zu holds a lone surrogate, which UTF-8 cannot represent; "
                 "text.encode('utf-8', 'replace').decode() drops it",
                 index);
        fp_raise(FLETCH_EUTF8, index, message);
    }
    return bytes;
}

static bool take_tuple(Texts *texts, bool nulls) {
    size_t count = (size_t)PyTuple_Size(texts->owner);
    if (!fp_texts_make_room(texts, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(texts->owner, (Py_ssize_t)i); /* ours holds it */
        if (PyUnicode_Check(item)) {
            texts->pointers[i] = fp_utf8_of(item, i, &texts->lengths[i]);
            if (texts->pointers[i] == NULL)
                return false;
        } else if (item == Py_None && nulls) {
            if (!fp_texts_mark_null(texts, i, count, true))
                return false;
        } else {
            PyObject *name = PyType_GetName(Py_TYPE(item));
            PyErr_Format(PyExc_TypeError, "text %zu is %U, not str", i, name);
            Py_XDECREF(name);
            return false;
        }
    }
    return true;
}

/* make_texts(texts, nulls, arrow): a str or a sequence of str; or, where `arrow` says so, the pair that
 * __arrow_c_array__ gives or the capsule of __arrow_c_stream__. */
PyObject *make_texts(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "make_texts takes texts, nulls and arrow");
        return NULL;
    }
    Texts *texts =
        (Texts *)((allocfunc)PyType_GetSlot(fp_texts_type, Py_tp_alloc))(fp_texts_type, 0);
    bool nulls = args[1] == Py_True, good = false;
    if (texts == NULL)
        return NULL;
    if (args[2] == Py_True) {
        good = PyTuple_Check(args[0]) ? fp_texts_take_array(texts, args[0], nulls)
                                      : fp_texts_take_stream(texts, args[0], nulls);
    } else if (PyUnicode_Check(args[0])) {
        texts->owner = Py_NewRef(args[0]);
        texts->one   = fp_utf8_of(args[0], 0, &texts->one_size);
        texts->view =
            (fletch_texts){.count = 1, .pointers = &texts->one, .lengths = &texts->one_size};
        good = texts->one != NULL;
    } else {
        texts->owner =
            PySequence_Tuple(args[0]); /* a snapshot: others may change the list meanwhile */
        good = texts->owner != NULL && take_tuple(texts, nulls);
    }
    if (!good) {
        Py_DECREF((PyObject *)texts);
        return NULL;
    }
    return (PyObject *)texts;
}

static Py_ssize_t Texts_length(PyObject *self) {
    return (Py_ssize_t)((Texts *)self)->view.count;
}

/* The rows that are null as bytes of 0 and 1, or None. */
static PyObject *Texts_nulls(PyObject *self, void *closure) {
    const Texts *texts = (Texts *)self;
    (void)closure;
    if (texts->null_count == 0)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)texts->nulls, (Py_ssize_t)texts->view.count);
}

static PyGetSetDef Texts_getset[] = {{"nulls", Texts_nulls, NULL, NULL, NULL}, {NULL}};
static PyType_Slot Texts_slots[]  = {{Py_tp_dealloc, Texts_dealloc},
                                     {Py_sq_length, Texts_length},
                                     {Py_tp_getset, Texts_getset},
                                     {0, NULL}};

PyType_Spec fp_texts_spec = {"fletch._fletch.Texts", sizeof(Texts), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, Texts_slots};

fletch_texts fp_part(const fletch_texts *all, size_t first, size_t count) {
    fletch_texts texts = *all;
    texts.count        = count;
    texts.pointers     = all->pointers != NULL ? all->pointers + first : NULL;
    texts.lengths      = all->lengths != NULL ? all->lengths + first : NULL;
    texts.offsets32    = all->offsets32 != NULL ? all->offsets32 + first : NULL;
    texts.offsets64    = all->offsets64 != NULL ? all->offsets64 + first : NULL;
    return texts;
}

static size_t size_of(const fletch_texts *texts, size_t i) {
    return texts->lengths != NULL     ? texts->lengths[i]
           : texts->offsets32 != NULL ? (size_t)(texts->offsets32[i + 1] - texts->offsets32[i])
                                      : (size_t)(texts->offsets64[i + 1] - texts->offsets64[i]);
}

size_t fp_window_at(const fletch_texts *texts, size_t first, size_t texts_max, size_t bytes_max) {
    size_t count = 0, bytes = 0;
    while (first + count < texts->count && count < texts_max && (count == 0 || bytes < bytes_max)) {
        bytes += size_of(texts, first + count);
        count++;
    }
    return count;
}
