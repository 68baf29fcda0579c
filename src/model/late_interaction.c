/* SPDX-License-Identifier: Apache-2.0 */
/* late_interaction.c - models with a vector a token (ColBERT): lengths, markers, expansion, skiplist.
 *
 * Role    model.c asks early whether a folder is one; modules.c and lengths.c hand their parts over.
 * In/Out  Three ways to save them, as MultiVectorEncoder of sentence-transformers 6.2 reads them:
 *         - its own: model_type MultiVectorEncoder, lengths and expansion in sentence_bert_config.json,
 *           a MultiVectorMask among the modules;
 *         - PyLate's: model_type ColBERT, or a module of its own; all of it in
 *           config_sentence_transformers.json; mask and unit length go without saying;
 *         - Stanford's: the class HF_ColBERT, artifact.metadata, and linear.weight among the weights.
 *         -> head, late, prompts, stages. The maths is that of modules: the rows of tokens pass
 *         the stages, those of skipped tokens are left out.
 * Method  A query is filled up with a token that queries no row of its own needs: by default nothing
 *         attends to it, yet its row counts. Windows that are too narrow for that to have a meaning
 *         are refused, and so is filling in front.
 * Memory  late.skipped; strings are kept by the model. Threads: during opening only.
 * Proof   tests/golden/test_late.py. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { LENGTH_MAX = 1 << 20, SKIPPED_MAX = 4096, STANFORD_LENGTH = 32, PUNCTUATION = 32 };

static const char        punctuation[]   = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"; /* Python's */
static const char *const prompt_names[2] = {"query", "document"};

bool fl_late_names(const char *type) {
    return strcmp(type, "pylate.models.Dense.Dense") == 0;
}

/* ---- Settings -------------------------------------------------------------------------------- */

/* {"strategy": "fixed" | "min", "length", "attend", "token"}; null: none. */
static void read_expansion(fl_model *model, fl_json_reader *parent) {
    fl_late       *late = &model->late;
    fl_json_reader own  = fl_json_below(parent, "query_expansion");
    late->expansion     = 0;
    if (own.object == NULL)
        return;
    const char *strategy = fl_json_string(&own, "strategy", "");
    const char *token    = fl_json_string(&own, "token", NULL);
    late->expansion      = (uint32_t)fl_json_int(&own, "length", 0, 1, LENGTH_MAX);
    late->attends        = fl_json_bool(&own, "attend", false);
    late->fixed          = strcmp(strategy, "fixed") == 0;
    late->filler         = NULL;
    if (!late->fixed && strcmp(strategy, "min") != 0)
        fl_family_refuse(&own, "query_expansion: strategy", strategy);
    if (own.status == 0 && late->expansion == 0)
        own.status = fl_fail(own.error, FLETCH_EMODEL, FLETCH_NOWHERE,
                             "%s: query_expansion has no length.", own.source);
    if (own.status == 0 && token != NULL)
        own.status = fl_model_keep(model, &late->filler, "a token", own.error, "%s", token);
    fl_json_settle(parent, &own);
}

/* The lengths of queries and documents where `reader` has them. */
static void read_lengths(fl_late *late, fl_json_reader *reader) {
    for (int side = FL_SIDE_QUERY; side <= FL_SIDE_DOCUMENT; side++) {
        const char *key    = side == FL_SIDE_QUERY ? "query_length" : "document_length";
        late->length[side] = (uint32_t)fl_json_int(reader, key, late->length[side], 1, LENGTH_MAX);
    }
}

void fl_late_lengths(fl_model *model, fl_json_reader *sentence) {
    if (model->head != FL_HEAD_LATE)
        return;
    read_lengths(&model->late, sentence);
    if (fl_json_find(sentence->object, "query_expansion", NULL))
        read_expansion(model, sentence);
}

