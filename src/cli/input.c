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

#include <errno.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
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
    {"copy", FL_INPUT_COPY},   {"sql", FL_INPUT_COPY},
};

enum { BARE_MAX = 256 };

/* The extension of a path (that of a.csv.gz is csv), in bare[BARE_MAX]; NULL: it has none. */
static const char *extension_of(const char *path, char *bare) {
    static const char *const packed[] = {".gz", ".gzip", ".zst", ".zstd"};
    const char              *slash    = path != NULL ? strrchr(path, '/') : NULL;
    snprintf(bare, BARE_MAX, "%s", path == NULL ? "" : slash != NULL ? slash + 1 : path);
    char *dot = strrchr(bare, '.');
    for (size_t i = 0; dot != NULL && i < sizeof packed / sizeof packed[0]; i++) {
        if (strcasecmp(dot, packed[i]) == 0) {
            *dot = '\0';
            dot  = strrchr(bare, '.');
        }
    }
    return dot != NULL ? dot + 1 : NULL;
}

/* By --input-format, else by the file's extension, else lines. */
static fl_input_format choose_format(const char *name, const char *path) {
    char bare[BARE_MAX];
    name = name != NULL ? name : extension_of(path, bare);
    name = name != NULL ? name : "lines";
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcasecmp(formats[i].name, name) == 0)
            return formats[i].format;
    return FL_INPUT_LINES;
}

fl_input_format fl_input_format_of(const fl_cli *cli, const char *path) {
    return choose_format(cli->args.value[FL_FLAG_INPUT_FORMAT], path);
}

/* The file behind `path` to the list, unless it is there. */
static fl_exit add_file(fl_input *input, const fl_cli *cli, const char *path) {
    fl_input_file file = {.path = NULL};
    struct stat   status;
    bool          stream = strcmp(path, "-") == 0;
    memset(&status, 0, sizeof status);
    if (stream ? fstat(STDIN_FILENO, &status) != 0
               : stat(path, &status) != 0 || access(path, R_OK) != 0) {
        fl_cli_message("cannot open %s: %s", stream ? "standard input" : path, strerror(errno));
        return FL_EXIT_FAILED;
    }
    if (S_ISREG(status.st_mode)) {
        off_t at = stream ? lseek(STDIN_FILENO, 0, SEEK_CUR) : 0; /* a shell may have read a part */
        file.size =
            (uint64_t)(at > 0 && at < status.st_size ? status.st_size - at : status.st_size);
        file.device = (uint64_t)status.st_dev;
        file.inode  = (uint64_t)status.st_ino;
    }
    for (size_t i = 0; i < input->file_count; i++) {
        const fl_input_file *other = &input->files[i];
        bool same = file.inode != 0 && other->inode == file.inode && other->device == file.device;
        if (same || (stream && other->path == NULL)) {
            if (!cli->quiet) {
                fl_cli_message("note: %s is given twice; it is read once",
                               stream ? "standard input" : path);
            }
            return FL_EXIT_DONE;
        }
    }
    fl_input_file *files = fl_realloc_array(input->files, input->file_count + 1, sizeof *files);
    input->files         = files != NULL ? files : input->files;
    file.path            = stream || files == NULL ? NULL : fl_strdup(path);
    if (files == NULL || (!stream && file.path == NULL))
        return fl_cli_no_memory();
    bool lines  = cli->args.command->id == FL_CMD_DECODE; /* it parses its lists itself */
    file.format = lines ? FL_INPUT_LINES : fl_input_format_of(cli, file.path);
    input->total += file.size;
    input->files[input->file_count++] = file;
    return FL_EXIT_DONE;
}

/* A name that is there is that file; else *, ? and [ make it a pattern. */
static fl_exit add_files(fl_input *input, const fl_cli *cli, const char *path) {
    struct stat status;
    if (strpbrk(path, "*?[") == NULL || lstat(path, &status) == 0)
        return add_file(input, cli, path);
    glob_t  found;
    fl_exit code  = FL_EXIT_DONE;
    size_t  files = 0;
    if (glob(path, 0, NULL, &found) == 0) {
        for (size_t i = 0; code == FL_EXIT_DONE && i < found.gl_pathc; i++) {
            if (!fl_folder_exists(found.gl_pathv[i])) {
                files++;
                code = add_file(input, cli, found.gl_pathv[i]);
            }
        }
        globfree(&found);
    }
    if (files == 0) {
        fl_cli_message("no file matches %s", path);
        return FL_EXIT_FAILED;
    }
    return code;
}

