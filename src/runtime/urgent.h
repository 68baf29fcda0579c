/* SPDX-License-Identifier: Apache-2.0 */
/* urgent.h - what the models of one process tell each other: that interactive texts run. Any thread; no lock. */
#ifndef FLETCH_RUNTIME_URGENT_H
#define FLETCH_RUNTIME_URGENT_H

#include <stdint.h>

/* A batch with interactive texts begins at `now`, and ends. Every begin has its end. */
void fl_urgent_begin(uint64_t now);
void fl_urgent_end(void);

/* Such batches that run, of all models. */
uint32_t fl_urgent_running(void);

/* When the last of them began, as fl_clock_ns counts; 0: none yet. */
uint64_t fl_urgent_last(void);

#endif
