/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - from flags, environment and files to an open model.
 *
 * Role    main.c loads the configuration, the commands open the model through here.
 * Method  The library ranks the sources itself (flag, environment, file, preset, default), so the order
 *         of the calls does not matter; what a flag got wrong is reported under the flag's name.
 *         A model that is missing is fetched here, before fletch_open, only so that the person waiting
 *         sees a progress bar; fletch_open would fetch it as well.
 * Memory  Configuration and model belong to the fl_cli. Threads: main; the log may come from any.
 * Proof   tests/cli/test_cli_config.py, test_cli_errors.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/progress.h"

static void on_log(void *user, int level, const char *message) {
    static const char *const names[] = {"error", "warning", "note", "debug", "trace"};
    const fl_cli            *cli     = user;
    int                      shown   = cli->trace ? 4 : cli->verbose ? 3 : cli->quiet ? 0 : 1;
    if (level < 0 || level > shown)
        return;
    fl_cli_message("%s: %s", names[level], message);
}

/* Whose fault a failure of read_sources was. */
typedef struct culprit {
    const char *flag;    /* a flag of the command line; NULL: none */
    bool        by_name; /* the file that FLETCH_CONFIG names */
} culprit;

/* Preset, files, environment and flags into `config`. */
static int read_sources(const fl_cli *cli, fletch_config *config, culprit *whose,
                        fletch_error *error) {
    const char *preset = cli->args.value[FL_FLAG_PRESET];
    const char *flag   = cli->args.value[FL_FLAG_CONFIG];
    const char *file   = flag != NULL ? flag : getenv("FLETCH_CONFIG");
    if (preset != NULL)
        FL_TRY(fletch_config_preset(config, preset, error));
    if (cli->args.value[FL_FLAG_APP_CONFIG] != NULL)
        FL_TRY(fletch_config_load_app(config, cli->args.value[FL_FLAG_APP_CONFIG], error));
    if (file != NULL && file[0] != '\0') {
        whose->by_name = flag == NULL;
        FL_TRY(fletch_config_load(config, file, error));
        whose->by_name = false;
    }
    FL_TRY(fletch_config_load_env(config, error));
    for (size_t i = 0; i < cli->args.key_count; i++) {
        const fl_key_value *item = &cli->args.keys[i];
        whose->flag              = item->flag;
        FL_TRY(fletch_config_set(config, item->key, item->value, error));
    }
    return FLETCH_OK;
}

fl_exit fl_cli_load_config(fl_cli *cli) {
    fletch_error error = {0};
    culprit      whose = {NULL, false};
    cli->config        = fletch_config_new();
    if (cli->config == NULL)
        return fl_cli_no_memory();
    fletch_config_set_log(cli->config, on_log, cli);
    fletch_config_set_trace_log(cli->config, cli->trace);
    if (read_sources(cli, cli->config, &whose, &error) == FLETCH_OK)
        return FL_EXIT_DONE;
    if (whose.flag != NULL)
        return fl_cli_usage(cli, "%s: %s", whose.flag, error.message);
    (void)fl_cli_fail(&error, false);
    if (whose.by_name)
        fl_cli_hint("this is the file that FLETCH_CONFIG names");
    return FL_EXIT_USAGE;
}

fletch_config *fl_cli_reread_config(fl_cli *cli, fletch_error *error) {
    culprit        whose  = {NULL, false};
    fletch_config *config = fletch_config_new();
    if (config == NULL) {
        (void)fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory");
    } else if (read_sources(cli, config, &whose, error) < 0) {
        fletch_config_free(config);
        config = NULL;
    }
    return config;
}

const char *fl_cli_option(const fl_cli *cli, const char *key) {
    return fletch_config_get(cli->config, key, NULL);
}

static bool is_true(const fl_cli *cli, const char *key) {
    return strcmp(fl_cli_option(cli, key), "true") == 0;
}

/* The bar of a download; one file after the other. */
typedef struct pull_view {
    fl_progress progress;
    char        file[64];
    const char *announce; /* said before the first byte; NULL for nothing (more) */
} pull_view;

