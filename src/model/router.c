/* SPDX-License-Identifier: Apache-2.0 */
/* router.c - models of several routes, of which one is open; but of sparse models whose queries are looked up in a
 * table both are: nothing is computed for them.
 *
 * Role    modules.c calls it when the first module is a Router; model.c again when lengths and tokenizer are known.
 * In/Out  router_config.json {"structure": {"query": [ids], "document": [ids]}, "types": {id: class},
 *         "parameters"} -> the document's modules in place of modules.json's, and model->lookup: the
 *         tensor "weight" of the SparseStaticEmbedding, or the idf.json that its config.json names.
 *         A folder without modules.json may have an idf.json too (models for documents alone).
 *         Of any other routes model.task names the one whose modules are the model, with those behind the Router; the
 *         default is not taken, for it would serve queries with the network of documents unasked.
 * Method  A query's weights are those of the tokens in it, each once. Which text is a query is said as for
 *         late interaction; where nobody says, the router's default counts. Routes have a tokenizer each,
 *         and one of them serves here: another than the document's is refused.
 *         "path" may be one of the machine that saved the model: its last part is looked for, in the
 *         module's folder, then in the model's.
 * Memory  lookup.weight, own->queries; strings are kept by the model. Threads: during opening only.
 * Proof   tests/golden/test_routes.py. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { WEIGHTS_MAX = 1 << 24 };

static const char table_class[] = "SparseStaticEmbedding", idf_name[] = "idf.json";

/* ---- Routes ---------------------------------------------------------------------------------- */

static int refuse(const fl_modules *modules, fletch_error *error) {
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: these routes are not supported; fletch knows a query of one "
                   "SparseStaticEmbedding with a document of Transformer and SpladePooling, and "
                   "routes that are models by themselves.",
                   modules->path);
}

/* The modules of a route into list[FL_MODULES_MAX]. */
static int read_route(fl_json_reader *reader, fl_json *types, const char *route, fl_module *list,
                      size_t *count) {
    fl_json_reader structure = fl_json_below(reader, "structure");
    fl_json       *names     = fl_json_array(&structure, route);
    *count                   = fl_json_count(names);
    FL_TRY(structure.status);
    for (size_t i = 0; i < *count && i < FL_MODULES_MAX; i++) {
        const char *name = fl_json_text(fl_json_item(names, i));
        list[i].path     = name;
        list[i].type     = name != NULL ? fl_json_text(fl_json_get(types, name)) : NULL;
        if (list[i].type == NULL)
            return fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s: module %zu of route %s has no type.", reader->source, i, route);
    }
    return 0;
}

/* Which route a text takes when nobody says, as Router resolves it; NULL: none. */
static const char *default_route(fl_json_reader *reader) {
    fl_json       *unused;
    fl_json       *routes = fl_json_object(reader, "structure");
    const char    *first  = fl_json_member(routes, 0, &unused);
    fl_json_reader own    = fl_json_below(reader, "parameters");
    bool           empty  = fl_json_bool(&own, "allow_empty_key", true);
    const char    *route  = fl_json_string(&own, "default_route", empty ? first : NULL);
    fl_json       *other  = fl_json_object(&own, "route_mappings");
    if (fl_json_count(other) > 0)
        fl_family_refuse(&own, "route_mappings", fl_json_member(other, 0, &unused));
    fl_json_settle(reader, &own);
    return route;
}

/* Modules lie beside router_config.json. */
static int place(fl_model *model, const char *path, fl_module *module, fletch_error *error) {
    if (!fl_path_is_safe(module->path))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "router_config.json: module \"%.80s\" leaves the folder.", module->path);
    return path[0] == '\0'
               ? 0
               : fl_model_keep(model, &module->path, "a path", error, "%s/%s", path, module->path);
}

static int take_query(fl_model *model, const fl_module *table, fletch_error *error) {
    size_t room         = strlen(model->folder) + strlen(table->path) + 2;
    model->own->queries = fl_alloc(room);
    if (model->own->queries == NULL)
        return fl_fail_nomem(error, room, "a path");
    model->lookup.there = true;
    return fl_path_join(model->own->queries, room, model->folder, table->path, error);
}

/* A query that is looked up, and a document that is computed: both are open. */
static int take_pair(fl_modules *modules, fl_model *model, const char *path, fl_module *query,
                     fl_json_reader *reader) {
    const char *route        = default_route(reader);
    model->lookup.by_default = route != NULL && strcmp(route, "query") == 0;
    FL_TRY(reader->status);
    if (modules->count != 2)
        return refuse(modules, reader->error);
    for (size_t i = 0; i < modules->count; i++)
        FL_TRY(place(model, path, &modules->list[i], reader->error));
    FL_TRY(place(model, path, query, reader->error));
    return take_query(model, query, reader->error);
}

