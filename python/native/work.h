/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - one embedding: the request, and every object whose memory it borrows until it has ended. */
#ifndef FP_WORK_H
#define FP_WORK_H
#include "handle.h"
#include "texts.h"

typedef struct fp_work {
    Handle              *handle; /* owned, as all here */
    Texts               *texts;
    PyObject            *prompt, *prompt_name; /* the str whose bytes the request points at */
    Py_buffer            out, tokens, truncated, status;
    fletch_request       request;
    fletch_embed_options options; /* the request's */
} fp_work;

/* (texts, out, dtype, cols, prompt, prompt_name, dimensions, max_length, normalize, truncate, tokens, truncated,
 * status) to a request; with (spans, counts, overlap) behind them, bytes of arrays of size_t, to one of kind SPANS, for
 * submit alone. False: raised. fp_work_free in either case. The struct must not move afterwards. */
enum { FP_WORK_ARGS = 13, FP_SPAN_ARGS = 3 };
bool fp_work_take(fp_work *w, PyObject *handle, PyObject *const *args, Py_ssize_t count);
void fp_work_free(fp_work *w);

/* Texts [first, first + count) of it as a request; `options` are the part's own. */
fletch_request fp_work_part(const fp_work *w, size_t first, size_t count,
                            fletch_embed_options *options);

#endif
