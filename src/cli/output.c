/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - write vectors in the seven formats.
 *
 * Role    Commands hand over result by result, each kind with its writer; what a format puts around them is here.
 * Formats jsonl  {"index":0,"embedding":[...],"tokens":9,"truncated":false} a line
 *         json   one array of the same objects, one a line
 *         npy    NumPy 1.0: 128 bytes of header, then rows; the number of rows is known at the end, so
 *                the header is reserved first and written last
 *         npz    that file as embeddings.npy in an archive, stored (zip.h); of chunks, chunks.npy too, int64
 *                [rows, 6]: index, chunk, bytes, chars; its rows wait in a temporary file
 *         raw    the rows alone
 *         fvecs  each row an int32 with its dimensions, then float32 (TEXMEX, as faiss reads it)
 *         text   for a person: dimensions, norm, tokens, the first values
 *         Binary formats are little-endian. Floats as text are the shortest that read back the same.
 * Memory  The sink's buffer.
 * Proof   tests/cli/test_cli_output.py reads each back with numpy and json. */
#include "cli/output.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "base/number.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "binary formats are little-endian");

enum { FIRST_VALUES = 6, PREVIEW = 64, PLACE_COLUMNS = 6 };

static const struct {
    const char       *names[3]; /* the first is the extension of its files */
    fl_output_content holds;
} formats[] = {
    [FL_OUTPUT_TEXT]  = {{"text", "txt"}, FL_CONTENT_TEXT},
    [FL_OUTPUT_JSON]  = {{"json"}, FL_CONTENT_JSON},
    [FL_OUTPUT_JSONL] = {{"jsonl", "ndjson"}, FL_CONTENT_JSON},
    [FL_OUTPUT_NPY]   = {{"npy"}, FL_CONTENT_NUMBERS},
    [FL_OUTPUT_NPZ]   = {{"npz"}, FL_CONTENT_NUMBERS},
    [FL_OUTPUT_RAW]   = {{"raw", "bin", "f32"}, FL_CONTENT_NUMBERS},
    [FL_OUTPUT_FVECS] = {{"fvecs"}, FL_CONTENT_NUMBERS},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

fl_output_content fl_output_holds(const fl_output *output) {
    return formats[output->format].holds;
}

static bool find_format(const char *name, fl_output_format *out) {
    for (size_t i = 0; i < 3 * FORMATS; i++) {
        const char *own = formats[i / 3].names[i % 3];
        if (own != NULL && strcmp(own, name) == 0) {
            *out = (fl_output_format)(i / 3);
            return true;
        }
    }
    return false;
}

/* "text|json|jsonl": what --format takes for this command. */
static const char *formats_of(const fl_cli *cli) {
    const fl_flag *flag;
    for (size_t i = 0; (flag = fl_flag_at(i)) != NULL; i++)
        if (flag->id == FL_FLAG_FORMAT && (flag->commands & 1u << cli->args.command->id) != 0)
            return flag->value;
    return "";
}

/* A result file without a known extension is a mistake more often than a wish. */
static fl_exit choose_by_name(const fl_cli *cli, const char *path, fl_output_format *format) {
    const char *slash = strrchr(path, '/');
    const char *dot   = strrchr(slash != NULL ? slash : path, '.');
    if (dot != NULL && find_format(dot + 1, format) &&
        fl_choice_has(formats_of(cli), formats[*format].names[0]))
        return FL_EXIT_DONE;
    if (strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0)
        return FL_EXIT_DONE; /* a device has no extension: as in a pipe */
    if (fl_folder_exists(path))
        return fl_cli_usage(cli, "%s is a folder; give the name of a file", path);
    return fl_cli_usage(cli, "cannot tell the format from the name %s; add --format %s", path,
                        formats_of(cli));
}

/* Bytes at the beginning that are known only at the end. */
static size_t head_of(const fl_output *output) {
    return output->format == FL_OUTPUT_NPY ? FL_NPY_HEADER
           : output->format == FL_OUTPUT_NPZ
               ? fl_zip_head_size(output->files[0].name) + FL_NPY_HEADER
               : 0;
}

fl_exit fl_output_open(fl_output *output, const fl_cli *cli, fl_output_format on_terminal,
                       fl_output_format in_pipe) {
    memset(output, 0, sizeof *output);
    const char  *path     = cli->args.value[FL_FLAG_OUTPUT];
    const char  *name     = cli->args.value[FL_FLAG_FORMAT];
    bool         stream   = path == NULL || strcmp(path, "-") == 0;
    fletch_error error    = {0};
    bool         sparse   = fl_cli_is(cli, FL_FLAG_OUTPUT_KIND, "sparse");
    output->files[0].name = sparse ? "data.npy" : "embeddings.npy";
    output->format        = in_pipe;
    output->keep_text     = cli->args.value[FL_FLAG_KEEP_TEXT] != NULL;
    output->half          = fl_cli_is(cli, FL_FLAG_DTYPE, "float16");
    if (name != NULL)
        (void)find_format(name, &output->format);
    else if (!stream)
        FL_CLI_TRY(choose_by_name(cli, path, &output->format));
    if (fl_sink_open(&output->sink, path, head_of(output) > 0, &error) < 0) {
        fl_exit code = fl_cli_fail(&error, false);
        fl_sink_close(&output->sink);
        return code;
    }
    char left[PATH_MAX];
    if (output->sink.atomic && !cli->quiet &&
        fl_atomic_leftover(output->sink.path, left, sizeof left))
        fl_cli_message("note: %s is an incomplete file of a killed run; it may be removed", left);
    bool terminal = stream && fl_sink_is_terminal(&output->sink);
    if (name == NULL && terminal)
        output->format = on_terminal;
    if (terminal && fl_output_holds(output) == FL_CONTENT_NUMBERS) {
        return fl_cli_usage(cli,
                            "--format %s is binary and would garble the terminal; write it to a "
                            "file with --output, or pipe it",
                            name);
    }
    fl_buf_append(&output->sink.buf, output->head, head_of(output)); /* room for it */
    return FL_EXIT_DONE;
}

fl_exit fl_output_check_kept(const fl_output *output, const fl_cli *cli) {
    if (fl_output_holds(output) == FL_CONTENT_NUMBERS &&
        (output->keep_text || cli->args.value[FL_FLAG_KEEP_FIELDS] != NULL)) {
        return fl_cli_usage(cli, "--keep-fields and --keep-text need json or jsonl; this format "
                                 "holds numbers only");
    }
    return FL_EXIT_DONE;
}

int fl_output_open_file(fl_output *output, const char *path, fl_output_format format,
                        fletch_error *error) {
    memset(output, 0, sizeof *output);
    output->format = format;
    FL_TRY(fl_sink_open(&output->sink, path, head_of(output) > 0, error));
    fl_buf_append(&output->sink.buf, output->head, head_of(output));
    return 0;
}

fl_exit fl_output_fail(const fl_output *output, const fletch_error *error) {
    return output->sink.closed_pipe ? FL_EXIT_FAILED : fl_cli_fail(error, false);
}

void fl_output_end_row(fl_output *output) {
    if (output->format != FL_OUTPUT_JSON)
        fl_buf_putc(&output->sink.buf, '\n');
    output->rows++;
}

void fl_output_end_object(fl_output *output, const fl_row *row) {
    fl_buf *out = &output->sink.buf;
    fl_buf_puts(out, row->truncated ? ",\"truncated\":true" : ",\"truncated\":false");
    if (output->keep_text) {
        fl_buf_puts(out, ",\"text\":");
        fl_json_quote(out, row->text, row->text_size);
    }
    fl_buf_append(out, row->fields, row->fields_size);
    fl_buf_putc(out, '}');
    fl_output_end_row(output);
}

void fl_output_put(fl_output *output, const fl_writer *writer, const fl_row *row,
                   const void *result) {
    fl_buf *out = &output->sink.buf;
    switch (fl_output_holds(output)) {
    case FL_CONTENT_TEXT: writer->text(output, row, result); break;
    case FL_CONTENT_NUMBERS: writer->numbers(output, row, result); break;
    case FL_CONTENT_JSON:
        fl_buf_puts(out, output->format != FL_OUTPUT_JSON ? "{"
                         : output->rows == 0              ? "[\n{"
                                                          : ",\n{");
        writer->members(output, row, result);
        if (!writer->bare) {
            fl_output_end_object(output, row);
            return;
        }
        fl_buf_append(out, row->fields, row->fields_size);
        fl_buf_putc(out, '}');
        fl_output_end_row(output);
        return;
    }
    output->rows++;
}

void fl_output_put_f32(fl_buf *out, float value) {
    char text[FL_F32_TEXT_MAX]; /* "null" where it is not finite: JSON has no other word */
    fl_buf_append(out, text, fl_f32_text(text, value));
}

void fl_output_put_floats(fl_buf *out, const float *values, size_t count) {
    if (!fl_json_out_floats(out, values, count))
        fl_buf_puts(out, "null");
}

static void put_pair(fl_buf *out, const char *name, const size_t *pair) {
    fl_buf_puts(out, name);
    fl_json_out_u64(out, pair[0]);
    fl_buf_putc(out, ',');
    fl_json_out_u64(out, pair[1]);
    fl_buf_putc(out, ']');
}

void fl_output_put_index(fl_buf *out, const fl_row *row) {
    fl_buf_puts(out, "\"index\":");
    fl_json_out_u64(out, row->index);
    if (row->chunk != NULL) {
        fl_buf_puts(out, ",\"chunk\":");
        fl_json_out_u64(out, row->chunk->number);
        put_pair(out, ",\"bytes\":[", row->chunk->bytes);
        put_pair(out, ",\"chars\":[", row->chunk->chars);
    }
    fl_buf_putc(out, ',');
}

void fl_output_put_tokens(fl_buf *out, const fl_row *row) {
    fl_buf_puts(out, ",\"tokens\":");
    fl_json_out_u64(out, row->tokens);
}

void fl_output_put_count(fl_buf *out, size_t tokens, bool truncated) {
    fl_buf_printf(out, "%zu token%s%s", tokens, tokens == 1 ? "" : "s", truncated ? " (cut)" : "");
}

static bool is_signed(fletch_dtype dtype) {
    return dtype == FLETCH_INT8 || dtype == FLETCH_BINARY;
}

/* Element `i` of a row as text; rows of bits are given as the bytes they are packed in. */
static void put_value(fl_buf *out, const fl_row *row, size_t i, bool half) {
    if (row->dtype == FLETCH_FLOAT32) {
        float value = ((const float *)row->vector)[i];
        fl_output_put_f32(out, half ? fl_half_to_f32(fl_half_of(value)) : value);
        return;
    }
    int value = is_signed(row->dtype) ? ((const int8_t *)row->vector)[i]
                                      : ((const uint8_t *)row->vector)[i];
    fl_buf_puts(out, value < 0 ? "-" : "");
    fl_json_out_u64(out, (uint64_t)(value < 0 ? -value : value));
}

static size_t values_of(size_t cols, fletch_dtype dtype) {
    size_t bytes = fletch_row_bytes(cols, dtype);
    return dtype == FLETCH_FLOAT32 ? bytes / sizeof(float) : bytes;
}

void fl_output_put_values(fl_buf *out, const fl_row *row, bool half) {
    if (row->dtype != FLETCH_FLOAT32) {
        fl_json_out_bytes(out, row->vector, values_of(row->cols, row->dtype),
                          is_signed(row->dtype));
    } else if (!half) {
        fl_output_put_floats(out, row->vector, row->cols);
    } else {
        for (size_t i = 0; i < row->cols; i++) {
            fl_buf_putc(out, i > 0 ? ',' : '[');
            put_value(out, row, i, half);
        }
        fl_buf_putc(out, ']');
    }
}

static void put_members(fl_output *output, const fl_row *row, const void *result) {
    fl_buf *out = &output->sink.buf;
    (void)result;
    if (!output->no_index)
        fl_output_put_index(out, row);
    fl_buf_puts(out, "\"embedding\":");
    fl_output_put_values(out, row, output->half);
    fl_output_put_tokens(out, row);
}

const char *fl_output_dtype_name(fletch_dtype dtype) {
    static const char *const names[] = {"float32", "int8", "uint8", "binary", "ubinary"};
    return names[dtype];
}

void fl_output_put_preview(fl_output *output, const fl_row *row) {
    fl_buf_printf(&output->sink.buf, "%" PRIu64 "  ", row->index + 1);
    fl_cli_preview(&output->sink.buf, row->text, row->text_size, PREVIEW);
}

static void put_text(fl_output *output, const fl_row *row, const void *result) {
    fl_buf *out   = &output->sink.buf;
    size_t  count = values_of(row->cols, row->dtype);
    (void)result;
    fl_output_put_preview(output, row);
    fl_buf_printf(out, "\n   %zu dimensions", row->cols);
    if (row->dtype == FLETCH_FLOAT32) {
        fl_buf_puts(out, output->half ? " as float16" : "");
        double sum = 0;
        for (size_t i = 0; i < row->cols; i++) {
            double x = ((const float *)row->vector)[i];
            sum += x * x;
        }
        fl_buf_printf(out, ", norm %.4f", sqrt(sum));
    } else {
        fl_buf_printf(out, " as %s", fl_output_dtype_name(row->dtype));
    }
    fl_buf_puts(out, ", ");
    fl_output_put_count(out, row->tokens, row->truncated);
    fl_buf_puts(out, "\n   ");
    for (size_t i = 0; i < count && i < FIRST_VALUES; i++) {
        put_value(out, row, i, output->half);
        fl_buf_putc(out, ' ');
    }
    fl_buf_puts(out, count > FIRST_VALUES ? "...\n" : "\n");
}

static void put_numbers(fl_output *output, const fl_row *row, const void *result) {
    fl_buf *out  = &output->sink.buf;
    int32_t cols = (int32_t)row->cols;
    (void)result;
    if (output->format == FL_OUTPUT_FVECS)
        fl_buf_append(out, &cols, sizeof cols);
    size_t start = out->size;
    if (output->half) {
        for (size_t i = 0; i < row->cols; i++) {
            uint16_t half = fl_half_of(((const float *)row->vector)[i]);
            fl_buf_append(out, &half, sizeof half);
        }
    } else {
        fl_buf_append(out, row->vector, fletch_row_bytes(row->cols, row->dtype));
    }
    if (output->format == FL_OUTPUT_NPZ && !out->failed)
        output->crc = fl_zip_crc(output->crc, out->data + start, out->size - start);
    if (output->format == FL_OUTPUT_NPZ && row->chunk != NULL) {
        const fl_row_place *at                   = row->chunk;
        const uint64_t      facts[PLACE_COLUMNS] = {row->index,   at->number,   at->bytes[0],
                                                    at->bytes[1], at->chars[0], at->chars[1]};
        fl_output_spool(output, 0, facts, sizeof facts);
    }
}

const fl_writer fl_vector_writer = {put_text, put_members, put_numbers, false};

/* Magic, version 1.0, length of the rest, a Python dictionary padded with spaces to 128 bytes. */
static void npy_header(char out[FL_NPY_HEADER], const char *type, const char *shape) {
    static const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, FL_NPY_HEADER - 10, 0};
    char              text[FL_NPY_HEADER - sizeof magic];
    memset(out, ' ', FL_NPY_HEADER);
    memcpy(out, magic, sizeof magic);
    int size = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                        type, shape);
    memcpy(out + sizeof magic, text, (size_t)size);
    out[FL_NPY_HEADER - 1] = '\n';
}

