/* SPDX-License-Identifier: Apache-2.0 */
/* config_file.c - options from a TOML file.
 *
 * Role    fletch_config_load. Tables are rooms and keys are options: [cpu] isa = "avx2" is cpu.isa.
 * Method  Walks the tree that toml.c read and hands each value on as text, so that a file follows
 *         the same rules as a flag; an array becomes a list. The [ai] section has other names for
 *         four keys. Two lines that mean the same key are refused: one of them would be lost.
 *         Errors begin with FILE:LINE:COLUMN. The lines before an error have been applied by then;
 *         the caller gives up.
 * Memory  The document is freed at the end; one small buffer for lists. Threads: none shared.
 * Proof   tests/unit/test_config_sources.c. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "config/config_internal.h"
#include "config/toml.h"

enum { PATH_BYTES = 160, PLACE_BYTES = 384 };

/* Section [ai]: the same options under the names of an older program. */
static const fl_alias ai_names[] = {
    {"ai.model_name", FL_KEY_MODEL_ID},
    {"ai.embedding_dim", FL_KEY_MODEL_DIMENSIONS},
    {"ai.auto_download", FL_KEY_MODEL_AUTO_DOWNLOAD},
    {"ai.provider", FL_KEY_PROVIDER_ORDER},
};

enum { AI_COUNT = sizeof ai_names / sizeof ai_names[0] };

const fl_alias *fl_file_alias_at(size_t index) {
    return index < AI_COUNT ? &ai_names[index] : NULL;
}

typedef struct file_loader {
    fl_config    *config;
    const char   *file;
    fletch_error *error;
    uint32_t      line[FL_KEY_COUNT]; /* where this file set the key; 0: not yet */
    fl_buf        list;
} file_loader;

static bool find_key(const char *path, fl_key *out) {
    for (size_t i = 0; i < AI_COUNT; i++)
        if (strcmp(path, ai_names[i].name) == 0) {
            *out = ai_names[i].key;
            return true;
        }
    return fl_key_find(path, out);
}

static bool is_scalar(const fl_toml *node) {
    return node->type != FL_TOML_TABLE && node->type != FL_TOML_ARRAY;
}

/* A scalar as the text a flag would have. Numbers go in decimal: 0x10 is 16. */
static int scalar_text(file_loader *loader, const fl_toml *node, const char *place) {
    if (node->type == FL_TOML_STRING && memchr(node->text, '\0', node->text_size) != NULL)
        return fl_fail(loader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: the value holds a NUL character", place);
    if (node->type == FL_TOML_INTEGER)
        fl_buf_printf(&loader->list, "%lld", (long long)node->integer);
    else
        fl_buf_append(&loader->list, node->text, node->text_size);
    return 0;
}

static int array_text(file_loader *loader, fl_key key, const fl_toml *array, const char *place) {
    if (fl_option_rule_of(key)->type != FL_TYPE_LIST)
        return fl_fail(loader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: takes one value, not an array", place);
    for (const fl_toml *item = array->first; item != NULL; item = item->next) {
        if (!is_scalar(item) ||
            (item->type == FL_TOML_STRING && memchr(item->text, ',', item->text_size) != NULL))
            return fl_fail(loader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "%s: an element of a list is a single word", place);
        if (item != array->first)
            fl_buf_putc(&loader->list, ',');
        const int status = scalar_text(loader, item, place);
        if (status < 0)
            return status;
    }
    return 0;
}

static int apply(file_loader *loader, const char *path, const fl_toml *node, const char *place) {
    fl_key key;
    if (!find_key(path, &key))
        return fl_key_unknown(place, path, loader->error);
    char where[PLACE_BYTES + PATH_BYTES + 4];
    (void)snprintf(where, sizeof where, "%s: %s", place, path);
    if (loader->line[key] != 0)
        return fl_fail(loader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: line %u already sets this; keep one of the two", where,
                       loader->line[key]);
    loader->line[key] = node->line;
    fl_buf_clear(&loader->list);
    int status = 0;
    if (node->type == FL_TOML_TABLE)
        return fl_fail(loader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: takes a value, not a table", where);
    if (node->type == FL_TOML_ARRAY)
        status = array_text(loader, key, node, where);
    else
        status = scalar_text(loader, node, where);
    if (status < 0)
        return status;
    if (loader->list.failed)
        return fl_fail_nomem(loader->error, node->text_size, "a configuration value");
    return fl_config_assign(loader->config, key, loader->list.size > 0 ? loader->list.data : "",
                            FLETCH_ORIGIN_FILE, place, where, loader->error);
}

/* Whether some key lives in the table `path` ("cpu."). */
static bool is_room(const char *path, size_t size) {
    if (strncmp("ai.", path, size) == 0)
        return true;
    for (unsigned key = 0; key < FL_KEY_COUNT; key++)
        if (strncmp(fl_option((fl_key)key)->key, path, size) == 0)
            return true;
    return false;
}

static int refuse_room(const char *place, const char *path, fletch_error *error) {
    fl_nearest nearest = fl_nearest_start(path);
    char       room[PATH_BYTES], best[PATH_BYTES] = "";
    for (unsigned key = 0; key < FL_KEY_COUNT; key++) {
        const char *full = fl_option((fl_key)key)->key;
        (void)snprintf(room, sizeof room, "%.*s", (int)strcspn(full, "."), full);
        fl_nearest_see(&nearest, room);
        if (nearest.name == room) {
            (void)snprintf(best, sizeof best, "%s", room);
            nearest.name = best;
        }
    }
    if (best[0] == '\0')
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: unknown section [%.64s]; `fletch config` lists the keys there are",
                       place, path);
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "%s: unknown section [%.64s]; did you mean [%s]?", place, path, best);
}

/* Recursion is bounded: a table is entered only where a key of the option table lies below it. */
static int walk(file_loader *loader, const fl_toml *table, const char *prefix) {
    for (const fl_toml *node = table->first; node != NULL; node = node->next) {
        char place[PLACE_BYTES], path[PATH_BYTES];
        (void)snprintf(place, sizeof place, "%.340s:%u:%u", loader->file, node->line, node->column);
        const int size = snprintf(path, sizeof path, "%s%s", prefix, node->key);
        if (size >= (int)sizeof path || strlen(node->key) != node->key_size)
            return fl_key_unknown(place, path, loader->error);
        fl_key key;
        if (node->type != FL_TOML_TABLE || find_key(path, &key)) {
            const int status = apply(loader, path, node, place);
            if (status < 0)
                return status;
            continue;
        }
        char inside[PATH_BYTES + 1];
        (void)snprintf(inside, sizeof inside, "%s.", path);
        if (!is_room(inside, (size_t)size + 1))
            return refuse_room(place, path, loader->error);
        const int status = walk(loader, node, inside);
        if (status < 0)
            return status;
    }
    return 0;
}

int fletch_config_load(fletch_config *config, const char *toml_path, fletch_error *error) {
    fl_error_clear(error);
    if (config == NULL || toml_path == NULL)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "fletch_config_load: configuration and path must not be NULL");
    fl_toml_document *document;
    int               status = fl_toml_read(&document, toml_path, error);
    if (status < 0)
        return status;
    file_loader loader = {.config = config, .file = toml_path, .error = error};
    status             = walk(&loader, fl_toml_root(document), "");
    fl_buf_free(&loader.list);
    fl_toml_free(document);
    return status;
}
