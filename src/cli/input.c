/* SPDX-License-Identifier: Apache-2.0 */
/* input.c - arguments, lines, JSON lines, JSON and CSV become windows of texts.
 *
 * Role    cmd_embed.c and cmd_tokenize.c (tokenize and decode) pull windows from here.
 * Method  source.c cuts the stream into raw records; here each record is checked to be UTF-8 (repaired
 *         when asked), turned into a text by its format, and refused with its place when it cannot be.
 *         A refused input ends the run after the texts before it are done, or with --on-error skip is
 *         reported and left out; either way what was written is a clean prefix or subset.
 * Memory  A window's arrays grow to the largest window and stay. Threads: none.
 * Proof   tests/cli/test_cli_input.py. */
#include "cli/input.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/utf8.h"

/* A line this long is surely no sentence, but a whole file joined into one line still passes. */
static const char line_max_default[] = "256MiB";

static const struct {
    const char     *name;
    fl_input_format format;
} formats[] = {
    {"lines", FL_INPUT_LINES}, {"jsonl", FL_INPUT_JSONL}, {"ndjson", FL_INPUT_JSONL},
    {"json", FL_INPUT_JSON},   {"csv", FL_INPUT_CSV},     {"tsv", FL_INPUT_TSV},
};

/* By --input-format, else by the file's extension, else lines. */
static fl_input_format choose_format(const char *name, const char *path) {
    const char *dot = path != NULL ? strrchr(path, '.') : NULL;
    if (name == NULL) {
        name = dot != NULL ? dot + 1 : "lines";
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return formats[i].format;
        }
    }
    return FL_INPUT_LINES;
}

static bool has(const fl_cli *cli, fl_flag_id flag, const char *word) {
    const char *value = cli->args.value[flag];
    return value != NULL && strcmp(value, word) == 0;
}

fl_exit fl_input_open(fl_input *input, const fl_cli *cli, const char *own_names) {
    memset(input, 0, sizeof *input);
    input->own_names = own_names;
    input->source.fd = -1;
    const char *path = cli->args.value[FL_FLAG_INPUT];
    const char *size = cli->args.value[FL_FLAG_MAX_LINE];
    uint64_t    line_max;
    size = size != NULL ? size : line_max_default;
    if (!fl_parse_size(size, &line_max) || line_max == 0 || line_max > SIZE_MAX / 4) {
        return fl_cli_usage(cli, "--max-line is a size such as 64MiB, not '%.64s'", size);
    }
    input->field       = cli->args.value[FL_FLAG_FIELD];
    input->field       = input->field != NULL ? input->field : "text";
    input->keep_fields = cli->args.value[FL_FLAG_KEEP_FIELDS] != NULL;
    input->skip_errors = has(cli, FL_FLAG_ON_ERROR, "skip");
    input->repair_utf8 = has(cli, FL_FLAG_INVALID_UTF8, "replace");
    if (cli->args.rest_count > 0) {
        if (path != NULL) {
            return fl_cli_usage(cli, "texts as arguments and --input exclude each other");
        }
        input->format         = FL_INPUT_ARGUMENTS;
        input->arguments      = cli->args.rest;
        input->argument_count = cli->args.rest_count;
        return FL_EXIT_DONE;
    }
    input->format       = choose_format(cli->args.value[FL_FLAG_INPUT_FORMAT], path);
    fl_source_kind kind = input->format == FL_INPUT_JSON ? FL_SOURCE_JSON
                          : input->format == FL_INPUT_CSV || input->format == FL_INPUT_TSV
                              ? FL_SOURCE_CSV
                              : FL_SOURCE_LINES;
    fletch_error   error;
    memset(&error, 0, sizeof error);
    if (fl_source_open(&input->source, path, kind, (size_t)line_max, &error) < 0) {
        return fl_cli_fail(&error, false);
    }
    if (isatty(input->source.fd) != 0 && !cli->quiet) {
        fl_cli_message("reading from the terminal, one text a line; Ctrl-D ends");
    }
    return FL_EXIT_DONE;
}

void fl_input_close(fl_input *input) {
    fl_source_close(&input->source);
    fl_input_csv_free(input);
}