static size_t value_size(fletch_dtype dtype, bool half) {
    return half ? sizeof(uint16_t) : dtype == FLETCH_FLOAT32 ? sizeof(float) : 1;
}

static const char *value_type(fletch_dtype dtype, bool half) {
    return half ? "<f2" : dtype == FLETCH_FLOAT32 ? "<f4" : is_signed(dtype) ? "|i1" : "|u1";
}

static void rows_shape(char out[64], uint64_t rows, size_t cols, fletch_dtype dtype) {
    (void)snprintf(out, 64, "(%" PRIu64 ", %zu)", rows, values_of(cols, dtype));
}

void fl_output_rows_header(char out[FL_NPY_HEADER], uint64_t rows, size_t cols, fletch_dtype dtype,
                           bool half) {
    char shape[64];
    rows_shape(shape, rows, cols, dtype);
    npy_header(out, value_type(dtype, half), shape);
}

/* ---- Archives -------------------------------------------------------------------------------- */

int fl_output_spools(fl_output *output, size_t count, fletch_error *error) {
    while (output->format == FL_OUTPUT_NPZ && output->spools < count) {
        FL_TRY(fl_sink_spool(&output->spool[output->spools].sink, error));
        output->spools++;
    }
    return 0;
}

void fl_output_spool(fl_output *output, size_t which, const void *data, size_t size) {
    if (which < output->spools) {
        fl_spool *spool = &output->spool[which];
        spool->crc      = fl_zip_crc(spool->crc, data, size);
        fl_buf_append(&spool->sink.buf, data, size);
    }
}

