/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - result formats: text, json, jsonl, npy, npz, raw, fvecs. */
#ifndef FL_CLI_OUTPUT_H
#define FL_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"
#include "cli/sink.h"

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
} fl_output;

/* One vector and what belongs to it; all borrowed. */
typedef struct fl_row {
    uint64_t     index;
    const char  *text; /* the input, for a person */
    size_t       text_size;
    const void  *vector;
    size_t       cols; /* dimensions, before bits are packed */
    fletch_dtype dtype;
    uint32_t     tokens;
    bool         truncated;
    const char  *fields; /* `,"id":3` */
    size_t       fields_size;
} fl_row;

/* By --format, else --output's extension, else terminal: `on_terminal`, pipe: `in_pipe`. Opens --output.
 */
fl_exit fl_output_open(fl_output *output, const fl_cli *cli, fl_output_format on_terminal,
                       fl_output_format in_pipe);

/* A file at `path` in a known format: npy, raw, fvecs or jsonl. */
int fl_output_open_file(fl_output *output, const char *path, fl_output_format format,
                        fletch_error *error);

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

/* Append one embedding. */
void fl_output_vector(fl_output *output, const fl_row *row);

/* What stands before the values of an npy file: a type ("<f4") and a shape ("(3, 384)"). */
enum { FL_NPY_HEADER = 128 };
void fl_output_npy_header(char out[FL_NPY_HEADER], const char *type, const char *shape);
/* The same of `rows` rows of vectors. */
void fl_output_rows_header(char out[FL_NPY_HEADER], uint64_t rows, size_t cols, fletch_dtype dtype,
                           bool half);

/* For list_output.c and several.c: a row as a list of numbers, numbers, and a person's first line of a result. */
void fl_output_put_values(fl_buf *out, const fl_row *row, bool half);
void fl_output_put_u64(fl_buf *out, uint64_t value);
void fl_output_put_f32(fl_buf *out, float value);
void fl_output_put_preview(fl_output *output, const fl_row *row);

/* Complete the output; `cols` and `dtype` as of the rows (also when there were none). */
int fl_output_finish(fl_output *output, size_t cols, fletch_dtype dtype, fletch_error *error);

void fl_output_close(fl_output *output);

/* Of two vectors, summed in double; a vector of zeros has the cosine 0 to any. */
double fl_vector_dot(const float *a, const float *b, size_t count);
double fl_vector_cosine(const float *a, const float *b, size_t count);

#endif
