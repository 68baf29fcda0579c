/* SPDX-License-Identifier: Apache-2.0 */
/* measure.h - what the programs of this folder share: chance that repeats, clocks, medians, keys, an end. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fletch.h"

__attribute__((unused, noreturn)) static void stop(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* The same numbers in every run. */
__attribute__((unused)) static uint32_t draw(uint32_t bound) {
    static uint64_t state = 88172645463325252U;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % bound);
}

/* CLOCK_PROCESS_CPUTIME_ID and CLOCK_THREAD_CPUTIME_ID leave out what the machine did meanwhile. */
static inline uint64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Of this process, all threads. */
static inline double cpu_seconds(void) {
    return 1e-9 * (double)read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

static inline void wait_until(uint64_t monotonic_ns) {
    const struct timespec t = {(time_t)(monotonic_ns / 1000000000U),
                               (long)(monotonic_ns % 1000000000U)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) {
    }
}

static inline void nap(double seconds) {
    wait_until(read_clock(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9));
}

static inline int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double quantile(double *values, size_t count, double q) {
    qsort(values, count, sizeof *values, by_value);
    const size_t rank = (size_t)ceil(q * (double)count);
    return values[rank == 0 ? 0 : rank - 1];
}

/* "key=value" */
static inline int set_key(fletch_config *config, const char *text, fletch_error *error) {
    char        key[64];
    const char *equals = strchr(text, '=');
    snprintf(key, sizeof key, "%.*s", equals ? (int)(equals - text) : 63, text);
    return fletch_config_set(config, key, equals ? equals + 1 : "", error);
}

#endif
