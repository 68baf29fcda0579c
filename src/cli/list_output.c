/* SPDX-License-Identifier: Apache-2.0 */
/* list_output.c - write lists of entries: as JSON, for a person, or as arrays of NumPy.
 *
 * Role    cmd_embed.c hands over text by text, as it hands rows to output.c.
 * Formats jsonl, json  {"index":0,"tokens":["[CLS]",...],"ids":[...],"embeddings":[[...],...],
 *                      "truncated":false}
 *                      {"index":0,"indices":[...],"values":[...],"tokens":9,"truncated":false}
 *         npz          embeddings.npy [entries, columns], ids.npy [entries], offsets.npy [texts + 1]:
 *                      text i has entries offsets[i] to offsets[i + 1];
 *                      sparse: a CSR matrix as scipy.sparse.load_npz reads it
 *         text         for a person: the tokens and the first values of each; the heaviest terms
 * Memory  The sinks' buffers. Ids and offsets stand behind the values in the archive and are as many as
 *         the input has, so they wait in temporary files.
 * Proof   tests/cli/test_cli_lists.py reads each back with numpy and json. */
#include "cli/list_output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

enum { FIRST_VALUES = 4, HEAVIEST = 10, ENTRIES_MAX = 5 };

bool fl_list_output_takes(fl_output_format format) {
    return format == FL_OUTPUT_TEXT || format == FL_OUTPUT_JSON || format == FL_OUTPUT_JSONL ||
           format == FL_OUTPUT_NPZ;
}

