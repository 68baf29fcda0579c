/* SPDX-License-Identifier: Apache-2.0 */
/* maintenance.h - the thread for what nobody waits for. */
#ifndef FL_REQUESTS_MAINTENANCE_H
#define FL_REQUESTS_MAINTENANCE_H

#include <stdint.h>

#include "base/locked.h"
#include "fletch.h"

int            fl_maintenance_start(fletch_model *model, fletch_error *error);
void           fl_maintenance_stop(fletch_model *model);
FL_LOCKED void fl_maintenance_wake(fletch_model *model,
                                   uint64_t      due_ns); /* look no later than this */
/* Give kept buffers and pages of files back. Not locked. */
void fl_runtime_trim(fletch_model *model, const char *why);
/* Before a batch: if nobody did lately, see whether memory is scarce, and then trim. Not locked. */
void fl_runtime_look(fletch_model *model, uint64_t now);

#endif
