/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_model.c - `fletch model pull | ls | path | verify | id | rm | convert`.
 *
 * Role    A thin face of the fletch_hub_* calls and of fletch_gguf_write. What scripts need (a folder, a JSON list)
 *         goes to standard output; progress and remarks to standard error.
 * Proof   tests/cli/test_cli_model.py, tests/golden/test_gguf_export.py. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_w.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/progress.h"

enum { PATH_ROOM = 4096 };

static void quote(fl_buf *out, const char *text) {
    fl_json_quote(out, text, strlen(text));
}

/* One path, as text or json. */
static fl_exit print_path(const fl_cli *cli, const char *id, const char *path) {
    fl_buf    out = {0};
    fl_json_w w   = {.out = &out};
    if (fl_cli_is(cli, FL_FLAG_FORMAT, "json")) {
        fl_json_w_object(&w, NULL);
        fl_json_w_text(&w, "id", id);
        fl_json_w_text(&w, "path", path);
        fl_json_w_end(&w);
    } else {
        fl_buf_puts(&out, path);
    }
    fl_buf_putc(&out, '\n');
    return fl_cli_print(&out);
}

static fl_exit do_pull(fl_cli *cli, const char *id) {
    char    path[PATH_ROOM];
    fl_exit code = fl_cli_pull(cli, id, path, sizeof path);
    return code == FL_EXIT_DONE ? print_path(cli, id, path) : code;
}

static fl_exit do_path(fl_cli *cli, const char *id) {
    char         path[PATH_ROOM];
    fletch_error error = {0};
    if (fletch_hub_path(cli->config, id, path, sizeof path, &error) < 0)
        return fl_cli_fail(&error, true);
    return print_path(cli, id, path);
}

typedef struct listing {
    fl_buf   out;
    bool     json;
    unsigned count;
    unsigned unknown; /* verify: files without a hash to check */
} listing;

static int on_entry(void *user, const fletch_hub_entry *entry) {
    listing *list = user;
    fl_buf  *out  = &list->out;
    if (!list->json) {
        if (list->count == 0)
            fl_buf_puts(out, "REVISION      SIZE  FILES  MODEL\n");
        fl_buf_printf(out, "%-8.8s %6.1f MB  %5" PRIu32 "  %s%s%s%s\n", entry->revision,
                      (double)entry->bytes / 1e6, entry->files, entry->id,
                      entry->refs[0] != '\0' ? " (" : "", entry->refs,
                      entry->refs[0] != '\0' ? ")" : "");
        list->count++;
        return 0;
    }
    fl_json_w w = {.out = out};
    fl_buf_puts(out, list->count++ == 0 ? "[\n" : ",\n");
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "id", entry->id);
    fl_json_w_text(&w, "revision", entry->revision);
    fl_json_w_text(&w, "refs", entry->refs);
    fl_json_w_text(&w, "path", entry->path);
    fl_json_w_u64(&w, "bytes", entry->bytes);
    fl_json_w_u64(&w, "files", entry->files);
    fl_json_w_end(&w);
    return 0;
}

static fl_exit do_ls(fl_cli *cli, const char *id) {
    listing      list  = {.json = fl_cli_is(cli, FL_FLAG_FORMAT, "json")};
    fletch_error error = {0};
    (void)id;
    if (fletch_hub_list(cli->config, on_entry, &list, &error) < 0) {
        fl_buf_free(&list.out);
        return fl_cli_fail(&error, true);
    }
    if (list.json)
        fl_buf_puts(&list.out, list.count == 0 ? "[]\n" : "\n]\n");
    else if (list.count == 0 && !cli->quiet)
        fl_cli_message("no model is in the cache yet; `fletch model pull` fetches the default");
    return fl_cli_print(&list.out);
}

static int on_file(void *user, const char *name, const char *value, const char *origin) {
    listing *list    = user;
    bool     good    = strcmp(value, "ok") == 0;
    bool     unknown = origin[0] == '\0' && strncmp(value, "no hash known", 13) == 0; /* no fault */
    list->unknown += unknown;
    if (list->json) {
        fl_buf_puts(&list->out, list->count == 0 ? "{\n" : ",\n");
        quote(&list->out, name);
        fl_buf_putc(&list->out, ':');
        quote(&list->out, value);
    } else {
        fl_buf_printf(&list->out, "%-8s %s\n", good ? "ok" : unknown ? "unknown" : "DAMAGED", name);
        if (!good)
            fl_buf_printf(&list->out, "         %s\n", value);
    }
    list->count++;
    return 0;
}

static fl_exit do_verify(fl_cli *cli, const char *id) {
    listing      list   = {.json = fl_cli_is(cli, FL_FLAG_FORMAT, "json")};
    fletch_error error  = {0};
    int          status = fletch_hub_verify(cli->config, id, on_file, &list, &error);
    if (list.json)
        fl_buf_puts(&list.out, list.count == 0 ? "{}\n" : "\n}\n");
    fl_exit code = fl_cli_print(&list.out);
    if (status >= 0 && list.unknown > 0 && !cli->quiet) {
        fl_cli_message("%u of %u files could not be checked: only the hub cache has hashes",
                       list.unknown, list.count);
    }
    if (status >= 0 && code == FL_EXIT_DONE && list.unknown == list.count) {
        fl_cli_message("no file of %s was verified", id);
        code = FL_EXIT_FAILED;
    }
    return status < 0 ? fl_cli_fail(&error, true) : code;
}

