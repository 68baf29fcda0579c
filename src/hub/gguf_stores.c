/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_stores.c - models that other programs have pulled, by their names, read where they lie.
 *
 *     ollama:NAME[:TAG]              Ollama's store: OLLAMA_MODELS, else ~/.ollama/models
 *     hf.co/ORG/REPO[:QUANTISATION]  the Hugging Face cache
 *     lmstudio:PUBLISHER/REPO[:QUANTISATION]   ~/.lmstudio/models
 *
 * Role    hub.c asks here before it takes a name for a hub id.
 * Method  Ollama's manifest of a name is JSON that lists layers by their digests; the one of the model is a GGUF file
 *         below blobs/. Nothing that a manifest says leaves that folder: a digest is 64 hexadecimal digits or it is
 *         refused, and the file has the size that the manifest gives. In the other two the file is the only .gguf
 *         of the repository's folder that has the quantisation in its name. Nothing is fetched.
 * Memory  none kept. Threads: no state but the environment and the file system.
 * Proof   tests/golden/test_gguf_stores.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/number.h"
#include "hub/hub_cache.h"
#include "hub/model_files.h"

enum { MANIFEST_BYTES_MAX = 1 << 20, PARTS_MAX = 3, DIGEST_DIGITS = 64 };

static int home_path(char out[FL_HUB_PATH_MAX], const char *below, fletch_error *error) {
    const char *home = getenv("HOME");
    if (home == NULL || home[0] == '\0')
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                       "HOME is not set, so ~/%s is unknown.", below);
    return fl_path_join(out, FL_HUB_PATH_MAX, home, below, error);
}

/* ---- Ollama ---------------------------------------------------------------------------------- */

static bool is_part(const char *part, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-", part[i]) ==
            NULL)
            return false;
    return size > 0 && part[0] != '.';
}

/* "user/name:tag" -> manifests/registry.ollama.ai/user/name/tag, below the store. */
static int manifest_of(const char *name, const char *store, char out[FL_HUB_PATH_MAX],
                       fletch_error *error) {
    const char *last = strrchr(name, '/'), *colon = strchr(last != NULL ? last : name, ':');
    const char *tag = colon != NULL ? colon + 1 : "latest", *at = name;
    size_t      size = colon != NULL ? (size_t)(colon - name) : strlen(name), parts = 1;
    bool        good = is_part(tag, strlen(tag));
    for (const char *end; at <= name + size; at = end + 1) {
        end = memchr(at, '/', (size_t)(name + size - at));
        parts += end != NULL;
        end  = end != NULL ? end : name + size;
        good = good && is_part(at, (size_t)(end - at));
    }
    if (!good || parts > PARTS_MAX)
        return fl_fail(
            error, FLETCH_EINVAL, FLETCH_NOWHERE,
            "\"ollama:%.200s\" is not a name of Ollama's, such as ollama:nomic-embed-text "
            "or ollama:user/model:tag.",
            name);
    int written = snprintf(out, FL_HUB_PATH_MAX, "%s/manifests/%s%s%.*s/%s", store,
                           parts == 3 ? "" : "registry.ollama.ai/", parts == 1 ? "library/" : "",
                           (int)size, name, tag);
    return written < FL_HUB_PATH_MAX ? 0
                                     : fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                                               "the path of ollama:%.200s is too long.", name);
}

static bool is_digest(const char *digest) {
    static const char kind[] = "sha256:";
    const size_t      size   = sizeof kind - 1;
    if (digest == NULL || strncmp(digest, kind, size) != 0 ||
        strlen(digest) != size + DIGEST_DIGITS)
        return false;
    for (size_t i = size; digest[i] != '\0'; i++)
        if (fl_hex_digit(digest[i]) < 0)
            return false;
    return true;
}

