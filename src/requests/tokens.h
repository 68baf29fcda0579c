/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.h - single texts for callers who want to see tokens. */
#ifndef FL_REQUESTS_TOKENS_H
#define FL_REQUESTS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

int     fl_requests_tokenize(fletch_model *model, const char *text, size_t size,
                             const fletch_tokenize_options *options, fletch_tokens **tokens,
                             fletch_error *error);
int64_t fl_requests_decode(const fletch_model *model, const int32_t *ids, size_t count,
                           bool skip_special, char *text, size_t capacity, fletch_error *error);

/* EUTF8 with the offset, or EINVAL for a text of 4 GiB or more. */
int fl_check_text(const char *text, size_t size, fletch_error *error);

#endif
