/* SPDX-License-Identifier: Apache-2.0 */
/* hub_door.c - the hub cache: where a model lies, and its download. */
#include "failure.h"
#include "handle.h"

/* On the calling thread, which let the GIL go. */
static int on_progress(void *user, const char *file, uint64_t done, uint64_t total) {
    PyGILState_STATE   state = PyGILState_Ensure();
    unsigned long long now = done, all = total;
    bool               silent = user == Py_None || PyErr_Occurred();
    PyObject          *result =
        silent ? Py_NewRef(Py_None) : PyObject_CallFunction(user, "sKK", file, now, all);
    int stop = result == NULL || PyErr_CheckSignals() < 0 || PyErr_Occurred() != NULL;
    Py_XDECREF(result);
    PyGILState_Release(state);
    return stop;
}

/* hub_path(name, options, pull, progress) -> folder */
PyObject *hub_path(PyObject *self, PyObject *args) {
    const char  *name;
    PyObject    *options, *progress;
    int          pull, status;
    char         path[4096];
    fletch_error error = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "sOpO", &name, &options, &pull, &progress))
        return NULL;
    fletch_config *config = fp_make_config(options);
    if (config == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status =
        pull ? fletch_hub_pull(config, name, on_progress, progress, path, sizeof path, &error)
             : fletch_hub_path(config, name, path, sizeof path, &error);
    Py_END_ALLOW_THREADS fletch_config_free(config);
    if (PyErr_Occurred())
        return NULL;
    return status < 0 ? fp_raise_fletch(&error) : PyUnicode_DecodeFSDefault(path);
}
