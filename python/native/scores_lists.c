/* SPDX-License-Identifier: Apache-2.0 */
/* scores_lists.c - rerank, classify, vectors of tokens, sparse vectors, several outputs of one pass: calls that wait,
 * some texts at a time.
 *
 * Python asks for texts [first, first + count) of a column, so that an interrupt is heard between two calls. */
#include <string.h>

#include "failure.h"
#include "handle.h"
#include "texts.h"

enum { TEXTS_MAX = 256, OUTPUTS_MAX = 16 }; /* of a call */

/* What all calls have: texts and where, prompt, prompt_name, max_length, truncate; which were cut. */
typedef struct call {
    fletch_texts         texts;
    fletch_embed_options options;
    uint8_t              truncated[TEXTS_MAX];
} call;

static bool take(call *c, PyObject *texts, Py_ssize_t first, Py_ssize_t count, int truncate) {
    if (Py_TYPE(texts) != fp_texts_type || first < 0 || count < 0 || count > TEXTS_MAX ||
        (size_t)first + (size_t)count > ((Texts *)texts)->view.count) {
        PyErr_SetString(PyExc_TypeError, "this function is internal: use Model");
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
        !take(&c, texts, first, count, truncate))
        return NULL;
    c.options.activation = (fletch_activation)activation;
    if (query != Py_None && (bytes = fp_utf8_of(query, 0, &size)) == NULL)
        return NULL;
    fletch_texts pairs = {0};
    if (second != Py_None)
        pairs = fp_part(&((Texts *)second)->view, (size_t)first, (size_t)count);
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

/* Those of every text. */
static PyObject *pairs_of(const fletch_lists *lists) {
    PyObject *all = PyList_New(0);
    for (size_t i = 0; all != NULL && i < lists->count; i++) {
        PyObject *pair = pair_of(&lists->list[i], lists->columns);
        if (pair == NULL || PyList_Append(all, pair) < 0)
            Py_CLEAR(all);
        Py_XDECREF(pair);
    }
    return all;
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
        !take(&c, texts, first, count, truncate) || !fp_enter((Handle *)self))
        return NULL;
    fletch_model          *model = ((Handle *)self)->model;
    Py_BEGIN_ALLOW_THREADS status =
        kind == FLETCH_KIND_SPARSE
            ? fletch_embed_sparse(model, &c.texts, &c.options, &lists, &error)
            : fletch_embed_tokens(model, &c.texts, &c.options, &lists, &error);
    Py_END_ALLOW_THREADS fp_leave((Handle *)self);
    if (status < 0)
        return raise_at(&error, (size_t)first);
    size_t    columns = lists->columns;
    PyObject *result  = pairs_of(lists);
    fletch_lists_free(lists);
    return result != NULL ? Py_BuildValue("(nNy#)", (Py_ssize_t)columns, result,
                                          (const char *)c.truncated, count)
                          : NULL;
}

/* ---- Several outputs of one pass -------------------------------------------------------------------- */

/* The outputs of a call; rows [count] of dense ones are bytes of Python's. */
typedef struct outputs {
    size_t        count;
    fletch_output output[OUTPUTS_MAX];
    PyObject     *rows[OUTPUTS_MAX]; /* owned, NULL for lists */
} outputs;

static void drop_outputs(outputs *o) {
    for (size_t i = 0; i < o->count; i++) {
        fletch_lists_free(o->output[i].lists);
        Py_CLEAR(o->rows[i]);
    }
}