/* One more file of an archive, from its npy header and what is known of the rest; its head goes to `head`. */
static size_t add_file(fl_output *output, char *head, const char *type, const char *shape,
                       uint32_t crc, uint64_t bytes) {
    fl_zip_entry *file = &output->files[output->file_count++];
    size_t        size = fl_zip_head_size(file->name);
    npy_header(head + size, type, shape);
    file->crc  = fl_zip_crc_join(fl_zip_crc(0, head + size, FL_NPY_HEADER), crc, bytes);
    file->size = FL_NPY_HEADER + bytes;
    fl_zip_head(head, file);
    return size + FL_NPY_HEADER;
}

void fl_output_seal(fl_output *output, const char *type, const char *shape, uint64_t bytes) {
    if (output->format == FL_OUTPUT_NPZ)
        (void)add_file(output, output->head, type, shape, output->crc, bytes);
    else
        npy_header(output->head, type, shape);
}

static void put_head(fl_output *output, const char *name, const char *type, const char *shape,
                     uint32_t crc, uint64_t bytes) {
    char          head[sizeof output->head];
    fl_zip_entry *file = &output->files[output->file_count], *before = file - 1;
    assert(output->file_count > 0 && output->file_count < FL_ARCHIVE_MAX);
    file->name = name;
    file->at   = before->at + fl_zip_head_size(before->name) + before->size;
    fl_buf_append(&output->sink.buf, head, add_file(output, head, type, shape, crc, bytes));
}

