/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - help for the program, its commands and the options, from the tables.
 *
 * Role    `fletch help ...`, `--help`, and the usage that a missing command prints.
 * Method  Nothing here is written by hand about a flag: flags.c and the option table say it once.
 * Proof   tests/cli/test_cli_usage.py asks for the help of every command. */
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/cli.h"

enum { COLUMNS = 96, FLAG_COLUMN = 34 };

/* Words of `text`, wrapped behind column `indent`, where the line stands already. */
static void put_wrapped(fl_buf *out, const char *text, size_t indent) {
    size_t at = indent;
    while (*text != '\0') {
        size_t size = strcspn(text, " ");
        if (at > indent && at + 1 + size > COLUMNS) {
            fl_buf_printf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (at > indent) {
            fl_buf_putc(out, ' ');
            at++;
        }
        fl_buf_append(out, text, size);
        at += size;
        text += size;
        text += *text == ' ';
    }
    fl_buf_putc(out, '\n');
}

static void put_flag(fl_buf *out, const fl_flag *flag) {
    char head[96];
    char letter[8] = "    ";
    if (flag->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", flag->letter);
    snprintf(head, sizeof head, "  %s%s%s%s", letter, flag->name, flag->value != NULL ? " " : "",
             flag->value != NULL ? flag->value : "");
    size_t size = strlen(head);
    fl_buf_puts(out, head);
    if (size + 2 > FLAG_COLUMN)
        fl_buf_printf(out, "\n%*s", FLAG_COLUMN, "");
    else
        fl_buf_printf(out, "%*s", (int)(FLAG_COLUMN - size), "");
    put_wrapped(out, flag->text, FLAG_COLUMN);
}

static void put_program(fl_buf *out) {
    fl_buf_puts(out,
                "fletch turns texts into vectors.\n\nUsage: fletch COMMAND [FLAG ...] ...\n\n");
    const fl_command *command;
    for (size_t i = 0; (command = fl_command_at(i)) != NULL; i++)
        fl_buf_printf(out, "  %-12s%s\n", command->name, command->summary);
    fl_buf_puts(out,
                "\nExamples:\n  fletch embed \"A cat sits on the mat.\"\n  fletch embed -i "
                "texts.txt -o vectors.npy --stats\n  fletch help embed\n\nExit codes: 0 done; 1 "
                "failed while running; 2 wrong usage or configuration; 3 model\nmissing, damaged "
                "or not supported; 4 some inputs rejected, the rest written;\n130 interrupted.\n");
}

void fl_help_command(fl_buf *out, const fl_command *command) {
    if (command == NULL) {
        put_program(out);
        return;
    }
    fl_buf_printf(out, "%s\n\nUsage: fletch %s%s%s%s\n\n%s%s", command->summary, command->name,
                  command->usage[0] != '\0' ? " " : "", command->usage, " [FLAG ...]",
                  command->text, command->text[0] != '\0' ? "\n" : "");
    const fl_flag *flag;
    fl_buf_puts(out, "Flags:\n");
    for (size_t i = 0; (flag = fl_flag_at(i)) != NULL; i++)
        if ((flag->commands & 1u << command->id) != 0)
            put_flag(out, flag);
    if (command->configured) {
        fl_buf_puts(
            out, "\nEvery option is a flag too (--provider-order cpu), an environment variable\n"
                 "(FLETCH_PROVIDER_ORDER) and a key of the configuration file ([provider] order);\n"
                 "`fletch help options` lists them.\n");
    }
    fl_buf_printf(out, "\nExamples:\n%s", command->examples);
}

static void put_option(fl_buf *out, const fletch_option *option) {
    const char *range = strstr(option->bounds, "..") != NULL ? "range" : "one of";
    fl_buf_printf(out, "%s\n    ", option->key);
    put_wrapped(out, option->text, 4);
    fl_buf_printf(out, "    %s  %s\n    type %s, default %s", option->flag, option->environment,
                  option->type, option->default_value[0] != '\0' ? option->default_value : "none");
    if (option->bounds[0] != '\0')
        fl_buf_printf(out, ", %s %s", range, option->bounds);
    fl_buf_putc(out, '\n');
}

static bool put_options(fl_buf *out, const char *key) {
    const fletch_option *option;
    bool                 found = false;
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++) {
        if (key == NULL || strcmp(key, option->key) == 0) {
            fl_buf_puts(out, found ? "\n" : "");
            put_option(out, option);
            found = true;
        }
    }
    return found;
}

/* The topic that was probably meant: a key by any of its names, else a command. */
static const char *suggest(const char *topic) {
    fl_nearest           nearest = fl_nearest_start(topic + strspn(topic, "-"));
    const fletch_option *option;
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++) {
        fl_nearest_see_key(&nearest, option->key, option->key);
        fl_nearest_see_as(&nearest, option->environment, option->key);
    }
    const char *command = fl_command_suggest(topic);
    return nearest.name == NULL || (nearest.distance > 1 && command != NULL) ? command
                                                                             : nearest.name;
}

fl_exit fl_cmd_help(fl_cli *cli) {
    const char       *topic   = cli->args.rest_count > 0 ? cli->args.rest[0] : NULL;
    const fl_command *command = topic != NULL ? fl_command_find(topic) : NULL;
    fl_buf            out     = {0};
    if (topic == NULL || command != NULL) {
        fl_help_command(&out, command);
    } else if (!put_options(&out, strcmp(topic, "options") == 0 ? NULL : topic)) {
        const char *meant = suggest(topic);
        return fl_cli_usage(cli, "no help for '%.64s'; %s%s%s", topic,
                            meant != NULL ? "did you mean '" : "",
                            meant != NULL ? meant : "there is help for commands, options, and keys",
                            meant != NULL ? "'?" : "");
    }
    return fl_cli_print(&out);
}
