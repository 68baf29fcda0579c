/* SPDX-License-Identifier: Apache-2.0 */
/* row_output.h - what becomes of one pooled row. */
#ifndef FL_RUNTIME_ROW_OUTPUT_H
#define FL_RUNTIME_ROW_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/request.h"

/* pooled[width] -> row of the caller; line[0], line[1] are scratch rows. `row` may be
 * `pooled` itself when dtype is float32. False, and `row` untouched, when `pooled` holds or a stage
 * made a value that is not finite: no engine's word is taken for it. */
bool fl_output_row(const fl_row_output *output, const float *pooled, float *const line[2],
                   void *row);
/* The same of a row that comes in `width` wide. */
bool fl_output_row_of(const fl_row_output *output, const float *pooled, uint32_t width,
                      float *const line[2], void *row);
/* The dot product of two rows. Eight partial sums let the compiler vectorise without changing the order from
 * run to run. */
float fl_output_dot(const float *a, const float *b, size_t n);
/* rows[count][columns], the vectors of a text's tokens, brought to unit length where that was asked for.
 * False: as above. */
bool fl_output_tokens(const fl_row_output *output, float *rows, size_t count);
/* The terms of a text become its list: weights, the light ones left out. Changes *terms. ENOMEM, ENOSPC. The
 * second makes weights of the hidden rows in the text's list, by the model's weigher (EMODEL: one is not
 * finite); the third takes terms that are weights already. */
int fl_output_terms(fl_request *request, size_t text, fl_terms *terms);
int fl_output_token_weights(fl_request *request, size_t text, fl_terms *terms);
int fl_output_weights(fl_request *request, size_t text, fl_terms *terms);
/* A finished row as its dtype; may be `row` itself when that is float32. */
void fl_output_store(const float *row, size_t columns, fletch_dtype dtype, void *out);
/* Whether the engine may write pooled rows straight into the caller's rows. */
bool fl_output_in_place(const fl_row_output *output, const fletch_matrix *out);

#endif
