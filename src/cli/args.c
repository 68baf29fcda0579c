/* SPDX-License-Identifier: Apache-2.0 */
/* args.c - read the command line by the tables of flags.c and of the library's options.
 *
 * Role    main.c calls it once. It knows how flags are spelled, not what they mean.
 * Method  The first argument that is no flag is the command (so `fletch -q embed` works as well); "--"
 *         ends the flags. `--name value`, `--name=value`, `-n value` and `-nvalue` are the same; a
 *         switch takes no value; a boolean key of the option table may stand alone (true) or be
 *         followed by true or false. Names are never abbreviated: scripts would break when a new flag
 *         makes the short form ambiguous. Values of a choice are checked here, values of option keys
 *         by the library.
 * Memory  Only the two lists are owned; all strings are argv's or static.
 * Proof   tests/cli/test_cli_usage.py. */
#include "cli/args.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "fletch.h"

typedef struct parser {
    fl_args *out;
    int      argc, next;
    char   **argv;
    fl_buf  *problem, *hint;
} parser;

bool fl_choice_holds(const char *choices, const char *word, size_t size) {
    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, word, size) == 0 && (at[size] == '|' || at[size] == '\0'))
            return size > 0;
    }
    return false;
}

bool fl_choice_has(const char *choices, const char *word) {
    return fl_choice_holds(choices, word, strlen(word));
}

bool fl_choice_nearest(const char *choices, const char *word, char *out, size_t capacity) {
    fl_nearest nearest = fl_nearest_start(word);
    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        char name[32];
        at += *at == '|';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "|"), at);
        fl_nearest_see_copy(&nearest, name);
    }
    snprintf(out, capacity, "%s", nearest.name != NULL ? nearest.name : "");
    return nearest.name != NULL;
}

/* "lines|jsonl" is a choice; "FILE" and "ID|DIR|low" (capitals: free text) are not. */
static bool is_choice(const char *value) {
    return strchr(value, '|') != NULL && !(value[0] >= 'A' && value[0] <= 'Z');
}

static bool belongs(const fl_flag *flag, const fl_command *command) {
    return command == NULL || (flag->commands & 1u << command->id) != 0;
}

static const fl_flag *find_flag(const fl_command *command, const char *name, size_t size) {
    const fl_flag *flag;
    for (size_t i = 0; (flag = fl_flag_at(i)) != NULL; i++)
        if (strlen(flag->name) == size && memcmp(flag->name, name, size) == 0 &&
            belongs(flag, command))
            return flag;
    return NULL;
}

static const fletch_option *find_option(const fl_command *command, const char *name, size_t size) {
    if (command != NULL && !command->configured)
        return NULL;
    const fletch_option *option;
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++)
        if (strlen(option->flag) == size && memcmp(option->flag, name, size) == 0)
            return option;
    return NULL;
}

static void say_unknown(parser *p, const char *name, size_t size) {
    const fl_command *command = p->out->command;
    char              word[64];
    snprintf(word, sizeof word, "%.*s", (int)(size < 60 ? size : 60), name);
    fl_buf_printf(p->problem, "unknown flag '%s'%s%s", word, command != NULL ? " for fletch " : "",
                  command != NULL ? command->name : "");
    fl_nearest           nearest = fl_nearest_start(word + strspn(word, "-"));
    const fl_flag       *flag;
    const fletch_option *option;
    for (size_t i = 0; (flag = fl_flag_at(i)) != NULL; i++)
        if (belongs(flag, command))
            fl_nearest_see_as(&nearest, flag->name + 2, flag->name);
    for (size_t i = 0; (option = fletch_option_at(i)) != NULL; i++)
        if (command == NULL || command->configured)
            fl_nearest_see_key(&nearest, option->key, option->flag);
    if (nearest.name != NULL)
        fl_buf_printf(p->hint, "did you mean %s?", nearest.name);
}

static bool push_key(parser *p, const char *key, const char *value, const char *flag) {
    fl_key_value *keys =
        fl_realloc_array(p->out->keys, p->out->key_count + 1, sizeof *p->out->keys);
    if (keys == NULL) {
        fl_buf_puts(p->problem, "out of memory");
        return false;
    }
    p->out->keys                      = keys;
    p->out->keys[p->out->key_count++] = (fl_key_value){key, value, flag};
    return true;
}

/* The value of a flag: behind '=', or the next argument. NULL with a problem when there is none. */
static const char *take_value(parser *p, const char *flag, const char *attached) {
    if (attached != NULL)
        return attached;
    if (p->next >= p->argc) {
        fl_buf_printf(p->problem, "%s needs a value", flag);
        return NULL;
    }
    return p->argv[p->next++];
}

