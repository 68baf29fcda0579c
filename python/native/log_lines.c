/* SPDX-License-Identifier: Apache-2.0 */
/* log_lines.c - what the library said, in a ring that the next call from Python empties: no thread of the library
 * enters Python. */
#include "log_lines.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"

enum { LOG_LINES = 64 };

static struct {
    pthread_mutex_t lock;
    atomic_uint     count;
    struct {
        int  level;
        char text[512];
    } line[LOG_LINES];
} lines = {.lock = PTHREAD_MUTEX_INITIALIZER};

void fp_on_log(void *user, int level, const char *message) {
    (void)user;
    pthread_mutex_lock(&lines.lock);
    unsigned count = atomic_load(&lines.count);
    if (count < LOG_LINES) {
        lines.line[count].level = level;
        snprintf(lines.line[count].text, sizeof lines.line[count].text, "%s", message);
        atomic_store(&lines.count, count + 1);
    } /* else: 64 lines that nobody fetched say enough */
    pthread_mutex_unlock(&lines.lock);
}

/* [(level, text), …]. Copied out first: making objects may run anything, a close that logs among it. */
PyObject *take_log(PyObject *self, PyObject *none) {
    PyObject *list = PyList_New(0);
    void     *copy = malloc(sizeof lines.line);
    (void)self, (void)none;
    if (list == NULL || copy == NULL) {
        free(copy);
        return list;
    }
    __typeof__(&lines.line[0]) line = copy;
    pthread_mutex_lock(&lines.lock);
    unsigned count = atomic_exchange(&lines.count, 0);
    memcpy(copy, lines.line, count * sizeof lines.line[0]);
    pthread_mutex_unlock(&lines.lock);
    for (unsigned i = 0; i < count; i++) {
        PyObject *text =
            PyUnicode_DecodeUTF8(line[i].text, (Py_ssize_t)strlen(line[i].text), "replace");
        PyObject *pair = text != NULL ? Py_BuildValue("(iN)", line[i].level, text) : NULL;
        if (pair == NULL || PyList_Append(list, pair) < 0)
            PyErr_Clear();
        Py_XDECREF(pair);
    }
    free(copy);
    return list;
}

PyObject *log_waits(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return PyBool_FromLong(atomic_load(&lines.count) != 0);
}

void fp_log_after_fork(void) {
    pthread_mutex_init(&lines.lock, NULL); /* another thread of the parent may have held it */
}
