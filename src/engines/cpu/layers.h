/* SPDX-License-Identifier: Apache-2.0 */
/* layers.h - what the files of a layer share: rows as products read them, one product, and a layer's parts. */
#ifndef FL_ENGINES_CPU_LAYERS_H
#define FL_ENGINES_CPU_LAYERS_H

#include "engines/cpu/split.h"

/* Rows that a product reads: narrow ones, or where it takes float32, those they would be made of. */
typedef struct fl_cpu_operand {
    fl_cpu_rows  narrow;
    const float *floats;
    size_t       width; /* numbers from row to row */
} fl_cpu_operand;

/* cpu_rows.c: one product of the engine's format, or of weights in groups, which `factor` is for; what its rows and
 * panels are like is filled in there. */
void fl_cpu_multiply(const fl_engine *e, const fl_cpu_operand *a, const fl_cpu_form *form,
                     float factor, fl_gemm g);

/* Row `row` and on of a matrix. */
fl_cpu_operand fl_cpu_rows_from(const fl_engine *e, const fl_cpu_operand *a, size_t row);

/* What products of a layer read: z, which is x where norms follow the blocks. */
fl_cpu_operand fl_cpu_z_from(const fl_cpu_split *c, size_t row);

/* What is added to a block's output; NULL where a norm of that output alone comes first (Gemma). */
const float *fl_cpu_residual(const fl_cpu_split *c, size_t row);

/* This rank's share of `rows` rows of `at` become narrow; where products take float32 nothing happens. */
void fl_cpu_quantize_rows(const fl_cpu_split *c, const fl_cpu_operand *at, size_t rows, size_t n,
                          const float *gain);

/* Rows [row, row + rows) of z for the product that reads them next: a layer's attention, or its MLP. */
void fl_cpu_quantize_for_attention(const fl_cpu_split *c, size_t row, size_t rows, size_t layer);
void fl_cpu_quantize_for_mlp(const fl_cpu_split *c, size_t row, size_t rows, size_t layer);

/* cpu_attention.c: layer `index` from z to context, every token's row, or one row a text: the pooled one's. */
void fl_cpu_attention_full(const fl_cpu_split *c, size_t index);
void fl_cpu_attention_pooled(const fl_cpu_split *c, size_t index);

/* The row of x that text `t` of the plan is pooled to; `row` is its first. */
size_t fl_cpu_pooled_at(const fl_engine *e, uint32_t t, size_t row);

/* One MLP and its rows. */
typedef struct fl_cpu_mlp_work {
    const fl_cpu_layer *layer;
    const uint8_t      *panels; /* as in fl_cpu_layer */
    const float        *up_bias, *down_bias;
    fl_cpu_operand      z;
    const float        *residual; /* [rows, hidden16] or NULL */
    size_t              rows;
} fl_cpu_mlp_work;

/* cpu_mlp.c: y = act(z Wup + b) Wdown + b + residual */
void fl_cpu_run_mlp(const fl_cpu_split *c, const fl_cpu_mlp_work *work);

/* cpu_experts.c: y = b + residual + what its experts make of a row, this rank's share of the rows of z from `row` on */
void fl_cpu_run_experts(const fl_cpu_split *c, const fl_cpu_layer *layer, size_t row, size_t rows);

#endif
