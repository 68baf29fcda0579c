/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_narrow.h - fl-kernels' narrow formats: quantize and gemm of a table against ref. */
#ifndef FL_TESTS_KERNELS_NARROW_H
#define FL_TESTS_KERNELS_NARROW_H

#include <stdbool.h>
#include <stddef.h>

#include "engines/cpu/kernels.h"

typedef void (*narrow_check_fn)(bool ok, const char *op, const char *what, size_t a, size_t b,
                                size_t c);

void narrow_test_quantize(const fl_cpu_kernels *kernels, fl_cpu_format format,
                          narrow_check_fn check);
void narrow_test_gemm(const fl_cpu_kernels *kernels, fl_cpu_format format, narrow_check_fn check);

/* Best seconds of a call. */
typedef double (*narrow_time_fn)(void (*call)(void *), void *arg);

void narrow_perf_quantize(const fl_cpu_kernels *kernels, fl_cpu_format format, narrow_time_fn best);
void narrow_perf_gemm(const fl_cpu_kernels *kernels, fl_cpu_format format, narrow_time_fn best,
                      double peak);

#endif
