/* SPDX-License-Identifier: Apache-2.0 */
/* about.c - tokens, chunks, and what a model says of itself. */
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "handle.h"
#include "texts.h"

/* tokenize(text, max_length, truncate, special) -> (ids, offsets, special, truncated), the first three bytes */
PyObject *Handle_tokenize(PyObject *self, PyObject *args) {
    PyObject               *text;
    unsigned                max_length;
    int                     truncate, special, status;
    fletch_tokenize_options options = FLETCH_TOKENIZE_OPTIONS_INIT;
    fletch_tokens          *tokens  = NULL;
    fletch_error            error   = {0};
    size_t                  size;
    if (!PyArg_ParseTuple(args, "UIip", &text, &max_length, &truncate, &special))
        return NULL;
    const char *bytes = fp_utf8_of(text, 0, &size);
    if (bytes == NULL || !fp_enter((Handle *)self))
        return NULL;
    options.max_length        = max_length;
    options.truncate          = (fletch_truncate)truncate;
    options.no_special_tokens = !special;
    Py_BEGIN_ALLOW_THREADS status =
        fletch_tokenize(((Handle *)self)->model, bytes, size, &options, &tokens, &error);
    Py_END_ALLOW_THREADS fp_leave((Handle *)self);
    if (status < 0)
        return fp_raise_fletch(&error);
    Py_ssize_t count   = (Py_ssize_t)tokens->count;
    PyObject  *ids     = PyBytes_FromStringAndSize((const char *)tokens->ids, count * 4);
    PyObject  *offsets = PyBytes_FromStringAndSize((const char *)tokens->offsets, count * 8);
    PyObject  *marks   = PyBytes_FromStringAndSize((const char *)tokens->special, count);
    PyObject  *cut     = tokens->truncated ? Py_True : Py_False;
    PyObject  *result  = Py_BuildValue("(NNNO)", ids, offsets, marks, cut); /* NULL in it: NULL */
    fletch_tokens_free(tokens);
    return result;
}

/* chunk(text, its index, by, max_tokens, overlap) -> (chars, bytes, tokens), each the bytes of an array */
PyObject *Handle_chunk(PyObject *self, PyObject *args) {
    PyObject            *text;
    Py_ssize_t           index;
    int                  by, status;
    fletch_chunk_options options = FLETCH_CHUNK_OPTIONS_INIT;
    fletch_chunks       *chunks  = NULL;
    fletch_error         error   = {0};
    size_t               size;
    if (!PyArg_ParseTuple(args, "UniII", &text, &index, &by, &options.max_tokens, &options.overlap))
        return NULL;
    const char *bytes = fp_utf8_of(text, (size_t)index, &size);
    if (bytes == NULL || !fp_enter((Handle *)self))
        return NULL;
    options.by = (fletch_chunk_by)by;
    Py_BEGIN_ALLOW_THREADS status =
        fletch_chunk(((Handle *)self)->model, bytes, size, &options, &chunks, &error);
    Py_END_ALLOW_THREADS fp_leave((Handle *)self);
    if (status < 0)
        return fp_raise_fletch(&error);
    Py_ssize_t count = (Py_ssize_t)chunks->count, pair = 2 * (Py_ssize_t)sizeof(size_t);
    PyObject  *chars   = PyBytes_FromStringAndSize((const char *)chunks->chars, count * pair);
    PyObject  *offsets = PyBytes_FromStringAndSize((const char *)chunks->offsets, count * pair);
    PyObject  *tokens  = PyBytes_FromStringAndSize((const char *)chunks->tokens, count * 4);
    PyObject  *result  = Py_BuildValue("(NNN)", chars, offsets, tokens); /* NULL in it: NULL */
    fletch_chunks_free(chunks);
    return result;
}

/* decode(ids as bytes of int32, skip_special_tokens) -> str */
PyObject *Handle_decode(PyObject *self, PyObject *args) {
    const char  *ids;
    Py_ssize_t   size;
    int          skip;
    fletch_error error = {0};
    if (!PyArg_ParseTuple(args, "y#p", &ids, &size, &skip) || !fp_enter((Handle *)self))
        return NULL;
    size_t   capacity = 256, count = (size_t)size / 4;
    char    *text   = NULL;
    int64_t  length = (int64_t)capacity;
    int32_t *own    = malloc((size_t)size + 4); /* bytes need not lie at a multiple of 4 */
    if (own != NULL)
        memcpy(own, ids, (size_t)size);
    while (own != NULL && length >= (int64_t)capacity) {
        capacity = (size_t)length + 1;
        free(text);
        text   = malloc(capacity);
        length = text == NULL ? -1
                              : fletch_decode(((Handle *)self)->model, own, count, skip, text,
                                              capacity, &error);
    }
    PyObject *result = text == NULL ? PyErr_NoMemory()
                       : length < 0 ? fp_raise_fletch(&error)
                                    : PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
    free(text);
    free(own);
    fp_leave((Handle *)self);
    return result;
}

