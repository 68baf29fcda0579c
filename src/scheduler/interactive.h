/* SPDX-License-Identifier: Apache-2.0 */
/* interactive.h - that interactive texts run, as the models of one process tell each other. Any thread; no lock. */
#ifndef FL_SCHEDULER_INTERACTIVE_H
#define FL_SCHEDULER_INTERACTIVE_H

#include <stdint.h>

/* A batch with interactive texts begins at `now`, and ends. Every begin has its end. */
void fl_interactive_begin(uint64_t now);
void fl_interactive_end(void);

/* Such batches that run, of all models. */
uint32_t fl_interactive_running(void);

/* When the last of them began, as fl_clock_ns counts; 0: none yet. */
uint64_t fl_interactive_last(void);

#endif
