/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the option table of options.h as rows in memory, and finding a key in it.
 *
 * Role    fletch_option_at for --help, docs and man pages; rules for value.c; names for sources.
 * Method  The X-macro is expanded three times: strings for people, rules for parsing, and (in
 *         config.h) the enum that indexes both. Keys are found by a linear look: there are some
 *         sixty, and configuration is read once.
 * Memory  Constants only. Threads: none shared. Proof: tests/unit/test_config.c. */
#include <string.h>

#include "base/error.h"
#include "config/config_internal.h"

#define TYPE_NAME_BOOL   "bool"
#define TYPE_NAME_INT    "int"
#define TYPE_NAME_SIZE   "size"
#define TYPE_NAME_FLOAT  "float"
#define TYPE_NAME_STRING "string"
#define TYPE_NAME_ENUM   "enum"
#define TYPE_NAME_LIST   "list"

/* The bounds macros of options.h expand to five parts; people read only the first. */
#define FIRST(first, ...) first

#define OPTION(id, key, flag, type, initial, bounds, text)                                         \
    [FL_KEY_##id] = {key, TYPE_NAME_##type, initial, FIRST(bounds), text, "FLETCH_" #id, flag},
static const fletch_option options[FL_KEY_COUNT] = {FL_OPTION_MAP(OPTION)};

#define RULE(id, key, flag, type, initial, bounds, text) [FL_KEY_##id] = {FL_TYPE_##type, bounds},
static const fl_option_rule rules[FL_KEY_COUNT] = {FL_OPTION_MAP(RULE)};

const fletch_option *fletch_option_at(size_t index) {
    return index < FL_KEY_COUNT ? &options[index] : NULL;
}

const fletch_option *fl_option(fl_key key) {
    return &options[key];
}

const fl_option_rule *fl_option_rule_of(fl_key key) {
    return &rules[key];
}

bool fl_key_find(const char *name, fl_key *out) {
    for (unsigned i = 0; i < FL_KEY_COUNT; i++)
        if (strcmp(options[i].key, name) == 0) {
            *out = (fl_key)i;
            return true;
        }
    return false;
}

int fl_key_unknown(const char *place, const char *name, fletch_error *error) {
    fl_nearest nearest = fl_nearest_start(name);
    for (unsigned i = 0; i < FL_KEY_COUNT; i++)
        fl_nearest_see_key(&nearest, options[i].key, options[i].key);
    const char *colon = place[0] != '\0' ? ": " : "";
    if (nearest.name == NULL)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s%sunknown key '%.64s'; `fletch config` lists all keys", place, colon,
                       name);
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "%s%sunknown key '%.64s'; did you mean '%s'?", place, colon, name, nearest.name);
}
