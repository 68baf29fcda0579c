/* SPDX-License-Identifier: Apache-2.0 */
/* work.c - the arguments of embed and submit, checked and turned into a request. */
#include "work.h"

#include <string.h>

void fp_work_free(fp_work *w) {
    Py_XDECREF((PyObject *)w->handle);
    Py_XDECREF((PyObject *)w->texts);
    Py_XDECREF(w->prompt);
    Py_XDECREF(w->prompt_name);
    Py_buffer *views[] = {&w->out, &w->tokens, &w->truncated, &w->status};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
        if (views[i]->obj != NULL)
            PyBuffer_Release(views[i]);
}

/* The caller's matrix: writable, `count` rows, values of a row side by side. */
static bool take_out(fp_work *w, PyObject *out, fletch_dtype dtype, size_t count, size_t cols) {
    static const char *const formats[] = {"f", "b", "B", "b", "B"};
    Py_buffer               *view      = &w->out;
    if (PyObject_GetBuffer(out, view, PyBUF_WRITABLE | PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            PyErr_SetString(PyExc_ValueError, "out is read-only");
        }
        return false;
    }
    size_t      width  = fletch_row_bytes(cols, dtype);
    size_t      item   = dtype == FLETCH_FLOAT32 ? sizeof(float) : 1;
    const char *format = view->format != NULL ? view->format : "B";
    format += *format == '<' || *format == '=' || *format == '@';
    if (strcmp(format, formats[dtype]) != 0 || (size_t)view->itemsize != item) {
        PyErr_Format(PyExc_ValueError, "out holds items of format '%s'; this dtype needs '%s'",
                     view->format, formats[dtype]);
        return false;
    }
    bool   flat = view->ndim == 1 && count == 1;
    size_t rows = flat ? 1 : view->ndim == 2 ? (size_t)view->shape[0] : 0;
    size_t wide = view->ndim > 0 ? (size_t)view->shape[view->ndim - 1] * item : 0;
    if ((!flat && view->ndim != 2) || rows != count || wide != width) {
        PyErr_Format(PyExc_ValueError, "out must have the shape (%zu, %zu)", count, width / item);
        return false;
    }
    Py_ssize_t stride = flat || rows == 1 ? (Py_ssize_t)width : view->strides[0];
    if ((size_t)view->strides[view->ndim - 1] != item || stride < (Py_ssize_t)width) {
        PyErr_SetString(PyExc_ValueError, "out must be C-contiguous");
        return false;
    }
    w->request.out = (fletch_matrix){view->buf, count, cols, (size_t)stride, dtype};
    return true;
}

static void *take_facts(Py_buffer *view, PyObject *object, size_t bytes) {
    if (object == Py_None || PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0)
        return NULL;
    if ((size_t)view->len < bytes) {
        PyErr_SetString(PyExc_ValueError, "a buffer for facts about texts is too small");
        return NULL;
    }
    return view->buf;
}

/* A prompt is a C string for the library. */
static const char *take_prompt(PyObject **owner, PyObject *text, const char *what) {
    Py_ssize_t  size  = 0;
    const char *bytes = text == Py_None ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL)
        return NULL;
    if (strlen(bytes) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "a NUL character cannot be part of %s", what);
        return NULL;
    }
    *owner = Py_NewRef(text);
    return bytes;
}

/* Documents with spans; the library copies nothing of them, and is done with them when fletch_submit returns: until
 * then the caller holds the arguments. The number of spans; SIZE_MAX: raised. */
static size_t take_spans(fp_work *w, PyObject *const *args) {
    char      *spans, *counts;
    Py_ssize_t bytes, size;
    size_t     rows = 0;
    if (PyBytes_AsStringAndSize(args[0], &spans, &bytes) < 0 ||
        PyBytes_AsStringAndSize(args[1], &counts, &size) < 0)
        return SIZE_MAX;
    w->options.overlap     = (int32_t)PyLong_AsLong(args[2]);
    w->request.kind        = FLETCH_KIND_SPANS;
    w->request.spans       = (const fletch_span *)(const void *)spans;
    w->request.span_counts = (const size_t *)(const void *)counts;
    bool fits              = (size_t)size == w->texts->view.count * sizeof(size_t);
    for (size_t i = 0; fits && i < w->texts->view.count; i++)
        rows += w->request.span_counts[i];
    if (!fits || rows != (size_t)bytes / sizeof(fletch_span)) {
        PyErr_SetString(PyExc_TypeError, "submit is internal: use Model");
        return SIZE_MAX;
    }
    return rows;
}

bool fp_work_take(fp_work *w, PyObject *handle, PyObject *const *args, Py_ssize_t count) {
    memset(w, 0, sizeof *w);
    if (count < FP_WORK_ARGS || Py_TYPE(args[0]) != fp_texts_type) {
        PyErr_SetString(PyExc_TypeError, "embed is internal: use Model");
        return false;
    }
    w->handle                     = (Handle *)Py_NewRef(handle);
    w->texts                      = (Texts *)Py_NewRef(args[0]);
    w->request                    = (fletch_request)FLETCH_REQUEST_INIT;
    fletch_embed_options *options = &w->options;
    w->request.options            = options;
    *options                      = (fletch_embed_options)FLETCH_EMBED_OPTIONS_INIT;
    size_t n                      = w->texts->view.count;
    w->request.texts              = w->texts->view;
    fletch_dtype dtype            = (fletch_dtype)PyLong_AsLong(args[2]);
    size_t       cols             = PyLong_AsSize_t(args[3]);
    options->prompt               = take_prompt(&w->prompt, args[4], "a prompt");
    options->prompt_name          = take_prompt(&w->prompt_name, args[5], "a prompt's name");
    options->dimensions           = (uint32_t)PyLong_AsUnsignedLong(args[6]);
    options->max_length           = (uint32_t)PyLong_AsUnsignedLong(args[7]);
    options->normalize            = (int)PyLong_AsLong(args[8]);
    options->truncate             = (fletch_truncate)PyLong_AsLong(args[9]);
    size_t rows = count == FP_WORK_ARGS + FP_SPAN_ARGS ? take_spans(w, args + FP_WORK_ARGS) : n;
    if (PyErr_Occurred() || !take_out(w, args[1], dtype, rows, cols))
        return false;
    options->tokens    = take_facts(&w->tokens, args[10], n * sizeof(uint32_t));
    options->truncated = take_facts(&w->truncated, args[11], n);
    options->status    = take_facts(&w->status, args[12], n * sizeof(int32_t));
    return !PyErr_Occurred();
}

fletch_request fp_work_part(const fp_work *w, size_t first, size_t count,
                            fletch_embed_options *options) {
    fletch_request request = w->request;
    *options               = w->options;
    request.options        = options;
    request.texts          = fp_part(&w->request.texts, first, count);
    request.out.data       = (char *)request.out.data + first * request.out.stride;
    request.out.rows       = count;
    options->tokens += options->tokens != NULL ? first : 0;
    options->truncated += options->truncated != NULL ? first : 0;
    options->status += options->status != NULL ? first : 0;
    return request;
}
