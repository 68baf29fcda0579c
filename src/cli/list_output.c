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

enum { FIRST_VALUES = 4, HEAVIEST = 10 };
enum { IDS, OFFSETS }; /* spools */

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
    FL_TRY(fl_output_spools(output, 2, error));
    fl_output_spool(output, OFFSETS, &first, sizeof first);
    return 0;
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static void put_token(const fl_list_output *lists, int32_t id) {
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

static void put_tokens(fl_output *output, const fl_row *row, const void *result) {
    const fl_list_output *lists = result;
    const fletch_list    *list  = lists->list;
    fl_buf               *out   = &output->sink.buf;
    fl_output_put_index(out, row);
    fl_buf_puts(out, "\"tokens\":[");
    for (size_t i = 0; i < list->count; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        put_token(lists, list->ids[i]);
    }
    fl_buf_puts(out, "],\"ids\":");
    fl_json_out_ids(out, list->ids, list->count);
    fl_buf_puts(out, ",\"embeddings\":");
    (void)fl_json_out_rows(out, list->values, list->count, lists->columns);
}

static void put_weights(fl_output *output, const fl_row *row, const void *result) {
    fl_output_put_index(&output->sink.buf, row);
    fl_list_put_weights(&output->sink.buf, ((const fl_list_output *)result)->list);
    fl_output_put_tokens(&output->sink.buf, row);
}

/* ---- For a person ------------------------------------------------------------------------------ */

/* The text of an id, for a terminal. */
static void preview_token(const fl_list_output *lists, int32_t id) {
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
        if (later && (found == list->count || weight > list->values[found]))
            found = i;
    }
    return found;
}

static void put_heaviest(fl_output *output, const fl_row *row, const void *result) {
    const fl_list_output *lists = result;
    const fletch_list    *list  = lists->list;
    fl_buf               *out   = &output->sink.buf;
    size_t                at    = list->count;
    fl_output_put_preview(output, row);
    fl_buf_printf(out, "\n   %zu of %zu dimensions, ", list->count, lists->width);
    fl_output_put_count(out, row->tokens, row->truncated);
    fl_buf_puts(out, "\n  ");
    for (size_t i = 0; i < HEAVIEST && (at = next_heaviest(list, at)) < list->count; i++) {
        fl_buf_putc(out, ' ');
        preview_token(lists, list->ids[at]);
        fl_buf_printf(out, " %.3f", (double)list->values[at]);
    }
    fl_buf_puts(out, list->count > HEAVIEST ? " ...\n" : "\n");
}

static void put_text(fl_output *output, const fl_row *row, const void *result) {
    const fl_list_output *lists = result;
    const fletch_list    *list  = lists->list;
    fl_buf               *out   = &output->sink.buf;
    fl_output_put_preview(output, row);
    fl_buf_puts(out, "\n   ");
    fl_output_put_count(out, list->count, row->truncated);
    fl_buf_printf(out, ", %zu dimensions each\n", lists->columns);
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
}

/* ---- NumPy ------------------------------------------------------------------------------------- */

/* The values; ids and offsets are spooled when the list is complete. */
static void put_arrays(fl_output *output, const fl_row *row, const void *result) {
    const fl_list_output *lists = result;
    (void)row;
    const size_t bytes = lists->list->count * lists->columns * sizeof(float);
    output->crc        = fl_zip_crc(output->crc, lists->list->values, bytes);
    fl_buf_append(&output->sink.buf, lists->list->values, bytes);
}

const fl_list_form fl_list_vectors = {
    false, "ids.npy", "offsets.npy", {put_text, put_tokens, put_arrays, false}};
const fl_list_form fl_list_weights = {
    true, "indices.npy", "indptr.npy", {put_heaviest, put_weights, put_arrays, false}};

void fl_list_output_put(fl_list_output *lists, const fl_row *row, const fletch_list *list) {
    lists->list = list;
    lists->entries += list->count;
    fl_output_put(lists->output, &lists->form->writer, row, lists);
    fl_output_spool(lists->output, IDS, list->ids, list->count * sizeof *list->ids);
    fl_output_spool(lists->output, OFFSETS, &lists->entries, sizeof lists->entries);
}

/* What a CSR matrix says of itself. */
static void put_facts(const fl_list_output *lists) {
    const uint64_t shape[2] = {lists->output->rows, lists->width};
    fl_output_put_array(lists->output, "shape.npy", "<i8", "(2,)", shape, sizeof shape);
    fl_output_put_array(lists->output, "format.npy", "|S3", "()", "csr", 3);
}

static int finish_arrays(fl_list_output *lists, fletch_error *error) {
    fl_output     *output = lists->output;
    const uint64_t texts  = output->rows + 1;
    char           entries[64], columns[32] = "", offsets[64];
    if (!lists->form->weights)
        (void)snprintf(columns, sizeof columns, " %zu", lists->columns);
    (void)snprintf(entries, sizeof entries, "(%" PRIu64 ",%s)", lists->entries, columns);
    fl_output_seal(output, "<f4", entries, lists->entries * lists->columns * sizeof(float));
    (void)snprintf(entries, sizeof entries, "(%" PRIu64 ",)", lists->entries);
    (void)snprintf(offsets, sizeof offsets, "(%" PRIu64 ",)", texts);
    FL_TRY(fl_output_pour(output, IDS, lists->form->ids, "<i4", entries,
                          lists->entries * sizeof(int32_t), error));
    FL_TRY(fl_output_pour(output, OFFSETS, lists->form->offsets, "<i8", offsets,
                          texts * sizeof(int64_t), error));
    if (lists->form->weights)
        put_facts(lists);
    return fl_output_end(output, error);
}

int fl_list_output_finish(fl_list_output *lists, fletch_error *error) {
    return lists->output->format == FL_OUTPUT_NPZ
               ? finish_arrays(lists, error)
               : fl_output_finish(lists->output, lists->columns, FLETCH_FLOAT32, error);
}