PyObject *Handle_token_text(PyObject *self, PyObject *id) {
    long number = PyLong_AsLong(id);
    if ((number == -1 && PyErr_Occurred()) || !fp_enter((Handle *)self))
        return NULL;
    const char *text   = number == (int32_t)number
                             ? fletch_token_text(((Handle *)self)->model, (int32_t)number)
                             : NULL;
    PyObject   *result = text != NULL
                             ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace")
                             : Py_NewRef(Py_None);
    fp_leave((Handle *)self);
    return result;
}

static int on_property(void *user, const char *name, const char *value, const char *origin) {
    PyObject *pair = Py_BuildValue("(ss)", value, origin);
    int       bad  = pair == NULL || PyDict_SetItemString(user, name, pair) < 0;
    Py_XDECREF(pair);
    return bad;
}

/* {name: (value, origin)} */
PyObject *Handle_describe(PyObject *self, PyObject *none) {
    (void)none;
    if (!fp_enter((Handle *)self))
        return NULL;
    PyObject *found = PyDict_New();
    if (found != NULL && fletch_model_describe(((Handle *)self)->model, on_property, found) != 0)
        Py_CLEAR(found);
    fp_leave((Handle *)self);
    return found;
}

/* 64 digits that the library tells of the model, whose files it may read first. */
static PyObject *hex_of(PyObject *self, int (*tell)(fletch_model *, char *, fletch_error *)) {
    char         hex[65];
    fletch_error error = {0};
    int          status;
    if (!fp_enter((Handle *)self))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = tell(((Handle *)self)->model, hex, &error);
    Py_END_ALLOW_THREADS   fp_leave((Handle *)self);
    return status < 0 ? fp_raise_fletch(&error) : PyUnicode_FromString(hex);
}

PyObject *Handle_fingerprint(PyObject *self, PyObject *none) {
    (void)none;
    return hex_of(self, fletch_model_fingerprint);
}

static int own_vector_id(fletch_model *model, char *hex, fletch_error *error) {
    return fletch_vector_id(model, NULL, FLETCH_FLOAT32, hex, error);
}

PyObject *Handle_vector_id(PyObject *self, PyObject *none) {
    (void)none;
    return hex_of(self, own_vector_id);
}

/* The library's, as str. */
PyObject *canary_texts(PyObject *module, PyObject *none) {
    PyObject   *list = PyList_New(0);
    const char *text;
    (void)module, (void)none;
    for (size_t i = 0; list != NULL && (text = fletch_canary_text(i)) != NULL; i++) {
        PyObject *item = PyUnicode_FromString(text);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

/* {name: (value, "")}. The files have been read where the id was asked for first. */
PyObject *Handle_vector_parts(PyObject *self, PyObject *none) {
    fletch_error error = {0};
    (void)none;
    if (!fp_enter((Handle *)self))
        return NULL;
    PyObject *found = PyDict_New();
    int       status =
        found ? fletch_vector_describe(((Handle *)self)->model, on_property, found, &error) : 0;
    fp_leave((Handle *)self);
    if (status < 0) {
        Py_CLEAR(found);
        return fp_raise_fletch(&error);
    }
    return found;
}

PyObject *Handle_stats(PyObject *self, PyObject *none) {
    fletch_error error    = {0};
    size_t       capacity = 32 * 1024;
    int64_t      length   = (int64_t)capacity;
    char        *text     = NULL;
    (void)none;
    if (!fp_enter((Handle *)self))
        return NULL;
    while (length >= (int64_t)capacity) {
        capacity = (size_t)length + 1024;
        free(text);
        text = malloc(capacity);
        length =
            text == NULL ? -1 : fletch_stats_json(((Handle *)self)->model, text, capacity, &error);
    }
    fp_leave((Handle *)self);
    PyObject *result = text == NULL ? PyErr_NoMemory()
                       : length < 0 ? fp_raise_fletch(&error)
                                    : PyUnicode_FromStringAndSize(text, (Py_ssize_t)length);
    free(text);
    return result;
}
