/* SPDX-License-Identifier: Apache-2.0 */
/* chat_text.h - the ids of a pair as a chat. */
#ifndef FL_REQUESTS_CHAT_TEXT_H
#define FL_REQUESTS_CHAT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/json_in.h"
#include "requests/request.h"
#include "requests/tokenize_task.h"
#include "tokenizer/tokenizer.h"

/* The ids of a pair as a chat; how many bytes it has with texts of these sizes. */
int    fl_chat_encode(const fl_request *request, fl_tokenize_task *task, const fl_span *query,
                      const fl_span *document, int32_t *ids, size_t capacity, fl_pair *pair,
                      fletch_error *error);
size_t fl_chat_bytes(const fl_request *request, size_t query_size, size_t document_size);

#endif
