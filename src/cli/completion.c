/* SPDX-License-Identifier: Apache-2.0 */
/* completion.c - `fletch completion bash | zsh | fish`: scripts made from the tables.
 *
 * Role    Printed by the program, so a script always fits the program that printed it.
 * Method  Every flag becomes one line or case: its name, what follows it (one of some words, a file, a
 *         free value) and for zsh and fish its sentence. What follows is read off the value column of
 *         the tables: "a|b" are words, FILE and DIR are paths.
 * Proof   tests/cli/test_cli_completion.py sources the bash script and asks it; completions/ has copies. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

typedef enum after { AFTER_NOTHING, AFTER_WORDS, AFTER_FILE, AFTER_ANY } after;

static after what_follows(const char *value) {
    if (value == NULL)
        return AFTER_NOTHING;
    if (strstr(value, "FILE") != NULL || strstr(value, "DIR") != NULL)
        return AFTER_FILE;
    bool words = strchr(value, '|') != NULL && strchr(value, '.') == NULL &&
                 !(value[0] >= 'A' && value[0] <= 'Z');
    return words ? AFTER_WORDS : AFTER_ANY;
}

/* An option's value as the flags' column has it: choices, true|false, or free. */
static const char *option_value(const fletch_option *option) {
    if (strcmp(option->type, "bool") == 0)
        return "true|false";
    bool choice = strcmp(option->type, "enum") == 0 || strcmp(option->type, "list") == 0;
    if (choice && option->bounds[0] != '\0')
        return option->bounds;
    bool path = strstr(option->key, "file") != NULL || strstr(option->key, "_dir") != NULL ||
                strstr(option->key, "library") != NULL;
    return path ? "FILE" : "VALUE";
}

/* "a|b" as "a b". */
static void put_words(fl_buf *out, const char *value) {
    for (; *value != '\0'; value++)
        fl_buf_putc(out, *value == '|' ? ' ' : *value);
}

static void put_commands(fl_buf *out) {
    const fl_command *command;
    for (size_t i = 0; (command = fl_command_at(i)) != NULL; i++)
        fl_buf_printf(out, "%s%s", i > 0 ? " " : "", command->name);
}

/* ---- bash ---- */

static void bash_case(fl_buf *out, const char *command, const char *flag, const char *value) {
    after next = what_follows(value);
    if (next == AFTER_NOTHING)
        return;
    fl_buf_printf(out, "    %s:%s) ", command, flag);
    if (next == AFTER_WORDS) {
        fl_buf_puts(out, "COMPREPLY=($(compgen -W \"");
        put_words(out, value);
        fl_buf_puts(out, "\" -- \"$word\")); return ;;\n");
    } else {
        fl_buf_puts(out, next == AFTER_FILE ? "compopt -o default 2>/dev/null; return ;;\n"
                                            : "return ;;\n");
    }
}

static void bash_flags(fl_buf *out, const fl_command *command) {
    const fl_flag       *flag;
    const fletch_option *option;
    fl_buf_printf(out, "    %s) flags=\"", command->name);
    for (size_t i = 0; (flag = fl_flag_at(i)) != NULL; i++)
        if ((flag->commands & 1u << command->id) != 0)
            fl_buf_printf(out, "%s ", flag->name);
    fl_buf_printf(out, "%s\" words=\"", command->configured ? "$options" : "");
    put_words(out, command->words != NULL ? command->words : "");
    if (command->id == FL_CMD_HELP) {
        put_commands(out);
        fl_buf_puts(out, " options");
        for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++)
            fl_buf_printf(out, " %s", option->key);
    }
    fl_buf_puts(out, "\" ;;\n");
}

