/* SPDX-License-Identifier: Apache-2.0 */
/* causal_scores.c - language models that rerank: a score is a logit of the last token, or the difference of two.
 *
 * Role    scores.c asks early whether a folder is one, and reads the score when the weights are there.
 * In/Out  A CrossEncoder whose modules are a Transformer of the task text-generation and LogitScore; or a
 *         plain ...ForCausalLM whose chat template has the messages of a query and a document, which
 *         sentence-transformers reads as logit("yes") - logit("no").
 *         -> last token pooling and one dense layer: logits are products with rows of the vocabulary's
 *         matrix, so their difference is one product with the rows' difference, and no logit is
 *         computed that nobody reads.
 * Memory  one stage, owned by the model. Threads: during opening only.
 * Proof   tests/golden/test_language.py. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_in.h"
#include "base/mem.h"
#include "model/model_private.h"

/* The ids of two words (NULL: none) in tokenizer.json's vocabulary; -1: not there. */
static int find_words(const fl_model *model, const char *const words[2], int64_t ids[2],
                      fletch_error *error) {
    char       path[FL_MODEL_PATH_MAX];
    fl_buf     file = {0};
    fl_json_in in;
    fl_span    key;
    ids[0] = ids[1] = -1;
    int status = fl_path_join(path, sizeof path, model->own->transformer, "tokenizer.json", error);
    if (status == 0)
        status = fl_file_read(path, FL_TOKENIZER_BYTES_MAX, &file, error) < 0 ? FLETCH_EMODEL : 0;
    fl_json_in_begin(&in, file.data, file.size);
    if (status == 0 && fl_json_in_enter(&in, FL_JSON_OBJECT))
        while (fl_json_in_key(&in, &key)) {
            bool model_key = fl_span_is(key, "model") && fl_json_in_enter(&in, FL_JSON_OBJECT);
            while (model_key && fl_json_in_key(&in, &key)) {
                bool vocab = fl_span_is(key, "vocab") && fl_json_in_peek(&in) == FL_JSON_OBJECT &&
                             fl_json_in_enter(&in, FL_JSON_OBJECT);
                while (vocab && fl_json_in_key(&in, &key)) {
                    int64_t *id = NULL;
                    for (int i = 0; i < 2; i++)
                        id = words[i] != NULL && fl_span_is(key, words[i]) ? &ids[i] : id;
                    if (id == NULL ? !fl_json_in_skip(&in, NULL) : !fl_json_in_integer(&in, id))
                        break;
                }
                if (!vocab)
                    fl_json_in_skip(&in, NULL);
            }
            if (!model_key)
                fl_json_in_skip(&in, NULL);
        }
    if (status == 0 && in.failed)
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %s (line %zu)", path,
                         in.message, in.line);
    fl_buf_free(&file);
    return status;
}

int fl_causal_take(fl_model *model, const char *yes, const char *no, float divisor,
                   fletch_error *error) {
    const char *const words[] = {yes, no};
    int64_t           ids[2];
    FL_TRY(find_words(model, words, ids, error));
    for (int i = 0; i < 2; i++)
        if (words[i] != NULL && ids[i] < 0)
            return fl_fail(
                error, FLETCH_EMODEL, FLETCH_NOWHERE,
                "%s: a reranker that scores by the logit of \"%s\", which its tokenizer lacks.",
                model->folder, words[i]);
    model->head             = FL_HEAD_SCORES;
    model->own->logits      = true;
    model->own->true_token  = ids[0];
    model->own->false_token = ids[1];
    model->own->divisor     = divisor;
    return 0;
}

int fl_causal_find(fl_model *model, fletch_error *error) {
    bool      found  = false;
    const int status = fl_chat_read(model, &found, error);
    if (status < 0 && status != FLETCH_EUNSUPPORTED)
        return status;
    if (status < 0 || !fl_chat_has(model, FL_CHAT_QUERY) || !fl_chat_has(model, FL_CHAT_DOCUMENT)) {
        /* a chat like any other: a language model whose rows are asked for */
        fl_error_clear(error);
        model->chat_count = 0;
        return 0;
    }
    return fl_causal_take(model, "yes", "no", 1, error);
}

int fl_causal_module(fl_model *model, const char *folder, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_model_read_json(&reader, path, folder, "config.json", error));
    const char *input       = fl_json_string(&reader, "module_input_name", "causal_logits");
    model->own->divisor     = 1;
    model->own->true_token  = fl_json_int(&reader, "true_token_id", -1, 0, INT32_MAX);
    model->own->false_token = fl_json_int(&reader, "false_token_id", -1, 0, INT32_MAX);
    if (strcmp(input, "causal_logits") != 0)
        fl_family_refuse(&reader, "module_input_name", input);
    int status = reader.status;
    if (status == 0 && model->own->true_token < 0)
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s has no true_token_id.", path);
    fl_json_free(reader.object);
    return status;
}

void fl_causal_pool(fl_model *model) {
    fl_pooling_set(model, FL_POOL_LAST_TOKEN, "the language model's last token");
    model->normalize_source.origin = "the language model";
}

/* Row `id` of the matrix added to out[hidden], times `sign`. */
static int add_row(const fl_model *model, const fl_tensor *matrix, int64_t id, float sign,
                   float *row, float *out, fletch_error *error) {
    uint32_t hidden = model->encoder.desc.hidden;
    if (id < 0)
        return 0;
    if ((uint64_t)id >= matrix->shape[0])
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: scores are of token %lld, but the vocabulary has %llu.", model->folder,
                       (long long)id, (unsigned long long)matrix->shape[0]);
    fl_tensor_to_f32(matrix, (uint64_t)id * hidden, hidden, row);
    for (uint32_t i = 0; i < hidden; i++)
        out[i] += sign * row[i];
    return 0;
}

int fl_causal_read(fl_model *model, bool tied, fletch_error *error) {
    uint32_t         hidden = model->encoder.desc.hidden;
    const fl_tensor *matrix = fl_safetensors_find(model->own->weights, "lm_head.weight");
    if (matrix == NULL || tied)
        matrix = &model->encoder.global[FL_SLOT_WORD];
    if (matrix->data == NULL || matrix->rank != 2 || matrix->shape[1] != hidden ||
        !fl_dtype_is_real(matrix->dtype))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: lm_head.weight is not a matrix of floating point rows %u wide.",
                       model->folder, hidden);
    model->stages = fl_alloc_zero(1, sizeof *model->stages);
    float *row    = fl_alloc_array(hidden, sizeof *row);
    if (model->stages != NULL) {
        model->stage_count    = 1; /* whoever frees the model frees the weight */
        model->stages->weight = fl_alloc_zero(hidden, sizeof *row);
    }
    if (model->stages == NULL || row == NULL || model->stages->weight == NULL) {
        fl_free(row);
        return fl_fail_nomem(error, hidden * sizeof *row, "a score");
    }
    model->stages->kind = FL_STAGE_DENSE;
    model->stages->in   = hidden;
    model->stages->out  = 1;
    int status =
        add_row(model, matrix, model->own->true_token, 1.0f, row, model->stages->weight, error);
    if (status == 0)
        status = add_row(model, matrix, model->own->false_token, -1.0f, row, model->stages->weight,
                         error);
    for (uint32_t i = 0; i < hidden; i++)
        model->stages->weight[i] /= model->own->divisor;
    fl_free(row);
    return status;
}