/* The file of a layer: there, and of its size. Old stores have a colon in the name. */
static int blob_of(fl_json_reader *layer, const char *store, char out[FL_HUB_PATH_MAX]) {
    const char *digest = fl_json_string(layer, "digest", NULL);
    int64_t     size   = fl_json_int(layer, "size", -1, 0, INT64_MAX);
    struct stat about;
    if (layer->status == 0 && !is_digest(digest))
        return fl_fail(layer->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: digest \"%.80s\" is not sha256: and 64 hexadecimal digits.",
                       layer->source, digest != NULL ? digest : "");
    FL_TRY(layer->status);
    for (const char *mark = "-:"; *mark != '\0'; mark++) {
        snprintf(out, FL_HUB_PATH_MAX, "%.3000s/blobs/sha256%c%s", store, *mark, digest + 7);
        if (fl_file_exists(out))
            break;
    }
    if (!fl_file_exists(out) || stat(out, &about) != 0)
        return fl_fail(layer->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s names %s, which is not in the store; pull the model again.",
                       layer->source, digest);
    if (size != about.st_size)
        return fl_fail(layer->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s says that %s has %lld bytes, but it has %lld; pull the model again.",
                       layer->source, digest, (long long)size, (long long)about.st_size);
    return 0;
}

/* The one layer that is a model. */
static int read_layers(fl_json_reader *manifest, const char *store, char out[FL_HUB_PATH_MAX]) {
    static const char kind[] = "application/vnd.ollama.image.";
    fl_json          *layers = fl_json_array(manifest, "layers");
    size_t            models = 0;
    for (size_t i = 0; manifest->status == 0 && i < fl_json_count(layers); i++) {
        fl_json_reader layer = fl_json_inside(manifest, fl_json_item(layers, i));
        const char    *type  = fl_json_string(&layer, "mediaType", "");
        type = strncmp(type, kind, sizeof kind - 1) == 0 ? type + sizeof kind - 1 : "";
        if (strcmp(type, "adapter") == 0 || strcmp(type, "projector") == 0)
            return fl_fail(manifest->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s: the model has a layer \"%s\", which is not supported.",
                           manifest->source, type);
        if (strcmp(type, "model") != 0)
            continue;
        if (models++ > 0)
            return fl_fail(manifest->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s: the model lies in several files, which is not supported.",
                           manifest->source);
        FL_TRY(blob_of(&layer, store, out));
    }
    if (manifest->status == 0 && models == 0)
        return fl_fail(manifest->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s names no model of GGUF.",
                       manifest->source);
    return manifest->status;
}

static int find_ollama(const char *name, const fl_hub_options *options, char out[FL_HUB_PATH_MAX],
                       fletch_error *error) {
    const char *given = getenv("OLLAMA_MODELS");
    char        store[FL_HUB_PATH_MAX], path[FL_HUB_PATH_MAX];
    fl_json    *root = NULL;
    (void)options;
    if (given != NULL && given[0] != '\0')
        snprintf(store, sizeof store, "%s", given);
    else
        FL_TRY(home_path(store, ".ollama/models", error));
    FL_TRY(manifest_of(name, store, path, error));
    if (!fl_file_exists(path))
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                       "ollama:%.120s is not in Ollama's store: no such file: %.200s. Run `ollama "
                       "pull %.120s`, or set OLLAMA_MODELS to the store's folder.",
                       name, path, name);
    FL_TRY(fl_json_read(&root, path, MANIFEST_BYTES_MAX, error));
    fl_json_reader manifest = {.object = root, .source = path, .error = error};
    int            status   = read_layers(&manifest, store, out);
    fl_json_free(root);
    return status;
}

/* ---- Repositories as folders ------------------------------------------------------------------ */

typedef struct choice {
    const char *quantisation; /* "" for any */
    size_t      count;
    char        first[FL_HUB_PATH_MAX];
} choice;

static bool is_letter(char c) {
    return c == '_' || fl_hex_digit(c) >= 0 ||
           (((unsigned char)c | 32U) >= 'a' && ((unsigned char)c | 32U) <= 'z');
}

/* Whether a word stands in a name between other characters than letters, digits and '_', in any case. */
static bool has_word(const char *name, const char *word) {
    const size_t size = strlen(word);
    for (const char *at = name; size > 0 && *at != '\0'; at++)
        if (strncasecmp(at, word, size) == 0 && !is_letter(at[size]) &&
            (at == name || !is_letter(at[-1])))
            return true;
    return size == 0;
}

static int consider(void *user, const char *relative) {
    choice     *c    = user;
    const char *base = strrchr(relative, '/');
    base             = base != NULL ? base + 1 : relative;
    if (!fl_path_ends_with(relative, ".gguf") || fl_gguf_is_later_part(base) ||
        strncmp(base, "mmproj", strlen("mmproj")) == 0 || !has_word(relative, c->quantisation))
        return 0;
    if (c->count++ == 0)
        snprintf(c->first, sizeof c->first, "%s", relative);
    return 0;
}

