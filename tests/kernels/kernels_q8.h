/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_q8.h - fl-kernels' int8 part: quantize and gemm_q8 of a table against ref, bit by bit. */
#ifndef FL_TESTS_KERNELS_Q8_H
#define FL_TESTS_KERNELS_Q8_H

#include <stdbool.h>
#include <stddef.h>

#include "engines/cpu/kernels.h"

typedef void (*q8_check_fn)(bool ok, const char *op, const char *what, size_t a, size_t b,
                            size_t c);

void q8_test_quantize(const fl_cpu_kernels *kernels, q8_check_fn check);
void q8_test_gemm(const fl_cpu_kernels *kernels, q8_check_fn check);

/* Best seconds of a call. */
typedef double (*q8_time_fn)(void (*call)(void *), void *arg);

void q8_perf_quantize(const fl_cpu_kernels *kernels, q8_time_fn best);
void q8_perf_gemm(const fl_cpu_kernels *kernels, q8_time_fn best, double peak);

#endif
