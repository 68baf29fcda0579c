/* SPDX-License-Identifier: Apache-2.0 */
/* hub_snapshot.c - which files of a repository fletch reads, and whether a snapshot has them all.
 *
 * Role    hub.c asks before it touches the network: a complete snapshot is used as it is.
 *         hub_pull.c asks which files of a listing to fetch.
 * In/Out  a snapshot folder of the cache -> complete, partial (with the first missing file), or
 *         unsure.
 * Method  A cache written by Python may hold any part of a model: transformers fetches config,
 *         tokenizer and weights but never modules.json, and without it the pooling would be
 *         guessed. So a snapshot without modules.json is complete only when its absence is known,
 *         by a .no_exist mark or huggingface_hub's listing. With modules.json every module is
 *         looked up: the first one carries weights and tokenizer, Dense and LayerNorm their own
 *         weights, the others a config.
 * Memory  the parsed JSON, freed before return. Threads: reads files only.
 * Proof   tests/golden/test_hub.py, both directions; tests/unit/test_hub.c. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/hub_cache.h"
#include "hub/model_files.h"

enum { SHARDS_MAX = 1024 }; /* as safetensors.c takes */

const char *const fl_hub_old_tokenizers[] = {
    "vocab.json",      "merges.txt", "sentencepiece.bpe.model", "spiece.model", "spm.model",
    "tokenizer.model", NULL};

bool fl_hub_is_module(const char *name) {
    static const char *const routes[] = {"query_", "document_"};
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (strncmp(name, routes[i], strlen(routes[i])) == 0)
            name += strlen(routes[i]);
    size_t digits = strspn(name, "0123456789");
    return digits > 0 && name[digits] == '_';
}

/* In a folder whose name is a module's, or that one of the model's files names. */
static bool is_in_module(const char *relative, const fl_hub_names *folders) {
    const char  *last = strrchr(relative, '/');
    const size_t size = (size_t)(last - relative);
    if (fl_hub_is_module(relative) && strchr(relative, '/') == last)
        return true;
    for (size_t i = 0; i < folders->count; i++)
        if (strlen(folders->name[i]) == size && strncmp(folders->name[i], relative, size) == 0)
            return true;
    return false;
}

bool fl_hub_file_is_needed(const char *relative, const fl_hub_names *folders) {
    static const char *const root[] = {
        "config.json",
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.txt",
        "modules.json",
        "router_config.json",
        "idf.json", /* of sparse models whose queries are looked up */
        "sentence_*_config.json",
        "config_sentence_transformers.json",
        "chat_template.jinja", /* of a language model that reranks */
        "artifact.metadata",   /* of Stanford's ColBERT: lengths, markers, what is left out */
        "sparse_linear.pt",    /* of bge-m3, as are the next: data, whatever a pickle could be */
        "colbert_linear.pt",
        "sparse_linear.safetensors",
        "colbert_linear.safetensors",
        "model_rest.safetensors",
        FL_HUB_NIBBLES,
    };
    const char *slash = strchr(relative, '/');
    const char *name  = relative;
    if (fnmatch("adapters/*/adapter_*", relative, FNM_PATHNAME) == 0) { /* of a task */
        name = strrchr(relative, '/') + 1;
    } else if (slash != NULL) {
        if (!is_in_module(relative, folders))
            return false;
        name = strrchr(relative, '/') + 1;
        if (strcmp(name, "model.safetensors") == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof root / sizeof root[0]; i++)
        if (fnmatch(root[i], name, 0) == 0)
            return true;
    return false;
}

/* Adds a folder that is safe, without the slash at its end. */
static int add_folder(fl_hub_names *folders, const char *path, fletch_error *error) {
    char   folder[FL_HUB_PATH_MAX];
    size_t size = path != NULL ? strlen(path) : 0;
    if (size == 0 || size >= sizeof folder || !fl_path_is_safe(path))
        return 0;
    memcpy(folder, path, size + 1);
    if (folder[size - 1] == '/')
        folder[size - 1] = '\0';
    return fl_hub_names_has(folders, folder) ? 0 : fl_hub_names_add(folders, folder, error);
}

int fl_hub_folders_read(const char *path, fl_hub_names *folders, fletch_error *error) {
    fl_json *root   = NULL;
    int      status = 0;
    if (fl_json_read(&root, path, FL_HUB_JSON_MAX, NULL) != 0)
        return 0; /* damaged: the loader says so */
    for (size_t i = 0; status == 0 && fl_json_is(root, FL_JSON_ARRAY) && i < fl_json_count(root);
         i++) {
        status =
            add_folder(folders, fl_json_text(fl_json_get(fl_json_item(root, i), "path")), error);
    }
    if (fl_json_is(root, FL_JSON_OBJECT)) {
        FL_JSON_EACH(fl_json_get(root, "types"), name, type) {
            (void)type;
            status = status == 0 ? add_folder(folders, name, error) : status;
        }
    }
    fl_json_free(root);
    return status;
}

int fl_hub_shards_read(const char *index_path, const char *ending, fl_hub_names *shards,
                       fletch_error *error) {
    *shards         = (fl_hub_names){0};
    fl_json *index  = NULL;
    int      status = 0;
    FL_TRY(fl_json_read(&index, index_path, FL_HUB_JSON_MAX, error));
    fl_json *weights = fl_json_get(index, "weight_map");
    if (!fl_json_is(weights, FL_JSON_OBJECT)) {
        fl_json_free(index);
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s has no weight_map", index_path);
    }
    FL_JSON_EACH(weights, tensor, file) {
        const char *name = fl_json_is(file, FL_JSON_STRING) ? fl_json_text(file) : "";
        if (!fl_path_is_safe(name) || !fl_path_ends_with(name, ending)) {
            status =
                fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                        "%s: weight_map of \"%.80s\" names \"%.80s\", which is not a %s file of "
                        "this folder",
                        index_path, tensor, name, ending);
        } else if (shards->count > 0 && strcmp(shards->name[shards->count - 1], name) == 0) {
            continue; /* tensors of a file mostly follow each other */
        } else if (shards->count == SHARDS_MAX) {
            status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s names more than %d files",
                             index_path, SHARDS_MAX);
        } else if (!fl_hub_names_has(shards, name)) {
            status = fl_hub_names_add(shards, name, error);
        }
        if (status != 0)
            break;
    }
    fl_json_free(index);
    if (status != 0)
        fl_hub_names_free(shards);
    return status;
}

