/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.h - a document cut into chunks that the model takes. */
#ifndef FL_REQUESTS_CHUNKS_H
#define FL_REQUESTS_CHUNKS_H

#include <stddef.h>

#include "fletch.h"

int fl_requests_chunk(fletch_model *model, const char *text, size_t size,
                      const fletch_chunk_options *options, fletch_chunks **chunks,
                      fletch_error *error);

#endif
