/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_peak_x86.c - the peak of a processor with AVX2 or AVX-512, by chains of multiply-adds.
 *
 * Role    The 100 % of `fletch bench`. Clocks drift with heat and neighbours: it is measured anew
 *         before each row, on as many threads as the engine has.
 * Method  Twelve independent chains keep both ports busy through the latency of four cycles. The
 *         registers are those that the processor has: AVX-512 is twice AVX2 on Intel's, the same on
 *         AMD's that pump it twice. */
#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/cpu_peak.h"

enum { CHAINS = 12, LINKS = 4000, THREADS_MAX = 256 };

static const uint64_t duration_ns = 50000000;

static __attribute__((target("avx2,fma"))) void run_avx2(void) {
    __m256 sum[CHAINS], x = _mm256_set1_ps(0.999F), y = _mm256_set1_ps(1e-4F);
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < LINKS; n++) {
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sum[i] =
            _mm256_fmadd_ps(sum[i], x, y);
    }
    for (int i = 0; i < CHAINS; i++)
        __asm__ volatile("" : "+x"(sum[i])); /* the results count as used */
}

static __attribute__((target("avx512f"))) void run_avx512(void) {
    __m512 sum[CHAINS], x = _mm512_set1_ps(0.999F), y = _mm512_set1_ps(1e-4F);
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < LINKS; n++) {
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sum[i] =
            _mm512_fmadd_ps(sum[i], x, y);
    }
    for (int i = 0; i < CHAINS; i++)
        __asm__ volatile("" : "+v"(sum[i]));
}

/* FLOP/s of this thread into *rate. */
static void *measure(void *rate) {
    const bool     wide  = __builtin_cpu_supports("avx512f");
    const uint64_t begin = fl_clock_ns();
    uint64_t       now = begin, runs = 0;
    for (; now - begin < duration_ns; now = fl_clock_ns(), runs++)
        if (wide)
            run_avx512();
        else
            run_avx2();
    const double flops = 2.0 * (wide ? 16 : 8) * CHAINS * LINKS * (double)runs;
    *(double *)rate    = flops / ((double)(now - begin) * 1e-9);
    return NULL;
}

double fl_cpu_peak(unsigned threads) {
    pthread_t thread[THREADS_MAX];
    double    rate[THREADS_MAX];
    double    sum   = 0;
    unsigned  count = 0;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 0;
    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    while (count + 1 < threads && pthread_create(&thread[count], NULL, measure, &rate[count]) == 0)
        count++;
    measure(&rate[count]);
    sum = rate[count];
    for (unsigned i = 0; i < count; i++) {
        pthread_join(thread[i], NULL);
        sum += rate[i];
    }
    return sum;
}
