/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.h - texts to blocks of token ids in the queue. */
#ifndef FL_REQUESTS_TOKENIZE_H
#define FL_REQUESTS_TOKENIZE_H

#include <stdbool.h>

#include "requests/request.h"

/* Tokenise the next texts into blocks and queue them. Unlocks while it works. */
FL_LOCKED void fl_tokenize_next(fl_request *request, fl_request **over);
/* Likewise a few texts of the request with the fewest tokens ahead, the oldest among equals: a submitted
 * one that nobody tokenises, or, for who `helps`, any; false: none has room. (unlocks meanwhile) */
FL_LOCKED bool fl_tokenize_any(fletch_model *model, bool helps, fl_request **over);

#endif
