/* SPDX-License-Identifier: Apache-2.0 */
/* wide/bf16.h - products of bfloat16 weights as float32 products (f32_gemm.h), in two ways.
 *
 * Widened  Rows are float32. A lane of a panel holds two steps of k of a column, the even one in its
 *          lower half: shifted up or masked it is that weight in float32. The chain of FMAs is the one
 *          of f32_gemm.h, so these are ref's bits.
 * Pairs    Rows are bfloat16 too, and an instruction multiplies pairs and adds them in float32: then a
 *          pair is as wide as a float, and the product is a float32 product of k/2 steps whose
 *          "multiply-add" is that instruction.
 * Needs    Included behind an instruction set's own header. */
#ifndef FL_ENGINES_CPU_KERNELS_WIDE_BF16_H
#define FL_ENGINES_CPU_KERNELS_WIDE_BF16_H

#include "engines/cpu/kernels.h"

/* The same product in the words of f32_gemm.h; strides of bytes become strides of floats. */
FL_INLINE fl_gemm bf16_as_floats(const fl_gemm_narrow *g) {
    return (fl_gemm){.a               = g->a,
                     .a_stride        = g->a_stride / sizeof(float),
                     .b               = (const float *)(const void *)g->b,
                     .b_stride        = g->b_stride / sizeof(float),
                     .c               = g->c,
                     .c_stride        = g->c_stride,
                     .bias            = g->bias,
                     .residual        = g->residual,
                     .residual_stride = g->residual_stride,
                     .rows            = g->rows,
                     .panels          = g->panels,
                     .k               = g->k,
                     .accumulate      = g->accumulate};
}

#endif
