/* SPDX-License-Identifier: Apache-2.0 */
/* peak.c - the most fused multiply-adds this machine does: the 100 % of the benchmark's tables.
 *
 *     peak THREADS SECONDS          prints GFLOP/s of all threads together
 *
 * Method  each thread keeps 12 independent accumulators of 8 floats in registers (enough to hide
 * the latency of 4 cycles on 2 units), so nothing but the FMA units can be the limit; 2 flop per
 * lane. The clock runs from the first thread's start to the last one's end. x86 with AVX2 and FMA
 * only. */
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 256, CHAINS = 12, STEPS = 1 << 20 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct worker {
    pthread_t thread;
    double    until;
    uint64_t  rounds;
    float     sink; /* keeps the compiler from dropping the loop */
} worker;

__attribute__((target("avx2,fma"))) static float spin(void) {
    __m256 a[CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
    for (int i = 0; i < CHAINS; i++)
        a[i] = _mm256_set1_ps((float)i);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < CHAINS; i++)
            a[i] = _mm256_fmadd_ps(a[i], x, y);
    __m256 sum = a[0];
    for (int i = 1; i < CHAINS; i++)
        sum = _mm256_add_ps(sum, a[i]);
    return _mm256_cvtss_f32(sum);
}

static void *work(void *argument) {
    worker *self = argument;
    while (now() < self->until) {
        self->sink += spin();
        self->rounds++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    int    threads = argc == 3 ? (int)strtol(argv[1], NULL, 10) : 0;
    double seconds = argc == 3 ? strtod(argv[2], NULL) : 0;
    if (threads < 1 || threads > THREADS_MAX || !(seconds > 0)) {
        fprintf(stderr, "usage: peak THREADS SECONDS\n");
        return 2;
    }
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        fprintf(stderr, "peak: this CPU has no AVX2 and FMA\n");
        return 1;
    }
    static worker workers[THREADS_MAX];
    double        start = now();
    for (int i = 0; i < threads; i++) {
        workers[i].until = start + seconds;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 1;
    }
    uint64_t rounds = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        rounds += workers[i].rounds;
    }
    double flop = (double)rounds * STEPS * CHAINS * 8 * 2;
    printf("%.1f\n", flop / (now() - start) / 1e9);
    return 0;
}