/* The names of all routes, for people. */
static int name_routes(fl_model *model, fl_json *routes, fletch_error *error) {
    char known[300] = "";
    FL_JSON_EACH(routes, name, unused) {
        (void)unused;
        fl_error_list(known, sizeof known, name);
    }
    return fl_model_keep(model, &model->tasks, "the names of routes", error, "%s", known);
}

/* The modules of one route, and those behind the Router: rest[count]. */
static int take_route(fl_modules *modules, fl_model *model, const char *path, const char *wanted,
                      fl_json_reader *reader, const fl_module *rest, size_t count) {
    fl_json    *routes = fl_json_object(reader, "structure");
    const char *route  = wanted[0] != '\0' || !fl_json_find(routes, "text", NULL) ? wanted : "text";
    (void)default_route(reader); /* mappings are refused */
    FL_TRY(reader->status);
    FL_TRY(name_routes(model, routes, reader->error));
    if (!fl_json_find(routes, route, NULL))
        return fl_fail(reader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "model.task \"%.60s\": the model has a network for each of its routes and "
                       "needs one of: %s.",
                       wanted, model->tasks);
    if (wanted[0] != '\0')
        FL_TRY(fl_model_keep(model, &model->task, "a name", reader->error, "%s", route));
    FL_TRY(
        read_route(reader, fl_json_object(reader, "types"), route, modules->list, &modules->count));
    if (modules->count == 0 || modules->count + count > FL_MODULES_MAX)
        return refuse(modules, reader->error);
    for (size_t i = 0; i < modules->count; i++)
        FL_TRY(place(model, path, &modules->list[i], reader->error));
    for (size_t i = 0; i < count; i++)
        modules->list[modules->count++] = rest[i];
    return 0;
}

/* Whether a query is one SparseStaticEmbedding. */
static bool is_table(const fl_module *query, size_t count) {
    const char *dot = count == 1 ? strrchr(query[0].type, '.') : NULL;
    return dot != NULL && strcmp(dot + 1, table_class) == 0 &&
           strncmp(query[0].type, "sentence_transformers.", strlen("sentence_transformers.")) == 0;
}

int fl_router_open(fl_modules *modules, fl_model *model, const char *path, const char *task,
                   fletch_error *error) {
    char         folder[FL_MODEL_PATH_MAX];
    fl_module    query[FL_MODULES_MAX], rest[FL_MODULES_MAX];
    size_t       queries = 0;
    const size_t behind  = modules->count - 1;
    memcpy(rest, modules->list + 1, behind * sizeof *rest);
    FL_TRY(fl_path_join(folder, sizeof folder, model->folder, path, error));
    fl_json_reader reader;
    FL_TRY(fl_model_read_json(&reader, modules->path, folder, "router_config.json", error));
    if (reader.object == NULL) /* Asym, which it was once */
        FL_TRY(fl_model_read_json(&reader, modules->path, folder, "config.json", error));
    modules->router = reader.object;
    fl_json *types  = fl_json_object(&reader, "types");
    fl_json *routes = fl_json_object(&reader, "structure");
    FL_TRY(reader.status);
    if (fl_json_count(routes) == 0)
        return refuse(modules, error);
    if (behind == 0 && fl_json_count(routes) == 2 && fl_json_find(routes, "query", NULL) &&
        fl_json_find(routes, "document", NULL)) {
        FL_TRY(read_route(&reader, types, "query", query, &queries));
        FL_TRY(read_route(&reader, types, "document", modules->list, &modules->count));
        if (is_table(query, queries))
            return take_pair(modules, model, path, query, &reader);
    }
    return take_route(modules, model, path, task == NULL ? "" : task, &reader, rest, behind);
}

/* ---- The table ------------------------------------------------------------------------------- */

/* lookup.idf, if a file of that name is in `folder`. */
static int find_idf(fl_model *model, const char *folder, const char *name, fletch_error *error) {
    char path[FL_MODEL_PATH_MAX];
    if (model->lookup.idf != NULL || folder == NULL)
        return 0;
    int there = fl_file_find(path, sizeof path, folder, name, error);
    if (there > 0)
        FL_TRY(fl_model_keep(model, &model->lookup.idf, "a path", error, "%s", path));
    return there;
}

static int read_tensor(fl_model *model, fletch_error *error) {
    fl_safetensors *file;
    FL_TRY(fl_safetensors_open_folder(&file, model->own->queries, error));
    const fl_tensor *weight = fl_safetensors_find(file, "weight");
    int              status = 0;
    if (weight == NULL || weight->rank != 1 || weight->shape[0] > WEIGHTS_MAX)
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                         "%s: the table of a SparseStaticEmbedding is a tensor \"weight\" with an "
                         "entry for each token.",
                         model->own->queries);
    if (status == 0)
        status = fl_dense_load(&model->lookup.weight, file, model->own->queries, "weight",
                               weight->shape[0], 0, error);
    if (status == 0)
        model->lookup.count = (uint32_t)weight->shape[0];
    fl_safetensors_close(file);
    return status;
}

