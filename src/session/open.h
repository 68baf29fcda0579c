/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - a model from a folder or the hub, until it is closed. */
#ifndef FL_SESSION_OPEN_H
#define FL_SESSION_OPEN_H

#include <stdbool.h>

#include "config/config.h"
#include "fletch.h"

/* How much of a model is opened: its tokenizer, lengths and prompts; its weights too; all that makes vectors. */
typedef enum fl_depth { FL_DEPTH_TOKENIZER, FL_DEPTH_WEIGHTS, FL_DEPTH_ENGINE } fl_depth;

int  fl_session_open(fletch_model **out, const char *name, const fl_config *config, fl_depth depth,
                     fletch_error *error);
void fl_session_close(fletch_model *model);
int  fl_session_reopen(fletch_model *model, const fl_config *config, fletch_error *error);
int  fl_session_warm(fletch_model *model, fletch_error *error);

#endif