static void put_bash(fl_buf *out) {
    const fl_command    *command;
    const fl_flag       *flag;
    const fletch_option *option;
    fl_buf_puts(out, "# bash completion for fletch; printed by: fletch completion bash\n"
                     "_fletch() {\n"
                     "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
                     "  local command= flags= words= i options=\"");
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++)
        fl_buf_printf(out, "%s%s", i > 0 ? " " : "", option->flag);
    fl_buf_puts(out,
                "\"\n  COMPREPLY=()\n"
                "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
                "    case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac\n"
                "  done\n"
                "  if [[ -z $command ]]; then\n"
                "    COMPREPLY=($(compgen -W \"");
    put_commands(out);
    fl_buf_puts(out, " --help --version\" -- \"$word\"))\n    return\n  fi\n"
                     "  case $command:$before in\n");
    for (size_t i = 0; (command = fl_command_at(i)) != NULL; i++) {
        for (size_t j = 0; (flag = fl_flag_at(j)) != NULL; j++) {
            if ((flag->commands & 1u << command->id) == 0)
                continue;
            bash_case(out, command->name, flag->name, flag->value);
            if (flag->letter != 0) {
                char letter[3] = {'-', flag->letter, '\0'};
                bash_case(out, command->name, letter, flag->value);
            }
        }
    }
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++)
        bash_case(out, "*", option->flag, option_value(option));
    fl_buf_puts(out, "  esac\n  case $command in\n");
    for (size_t i = 0; (command = fl_command_at(i)) != NULL; i++)
        bash_flags(out, command);
    fl_buf_puts(out, "  esac\n"
                     "  if [[ $word == -* ]]; then\n"
                     "    COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
                     "  elif [[ -n $words ]]; then\n"
                     "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                     "  fi\n"
                     "}\n"
                     "complete -F _fletch fletch\n");
}

/* ---- zsh ---- */

/* A sentence inside '...' of an _arguments specification: brackets, colons and quotes must go. */
static void zsh_text(fl_buf *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fl_buf_puts(out, "'\\''");
        } else if (*text == '[' || *text == ']' || *text == ':' || *text == '\\') {
            fl_buf_putc(out, '\\');
            fl_buf_putc(out, *text);
        } else {
            fl_buf_putc(out, *text);
        }
    }
}

/* `joint` stands between the flag and its value: "=" for long names, "+" (or a space) for letters. */
static void zsh_flag(fl_buf *out, const char *name, const char *joint, const char *text,
                     const char *value) {
    after next = what_follows(value);
    fl_buf_printf(out, "        '*%s%s[", name, next == AFTER_NOTHING ? "" : joint);
    zsh_text(out, text);
    fl_buf_putc(out, ']');
    if (next == AFTER_WORDS) {
        fl_buf_puts(out, ":value:(");
        put_words(out, value);
        fl_buf_putc(out, ')');
    } else if (next != AFTER_NOTHING) {
        fl_buf_puts(out, next == AFTER_FILE ? ":file:_files" : ":value: ");
    }
    fl_buf_puts(out, "' \\\n");
}

static void zsh_command(fl_buf *out, const fl_command *command) {
    const fl_flag *flag;
    fl_buf_printf(out, "    %s)\n      _arguments -s \\\n", command->name);
    for (size_t i = 0; (flag = fl_flag_at(i)) != NULL; i++) {
        if ((flag->commands & 1u << command->id) == 0)
            continue;
        zsh_flag(out, flag->name, "=", flag->text, flag->value);
        if (flag->letter != 0) {
            char letter[3] = {'-', flag->letter, '\0'};
            zsh_flag(out, letter, "+", flag->text, flag->value);
        }
    }
    fl_buf_puts(out, command->configured ? "        $options \\\n        " : "        ");
    if (command->words != NULL || command->id == FL_CMD_HELP) {
        fl_buf_puts(out, "'1:what:(");
        put_words(out, command->words != NULL ? command->words : "options ");
        if (command->id == FL_CMD_HELP)
            put_commands(out);
        fl_buf_puts(out, ")' ");
    }
    fl_buf_puts(out, "'*:argument:_files' ;;\n");
}

