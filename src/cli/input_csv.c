/* SPDX-License-Identifier: Apache-2.0 */
/* input_csv.c - CSV (RFC 4180) and TSV records: the column that holds the text, the others passed on.
 *
 * Role    input.c calls it with one record, line ends inside quotes included.
 * Method  The first record names the columns. A field in quotes ends at the first quote that is not
 *         doubled; anything but a delimiter behind it is an error, and so is a record with more or fewer
 *         fields than the header: both mean broken quoting, and guessing would shift columns silently.
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
static bool take_field(char delimiter, const char *raw, size_t size, size_t at, fl_buf *out,
                       size_t *next, fletch_error *error) {
    if (at >= size || raw[at] != '"') {
        const char *found = at < size ? memchr(raw + at, delimiter, size - at) : NULL;
        size_t      end   = found != NULL ? (size_t)(found - raw) : size;
        fl_buf_append(out, raw + at, end - at);
        *next = end + 1;
        return true;
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
        (void)fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "a quoted field has no closing quote");
        return false;
    }
    at++;
    if (at < size && raw[at] != delimiter) {
        (void)fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                      "text behind a closing quote (column %zu); a quote inside a field is doubled",
                      at + 1);
        return false;
    }
    *next = at + 1;
    return true;
}

static char delimiter_of(const fl_input *input) {
    return input->format == FL_INPUT_TSV ? '\t' : ',';
}

void fl_input_csv_free(fl_input *input) {
    for (size_t i = 0; i < input->column_count; i++) {
        fl_free(input->columns[i]);
    }
    fl_free(input->columns);
    input->columns      = NULL;
    input->column_count = 0;
}

static bool add_column(fl_input *input, const fl_buf *name, fletch_error *error) {
    size_t count   = input->column_count;
    char **columns = input->columns;
    if ((count & (count - 1)) == 0) /* 0, 1, 2, 4, …: full; a header of commas stays linear */
        columns = fl_realloc_array(columns, count == 0 ? 1 : count * 2, sizeof *columns);
    char *copy = columns != NULL ? fl_strndup(name->size > 0 ? name->data : "", name->size) : NULL;
    input->columns = columns != NULL ? columns : input->columns;
    if (copy == NULL) {
        (void)fl_fail_nomem(error, name->size, "the column names");
        return false;
    }
    input->columns[input->column_count++] = copy;
    return true;
}

bool fl_input_csv_header(fl_input *input, const char *raw, size_t size, fletch_error *error) {
    size_t valid = fl_utf8_valid_prefix(raw, size);
    if (valid < size) {
        (void)fl_fail(error, FLETCH_EIO, valid, "the header is not valid UTF-8 at column %zu",
                      valid + 1);
        return false;
    }
    fl_buf name = {0};
    bool   good = true;
    for (size_t at = 0; good && at <= size;) {
        fl_buf_clear(&name);
        good = take_field(delimiter_of(input), raw, size, at, &name, &at, error) &&
               add_column(input, &name, error);
    }
    fl_buf_free(&name);
    if (!good) {
        return false;
    }
    char   known[256];
    size_t used = 0;
    known[0]    = '\0';
    for (size_t i = 0; i < input->column_count; i++) {
        if (strcmp(input->columns[i], input->field) == 0) {
            input->text_column = i;
            return true;
        }
        if (used < sizeof known) {
            int n = snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                             input->columns[i]);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    (void)fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                  "the header has no column \"%s\"; --field names the one that holds the text, one "
                  "of: %s",
                  input->field, known);
    return false;
}

static void keep_column(const fl_input *input, size_t column, const fl_buf *value, fl_buf *out) {
    const char *name = input->columns[column];
    if (fl_input_name_taken(input, name, strlen(name))) {
        return;
    }
    fl_buf_putc(out, ',');
    fl_json_quote(out, name, strlen(name));
    fl_buf_putc(out, ':');
    fl_json_quote(out, value->size > 0 ? value->data : "", value->size);
}

bool fl_input_csv(const fl_input *input, const char *raw, size_t size, fl_window *window,
                  fl_record *record, fletch_error *error) {
    fl_buf other   = {0};
    bool   good    = true;
    size_t count   = 0;
    record->fields = window->fields.size;
    for (size_t at = 0; good && at <= size; count++) {
        bool    text = count == input->text_column;
        fl_buf *out  = text ? &window->decoded : &other;
        fl_buf_clear(&other);
        size_t offset = window->decoded.size;
        good          = take_field(delimiter_of(input), raw, size, at, out, &at, error);
        if (text) {
            record->decoded = true;
            record->offset  = offset;
            record->size    = window->decoded.size - offset;
        } else if (good && input->keep_fields && count < input->column_count) {
            keep_column(input, count, &other, &window->fields);
        }
    }
    record->fields_size = window->fields.size - record->fields;
    bool failed         = other.failed || window->decoded.failed || window->fields.failed;
    fl_buf_free(&other);
    if (failed) {
        (void)fl_fail_nomem(error, size, "a record");
        return false;
    }
    if (good && count != input->column_count) {
        (void)fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "has %zu fields, the header has %zu",
                      count, input->column_count);
        return false;
    }
    return good;
}
