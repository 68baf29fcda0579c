/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the values of all options, each with where it came from.
 *
 * src/config/options.h is the one table (an X-macro) of keys, types, bounds, defaults and texts; it
 * drives TOML, environment, flags, --help, man page and docs. A fl_config is one slot per key;
 * sources are ranked (flag > environment > file > preset > default), so the order of calls does not
 * matter.
 *
 * Rooms above read values with the typed getters by enum, which cannot fail: bounds were checked
 * when the value was set. fletch_config in the public header is this struct. Threads: one at a
 * time; fletch_open takes a copy with fl_config_clone. Proof: tests/unit/test_config.c. */
#ifndef FL_CONFIG_CONFIG_H
#define FL_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "config/options.h"
#include "fletch.h"

/* FL_KEY_<name> for every row of the table, e.g. FL_KEY_CPU_INTRA_OP_THREADS. */
typedef enum fl_key {
#define FL_OPTION_ENUM(id, ...) FL_KEY_##id,
    FL_OPTION_MAP(FL_OPTION_ENUM)
#undef FL_OPTION_ENUM
        FL_KEY_COUNT
} fl_key;

typedef struct fletch_config fl_config;

/* A copy that shares nothing with the original but the log pointer; NULL when out of memory. */
fl_config *fl_config_clone(const fl_config *config);

bool        fl_config_bool(const fl_config *config, fl_key key);
int64_t     fl_config_int(const fl_config *config, fl_key key); /* int and size keys */
double      fl_config_float(const fl_config *config, fl_key key);
const char *fl_config_text(const fl_config *config, fl_key key); /* any key as text; "" for none */
bool        fl_config_is_set(const fl_config *config, fl_key key); /* origin above default */
/* Set by a name of another program ([ai], OP_DBUS_…), to which what it asks for is a wish: provider
 * "cuda" there means the processor where there is no card. */
bool          fl_config_is_foreign(const fl_config *config, fl_key key);
const char   *fl_config_origin(const fl_config *config, fl_key key);
const fl_log *fl_config_log(const fl_config *config); /* never NULL */

/* Options that contradict each other (together.c): the value that nobody chose gives way, and the log
 * says so; two that were chosen are ECONFIG with both keys and origins. Call it on a copy that is to be
 * used, after every source was read. */
int fl_config_check_together(fl_config *config, fletch_error *error);

/* Element `index` of a list key ("cuda,cpu") into out[capacity]; false past the end. */
bool fl_config_list_item(const fl_config *config, fl_key key, unsigned index, char *out,
                         size_t capacity);

#endif
