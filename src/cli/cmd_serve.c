/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_serve.c - `fletch serve`: hand the configuration and the models' names to the server.
 *
 * Role    With stored_sqlite.c and move_store.c, which read stores, all of the program that knows src/server.
 * Method  Models are the --model flags in their order, else server.models, else model.id, else none where
 *         server.on_demand names some. The signals
 *         that steer a server are blocked before any thread exists, so that they arrive where the
 *         server waits for them.
 * Memory  The list of names lives as long as the server. Threads: main.
 * Proof   tests/server. */
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "server/serve.h"

/* --verbose is the log's debug level, and twice its trace level, where nothing says which. */
static int be_verbose(const fl_cli *cli, fletch_config *config, fletch_error *error) {
    static const char key[]  = "server.log_level";
    const char       *origin = "";
    (void)fletch_config_get(config, key, &origin);
    return cli->verbose && strcmp(origin, "default") == 0
               ? fletch_config_set(config, key, cli->trace ? "trace" : "debug", error)
               : FLETCH_OK;
}

static fletch_config *reload(void *user, fletch_error *error) {
    fl_cli        *cli    = user;
    fletch_config *config = fl_cli_reread_config(cli, error);
    if (config != NULL && be_verbose(cli, config, error) < 0) {
        fletch_config_free(config);
        return NULL;
    }
    return config;
}

/* Cut "a=low, b=high" at its commas, in place; the number of names in out[capacity]. */
static size_t split(char *text, const char **out, size_t capacity) {
    size_t count = 0;
    char  *rest  = NULL;
    for (char *word = strtok_r(text, ", ", &rest); word != NULL && count < capacity;
         word       = strtok_r(NULL, ", ", &rest))
        out[count++] = word;
    return count;
}

static size_t models_of_flags(const fl_cli *cli, const char **out, size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < cli->args.key_count && count < capacity; i++) {
        const fl_key_value *item = &cli->args.keys[i];
        if (strcmp(item->key, "model.id") == 0 && strcmp(item->flag, "--model") == 0)
            out[count++] = item->value;
    }
    return count;
}

/* Models on demand are all there are where none is named otherwise. */
static bool is_on_demand(const fl_cli *cli) {
    static const char *const names[] = {"model.id", "model.level"};
    bool                     named   = false;
    for (size_t i = 0; i < 2; i++) {
        const char *origin = "";
        (void)fletch_config_get(cli->config, names[i], &origin);
        named = named || strcmp(origin, "default") != 0;
    }
    return !named && fl_cli_option(cli, "server.on_demand")[0] != '\0';
}

static fl_exit serve(fl_cli *cli, const char *const *models, size_t count) {
    fletch_error error   = {0};
    bool         opening = false;
    int          code    = 0;
    fl_serve     serve   = {cli->config, models, count, reload, cli};
    sigset_t     set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (be_verbose(cli, cli->config, &error) < 0 ||
        fl_server_run(&serve, &opening, &code, &error) < 0)
        return fl_cli_fail(&error, opening);
    return (fl_exit)code;
}

fl_exit fl_cmd_serve(fl_cli *cli) {
    enum { MODELS = 64 };
    const char *models[MODELS];
    if (cli->args.rest_count > 0)
        return fl_cli_usage(cli, "serve takes no argument; name a model with --model");
    size_t count = models_of_flags(cli, models, MODELS);
    char  *copy  = fl_strdup(fl_cli_option(cli, "server.models"));
    if (copy == NULL)
        return fl_cli_no_memory();
    if (count == 0)
        count = split(copy, models, MODELS);
    if (count == 0 && !is_on_demand(cli)) {
        models[0] = fletch_config_model(cli->config);
        count     = 1;
    }
    fl_exit exit_code = serve(cli, models, count);
    fl_free(copy);
    return exit_code;
}
