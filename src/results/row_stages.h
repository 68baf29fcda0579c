/* SPDX-License-Identifier: Apache-2.0 */
/* row_stages.h - what becomes of one pooled row. */
#ifndef FL_RESULTS_ROW_STAGES_H
#define FL_RESULTS_ROW_STAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "results/result.h"

/* pooled[width] -> row of the caller; line[0], line[1] are scratch rows. `row` may be
 * `pooled` itself when dtype is float32. False, and `row` untouched, when `pooled` holds or a stage
 * made a value that is not finite: no engine's word is taken for it. */
bool fl_row_stages(const fl_model *model, const fl_plan *plan, const float *pooled, uint32_t width,
                   float *const line[2], void *row);
/* The finish of kinds whose results are rows of the matrix. */
int fl_row_finish(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error);
/* row[stage->in] through a dense layer -> out[stage->out]; false: not finite. */
bool fl_row_layer(const fl_stage *stage, const float *row, float *out);
/* The dot product of two rows. Eight partial sums let the compiler vectorise without changing the order from
 * run to run. */
float fl_row_dot(const float *a, const float *b, size_t n);
/* rows[count][columns], the vectors of a text's tokens, brought to unit length where that was asked for.
 * False: as above. */
bool fl_row_units(const fl_plan *plan, float *rows, size_t count);
/* Of every fletch_dtype. */
enum { FL_DTYPES = FLETCH_UBINARY + 1 };
extern const char *const fl_dtype_names[FL_DTYPES];
/* A finished row as its dtype; may be `row` itself when that is float32. */
void fl_row_store(const float *row, size_t columns, fletch_dtype dtype, void *out);
/* Whether the engine may write pooled rows straight into the caller's rows. */
bool fl_row_in_place(const fl_model *model, const fl_plan *plan, const fletch_matrix *out);

#endif
