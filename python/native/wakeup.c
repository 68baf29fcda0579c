/* SPDX-License-Identifier: Apache-2.0 */
/* wakeup.c - wakeup.h over each system's files. */
#include "wakeup.h"

#include <unistd.h>

#if defined(__linux__)
#include <sys/eventfd.h>

bool fp_wakeup_open(fp_wakeup *wakeup) {
    wakeup->fd = wakeup->sender = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wakeup->fd < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    return wakeup->fd >= 0;
}

void fp_wakeup_close(fp_wakeup *wakeup) {
    close(wakeup->fd);
}

#else
#if defined(_WIN32)
#include <winsock2.h>
#else
#include <sys/socket.h>
#endif

/* The socket's number, once it waits for nothing; -1: raised. On Windows, too, it fits into an int. */
static int tame(PyObject *socket) {
    PyObject *none   = socket != NULL ? PyObject_CallMethod(socket, "setblocking", "i", 0) : NULL;
    PyObject *number = none != NULL ? PyObject_CallMethod(socket, "fileno", NULL) : NULL;
    const int fd     = number != NULL ? (int)PyLong_AsLong(number) : -1;
    Py_XDECREF(none);
    Py_XDECREF(number);
    return fd;
}

bool fp_wakeup_open(fp_wakeup *wakeup) {
    PyObject *module = PyImport_ImportModule("socket");
    wakeup->sockets  = module != NULL ? PyObject_CallMethod(module, "socketpair", NULL) : NULL;
    wakeup->fd       = wakeup->sockets != NULL ? tame(PyTuple_GetItem(wakeup->sockets, 0)) : -1;
    wakeup->sender   = wakeup->fd >= 0 ? tame(PyTuple_GetItem(wakeup->sockets, 1)) : -1;
    Py_XDECREF(module);
    if (wakeup->sender < 0)
        fp_wakeup_close(wakeup);
    return wakeup->sender >= 0;
}

void fp_wakeup_close(fp_wakeup *wakeup) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace); /* of whoever lets go */
    for (Py_ssize_t i = 0; wakeup->sockets != NULL && i < 2; i++)
        Py_XDECREF(PyObject_CallMethod(PyTuple_GetItem(wakeup->sockets, i), "close", NULL));
    Py_CLEAR(wakeup->sockets);
    PyErr_Restore(type, value, trace);
}
#endif

#if defined(_WIN32)
void fp_wakeup_send(const fp_wakeup *wakeup) {
    (void)send((SOCKET)wakeup->sender, "!", 1, 0);
}

void fp_wakeup_drain(const fp_wakeup *wakeup) {
    char told[8];
    (void)recv((SOCKET)wakeup->fd, told, sizeof told, 0);
}

#else
void fp_wakeup_send(const fp_wakeup *wakeup) {
    (void)!write(wakeup->sender, &(uint64_t){1}, sizeof(uint64_t));
}

void fp_wakeup_drain(const fp_wakeup *wakeup) {
    uint64_t told;
    (void)!read(wakeup->fd, &told, sizeof told);
}
#endif
