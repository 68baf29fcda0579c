/* SPDX-License-Identifier: Apache-2.0 */
/* stored_records.c - texts and vectors that are fields of records: JSON lines, JSON, CSV, TSV, COPY.
 *
 * Role    stored.c calls it. What `fletch embed --keep-text` writes, exports of Chroma and LanceDB as JSON lines, and
 *         tables of PostgreSQL, where pgvector's type and arrays are text.
 * Method  The reader of all texts (input.h) passes the other fields on as JSON members; of those the vector is taken,
 *         a list of numbers or a string that holds one, and "vector_id" if there is one. A record without a vector is
 *         left out, one that is damaged ends the reading.
 * Memory  a window of records. Proof tests/cli/test_cli_verify_files.py. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "cli/stored.h"

enum { WINDOW = 256, WINDOW_BYTES = 4 << 20 };

/* The value of the field, whatever form it has; *width 0: null, or an empty column of CSV. */
static int take_vector(fl_stored *s, fl_json_in *in, size_t *width, fletch_error *error) {
    fl_span text = {0};
    *width       = 0;
    switch (fl_json_in_peek(in)) {
    case FL_JSON_ARRAY: {
        (void)fl_json_in_skip(in, &text);
        char *numbers = in->text + (text.data - in->text);
        return fl_stored_numbers(s, numbers, text.size, width, error);
    }
    case FL_JSON_STRING: {
        (void)fl_json_in_string(in, &text);
        char *numbers = in->text + (text.data - in->text);
        return text.size == 0 ? 0 : fl_stored_numbers(s, numbers, text.size, width, error);
    }
    case FL_JSON_NULL: (void)fl_json_in_null(in); return 0;
    default:
        return fl_stored_refuse(s, error, "has %s as its vector",
                                fl_json_type_text(fl_json_in_peek(in)));
    }
}

/* One record, whose other fields are `,"id":3,"embedding":[..]`; `members` is scratch. */
static int take_record(fl_stored *s, const fl_cli *cli, const fl_window *window, size_t i,
                       fl_buf *members, fletch_error *error) {
    const fl_record *record = &window->records[i];
    size_t           width  = 0;
    bool             found  = false;
    fl_json_in       in;
    fl_span          key, id;
    fl_buf_clear(members);
    fl_buf_append(members, window->fields.data + record->fields, record->fields_size);
    fl_buf_putc(members, '}');
    if (members->failed)
        return fl_fail_nomem(error, record->fields_size, "a record");
    members->data[0] = '{'; /* in the place of the comma, or of the brace where there is no field */
    fl_json_in_begin(&in, members->data, record->fields_size > 0 ? members->size : 0);
    bool object = record->fields_size > 0 && fl_json_in_enter(&in, FL_JSON_OBJECT);
    while (object && fl_json_in_key(&in, &key)) {
        if (fl_stored_is_vector(cli, key.data, key.size)) {
            found = true;
            FL_TRY(take_vector(s, &in, &width, error));
        } else if (fl_span_is(key, "vector_id") && fl_json_in_peek(&in) == FL_JSON_STRING) {
            (void)fl_json_in_string(&in, &id);
            FL_TRY(fl_stored_take_id(s, id.data, id.size, error));
        } else {
            (void)fl_json_in_skip(&in, NULL);
        }
    }
    if (!found)
        return fl_stored_refuse(s, error, "has no vector field; name it with --vector-field");
    return fl_stored_take(s, window->texts[i], window->sizes[i],
                          (const float *)(const void *)s->numbers.data, width, error);
}

fl_exit fl_stored_records(fl_stored *s, fl_cli *cli, fl_input_format format) {
    const fl_input_piece piece = {s->path, format, 0, 0};
    fletch_error         error = {0};
    fl_input             in;
    fl_window            window  = {0};
    fl_buf               members = {0};
    int                  more = 1, status = 0;
    fl_exit              code = fl_input_open_piece(&in, cli, "", &piece);
    in.keep_fields            = true;
    in.skip_errors            = false;
    while (code == FL_EXIT_DONE && status == 0 && more > 0) {
        more = fl_input_next(&in, &window, WINDOW, WINDOW_BYTES);
        for (size_t i = 0; more > 0 && status == 0 && i < window.count; i++)
            status = take_record(s, cli, &window, i, &members, &error);
    }
    if (code == FL_EXIT_DONE && status == 0 && more < 0) {
        error  = in.error;
        status = error.code;
    }
    fl_buf_free(&members);
    fl_window_free(&window);
    fl_input_close(&in);
    return status < 0 ? fl_stored_fail(&error) : code;
}
