/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - what values fl-kernels takes for true (judge.c), and the bits that it wants of all sets
 * (kernels_bits.c). */
#ifndef FL_TESTS_JUDGE_H
#define FL_TESTS_JUDGE_H

#include "engines/cpu/kernels.h"
#include "kernels_narrow.h"

extern const fl_cpu_kernels judge; /* without gemm and narrow formats */

/* Every float32 kernel of a table gives ref's bits, whatever the shape. */
void bits_test(const fl_cpu_kernels *kernels, narrow_check_fn check);

#endif
