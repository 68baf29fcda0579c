/* SPDX-License-Identifier: Apache-2.0 */
/* environment.c - options from environment variables.
 *
 * Role    fletch_config_load_env. Each key is read from FLETCH_ and its name in capitals; a few
 *         shorter names and those of the OP_DBUS_ family are aliases.
 * Method  All names have one rank and are applied weakest first, so that where two names of one key
 *         are set the fuller wins: OP_DBUS_ aliases, FLETCH_ aliases, full names. An empty variable
 *         counts as not set. Every other FLETCH_ variable is an error, because a misspelt one would
 *         otherwise do nothing in silence; names that other parts of fletch use are passed over.
 * Memory  None kept. Threads: reads the environment, which the program must not change meanwhile.
 * Proof   tests/unit/test_config_sources.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "config/internal.h"

#define PREFIX "FLETCH_"

/* Weakest first: a later name of the same key wins. */
static const fl_alias aliases[] = {
    {"OP_DBUS_EXECUTION_PROVIDER", FL_KEY_PROVIDER_ORDER},
    {"OP_DBUS_GPU_DEVICE", FL_KEY_PROVIDER_DEVICES},
    {"OP_DBUS_VECTOR_LEVEL", FL_KEY_MODEL_LEVEL},
    {"FLETCH_PROVIDER", FL_KEY_PROVIDER_ORDER},
    {"FLETCH_DEVICE", FL_KEY_PROVIDER_DEVICES},
    {"FLETCH_LEVEL", FL_KEY_MODEL_LEVEL},
    {"FLETCH_MODEL", FL_KEY_MODEL_ID},
};

enum { ALIAS_COUNT = sizeof aliases / sizeof aliases[0] };

const fl_alias *fl_environment_alias_at(size_t index) {
    return index < ALIAS_COUNT ? &aliases[index] : NULL;
}

/* Read by the command line (the path of a file) or by the tests; they configure nothing here. */
static const char *const others[] = {"FLETCH_CONFIG", "FLETCH_TEST_DATA",  "FLETCH_BIN",
                                     "FLETCH_BUILD",  "FLETCH_MODEL_HIGH", "FLETCH_BENCH_PYTHON",
                                     "FLETCH_CLIENTS"};

/* The value of `name` in "NAME=value", or NULL. */
static const char *value_of(const char *variable, const char *name) {
    const size_t size = strlen(name);
    return strncmp(variable, name, size) == 0 && variable[size] == '=' ? variable + size + 1 : NULL;
}

static int assign(fl_config *config, char *const *variables, const char *name, fl_key key,
                  fletch_error *error) {
    for (; *variables != NULL; variables++) {
        const char *value = value_of(*variables, name);
        if (value != NULL && value[0] != '\0')
            return fl_config_assign(config, key, value, FLETCH_ORIGIN_ENV, name, name, error);
    }
    return 0;
}

static bool is_known(const char *name) {
    if (strncmp(name, "FLETCH_DATA_", strlen("FLETCH_DATA_")) == 0)
        return true;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i]) == 0)
            return true;
    for (size_t i = 0; i < ALIAS_COUNT; i++)
        if (strcmp(name, aliases[i].name) == 0)
            return true;
    for (unsigned key = 0; key < FL_KEY_COUNT; key++)
        if (strcmp(name, fl_option((fl_key)key)->environment) == 0)
            return true;
    return false;
}

static int refuse_unknown(const char *name, fletch_error *error) {
    fl_nearest nearest = fl_nearest_start(name + strlen(PREFIX));
    for (unsigned key = 0; key < FL_KEY_COUNT; key++) {
        const char *known = fl_option((fl_key)key)->environment;
        fl_nearest_see_as(&nearest, known + strlen(PREFIX), known);
    }
    for (size_t i = 0; i < ALIAS_COUNT; i++)
        if (strncmp(aliases[i].name, PREFIX, strlen(PREFIX)) == 0)
            fl_nearest_see_as(&nearest, aliases[i].name + strlen(PREFIX), aliases[i].name);
    if (nearest.name == NULL)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "unknown environment variable %.64s; unset it, or see `fletch config` for "
                       "the keys there are",
                       name);
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "unknown environment variable %.64s; did you mean %s?", name, nearest.name);
}

static int check_names(char *const *variables, fletch_error *error) {
    for (; *variables != NULL; variables++) {
        if (strncmp(*variables, PREFIX, strlen(PREFIX)) != 0)
            continue;
        char         name[128];
        const size_t size = strcspn(*variables, "=");
        (void)snprintf(name, sizeof name, "%.*s",
                       (int)(size < sizeof name ? size : sizeof name - 1), *variables);
        if (!is_known(name))
            return refuse_unknown(name, error);
    }
    return 0;
}

int fl_config_load_variables(fl_config *config, char *const *variables, fletch_error *error) {
    int status = check_names(variables, error);
    for (size_t i = 0; i < ALIAS_COUNT && status == 0; i++)
        status = assign(config, variables, aliases[i].name, aliases[i].key, error);
    for (unsigned key = 0; key < FL_KEY_COUNT && status == 0; key++)
        status = assign(config, variables, fl_option((fl_key)key)->environment, (fl_key)key, error);
    return status;
}

int fletch_config_load_env(fletch_config *config, fletch_error *error) {
    fl_error_clear(error);
    if (config == NULL)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "fletch_config_load_env: the configuration must not be NULL");
    static char *const none[] = {NULL};
    return fl_config_load_variables(config, environ == NULL ? none : environ, error);
}
