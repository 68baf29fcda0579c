/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - map the weights of a folder, one file or many, and find tensors by name.
 *
 * Role    weights.c and modules.c open folders with it. What a header must satisfy is in
 *         safetensors_header.c; this file knows files, shards and names.
 * Method  A single file is one map and its table (torch.save's files and GGUF too: torch_file.c, gguf.c). A
 *         sharded model has an index, {"weight_map": {tensor: file}}: every shard is mapped once, and the tensors
 *         that the index promises are gathered in one merged table; the parts of a GGUF are named by their
 *         number. Nothing is copied: a tensor is a view of its map (but for those of torch's that are not
 *         row-major).
 * Memory  the maps and tables, until close. An engine gives pages back
 *         by fl_map_release once it has packed them.
 * Threads immutable after opening.
 * Proof   tests/unit/test_safetensors.c. */
#include "model/safetensors.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "hub/model_files.h"
#include "model/gguf.h"
#include "model/safetensors_header.h"
#include "model/torch_file.h"

enum {
    SHARDS_MAX      = 1024,             /* the largest published models have about 200 */
    INDEX_BYTES_MAX = 64 * 1024 * 1024, /* an index of a million tensors */
};

typedef struct shard {
    char           *path; /* owned */
    const char     *name; /* its end: inside the folder, or the path of a single file */
    fl_map         *map;  /* owned: tensors point to it */
    fl_tensor_table table;
    uint64_t        part, parts; /* of a GGUF that lies in several files */
} shard;

struct fl_safetensors {
    shard          *shards; /* owned [count, room] */
    size_t          count, room;
    fl_tensor_table merged; /* sharded models only */
    bool            sharded;
    const char     *index; /* the file that says so; NULL: names of the parts */
};

static const fl_tensor_table *table_of(const fl_safetensors *file) {
    return file->sharded ? &file->merged : &file->shards[0].table;
}

static void close_shard(shard *s) {
    fl_table_free(&s->table);
    if (s->map != NULL)
        fl_map_close(s->map);
    fl_free(s->map);
    fl_free(s->path);
}

static int read_gguf(shard *s, fletch_error *error) {
    fl_gguf file;
    FL_TRY(fl_gguf_read(&file, s->map->data, s->map->size, s->path, error));
    fl_gguf_whole(fl_gguf_find(&file, "split.no"), 0, &s->part);
    fl_gguf_whole(fl_gguf_find(&file, "split.count"), 0, &s->parts);
    s->table = file.tensors;
    memset(&file.tensors, 0, sizeof file.tensors);
    fl_gguf_free(&file);
    return 0;
}

/* What a file is, it says itself: to safetensors the first letters of the others are a header of 1 GiB. */
static int read_table(shard *s, fletch_error *error) {
    const fl_map *map = s->map;
    if (fl_gguf_begins(map->data, map->size))
        return read_gguf(s, error);
    bool torch = fl_torch_begins(map->data, map->size) || fl_path_ends_with(s->path, ".pt") ||
                 fl_path_ends_with(s->path, ".bin");
    return (torch ? fl_torch_read : fl_header_read)(&s->table, map->data, map->size, s->path,
                                                    error);
}

/* Map and check one file and append it to file->shards. */
static int add_shard(fl_safetensors *file, const char *name, const char *path,
                     fletch_error *error) {
    if (!fl_array_reserve(&file->shards, &file->room, file->count + 1, sizeof *file->shards))
        return fl_fail_nomem(error, (file->count + 1) * sizeof *file->shards, "shards");
    shard *added = &file->shards[file->count];
    memset(added, 0, sizeof *added);
    if ((added->map = fl_alloc_zero(1, sizeof *added->map)) == NULL ||
        (added->path = fl_strdup(path)) == NULL) {
        close_shard(added);
        return fl_fail_nomem(error, sizeof *added->map + strlen(path), "a weight file");
    }
    int status = fl_map_open(added->map, path, error);
    if (status == 0)
        status = read_table(added, error);
    if (status != 0) {
        close_shard(added);
        return status;
    }
    for (size_t i = 0; i < added->table.count; i++) {
        fl_tensor           *tensor = &added->table.tensors[i];
        const unsigned char *begin = added->map->data, *at = tensor->data;
        if (at >= begin && at < begin + added->map->size) /* not a copy */
            tensor->map = added->map;
    }
    added->name = added->path + strlen(path) - strlen(name);
    file->count++;
    return 0;
}

void fl_safetensors_close(fl_safetensors *file) {
    if (file == NULL)
        return;
    for (size_t i = 0; i < file->count; i++)
        close_shard(&file->shards[i]);
    fl_free(file->shards);
    fl_table_free(&file->merged);
    fl_free(file);
}

/* Gather the tensors of a part; the first has been read. */
static int add_part(fl_safetensors *file, uint64_t number, fletch_error *error) {
    const shard *first = &file->shards[0];
    char         path[PATH_MAX], ending[sizeof "-00001-of-00001.gguf"];
    size_t       length = strlen(first->path), stem = length - (sizeof ending - 1);
    uint64_t     parts = first->parts;
    snprintf(ending, sizeof ending, "-%05u-of-%05u.gguf", (unsigned)number + 1, (unsigned)parts);
    if (number > 0) {
        snprintf(path, sizeof path, "%.*s%s", (int)stem, first->path, ending);
        if (!fl_file_exists(path))
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s is missing, but %s says that it is the first of %u files.", path,
                           first->path, (unsigned)parts);
        FL_TRY(add_shard(file, path, path, error));
    } else if (length < sizeof ending || length >= sizeof path ||
               strcmp(first->path + stem, ending) != 0) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s is the first of %u files, but its name does not end in %s.", first->path,
                       (unsigned)parts, ending);
    }
    const shard *part = &file->shards[number];
    if (part->part != number || part->parts != parts)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s says that it is file %u of %u; name the first of them.", part->path,
                       (unsigned)part->part + 1, (unsigned)part->parts);
    for (size_t i = 0; i < part->table.count; i++) {
        int added = fl_table_add(&file->merged, part->table.names[i], &part->table.tensors[i]);
        if (added != 0)
            return added < 0 ? fl_fail_nomem(error, sizeof *part->table.tensors, "tensors")
                             : fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                       "%s: tensor %.80s is in another part as well.", part->path,
                                       part->table.names[i]);
    }
    return 0;
}