int fl_list_output_open(fl_list_output *lists, fl_output *output, fletch_model *model,
                        const fl_list_form *form, const fletch_model_info *info,
                        fletch_error *error) {
    const uint64_t first = 0;
    lists->output        = output;
    lists->model         = model;
    lists->form          = form;
    lists->columns       = form->weights                     ? 1
                           : strcmp(info->head, "late") == 0 ? info->dimensions
                                                             : info->hidden;
    lists->width         = form->weights ? info->sparse : info->dimensions;
    if (output->format != FL_OUTPUT_NPZ) {
        return 0;
    }
    FL_TRY(fl_sink_spool(&lists->ids, error));
    FL_TRY(fl_sink_spool(&lists->offsets, error));
    fl_output_spool(&lists->offsets, &lists->offsets_crc, &first, sizeof first);
    return 0;
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

void fl_list_put_weights(fl_buf *out, const fletch_list *list) {
    fl_buf_puts(out, "\"indices\":");
    fl_json_out_ids(out, list->ids, list->count);
    fl_buf_puts(out, ",\"values\":");
    fl_output_put_floats(out, list->values, list->count);
}

static void put_tokens(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    fl_buf *out = &lists->output->sink.buf;
    (void)row;
    fl_buf_puts(out, ",\"tokens\":[");
    for (size_t i = 0; i < list->count; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        put_token(lists, list->ids[i]);
    }
    fl_buf_puts(out, "],\"ids\":");
    fl_json_out_ids(out, list->ids, list->count);
    fl_buf_puts(out, ",\"embeddings\":");
    (void)fl_json_out_rows(out, list->values, list->count, lists->columns);
}

static void put_weights(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    fl_buf *out = &lists->output->sink.buf;
    fl_buf_putc(out, ',');
    fl_list_put_weights(out, list);
    fl_buf_puts(out, ",\"tokens\":");
    fl_json_out_u64(out, row->tokens);
}

static void put_object(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    fl_output *output = lists->output;
    fl_buf    *out    = &output->sink.buf;
    fl_output_next(output);
    fl_buf_puts(out, "{\"index\":");
    fl_json_out_u64(out, row->index);
    lists->form->members(lists, row, list);
    fl_output_end_object(output, row);
}

/* ---- For a person ------------------------------------------------------------------------------ */

/* The text of an id, for a terminal. */
static void preview_token(fl_list_output *lists, int32_t id) {
    const char *text = fletch_token_text(lists->model, id);
    fl_cli_preview(&lists->output->sink.buf, text != NULL ? text : "",
                   text != NULL ? strlen(text) : 0, 20);
}

/* The heaviest entry that is lighter than entry `before`, or equal and behind it; list->count: none. */
static size_t next_heaviest(const fletch_list *list, size_t before) {
    size_t found = list->count;
    for (size_t i = 0; i < list->count; i++) {
        float weight = list->values[i];
        bool  later  = before == list->count || weight < list->values[before] ||
                     (i > before && !(weight > list->values[before]));
        if (later && (found == list->count || weight > list->values[found])) {
            found = i;
        }
    }
    return found;
}

static void put_heaviest(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    fl_buf *out = &lists->output->sink.buf;
    size_t  at  = list->count;
    fl_output_put_preview(lists->output, row);
    fl_buf_printf(out, "\n   %zu of %zu dimensions, %u token%s%s\n  ", list->count, lists->width,
                  row->tokens, row->tokens == 1 ? "" : "s", row->truncated ? " (cut)" : "");
    for (size_t i = 0; i < HEAVIEST && (at = next_heaviest(list, at)) < list->count; i++) {
        fl_buf_putc(out, ' ');
        preview_token(lists, list->ids[at]);
        fl_buf_printf(out, " %.3f", (double)list->values[at]);
    }
    fl_buf_puts(out, list->count > HEAVIEST ? " ...\n" : "\n");
    lists->output->rows++;
}

static void put_text(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    fl_buf *out = &lists->output->sink.buf;
    fl_output_put_preview(lists->output, row);
    fl_buf_printf(out, "\n   %zu token%s%s, %zu dimensions each\n", list->count,
                  list->count == 1 ? "" : "s", row->truncated ? " (cut)" : "", lists->columns);
    for (size_t i = 0; i < list->count; i++) {
        size_t first = lists->columns < FIRST_VALUES ? lists->columns : FIRST_VALUES;
        fl_buf_puts(out, "   ");
        preview_token(lists, list->ids[i]);
        fl_buf_puts(out, "  ");
        for (size_t k = 0; k < first; k++) {
            fl_output_put_f32(out, list->values[i * lists->columns + k]);
            fl_buf_putc(out, ' ');
        }
        fl_buf_puts(out, lists->columns > first ? "...\n" : "\n");
    }
    lists->output->rows++;
}

const fl_list_form fl_list_vectors = {false, "ids.npy", "offsets.npy", put_tokens, put_text};
const fl_list_form fl_list_weights = {true, "indices.npy", "indptr.npy", put_weights, put_heaviest};

/* ---- NumPy ------------------------------------------------------------------------------------- */

static void put_arrays(fl_list_output *lists, const fletch_list *list) {
    fl_output *output = lists->output;
    size_t     bytes  = list->count * lists->columns * sizeof(float);
    uint64_t   end    = lists->entries + list->count;
    fl_buf_append(&output->sink.buf, list->values, bytes);
    output->crc = fl_zip_crc(output->crc, list->values, bytes);
    fl_output_spool(&lists->ids, &lists->ids_crc, list->ids, list->count * sizeof *list->ids);
    fl_output_spool(&lists->offsets, &lists->offsets_crc, &end, sizeof end);
    output->rows++;
}

void fl_list_output_put(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    if (lists->output->format == FL_OUTPUT_TEXT) {
        lists->form->text(lists, row, list);
    } else if (lists->output->format == FL_OUTPUT_NPZ) {
        put_arrays(lists, list);
    } else {
        put_object(lists, row, list);
    }
    lists->entries += list->count;
}

int fl_list_output_flush(fl_list_output *lists, fletch_error *error) {
    FL_TRY(fl_sink_flush(&lists->output->sink, false, error));
    if (lists->output->format == FL_OUTPUT_NPZ) {
        FL_TRY(fl_sink_flush(&lists->ids, false, error));
        FL_TRY(fl_sink_flush(&lists->offsets, false, error));
    }
    return 0;
}

/* The arrays of ids and offsets, from their spools. */
static int put_spools(fl_list_output *lists, fl_zip_entry entries[2], fletch_error *error) {
    uint64_t texts = lists->output->rows + 1;
    char     shape[32];
    (void)snprintf(shape, sizeof shape, "(%" PRIu64 ",)", lists->entries);
    fl_output_put_head(lists->output, &entries[0], lists->form->ids, "<i4", shape, lists->ids_crc,
                       lists->entries * sizeof(int32_t));
    FL_TRY(fl_sink_pour(&lists->ids, &lists->output->sink, error));
    (void)snprintf(shape, sizeof shape, "(%" PRIu64 ",)", texts);
    fl_output_put_head(lists->output, &entries[1], lists->form->offsets, "<i8", shape,
                       lists->offsets_crc, texts * sizeof(int64_t));
    return fl_sink_pour(&lists->offsets, &lists->output->sink, error);
}

/* What a CSR matrix says of itself. */
static void put_facts(fl_list_output *lists, fl_zip_entry entries[2]) {
    static const char format[3] = "csr";
    const uint64_t    shape[2]  = {lists->output->rows, lists->width};
    fl_output_put_head(lists->output, &entries[0], "shape.npy", "<i8", "(2,)",
                       fl_zip_crc(0, shape, sizeof shape), sizeof shape);
    fl_buf_append(&lists->output->sink.buf, shape, sizeof shape);
    fl_output_put_head(lists->output, &entries[1], "format.npy", "|S3", "()",
                       fl_zip_crc(0, format, sizeof format), sizeof format);
    fl_buf_append(&lists->output->sink.buf, format, sizeof format);
}

static int finish_arrays(fl_list_output *lists, fletch_error *error) {
    fl_output   *output               = lists->output;
    fl_zip_entry entries[ENTRIES_MAX] = {{.name = output->entry}};
    char         head[FL_ZIP_HEAD_MAX + FL_NPY_HEADER], shape[64];
    bool         sparse = lists->form->weights;
    size_t       zip    = fl_zip_head_size(output->entry);
    if (sparse) {
        (void)snprintf(shape, sizeof shape, "(%" PRIu64 ",)", lists->entries);
    } else {
        (void)snprintf(shape, sizeof shape, "(%" PRIu64 ", %zu)", lists->entries, lists->columns);
    }
    fl_output_seal(&entries[0], head + zip, "<f4", shape, output->crc,
                   lists->entries * lists->columns * sizeof(float));
    fl_zip_head(head, &entries[0]);
    FL_TRY(put_spools(lists, entries + 1, error));
    if (sparse) {
        put_facts(lists, entries + 3);
    }
    fl_zip_end(&output->sink.buf, entries, sparse ? 5 : 3);
    return fl_sink_finish(&output->sink, head, zip + FL_NPY_HEADER, error);
}

int fl_list_output_finish(fl_list_output *lists, fletch_error *error) {
    return lists->output->format == FL_OUTPUT_NPZ
               ? finish_arrays(lists, error)
               : fl_output_finish(lists->output, lists->columns, FLETCH_FLOAT32, error);
}
