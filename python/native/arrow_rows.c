/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_rows.c - rows as an Arrow column: a FixedSizeList over the matrix's own memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "extension.h"

typedef struct rows {
    Py_buffer         view;
    PyObject         *valid; /* bytes of bits, or NULL */
    struct ArrowArray child, *child_pointer;
    const void       *buffers[1], *child_buffers[2];
} rows;

static void release_nothing(struct ArrowArray *array) {
    array->release = NULL;
}

/* From any thread, whenever the consumer is done. */
static void release_rows(struct ArrowArray *array) {
    rows *held     = array->private_data;
    array->release = NULL;
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        PyBuffer_Release(&held->view);
        Py_XDECREF(held->valid);
        PyGILState_Release(state);
    }
    free(held);
}

typedef struct row_schema {
    char               format[32];
    struct ArrowSchema child, *child_pointer;
} row_schema;

static void release_child_schema(struct ArrowSchema *schema) {
    schema->release = NULL;
}

static void release_schema(struct ArrowSchema *schema) {
    schema->release = NULL;
    free(schema->private_data);
}

static void drop_schema(PyObject *object) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(object, "arrow_schema");
    if (schema->release != NULL)
        schema->release(schema);
    free(schema);
}

static void drop_array(PyObject *object) {
    struct ArrowArray *array = PyCapsule_GetPointer(object, "arrow_array");
    if (array->release != NULL)
        array->release(array);
    free(array);
}

static PyObject *export_schema(const char *item, Py_ssize_t width) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    row_schema         *own    = calloc(1, sizeof *own);
    if (schema == NULL || own == NULL) {
        free(schema);
        free(own);
        return PyErr_NoMemory();
    }
    snprintf(own->format, sizeof own->format, "+w:%zd", width);
    own->child = (struct ArrowSchema){
        .format = item, .name = "item", .flags = 2, .release = release_child_schema};
    own->child_pointer = &own->child;
    *schema            = (struct ArrowSchema){.format       = own->format,
                                              .name         = "",
                                              .flags        = 2, /* nullable */
                                              .n_children   = 1,
                                              .children     = &own->child_pointer,
                                              .release      = release_schema,
                                              .private_data = own};
    PyObject *capsule  = PyCapsule_New(schema, "arrow_schema", drop_schema);
    if (capsule == NULL) {
        schema->release(schema);
        free(schema);
    }
    return capsule;
}

/* export_rows(matrix [n, width], valid as bytes of bits or None, null_count) -> (schema, array) capsules of a
 * FixedSizeList over the matrix's own memory. */
PyObject *export_rows(PyObject *self, PyObject *args) {
    PyObject  *matrix, *valid;
    Py_ssize_t null_count;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOn", &matrix, &valid, &null_count))
        return NULL;
    rows              *held  = calloc(1, sizeof *held);
    struct ArrowArray *array = calloc(1, sizeof *array);
    if (held == NULL || array == NULL ||
        PyObject_GetBuffer(matrix, &held->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        free(held);
        free(array);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    static const char *const formats[] = {"f", "f", "e", "e",
                                          "b", "c", "B", "C"}; /* numpy's and Arrow's */
    const char              *item      = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i += 2)
        item = strcmp(held->view.format, formats[i]) == 0 ? formats[i + 1] : item;
    if (held->view.ndim != 2 || item == NULL || (valid != Py_None && !PyBytes_Check(valid))) {
        PyErr_SetString(PyExc_TypeError, "rows of this type cannot be exported to Arrow");
        PyBuffer_Release(&held->view);
        free(held);
        free(array);
        return NULL;
    }
    int64_t length = held->view.shape[0], width = held->view.shape[1];
    held->valid            = valid != Py_None ? Py_NewRef(valid) : NULL;
    held->buffers[0]       = held->valid != NULL ? PyBytes_AsString(valid) : NULL;
    held->child_buffers[1] = held->view.buf;
    held->child_pointer    = &held->child;
    held->child            = (struct ArrowArray){.length    = length * width,
                                                 .n_buffers = 2,
                                                 .buffers   = held->child_buffers,
                                                 .release   = release_nothing};
    *array                 = (struct ArrowArray){.length       = length,
                                                 .null_count   = null_count,
                                                 .n_buffers    = 1,
                                                 .n_children   = 1,
                                                 .buffers      = held->buffers,
                                                 .children     = &held->child_pointer,
                                                 .release      = release_rows,
                                                 .private_data = held};
    PyObject *capsule      = PyCapsule_New(array, "arrow_array", drop_array);
    if (capsule == NULL) {
        array->release(array);
        free(array);
        return NULL;
    }
    PyObject *schema = export_schema(item, (Py_ssize_t)width);
    PyObject *pair   = schema != NULL ? PyTuple_Pack(2, schema, capsule) : NULL;
    Py_XDECREF(schema);
    Py_DECREF(capsule);
    return pair;
}
