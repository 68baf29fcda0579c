/* SPDX-License-Identifier: Apache-2.0 */
/* result_kind.c - what sets the kinds of result apart from each other: who makes them and how they are written.
 *
 * Role    embedder.c, several.c and cmd_embed.c ask the table and name no kind.
 * Memory  none; static tables. Proof: tests/cli/test_cli_lists.py, test_cli_outputs.py. */
#include "cli/result_kind.h"

#include <assert.h>
#include <string.h>

static void put_row(fl_buf *out, const fletch_output *output, size_t i) {
    const fl_row row = {.vector = (const char *)output->out.data + i * output->out.stride,
                        .cols   = output->out.cols,
                        .dtype  = output->out.dtype};
    fl_output_put_values(out, &row, false);
}

static void put_vectors(fl_buf *out, const fletch_output *output, size_t i) {
    const fletch_list *list = &output->lists->list[i];
    (void)fl_json_out_rows(out, list->values, list->count, output->lists->columns);
}

static void put_weights(fl_buf *out, const fletch_output *output, size_t i) {
    fl_buf_putc(out, '{');
    fl_list_put_weights(out, &output->lists->list[i]);
    fl_buf_putc(out, '}');
}

static const fl_result_kind kinds[] = {
    {FLETCH_KIND_DENSE, "dense", "index|embedding|tokens|truncated", NULL, NULL, put_row},
    {FLETCH_KIND_TOKENS, "tokens", "index|tokens|ids|embeddings|truncated", &fl_list_vectors,
     fletch_embed_tokens, put_vectors},
    {FLETCH_KIND_SPARSE, "sparse", "index|indices|values|tokens|truncated", &fl_list_weights,
     fletch_embed_sparse, put_weights},
    {FLETCH_KIND_COLBERT, NULL, NULL, &fl_list_vectors, NULL, put_vectors}};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

const fl_result_kind *fl_result_kind_named(const char *name) {
    for (size_t i = 0; name != NULL && i < KINDS; i++)
        if (kinds[i].name != NULL && strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return &kinds[0];
}

const fl_result_kind *fl_result_kind_of(fletch_kind kind) {
    size_t i = 0;
    while (kinds[i].kind != kind) {
        i++;
        assert(i < KINDS); /* fletch_output_parse has no other */
    }
    return &kinds[i];
}
