/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - result formats: text, json, jsonl, npy, npz, raw, fvecs. */
#ifndef FL_CLI_OUTPUT_H
#define FL_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_out.h"
#include "cli/cli.h"
#include "cli/sink.h"
#include "cli/zip.h"

typedef enum fl_output_format {
    FL_OUTPUT_TEXT,
    FL_OUTPUT_JSON,
    FL_OUTPUT_JSONL,
    FL_OUTPUT_NPY,
    FL_OUTPUT_NPZ,
    FL_OUTPUT_RAW,
    FL_OUTPUT_FVECS
} fl_output_format;

typedef struct fl_output {
    fl_sink          sink;
    fl_output_format format;
    uint64_t         rows;            /* written so far */
    uint32_t         crc;             /* of the rows, for npz */
    const char      *entry;           /* npz: the file that the rows are in */
    bool             keep_text, half; /* half: float32 rows are written as float16 */
    bool             no_index;        /* jsonl without the member */
    bool             chunks;          /* rows are of chunks of texts */
    fl_sink          places;          /* npz: where these lie; they follow the rows */
    uint32_t         places_crc;
} fl_output;

/* Where a chunk lies in its text, [begin, end). */
typedef struct fl_row_place {
    size_t number; /* in the text, from 0 */
    size_t bytes[2], chars[2];
} fl_row_place;

/* One vector and what belongs to it; all borrowed. */
typedef struct fl_row {
    uint64_t            index;
    const char         *text; /* the input, for a person */
    size_t              text_size;
    const void         *vector;
    size_t              cols; /* dimensions, before bits are packed */
    fletch_dtype        dtype;
    uint32_t            tokens;
    bool                truncated;
    const char         *fields; /* `,"id":3` */
    size_t              fields_size;
    const fl_row_place *chunk; /* the text is this part of input `index`; NULL: all of it */
} fl_row;

/* By --format, else --output's extension, else terminal: `on_terminal`, pipe: `in_pipe`. Opens --output.
 */
fl_exit fl_output_open(fl_output *output, const fl_cli *cli, fl_output_format on_terminal,
                       fl_output_format in_pipe);

/* A file at `path` in a known format: npy, raw, fvecs or jsonl. */
int fl_output_open_file(fl_output *output, const char *path, fl_output_format format,
                        fletch_error *error);

/* The rows to come are of chunks; before the first. */
int fl_output_expect_chunks(fl_output *output, fletch_error *error);

/* Report a failed write and give the exit code; a closed pipe is silent. */
fl_exit fl_output_fail(const fl_output *output, const fletch_error *error);

/* Separators of json around the next object; called before the object's text is appended. */
void fl_output_next(fl_output *output);
/* The object is complete. */
void fl_output_end_row(fl_output *output);

/* The end of a row's object: whether it was cut, its text if that is kept, and its fields. */
void fl_output_end_object(fl_output *output, const fl_row *row);

/* As --dtype has it. */
const char *fl_output_dtype_name(fletch_dtype dtype);

/* `"chunk":0,"bytes":[0,14],"chars":[0,7]` */
void fl_output_put_place(fl_buf *out, const fl_row_place *place);

/* Append one embedding. */
void fl_output_vector(fl_output *output, const fl_row *row);

/* Write out what is buffered, when it is much. */
int fl_output_flush(fl_output *output, fletch_error *error);

/* What stands before the values of an npy file of `rows` rows of vectors. */
enum { FL_NPY_HEADER = 128 };
void fl_output_rows_header(char out[FL_NPY_HEADER], uint64_t rows, size_t cols, fletch_dtype dtype,
                           bool half);

/* Bytes that go to a spool, and to its checksum. */
void fl_output_spool(fl_sink *spool, uint32_t *crc, const void *data, size_t size);
/* A file of an archive that is complete: its facts from its npy header, which is made of a type ("<f4") and a shape
 * ("(3, 384)"), and what is known of the rest. */
void fl_output_seal(fl_zip_entry *entry, char npy[FL_NPY_HEADER], const char *type,
                    const char *shape, uint32_t crc, uint64_t bytes);
/* What stands before one more file, behind the one before it, whose entry is entry[-1]. */
void fl_output_put_head(fl_output *output, fl_zip_entry *entry, const char *name, const char *type,
                        const char *shape, uint32_t crc, uint64_t bytes);

/* For list_output.c and several.c: a row as a list of numbers, numbers, and a person's first line of a result. */
void fl_output_put_values(fl_buf *out, const fl_row *row, bool half);
void fl_output_put_f32(fl_buf *out, float value);
/* As fl_output_put_f32, a list of them. */
void fl_output_put_floats(fl_buf *out, const float *values, size_t count);
void fl_output_put_preview(fl_output *output, const fl_row *row);

/* Complete the output; `cols` and `dtype` as of the rows (also when there were none). */
int fl_output_finish(fl_output *output, size_t cols, fletch_dtype dtype, fletch_error *error);

void fl_output_close(fl_output *output);

#endif