static int on_pull(void *user, const char *file, uint64_t done, uint64_t total) {
    pull_view *view = user;
    if (view->announce != NULL && done < total) { /* not while the list is asked for */
        fl_cli_message("downloading the model %s; this happens once", view->announce);
        view->announce = NULL;
    }
    if (strncmp(view->file, file, sizeof view->file - 1) != 0) {
        snprintf(view->file, sizeof view->file, "%s", file);
        fl_progress_restart(&view->progress, done);
    }
    fl_progress_update(&view->progress, view->file, done, done, total);
    return 0;
}

/* A model that is not to be had. A bare word that is the name of a file or folder here was looked up
 * as a hub id all the same; whoever meant the one beside them must hear why. */
static fl_exit fail_model(const char *id, const fletch_error *error) {
    bool folder = fl_folder_exists(id);
    bool lookup = error->code == FLETCH_ENETWORK || error->code == FLETCH_ENOTFOUND ||
                  error->code == FLETCH_EDENIED;
    if (!lookup || strchr(id, '/') != NULL || (!folder && !fl_file_exists(id)))
        return fl_cli_fail(error, true);
    fl_cli_message("%s", error->message);
    fl_cli_hint(
        folder ? "the folder ./%s has neither config.json nor tokenizer.json, so it is not a model"
               : "./%s is a file; name its folder with --model",
        id);
    return fl_cli_exit_code(error->code, true);
}

fl_exit fl_cli_pull(fl_cli *cli, const char *id, char *path, size_t capacity) {
    pull_view    view;
    fletch_error error = {0};
    memset(&view, 0, sizeof view);
    view.announce = cli->quiet ? NULL : id;
    fl_progress_open(&view.progress, cli->args.value[FL_FLAG_PROGRESS], cli->quiet, false, "B");
    int status = fletch_hub_pull(cli->config, id, on_pull, &view, path, capacity, &error);
    fl_progress_clear();
    return status < 0 ? fail_model(id, &error) : FL_EXIT_DONE;
}

fl_exit fl_cli_fetch_if_missing(fl_cli *cli, const char *id) {
    char         path[4096];
    fletch_error error = {0};
    bool         file  = fl_file_exists(id) && fl_path_ends_with(id, ".onnx");
    if (id[0] == '\0' || fl_folder_exists(id) || file || is_true(cli, "model.offline") ||
        !is_true(cli, "model.auto_download") ||
        fletch_hub_path(cli->config, id, path, sizeof path, &error) != FLETCH_ENOTFOUND)
        return FL_EXIT_DONE;
    if (strchr(id, '\\') != NULL || id[0] == '/' || id[0] == '.' || id[0] == '~')
        return FL_EXIT_DONE; /* a path that does not exist, no name of the hub */
    return fl_cli_pull(cli, id, path, sizeof path);
}

fl_exit fl_cli_open_model(fl_cli *cli, bool tokenizer_only) {
    FL_CLI_TRY(fl_cli_fetch_if_missing(cli, fletch_config_model(cli->config)));
    fletch_error error = {0};
    int status = tokenizer_only ? fletch_open_tokenizer(&cli->model, NULL, cli->config, &error)
                                : fletch_open(&cli->model, NULL, cli->config, &error);
    return status < 0 ? fail_model(fletch_config_model(cli->config), &error) : FL_EXIT_DONE;
}

typedef struct wanted_property {
    const char *name;
    char       *out;
    size_t      capacity;
    bool        found;
} wanted_property;

static int on_property(void *user, const char *name, const char *value, const char *origin) {
    wanted_property *wanted = user;
    (void)origin;
    if (strcmp(name, wanted->name) != 0)
        return 0;
    snprintf(wanted->out, wanted->capacity, "%s", value);
    wanted->found = true;
    return 1;
}

bool fl_cli_model_property(fletch_model *model, const char *name, char *out, size_t capacity) {
    wanted_property wanted = {name, out, capacity, false};
    (void)fletch_model_describe(model, on_property, &wanted);
    return wanted.found;
}

static int put_vector_part(void *user, const char *name, const char *value, const char *origin) {
    (void)origin;
    if (strcmp(name, "model") != 0 && strcmp(name, "dtype") != 0)
        fl_json_w_text(user, name, value);
    return 0;
}

int fl_cli_put_vector_parts(fletch_model *model, fl_json_w *w, fletch_error *error) {
    return fletch_vector_describe(model, put_vector_part, w, error);
}
