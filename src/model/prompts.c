/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.c - config_sentence_transformers.json: prompts, similarity and truncate_dim.
 *
 * Role    model.c calls it for folders that have a modules.json (sentence-transformers reads the
 *         file only then).
 * In/Out  {"prompts": {name: text | null}, "default_prompt_name", "similarity_fn_name",
 *         "truncate_dim", "model_type"} -> the fields of fl_model. A prompt of null is "".
 * Method  "query" and "document" exist in every sentence-transformers model, as "" unless the
 *         file says otherwise, so they are valid as default_prompt_name and mean no prompt then.
 *         A task's prompt is the one of its name, unless the file names a default; where the file has
 *         none so named, config.json's.
 * Memory  the prompts and their strings, owned by the model. Threads: during opening only.
 * Proof   tests/unit/test_model.c; tests/golden/test_folders.py. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { PROMPTS_MAX = 4096 };

static int read_prompts(fl_model *model, fl_json_reader *reader) {
    fl_json *map   = fl_json_object(reader, "prompts");
    size_t   count = fl_json_count(map);
    if (reader->status != 0 || count == 0)
        return reader->status;
    if (count > PROMPTS_MAX)
        return fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: more than %d prompts.",
                       reader->source, PROMPTS_MAX);
    model->prompts = fl_alloc_zero(count, sizeof *model->prompts);
    if (model->prompts == NULL)
        return fl_fail_nomem(reader->error, count * sizeof *model->prompts, "prompts");
    fl_json_reader prompts = fl_json_inside(reader, map);
    FL_JSON_EACH(map, key, value) {
        (void)value;
        const char *text = fl_json_string(&prompts, key, "");
        if (prompts.status != 0)
            return prompts.status;
        fletch_prompt *prompt = &model->prompts[model->prompt_count];
        FL_TRY(fl_model_keep(model, &prompt->name, "a prompt", reader->error, "%s", key));
        FL_TRY(fl_model_keep(model, &prompt->text, "a prompt", reader->error, "%s", text));
        model->prompt_count++;
    }
    return 0;
}

static int read_default_prompt(fl_model *model, fl_json_reader *reader) {
    const char *name = fl_json_string(reader, "default_prompt_name", NULL);
    if (name == NULL)
        name = model->task;
    if (reader->status != 0 || name == NULL)
        return reader->status;
    for (uint32_t i = 0; i < model->prompt_count; i++)
        if (strcmp(model->prompts[i].name, name) == 0) {
            model->default_prompt_name = model->prompts[i].name;
            return 0;
        }
    if (strcmp(name, "query") == 0 || strcmp(name, "document") == 0 || name == model->task)
        return 0;
    return fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s: default_prompt_name \"%.80s\" is not one of its prompts.", reader->source,
                   name);
}

static bool has_prompt(const fl_model *model, const char *name) {
    for (uint32_t i = 0; i < model->prompt_count; i++)
        if (strcmp(model->prompts[i].name, name) == 0)
            return true;
    return false;
}

/* config.json's prompt of the task joins those of the file. */
static int add_instruction(fl_model *model, fletch_error *error) {
    const char *text = model->own->task.instruction;
    size_t      size = sizeof *model->prompts;
    if (text == NULL || has_prompt(model, model->task))
        return 0;
    fletch_prompt *prompts = fl_realloc_array(model->prompts, model->prompt_count + 1, size);
    if (prompts == NULL)
        return fl_fail_nomem(error, size, "a prompt");
    model->prompts                 = prompts;
    prompts[model->prompt_count++] = (fletch_prompt){.name = model->task, .text = text};
    if (model->default_prompt_name == NULL)
        model->default_prompt_name = model->task;
    return 0;
}

static int read_rest(fl_model *model, fl_json_reader *reader) {
    const char *wanted = fl_head_rules_of(model)->encoder;
    const char *type   = model->own->pylate ? wanted : fl_json_string(reader, "model_type", wanted);
    const char *similarity = fl_json_string(reader, "similarity_fn_name", NULL);
    model->truncate_dim    = (uint32_t)fl_json_int(reader, "truncate_dim", 0, 1, UINT32_MAX);
    if (strcmp(type, wanted) != 0)
        fl_family_refuse(reader, "model_type", type);
    if (reader->status != 0)
        return reader->status;
    return similarity == NULL ? 0
                              : fl_model_keep(model, &model->similarity, "a name", reader->error,
                                              "%s", similarity);
}

static int read_file(fl_model *model, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_model_read_json(&reader, path, model->folder, "config_sentence_transformers.json",
                              error));
    if (reader.object == NULL)
        return 0;
    int status = read_prompts(model, &reader);
    if (status == 0)
        status = read_default_prompt(model, &reader);
    if (status == 0)
        status = read_rest(model, &reader);
    fl_json_free(reader.object);
    return status;
}

int fl_prompts_read(fl_model *model, fletch_error *error) {
    model->similarity = "cosine";
    if (model->own->has_modules)
        FL_TRY(read_file(model, error));
    FL_TRY(add_instruction(model, error));
    const fl_head_rules *head = fl_head_rules_of(model);
    return head->prompts != NULL ? head->prompts(model, error) : FLETCH_OK;
}