/* Output i by its name, with memory for `texts` rows. */
static bool add_output(outputs *o, PyObject *name, size_t dimensions, size_t texts) {
    Py_ssize_t     size   = 0;
    char          *text   = NULL;
    fletch_output *output = &o->output[o->count];
    fletch_matrix *out    = &output->out;
    fletch_error   error  = {0};
    *output               = (fletch_output)FLETCH_OUTPUT_INIT;
    out->cols             = dimensions;
    if (PyBytes_AsStringAndSize(name, &text, &size) < 0)
        return false;
    if (fletch_output_parse(output, text, (size_t)size, &error) < 0) {
        fp_raise_fletch(&error);
        return false;
    }
    if (output->kind != FLETCH_KIND_DENSE) {
        o->count++;
        return true;
    }
    if (out->cols > dimensions) {
        PyErr_Format(PyExc_ValueError, "the output %s has more than the model's %zu dimensions",
                     text, dimensions);
        return false;
    }
    out->stride       = fletch_row_bytes(out->cols, out->dtype);
    out->rows         = texts;
    o->rows[o->count] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(texts * out->stride));
    out->data         = o->rows[o->count] != NULL ? PyBytes_AsString(o->rows[o->count]) : NULL;
    return o->rows[o->count++] != NULL;
}

static bool add_outputs(outputs *o, PyObject *names, size_t dimensions, size_t texts) {
    Py_ssize_t count = PyTuple_Size(names);
    if (count < 1 || count > OUTPUTS_MAX) {
        PyErr_Format(PyExc_ValueError, "outputs must be 1 to %d names", OUTPUTS_MAX);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!add_output(o, PyTuple_GetItem(names, i), dimensions, texts))
            return false;
    return true;
}

/* [(kind, columns, dtype, rows as bytes or [(ids, values), …]), …] */
static PyObject *results_of(const outputs *o) {
    PyObject *all = PyList_New(0);
    for (size_t i = 0; all != NULL && i < o->count; i++) {
        const fletch_output *output  = &o->output[i];
        bool                 dense   = output->kind == FLETCH_KIND_DENSE;
        size_t               columns = dense ? output->out.cols : output->lists->columns;
        PyObject            *found   = dense ? o->rows[i] : pairs_of(output->lists);
        if (dense)
            Py_INCREF(found);
        PyObject *one = found != NULL
                            ? Py_BuildValue("(iniN)", (int)output->kind, (Py_ssize_t)columns,
                                            (int)output->out.dtype, found)
                            : NULL;
        if (one == NULL || PyList_Append(all, one) < 0)
            Py_CLEAR(all);
        Py_XDECREF(one);
    }
    return all;
}

/* outputs(names, texts, first, count, prompt, prompt_name, max_length, truncate, normalize, top_k, threshold)
 * -> (what results_of says, which texts were cut) */
PyObject *Handle_outputs(PyObject *self, PyObject *args) {
    call         c = {0};
    outputs      o = {0};
    PyObject    *names, *texts, *result = NULL;
    Py_ssize_t   first, count;
    int          truncate, status;
    fletch_error error = {0};
    if (!PyArg_ParseTuple(args, "O!OnnzzIiiIf", &PyTuple_Type, &names, &texts, &first, &count,
                          &c.options.prompt, &c.options.prompt_name, &c.options.max_length,
                          &truncate, &c.options.normalize, &c.options.top_k,
                          &c.options.threshold) ||
        !take(&c, texts, first, count, truncate) || !fp_enter((Handle *)self))
        return NULL;
    fletch_model *model = ((Handle *)self)->model;
    if (!add_outputs(&o, names, fletch_dimensions(model), (size_t)count)) {
        fp_leave((Handle *)self);
        drop_outputs(&o);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        fletch_embed_outputs(model, &c.texts, &c.options, o.output, o.count, &error);
    Py_END_ALLOW_THREADS fp_leave((Handle *)self);
    if (status < 0)
        raise_at(&error, (size_t)first);
    else
        result = results_of(&o);
    drop_outputs(&o);
    return result != NULL ? Py_BuildValue("(Ny#)", result, (const char *)c.truncated, count) : NULL;
}

/* labels() -> names of the labels, in order */
PyObject *Handle_labels(PyObject *self, PyObject *none) {
    (void)none;
    if (!fp_enter((Handle *)self))
        return NULL;
    PyObject   *names = PyList_New(0);
    const char *label;
    for (size_t i = 0; names != NULL && (label = fletch_label_at(((Handle *)self)->model, i));
         i++) {
        PyObject *name = PyUnicode_FromString(label);
        if (name == NULL || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    fp_leave((Handle *)self);
    return names;
}
