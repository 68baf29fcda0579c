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

/* What a format holds. */
typedef enum fl_output_content {
    FL_CONTENT_TEXT,
    FL_CONTENT_JSON,
    FL_CONTENT_NUMBERS
} fl_output_content;

enum { FL_NPY_HEADER = 128, FL_SPOOLS_MAX = 2, FL_ARCHIVE_MAX = 5 };

/* Bytes of an array that follows the rows in an archive: they wait in a temporary file. */
typedef struct fl_spool {
    fl_sink  sink;
    uint32_t crc;
} fl_spool;

typedef struct fl_output {
    fl_sink          sink;
    fl_output_format format;
    uint64_t         rows;            /* written so far */
    bool             keep_text, half; /* half: float32 rows are written as float16 */
    bool             no_index;        /* jsonl without the member */
    uint32_t         crc;             /* of the rows, for npz */
    fl_spool         spool[FL_SPOOLS_MAX];
    size_t           spools;
    fl_zip_entry     files[FL_ARCHIVE_MAX]; /* npz: the first has the rows */
    size_t           file_count;
    char head[FL_ZIP_HEAD_MAX + FL_NPY_HEADER]; /* npy, npz: before the rows, at the end */
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

/* --keep-fields and --keep-text need a format that can hold texts. */
fl_exit fl_output_check_kept(const fl_output *output, const fl_cli *cli);

/* Report a failed write and give the exit code; a closed pipe is silent. */
fl_exit fl_output_fail(const fl_output *output, const fletch_error *error);

/* How results of a kind are written, one function for each content; NULL: it has no such format. */
typedef struct fl_writer {
    void (*text)(fl_output *output, const fl_row *row, const void *result);    /* for a person */
    void (*members)(fl_output *output, const fl_row *row, const void *result); /* of its object */
    void (*numbers)(fl_output *output, const fl_row *row, const void *result);
    bool bare; /* the object does not say whether the text was cut, nor repeats it */
} fl_writer;

extern const fl_writer fl_vector_writer; /* a row is its own result */

/* Append one result, and what every format puts around it. */
void              fl_output_put(fl_output *output, const fl_writer *writer, const fl_row *row,
                                const void *result);
fl_output_content fl_output_holds(const fl_output *output);

/* A line of jsonl, or an object of json, is complete. */
void fl_output_end_row(fl_output *output);
/* The end of a row's object: whether it was cut, its text if that is kept, and its fields. */
void fl_output_end_object(fl_output *output, const fl_row *row);

/* As --dtype has it. */
const char *fl_output_dtype_name(fletch_dtype dtype);

/* `"index":0,`, and of a chunk `"chunk":0,"bytes":[0,14],"chars":[0,7],` */
void fl_output_put_index(fl_buf *out, const fl_row *row);
/* `,"tokens":9` */
void fl_output_put_tokens(fl_buf *out, const fl_row *row);

/* Write out what is buffered, when it is much. */
int fl_output_flush(fl_output *output, fletch_error *error);

/* What stands before the values of an npy file of `rows` rows of vectors. */
void fl_output_rows_header(char out[FL_NPY_HEADER], uint64_t rows, size_t cols, fletch_dtype dtype,
                           bool half);

/* The arrays of an archive, npz; of other formats the first two do nothing. Spools are opened before the first row. */
int  fl_output_spools(fl_output *output, size_t count, fletch_error *error);
void fl_output_spool(fl_output *output, size_t which, const void *data, size_t size);
/* The rows are complete, `bytes` of a type ("<f4") and a shape ("(3, 384)"); then what follows them; then the end. */
void fl_output_seal(fl_output *output, const char *type, const char *shape, uint64_t bytes);
void fl_output_put_array(fl_output *output, const char *name, const char *type, const char *shape,
                         const void *data, size_t size);
int  fl_output_pour(fl_output *output, size_t which, const char *name, const char *type,
                    const char *shape, uint64_t bytes, fletch_error *error);
int  fl_output_end(fl_output *output, fletch_error *error);

/* A row as a list of numbers, numbers, a person's first line of a result, and "9 tokens (cut)". */
void fl_output_put_values(fl_buf *out, const fl_row *row, bool half);
void fl_output_put_f32(fl_buf *out, float value);
/* As fl_output_put_f32, a list of them. */
void fl_output_put_floats(fl_buf *out, const float *values, size_t count);
void fl_output_put_preview(fl_output *output, const fl_row *row);
void fl_output_put_count(fl_buf *out, size_t tokens, bool truncated);

/* Complete the output; `cols` and `dtype` as of the rows (also when there were none). */
int fl_output_finish(fl_output *output, size_t cols, fletch_dtype dtype, fletch_error *error);

void fl_output_close(fl_output *output);

#endif