/* The strings of a list; what is no string is damage. */
static int read_skipped(fl_model *model, fl_json_reader *reader, const char *key) {
    fl_json *list  = fl_json_array(reader, key);
    size_t   count = fl_json_count(list);
    if (reader->status != 0)
        return reader->status;
    if (count > SKIPPED_MAX)
        return fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: %s has more than %d words.", reader->source, key, SKIPPED_MAX);
    fl_free(model->late.skipped);
    model->late.skipped_count = 0;
    model->late.skipped       = fl_alloc_zero(count + 1, sizeof *model->late.skipped);
    if (model->late.skipped == NULL)
        return fl_fail_nomem(reader->error, count * sizeof *model->late.skipped, "a skiplist");
    for (size_t i = 0; i < count; i++) {
        const char *word = fl_json_text(fl_json_item(list, i));
        if (word == NULL)
            return fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s: %s holds something that is not a string.", reader->source, key);
        FL_TRY(
            fl_model_keep(model, &model->late.skipped[i], "a skiplist", reader->error, "%s", word));
        model->late.skipped_count++;
    }
    return 0;
}

static int skip_punctuation(fl_model *model, fletch_error *error) {
    model->late.skipped = fl_alloc_zero(PUNCTUATION, sizeof *model->late.skipped);
    if (model->late.skipped == NULL)
        return fl_fail_nomem(error, PUNCTUATION * sizeof *model->late.skipped, "a skiplist");
    for (uint32_t i = 0; i < PUNCTUATION; i++)
        FL_TRY(fl_model_keep(model, &model->late.skipped[i], "a skiplist", error, "%c",
                             punctuation[i]));
    model->late.skipped_count = PUNCTUATION;
    return 0;
}

static void skip_documents(fl_late *late) {
    late->skips[FL_SIDE_DOCUMENT] = late->skips[FL_SIDE_NONE] = true;
}

int fl_late_mask(fl_model *model, const char *folder, fletch_error *error) {
    fl_late       *late = &model->late;
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_model_read_json(&reader, path, folder, "config.json", error));
    fl_json    *tasks  = fl_json_get(reader.object, "skiplist_tasks");
    const char *single = fl_json_text(tasks);
    model->own->masks  = true;
    if (fl_json_has(&reader, "keep_only_token_ids"))
        fl_family_refuse(&reader, "keep_only_token_ids", "a list");
    int status =
        reader.status != 0 ? reader.status : read_skipped(model, &reader, "skiplist_words");
    for (size_t i = 0; status == 0 && i < (single != NULL ? 1 : fl_json_count(tasks)); i++) {
        const char *task = single != NULL ? single : fl_json_text(fl_json_item(tasks, i));
        if (task != NULL && strcmp(task, prompt_names[0]) == 0)
            late->skips[FL_SIDE_QUERY] = true;
        else if (task != NULL && strcmp(task, prompt_names[1]) == 0)
            skip_documents(late);
    }
    if (single == NULL && !fl_json_is(tasks, FL_JSON_ARRAY))
        skip_documents(late);
    fl_json_free(reader.object);
    return status;
}

/* ---- What older programs save ---------------------------------------------------------------- */

static int keep_prefix(fl_model *model, int side, const char *text, fletch_error *error) {
    FL_TRY(fl_model_keep(model, &model->own->prefix[side], "a prefix", error, "%s", text));
    model->late.marker[side] = model->own->prefix[side];
    return 0;
}

/* Flat keys, which PyLate writes, become what sentence-transformers makes of them. */
static int read_flat(fl_model *model, fl_json_reader *reader, bool colbert) {
    static const char *const marks[] = {
        "query_length",         "document_length", "query_expansion", "do_query_expansion",
        "query_prefix",         "document_prefix", "skiplist_words",  "attend_to_expansion_tokens",
        "attend_to_mask_tokens"};
    fl_late *late   = &model->late;
    bool     marked = false, prefixed = false;
    int      status = 0;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        marked = marked || fl_json_find(reader->object, marks[i], NULL);
    for (int side = 0; side < 2 && status == 0; side++) {
        const char *key = side == 0 ? "query_prefix" : "document_prefix";
        if (!fl_json_find(reader->object, key, NULL))
            continue;
        prefixed = true;
        status   = keep_prefix(model, side, fl_json_string(reader, key, ""), reader->error);
    }
    read_lengths(late, reader);
    if (fl_json_find(reader->object, "query_expansion", NULL)) {
        read_expansion(model, reader);
    } else if (marked && fl_json_bool(reader, "do_query_expansion", true)) {
        bool masks                  = fl_json_bool(reader, "attend_to_mask_tokens", false);
        late->attends               = fl_json_bool(reader, "attend_to_expansion_tokens", masks);
        late->expansion             = late->length[FL_SIDE_QUERY] > 0 ? late->length[FL_SIDE_QUERY]
                                                                      : (uint32_t)STANFORD_LENGTH;
        late->fixed                 = true;
        late->length[FL_SIDE_QUERY] = 0;
    }
    if (status == 0)
        status = reader->status;
    if (status != 0 || !model->own->pylate)
        return status;
    skip_documents(late);
    if (fl_json_has(reader, "skiplist_words"))
        return read_skipped(model, reader, "skiplist_words");
    return colbert || prefixed ? skip_punctuation(model, reader->error) : 0;
}