/* One look into a snapshot: `prefix` is a module's folder with its slash, or "". */
typedef struct folder_look {
    const fl_hub_repo *repo;
    const char        *commit;
    char              *missing;
} folder_look;

static bool has_file(const folder_look *look, const char *prefix, const char *name, bool note) {
    char relative[FL_HUB_PATH_MAX];
    char path[FL_HUB_PATH_MAX];
    snprintf(relative, sizeof relative, "%.1024s%s", prefix, name);
    bool there =
        fl_hub_repo_path(look->repo, "snapshots", look->commit, relative, path, NULL) == 0 &&
        fl_file_exists(path);
    if (!there && note)
        snprintf(look->missing, FL_HUB_ID_MAX, "%.*s", FL_HUB_ID_MAX - 1, relative);
    return there;
}

/* All files that the index names, if it is there. */
static bool has_shards(const folder_look *look, const char *prefix, const fl_weight_form *form) {
    char         relative[FL_HUB_PATH_MAX], path[FL_HUB_PATH_MAX];
    fl_hub_names shards = {0};
    snprintf(relative, sizeof relative, "%.1024s%s", prefix, form->index);
    if (fl_hub_repo_path(look->repo, "snapshots", look->commit, relative, path, NULL) != 0 ||
        fl_hub_shards_read(path, form->ending, &shards, NULL) != 0)
        return true; /* a damaged index is for the loader to name, not to download again */
    bool all = true;
    for (size_t i = 0; all && i < shards.count; i++)
        all = has_file(look, prefix, shards.name[i], true);
    fl_hub_names_free(&shards);
    return all;
}

static bool has_weights(const folder_look *look, const char *prefix) {
    for (size_t i = 0; i < FL_WEIGHT_FORMS; i++) {
        const fl_weight_form *form = &fl_weight_forms[i];
        if (has_file(look, prefix, form->single, i == 0))
            return true;
        if (has_file(look, prefix, form->index, false))
            return has_shards(look, prefix, form);
    }
    return false;
}

/* What an adapter is made of, where there is one; its base is another snapshot's business. */
static bool is_adapter(const folder_look *look, const char *prefix) {
    return has_file(look, prefix, "adapter_config.json", false);
}

static bool has_adapter(const folder_look *look, const char *prefix) {
    return has_file(look, prefix, "adapter_model.safetensors", true);
}

static bool has_tokenizer(const folder_look *look, const char *prefix) {
    bool there = has_file(look, prefix, "vocab.txt", false);
    for (size_t i = 0; !there && fl_hub_old_tokenizers[i] != NULL; i++)
        there = has_file(look, prefix, fl_hub_old_tokenizers[i], false);
    return there || has_file(look, prefix, "tokenizer.json", true);
}