void fl_output_put_array(fl_output *output, const char *name, const char *type, const char *shape,
                         const void *data, size_t size) {
    put_head(output, name, type, shape, fl_zip_crc(0, data, size), size);
    fl_buf_append(&output->sink.buf, data, size);
}

int fl_output_pour(fl_output *output, size_t which, const char *name, const char *type,
                   const char *shape, uint64_t bytes, fletch_error *error) {
    put_head(output, name, type, shape, output->spool[which].crc, bytes);
    return fl_sink_pour(&output->spool[which].sink, &output->sink, error);
}

int fl_output_end(fl_output *output, fletch_error *error) {
    if (output->format == FL_OUTPUT_NPZ)
        fl_zip_end(&output->sink.buf, output->files, output->file_count);
    return fl_sink_finish(&output->sink, output->head, head_of(output), error);
}

int fl_output_flush(fl_output *output, fletch_error *error) {
    for (size_t i = 0; i < output->spools; i++)
        FL_TRY(fl_sink_flush(&output->spool[i].sink, false, error));
    return fl_sink_flush(&output->sink, false, error);
}

int fl_output_finish(fl_output *output, size_t cols, fletch_dtype dtype, fletch_error *error) {
    char           shape[64];
    const uint64_t bytes = output->rows * values_of(cols, dtype) * value_size(dtype, output->half);
    if (output->format == FL_OUTPUT_JSON)
        fl_buf_puts(&output->sink.buf, output->rows == 0 ? "[]\n" : "\n]\n");
    if (head_of(output) > 0) {
        rows_shape(shape, output->rows, cols, dtype);
        fl_output_seal(output, value_type(dtype, output->half), shape, bytes);
    }
    if (output->spools >
        0) { /* where the chunks lie: numbers of text and chunk, bytes, code points */
        (void)snprintf(shape, sizeof shape, "(%" PRIu64 ", %d)", output->rows, PLACE_COLUMNS);
        FL_TRY(fl_output_pour(output, 0, "chunks.npy", "<i8", shape,
                              output->rows * PLACE_COLUMNS * sizeof(int64_t), error));
    }
    return fl_output_end(output, error);
}

void fl_output_close(fl_output *output) {
    fl_sink_close(&output->sink);
    for (size_t i = 0; i < output->spools; i++)
        fl_sink_close(&output->spool[i].sink);
}