static int read_stanford(fl_model *model, fletch_error *error) {
    fl_late       *late = &model->late;
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_model_read_json(&reader, path, model->folder, "artifact.metadata", error));
    const char *names[2] = {fl_json_string(&reader, "query_token_id", "[unused0]"),
                            fl_json_string(&reader, "doc_token_id", "[unused1]")};
    late->expansion =
        (uint32_t)fl_json_int(&reader, "query_maxlen", STANFORD_LENGTH, 1, LENGTH_MAX);
    late->length[FL_SIDE_DOCUMENT] = (uint32_t)fl_json_int(&reader, "doc_maxlen", 0, 1, LENGTH_MAX);
    late->attends                  = fl_json_bool(&reader, "attend_to_mask_tokens", false);
    late->fixed                    = true;
    bool skips                     = fl_json_bool(&reader, "mask_punctuation", true);
    int  status                    = reader.status;
    for (int side = 0; side < 2 && status == 0; side++) {
        status = fl_model_keep(model, &late->marker[side], "a marker", error, "%s ", names[side]);
        model->own->prefix[side] = late->marker[side];
    }
    fl_json_free(reader.object);
    if (status == 0 && skips)
        status = skip_punctuation(model, error);
    if (skips)
        skip_documents(late);
    return status;
}

static bool is_stanford(fl_json *config) {
    fl_json *classes = fl_json_get(config, "architectures");
    for (size_t i = 0; i < fl_json_count(classes); i++) {
        const char *name = fl_json_text(fl_json_item(classes, i));
        if (name != NULL && strcmp(name, "HF_ColBERT") == 0)
            return true;
    }
    return false;
}

static bool has_pylate_module(const fl_modules *modules) {
    for (size_t i = 0; i < modules->count; i++)
        if (fl_late_names(modules->list[i].type))
            return true;
    return false;
}

int fl_late_find(fl_model *model, const fl_modules *modules, fletch_error *error) {
    static const char settings[] = "config_sentence_transformers.json";
    char              path[FL_MODEL_PATH_MAX];
    fl_json_reader    reader;
    bool              plain  = modules->count == 0;
    int               status = 0;
    if (model->head != FL_HEAD_EMBEDDING)
        return 0;
    FL_TRY(fl_model_read_json(&reader, path, plain ? model->own->base : model->folder,
                              plain ? "config.json" : settings, error));
    const char *type    = fl_json_text(fl_json_get(reader.object, "model_type"));
    bool        colbert = type != NULL && strcmp(type, "ColBERT") == 0;
    bool        named   = type != NULL && strcmp(type, "MultiVectorEncoder") == 0;
    model->own->pylate  = !plain && (colbert || (!named && has_pylate_module(modules)));
    if (plain ? is_stanford(reader.object) : named || model->own->pylate) {
        model->head = FL_HEAD_LATE;
        status      = plain ? read_stanford(model, error) : read_flat(model, &reader, colbert);
    }
    fl_json_free(reader.object);
    if (status == 0 && model->head == FL_HEAD_LATE && model->is_static)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: late interaction over a static table is not supported.", model->folder);
    return status;
}

/* ---- Prompts --------------------------------------------------------------------------------- */

