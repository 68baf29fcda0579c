/* SPDX-License-Identifier: Apache-2.0 */
/* describe.h - what a model and this machine say of themselves. */
#ifndef FL_SESSION_DESCRIBE_H
#define FL_SESSION_DESCRIBE_H

#include "config/config.h"
#include "fletch.h"

int  fl_session_describe(fletch_model *model, fletch_property_fn fn, void *user);
int  fl_system_describe(const fl_config *config, fletch_property_fn fn, void *user);
void fl_session_info(fletch_model *model, fletch_model_info *out);
void fl_session_stats(fletch_model *model, fletch_stats *out);

#endif
