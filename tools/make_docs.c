/* SPDX-License-Identifier: Apache-2.0 */
/* make_docs.c - the option table and the command tables as documentation.
 *
 * Role    `make_docs options` writes docs/options.md, `make_docs fletch.1` and `make_docs
 *         fletch.toml.5` the man pages, all to standard output; cmake/man.cmake runs it. Nothing
 *         that a table says is written a second time by hand.
 * In/Out  fletch_option_at, fletch_preset_at, the aliases of src/config, and the commands and flags
 *         of src/cli/flags.c -> Markdown or man(7) text. No date: same tables, same bytes.
 * Method  flags.c is compiled into this tool for its tables alone; the commands it points to are
 *         the empty functions below.
 * Proof   the test docs_options compares docs/options.md; man_pages has groff read the pages. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "config/config_internal.h"

#define NOT_RUN(name)                                                                              \
    fl_exit name(fl_cli *cli) {                                                                    \
        (void)cli;                                                                                 \
        return FL_EXIT_FAILED;                                                                     \
    }
NOT_RUN(fl_cmd_embed)
NOT_RUN(fl_cmd_scores)
NOT_RUN(fl_cmd_run)
NOT_RUN(fl_cmd_serve)
NOT_RUN(fl_cmd_canary)
NOT_RUN(fl_cmd_verify)
NOT_RUN(fl_cmd_health)
NOT_RUN(fl_cmd_add)
NOT_RUN(fl_cmd_search)
NOT_RUN(fl_cmd_tokenize)
NOT_RUN(fl_cmd_decode)
NOT_RUN(fl_cmd_chunk)
NOT_RUN(fl_cmd_model)
NOT_RUN(fl_cmd_config)
NOT_RUN(fl_cmd_doctor)
NOT_RUN(fl_cmd_bench)
NOT_RUN(fl_cmd_version)
NOT_RUN(fl_cmd_completion)
NOT_RUN(fl_cmd_help)

static void put(const char *text) {
    (void)fputs(text, stdout);
}

/* Whether option `index` begins a room; its name into out. */
static bool begins_room(size_t index, char out[32]) {
    const char  *key  = fletch_option_at(index)->key;
    const size_t size = strcspn(key, ".");
    (void)snprintf(out, 32, "%.*s", (int)size, key);
    if (index == 0)
        return true;
    return strncmp(fletch_option_at(index - 1)->key, key, size + 1) != 0;
}

/* ---- Markdown -------------------------------------------------------------------------------- */

/* A table cell: '|' would end it. */
static void cell(const char *text) {
    for (; *text != '\0'; text++)
        if (*text == '|')
            put("\\|");
        else
            (void)putchar(*text);
}

/* A cell in code letters, empty when there is nothing to show. Inside them GitHub wants \| too. */
static void code_cell(const char *text) {
    if (*text == '\0')
        return;
    put("`");
    cell(text);
    put("`");
}

static void options_head(void) {
    put("# Options\n\n"
        "Made by `tools/make_docs.c` from the table in `src/config/options.h` (target `docs`): do "
        "not "
        "edit.\n\n"
        "Every key can be set in four places; the highest that sets it wins, whatever the "
        "order:\n\n"
        "1. a flag, `--cpu-intra-op-threads 4` (the key with dashes), or `fletch_config_set`;\n"
        "2. the environment, `FLETCH_CPU_INTRA_OP_THREADS=4` (the key in capitals);\n"
        "3. a TOML file given by `--config` or `FLETCH_CONFIG` (see [toml.md](toml.md)):\n\n"
        "   ```toml\n   [cpu]\n   intra_op_threads = 4\n   ```\n\n"
        "4. a preset, `--preset latency`;\n\n"
        "and below them stands the default. `fletch config --show-origin` prints every value and "
        "its "
        "place.\n"
        "An unknown key is an error that names the nearest one, an unknown FLETCH_ variable a "
        "warning. Variables that\n"
        "Kubernetes and Docker make of a service called fletch (FLETCH_SERVICE_HOST, "
        "FLETCH_PORT=tcp://...) are\n"
        "passed over.\n\n"
        "Types: *bool* is true/false, 1/0, yes/no or on/off; *size* is bytes, or a number with k, "
        "M, G, "
        "KiB, MiB, GiB\n(powers of 1024) or kB, MB, GB (of 1000); *list* is words with commas, or "
        "a TOML "
        "array. Case does not matter.\n");
}

static void options_presets(void) {
    put("\n## Presets\n\nA preset is a set of lines like these and nothing else.\n\n"
        "| preset | key | value | why |\n|---|---|---|---|\n");
    for (size_t i = 0; fletch_preset_at(i) != NULL; i++) {
        const fletch_preset *line = fletch_preset_at(i);
        (void)printf("| %s | `%s` | `%s` | %s |\n", line->name, line->key, line->value, line->text);
    }
}