static bool take_flag(parser *p, const fl_flag *flag, const char *attached) {
    const char *value = "true";
    if (flag->value == NULL) {
        if (attached != NULL && (flag->key == NULL || !fl_choice_has("true|false", attached))) {
            fl_buf_printf(p->problem, "%s takes no value", flag->name);
            return false;
        }
        value = attached != NULL ? attached : value;
    } else {
        value = take_value(p, flag->name, attached);
        if (value == NULL)
            return false;
        if (is_choice(flag->value) && !fl_choice_has(flag->value, value)) {
            char meant[32];
            fl_buf_printf(p->problem, "%s must be one of %s, not '%.64s'", flag->name, flag->value,
                          value);
            if (fl_choice_nearest(flag->value, value, meant, sizeof meant))
                fl_buf_printf(p->hint, "did you mean %s?", meant);
            return false;
        }
    }
    if (flag->key != NULL)
        return push_key(p, flag->key, value, flag->name);
    if (flag->id == FL_FLAG_INPUT)
        p->out->inputs[p->out->input_count++] = value;
    /* Of other flags the last counts, as usual; here a whole file, or labels, would be left out in silence. */
    if ((flag->id == FL_FLAG_OUTPUT || flag->id == FL_FLAG_LABELS) &&
        p->out->value[flag->id] != NULL) {
        fl_buf_printf(p->problem, "%s is given twice", flag->name);
        if (flag->id == FL_FLAG_LABELS)
            fl_buf_puts(p->hint, "put all labels into one list (--labels a,b,c).");
        return false;
    }
    if (flag->id == FL_FLAG_VERBOSE && p->out->value[flag->id] != NULL)
        value = "trace"; /* -v -v, or -vv */
    p->out->value[flag->id] = value;
    return true;
}

static bool take_option(parser *p, const fletch_option *option, const char *attached) {
    const char *value = attached;
    if (value == NULL && strcmp(option->type, "bool") == 0) {
        bool follows = p->next < p->argc && fl_choice_has("true|false", p->argv[p->next]);
        value        = follows ? p->argv[p->next++] : "true";
    } else if (value == NULL) {
        value = take_value(p, option->flag, NULL);
    }
    return value != NULL && push_key(p, option->key, value, option->flag);
}

static bool take_long(parser *p, const char *argument) {
    const char *equals   = strchr(argument, '=');
    size_t      size     = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    const char *attached = equals != NULL ? equals + 1 : NULL;

    const fl_flag *flag = find_flag(p->out->command, argument, size);
    if (flag != NULL)
        return take_flag(p, flag, attached);
    const fletch_option *option = find_option(p->out->command, argument, size);
    if (option != NULL)
        return take_option(p, option, attached);
    say_unknown(p, argument, size);
    return false;
}

/* -q, -m ID, -mID, -qv: letters without a value may be joined. */
static bool take_short(parser *p, const char *argument) {
    for (const char *at = argument + 1; *at != '\0'; at++) {
        const fl_flag *flag = NULL, *found = NULL;
        for (size_t i = 0; found == NULL && (flag = fl_flag_at(i)) != NULL; i++)
            found = flag->letter == *at && belongs(flag, p->out->command) ? flag : NULL;
        if (found == NULL) {
            char name[3] = {'-', *at, '\0'};
            say_unknown(p, (unsigned char)*at < 0x80 ? name : argument,
                        (unsigned char)*at < 0x80 ? 2 : strlen(argument));
            if (p->hint->size == 0)
                fl_buf_puts(p->hint, "a text that begins with '-' goes after --.");
            return false;
        }
        if (found->value != NULL)
            return take_flag(p, found, at[1] != '\0' ? at + 1 : NULL);
        if (!take_flag(p, found, NULL))
            return false;
    }
    return true;
}

static bool take_command(parser *p, const char *name) {
    p->out->command = fl_command_find(name);
    if (p->out->command != NULL)
        return true;
    char word[64];
    snprintf(word, sizeof word, "%.60s", name);
    fl_buf_printf(p->problem, "unknown command '%s'", word);
    const char *meant = fl_command_suggest(word);
    if (meant != NULL)
        fl_buf_printf(p->hint, "did you mean 'fletch %s'?", meant);
    else if (strchr(name, ' ') != NULL)
        fl_buf_puts(p->hint, "to embed a text: fletch embed \"...\"");
    return false;
}

/* The command is known before its flags are read: flags in front of it are checked against it too. */
static int find_command(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-')
            return i;
        if (!fl_choice_has("-q|--quiet|-v|-vv|--verbose|-h|--help", argv[i]))
            return 0;
    }
    return 0;
}

bool fl_args_parse(fl_args *out, int argc, char **argv, fl_buf *problem, fl_buf *hint) {
    memset(out, 0, sizeof *out);
    out->rest   = fl_alloc_zero((size_t)argc + 1, sizeof *out->rest);
    out->inputs = fl_alloc_zero((size_t)argc + 1, sizeof *out->inputs);
    if (out->rest == NULL || out->inputs == NULL) {
        fl_buf_puts(problem, "out of memory");
        return false;
    }
    parser p       = {out, argc, 1, argv, problem, hint};
    int    command = find_command(argc, argv);
    if (command > 0 && !take_command(&p, argv[command]))
        return false;
    bool flags = true;
    while (p.next < argc) {
        int         index    = p.next++;
        const char *argument = argv[index];
        if (command > 0 && index == command)
            continue;
        if (flags && strcmp(argument, "--") == 0) {
            flags        = false;
            out->literal = out->rest_count;
        } else if (flags && argument[0] == '-' && argument[1] == '-') {
            if (!take_long(&p, argument))
                return false;
        } else if (flags && argument[0] == '-' && argument[1] != '\0') {
            if (!take_short(&p, argument))
                return false;
        } else {
            out->rest[out->rest_count++] = argument;
        }
    }
    out->literal = flags ? out->rest_count : out->literal;
    return true;
}

void fl_args_free(fl_args *args) {
    fl_free(args->keys);
    fl_free(args->rest);
    fl_free(args->inputs);
    memset(args, 0, sizeof *args);
}
