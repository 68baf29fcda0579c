/* SPDX-License-Identifier: Apache-2.0 */
/* input_csv.c - CSV (RFC 4180) and TSV records: the column that holds the text, the others passed on.
 *
 * Role    input.c calls it with one record, line ends inside quotes included.
 * Method  The first record names the columns, or with --no-header only counts them. A field in quotes
 *         ends at the first quote that is not doubled; anything but a delimiter after it is an error,
 *         and so is a record with more or fewer fields than the header: both mean broken quoting, and
 *         guessing would shift columns silently.
 * Memory  Column names are owned by the input. Proof tests/cli/test_cli_input.py. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/input.h"

/* Append the field that begins at raw[at], decoded; *next is behind its delimiter, or size + 1 behind
 * the last field. */
static int take_field(char delimiter, const char *raw, size_t size, size_t at, fl_buf *out,
                      size_t *next, fletch_error *error) {
    if (at >= size || raw[at] != '"') {
        const char *found = at < size ? memchr(raw + at, delimiter, size - at) : NULL;
        size_t      end   = found != NULL ? (size_t)(found - raw) : size;
        fl_buf_append(out, raw + at, end - at);
        *next = end + 1;
        return 0;
    }
    for (at++; at < size; at++) {
        if (raw[at] != '"') {
            fl_buf_putc(out, raw[at]);
        } else if (at + 1 < size && raw[at + 1] == '"') {
            fl_buf_putc(out, '"');
            at++;
        } else {
            break;
        }
    }
    if (at >= size) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "a quoted field has no closing quote");
    }
    at++;
    if (at < size && raw[at] != delimiter) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                       "text after a closing quote (column %zu); a quote inside a field is doubled",
                       at + 1);
    }
    *next = at + 1;
    return 0;
}

static char delimiter_of(const fl_input *input) {
    return input->delimiter != '\0' ? input->delimiter : input->format == FL_INPUT_TSV ? '\t' : ',';
}

void fl_input_csv_free(fl_input *input) {
    for (size_t i = 0; i < input->column_count; i++) {
        fl_free(input->columns[i]);
    }
    fl_free(input->columns);
    input->columns      = NULL;
    input->column_count = 0;
}

static int add_column(fl_input *input, const fl_buf *name, fletch_error *error) {
    size_t count   = input->column_count;
    char **columns = input->columns;
    if ((count & (count - 1)) == 0) /* 0, 1, 2, 4, …: full; a header of commas stays linear */
        columns = fl_realloc_array(columns, count == 0 ? 1 : count * 2, sizeof *columns);
    char *copy     = columns != NULL && !name->failed
                         ? fl_strndup(name->size > 0 ? name->data : "", name->size)
                         : NULL;
    input->columns = columns != NULL ? columns : input->columns;
    if (copy == NULL) {
        return fl_fail_nomem(error, name->size, "the column names");
    }
    input->columns[input->column_count++] = copy;
    return 0;
}

static bool find_column(const fl_input *input, fl_input_field field, size_t *out) {
    for (size_t i = 0; i < input->column_count; i++) {
        const char *name = input->columns[i];
        if (strlen(name) == field.size && memcmp(name, field.name, field.size) == 0) {
            *out = i;
            return true;
        }
    }
    size_t number = 0; /* no name: "2" is the second column */
    for (size_t i = 0; i < field.size && number <= input->column_count; i++) {
        unsigned digit = (unsigned)(field.name[i] - '0');
        number         = digit < 10 ? number * 10 + digit : SIZE_MAX / 16;
    }
    *out = number - 1;
    return number >= 1 && number <= input->column_count;
}

/* A column of the whole name ("last, first") wins over several fields. */
static int find_columns(fl_input *input, fletch_error *error) {
    const fl_input_field whole = {input->field, strlen(input->field)};
    char                 known[256];
    size_t               used = 0;
    known[0]                  = '\0';
    if (find_column(input, whole, &input->text_columns[0])) {
        input->fields[0]   = whole;
        input->field_count = 1;
        return 0;
    }
    size_t i = 0;
    while (i < input->field_count &&
           find_column(input, input->fields[i], &input->text_columns[i])) {
        i++;
    }
    for (size_t k = 1; i == input->field_count && k < i; k++) {
        for (size_t j = 0; j < k; j++) {
            if (input->text_columns[j] == input->text_columns[k]) {
                return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                               "--field names the column \"%s\" twice",
                               input->columns[input->text_columns[k]]);
            }
        }
    }
    if (i == input->field_count) {
        return 0;
    }
    for (size_t k = 0; k < input->column_count && used < sizeof known; k++) {
        int n = snprintf(known + used, sizeof known - used, "%s%s", k > 0 ? ", " : "",
                         input->columns[k]);
        used += n > 0 ? (size_t)n : 0;
    }
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "%s has no column \"%.*s\"; --field names the one that holds the text, or its "
                   "number, one of: %s",
                   input->no_header ? "the first line" : "the header", (int)input->fields[i].size,
                   input->fields[i].name, known);
}

