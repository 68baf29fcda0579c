/* SPDX-License-Identifier: Apache-2.0 */
/* model_dump.c - print what the model room makes of a folder, for the golden tests.
 *
 *     model_dump FOLDER           one JSON object; on failure "STATUS: message" on stderr, exit 3
 *     model_dump --tokenizer FOLDER    the same, opened without weights
 *     model_dump --check < paths  for each line, a safetensors file: "ok" or the message
 *     model_dump --values FILE    for each tensor of a weight file a line "NAME COUNT", then its float32 values
 *
 * Tensors are told by a sum of their float32 values in order, in double, and the first and last value:
 * enough to see a wrong slot, offset, shape or conversion. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/model.h"
#include "model/safetensors.h"

static void quote(fl_buf *out, const char *key, const char *text) {
    fl_buf_printf(out, "\"%s\": ", key);
    if (text == NULL)
        fl_buf_puts(out, "null");
    else
        fl_json_quote(out, text, strlen(text));
    fl_buf_puts(out, ", ");
}

static void dump_values(fl_buf *out, const float *values, uint64_t count) {
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (double)values[i];
    fl_buf_printf(out, "[%.17g, %.9g, %.9g]", sum, (double)values[0], (double)values[count - 1]);
}

static void dump_tensor(fl_buf *out, const fl_tensor *tensor) {
    uint64_t count = 1;
    if (tensor->data == NULL) {
        fl_buf_puts(out, "null");
        return;
    }
    for (uint32_t i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    float *values = fl_alloc_array(count, sizeof *values);
    fl_tensor_to_f32(tensor, 0, count, values);
    dump_values(out, values, count);
    fl_free(values);
}

static void dump_encoder(fl_buf *out, const fl_encoder *encoder) {
    const fl_encoder_desc *d = &encoder->desc;
    quote(out, "architecture", d->architecture);
    fl_buf_printf(out,
                  "\"layers\": %u, \"hidden\": %u, \"heads\": %u, \"intermediate\": %u, "
                  "\"vocab\": %u, \"positions\": %u, \"position_offset\": %u, \"eps\": %.9g, "
                  "\"activation\": %d, \"bias\": %d, ",
                  d->layers, d->hidden, d->heads, d->intermediate, d->vocab, d->positions,
                  d->position_offset, (double)d->norm_eps, (int)d->activation,
                  (int)d->distance[0].bias);
    fl_buf_puts(out, "\"global\": [");
    for (int i = 0; i < FL_SLOT_COUNT; i++) {
        fl_buf_puts(out, i == 0 ? "" : ", ");
        dump_tensor(out, &encoder->global[i]);
    }
    fl_buf_puts(out, "], \"layer\": [");
    for (uint32_t layer = 0; layer < d->layers; layer++)
        for (int i = 0; i < FL_LAYER_SLOT_COUNT; i++) {
            fl_buf_puts(out, i == 0 ? (layer == 0 ? "[" : "], [") : ", ");
            dump_tensor(out, &encoder->layer[layer][i]);
        }
    fl_buf_puts(out, d->layers == 0 ? "], " : "]], ");
}

static void dump_stages(fl_buf *out, const fl_model *model) {
    fl_buf_puts(out, "\"stages\": [");
    for (uint32_t i = 0; i < model->stage_count; i++) {
        const fl_stage *stage = &model->stages[i];
        fl_buf_printf(out, "%s{\"kind\": %d, \"in\": %u, \"out\": %u, \"activation\": %d",
                      i == 0 ? "" : ", ", (int)stage->kind, stage->in, stage->out,
                      (int)stage->activation);
        if (stage->weight != NULL) {
            fl_buf_puts(out, ", \"weight\": ");
            dump_values(out, stage->weight,
                        (uint64_t)stage->out * (stage->kind == FL_STAGE_DENSE ? stage->in : 1));
        }
        if (stage->bias != NULL) {
            fl_buf_puts(out, ", \"bias\": ");
            dump_values(out, stage->bias, stage->out);
        }
        fl_buf_puts(out, "}");
    }
    fl_buf_puts(out, "], ");
}

static void dump_model(fl_buf *out, const fl_model *model) {
    fl_buf_puts(out, "{");
    if (model->encoder.desc.architecture != NULL && model->encoder.layer != NULL)
        dump_encoder(out, &model->encoder);
    fl_buf_puts(out, "\"pooling\": [");
    for (uint32_t i = 0; i < model->encoder.pooling_count; i++)
        fl_buf_printf(out, "%s\"%s\"", i == 0 ? "" : ", ",
                      fl_pooling_name(model->encoder.pooling[i]));
    fl_buf_puts(out, "], \"prompts\": {");
    for (uint32_t i = 0; i < model->prompt_count; i++) {
        fl_buf_puts(out, i == 0 ? "" : ", ");
        fl_json_quote(out, model->prompts[i].name, strlen(model->prompts[i].name));
        fl_buf_puts(out, ": ");
        fl_json_quote(out, model->prompts[i].text, strlen(model->prompts[i].text));
    }
    fl_buf_puts(out, "}, ");
    dump_stages(out, model);
    quote(out, "default_prompt_name", model->default_prompt_name);
    quote(out, "similarity", model->similarity);
    quote(out, "weights_dtype", model->weights_dtype);
    quote(out, "tokenizer_path", model->tokenizer_path);
    quote(out, "max_length_source", model->max_length_source.origin);
    quote(out, "pooling_source", model->pooling_source.origin);
    quote(out, "normalize_source", model->normalize_source.origin);
    fl_buf_printf(
        out,
        "\"max_length\": %u, \"normalize\": %d, \"dimensions\": %u, \"truncate_dim\": %u, "
        "\"include_prompt\": %d, \"lowercase\": %d, \"tokenizer_is_vocab\": %d, "
        "\"weights_bytes\": %" PRIu64 "}\n",
        model->max_length, model->normalize, model->dimensions, model->truncate_dim,
        model->include_prompt, model->lowercase, model->tokenizer_is_vocab, model->weights_bytes);
}

static int check_files(void) {
    char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL) {
        fletch_error    error;
        fl_safetensors *file      = NULL;
        line[strcspn(line, "\n")] = '\0';
        int status                = fl_safetensors_open(&file, line, &error);
        puts(status == 0 ? "ok" : error.message);
        fl_safetensors_close(file);
    }
    return 0;
}

static int dump_values_of(const char *path) {
    fletch_error    error;
    fl_safetensors *file   = NULL;
    fl_buf          out    = {0};
    int             status = fl_safetensors_open(&file, path, &error);
    if (status != 0) {
        fprintf(stderr, "%d: %s\n", status, error.message);
        return 3;
    }
    for (size_t i = 0; i < fl_safetensors_count(file); i++) {
        const char      *name   = fl_safetensors_name(file, i);
        const fl_tensor *tensor = fl_safetensors_find(file, name);
        uint64_t         count  = 1;
        for (uint32_t k = 0; k < tensor->rank; k++)
            count *= tensor->shape[k];
        fl_buf_printf(&out, "%s %" PRIu64 "\n", name, count);
        float *values = fl_alloc_array(count, sizeof *values);
        fl_tensor_to_f32(tensor, 0, count, values);
        fl_buf_append(&out, values, count * sizeof *values);
        fl_free(values);
    }
    int failed = fl_write_all(1, out.data, out.size);
    fl_buf_free(&out);
    fl_safetensors_close(file);
    return failed != 0;
}

static void print_log(void *user, int level, const char *message) {
    (void)user;
    fprintf(stderr, "log %d: %s\n", level, message);
}

int main(int argc, char **argv) {
    fl_log           log     = {.fn = print_log};
    fl_model_options options = {.log = &log};
    fletch_error     error   = {0};
    fl_model        *model   = NULL;
    fl_buf           out     = {0};
    if (argc == 2 && strcmp(argv[1], "--check") == 0)
        return check_files();
    if (argc == 3 && strcmp(argv[1], "--values") == 0)
        return dump_values_of(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--tokenizer") == 0)
        options.without_weights = true;
    else if (argc != 2)
        return 2;
    int status = fl_model_open(&model, argv[argc - 1], &options, &error);
    if (status != 0) {
        fprintf(stderr, "%d: %s\n", status, error.message);
        return 3;
    }
    dump_model(&out, model);
    int failed = fl_write_all(1, out.data, out.size);
    fl_buf_free(&out);
    fl_model_close(model);
    return failed != 0;
}