static void options_aliases(void) {
    put("\n## Other names\n\nWhere two names of one key are set, the full name wins.\n\n"
        "| in the environment | key |\n|---|---|\n");
    for (size_t i = 0; fl_environment_alias_at(i) != NULL; i++)
        (void)printf("| `%s` | `%s` |\n", fl_environment_alias_at(i)->name,
                     fl_option(fl_environment_alias_at(i)->key)->key);
    put("\n| in a file | key |\n|---|---|\n");
    for (size_t i = 0; fl_file_alias_at(i) != NULL; i++)
        (void)printf("| `%s` | `%s` |\n", fl_file_alias_at(i)->name,
                     fl_option(fl_file_alias_at(i)->key)->key);
    put("\n| on the command line | key |\n|---|---|\n");
    for (size_t i = 0; fl_flag_at(i) != NULL; i++)
        if (fl_flag_at(i)->key != NULL)
            (void)printf("| `%s` | `%s` |\n", fl_flag_at(i)->name, fl_flag_at(i)->key);
}

static void options_page(void) {
    char room[32];
    options_head();
    for (size_t i = 0; fletch_option_at(i) != NULL; i++) {
        const fletch_option *option = fletch_option_at(i);
        if (begins_room(i, room))
            (void)printf("\n## %s\n\n| key | type | default | bounds | meaning |\n"
                         "|---|---|---|---|---|\n",
                         room);
        (void)printf("| `%s` | %s | ", option->key, option->type);
        code_cell(option->default_value);
        put(" | ");
        code_cell(option->bounds);
        put(" | ");
        cell(option->text);
        put(" |\n");
    }
    options_presets();
    options_aliases();
}

/* ---- man(7) ---------------------------------------------------------------------------------- */

/* Text in which nothing is markup: '-' must stay an ASCII minus (people copy it), a '.' or quote at
 * the start of a line must not become a request. */
static void roff(const char *text) {
    bool start = true;
    for (; *text != '\0'; text++) {
        if (start && (*text == '.' || *text == '\''))
            put("\\&");
        if (*text == '-')
            put("\\-");
        else if (*text == '\\')
            put("\\e");
        else if (*text == '|')
            put("|\\:"); /* a long list of choices may be broken here */
        else
            (void)putchar(*text);
        start = *text == '\n';
    }
}

/* Lines kept as they are. */
static void roff_example(const char *text) {
    put(".PP\n.nf\n.RS 2\n");
    roff(text);
    put(".RE\n.fi\n");
}

static void bold(const char *text) {
    put("\\fB");
    roff(text);
    put("\\fR");
}

static void man_head(const char *name, const char *section, const char *job) {
    (void)printf(".\\\" Made by tools/make_docs.c from the tables of fletch: do not edit.\n"
                 ".TH \"%s\" \"%s\" \"\" \"fletch %s\" \"fletch\"\n.nh\n.SH NAME\n",
                 name, section, FLETCH_VERSION);
    roff(name);
    (void)printf(" \\- %s\n", job);
}

static void man_commands(void) {
    put(".SH SYNOPSIS\n");
    for (size_t i = 0; fl_command_at(i) != NULL; i++) {
        const fl_command *command = fl_command_at(i);
        put(i == 0 ? "" : ".br\n");
        (void)printf("\\fBfletch %s\\fR [\\fIOPTION\\fR ...] ", command->name);
        roff(command->usage);
        put("\n");
    }
    put(".SH DESCRIPTION\nText goes in, vectors come out: fletch opens a Hugging Face or\n"
        "sentence-transformers embedding model and turns texts into vectors, without Python.\n"
        "Results go to standard output, everything else to standard error.\n.SH COMMANDS\n");
    for (size_t i = 0; fl_command_at(i) != NULL; i++) {
        const fl_command *command = fl_command_at(i);
        put(".SS ");
        (void)printf("\"%s ", command->name);
        roff(command->usage);
        put("\"\n");
        roff(command->summary);
        put("\n");
        if (command->text[0] != '\0') {
            put(".PP\n.nf\n");
            roff(command->text);
            put(".fi\n");
        }
        if (command->examples != NULL)
            roff_example(command->examples);
    }
}

/* "(embed, tokenize)" or nothing when every command takes the flag. */
static void flag_commands(const fl_flag *flag) {
    const unsigned all   = (1u << FL_CMD_COUNT) - 1;
    bool           first = true;
    if ((flag->commands & all) == all)
        return;
    put(" (");
    for (size_t i = 0; fl_command_at(i) != NULL; i++) {
        if ((flag->commands & 1u << fl_command_at(i)->id) == 0)
            continue;
        (void)printf("%s%s", first ? "" : ", ", fl_command_at(i)->name);
        first = false;
    }
    put(")");
}

static void man_flags(void) {
    put(".SH OPTIONS\nIn brackets: the commands that take the option. Every key of\n"
        "\\fBfletch.toml\\fR(5) is an option as well: cpu.intra_op_threads is\n"
        "\\fB\\-\\-cpu\\-intra\\-op\\-threads\\fR.\n");
    for (size_t i = 0; fl_flag_at(i) != NULL; i++) {
        const fl_flag *flag = fl_flag_at(i);
        put(".TP\n");
        if (flag->letter != 0)
            (void)printf("\\fB\\-%c\\fR, ", flag->letter);
        bold(flag->name);
        if (flag->value != NULL) {
            put(" \\fI");
            roff(flag->value);
            put("\\fR");
        }
        put("\n");
        roff(flag->text);
        flag_commands(flag);
        if (flag->key != NULL)
            (void)printf("\nSets %s.", flag->key);
        put("\n");
    }
}

