/* SPDX-License-Identifier: Apache-2.0 */
/* several.c - several outputs of one pass, as JSON.
 *
 * In/Out  --outputs dense,dense:256:int8,sparse
 *         -> {"index":0,"embedding":[...],"outputs":{"dense:256:int8":[...],"sparse":{"indices":[...],"values":[...]}},
 *            "tokens":9,"truncated":false}, as /v1/embeddings has it: the first dense one is the embedding.
 * Memory  Rows and lists of one call.
 * Proof   tests/cli/test_cli_outputs.py. */
#include "cli/several.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

static bool is_named_twice(const fl_several *several, size_t index) {
    for (size_t k = 0; k < index; k++)
        if (several->name_size[k] == several->name_size[index] &&
            memcmp(several->name[k], several->name[index], several->name_size[k]) == 0)
            return true;
    return false;
}

static fl_exit add(fl_several *several, const fl_cli *cli, const char *name, size_t size,
                   fletch_dtype dtype) {
    const size_t   i      = several->count;
    fletch_error   error  = {0};
    fletch_output *output = &several->output[i];
    if (i == FL_SEVERAL_MAX)
        return fl_cli_usage(cli, "--outputs names at most %d outputs", FL_SEVERAL_MAX);
    several->name[i]      = name;
    several->name_size[i] = size;
    *output               = (fletch_output)FLETCH_OUTPUT_INIT;
    output->out.dtype     = dtype;
    if (fletch_output_parse(output, name, size, &error) < 0)
        return fl_cli_usage(cli, "--outputs: %s", error.message);
    if (is_named_twice(several, i))
        return fl_cli_usage(cli, "--outputs names %.*s twice", (int)size, name);
    several->kind[i] = fl_result_kind_of(output->kind);
    several->count++;
    return FL_EXIT_DONE;
}

fl_exit fl_several_read(fl_several *several, const fl_cli *cli, fletch_dtype dtype) {
    const char *name = cli->args.value[FL_FLAG_OUTPUTS];
    while (name != NULL) {
        const char *comma = strchr(name, ',');
        size_t      size  = comma != NULL ? (size_t)(comma - name) : strlen(name);
        FL_CLI_TRY(add(several, cli, name, size, dtype));
        name = comma != NULL ? comma + 1 : NULL;
    }
    return FL_EXIT_DONE;
}

bool fl_several_has_sparse(const fl_several *several) {
    for (size_t i = 0; i < several->count; i++)
        if (several->kind[i]->lists == &fl_list_weights)
            return true;
    return false;
}

fl_exit fl_several_reserve(fl_several *several, const fl_cli *cli, size_t dimensions,
                           size_t count) {
    for (size_t i = 0; i < several->count; i++) {
        fletch_matrix *out = &several->output[i].out;
        if (several->kind[i]->lists != NULL)
            continue;
        out->cols = out->cols > 0 ? out->cols : dimensions;
        if (out->cols > dimensions) {
            return fl_cli_usage(cli, "--outputs: %.*s has more than the model's %zu dimensions",
                                (int)several->name_size[i], several->name[i], dimensions);
        }
        fl_free(out->data);
        out->stride = fletch_row_bytes(out->cols, out->dtype);
        out->rows   = count;
        out->data   = fl_alloc_array(count, out->stride);
        if (out->data == NULL)
            return fl_cli_no_memory();
    }
    return FL_EXIT_DONE;
}

static void free_lists(fl_several *several) {
    for (size_t i = 0; i < several->count; i++) {
        fletch_lists_free(several->output[i].lists);
        several->output[i].lists = NULL;
    }
}

int fl_several_embed(fl_several *several, fletch_model *model, const fletch_texts *texts,
                     const fletch_embed_options *options, fletch_error *error) {
    free_lists(several);
    return fletch_embed_outputs(model, texts, options, several->output, several->count, error);
}

/* The first output of rows; several->count: none is. */
static size_t first_dense(const fl_several *several) {
    size_t i = 0;
    while (i < several->count && several->kind[i]->lists != NULL)
        i++;
    return i;
}

static void put_members(fl_output *output, const fl_row *row, const void *result) {
    const fl_several *several = result;
    fl_buf           *out     = &output->sink.buf;
    const size_t      dense   = first_dense(several);
    bool              first   = true;
    fl_output_put_index(out, row);
    if (dense < several->count) {
        fl_buf_puts(out, "\"embedding\":");
        several->kind[dense]->put(out, &several->output[dense], several->at);
        fl_buf_putc(out, ',');
    }
    fl_buf_puts(out, "\"outputs\":{");
    for (size_t k = 0; k < several->count; k++) {
        if (k == dense)
            continue;
        fl_buf_puts(out, first ? "" : ",");
        fl_json_quote(out, several->name[k], several->name_size[k]);
        fl_buf_putc(out, ':');
        several->kind[k]->put(out, &several->output[k], several->at);
        first = false;
    }
    fl_buf_putc(out, '}');
    fl_output_put_tokens(out, row);
}

void fl_several_put(fl_several *several, fl_output *output, const fl_row *row, size_t i) {
    static const fl_writer writer = {.members = put_members};
    several->at                   = i;
    fl_output_put(output, &writer, row, several);
}

void fl_several_free(fl_several *several) {
    free_lists(several);
    for (size_t i = 0; i < several->count; i++) {
        fl_free(several->output[i].out.data);
        several->output[i].out.data = NULL;
    }
}