static int find_id(fl_input *input, fletch_error *error) {
    if (input->id_field == NULL) {
        return 0;
    }
    const fl_input_field field = {input->id_field, strlen(input->id_field)};
    if (!find_column(input, field, &input->id_column)) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "there is no column \"%s\", which --id-field names", input->id_field);
    }
    for (size_t i = 0; i < input->field_count; i++) {
        if (input->text_columns[i] == input->id_column) {
            return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "--id-field and --field name the same column, \"%s\"", input->id_field);
        }
    }
    return 0;
}

int fl_input_csv_header(fl_input *input, const char *raw, size_t size, fletch_error *error) {
    size_t valid = fl_utf8_valid_prefix(raw, size);
    if (valid < size) {
        return fl_fail(error, FLETCH_EIO, valid, "the header is not valid UTF-8 at column %zu",
                       valid + 1);
    }
    fl_buf name   = {0};
    int    status = 0;
    for (size_t at = 0; status == 0 && at <= size;) {
        fl_buf_clear(&name);
        status = take_field(delimiter_of(input), raw, size, at, &name, &at, error);
        if (input->no_header) { /* columns are called by their number */
            fl_buf_clear(&name);
            fl_buf_printf(&name, "%zu", input->column_count + 1);
        }
        status = status == 0 ? add_column(input, &name, error) : status;
    }
    fl_buf_free(&name);
    FL_TRY(status);
    FL_TRY(find_columns(input, error));
    return find_id(input, error);
}

static void keep_column(const fl_input *input, size_t column, const char *value, size_t size,
                        fl_buf *out) {
    const char *name = input->columns[column];
    if (column == input->id_column) {
        name = "id";
    } else if (fl_input_name_taken(input, name, strlen(name))) {
        return;
    }
    fl_buf_putc(out, ',');
    fl_json_quote(out, name, strlen(name));
    fl_buf_putc(out, ':');
    fl_json_quote(out, size > 0 ? value : "", size);
}

/* Which of the text's fields this column is, or FL_FIELDS_MAX. */
static size_t field_of(const fl_input *input, size_t column) {
    for (size_t i = 0; i < input->field_count; i++) {
        if (input->text_columns[i] == column) {
            return i;
        }
    }
    return FL_FIELDS_MAX;
}

int fl_input_csv(const fl_input *input, const char *raw, size_t size, fl_window *window,
                 fl_record *record, fletch_error *error) {
    fl_buf parts = {
        0}; /* the fields that make the text, one after the other, then another column */
    int    status = 0;
    size_t count = 0, kept = 0;
    struct {
        size_t offset, size;
    } part[FL_FIELDS_MAX] = {{0, 0}};
    record->fields        = window->fields.size;
    for (size_t at = 0; status == 0 && at <= size; count++) {
        size_t field = field_of(input, count), from = parts.size;
        status = take_field(delimiter_of(input), raw, size, at, &parts, &at, error);
        if (field < FL_FIELDS_MAX) {
            part[field].offset = from;
            part[field].size   = parts.size - from;
            kept               = parts.size;
        } else {
            bool keep = input->keep_fields || count == input->id_column;
            if (status == 0 && !parts.failed && keep && count < input->column_count) {
                keep_column(input, count, parts.data + from, parts.size - from, &window->fields);
            }
            parts.size = kept;
        }
    }
    record->decoded     = true;
    record->offset      = window->decoded.size;
    record->fields_size = window->fields.size - record->fields;
    for (size_t i = 0; i < input->field_count && !parts.failed; i++) {
        fl_buf_puts(&window->decoded, i > 0 ? input->join : "");
        fl_buf_append(&window->decoded, parts.data + part[i].offset, part[i].size);
    }
    record->size = window->decoded.size - record->offset;
    bool failed  = parts.failed || window->decoded.failed || window->fields.failed;
    fl_buf_free(&parts);
    if (failed) {
        return fl_fail_nomem(error, size, "a record");
    }
    if (status == 0 && count != input->column_count) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "has %zu fields, the %s has %zu", count,
                       input->no_header ? "first line" : "header", input->column_count);
    }
    return status;
}
