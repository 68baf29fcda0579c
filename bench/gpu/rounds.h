/* SPDX-License-Identifier: Apache-2.0 */
/* rounds.h - an engine alone, without tokenizer and queue: token ids in, rows out; for fl-gpu. */
#ifndef FL_BENCH_GPU_ROUNDS_H
#define FL_BENCH_GPU_ROUNDS_H

#include "config/config.h"
#include "fletch.h"

typedef struct rounds rounds;

/* What some seconds of work came to. Times in seconds; p50 and p99 are of one call. */
typedef struct tally {
    uint64_t calls, texts, tokens;
    double   seconds, cpu_seconds, p50, p99;
} tally;

/* Open the engine that the first name of provider.order has ("cuda", "cpu") on a model's folder. */
int  rounds_open(rounds **out, const char *folder, const fl_config *config, fletch_error *error);
void rounds_close(rounds *r); /* NULL is a no-op */

/* Forward batches of random ids, every text `length` tokens long, for some seconds: `texts` of them a
 * batch, 0 for what the engine likes best. In flight: as many as it has slots, or 1 where `texts` is 1. */
int rounds_run(rounds *r, uint32_t length, uint32_t texts, double seconds, tally *out,
               fletch_error *error);

/* Median and 99th percentile of count durations, which get sorted. */
void tally_times(tally *t, double *times, size_t count);

#endif
