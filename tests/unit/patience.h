/* SPDX-License-Identifier: Apache-2.0 */
/* patience.h - a caller who wants no more once he has been asked so often. */
#ifndef FL_TESTS_PATIENCE_H
#define FL_TESTS_PATIENCE_H

typedef struct patience {
    int asked, enough; /* 0: for ever */
} patience;

static int stop_after(void *user) {
    patience *p = user;
    return ++p->asked == p->enough;
}

#endif