static int choose(const char *folder, const char *name, const char *quantisation,
                  char out[FL_HUB_PATH_MAX], fletch_error *error) {
    choice c = {.quantisation = quantisation};
    FL_TRY(fl_hub_walk(folder, consider, &c, error));
    if (c.count == 1)
        return fl_path_join(out, FL_HUB_PATH_MAX, folder, c.first, error);
    return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                   c.count == 0 ? "%.120s: %.200s holds no .gguf file%s%.40s."
                                : "%.120s: %.200s holds several .gguf files%s%.40s; choose one, as "
                                  "in hf.co/org/repo:Q8_0.",
                   name, folder, quantisation[0] != '\0' ? " of " : "", quantisation);
}

/* "org/repo:Q8_0" -> its halves. */
static int split_name(const char *name, fl_hub_name *id, const char **quantisation,
                      fletch_error *error) {
    char        text[FL_HUB_ID_MAX];
    const char *colon = strchr(name, ':');
    snprintf(text, sizeof text, "%.*s", colon != NULL ? (int)(colon - name) : (int)strlen(name),
             name);
    *quantisation = colon != NULL ? colon + 1 : "";
    FL_TRY(fl_hub_name_parse(id, text, error));
    return !id->folder && strchr(text, '/') != NULL
               ? 0
               : fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                         "\"%.200s\" is not the name of a repository and a quantisation, as in "
                         "org/repo:Q8_0.",
                         name);
}

static int find_hub(const char *name, const fl_hub_options *options, char out[FL_HUB_PATH_MAX],
                    fletch_error *error) {
    fl_hub_name id;
    fl_hub_env  env;
    fl_hub_repo repo;
    const char *quantisation, *revision = options->revision;
    char        commit[FL_HUB_COMMIT_MAX], folder[FL_HUB_PATH_MAX];
    FL_TRY(split_name(name, &id, &quantisation, error));
    FL_TRY(fl_hub_env_read(&env, options, error));
    FL_TRY(fl_hub_repo_at(&repo, &env, id.id, error));
    revision = id.revision[0] != '\0'                    ? id.revision
               : revision == NULL || revision[0] == '\0' ? "main"
                                                         : revision;
    if (!fl_hub_ref_read(&repo, revision, commit))
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                       "hf.co/%.120s is not in the cache %.200s, and fletch does not download GGUF "
                       "files. Run `hf download %.120s --include \"*%.40s*.gguf\"`.",
                       id.id, env.cache, id.id, quantisation);
    FL_TRY(fl_hub_repo_path(&repo, "snapshots", commit, "", folder, error));
    return choose(folder, name, quantisation, out, error);
}

static int find_lmstudio(const char *name, const fl_hub_options *options, char out[FL_HUB_PATH_MAX],
                         fletch_error *error) {
    fl_hub_name id;
    const char *quantisation;
    char        store[FL_HUB_PATH_MAX], folder[FL_HUB_PATH_MAX];
    (void)options;
    FL_TRY(split_name(name, &id, &quantisation, error));
    FL_TRY(home_path(store, ".lmstudio/models", error));
    FL_TRY(fl_path_join(folder, sizeof folder, store, id.id, error));
    if (!fl_folder_exists(folder))
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                       "lmstudio:%.200s: no such folder: %.200s.", name, folder);
    return choose(folder, name, quantisation, out, error);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static const struct {
    const char *prefix;
    int (*find)(const char *name, const fl_hub_options *options, char out[FL_HUB_PATH_MAX],
                fletch_error *error);
} stores[] = {{"ollama:", find_ollama},
              {"hf.co/", find_hub},
              {"huggingface.co/", find_hub},
              {"lmstudio:", find_lmstudio}};

int fl_gguf_in_store(const char *name, const fl_hub_options *options, char out[FL_HUB_PATH_MAX],
                     fletch_error *error) {
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        size_t size = strlen(stores[i].prefix);
        if (strncmp(name, stores[i].prefix, size) != 0)
            continue;
        FL_TRY(stores[i].find(name + size, options, out, error));
        return 1;
    }
    return 0;
}
