/* SPDX-License-Identifier: Apache-2.0 */
/* asker.h - for whom the store works, which may have left, or have no time any more. */
#ifndef FL_STORE_ASKER_H
#define FL_STORE_ASKER_H

#include "fletch.h"

typedef struct fl_asker {
    /* FLETCH_ECANCELLED or FLETCH_EDEADLINE once the work need not be done any more; error may be NULL. */
    int (*over)(const void *user, fletch_error *error);
    const void *user;
} fl_asker;

static inline int fl_asker_over(fl_asker by, fletch_error *error) {
    return by.over(by.user, error);
}

#endif
