/* SPDX-License-Identifier: Apache-2.0 */
/* task.c - the task of a folder that has an adapter for each of several (Jina v3 and v5).
 *
 * Role    model.c reads the task when config.json has chosen the family; weights.c asks for the
 *         adapter of each matrix that has one.
 * In/Out  model.task, "lora_adaptations", "lora_rank", "lora_alpha" -> an index and a scale;
 *         "task_instructions" -> the prompt of a folder that has none of the task's name (prompts.c);
 *         M.parametrizations.weight.{original, 0.lora_A, 0.lora_B} -> fl_tensor.adapter. Or "task_names", and
 *         an adapter of peft's in a folder each (Jina v5; peft.c).
 * Method  Weights of a task are W + alpha / rank * left * right. Of a linear layer, [out, in], left is
 *         B[task] and right A[task]; of a table of rows the other way round. The product is added
 *         where weights are read (tensor.c), so an engine that packs has folded it in, and opening
 *         needs no second copy. Without a task the Hub's code runs the bare weights, which no
 *         published figure is of: it is asked for instead.
 * Memory  adapters, owned by the model. Threads: during opening only.
 * Proof   tests/golden/test_families.py, test_folders.py (family-jina3-tasks). */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { TASKS_MAX = 256, NAME_BYTES_MAX = 256 };

static const char original[] = ".parametrizations.weight.original";

/* What the Hub's own encode() puts in front of a task's texts. */
static int read_instruction(fl_model *model, const fl_family *family, fl_json_reader *config) {
    const char *key = family->tasks.instructions;
    if (model->task == NULL || key == NULL || !fl_json_has(config, key))
        return 0;
    fl_json_reader map  = fl_json_below(config, key);
    const char    *text = fl_json_string(&map, model->task, NULL);
    if (text != NULL)
        FL_TRY(fl_model_keep(model, &model->own->task.instruction, "a prompt", config->error, "%s",
                             text));
    return map.status;
}

int fl_task_read(fl_model *model, const fl_family *family, fl_json_reader *config,
                 const fl_model_options *options) {
    char           known[300] = "";
    const char    *wanted     = options->task == NULL ? "" : options->task;
    fl_model_task *task       = &model->own->task;
    if (family->tasks.names == NULL)
        return 0;
    fl_json *names = fl_json_array(config, family->tasks.names);
    task->count    = (uint32_t)fl_json_count(names);
    if (family->tasks.folder == NULL) {
        double alpha = fl_json_double(config, family->tasks.alpha, 1);
        task->rank   = (uint32_t)fl_json_int(config, family->tasks.rank, 4, 1, FL_ADAPTER_RANK_MAX);
        task->scale  = (float)(alpha / task->rank);
    }
    if (config->status != 0)
        return config->status;
    if (task->count == 0 || fl_json_count(names) > TASKS_MAX)
        return fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: %s is not a list of 1 to %d tasks.", config->source,
                       family->tasks.names, TASKS_MAX);
    for (size_t i = 0; i < fl_json_count(names); i++) {
        const char *name = fl_json_text(fl_json_item(names, i));
        fl_error_list(known, sizeof known, name != NULL ? name : "?");
    }
    FL_TRY(fl_model_keep(model, &model->tasks, "the names of tasks", config->error, "%s", known));
    model->encoder.desc.adapters = true;
    for (uint32_t i = 0; i < task->count; i++) {
        const char *name = fl_json_text(fl_json_item(names, i));
        if (name == NULL || strcmp(name, wanted) != 0)
            continue;
        task->index = i;
        FL_TRY(fl_model_keep(model, &model->task, "a name", config->error, "%s", name));
    }
    if (model->task != NULL && family->tasks.folder != NULL)
        return fl_peft_open_task(model, family->tasks.folder, !options->without_weights,
                                 config->error);
    if (model->task != NULL || (wanted[0] == '\0' && options->without_weights))
        return read_instruction(model, family, config);
    return fl_fail(config->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "model.task \"%.60s\": the model has an adapter for each of its tasks and needs "
                   "one of: %s.",
                   wanted, known);
}

