/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.h - a model as one GGUF file. */
#ifndef FL_SESSION_GGUF_WRITE_H
#define FL_SESSION_GGUF_WRITE_H

#include "config/config.h"
#include "fletch.h"

int fl_session_gguf_write(const char *name, const fl_config *config, const char *path,
                          const char *type, fletch_progress_fn progress, void *user,
                          fletch_error *error);

#endif
