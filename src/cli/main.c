/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the program fletch: read the command line, run one command, say how it went.
 *
 * Role    The only place that maps a run to the process's exit code. Commands are in cmd_*.c, one file
 *         each; their names and flags are the tables of flags.c.
 * Method  Signals first, so that nothing can be left behind; then parse, configure (for the commands
 *         that read options), run. The locale is left at "C": numbers must not change with it.
 * Memory  The model and configuration are freed at the end, so that leak checkers see a clean exit.
 * Proof   tests/cli. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"

/* No command: what there is, and first of all the model that every command takes when none is named. At a terminal it
 * is fetched for a yes. */
static fl_exit greet(fl_cli *cli) {
    fl_buf       text = {0};
    char         path[4096], answer[8] = "";
    fletch_error error = {0};
    fl_help_command(&text, NULL);
    fl_cli_message("no command given\n\n%s", text.size > 0 ? text.data : "");
    fl_buf_free(&text);
    FL_CLI_TRY(fl_cli_load_config(cli));
    const char *model = fletch_config_model(cli->config);
    if (fletch_hub_path(cli->config, model, path, sizeof path, &error) != FLETCH_ENOTFOUND)
        return FL_EXIT_USAGE;
    fl_cli_message("the default model, %s, is not downloaded yet", model);
    if (isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0) {
        fprintf(stderr, "Download it now? [y/N] ");
        if (fgets(answer, sizeof answer, stdin) != NULL && (answer[0] | 0x20) == 'y')
            return fl_cli_pull(cli, model, path, sizeof path);
    }
    fl_cli_hint("`fletch model pull %s` downloads it, as does the first command that needs it; "
                "choose another model or a folder with --model",
                model);
    return FL_EXIT_USAGE;
}

static fl_exit run(fl_cli *cli, int argc, char **argv) {
    fl_buf  problem = {0}, hint = {0};
    fl_exit code = FL_EXIT_DONE;
    if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
        return fl_cmd_version(cli);
    if (!fl_args_parse(&cli->args, argc, argv, &problem, &hint)) {
        fl_cli_message("%s", problem.failed || problem.size == 0 ? "out of memory" : problem.data);
        const fl_command *command = cli->args.command;
        fl_cli_hint("%s%s`fletch help%s%s`", hint.size > 0 ? hint.data : "",
                    hint.size > 0 ? " See " : "see ", command != NULL ? " " : "",
                    command != NULL ? command->name : "");
        code = problem.failed || problem.size == 0 ? FL_EXIT_FAILED : FL_EXIT_USAGE;
    } else if (cli->args.command == NULL && cli->args.value[FL_FLAG_HELP] == NULL) {
        code = greet(cli);
    } else if (cli->args.value[FL_FLAG_HELP] != NULL) {
        fl_buf text = {0};
        fl_help_command(&text, cli->args.command);
        code = fl_cli_print(&text);
    } else {
        cli->quiet   = cli->args.value[FL_FLAG_QUIET] != NULL;
        cli->verbose = cli->args.value[FL_FLAG_VERBOSE] != NULL;
        cli->trace   = cli->verbose && strcmp(cli->args.value[FL_FLAG_VERBOSE], "trace") == 0;
        code         = cli->args.command->configured ? fl_cli_load_config(cli) : FL_EXIT_DONE;
        if (code == FL_EXIT_DONE)
            code = cli->args.command->run(cli);
    }
    fl_buf_free(&problem);
    fl_buf_free(&hint);
    return code;
}

/* A standard stream that the caller closed would become the first file that is opened: a model, a socket, a lock. */
static void fill_standard_streams(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    fl_close(fd);
}

int main(int argc, char **argv) {
    fl_cli cli;
    fill_standard_streams();
    memset(&cli, 0, sizeof cli);
    fl_signals_install();
    fl_exit code = run(&cli, argc, argv);
    fletch_close(cli.model);
    fletch_config_free(cli.config);
    fl_args_free(&cli.args);
    return (int)code;
}
