/* SPDX-License-Identifier: Apache-2.0 */
/* vector_id.h - what decides the bytes of a vector, and one text for all of it. */
#ifndef FL_SESSION_VECTOR_ID_H
#define FL_SESSION_VECTOR_ID_H

#include "base/locked.h"
#include "fletch.h"

/* Raised by every change after which some vector has other bytes than before: of a kernel,
 * of the order of a sum, of a tokenizer that was wrong. tests/golden/test_numerics.py holds bytes to it. */
enum { FL_NUMERICS = 2 };

/* fletch_model_fingerprint. */
int fl_vector_fingerprint(fletch_model *m, char out[65], fletch_error *error);
/* fletch_vector_describe and fletch_vector_id of a model with an engine; `options` are there. */
int fl_vector_describe(fletch_model *m, fletch_property_fn fn, void *user, fletch_error *error);
int fl_vector_id(fletch_model *m, const fletch_embed_options *options, fletch_dtype dtype,
                 char out[65], fletch_error *error);
/* What was kept of it; the lock is held, or nobody else has the model. */
FL_UNCHECKED void fl_vector_parts_free(fletch_model *m);

#endif