/* A GGUF may be the first of several files. */
static int add_parts(fl_safetensors *file, fletch_error *error) {
    uint64_t parts = file->shards[0].parts;
    if (parts <= 1)
        return 0;
    if (parts > SHARDS_MAX)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s says that it is one of more than %d files.", file->shards[0].path,
                       SHARDS_MAX);
    file->sharded = true;
    fl_table_init(&file->merged);
    for (uint64_t i = 0; i < parts; i++)
        FL_TRY(add_part(file, i, error));
    return 0;
}

int fl_safetensors_open(fl_safetensors **out, const char *path, fletch_error *error) {
    *out                 = NULL;
    fl_safetensors *file = fl_alloc_zero(1, sizeof *file);
    if (file == NULL)
        return fl_fail_nomem(error, sizeof *file, "safetensors");
    int status = add_shard(file, path, path, error);
    if (status == 0)
        status = add_parts(file, error);
    if (status != 0) {
        fl_safetensors_close(file);
        return status;
    }
    *out = file;
    return 0;
}

/* The shard of that name, mapped now if this is the first tensor in it. An index names the same few
 * files over and over, mostly in runs: the last hit is tried first, then the others. */
static int shard_of(fl_safetensors *file, const char *folder, const char *name, size_t *at,
                    fletch_error *error) {
    if (*at < file->count && strcmp(file->shards[*at].name, name) == 0)
        return 0;
    for (*at = 0; *at < file->count; (*at)++)
        if (strcmp(file->shards[*at].name, name) == 0)
            return 0;
    if (!fl_path_is_safe(name))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s/%s: shard name \"%.80s\" leaves the folder.", folder, file->index, name);
    if (file->count == SHARDS_MAX)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s/%s names more than %d files.",
                       folder, file->index, SHARDS_MAX);
    char path[PATH_MAX];
    int  there = fl_file_find(path, sizeof path, folder, name, error);
    if (there == 0)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s is missing, but %s names it.",
                       path, file->index);
    return there < 0 ? there : add_shard(file, name, path, error);
}

