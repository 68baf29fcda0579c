/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - what the replicas of a model are doing. */
#ifndef FL_SESSION_DEVICES_H
#define FL_SESSION_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "fletch.h"

/* Replica `index` and its device; false past the last. All of them: *out is freed with fl_free. */
bool fl_session_device(fletch_model *model, size_t index, fletch_device_stats *out);
int  fl_session_devices(fletch_model *model, fletch_device_stats **out, size_t *count,
                        fletch_error *error);

#endif
