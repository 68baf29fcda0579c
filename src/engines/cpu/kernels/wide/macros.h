/* SPDX-License-Identifier: Apache-2.0 */
/* wide/macros.h - what kernels need of the compiler: inlining that cannot be refused, loops that
 * vanish. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_MACROS_H
#define FL_ENGINES_CPU_KERNELS_WIDE_MACROS_H

#define FL_INLINE   static inline __attribute__((always_inline))
#define FL_NOINLINE __attribute__((noinline))

/* Loops over the rows of a tile must vanish, or the accumulators live in memory. */
#if defined(__clang__)
#define FL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FL_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
