/* SPDX-License-Identifier: Apache-2.0 */
/* scores_lists.c - rerank, classify, vectors of tokens, sparse vectors: calls that wait, some texts at a time.
 *
 * Python asks for texts [first, first + count) of a column, so that an interrupt is heard between two calls. */
#include <string.h>

#include "failure.h"
#include "handle.h"
#include "texts.h"

enum { TEXTS_MAX = 256 }; /* of a call */

/* What all calls have: texts and where, prompt, prompt_name, max_length, truncate; which were cut. */
typedef struct call {
    fletch_texts         texts;
    fletch_embed_options options;
    uint8_t              truncated[TEXTS_MAX];
} call;

static bool take(call *c, PyObject *texts, Py_ssize_t first, Py_ssize_t count, int truncate) {
    if (Py_TYPE(texts) != fp_texts_type || first < 0 || count < 0 || count > TEXTS_MAX ||
        (size_t)first + (size_t)count > ((Texts *)texts)->view.count) {
        PyErr_SetString(PyExc_TypeError, "this is called by Model alone");
        return false;
    }
    c->texts             = fp_part(&((Texts *)texts)->view, (size_t)first, (size_t)count);
    c->options.size      = sizeof c->options;
    c->options.truncate  = (fletch_truncate)truncate;
    c->options.truncated = c->truncated;
    return true;
}

static void *raise_at(const fletch_error *error, size_t first) {
    fletch_error own = *error;
    fp_move_error(&own, first);
    return fp_raise_fletch(&own);
}

/* scores(texts, first, count, query or None, second texts or None, columns, prompt, prompt_name, max_length, truncate,
 * activation) -> (float32 [count, columns], a byte for each text: 1 where it was cut), as bytes */
PyObject *Handle_scores(PyObject *self, PyObject *args) {
    call         c = {0};
    PyObject    *texts, *query, *second;
    Py_ssize_t   first, count, columns;
    int          truncate, activation, status;
    size_t       size  = 0;
    const char  *bytes = NULL;
    fletch_error error = {0};
    if (!PyArg_ParseTuple(args, "OnnOOnzzIii", &texts, &first, &count, &query, &second, &columns,
                          &c.options.prompt, &c.options.prompt_name, &c.options.max_length,
                          &truncate, &activation) ||
        !take(&c, texts, first, count, truncate)) {
        return NULL;
    }
    c.options.activation = (fletch_activation)activation;
    if (query != Py_None && (bytes = fp_utf8_of(query, 0, &size)) == NULL) {
        return NULL;
    }
    fletch_texts pairs = {0};
    if (second != Py_None) {
        pairs = fp_part(&((Texts *)second)->view, (size_t)first, (size_t)count);
    }
    PyObject *result = PyBytes_FromStringAndSize(NULL, count * columns * (Py_ssize_t)sizeof(float));
    if (result == NULL || !fp_enter((Handle *)self)) {
        Py_XDECREF(result);
        return NULL;
    }
    float        *rows  = (float *)(void *)PyBytes_AsString(result);
    fletch_matrix out   = fletch_matrix_f32(rows, (size_t)count, (size_t)columns);
    fletch_model *model = ((Handle *)self)->model;
    Py_BEGIN_ALLOW_THREADS if (bytes != NULL) status =
        fletch_rerank(model, bytes, size, &c.texts, &c.options, rows, &error);
    else status = fletch_classify(model, &c.texts, second != Py_None ? &pairs : NULL, &c.options,
                                  &out, &error);
    Py_END_ALLOW_THREADS fp_leave((Handle *)self);
    if (status < 0) {
        Py_DECREF(result);
        return raise_at(&error, (size_t)first);
    }
    return Py_BuildValue("(Ny#)", result, (const char *)c.truncated, count);
}

/* (ids as bytes of int32, values as bytes of float32) of a text */
static PyObject *pair_of(const fletch_list *list, size_t columns) {
    Py_ssize_t  count  = (Py_ssize_t)list->count;
    const char *ids    = list->count > 0 ? (const char *)list->ids : "";
    const char *values = list->count > 0 ? (const char *)list->values : "";
    return Py_BuildValue("(y#y#)", ids, count * (Py_ssize_t)sizeof(int32_t), values,
                         count * (Py_ssize_t)(columns * sizeof(float)));
}

/* lists(kind, texts, first, count, prompt, prompt_name, max_length, truncate, normalize, top_k, threshold)
 * -> (columns, [(ids, values), …], which were cut, as above) */
PyObject *Handle_lists(PyObject *self, PyObject *args) {
    call          c = {0};
    PyObject     *texts;
    Py_ssize_t    first, count;
    int           kind, truncate, status;
    fletch_lists *lists = NULL;
    fletch_error  error = {0};
    if (!PyArg_ParseTuple(args, "iOnnzzIiiIf", &kind, &texts, &first, &count, &c.options.prompt,
                          &c.options.prompt_name, &c.options.max_length, &truncate,
                          &c.options.normalize, &c.options.top_k, &c.options.threshold) ||
        !take(&c, texts, first, count, truncate) || !fp_enter((Handle *)self)) {
        return NULL;
    }
    fletch_model          *model = ((Handle *)self)->model;
    Py_BEGIN_ALLOW_THREADS status =
        kind == FLETCH_KIND_SPARSE
            ? fletch_embed_sparse(model, &c.texts, &c.options, &lists, &error)
            : fletch_embed_tokens(model, &c.texts, &c.options, &lists, &error);
    Py_END_ALLOW_THREADS fp_leave((Handle *)self);
    if (status < 0) {
        return raise_at(&error, (size_t)first);
    }
    PyObject *result = PyList_New(0);
    for (size_t i = 0; result != NULL && i < lists->count; i++) {
        PyObject *pair = pair_of(&lists->list[i], lists->columns);
        if (pair == NULL || PyList_Append(result, pair) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(pair);
    }
    size_t columns = lists->columns;
    fletch_lists_free(lists);
    return result != NULL ? Py_BuildValue("(nNy#)", (Py_ssize_t)columns, result,
                                          (const char *)c.truncated, count)
                          : NULL;
}

/* labels() -> names of the labels, in order */
PyObject *Handle_labels(PyObject *self, PyObject *none) {
    (void)none;
    if (!fp_enter((Handle *)self)) {
        return NULL;
    }
    PyObject   *names = PyList_New(0);
    const char *label;
    for (size_t i = 0; names != NULL && (label = fletch_label_at(((Handle *)self)->model, i));
         i++) {
        PyObject *name = PyUnicode_FromString(label);
        if (name == NULL || PyList_Append(names, name) < 0) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    fp_leave((Handle *)self);
    return names;
}