/* A prefix stands before the prompt of its side, unless that begins with it. */
static int add_prefix(fl_model *model, int side, fletch_error *error) {
    const char *prefix = model->own->prefix[side];
    uint32_t    i      = 0;
    while (i < model->prompt_count && strcmp(model->prompts[i].name, prompt_names[side]) != 0)
        i++;
    const char *text = i < model->prompt_count ? model->prompts[i].text : "";
    if (strncmp(text, prefix, strlen(prefix)) == 0)
        text += strlen(prefix);
    model->prompts[i].name = prompt_names[side];
    FL_TRY(fl_model_keep(model, &model->prompts[i].text, "a prompt", error, "%s%s", prefix, text));
    model->prompt_count += i == model->prompt_count;
    return 0;
}

int fl_late_prompts(fl_model *model, fletch_error *error) {
    size_t         room    = model->prompt_count + 2;
    fletch_prompt *prompts = fl_realloc_array(model->prompts, room, sizeof *prompts);
    if (prompts == NULL)
        return fl_fail_nomem(error, room * sizeof *prompts, "prompts");
    model->prompts    = prompts;
    model->late.mean  = strcmp(model->similarity, "meanmaxsim") == 0;
    model->similarity = model->late.mean ? model->similarity : "maxsim";
    int status        = 0;
    for (int side = 0; side < 2 && status == 0; side++)
        if (model->own->prefix[side] != NULL)
            status = add_prefix(model, side, error);
    return status;
}

/* ---- The rest -------------------------------------------------------------------------------- */

/* Stanford's layer lies among the network's weights. */
static int read_projection(fl_model *model, fletch_error *error) {
    const fl_tensor *weight = fl_safetensors_find(model->own->weights, "linear.weight");
    fl_stage        *stage  = &model->stages[model->stage_count];
    if (weight == NULL || weight->rank != 2 || weight->shape[0] == 0 ||
        weight->shape[0] > LENGTH_MAX)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: the tensor linear.weight of a ColBERT model is missing, or not a "
                       "matrix.",
                       model->folder);
    model->stage_count++;
    stage->kind       = FL_STAGE_DENSE;
    stage->in         = model->dimensions;
    stage->out        = (uint32_t)weight->shape[0];
    model->dimensions = stage->out;
    return fl_dense_load(&stage->weight, model->own->weights, model->folder, "linear.weight",
                         stage->out, stage->in, error);
}

static void add_normalize(fl_model *model) {
    fl_stage *stage                = &model->stages[model->stage_count++];
    stage->kind                    = FL_STAGE_NORMALIZE;
    stage->in                      = model->dimensions;
    stage->out                     = model->dimensions;
    model->normalize               = true;
    model->normalize_source.origin = "late interaction of before sentence-transformers 6";
}

static int check_expansion(fl_model *model, fletch_error *error) {
    const fl_encoder_desc *desc = &model->encoder.desc;
    const fl_late         *late = &model->late;
    fl_json_reader         reader;
    if (late->expansion == 0)
        return 0;
    if (late->expansion > desc->positions)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: queries are padded to %u tokens, but the model has %u positions.",
                       model->folder, late->expansion, desc->positions);
    if (late->length[FL_SIDE_QUERY] > 0 && late->length[FL_SIDE_QUERY] < late->expansion)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: query_length %u is less than the %u tokens that queries are padded to.",
                       model->folder, late->length[FL_SIDE_QUERY], late->expansion);
    for (size_t i = 0; i < FL_RULES_MAX && !late->attends; i++)
        if (desc->distance[i].window > 0 && desc->distance[i].window < late->expansion)
            return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s: queries padded to %u tokens that nothing attends to, in a network "
                           "that sees %u tokens to each side, are not supported.",
                           model->folder, late->expansion, desc->distance[i].window);
    if (!model->own->masks && model->own->has_modules && !model->own->pylate)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: query_expansion without a MultiVectorMask is not supported.",
                       model->folder);
    FL_TRY(fl_model_read_tokenizer_config(model, &reader, error));
    const char *padded = fl_json_string(&reader, "padding_side", "right");
    if (strcmp(padded, "right") != 0)
        fl_family_refuse(&reader, "query_expansion with padding_side", padded);
    return reader.status;
}

int fl_late_finish(fl_model *model, fletch_error *error) {
    bool stanford = !model->own->has_modules;
    int  status   = stanford ? read_projection(model, error) : 0;
    if (status == 0 && (stanford || model->own->pylate) && !model->normalize)
        add_normalize(model);
    return status == 0 ? check_expansion(model, error) : status;
}