/* How many arguments, not after --, are names of files; *first is the first. */
static size_t count_file_names(const fl_cli *cli, const char **first) {
    size_t count = 0;
    *first       = NULL;
    for (size_t i = 0; i < cli->args.literal; i++) {
        if (fl_file_exists(cli->args.rest[i])) {
            *first = *first != NULL ? *first : cli->args.rest[i];
            count++;
        }
    }
    return count;
}

/* Names of files given as texts are a slip more often than a wish. */
static void note_file_names(const fl_cli *cli) {
    const char *first;
    size_t      count = count_file_names(cli, &first);
    if (count == 1 && !cli->quiet) {
        fl_cli_message("note: %s is also the name of a file, but is embedded as a text; --input %s "
                       "reads the file",
                       first, first);
    } else if (count > 1 && !cli->quiet) {
        fl_cli_message(
            "note: %zu of the texts, the first %s, are also names of files; --input reads files",
            count, first);
    }
}

/* Like the name of a file that texts are read from: "a.txt", "in/a.jsonl.gz". */
static bool is_like_file_name(const char *text) {
    static const char *const known[] = {"txt", "jsonl", "ndjson", "json", "csv", "tsv"};
    char                     bare[BARE_MAX];
    const char *name = strpbrk(text, " \t\r\n\v\f") == NULL ? extension_of(text, bare) : NULL;
    for (size_t i = 0; name != NULL && i < sizeof known / sizeof known[0]; i++)
        if (strcasecmp(name, known[i]) == 0)
            return true;
    return false;
}

/* Where names of files are read, one of a file that is not there is a slip too. */
static void note_absent_files(const fl_cli *cli) {
    for (size_t i = 0; i < cli->args.literal && !cli->quiet; i++) {
        const char *name = cli->args.rest[i];
        if (is_like_file_name(name) && !fl_file_exists(name))
            fl_cli_message("note: no file %s: embedding it as a text", name);
    }
}

/* Texts beside --input: the shell has expanded a pattern, or it is a mistake. */
static fl_exit refuse_texts(const fl_cli *cli) {
    for (size_t i = 0; i < cli->args.rest_count; i++)
        if (i >= cli->args.literal || !fl_file_exists(cli->args.rest[i]))
            return fl_cli_usage(cli, "texts as arguments and --input exclude each other");
    return fl_cli_usage(cli,
                        "--input takes one name, but %s follows; quote the pattern (--input "
                        "'*.txt'), or repeat --input",
                        cli->args.rest[0]);
}

/* Open files[file]. */
static int open_file(fl_input *input, fletch_error *error) {
    const fl_input_file *file = &input->files[input->file];
    input->format             = file->format;
    fl_source_kind kind       = file->format == FL_INPUT_JSON ? FL_SOURCE_JSON
                                : file->format == FL_INPUT_CSV || file->format == FL_INPUT_TSV
                                    ? FL_SOURCE_CSV
                                    : FL_SOURCE_LINES;
    return fl_source_open(&input->source, file->path, kind, input->line_max, error);
}

/* "title,body" are two fields. */
static fl_exit split_fields(fl_input *input, const fl_cli *cli) {
    for (const char *at = input->field;; at++) {
        size_t size = strcspn(at, ",");
        if (input->field_count == FL_FIELDS_MAX)
            return fl_cli_usage(cli, "--field names at most %d fields", FL_FIELDS_MAX);
        for (size_t i = 0; i < input->field_count; i++)
            if (input->fields[i].size == size && memcmp(input->fields[i].name, at, size) == 0)
                return fl_cli_usage(cli, "--field names %.*s twice", (int)size, at);
        input->fields[input->field_count++] = (fl_input_field){at, size};
        at += size;
        if (*at == '\0')
            return FL_EXIT_DONE;
    }
}