void fl_window_free(fl_window *window) {
    fl_free(window->records);
    fl_free(window->texts);
    fl_free(window->sizes);
    fl_buf_free(&window->decoded);
    fl_buf_free(&window->fields);
    memset(window, 0, sizeof *window);
}

/* "data.txt:12", "standard input:3", "data.json: item 3", "argument 2" into out[capacity]. */
static void tell_place(const fl_input *input, uint64_t line, char *out, size_t capacity) {
    unsigned long long number = line;
    if (input->format == FL_INPUT_ARGUMENTS) {
        snprintf(out, capacity, "argument %llu", number);
    } else if (input->format == FL_INPUT_JSON) {
        snprintf(out, capacity, "%s: item %llu", input->source.name, number);
    } else {
        snprintf(out, capacity, "%s:%llu", input->source.name, number);
    }
}

bool fl_input_refuse(fl_input *input, uint64_t line, const char *format, ...) {
    char    place[300], reason[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    tell_place(input, line, place, sizeof place);
    if (input->skip_errors) {
        input->refused++;
        fl_cli_message("%s: %s; left out", place, reason);
        return true;
    }
    input->failed = true;
    input->exit   = FL_EXIT_FAILED;
    (void)fl_fail(&input->error, FLETCH_EIO, (size_t)line, "%s: %s", place, reason);
    return false;
}

/* The run ends with what is in input->error, whatever --on-error says. */
static int give_up(fl_input *input) {
    input->failed = true;
    input->exit   = fl_cli_exit_code(input->error.code, false);
    return -1;
}

static bool grow(fl_window *window) {
    if (window->count < window->capacity) {
        return true;
    }
    size_t     capacity = window->capacity == 0 ? 256 : window->capacity * 2;
    fl_record *records  = fl_realloc_array(window->records, capacity, sizeof *records);
    window->records     = records != NULL ? records : window->records;
    const char **texts  = fl_realloc_array(window->texts, capacity, sizeof *texts);
    window->texts       = texts != NULL ? texts : window->texts;
    size_t *sizes       = fl_realloc_array(window->sizes, capacity, sizeof *sizes);
    window->sizes       = sizes != NULL ? sizes : window->sizes;
    if (records == NULL || texts == NULL || sizes == NULL) {
        return false;
    }
    window->capacity = capacity;
    return true;
}

/* Repaired text of a record that is not UTF-8, in window->decoded. */
static bool repair(fl_window *window, const char **raw, size_t *size, size_t *offset) {
    *offset = window->decoded.size;
    fl_utf8_replace_invalid(&window->decoded, *raw, *size);
    if (window->decoded.failed) {
        return false;
    }
    *raw  = window->decoded.data + *offset;
    *size = window->decoded.size - *offset;
    return true;
}

/* One raw record into the window. True when it became a text; false with *error when not. */
static bool take(fl_input *input, fl_window *window, const char *raw, size_t size, size_t offset,
                 fl_record *record, fletch_error *error) {
    size_t valid    = fl_utf8_valid_prefix(raw, size);
    bool   repaired = false;
    fl_buf copy     = {0};
    if (valid < size && !input->repair_utf8) {
        (void)fl_fail(
            error, FLETCH_EUTF8, valid,
            "not valid UTF-8: byte 0x%02X at column %zu; --invalid-utf8 replace repairs it",
            (unsigned char)raw[valid], valid + 1);
        return false;
    }
    bool plain = input->format == FL_INPUT_LINES || input->format == FL_INPUT_ARGUMENTS;
    if (valid < size && plain) {
        if (!repair(window, &raw, &size, &offset)) {
            (void)fl_fail_nomem(error, size, "repaired text");
            return false;
        }
        repaired = true;
    } else if (valid < size) { /* to be parsed: from a copy, since parsing fills window->decoded */
        fl_utf8_replace_invalid(&copy, raw, size);
        if (copy.failed) {
            (void)fl_fail_nomem(error, size, "repaired text");
            return false;
        }
        raw  = copy.data;
        size = copy.size;
    }
    record->offset  = offset;
    record->size    = size;
    record->decoded = repaired;
    bool good       = true;
    if (input->format == FL_INPUT_JSONL || input->format == FL_INPUT_JSON) {
        good = fl_input_json(input, raw, size, window, record, error);
    } else if (input->format == FL_INPUT_CSV || input->format == FL_INPUT_TSV) {
        good = fl_input_csv(input, raw, size, window, record, error);
    }
    fl_buf_free(&copy);
    return good;
}

/* The next raw record of the stream or the arguments; results as fl_source_next. */
static int next_raw(fl_input *input, bool wait, const char **text, fl_raw *raw) {
    if (input->format == FL_INPUT_ARGUMENTS) {
        if (input->next_index >= input->argument_count) {
            return FL_SOURCE_END;
        }
        *text       = input->arguments[input->next_index];
        raw->offset = 0;
        raw->size   = strlen(*text);
        raw->line   = input->next_index + 1;
        return FL_SOURCE_RECORD;
    }
    int result = fl_source_next(&input->source, wait, raw, &input->error);
    if (result == FL_SOURCE_RECORD) {
        *text = input->source.data + raw->offset;
    }
    return result;
}

/* CSV: the first record names the columns; a blank line is no record where there are several. */
static int csv_special(fl_input *input, const char *text, const fl_raw *raw) {
    if (input->format != FL_INPUT_CSV && input->format != FL_INPUT_TSV) {
        return 0;
    }
    if (input->columns == NULL) {
        fletch_error error;
        memset(&error, 0, sizeof error);
        if (!fl_input_csv_header(input, text, raw->size, &error)) {
            char place[300];
            tell_place(input, raw->line, place, sizeof place);
            int code = error.code;
            (void)fl_fail(&input->error, code, (size_t)raw->line, "%s: %s", place, error.message);
            return give_up(input);
        }
        return 1;
    }
    return raw->size == 0 && input->column_count > 1;
}

/* Offsets to pointers, now that no buffer moves any more. */
static void seal(const fl_input *input, fl_window *window) {
    for (size_t i = 0; i < window->count; i++) {
        const fl_record *record = &window->records[i];
        const char      *base   = record->decoded ? window->decoded.data : input->source.data;
        window->texts[i]        = input->format == FL_INPUT_ARGUMENTS && !record->decoded
                                      ? input->arguments[record->index]
                                      : base + record->offset;
        window->sizes[i]        = record->size;
        if (window->sizes[i] == 0) {
            window->texts[i] = ""; /* an empty text may have no buffer behind it */
        }
    }
}

/* Take one more record into the window: 1 taken or passed over, 0 the window ends, -1 failed. */
static int step(fl_input *input, fl_window *window, size_t *bytes) {
    const char *text = NULL;
    fl_raw      raw  = {0, 0, 0};
    int         got  = next_raw(input, window->count == 0, &text, &raw);
    if (got < 0) {
        return give_up(input);
    }
    if (got == FL_SOURCE_END || got == FL_SOURCE_LATER) {
        return 0;
    }
    if (got == FL_SOURCE_TOO_LONG) {
        input->next_index++;
        bool on = fl_input_refuse(input, raw.line, "longer than %zu bytes; --max-line raises that",
                                  input->source.record_max);
        return on ? 1 : -1;
    }
    int special = csv_special(input, text, &raw);
    if (special != 0) {
        return special;
    }
    fletch_error error;
    memset(&error, 0, sizeof error);
    if (!grow(window)) {
        (void)fl_fail_nomem(&input->error, window->capacity * sizeof(fl_record), "a window");
        return give_up(input);
    }
    fl_record *record = &window->records[window->count];
    memset(record, 0, sizeof *record);
    record->index = input->next_index++;
    record->line  = raw.line;
    if (!take(input, window, text, raw.size, raw.offset, record, &error)) {
        return fl_input_refuse(input, raw.line, "%s", error.message) ? 1 : -1;
    }
    window->count++;
    *bytes += raw.size;
    return 1;
}

int fl_input_next(fl_input *input, fl_window *window, size_t count, size_t bytes) {
    if (input->failed) {
        return -1;
    }
    window->count = 0;
    fl_buf_clear(&window->decoded);
    fl_buf_clear(&window->fields);
    if (input->format != FL_INPUT_ARGUMENTS) {
        fl_source_compact(&input->source);
    }
    size_t taken = 0;
    int    more  = 1;
    while (more > 0 && window->count < count && taken < bytes) {
        more = step(input, window, &taken);
    }
    seal(input, window);
    if (window->count > 0) {
        return 1; /* a failure waits until these are done */
    }
    return more;
}