static void put_zsh(fl_buf *out) {
    const fl_command    *command;
    const fletch_option *option;
    fl_buf_puts(out,
                "#compdef fletch\n# zsh completion for fletch; printed by: fletch completion zsh\n"
                "_fletch() {\n  local -a commands options\n  commands=(\n");
    for (size_t i = 0; (command = fl_command_at(i)) != NULL; i++) {
        fl_buf_printf(out, "    '%s:", command->name);
        zsh_text(out, command->summary);
        fl_buf_puts(out, "'\n");
    }
    fl_buf_puts(out, "  )\n  options=( \\\n");
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++)
        zsh_flag(out, option->flag, "=", option->text, option_value(option));
    fl_buf_puts(out, "  )\n"
                     "  if (( CURRENT == 2 )); then\n"
                     "    _describe command commands\n    return\n  fi\n"
                     "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n"
                     "  case $command in\n");
    for (size_t i = 0; (command = fl_command_at(i)) != NULL; i++)
        zsh_command(out, command);
    fl_buf_puts(out, "  esac\n}\n_fletch \"$@\"\n");
}

/* ---- fish ---- */

static void fish_text(fl_buf *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\')
            fl_buf_putc(out, '\\');
        fl_buf_putc(out, *text);
    }
}

static void fish_flag(fl_buf *out, const char *seen, const char *name, char letter,
                      const char *text, const char *value) {
    after next = what_follows(value);
    fl_buf_printf(out, "complete -c fletch -n '%s' -l %s", seen, name + 2);
    if (letter != 0)
        fl_buf_printf(out, " -s %c", letter);
    if (next == AFTER_WORDS) {
        fl_buf_puts(out, " -x -a '");
        put_words(out, value);
        fl_buf_putc(out, '\'');
    } else if (next != AFTER_NOTHING) {
        fl_buf_puts(out, next == AFTER_FILE ? " -r -F" : " -x");
    }
    fl_buf_puts(out, " -d '");
    fish_text(out, text);
    fl_buf_puts(out, "'\n");
}

static void put_fish(fl_buf *out) {
    const fl_command    *command;
    const fl_flag       *flag;
    const fletch_option *option;
    fl_buf               configured = {0};
    fl_buf_puts(out, "# fish completion for fletch; printed by: fletch completion fish\n"
                     "complete -c fletch -f\n");
    fl_buf_puts(&configured, "__fish_seen_subcommand_from");
    for (size_t i = 0; (command = fl_command_at(i)) != NULL; i++) {
        fl_buf_printf(out, "complete -c fletch -n __fish_use_subcommand -a %s -d '", command->name);
        fish_text(out, command->summary);
        fl_buf_puts(out, "'\n");
        if (command->configured)
            fl_buf_printf(&configured, " %s", command->name);
        char seen[96];
        snprintf(seen, sizeof seen, "__fish_seen_subcommand_from %s", command->name);
        if (command->words != NULL) {
            fl_buf_printf(out, "complete -c fletch -n '%s' -a '", seen);
            put_words(out, command->words);
            fl_buf_puts(out, "'\n");
        }
        for (size_t j = 0; (flag = fl_flag_at(j)) != NULL; j++)
            if ((flag->commands & 1u << command->id) != 0)
                fish_flag(out, seen, flag->name, flag->letter, flag->text, flag->value);
    }
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++) {
        fish_flag(out, configured.size > 0 ? configured.data : "", option->flag, 0, option->text,
                  option_value(option));
    }
    fl_buf_free(&configured);
}

fl_exit fl_cmd_completion(fl_cli *cli) {
    const fl_args *args = &cli->args;
    if (args->rest_count != 1 || !fl_choice_has(args->command->words, args->rest[0]))
        return fl_cli_usage(cli, "which shell? %s", args->command->words);
    fl_buf out = {0};
    if (strcmp(args->rest[0], "bash") == 0)
        put_bash(&out);
    else if (strcmp(args->rest[0], "zsh") == 0)
        put_zsh(&out);
    else
        put_fish(&out);
    return fl_cli_print(&out);
}