/* The arguments are the texts. */
static fl_exit take_arguments(fl_input *input, const fl_cli *cli) {
    const fl_args *args = &cli->args;
    for (size_t i = 0; i < args->literal; i++) {
        if (strcmp(args->rest[i], "-") == 0) {
            return fl_cli_usage(
                cli, "- is standard input and must be the only input; put the text \"-\" after --");
        }
    }
    note_file_names(cli);
    input->format         = FL_INPUT_ARGUMENTS;
    input->arguments      = args->rest;
    input->argument_count = args->rest_count;
    return FL_EXIT_DONE;
}

/* The files of these names; standard input when there are none. */
static fl_exit open_files(fl_input *input, const fl_cli *cli, const char *const *names,
                          size_t count) {
    fl_exit      code  = count == 0 ? add_file(input, cli, "-") : FL_EXIT_DONE;
    fletch_error error = {0};
    for (size_t i = 0; code == FL_EXIT_DONE && i < count; i++)
        code = add_files(input, cli, names[i]);
    if (code == FL_EXIT_DONE && open_file(input, &error) < 0)
        return fl_cli_fail(&error, false);
    for (size_t i = 0; i < input->file_count; i++)
        if (input->files[i].inode == 0)
            input->total = 0; /* a pipe among them: nobody knows */
    if (code == FL_EXIT_DONE && isatty(input->source.stream.fd) != 0 && !cli->quiet)
        fl_cli_message("reading from the terminal, one text per line; end with Ctrl-D");
    return code;
}

/* What the flags say about records, files apart. */
static fl_exit read_flags(fl_input *input, const fl_cli *cli, const char *own_names) {
    memset(input, 0, sizeof *input);
    input->own_names    = own_names;
    input->id_column    = SIZE_MAX;
    input->keep_text    = cli->args.value[FL_FLAG_KEEP_TEXT] != NULL;
    const fl_args *args = &cli->args;
    const char    *size = args->value[FL_FLAG_MAX_LINE];
    uint64_t       line_max;
    size = size != NULL ? size : line_max_default;
    if (!fl_parse_size(size, &line_max) || line_max == 0 || line_max > SIZE_MAX / 4)
        return fl_cli_usage(cli, "--max-line takes a size such as 64MiB, not '%.64s'", size);
    input->line_max       = (size_t)line_max;
    input->field          = args->value[FL_FLAG_FIELD];
    input->no_header      = args->value[FL_FLAG_NO_HEADER] != NULL;
    input->field          = input->field != NULL ? input->field : input->no_header ? "1" : "text";
    input->join           = args->value[FL_FLAG_JOIN] != NULL ? args->value[FL_FLAG_JOIN] : " ";
    const char *delimiter = args->value[FL_FLAG_DELIMITER];
    if (delimiter != NULL && strcmp(delimiter, "\\t") == 0)
        delimiter = "\t";
    if (delimiter != NULL && (strlen(delimiter) != 1 || strchr("\"\r\n", delimiter[0]) != NULL))
        return fl_cli_usage(cli, "--delimiter takes one character, such as ';' or '\\t'");
    input->delimiter = delimiter != NULL ? delimiter[0] : '\0';
    FL_CLI_TRY(split_fields(input, cli));
    input->keep_fields = args->value[FL_FLAG_KEEP_FIELDS] != NULL;
    input->skip_errors = fl_cli_is(cli, FL_FLAG_ON_ERROR, "skip");
    input->repair_utf8 = fl_cli_is(cli, FL_FLAG_INVALID_UTF8, "replace");
    return FL_EXIT_DONE;
}

fl_exit fl_input_check_flags(const fl_cli *cli) {
    fl_input scratch;
    return read_flags(&scratch, cli, "");
}

fl_exit fl_input_open_piece(fl_input *input, const fl_cli *cli, const char *own_names,
                            const fl_input_piece *piece) {
    FL_CLI_TRY(read_flags(input, cli, own_names));
    fletch_error error = {0};
    input->skip_errors = !fl_cli_is(cli, FL_FLAG_ON_ERROR, "stop");
    input->files       = fl_alloc_zero(1, sizeof *input->files);
    char *path         = fl_strdup(piece->path);
    if (input->files == NULL || path == NULL) {
        fl_free(path);
        return fl_cli_no_memory();
    }
    input->file_count = 1;
    input->files[0]   = (fl_input_file){.path = path, .format = piece->format};
    input->origin     = piece->begin;
    input->id_field   = cli->args.value[FL_FLAG_ID_FIELD];
    int status        = open_file(input, &error);
    if (status == 0 && piece->limit != 0)
        status = fl_source_between(&input->source, piece->begin, piece->limit, &error);
    return status < 0 ? fl_cli_fail(&error, false) : FL_EXIT_DONE;
}

