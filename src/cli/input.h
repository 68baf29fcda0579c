/* SPDX-License-Identifier: Apache-2.0 */
/* input.h - the texts of a run, a window at a time, whatever form they come in.
 *
 * A window holds as many texts as the caller asks for, at most some MiB, so a run of any length keeps its
 * memory. Texts point into the stream's buffer (lines) or the window's own (JSON, CSV, repaired text). */
#ifndef FL_CLI_INPUT_H
#define FL_CLI_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/source.h"

typedef enum fl_input_format {
    FL_INPUT_LINES,
    FL_INPUT_JSONL,
    FL_INPUT_JSON,
    FL_INPUT_CSV,
    FL_INPUT_TSV,
    FL_INPUT_COPY, /* a dump of PostgreSQL: the first table that has the column of the texts */
    FL_INPUT_ARGUMENTS
} fl_input_format;

/* One file to be read; path NULL: standard input. */
typedef struct fl_input_file {
    char           *path; /* owned */
    fl_input_format format;
    uint64_t        size;          /* 0: unknown */
    uint64_t        device, inode; /* inode 0: no regular file */
} fl_input_file;

typedef struct fl_place {
    size_t   file;
    uint64_t line; /* line, item or argument, from 1 */
} fl_place;

/* A piece of one file: the records that begin in bytes [begin, limit); limit 0: the whole file. */
typedef struct fl_input_piece {
    const char     *path;
    fl_input_format format;
    uint64_t        begin, limit;
} fl_input_piece;

/* Hears of each input that is left out, before its reason is forgotten. */
typedef void (*fl_refused_fn)(void *user, fl_place place, const char *reason);

typedef struct fl_record {
    size_t   offset, size; /* of the text */
    bool     decoded;      /* in window->decoded; else in the stream's buffer */
    size_t   fields;       /* passed-on members `,"id":3` in window->fields */
    size_t   fields_size;
    uint64_t index; /* of the input, from 0, refused ones counted */
    fl_place place;
} fl_record;

typedef struct fl_window {
    fl_record   *records; /* owned [capacity] */
    const char **texts;   /* owned [capacity]; set by fl_input_next */
    size_t      *sizes;   /* owned [capacity] */
    size_t       count, capacity;
    fl_buf       decoded, fields;
} fl_window;

/* One of the fields that make a text, borrowed. */
enum { FL_FIELDS_MAX = 16 };
typedef struct fl_input_field {
    const char *name;
    size_t      size;
} fl_input_field;

typedef struct fl_input {
    fl_source       source; /* of files[file] */
    fl_input_format format; /* likewise */
    fl_input_file  *files;  /* owned */
    size_t          file_count, file;
    size_t          line_max;
    uint64_t        done, total; /* bytes of the files before this one, of all; total 0: unknown */
    const char     *field;       /* as --field has it */
    fl_input_field  fields[FL_FIELDS_MAX];
    size_t          field_count;
    const char     *join;      /* between the texts of several fields */
    char            delimiter; /* of CSV; 0: comma, or tab in TSV */
    bool            no_header;
    const char     *own_names; /* "index|embedding": members of the result, never passed on */
    bool            keep_fields, skip_errors, repair_utf8;
    bool            keep_text; /* "text" is a member of the result */
    bool            silent;    /* who listens says what is refused */
    const char     *id_field;  /* the field or column that is passed on as "id"; NULL: none */

    fl_refused_fn on_refused; /* NULL: nobody listens */
    void         *refused_user;

    const char *const *arguments; /* FL_INPUT_ARGUMENTS: the texts */
    size_t             argument_count;

    char **columns; /* owned; names of the CSV header, NULL until it is read */
    size_t column_count, text_columns[FL_FIELDS_MAX];
    size_t id_column; /* SIZE_MAX: none */
    bool   copied;    /* the table of a dump is at its end */

    uint64_t     next_index;
    uint64_t     origin;    /* of a piece: the byte from which its lines are counted */
    uint64_t     refused;   /* inputs left out so far */
    uint64_t     fieldless; /* of them, those without the field */
    bool         failed;    /* `error` ends the run once the window before it is done */
    fl_exit      exit;      /* its exit code */
    fletch_error error;
} fl_input;

/* By flags and arguments of the run; `own_names` are the members a result has itself. Says what is wrong
 * and gives its exit code. */
fl_exit fl_input_open(fl_input *input, const fl_cli *cli, const char *own_names);
void    fl_input_close(fl_input *input);

/* The same for a piece of a file: arguments and --input are passed over, and refused inputs are left out unless
 * --on-error says stop. */
fl_exit fl_input_open_piece(fl_input *input, const fl_cli *cli, const char *own_names,
                            const fl_input_piece *piece);

/* Whether the flags about records make sense; said when not. */
fl_exit fl_input_check_flags(const fl_cli *cli);

/* How a file is read: by --input-format, else by the extension. */
fl_input_format fl_input_format_of(const fl_cli *cli, const char *path);

/* The next at most `count` texts and about `bytes` bytes: 1, 0 at the end, -1 when the run must end with
 * input->error and input->exit. Refused inputs are reported and counted here. */
int fl_input_next(fl_input *input, fl_window *window, size_t count, size_t bytes);

void fl_window_free(fl_window *window);

/* "data.txt:12", "standard input:3", "data.json: item 3", "argument 2" into out[capacity]. */
void fl_input_tell_place(const fl_input *input, fl_place place, char *out, size_t capacity);

/* Whether `path` is one of the files that are read, by whatever name. */
bool fl_input_reads(const fl_input *input, const char *path);

/* One input is refused: report it and count it (true), or make it the end of the run (false). */
bool fl_input_refuse(fl_input *input, fl_place place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- input_json.c, input_csv.c: one raw record to a text ---- */

/* Text of a JSON string or object in raw[size]; other members to `window` when kept. *error says what is wrong,
 * without the place. */
int fl_input_json(const fl_input *input, const char *raw, size_t size, fl_window *window,
                  fl_record *record, fletch_error *error);

/* The first line: column names, or only their number where there is no header, and which hold the text. */
int fl_input_csv_header(fl_input *input, const char *raw, size_t size, fletch_error *error);
/* A line of a dump before its table: 1 the columns are known now, 0 it is of no interest. */
int  fl_input_copy_header(fl_input *input, const char *raw, size_t size, fletch_error *error);
int  fl_input_csv(const fl_input *input, const char *raw, size_t size, fl_window *window,
                  fl_record *record, fletch_error *error);
void fl_input_csv_free(fl_input *input);

/* Whether a passed-on field would stand beside one of the result's own under the same name. */
bool fl_input_name_taken(const fl_input *input, const char *name, size_t size);

#endif
