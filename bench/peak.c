/* SPDX-License-Identifier: Apache-2.0 */
/* peak.c - the most multiply-adds this machine does: the 100 % of the benchmark's tables.
 *
 *     peak THREADS SECONDS [fp32|bf16|int16|int8 [ISA]]     prints GFLOP/s of all threads together
 *
 * Method  each thread runs the loop of peak.h for that precision and instruction set, the best of this machine
 * where none is named; a multiply-add counts 2. The clock runs from the first thread's start to the last one's
 * end. x86 with AVX2 and FMA only. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "peak.h"

enum { THREADS_MAX = 256, STEPS = 1 << 19 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct worker {
    pthread_t thread;
    peak_loop loop;
    double    until, done;
} worker;

static void *work(void *argument) {
    worker *self = argument;
    while (now() < self->until)
        self->done += self->loop(STEPS);
    return NULL;
}

int main(int argc, char **argv) {
    int         threads = argc >= 3 ? (int)strtol(argv[1], NULL, 10) : 0;
    double      seconds = argc >= 3 ? strtod(argv[2], NULL) : 0;
    const char *isa     = argc >= 5 ? argv[4] : peak_best();
    if (isa == NULL) {
        fprintf(stderr, "peak: this CPU has no AVX2 and FMA\n");
        return 1;
    }
    peak_loop loop = peak_of(isa, argc >= 4 ? argv[3] : "fp32");
    if (threads < 1 || threads > THREADS_MAX || !(seconds > 0) || loop == NULL) {
        fprintf(stderr, "usage: peak THREADS SECONDS [fp32|bf16|int16|int8 [ISA]]\n");
        return 2;
    }
    static worker workers[THREADS_MAX];
    double        start = now();
    for (int i = 0; i < threads; i++) {
        workers[i].loop  = loop;
        workers[i].until = start + seconds;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 1;
    }
    double done = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        done += workers[i].done;
    }
    printf("%.1f\n", 2 * done / (now() - start) / 1e9);
    return 0;
}
