/* SPDX-License-Identifier: Apache-2.0 */
/* stored.h - texts with the vectors that somebody stored of them, out of whatever file they lie in, as a sample.
 *
 * Every row of the file is looked at: that it has a vector, of the width of those before it, of finite numbers, and of
 * the same vector id where rows name one. Kept are the first ones, and as many spread over the rest. */
#ifndef FL_CLI_STORED_H
#define FL_CLI_STORED_H

#include "base/json.h"
#include "cli/cli.h"
#include "cli/input.h"

typedef struct fl_stored_row {
    char    *text; /* owned */
    size_t   size;
    uint64_t number; /* in the file, from 1 */
} fl_stored_row;

typedef struct fl_stored {
    const char    *path; /* borrowed */
    size_t         most; /* rows that are kept; 0: all */
    fl_stored_row *rows; /* owned [capacity] */
    float         *then; /* owned [capacity, width]: their vectors */
    size_t         count, capacity, width;
    uint64_t       seen, left_out; /* left out: rows without a text or a vector */
    uint64_t       stride;         /* between those that are kept of the rest */
    bool           unit;           /* vectors were scaled to length 1 */
    fl_buf         numbers;        /* scratch: a vector under way */

    /* What the file says of the model; NULL and "": nothing. */
    char        id[65]; /* vector id */
    const char *model, *fletch;
    fl_json    *settings; /* parts of the id, and maybe more */
    fl_json    *root;     /* owned: in which they lie */
} fl_stored;

/* Everything that FILE holds. Says what forbids it: FL_EXIT_MODEL where it cannot be read, FL_EXIT_USAGE where flags
 * have to say more. Free it in either case. */
fl_exit fl_stored_read(fl_stored *stored, fl_cli *cli, const char *path);
void    fl_stored_free(fl_stored *stored);

/* ---- for the readers ---- */

/* One more row; text NULL or width 0: it has none and is left out. Names what is wrong with it. */
int fl_stored_take(fl_stored *stored, const char *text, size_t size, const float *vector,
                   size_t width, fletch_error *error);
/* What the next row says of its vector id. */
int fl_stored_take_id(fl_stored *stored, const char *id, size_t size, fletch_error *error);
/* "FILE: row 7 …", the row after those that were seen. */
int fl_stored_refuse(const fl_stored *stored, fletch_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Say it: exit code 3, but 1 for want of memory and 2 for what flags have to say. */
fl_exit fl_stored_fail(const fletch_error *error);
/* The numbers of "[0.1,0.2]", or of "{0.1,0.2}" as PostgreSQL writes an array, which is overwritten, into
 * stored->numbers; *width of them. */
int fl_stored_numbers(fl_stored *stored, char *text, size_t size, size_t *width,
                      fletch_error *error);

/* Names under which vectors are looked for: --vector-field's, or the usual ones. */
extern const char fl_stored_vector_names[];
bool              fl_stored_is_vector(const fl_cli *cli, const char *name, size_t size);

/* ---- stored_records.c: JSON lines, JSON, CSV, COPY ---- */
fl_exit fl_stored_records(fl_stored *stored, fl_cli *cli, fl_input_format format);

/* ---- stored_rows.c: .npy and .npz with a file of texts, the folder of a job ---- */
fl_exit fl_stored_npy(fl_stored *stored, fl_cli *cli);
fl_exit fl_stored_job(fl_stored *stored, fl_cli *cli);

/* ---- stored_sqlite.c ---- */
fl_exit fl_stored_sqlite(fl_stored *stored, fl_cli *cli);

#endif
