/* SPDX-License-Identifier: Apache-2.0 */
/* input_csv.c - CSV (RFC 4180), TSV and COPY records: the column that holds the text, the others passed on.
 *
 * Role    input.c calls it with one record, line ends inside quotes included.
 * Method  The first record names the columns, or with --no-header only counts them. A field in quotes
 *         ends at the first quote that is not doubled; anything but a delimiter after it is an error,
 *         and so is a record with more or fewer fields than the header: both mean broken quoting, and
 *         guessing would shift columns silently. COPY is PostgreSQL's own form, in dumps and by itself: tabs between
 *         fields, no quotes, escapes with a backslash, \N for null; the line "COPY table (columns) FROM stdin;"
 *         names the columns, "\." ends the table.
 * Memory  Column names are owned by the input. Proof tests/cli/test_cli_input.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
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
    if (at >= size)
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "a quoted field has no closing quote");
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
    const bool tabs = input->format == FL_INPUT_TSV || input->format == FL_INPUT_COPY;
    return input->delimiter != '\0' ? input->delimiter : tabs ? '\t' : ',';
}

/* The byte that raw[*at], behind a backslash, stands for; *at goes to its last byte. */
static char unescape(const char *raw, size_t end, size_t *at) {
    static const char letters[] = "bfnrtv", meant[] = "\b\f\n\r\t\v";
    const char       *letter = strchr(letters, raw[*at]);
    const int         base   = raw[*at] == 'x' ? 16 : 8;
    size_t            from = *at + (base == 16), size = 0;
    char              digits[4] = "";
    if (letter != NULL && raw[*at] != '\0')
        return meant[letter - letters];
    while (from + size < end && size < (base == 16 ? 2 : 3) &&
           fl_hex_digit(raw[from + size]) >= 0 && fl_hex_digit(raw[from + size]) < base) {
        digits[size] = raw[from + size];
        size++;
    }
    if (size == 0)
        return raw[*at];
    *at = from + size - 1;
    return (char)strtoul(digits, NULL, base);
}

/* A field of COPY; *null when it is \N. */
static void take_copied(char delimiter, const char *raw, size_t size, size_t at, fl_buf *out,
                        size_t *next, bool *null) {
    const char  *found = at < size ? memchr(raw + at, delimiter, size - at) : NULL;
    const size_t end   = found != NULL ? (size_t)(found - raw) : size;
    *next              = end + 1;
    *null              = end - at == 2 && raw[at] == '\\' && raw[at + 1] == 'N';
    for (; at < end && !*null; at++) {
        if (raw[at] == '\\' && at + 1 < end) {
            at++;
            fl_buf_putc(out, unescape(raw, end, &at));
        } else {
            fl_buf_putc(out, raw[at]);
        }
    }
}

/* Append the field that begins at raw[at], as the format has it; a null one appends nothing. */
static int take(const fl_input *input, const char *raw, size_t size, size_t at, fl_buf *out,
                size_t *next, bool *null, fletch_error *error) {
    *null = false;
    if (input->format != FL_INPUT_COPY)
        return take_field(delimiter_of(input), raw, size, at, out, next, error);
    const size_t from = out->size;
    take_copied(delimiter_of(input), raw, size, at, out, next, null);
    return out->failed ||
                   fl_utf8_valid_prefix(out->data + from, out->size - from) == out->size - from
               ? 0
               : fl_fail(error, FLETCH_EUTF8, FLETCH_NOWHERE,
                         "a field is not valid UTF-8 after its escapes (column %zu)", at + 1);
}

void fl_input_csv_free(fl_input *input) {
    for (size_t i = 0; i < input->column_count; i++)
        fl_free(input->columns[i]);
    fl_free(input->columns);
    input->columns      = NULL;
    input->column_count = 0;
    input->copied       = false;
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
    if (copy == NULL)
        return fl_fail_nomem(error, name->size, "the column names");
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
    while (i < input->field_count && find_column(input, input->fields[i], &input->text_columns[i]))
        i++;
    for (size_t k = 1; i == input->field_count && k < i; k++) {
        for (size_t j = 0; j < k; j++) {
            if (input->text_columns[j] == input->text_columns[k]) {
                return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                               "--field names the column \"%s\" twice",
                               input->columns[input->text_columns[k]]);
            }
        }
    }
    if (i == input->field_count)
        return 0;
    for (size_t k = 0; k < input->column_count && used < sizeof known; k++) {
        int n = snprintf(known + used, sizeof known - used, "%s%s", k > 0 ? ", " : "",
                         input->columns[k]);
        used += n > 0 ? (size_t)n : 0;
    }
    return fl_fail(
        error, FLETCH_ECONFIG, FLETCH_NOWHERE,
        "%s has no column \"%.*s\"; name the text with --field, or its number, one of: %s",
        input->no_header ? "the first line" : "the header", (int)input->fields[i].size,
        input->fields[i].name, known);
}

