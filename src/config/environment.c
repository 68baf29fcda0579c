/* SPDX-License-Identifier: Apache-2.0 */
/* environment.c - options from environment variables.
 *
 * Role    fletch_config_load_env. Each key is read from FLETCH_ and its name in capitals; a few
 *         shorter names, those of the OP_DBUS_ family and some of OpenTelemetry's are aliases.
 * Method  All names have one rank and are applied weakest first, so that where two names of one key
 *         are set the fuller wins: aliases of others, FLETCH_ aliases, full names. An empty variable
 *         counts as not set. A FLETCH_ variable that means nothing is a warning with the nearest name,
 *         since a misspelt one would otherwise do nothing in silence, and no error, since others put
 *         such variables into every process: Kubernetes and Docker links make FLETCH_SERVICE_HOST,
 *         FLETCH_PORT_9900_TCP and their like of a service called fletch. Those are passed over, also
 *         where one has the name of a key (a service fletch-server makes FLETCH_SERVER_PORT).
 * Memory  None kept. Threads: reads the environment, which the program must not change meanwhile.
 * Proof   tests/unit/test_config_sources.c. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "config/config_internal.h"

#define PREFIX "FLETCH_"

/* Weakest first: a later name of the same key wins. */
static const fl_alias aliases[] = {
    {"OP_DBUS_EXECUTION_PROVIDER", FL_KEY_PROVIDER_ORDER},
    {"OP_DBUS_GPU_DEVICE", FL_KEY_PROVIDER_DEVICES},
    {"OP_DBUS_VECTOR_LEVEL", FL_KEY_MODEL_LEVEL},
    {"OTEL_EXPORTER_OTLP_ENDPOINT", FL_KEY_SERVER_OTLP_ENDPOINT},
    {"OTEL_SERVICE_NAME", FL_KEY_SERVER_OTLP_SERVICE},
    {"OTEL_METRIC_EXPORT_INTERVAL", FL_KEY_SERVER_OTLP_INTERVAL_MS},
    {"FLETCH_PROVIDER", FL_KEY_PROVIDER_ORDER},
    {"FLETCH_DEVICE", FL_KEY_PROVIDER_DEVICES},
    {"FLETCH_LEVEL", FL_KEY_MODEL_LEVEL},
    {"FLETCH_MODEL", FL_KEY_MODEL_ID},
};

enum { ALIAS_COUNT = sizeof aliases / sizeof aliases[0] };

const fl_alias *fl_environment_alias_at(size_t index) {
    return index < ALIAS_COUNT ? &aliases[index] : NULL;
}

/* Read by the command line (the path of a file) or by the tests and tools, as FLETCH_TEST_… is; they
 * configure nothing here. */
static const char *const others[] = {"FLETCH_CONFIG",       "FLETCH_BIN",       "FLETCH_BUILD",
                                     "FLETCH_MODEL_HIGH",   "FLETCH_CLIENTS",   "FLETCH_SCREENSHOT",
                                     "FLETCH_E5",           "FLETCH_NVCC",      "FLETCH_CUDA_ARCHS",
                                     "FLETCH_BENCH_PYTHON", "FLETCH_SOAK_MODEL"};

/* The value of `name` in "NAME=value", or NULL. */
static const char *value_of(const char *variable, const char *name) {
    const size_t size = strlen(name);
    return strncmp(variable, name, size) == 0 && variable[size] == '=' ? variable + size + 1 : NULL;
}

/* "tcp://10.0.0.1:9900": what a container platform says of a service, never the value of an option. */
static bool is_service_address(const char *value) {
    return strncmp(value, "tcp://", 6) == 0 || strncmp(value, "udp://", 6) == 0 ||
           strncmp(value, "sctp://", 7) == 0;
}

static int assign(fl_config *config, char *const *variables, const char *name, fl_key key,
                  fletch_error *error) {
    const fl_config_source source = {.rank    = FLETCH_ORIGIN_ENV,
                                     .origin  = name,
                                     .foreign = strncmp(name, PREFIX, strlen(PREFIX)) != 0};
    for (; *variables != NULL; variables++) {
        const char *value = value_of(*variables, name);
        if (value != NULL && value[0] != '\0' &&
            !(key == FL_KEY_SERVER_PORT && is_service_address(value)))
            return fl_config_assign(config, key, value, &source, name, error);
    }
    return 0;
}

