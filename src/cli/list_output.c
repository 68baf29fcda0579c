/* SPDX-License-Identifier: Apache-2.0 */
/* list_output.c - write lists of entries: as JSON, for a person, or as arrays of NumPy.
 *
 * Role    cmd_embed.c hands over text by text, as it hands rows to output.c.
 * Formats jsonl, json  {"index":0,"tokens":["[CLS]",...],"ids":[...],"embeddings":[[...],...],
 *                      "truncated":false}
 *         npz          embeddings.npy [entries, columns], ids.npy [entries], offsets.npy [texts + 1]:
 *                      text i has entries offsets[i] to offsets[i + 1]
 *         text         for a person: the tokens and the first values of each
 * Memory  The sinks' buffers. Ids and offsets stand behind the values in the archive and are as many as
 *         the input has, so they wait in temporary files.
 * Proof   tests/cli/test_cli_lists.py reads each back with numpy and json. */
#include "cli/list_output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/zip.h"

enum { FIRST_VALUES = 4, ENTRIES = 3 };

bool fl_list_output_takes(fl_output_format format) {
    return format == FL_OUTPUT_TEXT || format == FL_OUTPUT_JSON || format == FL_OUTPUT_JSONL ||
           format == FL_OUTPUT_NPZ;
}

/* Bytes that go to a spool, and to its checksum. */
static void spool(fl_sink *sink, uint32_t *crc, const void *data, size_t size) {
    *crc = fl_zip_crc(*crc, data, size);
    fl_buf_append(&sink->buf, data, size);
}

int fl_list_output_open(fl_list_output *lists, fl_output *output, fletch_model *model,
                        fletch_kind kind, size_t columns, fletch_error *error) {
    const uint64_t first = 0;
    lists->output        = output;
    lists->model         = model;
    lists->kind          = kind;
    lists->columns       = columns;
    if (output->format != FL_OUTPUT_NPZ) {
        return 0;
    }
    int status = fl_sink_spool(&lists->ids, error);
    if (status == 0) {
        status = fl_sink_spool(&lists->offsets, error);
    }
    spool(&lists->offsets, &lists->offsets_crc, &first, sizeof first);
    return status;
}

void fl_list_output_close(fl_list_output *lists) {
    if (lists->output != NULL && lists->output->format == FL_OUTPUT_NPZ) {
        fl_sink_close(&lists->ids);
        fl_sink_close(&lists->offsets);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static void put_token(fl_list_output *lists, int32_t id) {
    const char *text = fletch_token_text(lists->model, id);
    text             = text != NULL ? text : "";
    fl_json_quote(&lists->output->sink.buf, text, strlen(text));
}

static void put_ids(fl_buf *out, const fletch_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        fl_output_put_u64(out, (uint64_t)list->ids[i]);
    }
}

static void put_values(fl_buf *out, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        fl_output_put_f32(out, values[i]);
    }
}

static void put_tokens(fl_list_output *lists, const fletch_list *list) {
    fl_buf *out = &lists->output->sink.buf;
    fl_buf_puts(out, ",\"tokens\":[");
    for (size_t i = 0; i < list->count; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        put_token(lists, list->ids[i]);
    }
    fl_buf_puts(out, "],\"ids\":[");
    put_ids(out, list);
    fl_buf_puts(out, "],\"embeddings\":[");
    for (size_t i = 0; i < list->count; i++) {
        fl_buf_puts(out, i > 0 ? ",[" : "[");
        put_values(out, list->values + i * lists->columns, lists->columns);
        fl_buf_putc(out, ']');
    }
    fl_buf_putc(out, ']');
}

static void put_object(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    fl_output *output = lists->output;
    fl_buf    *out    = &output->sink.buf;
    fl_output_next(output);
    fl_buf_puts(out, "{\"index\":");
    fl_output_put_u64(out, row->index);
    put_tokens(lists, list);
    fl_buf_puts(out, row->truncated ? ",\"truncated\":true" : ",\"truncated\":false");
    if (output->keep_text) {
        fl_buf_puts(out, ",\"text\":");
        fl_json_quote(out, row->text, row->text_size);
    }
    fl_buf_append(out, row->fields, row->fields_size);
    fl_buf_putc(out, '}');
    fl_output_end_row(output);
}

/* ---- For a person ------------------------------------------------------------------------------ */

static void put_text(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    fl_buf *out = &lists->output->sink.buf;
    fl_output_put_preview(lists->output, row);
    fl_buf_printf(out, "\n   %zu token%s%s, %zu dimensions each\n", list->count,
                  list->count == 1 ? "" : "s", row->truncated ? " (cut)" : "", lists->columns);
    for (size_t i = 0; i < list->count; i++) {
        const char *text  = fletch_token_text(lists->model, list->ids[i]);
        size_t      first = lists->columns < FIRST_VALUES ? lists->columns : FIRST_VALUES;
        fl_buf_puts(out, "   ");
        fl_cli_preview(out, text != NULL ? text : "", text != NULL ? strlen(text) : 0, 20);
        fl_buf_puts(out, "  ");
        for (size_t k = 0; k < first; k++) {
            fl_output_put_f32(out, list->values[i * lists->columns + k]);
            fl_buf_putc(out, ' ');
        }
        fl_buf_puts(out, lists->columns > first ? "...\n" : "\n");
    }
    lists->output->rows++;
}