static fl_exit do_rm(fl_cli *cli, const char *id) {
    uint64_t     freed = 0;
    fletch_error error = {0};
    if (cli->args.rest_count < 2)
        return fl_cli_usage(cli, "rm needs the name of a model; `fletch model ls` lists them");
    if (fletch_hub_remove(cli->config, id, &freed, &error) < 0)
        return fl_cli_fail(&error, true);
    if (!cli->quiet)
        fl_cli_message("removed %s, %.1f MB freed", id, (double)freed / 1e6);
    return FL_EXIT_DONE;
}

/* The model is opened as it would be used: what a vector is, is decided by the provider, too. */
static fl_exit do_id(fl_cli *cli, const char *id) {
    fl_buf       out   = {0};
    fl_json_w    w     = {.out = &out};
    fletch_error error = {0};
    char         hex[65], fingerprint[65];
    int          status = fletch_config_set(cli->config, "model.id", id, &error);
    if (status < 0)
        return fl_cli_fail(&error, true);
    FL_CLI_TRY(fl_cli_open_model(cli, false));
    status = fletch_vector_id(cli->model, NULL, FLETCH_FLOAT32, hex, &error);
    if (status == 0 && fl_cli_is(cli, FL_FLAG_FORMAT, "json")) {
        status = fletch_model_fingerprint(cli->model, fingerprint, &error);
        fl_json_w_object(&w, NULL);
        fl_json_w_text(&w, "id", hex);
        fl_json_w_text(&w, "model", fingerprint);
        fl_json_w_text(&w, "dtype", "float32");
        status = status < 0 ? status : fl_cli_put_vector_parts(cli->model, &w, &error);
        fl_json_w_end(&w);
    } else {
        fl_buf_puts(&out, hex);
    }
    if (status < 0) {
        fl_buf_free(&out);
        return fl_cli_fail(&error, false);
    }
    fl_buf_putc(&out, '\n');
    return fl_cli_print(&out);
}

typedef struct convert_view {
    fl_progress progress;
    bool        writes; /* the model is open */
} convert_view;

/* The first signal ends the writing, which removes what there is of the file. */
static int on_converted(void *user, const char *file, uint64_t done, uint64_t total) {
    convert_view *view = user;
    view->writes       = true;
    fl_progress_update(&view->progress, file, done, done, total);
    return fl_signals_asked() != 0;
}

/* Why OUT cannot be written; NULL: it can. */
static const char *refuse_out(const fl_cli *cli, const char *out) {
    if (fl_folder_exists(out))
        return "is a folder; name a file in it, such as model.gguf";
    if (!fl_path_ends_with(out, ".gguf"))
        return "does not end in .gguf, which other programs expect";
    if (fl_file_exists(out) && cli->args.value[FL_FLAG_FORCE] == NULL)
        return "already exists; --force replaces it";
    return NULL;
}

static fl_exit do_convert(fl_cli *cli, const char *id) {
    fletch_error error = {0};
    convert_view view  = {0};
    const char  *out   = cli->args.rest_count > 2 ? cli->args.rest[2] : NULL;
    if (out == NULL)
        return fl_cli_usage(cli,
                            "convert needs a model and the file to write: fletch model convert "
                            "IN OUT.gguf");
    const char *why = refuse_out(cli, out);
    if (why != NULL)
        return fl_cli_usage(cli, "%s %s", out, why);
    FL_CLI_TRY(fl_cli_fetch_if_missing(cli, id));
    fl_progress_open(&view.progress, cli->args.value[FL_FLAG_PROGRESS], cli->quiet, false, "B");
    fl_signals_ask();
    int status = fletch_gguf_write(cli->config, id, out, cli->args.value[FL_FLAG_TYPE],
                                   on_converted, &view, &error);
    fl_progress_clear();
    if (status < 0 && fl_signals_asked() != 0) {
        fl_cli_message("interrupted; %s was not written", out);
        return (fl_exit)(128 + fl_signals_asked());
    }
    return status < 0 ? fl_cli_fail(&error, !view.writes) : print_path(cli, id, out);
}

/* `most` names follow. */
static const struct action {
    const char *name;
    fl_exit (*run)(fl_cli *cli, const char *id);
    unsigned    most;
    const char *takes;
} actions[] = {{"pull", do_pull, 1, "one model at a time"},
               {"ls", do_ls, 0, "no names"},
               {"path", do_path, 1, "one model at a time"},
               {"verify", do_verify, 1, "one model at a time"},
               {"id", do_id, 1, "one model at a time"},
               {"rm", do_rm, 1, "one model at a time"},
               {"convert", do_convert, 2, "one model and the file to write"}};

fl_exit fl_cmd_model(fl_cli *cli) {
    const fl_args       *args   = &cli->args;
    const struct action *action = NULL;
    if (args->rest_count == 0)
        return fl_cli_usage(cli, "say what to do: %s", args->command->words);
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        action = strcmp(actions[i].name, args->rest[0]) == 0 ? &actions[i] : action;
    if (action == NULL) {
        const char *meant = fl_command_suggest(args->rest[0]); /* "model ls" for list */
        char        near[32];
        if (meant != NULL && strncmp(meant, "model ", 6) == 0)
            snprintf(near, sizeof near, "%s", meant + 6);
        else
            (void)fl_choice_nearest(args->command->words, args->rest[0], near, sizeof near);
        return fl_cli_usage(cli, "unknown subcommand; use %s, not '%.64s'%s%s%s",
                            args->command->words, args->rest[0],
                            near[0] != '\0' ? "; did you mean " : "", near,
                            near[0] != '\0' ? "?" : "");
    }
    if (args->rest_count > 1 + action->most)
        return fl_cli_usage(cli, "%s takes %s", action->name, action->takes);
    return action->run(cli,
                       args->rest_count > 1 ? args->rest[1] : fletch_config_model(cli->config));
}
