/* SPDX-License-Identifier: Apache-2.0 */
/* wakeup.h - how a thread of the library wakes a loop of Python: on Linux an eventfd, elsewhere
 * two sockets that Python's socket.socketpair() made, for Windows lets loops wait for sockets alone. */
#ifndef FP_WAKEUP_H
#define FP_WAKEUP_H
#include "extension.h"

typedef struct fp_wakeup {
    int       fd, sender; /* to wait for; to send to. On Linux one */
    PyObject *sockets;    /* the owner of both, elsewhere */
} fp_wakeup;

/* False: raised. */
bool fp_wakeup_open(fp_wakeup *wakeup);
/* From any thread, without Python. */
void fp_wakeup_send(const fp_wakeup *wakeup);
/* Take what was sent; never waits. */
void fp_wakeup_drain(const fp_wakeup *wakeup);
void fp_wakeup_close(fp_wakeup *wakeup);

#endif
