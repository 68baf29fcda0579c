/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.h - the token budget of a batch, steered towards a target latency.
 *
 * Method  Additive up, multiplicative down (as TCP does): the latencies of finished interactive
 *         requests are gathered; when a window of them is full, its 95th percentile is compared with
 *         the target. Above it the budget shrinks to seven tenths, else it grows by a sixteenth of
 *         its upper bound, so it recovers within sixteen windows of a load change. Where more waits
 *         than one batch takes, latency is the queue's and smaller batches only slow it further: then
 *         the budget grows whatever the percentile. It stays between `least`, below which the engine
 *         loses speed, and `most`.
 * Memory  none. Threads: the caller's lock.
 * Proof   tests/unit/test_adapt.c. */
#ifndef FL_RUNTIME_ADAPT_H
#define FL_RUNTIME_ADAPT_H

#include <stdbool.h>
#include <stdint.h>

enum { FL_ADAPT_WINDOW = 32 };

typedef struct fl_adapt {
    uint64_t target_ns; /* 0: off, the budget stays at `most` */
    uint32_t least, most, budget;
    uint32_t count;
    uint64_t window[FL_ADAPT_WINDOW];
} fl_adapt;

void fl_adapt_init(fl_adapt *adapt, uint64_t target_ns, uint32_t least, uint32_t most);
/* A request took `latency_ns` while `waiting` tokens were queued; returns the
 * budget in force. */
uint32_t fl_adapt_observe(fl_adapt *adapt, uint64_t latency_ns, uint64_t waiting);

#endif
