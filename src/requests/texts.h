/* SPDX-License-Identifier: Apache-2.0 */
/* texts.h - item i of what a request was given: a text in one of three forms, or a list of token ids.
 *
 * Threads any; the caller's memory is read and nothing else. Proof: tests/unit/test_fletch.c. */
#ifndef FL_REQUESTS_TEXTS_H
#define FL_REQUESTS_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"
#include "requests/request.h"

/* Text `index` of any of the three forms. EINVAL when its offsets run backwards or its length is no length. */
int fl_texts_at(const fletch_texts *texts, size_t index, const char **text, size_t *size,
                fletch_error *error);

/* Whether item `index` is a list of ids. */
static inline bool fl_item_is_ids(const fl_request *request, size_t index) {
    return request->token_ids || (request->are_ids && request->are_ids[index]);
}

/* And that list. EINVAL as above. */
int fl_ids_at(const fl_request *request, size_t index, const int32_t **ids, size_t *count,
              fletch_error *error);

#endif