/* Find each tensor of the index in the shard it names. */
static int gather(fl_safetensors *file, const char *folder, fl_json *weight_map,
                  fletch_error *error) {
    size_t at = 0;
    FL_JSON_EACH(weight_map, key, value) {
        if (!fl_json_is(value, FL_JSON_STRING))
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s/%s: weight_map of %.80s is not a string.", folder, file->index, key);
        const char *name = fl_json_text(value);
        FL_TRY(shard_of(file, folder, name, &at, error));
        const fl_tensor *tensor = fl_table_find(&file->shards[at].table, key);
        if (tensor == NULL)
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s/%s does not hold %.80s, but the index says so.", folder, name, key);
        /* The name lives in the shard's text, which outlives the merged table. */
        const fl_tensor_table *table = &file->shards[at].table;
        if (fl_table_add(&file->merged, table->names[tensor - table->tensors], tensor) < 0)
            return fl_fail_nomem(error, sizeof *tensor, "the tensor table");
    }
    return 0;
}

static int open_sharded(fl_safetensors **out, const char *folder, const char *index,
                        const char *index_path, fletch_error *error) {
    fl_json *root   = NULL;
    int      status = 0;
    FL_TRY(fl_json_read(&root, index_path, INDEX_BYTES_MAX, error));
    fl_json_reader  reader = {.object = root, .source = index_path, .error = error};
    fl_json        *map    = fl_json_object(&reader, "weight_map");
    fl_safetensors *file   = fl_alloc_zero(1, sizeof *file);
    if (file == NULL) {
        status = fl_fail_nomem(error, sizeof *file, "safetensors");
    } else if (reader.status != 0) {
        status = reader.status;
    } else if (map == NULL || fl_json_count(map) == 0) {
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s has no weight_map.", index_path);
    } else {
        file->sharded = true;
        file->index   = index;
        fl_table_init(&file->merged);
        status = gather(file, folder, map, error);
    }
    fl_json_free(root);
    if (status != 0) {
        fl_safetensors_close(file);
        return status;
    }
    *out = file;
    return 0;
}

int fl_safetensors_open_folder(fl_safetensors **out, const char *folder, fletch_error *error) {
    *out = NULL;
    for (size_t i = 0; i < FL_WEIGHT_FORMS; i++) {
        char path[PATH_MAX];
        int  single = fl_file_find(path, sizeof path, folder, fl_weight_forms[i].single, error);
        if (single != 0)
            return single < 0 ? single : fl_safetensors_open(out, path, error);
        const char *index   = fl_weight_forms[i].index;
        int         sharded = fl_file_find(path, sizeof path, folder, index, error);
        if (sharded != 0)
            return sharded < 0 ? sharded : open_sharded(out, folder, index, path, error);
    }
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s has no weights: neither model.safetensors nor pytorch_model.bin, nor the "
                   "index of either in several files.",
                   folder);
}

const fl_tensor *fl_safetensors_find(const fl_safetensors *file, const char *name) {
    assert(name);
    return fl_table_find(table_of(file), name);
}

int fl_safetensors_put(fl_safetensors *file, char *name, const fl_tensor *tensor,
                       fletch_error *error) {
    fl_tensor_table *table = file->sharded ? &file->merged : &file->shards[0].table;
    const fl_tensor *there = fl_table_find(table, name);
    if (there != NULL)
        table->tensors[there - table->tensors] = *tensor;
    else if (fl_table_add(table, name, tensor) < 0)
        return fl_fail_nomem(error, sizeof *tensor, "the tensor table");
    return 0;
}

size_t fl_safetensors_count(const fl_safetensors *file) {
    return table_of(file)->count;
}

const char *fl_safetensors_name(const fl_safetensors *file, size_t index) {
    assert(index < fl_safetensors_count(file));
    return table_of(file)->names[index];
}

const char *fl_safetensors_path(const fl_safetensors *file, size_t index) {
    assert(index < fl_safetensors_count(file));
    return index < file->count ? file->shards[index].path : NULL;
}

void fl_safetensors_release(const fl_safetensors *file) {
    for (size_t i = 0; i < file->count; i++)
        fl_map_release(file->shards[i].map, file->shards[i].map->data, file->shards[i].map->size);
}
