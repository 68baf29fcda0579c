/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_config.c - `fletch config`: every option, its value, and where the value came from.
 *
 * Role    The answer to "why does it do that here and not there".
 * Method  Prints TOML, so the output is itself a configuration file; --show-origin puts the origin in a
 *         comment behind each value. `--preset NAME` alone prints what the preset sets, on top of nothing
 *         else, and why it sets it. `get KEY` prints the bare value for scripts.
 * Proof   tests/cli/test_cli_config.py reads the output back. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/json_w.h"
#include "base/suggest.h"
#include "cli/cli.h"

/* "a,b" as ["a", "b"]. */
static void put_list(fl_buf *out, const char *value) {
    fl_buf_putc(out, '[');
    const char *separator = "";
    for (const char *at = value; *at != '\0';) {
        size_t size = strcspn(at, ",");
        fl_buf_puts(out, separator);
        fl_json_quote(out, at, size);
        separator = ", ";
        at += size;
        at += *at == ',';
    }
    fl_buf_putc(out, ']');
}

static bool is_number(const char *text) {
    return text[0] != '\0' && strspn(text, "0123456789.-") == strlen(text);
}

/* The value as a TOML literal of its type; words such as "none" stay strings. */
static void put_value(fl_buf *out, const fletch_option *option, const char *value) {
    bool number = strcmp(option->type, "int") == 0 || strcmp(option->type, "float") == 0;
    bool size   = strcmp(option->type, "size") == 0;
    if (strcmp(option->type, "bool") == 0 || ((number || size) && is_number(value)))
        fl_buf_puts(out, value);
    else if (strcmp(option->type, "list") == 0)
        put_list(out, value);
    else /* a basic string; JSON's escapes are all TOML's too */
        fl_json_quote(out, value, strlen(value));
}

/* Why the preset sets this key; "" where it does not. */
static const char *preset_reason(const char *preset, const char *key) {
    const fletch_preset *line;
    for (size_t i = 0; (line = fletch_preset_at(i)) != NULL; i++)
        if (strcmp(line->name, preset) == 0 && strcmp(line->key, key) == 0)
            return line->text;
    return "";
}

/* A comment that starts in the same column on every line. */
static void put_comment(fl_buf *out, size_t line_start, const char *text) {
    size_t width = out->size - line_start;
    fl_buf_printf(out, "%*s# %s", (int)(width < 40 ? 40 - width : 1), "", text);
}

/* With a `preset`, only what was set, and why. */
static void put_toml(fl_buf *out, const fletch_config *config, bool origins, const char *preset) {
    const fletch_option *option;
    char                 section[64] = "";
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++) {
        const char *origin = "";
        const char *value  = fletch_config_get(config, option->key, &origin);
        if (value == NULL || (preset != NULL && strcmp(origin, "default") == 0))
            continue;
        size_t size = strcspn(option->key, "."); /* "cpu" of "cpu.isa" */
        if (strlen(section) != size || strncmp(section, option->key, size) != 0) {
            snprintf(section, sizeof section, "%.*s", (int)size, option->key);
            fl_buf_printf(out, "%s[%s]\n", out->size > 0 ? "\n" : "", section);
        }
        size_t start = out->size;
        fl_buf_printf(out, "%s = ", option->key + size + 1);
        put_value(out, option, value);
        if (preset != NULL)
            put_comment(out, start, preset_reason(preset, option->key));
        else if (origins)
            put_comment(out, start, origin);
        fl_buf_putc(out, '\n');
    }
}

static void put_json(fl_buf *out, const fletch_config *config, bool only_set) {
    const fletch_option *option;
    const char          *separator = "[\n";
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++) {
        const char *origin = "";
        const char *value  = fletch_config_get(config, option->key, &origin);
        if (value == NULL || (only_set && strcmp(origin, "default") == 0))
            continue;
        fl_json_w w = {.out = out};
        fl_buf_puts(out, separator);
        fl_json_w_object(&w, NULL);
        fl_json_w_text(&w, "key", option->key);
        fl_json_w_text(&w, "value", value);
        fl_json_w_text(&w, "origin", origin);
        fl_json_w_text(&w, "type", option->type);
        fl_json_w_text(&w, "default", option->default_value);
        fl_json_w_text(&w, "bounds", option->bounds);
        fl_json_w_text(&w, "flag", option->flag);
        fl_json_w_text(&w, "environment", option->environment);
        fl_json_w_text(&w, "text", option->text);
        fl_json_w_end(&w);
        separator = ",\n";
    }
    fl_buf_puts(out, separator[0] == '[' ? "[]\n" : "\n]\n");
}

/* `get KEY`: the value alone, or with its origin behind a tab. */
static fl_exit get_one(fl_cli *cli) {
    if (cli->args.rest_count != 2)
        return fl_cli_usage(cli, "get needs one key, e.g. model.id");
    const char *key    = cli->args.rest[1];
    const char *origin = "";
    const char *value  = fletch_config_get(cli->config, key, &origin);
    if (value == NULL) {
        fl_nearest           nearest = fl_nearest_start(key);
        const fletch_option *option;
        for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++) {
            fl_nearest_see_key(&nearest, option->key, option->key);
            fl_nearest_see_as(&nearest, option->environment, option->key);
        }
        return fl_cli_usage(
            cli, "unknown key '%.64s'%s%s%s", key, nearest.name != NULL ? "; did you mean " : "",
            nearest.name != NULL ? nearest.name : "", nearest.name != NULL ? "?" : "");
    }
    fl_buf out = {0};
    fl_buf_puts(&out, value);
    if (cli->args.value[FL_FLAG_SHOW_ORIGIN] != NULL)
        fl_buf_printf(&out, "\t%s", origin);
    fl_buf_putc(&out, '\n');
    return fl_cli_print(&out);
}

fl_exit fl_cmd_config(fl_cli *cli) {
    const fl_args *args = &cli->args;
    if (args->rest_count > 0 && strcmp(args->rest[0], "get") == 0)
        return get_one(cli);
    if (args->rest_count > 0)
        return fl_cli_usage(cli, "unknown argument '%.64s'; config takes `get KEY`", args->rest[0]);
    bool           origins = args->value[FL_FLAG_SHOW_ORIGIN] != NULL;
    const char    *preset  = args->value[FL_FLAG_PRESET];
    bool           alone   = preset != NULL && !origins && args->key_count == 0;
    fletch_config *config  = cli->config;
    fletch_error   error   = {0};
    if (alone) { /* what the preset sets, whatever environment and files say */
        config = fletch_config_new();
        if (config == NULL || fletch_config_preset(config, preset, &error) < 0) {
            fletch_config_free(config);
            return fl_cli_fail(&error, false);
        }
    }
    fl_buf out = {0};
    if (fl_cli_is(cli, FL_FLAG_FORMAT, "json"))
        put_json(&out, config, alone);
    else
        put_toml(&out, config, origins, alone ? preset : NULL);
    if (alone)
        fletch_config_free(config);
    return fl_cli_print(&out);
}
