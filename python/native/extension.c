/* SPDX-License-Identifier: Apache-2.0 */
/* extension.c - the module fletch._fletch: tables of its types and functions, and fork. */
#include "extension.h"

#include "channel.h"
#include "log_lines.h"

unsigned fp_generation;

static PyObject *fork_child(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    fp_generation++;
    fp_log_after_fork(); /* another thread of the parent may have held a lock */
    fp_channel_after_fork();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"make_texts", (PyCFunction)(void (*)(void))make_texts, METH_FASTCALL, NULL},
    {"open_model", open_model, METH_VARARGS, NULL},
    {"make_channel", make_channel, METH_NOARGS, NULL},
    {"hub_path", hub_path, METH_VARARGS, NULL},
    {"export_rows", export_rows, METH_VARARGS, NULL},
    {"take_log", take_log, METH_NOARGS, NULL},
    {"log_waits", log_waits, METH_NOARGS, NULL},
    {"fork_child", fork_child, METH_NOARGS, NULL},
    {"set_errors", set_errors, METH_O, NULL},
    {"move_message", move_message, METH_VARARGS, NULL},
    {"canary_texts", canary_texts, METH_NOARGS, NULL},
    {NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fletch._fletch",
                                    "libfletch, for the package fletch", -1, functions};

static bool add_codes(PyObject *codes) {
    static const struct {
        const char *name;
        int         value;
    } rows[] = {
#define CODE_ROW(name, value, text) {#name, value},
        FLETCH_STATUS_MAP(CODE_ROW)};
    bool good = codes != NULL;
    for (size_t i = 0; good && i < sizeof rows / sizeof rows[0]; i++) {
        PyObject *number = PyLong_FromLong(rows[i].value);
        good             = number != NULL && PyDict_SetItemString(codes, rows[i].name, number) == 0;
        Py_XDECREF(number);
    }
    return good;
}

static bool add_types(PyObject *made) {
    static const struct {
        const char    *name;
        PyType_Spec   *spec;
        PyTypeObject **type;
    } rows[]  = {{"Texts", &fp_texts_spec, &fp_texts_type},
                 {"Handle", &fp_handle_spec, &fp_handle_type},
                 {"Job", &fp_job_spec, &fp_job_type},
                 {"Channel", &fp_channel_spec, &fp_channel_type}};
    bool good = true;
    for (size_t i = 0; good && i < sizeof rows / sizeof rows[0]; i++) {
        PyObject *type = PyType_FromSpec(rows[i].spec);
        *rows[i].type  = (PyTypeObject *)type;
        good           = type != NULL && PyModule_AddObjectRef(made, rows[i].name, type) == 0;
    }
    return good;
}

PyMODINIT_FUNC PyInit__fletch(void);
PyMODINIT_FUNC PyInit__fletch(void) {
    PyObject *made  = PyModule_Create(&module);
    PyObject *codes = PyDict_New();
    bool      good  = made != NULL && add_codes(codes) && add_types(made) &&
                PyModule_AddObjectRef(made, "codes", codes) == 0 &&
                PyModule_AddStringConstant(made, "version", fletch_version()) == 0;
    Py_XDECREF(codes);
    if (!good) {
        Py_XDECREF(made);
        return NULL;
    }
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED); /* every object has its own lock */
#endif
    return made;
}
