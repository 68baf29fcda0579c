/* SPDX-License-Identifier: Apache-2.0 */
/* thread.h - threads of the library, and conditions that wait by the monotonic
 * clock. */
#ifndef FL_BASE_THREAD_H
#define FL_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "fletch.h"

/* Block every signal in this thread, and in those it starts, but those that a fault of its own raises. */
void fl_thread_hold_signals(sigset_t *before);

/* Start a thread that holds signals so: they are the program's, not ours.
 * `name` has at most 15 bytes. EBUSY says what limit was met. */
int fl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg,
                    fletch_error *error);

void fl_cond_init(pthread_cond_t *cond);
/* Wait for a signal or until fl_clock_ns() reaches `until_ns`; UINT64_MAX: for
 * a signal alone. May return early: look again. */
void fl_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns);

#endif
