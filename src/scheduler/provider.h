/* SPDX-License-Identifier: Apache-2.0 */
/* provider.h - which execution providers there are, and the first that opens. */
#ifndef FL_SCHEDULER_PROVIDER_H
#define FL_SCHEDULER_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "engines/engine.h"
#include "fletch.h"
#include "scheduler/scheduler.h"

/* Walk provider.order, or try `only`, and call `open` for each provider that is usable until one opens;
 * every refusal is logged. EPROVIDER from `open` means: the next one may do. */
typedef int (*fl_provider_fn)(void *arg, const fl_engine_ops *ops, const char *provider,
                              const fl_engine_options *options, fletch_error *error);
int fl_provider_walk(fl_scheduler *scheduler, const fl_config *config, const char *only,
                     fl_provider_fn open, void *arg, fletch_error *error);
/* Whether `device` of provider `name` may be had now, by what its engine's probe says. */
bool fl_provider_is_usable(const fl_scheduler *scheduler, const fl_config *config, const char *name,
                           uint32_t device);
/* Tell of every provider: usable, or why not. Returns what `fn` stopped with. */
int fl_provider_describe(const fl_config *config, fletch_property_fn fn, void *user);

#endif