static void man_variables(void) {
    put(".SH ENVIRONMENT\nEvery key of \\fBfletch.toml\\fR(5) is read from FLETCH_ and its name "
        "in\n"
        "capitals: FLETCH_CPU_INTRA_OP_THREADS. Shorter names:\n");
    for (size_t i = 0; fl_environment_alias_at(i) != NULL; i++) {
        put(".TP\n");
        bold(fl_environment_alias_at(i)->name);
        (void)printf("\n%s\n", fl_option(fl_environment_alias_at(i)->key)->key);
    }
    put(".TP\n\\fBFLETCH_CONFIG\\fR\nThe TOML file to read where \\-\\-config is not given.\n"
        ".TP\n\\fBHF_HOME\\fR, \\fBHF_HUB_CACHE\\fR, \\fBHF_TOKEN\\fR, \\fBHF_ENDPOINT\\fR, "
        "\\fBHF_HUB_OFFLINE\\fR\nAs in huggingface_hub: where the cache lies, and how the hub is "
        "reached.\n");
}

static void man_1(void) {
    man_head("fletch", "1", "turn texts into vectors");
    man_commands();
    man_flags();
    man_variables();
    put(".SH EXIT STATUS\n"
        ".TP\n\\fB0\\fR\nDone.\n"
        ".TP\n\\fB1\\fR\nFailed while running.\n"
        ".TP\n\\fB2\\fR\nWrong usage or configuration.\n"
        ".TP\n\\fB3\\fR\nThe model is not to be had, damaged, or not supported.\n"
        ".TP\n\\fB4\\fR\nSome inputs were refused, the rest is written.\n"
        ".TP\n\\fB130\\fR\nInterrupted.\n"
        ".SH FILES\n"
        ".TP\n\\fI~/.cache/huggingface/hub\\fR\nThe cache of models, shared with huggingface_hub.\n"
        ".SH SEE ALSO\n\\fBfletch.toml\\fR(5)\n");
}

static void man_option(const fletch_option *option) {
    put(".TP\n");
    bold(option->key);
    (void)printf(" (%s", option->type);
    if (option->bounds[0] != '\0') {
        put(", ");
        roff(option->bounds);
    }
    put(")\n");
    roff(option->text);
    put("\n");
    if (option->default_value[0] != '\0') {
        put("Default: ");
        roff(option->default_value);
        put(".\n");
    }
}

static void man_presets(void) {
    put(".SH PRESETS\n");
    for (size_t i = 0; fletch_preset_at(i) != NULL; i++) {
        const fletch_preset *line = fletch_preset_at(i);
        if (i == 0 || strcmp(fletch_preset_at(i - 1)->name, line->name) != 0) {
            put(".TP\n");
            bold(line->name);
            put("\n");
        } else {
            put(".br\n");
        }
        (void)printf("%s = %s: ", line->key, line->value);
        roff(line->text);
        put("\n");
    }
}

static void man_5(void) {
    char room[32];
    man_head("fletch.toml", "5", "configuration of fletch");
    put(".SH DESCRIPTION\nA TOML file, given to \\fBfletch\\fR(1) by \\fB\\-\\-config\\fR or in\n"
        "FLETCH_CONFIG. A flag wins over the environment, the environment over the file, the file\n"
        "over a preset. Dates are not read; an unknown key is an error.\n");
    roff_example("[model]\nid = \"sentence-transformers/all-MiniLM-L6-v2\"\n\n"
                 "[provider]\norder = [\"cuda\", \"cpu\"]\n\n"
                 "[cpu]\nintra_op_threads = 4\n");
    put(".SH KEYS\n");
    for (size_t i = 0; fletch_option_at(i) != NULL; i++) {
        if (begins_room(i, room))
            (void)printf(".SS \"[%s]\"\n", room);
        man_option(fletch_option_at(i));
    }
    put(".SS \"[ai]\"\nOther names of four keys:\n");
    for (size_t i = 0; fl_file_alias_at(i) != NULL; i++) {
        put(i == 0 ? "" : ".br\n");
        (void)printf("%s = %s\n", fl_file_alias_at(i)->name,
                     fl_option(fl_file_alias_at(i)->key)->key);
    }
    man_presets();
    put(".SH SEE ALSO\n\\fBfletch\\fR(1)\n");
}

int main(int argc, char **argv) {
    const char *page = argc == 2 ? argv[1] : "";
    if (strcmp(page, "options") == 0) {
        options_page();
    } else if (strcmp(page, "fletch.1") == 0) {
        man_1();
    } else if (strcmp(page, "fletch.toml.5") == 0) {
        man_5();
    } else {
        (void)fprintf(stderr, "usage: make_docs options|fletch.1|fletch.toml.5\n");
        return 2;
    }
    return fflush(stdout) != 0 || ferror(stdout);
}
