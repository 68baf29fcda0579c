/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.h - what the library counted, for a person (--stats) and for a program (--stats-json). */
#ifndef FL_CLI_STATISTICS_H
#define FL_CLI_STATISTICS_H

#include "base/buf.h"
#include "fletch.h"

/* Append the statistics as lines of a name and its values; what never happened is left out. */
void fl_statistics_put(fl_buf *out, const fletch_stats *stats);
/* A line for each replica whose device has a driver that counts. */
void fl_statistics_put_devices(fl_buf *out, fletch_model *model);

/* Write fletch_stats_json of `model` to a file, whole or not at all. */
int fl_statistics_write(fletch_model *model, const char *path, fletch_error *error);

#endif
