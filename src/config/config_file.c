/* SPDX-License-Identifier: Apache-2.0 */
/* config_file.c - options from a TOML file.
 *
 * Role    fletch_config_load. Tables are rooms and keys are options: [cpu] isa = "avx2" is cpu.isa.
 * Method  toml.c brings each key with its value as text, so that a file follows the same rules as a
 *         flag; an array becomes a list. The [ai] section has other names for four keys. Two
 *         lines that mean the same key are refused: one of them would be lost.
 *         fletch_config_load_app reads that section alone from a file that is another program's.
 *         Errors begin with FILE:LINE:COLUMN. The lines before an error have been applied by then;
 *         the caller gives up.
 * Memory  One small buffer for lists. Threads: none shared.
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
    bool          has_ai; /* some key of [ai] came */
} file_loader;

static bool find_key(const char *path, fl_key *out) {
    for (size_t i = 0; i < AI_COUNT; i++)
        if (strcmp(path, ai_names[i].name) == 0) {
            *out = ai_names[i].key;
            return true;
        }
    return fl_key_find(path, out);
}

/* The values as the text that a flag would have. */
static int value_text(file_loader *loader, fl_key key, const fl_toml_item *item,
                      const char *where) {
    const bool  takes_list = fl_option_rule_of(key)->type == FL_TYPE_LIST;
    const char *value      = item->values;
    if (item->kind == FL_TOML_TABLE || item->kind == FL_TOML_TABLES)
        return fl_fail(loader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: takes a value, not a table", where);
    if (item->kind != FL_TOML_VALUE && !takes_list)
        return fl_fail(loader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: takes one value, not an array", where);
    for (size_t i = 0; i < item->count; i++, value += strlen(value) + 1) {
        if (item->kind == FL_TOML_NESTED ||
            (item->kind == FL_TOML_LIST && strchr(value, ',') != NULL))
            return fl_fail(loader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "%s: an element of a list is a single word", where);
        if (i > 0)
            fl_buf_putc(&loader->list, ',');
        fl_buf_puts(&loader->list, value);
    }
    if (loader->list.failed)
        return fl_fail_nomem(loader->error, loader->list.size, "a configuration value");
    return 0;
}

static int apply(file_loader *loader, fl_key key, const fl_toml_item *item, const char *place) {
    char where[PLACE_BYTES + PATH_BYTES + 4];
    (void)snprintf(where, sizeof where, "%s: %s", place, item->path);
    if (loader->line[key] != 0)
        return fl_fail(loader->error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: line %u already sets this; keep one of the two", where,
                       loader->line[key]);
    loader->line[key]             = item->line;
    const fl_config_source source = {
        .rank = FLETCH_ORIGIN_FILE, .origin = place, .foreign = strncmp(item->path, "ai.", 3) == 0};
    fl_buf_clear(&loader->list);
    FL_TRY(value_text(loader, key, item, where));
    return fl_config_assign(loader->config, key, loader->list.size > 0 ? loader->list.data : "",
                            &source, where, loader->error);
}

/* Whether some key lies in the section `room`, the `size` bytes in front of a dot. */
static bool is_room(const char *room, size_t size) {
    if (size == 2 && memcmp(room, "ai", 2) == 0)
        return true;
    for (unsigned key = 0; key < FL_KEY_COUNT; key++) {
        const char *full = fl_option((fl_key)key)->key;
        if (strncmp(full, room, size) == 0 && full[size] == '.')
            return true;
    }
    return false;
}

static int refuse_room(const char *place, const char *path, fletch_error *error) {
    fl_nearest nearest = fl_nearest_start(path);
    char       room[PATH_BYTES];
    for (unsigned key = 0; key < FL_KEY_COUNT; key++) {
        const char *full = fl_option((fl_key)key)->key;
        (void)snprintf(room, sizeof room, "%.*s", (int)strcspn(full, "."), full);
        fl_nearest_see_copy(&nearest, room);
    }
    if (nearest.name == NULL)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s: unknown section [%.64s]; `fletch config` lists all keys", place, path);
    return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                   "%s: unknown section [%.64s]; did you mean [%s]?", place, path, nearest.name);
}

static int visit(void *user, const fl_toml_item *item) {
    file_loader *loader  = user;
    const size_t room    = strcspn(item->path, ".");
    const bool   section = item->kind == FL_TOML_TABLE;
    char         place[PLACE_BYTES], name[PATH_BYTES];
    fl_key       key;
    (void)snprintf(place, sizeof place, "%.340s:%u:%u", loader->file, item->line, item->column);
    if (find_key(item->path, &key))
        return apply(loader, key, item, place);
    if (section && is_room(item->path, strlen(item->path)))
        return 0;
    (void)snprintf(name, sizeof name, "%.*s", (int)(room < PATH_BYTES ? room : PATH_BYTES - 1),
                   item->path);
    if ((section || item->path[room] == '.') && !is_room(item->path, room))
        return refuse_room(place, name, loader->error);
    return fl_key_unknown(place, item->path, loader->error);
}

/* Of another program's file: keys of its [ai] section, and nothing else of it is looked at. */
static int visit_app(void *user, const fl_toml_item *item) {
    file_loader *loader = user;
    if (strncmp(item->path, "ai.", 3) != 0)
        return 0;
    loader->has_ai = true;
    return visit(user, item);
}

static int load(fletch_config *config, const char *path, bool foreign, fletch_error *error) {
    fl_error_clear(error);
    if (config == NULL || path == NULL)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "fletch_config_load: configuration and path must not be NULL");
    file_loader loader = {.config = config, .file = path, .error = error};
    int         status = fl_toml_read(path, foreign, foreign ? visit_app : visit, &loader, error);
    fl_buf_free(&loader.list);
    if (status == 0 && foreign && !loader.has_ai)
        status = fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                         "%s has no section [ai] with a known key", path);
    return status;
}

int fletch_config_load(fletch_config *config, const char *toml_path, fletch_error *error) {
    return load(config, toml_path, false, error);
}

int fletch_config_load_app(fletch_config *config, const char *toml_path, fletch_error *error) {
    return load(config, toml_path, true, error);
}