int fl_task_check(const fl_model *model, const fl_model_options *options, fletch_error *error) {
    if (model->task != NULL || options->task == NULL || options->task[0] == '\0')
        return 0;
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "model.task \"%.60s\": %s has no adapters or routes; leave model.task unset.",
                   options->task, model->folder);
}

/* ---- Adapters -------------------------------------------------------------------------------- */

/* "M...original" -> "M.parametrizations.weight.0.lora_A". */
static const fl_tensor *find_half(const fl_model *model, const char *prefix, const char *name,
                                  char half, char out[NAME_BYTES_MAX]) {
    snprintf(out, NAME_BYTES_MAX, "%s%.*s0.lora_%c", prefix,
             (int)(strlen(name) - strlen("original")), name, half);
    return fl_safetensors_find(model->own->weights, out);
}

static int check_half(const fl_model *model, const fl_tensor *half, const char *name, uint64_t rows,
                      uint64_t columns, fletch_error *error) {
    const uint64_t shape[] = {model->own->task.count, rows, columns};
    if (half == NULL)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: the adapter %s is missing.",
                       model->own->transformer, name);
    if (half->rank != 3 || memcmp(half->shape, shape, sizeof shape) != 0 ||
        !fl_dtype_is_real(half->dtype))
        return fl_fail(
            error, FLETCH_EMODEL, FLETCH_NOWHERE,
            "%s: the adapter %s is not [%llu, %llu, %llu] of F32, F16 or BF16: the files "
            "do not belong together.",
            model->own->transformer, name, (unsigned long long)shape[0], (unsigned long long)rows,
            (unsigned long long)columns);
    return 0;
}

int fl_task_adapt(fl_model *model, const char *prefix, const char *name, const fl_tensor *whole,
                  uint64_t first, bool table, fl_tensor *part, fletch_error *error) {
    size_t size = strlen(name), end = strlen(original);
    char   left_name[NAME_BYTES_MAX], right_name[NAME_BYTES_MAX];
    if (model->task == NULL || size < end || strcmp(name + size - end, original) != 0)
        return 0;
    const fl_model_task *task    = &model->own->task;
    uint64_t             columns = whole->shape[1];
    const fl_tensor     *left    = find_half(model, prefix, name, table ? 'A' : 'B', left_name);
    const fl_tensor     *right   = find_half(model, prefix, name, table ? 'B' : 'A', right_name);
    FL_TRY(check_half(model, left, left_name, whole->shape[0], task->rank, error));
    FL_TRY(check_half(model, right, right_name, task->rank, columns, error));
    FL_TRY(fl_adapter_add(model, right, task->index * task->rank, left,
                          task->index * left->shape[1] + first, task->scale, error));
    part->adapter = model->own->adapters;
    return 0;
}

int fl_adapter_add(fl_model *model, const fl_tensor *right, uint64_t right_row,
                   const fl_tensor *left, uint64_t left_row, float scale, fletch_error *error) {
    const uint64_t rank = left->shape[left->rank - 1], columns = right->shape[right->rank - 1];
    const uint64_t values  = rank * columns; /* both are checked against the file */
    const size_t   bytes   = sizeof(fl_adapter) + (size_t)values * sizeof(float);
    fl_adapter    *adapter = fl_alloc(bytes);
    if (adapter == NULL)
        return fl_fail_nomem(error, bytes, "an adapter");
    *adapter           = (fl_adapter){.next    = model->own->adapters,
                                      .left    = *left,
                                      .rank    = (uint32_t)rank,
                                      .columns = (uint32_t)columns,
                                      .scale   = scale};
    adapter->left.data = (const char *)left->data + fl_dtype_bytes(left->dtype, left_row * rank);
    fl_tensor_to_f32(right, right_row * columns, values, adapter->right);
    model->own->adapters = adapter;
    return 0;
}

void fl_task_close(fl_model *model) {
    fl_adapter *next;
    for (fl_adapter *a = model->own->adapters; a != NULL; a = next) {
        next = a->next;
        fl_free(a);
    }
    model->own->adapters = NULL;
}
