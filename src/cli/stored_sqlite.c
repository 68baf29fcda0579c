/* SPDX-License-Identifier: Apache-2.0 */
/* stored_sqlite.c - texts and vectors out of a file of SQLite: the server's store, sqlite-vec, any table.
 *
 * Role    stored.c calls it. SQLite belongs to the store's room, which reads (store/sqlite_rows.h); a build without
 *         it has no_server.c instead.
 * Memory  a row. Proof tests/cli/test_cli_verify_files.py. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "cli/stored.h"
#include "store/sqlite_rows.h"

static int take(void *user, const fl_sqlite_row *row, fletch_error *error) {
    fl_stored *s     = user;
    size_t     width = row->vector_size / sizeof(float);
    if (row->text == NULL || row->vector == NULL)
        return fl_stored_take(s, NULL, 0, NULL, 0, error);
    fl_buf_clear(&s->numbers);
    if (row->blob) {
        fl_buf_append(&s->numbers, row->vector, row->vector_size);
    } else {
        char *text = fl_strndup(row->vector, row->vector_size);
        if (text == NULL)
            return fl_fail_nomem(error, row->vector_size, "a vector");
        const int status = fl_stored_numbers(s, text, row->vector_size, &width, error);
        fl_free(text);
        FL_TRY(status);
    }
    if (row->blob && row->vector_size % sizeof(float) != 0) {
        return fl_stored_refuse(s, error, "has a vector of %zu bytes, not a multiple of float32",
                                row->vector_size);
    }
    return s->numbers.failed
               ? fl_fail_nomem(error, row->vector_size, "a vector")
               : fl_stored_take(s, row->text, row->text_size,
                                (const float *)(const void *)s->numbers.data, width, error);
}

fl_exit fl_stored_sqlite(fl_stored *s, fl_cli *cli) {
    const char     *text    = cli->args.value[FL_FLAG_FIELD];
    const char     *vectors = cli->args.value[FL_FLAG_VECTOR_FIELD];
    fl_sqlite_facts facts;
    fletch_error    error = {0};
    fl_sqlite_ask   ask   = {.path    = s->path,
                             .sql     = cli->args.value[FL_FLAG_SQL],
                             .text    = text != NULL ? text : "text",
                             .vectors = vectors != NULL ? vectors : fl_stored_vector_names};
    if (fl_sqlite_read(&ask, &facts, take, s, &error) < 0)
        return fl_stored_fail(&error);
    s->unit = facts.store;
    (void)memcpy(s->id, facts.vector_id, sizeof s->id);
    return FL_EXIT_DONE;
}