/* Past a "_PORT_9900_TCP" that begins here: its end, or "_ADDR" and its like. NULL: none begins here. */
static const char *past_port(const char *at) {
    static const char *const protocols[] = {"_TCP", "_UDP", "_SCTP"};
    if (strncmp(at, "_PORT_", 6) != 0 || !isdigit((unsigned char)at[6]))
        return NULL;
    for (at += 6; isdigit((unsigned char)*at);)
        at++;
    for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++)
        if (strncmp(at, protocols[i], strlen(protocols[i])) == 0)
            return at + strlen(protocols[i]);
    return NULL;
}

/* What Kubernetes and Docker links say of a service whose name begins with fletch: …_SERVICE_HOST,
 * …_SERVICE_PORT[_NAME], …_PORT=tcp://…, …_PORT_9900_TCP[_ADDR|_PORT|_PROTO], …_NAME=/…, …_ENV_…. */
static bool is_injected(const char *name, const char *value) {
    const char *last = strrchr(name, '_');
    for (const char *at = strchr(name, '_'); at != NULL; at = strchr(at + 1, '_')) {
        const char *rest = past_port(at);
        if (rest != NULL && (*rest == '\0' || strcmp(rest, "_ADDR") == 0 ||
                             strcmp(rest, "_PORT") == 0 || strcmp(rest, "_PROTO") == 0))
            return true;
        if (strcmp(at, "_SERVICE_HOST") == 0 || strcmp(at, "_SERVICE_PORT") == 0 ||
            strncmp(at, "_SERVICE_PORT_", 14) == 0 || strncmp(at, "_ENV_", 5) == 0)
            return true;
    }
    return (strcmp(last, "_PORT") == 0 && is_service_address(value)) ||
           (strcmp(last, "_NAME") == 0 && value[0] == '/');
}

static bool is_known(const char *name) {
    if (strncmp(name, "FLETCH_DATA_", strlen("FLETCH_DATA_")) == 0 ||
        strncmp(name, "FLETCH_TEST_", strlen("FLETCH_TEST_")) == 0)
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

static void warn_unknown(const fl_config *config, const char *name) {
    const char *word    = name + strlen(PREFIX);
    fl_nearest  nearest = fl_nearest_start(word);
    for (size_t i = 0; i < ALIAS_COUNT; i++)
        if (strncmp(aliases[i].name, PREFIX, strlen(PREFIX)) == 0)
            fl_nearest_see_as(&nearest, aliases[i].name + strlen(PREFIX), aliases[i].name);
    for (unsigned key = 0; key < FL_KEY_COUNT; key++) {
        const fletch_option *option = fl_option((fl_key)key);
        fl_nearest_see_key(&nearest, option->key, option->environment);
    }
    fl_log_write(fl_config_log(config), FL_LOG_WARNING, "unknown environment variable %.64s%s%s%s",
                 name, nearest.name != NULL ? "; did you mean " : "",
                 nearest.name != NULL ? nearest.name
                                      : "; `fletch help options` lists the known ones",
                 nearest.name != NULL ? "?" : "");
}

static void check_names(const fl_config *config, char *const *variables) {
    for (; *variables != NULL; variables++) {
        if (strncmp(*variables, PREFIX, strlen(PREFIX)) != 0)
            continue;
        char         name[128];
        const size_t size = strcspn(*variables, "=");
        (void)snprintf(name, sizeof name, "%.*s",
                       (int)(size < sizeof name ? size : sizeof name - 1), *variables);
        const char *value = (*variables)[size] == '=' ? *variables + size + 1 : "";
        if (!is_known(name) && !is_injected(name, value))
            warn_unknown(config, name);
    }
}

int fl_config_load_variables(fl_config *config, char *const *variables, fletch_error *error) {
    int status = 0;
    check_names(config, variables);
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
    static char *const none[]    = {NULL};
    char *const       *variables = fl_os_environment();
    return fl_config_load_variables(config, variables == NULL ? none : variables, error);
}
