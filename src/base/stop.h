/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h - asking, in the middle of long work, whether anybody still wants it, and whether memory has room for it.
 *
 * Role    Whoever starts the work passes a function; loops that may run for long ask now and then, and give up.
 * Threads The answer may be changed by others; the fl_stop belongs to the thread that works. */
#ifndef FL_BASE_STOP_H
#define FL_BASE_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_stop {
    int (*asked)(void *user); /* not 0: give up; NULL: never */
    void *user;
    bool  stopped; /* it was told to; asked no more */
    /* Before `bytes` of working memory are taken, where they are many: false, there is no room. NULL: there is. */
    bool (*room)(void *room_user, uint64_t bytes);
    void *room_user;
} fl_stop;

static inline bool fl_stopped(fl_stop *stop) {
    if (stop == NULL || stop->asked == NULL)
        return false;
    stop->stopped = stop->stopped || stop->asked(stop->user) != 0;
    return stop->stopped;
}

/* Whether it was told to, without asking again. */
static inline bool fl_was_stopped(const fl_stop *stop) {
    return stop != NULL && stop->stopped;
}

#endif