fl_exit fl_input_open(fl_input *input, const fl_cli *cli, const char *own_names) {
    const fl_args *args = &cli->args;
    FL_CLI_TRY(read_flags(input, cli, own_names));
    if (args->rest_count > 0 && args->input_count > 0)
        return refuse_texts(cli);
    bool dash = args->rest_count == 1 && args->literal == 1 && strcmp(args->rest[0], "-") == 0;
    if (args->rest_count == 0 || dash)
        return open_files(input, cli, args->inputs, args->input_count);
    const char *first;
    bool   reads = cli->args.command->id == FL_CMD_ADD || cli->args.command->id == FL_CMD_RERANK;
    size_t files = reads ? count_file_names(cli, &first) : 0;
    if (files == args->rest_count)
        return open_files(input, cli, args->rest, args->rest_count);
    if (files > 0) {
        return fl_cli_usage(cli,
                            "%s is a file, but not every argument is; give either files or texts, "
                            "and put texts with such names after --",
                            first);
    }
    FL_CLI_TRY(take_arguments(input, cli));
    if (reads)
        note_absent_files(cli);
    return FL_EXIT_DONE;
}

bool fl_input_reads(const fl_input *input, const char *path) {
    struct stat status;
    if (strcmp(path, "-") == 0 || stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return false;
    for (size_t i = 0; i < input->file_count; i++) {
        const fl_input_file *file = &input->files[i];
        if (file->inode == (uint64_t)status.st_ino && file->device == (uint64_t)status.st_dev)
            return true;
    }
    return false;
}

void fl_input_close(fl_input *input) {
    fl_source_close(&input->source);
    fl_input_csv_free(input);
    for (size_t i = 0; i < input->file_count; i++)
        fl_free(input->files[i].path);
    fl_free(input->files);
    input->files      = NULL;
    input->file_count = 0;
}

void fl_window_free(fl_window *window) {
    fl_free(window->records);
    fl_free(window->texts);
    fl_free(window->sizes);
    fl_buf_free(&window->decoded);
    fl_buf_free(&window->fields);
    memset(window, 0, sizeof *window);
}

void fl_input_tell_place(const fl_input *input, fl_place place, char *out, size_t capacity) {
    unsigned long long number = place.line;
    if (input->file_count == 0) {
        snprintf(out, capacity, "argument %llu", number);
        return;
    }
    const fl_input_file *file = &input->files[place.file];
    if (input->origin > 0) {
        snprintf(out, capacity, "%s: line %llu from byte %llu on", file->path, number,
                 (unsigned long long)input->origin);
        return;
    }
    snprintf(out, capacity, file->format == FL_INPUT_JSON ? "%s: item %llu" : "%s:%llu",
             file->path != NULL ? file->path : "standard input", number);
}

bool fl_input_refuse(fl_input *input, fl_place at, const char *format, ...) {
    char    place[300], reason[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    fl_input_tell_place(input, at, place, sizeof place);
    if (input->skip_errors) {
        input->refused++;
        if (input->on_refused != NULL)
            input->on_refused(input->refused_user, at, reason);
        if (!input->silent)
            fl_cli_message("%s: %s; skipped", place, reason);
        return true;
    }
    input->failed = true;
    input->exit   = FL_EXIT_FAILED;
    (void)fl_fail(&input->error, FLETCH_EIO, (size_t)at.line, "%s: %s", place, reason);
    return false;
}

/* The run ends with what is in input->error, whatever --on-error says. */
static int give_up(fl_input *input) {
    input->failed = true;
    input->exit   = fl_cli_exit_code(input->error.code, false);
    return -1;
}

static bool grow(fl_window *window) {
    if (window->count < window->capacity)
        return true;
    size_t     capacity = window->capacity == 0 ? 256 : window->capacity * 2;
    fl_record *records  = fl_realloc_array(window->records, capacity, sizeof *records);
    window->records     = records != NULL ? records : window->records;
    const char **texts  = fl_realloc_array(window->texts, capacity, sizeof *texts);
    window->texts       = texts != NULL ? texts : window->texts;
    size_t *sizes       = fl_realloc_array(window->sizes, capacity, sizeof *sizes);
    window->sizes       = sizes != NULL ? sizes : window->sizes;
    if (records == NULL || texts == NULL || sizes == NULL)
        return false;
    window->capacity = capacity;
    return true;
}

/* Records of columns: input_csv.c. */
static bool is_table(fl_input_format format) {
    return format == FL_INPUT_CSV || format == FL_INPUT_TSV || format == FL_INPUT_COPY;
}

/* One raw record into the window as a text. */
static int take(fl_input *input, fl_window *window, const char *raw, size_t size, size_t offset,
                fl_record *record, fletch_error *error) {
    size_t valid    = fl_utf8_valid_prefix(raw, size);
    bool   repaired = valid < size;
    fl_buf copy     = {0};
    int    status   = 0;
    if (repaired && !input->repair_utf8) {
        return fl_fail(error, FLETCH_EUTF8, valid, "not valid UTF-8: byte 0x%02X at column %zu; %s",
                       (unsigned char)raw[valid], valid + 1,
                       memchr(raw, '\0', size) != NULL
                           ? "this does not look like text"
                           : "--invalid-utf8 replace substitutes U+FFFD");
    }
    if (repaired) { /* a copy: what is parsed goes to window->decoded */
        fl_utf8_replace_invalid(&copy, raw, size);
        raw  = copy.data;
        size = copy.size;
    }
    record->offset = offset;
    record->size   = size;
    if (copy.failed) {
        status = fl_fail_nomem(error, size, "repaired text");
    } else if (input->format == FL_INPUT_JSONL || input->format == FL_INPUT_JSON) {
        status = fl_input_json(input, raw, size, window, record, error);
    } else if (is_table(input->format)) {
        status = fl_input_csv(input, raw, size, window, record, error);
    } else if (repaired) {
        record->offset  = window->decoded.size;
        record->decoded = true;
        fl_buf_append(&window->decoded, raw, size);
        status = window->decoded.failed ? fl_fail_nomem(error, size, "repaired text") : 0;
    }
    fl_buf_free(&copy);
    return status;
}

/* The next raw record of the stream or the arguments; results as fl_source_next. */
static int next_raw(fl_input *input, bool wait, const char **text, fl_raw *raw) {
    if (input->format == FL_INPUT_ARGUMENTS) {
        if (input->next_index >= input->argument_count)
            return FL_SOURCE_END;
        *text       = input->arguments[input->next_index];
        raw->offset = 0;
        raw->size   = strlen(*text);
        raw->line   = input->next_index + 1;
        return FL_SOURCE_RECORD;
    }
    int result = fl_source_next(&input->source, wait, raw, &input->error);
    if (result == FL_SOURCE_RECORD)
        *text = input->source.data + raw->offset;
    return result;
}

/* The texts of the window move out of the buffer of a file that is to be closed. False: out of memory. */
static bool detach(const fl_input *input, fl_window *window) {
    for (size_t i = 0; i < window->count; i++) {
        fl_record *record = &window->records[i];
        if (!record->decoded) {
            size_t offset = window->decoded.size;
            fl_buf_append(&window->decoded, input->source.data + record->offset, record->size);
            if (window->decoded.failed) {
                window->count = i; /* those before it are whole */
                return false;
            }
            record->offset  = offset;
            record->decoded = true;
        }
    }
    return true;
}

/* This file is at its end: 1 the next is open, 0 there is none, -1 failed. */
static int next_file(fl_input *input, fl_window *window) {
    if (input->format == FL_INPUT_COPY && input->columns == NULL) {
        (void)fl_fail(&input->error, FLETCH_EIO, FLETCH_NOWHERE,
                      "%s has no COPY of a table with the column \"%s\"; name the text column with "
                      "--field (--no-header: it is a table by itself)",
                      input->source.stream.name, input->field);
        return give_up(input);
    }
    if (is_table(input->format) && input->columns == NULL && !input->no_header) {
        (void)fl_fail(&input->error, FLETCH_EIO, FLETCH_NOWHERE,
                      "%s is empty; the first line of a CSV file names its columns (--no-header: "
                      "it does not)",
                      input->source.stream.name);
        return give_up(input);
    }
    if (input->file + 1 >= input->file_count)
        return 0;
    if (!detach(input, window)) {
        (void)fl_fail_nomem(&input->error, window->decoded.size, "a window");
        return give_up(input);
    }
    input->done += input->files[input->file].size;
    fl_source_close(&input->source);
    fl_input_csv_free(input);
    input->file++;
    return open_file(input, &input->error) < 0 ? give_up(input) : 1;
}

/* CSV: the first record names the columns, of a dump the COPY of the table; a blank line is no record where there
 * are several. A blank line between JSON lines is none either. */
static int special_record(fl_input *input, const char *text, const fl_raw *raw) {
    if (input->format == FL_INPUT_JSONL)
        return fl_json_is_blank(text, raw->size);
    if (!is_table(input->format))
        return 0;
    const bool copy = input->format == FL_INPUT_COPY;
    if (copy && input->columns != NULL && raw->size == 2 && memcmp(text, "\\.", 2) == 0)
        input->copied = true;
    if (input->copied)
        return 1;
    if (input->columns == NULL) {
        fletch_error error = {0};
        int          known = copy ? fl_input_copy_header(input, text, raw->size, &error)
                                  : fl_input_csv_header(input, text, raw->size, &error);
        if (known < 0) {
            char place[300];
            fl_input_tell_place(input, (fl_place){input->file, raw->line}, place, sizeof place);
            int code = error.code;
            (void)fl_fail(&input->error, code, (size_t)raw->line, "%s: %s", place, error.message);
            return give_up(input);
        }
        return !input->no_header;
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
        if (window->sizes[i] == 0)
            window->texts[i] = ""; /* an empty text may have no buffer behind it */
    }
}

/* Take one more record into the window: 1 taken or passed over, 0 the window ends, -1 failed. */
static int step(fl_input *input, fl_window *window, size_t *bytes) {
    const char *text = NULL;
    fl_raw      raw  = {0, 0, 0};
    int         got  = next_raw(input, window->count == 0, &text, &raw);
    if (got < 0)
        return give_up(input);
    if (got == FL_SOURCE_END && input->file_count > 0)
        return next_file(input, window);
    if (got == FL_SOURCE_END || got == FL_SOURCE_LATER)
        return 0;
    fl_place place = {input->file, raw.line};
    if (got == FL_SOURCE_TOO_LONG) {
        input->next_index++;
        bool on = fl_input_refuse(input, place, "longer than %zu bytes; --max-line raises that",
                                  input->source.record_max);
        return on ? 1 : -1;
    }
    int special = special_record(input, text, &raw);
    if (special != 0)
        return special;
    fletch_error error = {0};
    if (!grow(window)) {
        (void)fl_fail_nomem(&input->error, window->capacity * sizeof(fl_record), "a window");
        return give_up(input);
    }
    fl_record *record = &window->records[window->count];
    memset(record, 0, sizeof *record);
    record->index = input->next_index++;
    record->place = place;
    if (take(input, window, text, raw.size, raw.offset, record, &error) < 0) {
        if (error.code == FLETCH_ENOMEM) { /* no fault of the input's */
            input->error = error;
            return give_up(input);
        }
        input->fieldless += error.code == FLETCH_ENOTFOUND;
        return fl_input_refuse(input, place, "%s", error.message) ? 1 : -1;
    }
    window->count++;
    *bytes += raw.size;
    return 1;
}

int fl_input_next(fl_input *input, fl_window *window, size_t count, size_t bytes) {
    if (input->failed)
        return -1;
    window->count = 0;
    fl_buf_clear(&window->decoded);
    fl_buf_clear(&window->fields);
    if (input->format != FL_INPUT_ARGUMENTS)
        fl_source_compact(&input->source);
    size_t         taken = 0;
    int            more  = 1;
    const uint64_t refused =
        input->refused; /* they end a window too: their reasons may wait for it */
    while (more > 0 && window->count < count && taken < bytes && input->refused - refused < count)
        more = step(input, window, &taken);
    seal(input, window);
    if (window->count > 0)
        return 1; /* a failure waits until these are done */
    return more;
}