static int find_id(fl_input *input, fletch_error *error) {
    if (input->id_field == NULL)
        return 0;
    const fl_input_field field = {input->id_field, strlen(input->id_field)};
    if (!find_column(input, field, &input->id_column)) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "no column \"%s\", which --id-field names", input->id_field);
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
    bool   null;
    for (size_t at = 0; status == 0 && at <= size;) {
        fl_buf_clear(&name);
        status = take(input, raw, size, at, &name, &at, &null, error);
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

/* The name of a column in the list of COPY that begins at *at: plain, or in double quotes, those inside doubled. */
static void take_copy_name(const char *raw, size_t end, size_t *at, fl_buf *name) {
    bool quoted = false;
    fl_buf_clear(name);
    for (; *at < end && (quoted || raw[*at] != ','); ++*at) {
        const bool doubled = quoted && raw[*at] == '"' && *at + 1 < end && raw[*at + 1] == '"';
        if (doubled)
            ++*at;
        quoted = raw[*at] == '"' && !doubled ? !quoted : quoted;
        if (doubled || (raw[*at] != '"' && (quoted || raw[*at] != ' ')))
            fl_buf_putc(name, raw[*at]);
    }
    ++*at;
}

int fl_input_copy_header(fl_input *input, const char *raw, size_t size, fletch_error *error) {
    static const char begin[] = "COPY ", end[] = ") FROM stdin";
    fletch_error      other;
    fl_buf            name   = {0};
    int               status = 0;
    if (input->no_header) /* a table by itself, whose columns have numbers */
        return fl_input_csv_header(input, raw, size, error) < 0 ? error->code : 1;
    const char *last = memmem(raw, size, end, sizeof end - 1);
    if (size < sizeof begin || memcmp(raw, begin, sizeof begin - 1) != 0 || last == NULL)
        return 0;
    size_t at = sizeof begin - 1; /* of the name of the table, which may be in quotes */
    for (bool quoted = false; at < (size_t)(last - raw) && (quoted || raw[at] != '('); at++)
        quoted = raw[at] == '"' ? !quoted : quoted;
    for (at++; status == 0 && at < (size_t)(last - raw);) {
        take_copy_name(raw, (size_t)(last - raw), &at, &name);
        status = add_column(input, &name, error);
    }
    fl_buf_free(&name);
    FL_TRY(status);
    if (find_columns(input, &other) < 0) { /* another table */
        fl_input_csv_free(input);
        return 0;
    }
    return find_id(input, error) < 0 ? error->code : 1;
}

static void keep_column(const fl_input *input, size_t column, const char *value, size_t size,
                        bool null, fl_buf *out) {
    const char *name = input->columns[column];
    if (column == input->id_column)
        name = "id";
    else if (fl_input_name_taken(input, name, strlen(name)))
        return;
    fl_buf_putc(out, ',');
    fl_json_quote(out, name, strlen(name));
    fl_buf_putc(out, ':');
    if (null)
        fl_buf_puts(out, "null");
    else
        fl_json_quote(out, size > 0 ? value : "", size);
}

/* Which of the text's fields this column is, or FL_FIELDS_MAX. */
static size_t field_of(const fl_input *input, size_t column) {
    for (size_t i = 0; i < input->field_count; i++)
        if (input->text_columns[i] == column)
            return i;
    return FL_FIELDS_MAX;
}

int fl_input_csv(const fl_input *input, const char *raw, size_t size, fl_window *window,
                 fl_record *record, fletch_error *error) {
    fl_buf parts = {
        0}; /* the fields that make the text, one after the other, then another column */
    int    status = 0;
    bool   null   = false;
    size_t count = 0, kept = 0;
    struct {
        size_t offset, size;
    } part[FL_FIELDS_MAX] = {{0, 0}};
    record->fields        = window->fields.size;
    for (size_t at = 0; status == 0 && at <= size; count++) {
        size_t field = field_of(input, count), from = parts.size;
        status = take(input, raw, size, at, &parts, &at, &null, error);
        if (field < FL_FIELDS_MAX) {
            part[field].offset = from;
            part[field].size   = parts.size - from;
            kept               = parts.size;
        } else {
            bool keep = input->keep_fields || count == input->id_column;
            if (status == 0 && !parts.failed && keep && count < input->column_count) {
                keep_column(input, count, parts.data + from, parts.size - from, null,
                            &window->fields);
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
    if (failed)
        return fl_fail_nomem(error, size, "a record");
    if (status == 0 && count != input->column_count) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "has %zu fields, the %s has %zu", count,
                       input->no_header ? "first line" : "header", input->column_count);
    }
    return status;
}
