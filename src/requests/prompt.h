/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.h - the prompts of a model's folder by name. */
#ifndef FL_REQUESTS_PROMPT_H
#define FL_REQUESTS_PROMPT_H

#include "fletch.h"

/* The text of a prompt; ECONFIG names those that there are. */
int fl_prompt_named(const fletch_model *model, const char *name, const char **text,
                    fletch_error *error);
/* That of documents, where what a call says is its query's; "" for none. */
const char *fl_prompt_of_documents(const fletch_model *model);

#endif