/* ---- NumPy ------------------------------------------------------------------------------------- */

static void put_arrays(fl_list_output *lists, const fletch_list *list) {
    fl_output *output = lists->output;
    size_t     bytes  = list->count * lists->columns * sizeof(float);
    uint64_t   end    = lists->entries + list->count;
    fl_buf_append(&output->sink.buf, list->values, bytes);
    output->crc = fl_zip_crc(output->crc, list->values, bytes);
    spool(&lists->ids, &lists->ids_crc, list->ids, list->count * sizeof *list->ids);
    spool(&lists->offsets, &lists->offsets_crc, &end, sizeof end);
    output->rows++;
}

void fl_list_output_put(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    if (lists->output->format == FL_OUTPUT_TEXT) {
        put_text(lists, row, list);
    } else if (lists->output->format == FL_OUTPUT_NPZ) {
        put_arrays(lists, list);
    } else {
        put_object(lists, row, list);
    }
    lists->entries += list->count;
}

int fl_list_output_flush(fl_list_output *lists, fletch_error *error) {
    int status = fl_sink_flush(&lists->output->sink, false, error);
    if (status == 0 && lists->output->format == FL_OUTPUT_NPZ) {
        status = fl_sink_flush(&lists->ids, false, error);
    }
    if (status == 0 && lists->output->format == FL_OUTPUT_NPZ) {
        status = fl_sink_flush(&lists->offsets, false, error);
    }
    return status;
}

/* A file of the archive that is complete: its facts from its npy header and what is known of the rest. */
static void seal(fl_zip_entry *entry, char npy[FL_NPY_HEADER], const char *type, const char *shape,
                 uint32_t crc, uint64_t bytes) {
    fl_output_npy_header(npy, type, shape);
    entry->crc  = fl_zip_crc_join(fl_zip_crc(0, npy, FL_NPY_HEADER), crc, bytes);
    entry->size = FL_NPY_HEADER + bytes;
}

/* One more file behind `before`, its values from a spool. */
static int put_file(fl_list_output *lists, fl_zip_entry *entry, const char *type, uint64_t count,
                    size_t width, fl_sink *from, uint32_t crc, fletch_error *error) {
    const fl_zip_entry *before = entry - 1;
    char                head[FL_ZIP_HEAD_MAX], npy[FL_NPY_HEADER], shape[32];
    (void)snprintf(shape, sizeof shape, "(%" PRIu64 ",)", count);
    seal(entry, npy, type, shape, crc, count * width);
    entry->at = before->at + fl_zip_head_size(before->name) + before->size;
    fl_zip_head(head, entry);
    fl_buf_append(&lists->output->sink.buf, head, fl_zip_head_size(entry->name));
    fl_buf_append(&lists->output->sink.buf, npy, sizeof npy);
    return fl_sink_pour(from, &lists->output->sink, error);
}

static int finish_arrays(fl_list_output *lists, fletch_error *error) {
    fl_output   *output           = lists->output;
    fl_zip_entry entries[ENTRIES] = {
        {output->entry, 0, 0, 0}, {"ids.npy", 0, 0, 0}, {"offsets.npy", 0, 0, 0}};
    char   head[FL_ZIP_HEAD_MAX + FL_NPY_HEADER], shape[64];
    size_t zip = fl_zip_head_size(output->entry);
    (void)snprintf(shape, sizeof shape, "(%" PRIu64 ", %zu)", lists->entries, lists->columns);
    seal(&entries[0], head + zip, "<f4", shape, output->crc,
         lists->entries * lists->columns * sizeof(float));
    fl_zip_head(head, &entries[0]);
    int status = put_file(lists, &entries[1], "<i4", lists->entries, sizeof(int32_t), &lists->ids,
                          lists->ids_crc, error);
    if (status == 0) {
        status = put_file(lists, &entries[2], "<i8", output->rows + 1, sizeof(int64_t),
                          &lists->offsets, lists->offsets_crc, error);
    }
    if (status < 0) {
        return status;
    }
    fl_zip_end(&output->sink.buf, entries, ENTRIES);
    return fl_sink_finish(&output->sink, head, zip + FL_NPY_HEADER, error);
}

int fl_list_output_finish(fl_list_output *lists, fletch_error *error) {
    return lists->output->format == FL_OUTPUT_NPZ
               ? finish_arrays(lists, error)
               : fl_output_finish(lists->output, lists->columns, FLETCH_FLOAT32, error);
}
