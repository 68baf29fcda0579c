/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - a team of threads that runs one function at a time on all its members.
 *
 * The CPU engine's shape of parallel work: fl_team_run(team, fn, arg) calls fn(arg, member, size) once on
 * every member (the calling thread is member 0) and returns when all are done. Workers spin for some
 * microseconds before they sleep, so that a small request split over threads costs no wake-up when calls
 * follow each other. fl_barrier joins the members inside fn between the phases of split work.
 * Threads: one fl_team_run at a time (the caller serialises). Nothing is allocated after creation. */
#ifndef FL_BASE_POOL_H
#define FL_BASE_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

typedef struct fl_team fl_team;
typedef void (*fl_team_fn)(void *arg, unsigned member, unsigned size);

/* size >= 1; `cores` [size] pins worker i to processor cores[i] (member 0 is whoever calls run, and
 * pins itself), NULL leaves them free. */
int      fl_team_open(fl_team **out, unsigned size, const uint16_t *cores, fletch_error *error);
void     fl_team_close(fl_team *team); /* NULL is a no-op */
unsigned fl_team_size(const fl_team *team);
void     fl_team_run(fl_team *team, fl_team_fn fn, void *arg);
/* The same on the first `members` alone, 1 to all; the others sleep on. */
void fl_team_run_some(fl_team *team, unsigned members, fl_team_fn fn, void *arg);

/* A barrier for `members` of a team that are in fn; made anew while none is there. It spins as long as a
 * member that runs takes to arrive, and sleeps then: where others want the cores too, who waits must not
 * hold one that a member needs. */
typedef struct fl_barrier {
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) atomic_uint phase;
    atomic_uint sleepers;
    unsigned    size, pauses;
} fl_barrier;
void fl_barrier_init(fl_barrier *barrier, const fl_team *team, unsigned members);
void fl_barrier_wait(fl_barrier *barrier);

#endif