/* What the module's config.json says of the table's place. */
static int read_table(fl_model *model, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_model_read_json(&reader, path, model->own->queries, "config.json", error));
    const char *named  = fl_json_string(&reader, "path", "");
    const char *slash  = strrchr(named, '/');
    const char *last   = slash != NULL ? slash + 1 : named;
    bool        json   = fl_path_ends_with(last, ".json") && strcmp(last, ".json") != 0;
    int         status = reader.status;
    if (status == 0 && json)
        status = find_idf(model, model->own->queries, last, error);
    if (status >= 0 && json)
        status = find_idf(model, model->folder, last, error);
    if (status >= 0 && json && model->lookup.idf == NULL)
        status =
            fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %.100s is missing.", path, last);
    fl_json_free(reader.object);
    if (status >= 0 && !json)
        return read_tensor(model, error);
    return status < 0 ? status : 0;
}

/* ---- The tokenizer --------------------------------------------------------------------------- */

/* Equal trees; the settings of a call that tokenizer.json may hold do not count. */
static bool is_same(fl_json *a, fl_json *b, bool top) {
    if (fl_json_type_of(a) != fl_json_type_of(b) || fl_json_true(a) != fl_json_true(b) ||
        fl_json_text_size(a) != fl_json_text_size(b))
        return false;
    if (fl_json_is(a, FL_JSON_STRING))
        return strcmp(fl_json_text(a), fl_json_text(b)) == 0;
    if (fl_json_is(a, FL_JSON_NUMBER)) {
        double x = fl_json_f64(a), y = fl_json_f64(b);
        return !(x < y) && !(x > y);
    }
    if (fl_json_is(a, FL_JSON_ARRAY)) {
        bool same = fl_json_count(a) == fl_json_count(b);
        for (size_t i = 0; same && i < fl_json_count(a); i++)
            same = is_same(fl_json_item(a, i), fl_json_item(b, i), false);
        return same;
    }
    bool same = top || fl_json_count(a) == fl_json_count(b);
    FL_JSON_EACH(a, key, value) {
        bool     call  = top && (strcmp(key, "truncation") == 0 || strcmp(key, "padding") == 0);
        fl_json *other = NULL;
        if (!call)
            same = same && fl_json_find(b, key, &other) && is_same(value, other, false);
    }
    return same;
}

static int check_tokenizer(const fl_model *model, fletch_error *error) {
    char     path[FL_MODEL_PATH_MAX];
    fl_json *own = NULL, *queries = NULL;
    if (model->tokenizer_is_vocab)
        return 0;
    int there = fl_file_find(path, sizeof path, model->own->queries, "tokenizer.json", error);
    if (there <= 0)
        return there;
    int status = fl_json_read(&own, model->tokenizer_path, FL_TOKENIZER_BYTES_MAX, error);
    if (status == 0)
        status = fl_json_read(&queries, path, FL_TOKENIZER_BYTES_MAX, error);
    if (status == 0 && !(is_same(own, queries, true) && is_same(queries, own, true)))
        status = fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                         "%s: queries have another tokenizer than documents, which is not "
                         "supported.",
                         path);
    fl_json_free(own);
    fl_json_free(queries);
    return status;
}

/* A query is cut at its own tokenizer's length. */
static int read_length(fl_model *model, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader;
    FL_TRY(fl_model_read_json(&reader, path, model->own->queries, "tokenizer_config.json", error));
    int64_t     length = fl_json_int(&reader, "model_max_length", 0, 1, INT64_MAX);
    const char *side   = fl_json_string(&reader, "truncation_side", "right");
    if (strcmp(side, "right") != 0)
        fl_family_refuse(&reader, "truncation_side", side);
    if (length > 0 && length < UINT32_MAX)
        model->lookup.max_length = (uint32_t)length;
    fl_json_free(reader.object);
    return reader.status;
}

int fl_router_check(fl_model *model, fletch_error *error) {
    model->lookup.max_length = UINT32_MAX;
    if (model->own->queries == NULL) {
        int found           = model->head == FL_HEAD_SPARSE && !model->own->has_modules
                                  ? find_idf(model, model->folder, idf_name, error)
                                  : 0;
        model->lookup.there = found > 0;
        return found < 0 ? found : 0;
    }
    if (model->lowercase)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: do_lower_case of documents alone is not supported beside a table of "
                       "queries.",
                       model->own->transformer);
    FL_TRY(check_tokenizer(model, error));
    FL_TRY(read_length(model, error));
    return read_table(model, error);
}
