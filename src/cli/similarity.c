/* SPDX-License-Identifier: Apache-2.0 */
/* similarity.c - collect at most 64 vectors, print the cosine of each pair.
 *
 * Role    cmd_embed.c feeds it instead of the writers when --similarity is given.
 * Method  Cosine in double, with the norms, so that it is right for raw vectors as well. A vector of
 *         norm 0 is similar to nothing (0).
 * Memory  Copies of vectors and texts. Proof tests/cli/test_cli_output.py. */
#include "cli/similarity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"

enum { PREVIEW = 60 };

bool fl_similarity_add(fl_similarity *table, const fl_row *row) {
    size_t width = row->cols;
    float *vectors =
        fl_realloc_array(table->vectors, (table->count + 1) * width, sizeof *table->vectors);
    char *text = fl_strndup(row->text, row->text_size);
    if (vectors != NULL) {
        table->vectors = vectors;
    }
    if (vectors == NULL || text == NULL) {
        fl_free(text);
        return false;
    }
    memcpy(vectors + table->count * width, row->vector, width * sizeof *vectors);
    table->dimensions          = width;
    table->texts[table->count] = text;
    table->sizes[table->count] = row->text_size;
    table->count++;
    return true;
}

static double cosine(const fl_similarity *table, size_t i, size_t j) {
    const float *a  = table->vectors + i * table->dimensions;
    const float *b  = table->vectors + j * table->dimensions;
    double       ab = 0, aa = 0, bb = 0;
    for (size_t k = 0; k < table->dimensions; k++) {
        ab += (double)a[k] * (double)b[k];
        aa += (double)a[k] * (double)a[k];
        bb += (double)b[k] * (double)b[k];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static void print_json(const fl_similarity *table, fl_buf *out) {
    fl_buf_puts(out, "{\"texts\":[");
    for (size_t i = 0; i < table->count; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        fl_json_quote(out, table->texts[i], table->sizes[i]);
    }
    fl_buf_puts(out, "],\"similarity\":[");
    for (size_t i = 0; i < table->count; i++) {
        fl_buf_puts(out, i > 0 ? ",[" : "[");
        for (size_t j = 0; j < table->count; j++) {
            char number[FL_F32_TEXT_MAX];
            fl_buf_puts(out, j > 0 ? "," : "");
            fl_buf_append(out, number, fl_f32_text(number, (float)cosine(table, i, j)));
        }
        fl_buf_putc(out, ']');
    }
    fl_buf_puts(out, "]}\n");
}

static void print_text(const fl_similarity *table, fl_buf *out) {
    fl_buf_puts(out, "    ");
    for (size_t j = 0; j < table->count; j++) {
        fl_buf_printf(out, "%6zu", j + 1);
    }
    fl_buf_putc(out, '\n');
    for (size_t i = 0; i < table->count; i++) {
        fl_buf_printf(out, "%4zu", i + 1);
        for (size_t j = 0; j < table->count; j++) {
            double value = cosine(table, i, j);
            fl_buf_printf(out, "%6.2f", fabs(value) < 0.005 ? 0.0 : value); /* no "-0.00" */
        }
        fl_buf_puts(out, "  ");
        fl_cli_preview(out, table->texts[i], table->sizes[i], PREVIEW);
        fl_buf_putc(out, '\n');
    }
    fl_buf_puts(out, "\nEach number is the cosine similarity of two texts: 1 means the same "
                     "direction (they say the same),\nnear 0 that they have nothing in common.\n");
}

void fl_similarity_print(const fl_similarity *table, fl_output *output) {
    if (output->format == FL_OUTPUT_JSON) {
        print_json(table, &output->sink.buf);
    } else {
        print_text(table, &output->sink.buf);
    }
}

void fl_similarity_free(fl_similarity *table) {
    for (size_t i = 0; i < table->count; i++) {
        fl_free(table->texts[i]);
    }
    fl_free(table->vectors);
    memset(table, 0, sizeof *table);
}
