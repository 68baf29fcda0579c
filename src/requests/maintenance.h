/* SPDX-License-Identifier: Apache-2.0 */
/* maintenance.h - the thread for what nobody waits for. */
#ifndef FL_REQUESTS_MAINTENANCE_H
#define FL_REQUESTS_MAINTENANCE_H

#include "fletch.h"

int  fl_maintenance_start(fletch_model *model, fletch_error *error);
void fl_maintenance_stop(fletch_model *model);

#endif
