/* SPDX-License-Identifier: Apache-2.0 */
/* config_internal.h - what the files of this room share: the rows of the table, the one way to set a key.
 *
 * table.c holds the rows and finds keys; value.c turns text into values within bounds; config.c
 * stores them by rank; config_file.c, environment.c and presets.c are the sources. Other rooms include
 * config.h. */
#ifndef FL_CONFIG_CONFIG_INTERNAL_H
#define FL_CONFIG_CONFIG_INTERNAL_H

#include "base/suggest.h"
#include "config/config.h"

typedef enum fl_option_type {
    FL_TYPE_BOOL,
    FL_TYPE_INT,
    FL_TYPE_SIZE,
    FL_TYPE_FLOAT,
    FL_TYPE_STRING,
    FL_TYPE_ENUM,
    FL_TYPE_LIST
} fl_option_type;

/* What parsing needs of a row; the strings for people are in fletch_option. */
typedef struct fl_option_rule {
    fl_option_type type;
    const char    *bounds;
    double         min, max;  /* both 0: no bounds */
    const char    *choices;   /* "a|b" or NULL */
    const char    *zero_word; /* "auto", "none", "off": another way to write 0; or NULL */
} fl_option_rule;

typedef struct fl_config_value {
    char   *text;    /* owned; the value in its canonical spelling */
    int64_t integer; /* INT and SIZE; BOOL 0 or 1 */
    double  number;  /* FLOAT */
} fl_config_value;

/* table.c */
const fletch_option  *fl_option(fl_key key);
const fl_option_rule *fl_option_rule_of(fl_key key);
bool                  fl_key_find(const char *name, fl_key *out);
/* FLETCH_ECONFIG: "PLACE: unknown key 'x'; did you mean 'y'?" */
int fl_key_unknown(const char *place, const char *name, fletch_error *error);

/* value.c: parse `text` for a key; `place` begins the message. On failure nothing is owned. */
int fl_value_parse(fl_key key, const char *text, const char *place, fl_config_value *out,
                   fletch_error *error);

/* Who sets a key. */
typedef struct fl_config_source {
    fletch_origin rank;
    const char   *origin;  /* as people are shown it */
    bool          foreign; /* by a name of another program; see fl_config_is_foreign */
} fl_config_source;

/* config.c: set a key; does nothing when a higher rank holds it. */
int fl_config_assign(fl_config *config, fl_key key, const char *text,
                     const fl_config_source *source, const char *place, fletch_error *error);

/* config.c: the rank of the source that set a key. */
fletch_origin fl_config_rank(const fl_config *config, fl_key key);

/* environment.c: fletch_config_load_env over a given environment ("NAME=value" …, NULL). */
int fl_config_load_variables(fl_config *config, char *const *variables, fletch_error *error);

/* Other names of keys: variables of the environment (environment.c) and keys of the [ai] section
 * (config_file.c). NULL past the end; for the documentation. */
typedef struct fl_alias {
    const char *name;
    fl_key      key;
} fl_alias;
const fl_alias *fl_environment_alias_at(size_t index);
const fl_alias *fl_file_alias_at(size_t index);

#endif
