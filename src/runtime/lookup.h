/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.h - sparse vectors of queries from a table. */
#ifndef FL_RUNTIME_LOOKUP_H
#define FL_RUNTIME_LOOKUP_H

#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "runtime/request.h"

/* The table of a model whose queries are not computed; the list of one, from its ids (which are sorted;
 * *terms is scratch). ENOMEM, ENOSPC. */
int fl_lookup_open(fletch_model *model, fletch_error *error);
int fl_lookup_text(fl_request *request, size_t text, int32_t *ids, size_t count, fl_terms *terms,
                   fletch_error *error);

#endif
