/* SPDX-License-Identifier: Apache-2.0 */
/* asker.h - for whom the store works, which may have left, or have no time any more. */
#ifndef FL_STORE_ASKER_H
#define FL_STORE_ASKER_H

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/error.h"
#include "base/os.h"
#include "fletch.h"

enum { FL_ASKER_WAIT_MS = 10 }; /* for a lock, between looks at who waits */

typedef struct fl_asker {
    /* FLETCH_ECANCELLED or FLETCH_EDEADLINE once the work need not be done any more; error may be NULL. */
    int (*over)(const void *user, fletch_error *error);
    const void *user;
} fl_asker;

static inline int fl_asker_over(fl_asker by, fletch_error *error) {
    return by.over(by.user, error);
}

/* A lock, unless the work is over before it comes. */
static inline int fl_asker_lock(fl_asker by, pthread_mutex_t *lock, fletch_error *error) {
    int code;
    do {
        struct timespec until;
        FL_TRY(fl_asker_over(by, error));
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += FL_ASKER_WAIT_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        code = pthread_mutex_timedlock(lock, &until);
    } while (code == ETIMEDOUT);
    return FLETCH_OK;
}

#endif
