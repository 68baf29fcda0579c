/* SPDX-License-Identifier: Apache-2.0 */
/* interactive.c - interactive texts of one model go before the bulk texts of every other: the processor is one. So
 * this is the process's state and no model's: two numbers, a hint to the schedulers and never more. */
#include "scheduler/interactive.h"

#include <stdatomic.h>

static _Atomic uint32_t running;
static _Atomic uint64_t last;

void fl_interactive_begin(uint64_t now) {
    atomic_fetch_add(&running, 1);
    atomic_store(&last, now);
}

void fl_interactive_end(void) {
    atomic_fetch_sub(&running, 1);
}

uint32_t fl_interactive_running(void) {
    return atomic_load(&running);
}

uint64_t fl_interactive_last(void) {
    return atomic_load(&last);
}
