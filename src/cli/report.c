/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - messages for people and exit codes for scripts.
 *
 * Role    Every command reports through here, so the wording and the codes are in one place.
 * Method  One table gives for each library status its exit code (also where a model was being opened)
 *         and a hint. The library's messages already say what, where and how to mend it; a hint adds
 *         what only the program knows: its own flags and commands.
 * Proof   tests/cli/test_cli_usage.py, test_cli_errors.py. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/progress.h"

typedef struct verdict {
    int         status;
    fl_exit     running, opening;
    const char *hint; /* for opening; NULL for none */
} verdict;

/* The messages say how to get a model; this is how to see what is there. */
static const char cache_hint[] =
    "`fletch model ls` lists the cached models; --model DIR opens a folder";

/* Any other status: FL_EXIT_FAILED. */
static const verdict verdicts[] = {
    {FLETCH_EINVAL, FL_EXIT_USAGE, FL_EXIT_USAGE, NULL},
    {FLETCH_EIO, FL_EXIT_FAILED, FL_EXIT_MODEL, NULL},
    {FLETCH_ENOTFOUND, FL_EXIT_FAILED, FL_EXIT_MODEL, cache_hint},
    {FLETCH_EMODEL, FL_EXIT_MODEL, FL_EXIT_MODEL, NULL},
    {FLETCH_EUNSUPPORTED, FL_EXIT_MODEL, FL_EXIT_MODEL, NULL},
    {FLETCH_ECONFIG, FL_EXIT_USAGE, FL_EXIT_USAGE,
     "`fletch config --show-origin` shows every value and where it came from"},
    {FLETCH_EUTF8, FL_EXIT_FAILED, FL_EXIT_MODEL, NULL},
    {FLETCH_ENETWORK, FL_EXIT_MODEL, FL_EXIT_MODEL, cache_hint},
    {FLETCH_EDENIED, FL_EXIT_MODEL, FL_EXIT_MODEL,
     "a gated or private model needs a token in HF_TOKEN"},
    {FLETCH_ECHECKSUM, FL_EXIT_MODEL, FL_EXIT_MODEL, NULL},
    {FLETCH_EPROVIDER, FL_EXIT_USAGE, FL_EXIT_USAGE,
     "`fletch doctor` says which providers are usable and why not; --provider-order NAME,cpu falls "
     "back"},
};

static const verdict *find(int status) {
    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++)
        if (verdicts[i].status == status)
            return &verdicts[i];
    return NULL;
}

fl_exit fl_cli_exit_code(int status, bool opening) {
    const verdict *found = find(status);
    if (found == NULL)
        return status >= 0 ? FL_EXIT_DONE : FL_EXIT_FAILED;
    return opening ? found->opening : found->running;
}

void fl_cli_message(const char *format, ...) {
    fl_progress_clear();
    va_list arguments;
    va_start(arguments, format);
    fputs("fletch: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

void fl_cli_hint(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("hint: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

fl_exit fl_cli_fail(const fletch_error *error, bool opening) {
    const verdict *found = find(error->code);
    fl_cli_message("%s",
                   error->message[0] != '\0' ? error->message : fletch_status_text(error->code));
    if (opening && found != NULL && found->hint != NULL)
        fl_cli_hint("%s", found->hint);
    return fl_cli_exit_code(error->code, opening);
}

fl_exit fl_cli_usage(const fl_cli *cli, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fl_cli_message("%s", text);
    const fl_command *command = cli != NULL ? cli->args.command : NULL;
    if (command != NULL)
        fl_cli_hint("`fletch help %s` shows the flags and examples", command->name);
    else
        fl_cli_hint("`fletch help` shows the commands");
    return FL_EXIT_USAGE;
}

fl_exit fl_cli_no_memory(void) {
    fl_cli_message("out of memory");
    return FL_EXIT_FAILED;
}

fl_exit fl_cli_print(fl_buf *text) {
    fl_exit code = text->failed ? fl_cli_no_memory() : FL_EXIT_DONE;
    if (code == FL_EXIT_DONE && text->size > 0 &&
        fl_write_all(STDOUT_FILENO, text->data, text->size) != 0) {
        code = FL_EXIT_FAILED;
        if (errno != EPIPE)
            fl_cli_message("cannot write the results: %s", strerror(errno));
    }
    fl_buf_free(text);
    return code;
}

bool fl_cli_is(const fl_cli *cli, fl_flag_id flag, const char *word) {
    const char *value = cli->args.value[flag];
    return value != NULL && strcmp(value, word) == 0;
}

void fl_cli_preview(fl_buf *out, const char *text, size_t size, size_t columns) {
    size_t at = 0;
    for (size_t shown = 0; at < size && shown < columns; shown++) {
        unsigned length = 1;
        uint32_t point  = fl_utf8_decode(text + at, &length);
        if (point < 0x20 || (point >= 0x7F && point < 0xA0))
            fl_buf_putc(out, ' ');
        else
            fl_buf_append(out, text + at, length);
        at += length;
    }
    if (at < size)
        fl_buf_puts(out, "...");
}