/* `first`: it reads the texts. */
static bool has_module(const folder_look *look, bool first, const char *path, const char *type) {
    char prefix[FL_HUB_ID_MAX];
    if (strlen(path) + 2 > sizeof prefix || (path[0] != '\0' && !fl_path_is_safe(path)))
        return true; /* the loader refuses such a module and says why */
    snprintf(prefix, sizeof prefix, "%s%s", path,
             path[0] == '\0' || fl_path_ends_with(path, "/") ? "" : "/");
    bool packed = fl_path_ends_with(type, ".SSEQ");
    bool table  = packed || fl_path_ends_with(type, ".SSE") ||
                 fl_path_ends_with(type, ".StaticEmbedding"); /* a table has no config.json */
    if (packed && has_file(look, prefix, FL_HUB_NIBBLES, false)) {
        return has_tokenizer(look, prefix) &&
               has_file(look, prefix, "model_rest.safetensors", true);
    }
    if (fl_path_ends_with(type, "SparseStaticEmbedding")) /* its weights may be an idf.json */
        return has_file(look, prefix, "config.json", true);
    if (first && is_adapter(look, prefix))
        return has_adapter(look, prefix);
    if (first) {
        return (table || has_file(look, prefix, "config.json", true)) &&
               has_tokenizer(look, prefix) && has_weights(look, prefix);
    }
    if (fl_path_ends_with(type, "Normalize") || path[0] == '\0')
        return true;
    bool weighs = fl_path_ends_with(type, "Dense") || fl_path_ends_with(type, "LayerNorm");
    return has_file(look, prefix, "config.json", true) && (!weighs || has_weights(look, prefix));
}

static const char *text_of(fl_json *object, const char *key) {
    const char *text = fl_json_text(fl_json_get(object, key));
    return text != NULL ? text : "";
}

/* Every module of a Router's routes, which lie beside its file. */
static bool has_routes(const folder_look *look) {
    char     path[FL_HUB_PATH_MAX];
    fl_json *router = NULL;
    if (!has_file(look, "", "router_config.json", true) ||
        fl_hub_repo_path(look->repo, "snapshots", look->commit, "router_config.json", path, NULL) !=
            0)
        return false;
    bool all = true;
    if (fl_json_read(&router, path, FL_HUB_JSON_MAX, NULL) == 0) { /* else the loader says so */
        FL_JSON_EACH(fl_json_get(router, "types"), name, type) {
            const char *kind  = fl_json_text(type);
            bool        first = kind != NULL && fl_path_ends_with(kind, "Transformer");
            all               = all && has_module(look, first, name, kind != NULL ? kind : "");
        }
    }
    fl_json_free(router);
    return all;
}

static fl_hub_state state_by_modules(const folder_look *look) {
    char     path[FL_HUB_PATH_MAX];
    fl_json *modules = NULL;
    if (fl_hub_repo_path(look->repo, "snapshots", look->commit, "modules.json", path, NULL) != 0 ||
        fl_json_read(&modules, path, FL_HUB_JSON_MAX, NULL) != 0 ||
        !fl_json_is(modules, FL_JSON_ARRAY)) {
        fl_json_free(modules);
        return FL_HUB_COMPLETE; /* damaged: the loader says so */
    }
    size_t count    = fl_json_count(modules);
    bool   complete = true;
    for (size_t i = 0; complete && i < count; i++) {
        fl_json    *module = fl_json_item(modules, i);
        const char *type   = text_of(module, "type");
        complete           = i == 0 && fl_path_ends_with(type, ".Router")
                                 ? has_routes(look)
                                 : has_module(look, i == 0, text_of(module, "path"), type);
    }
    fl_json_free(modules);
    return complete ? FL_HUB_COMPLETE : FL_HUB_PARTIAL;
}

fl_hub_state fl_hub_snapshot_state(const fl_hub_repo *repo, const char *commit,
                                   char missing[FL_HUB_ID_MAX]) {
    folder_look look = {repo, commit, missing};
    missing[0]       = '\0';
    if (has_file(&look, "", "modules.json", false))
        return state_by_modules(&look);
    if (is_adapter(&look, "") ? !has_adapter(&look, "")
                              : !has_file(&look, "", "config.json", true) ||
                                    !has_tokenizer(&look, "") || !has_weights(&look, ""))
        return FL_HUB_PARTIAL;
    if (!fl_hub_known_absent(repo, commit, "modules.json")) {
        snprintf(missing, FL_HUB_ID_MAX, "modules.json");
        return FL_HUB_UNSURE;
    }
    missing[0] = '\0';
    return FL_HUB_COMPLETE;
}
