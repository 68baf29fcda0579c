/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.h - the token budget of a batch, steered towards a target latency.
 *
 * Method  A text that comes while a batch runs waits for it and then for its own, so a batch may take
 *         half the target: from the measured time per token (a moving mean over batches) follows a
 *         ceiling for the budget. Below it the budget moves as TCP's window does, additive up,
 *         multiplicative down: when a window of latencies of interactive requests is full, its 95th
 *         percentile is compared with the target; above it the budget shrinks to seven tenths, else it
 *         grows by a sixteenth of its upper bound, so it recovers within sixteen windows of a load
 *         change. Where much more waits than one batch takes, latency is the queue's and smaller
 *         batches only slow it further: then the budget grows whatever the percentile.
 *         It stays between `least` and `most`.
 * Memory  none. Threads: the caller's lock.
 * Proof   tests/unit/test_queue.c; bench/runtime.c for the latency under load. */
#ifndef FL_SCHEDULER_ADAPT_H
#define FL_SCHEDULER_ADAPT_H

#include <stdbool.h>
#include <stdint.h>

enum { FL_ADAPT_WINDOW = 32 };

typedef struct fl_adapt {
    uint64_t target_ns; /* 0: off, the budget stays at `most` */
    uint32_t least, most, budget;
    uint32_t count;
    double   token_ns; /* of a batch, moving mean; 0: none measured yet */
    uint64_t window[FL_ADAPT_WINDOW];
} fl_adapt;

void fl_adapt_init(fl_adapt *adapt, uint64_t target_ns, uint32_t least, uint32_t most);
/* A request took `latency_ns` while `waiting` tokens were queued; returns the budget in force. */
uint32_t fl_adapt_observe(fl_adapt *adapt, uint64_t latency_ns, uint64_t waiting);
/* A batch of `tokens` took `took_ns`; returns the budget in force. */
uint32_t fl_adapt_batch(fl_adapt *adapt, uint64_t tokens, uint64_t took_ns);

#endif
