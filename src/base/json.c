/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - JSON files from strangers as trees.
 *
 * Role    config.json, tokenizer.json, modules.json, hub answers.
 * Method  json_in.c reads the text in place; what is built is one block: the text, its strings decoded where
 *         they stand, then 8 bytes per value. A value says how many bytes before itself its text or its first
 *         child lies, so that the block can move while it grows and needs no base. Values of levels that are
 *         still open wait on a stack; a level that ends puts its children side by side behind the text. Numbers
 *         stay text and are read when they are asked for, exactly.
 *         Objects of more than SMALL members get a hash index after their children, which finds duplicates while
 *         the tree is built and answers lookups later: both linear, whoever chose the keys.
 *             text … NUL | children of the level that ended first | … | root | offset of the root
 * Memory  one block; while building also the stack, at most as large. NODE_BYTES_MAX bounds both.
 * Proof   tests/unit/test_base_json.c, tests/fuzz/fuzz_json_in.c. */
#include "base/json.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/utf8.h"

enum { SMALL = 16, COUNT_MAX = (1 << 29) - 1, LATER = 7 /* beside fl_json_type: text */ };

/* The largest tokenizers in use (vocabulary 262144, 580000 merges) take 25 MB. */
static const size_t NODE_BYTES_MAX = (size_t)1 << 28;

struct fl_json {
    uint32_t back;       /* bytes from the text or the first child to this; unused by others */
    uint32_t type : 3;   /* fl_json_type or LATER; FL_JSON_NONE: a key that a later one replaced */
    uint32_t count : 29; /* bytes of text, items, members; 1 for true */
};

/* After the children of an object of more than SMALL members. */
typedef struct key_index {
    uint64_t seed;
    uint32_t slot[]; /* [slot_count(members)]: number of a member + 1; 0: empty */
} key_index;

/* ---- Building -------------------------------------------------------------------------------- */

typedef struct builder {
    fl_json_in    in;
    fl_buf        block;                        /* the text; nodes from `nodes` on */
    fl_buf        open;                         /* fl_json: `back` is an offset in the block yet */
    size_t        first[FL_JSON_DEPTH_MAX + 1]; /* where each level begins in `open`, as a number */
    int           flags;
    const char   *source;
    int           status;
    fletch_error *error;
} builder;

static size_t open_count(const builder *b) {
    return b->open.size / sizeof(fl_json);
}

static fl_json *open_at(const builder *b, size_t index) {
    return b->open.data == NULL ? NULL : (fl_json *)(void *)b->open.data + index;
}

static bool too_big(builder *b) {
    b->status = fl_fail(b->error, FLETCH_EMODEL, b->in.at,
                        "%s: byte %zu: too many values: the tree would take more than %zu MiB of "
                        "memory",
                        b->source, b->in.at, NODE_BYTES_MAX >> 20);
    return false;
}

/* Room for `extra` bytes at the end of `buf`, which counts towards the bound. */
static bool reserve(builder *b, fl_buf *buf, size_t extra) {
    if (b->open.size + b->block.size - b->in.size + extra > NODE_BYTES_MAX)
        return too_big(b);
    if (!fl_buf_reserve(buf, extra)) {
        b->status = fl_fail_nomem(b->error, extra, b->source);
        return false;
    }
    b->in.text = b->block.data;
    return true;
}

static bool push(builder *b, unsigned type, size_t offset, size_t count) {
    if (count > COUNT_MAX) {
        b->status = fl_fail(b->error, FLETCH_EMODEL, offset,
                            "%s: byte %zu: a string of more than 512 MiB", b->source, offset);
        return false;
    }
    fl_json node = {.back = (uint32_t)offset, .type = type & 7, .count = count & COUNT_MAX};
    if (!reserve(b, &b->open, sizeof node))
        return false;
    fl_buf_append(&b->open, &node, sizeof node);
    return true;
}

static bool push_text(builder *b, fl_json_type type, fl_span span) {
    size_t at = (size_t)(span.data - b->in.text);
    if (type == FL_JSON_STRING)
        b->in.text[at + span.size] = '\0'; /* the closing quote, or before it */
    return push(b, type, at, span.size);
}

static size_t slot_count(size_t members) {
    size_t count = 4 * SMALL;
    while (count < 2 * members)
        count *= 2;
    return count;
}

static bool same_key(const char *a, size_t a_size, const char *b, size_t b_size) {
    return a_size == b_size && memcmp(a, b, a_size) == 0;
}

static bool same_open_key(const builder *b, const fl_json *x, const fl_json *y) {
    return same_key(b->block.data + x->back, x->count, b->block.data + y->back, y->count);
}

/* Member `later` has the key of member `earlier`: an error, or its value wins. */
static bool take_duplicate(builder *b, fl_json *earlier, fl_json *later) {
    if ((b->flags & FL_JSON_UNIQUE_KEYS) != 0) {
        size_t where = later->back - 1; /* its quote */
        b->status =
            fl_fail(b->error, FLETCH_EMODEL, where, "%s: byte %zu: duplicate key \"%.100s\"",
                    b->source, where, b->block.data + later->back);
        return false;
    }
    earlier[1]  = later[1];
    later->type = FL_JSON_NONE;
    return true;
}

/* The slot of a key among `members` (pairs whose keys lie at base + back), or the empty one where it belongs. */
static uint32_t *slot_of(const builder *b, key_index *index, size_t mask, const fl_json *members,
                         const fl_json *key) {
    size_t at = fl_hash(b->block.data + key->back, key->count, index->seed) & mask;
    while (index->slot[at] != 0 && !same_open_key(b, &members[2 * (index->slot[at] - 1)], key))
        at = (at + 1) & mask;
    return &index->slot[at];
}

/* Fill the index of `count` members on the stack; false: a duplicate that is an error. */
static bool fill_index(builder *b, key_index *index, fl_json *members, size_t count, bool *dead) {
    size_t mask = slot_count(count) - 1;
    memset(index->slot, 0, (mask + 1) * sizeof *index->slot);
    for (size_t i = 0; i < count; i++) {
        uint32_t *slot = slot_of(b, index, mask, members, &members[2 * i]);
        if (*slot == 0)
            *slot = (uint32_t)(i + 1);
        else if (take_duplicate(b, &members[2 * (size_t)(*slot - 1)], &members[2 * i]))
            *dead = true;
        else
            return false;
    }
    return true;
}

static bool compare_pairs(builder *b, fl_json *members, size_t count, bool *dead) {
    for (size_t i = 1; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (members[2 * j].type != FL_JSON_NONE &&
                same_open_key(b, &members[2 * j], &members[2 * i])) {
                if (!take_duplicate(b, &members[2 * j], &members[2 * i]))
                    return false;
                *dead = true;
                break;
            }
        }
    }
    return true;
}

/* Close up over replaced members; the number that is left. */
static size_t drop_dead(fl_json *members, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (members[2 * i].type != FL_JSON_NONE) {
            members[2 * kept]     = members[2 * i];
            members[2 * kept + 1] = members[2 * i + 1];
            kept++;
        }
    }
    return kept;
}

/* Resolve duplicate keys of the members on the stack and, of a large object, put its index behind where they will
 * lie in the block. *count becomes what is left. */
static bool resolve_keys(builder *b, fl_json *members, size_t *count, size_t *index_bytes) {
    bool dead = false;
    if (*count <= SMALL) {
        bool good = compare_pairs(b, members, *count, &dead);
        *count    = dead ? drop_dead(members, *count) : *count;
        return good;
    }
    size_t bytes = sizeof(key_index) + slot_count(*count) * sizeof(uint32_t);
    if (!reserve(b, &b->block, *count * 2 * sizeof(fl_json) + bytes))
        return false;
    /* At the place for the count before any is dropped; it moves down with the children. */
    key_index *index = (void *)(b->block.data + b->block.size + *count * 2 * sizeof(fl_json));
    index->seed      = fl_hash_seed(members);
    if (!fill_index(b, index, members, *count, &dead))
        return false;
    if (dead) {
        *count = drop_dead(members, *count);
        if (*count <= SMALL)
            return true;
        key_index *lower = (void *)(b->block.data + b->block.size + *count * 2 * sizeof(fl_json));
        lower->seed      = fl_hash_seed(members);
        dead             = false;
        (void)fill_index(b, lower, members, *count, &dead);
    }
    *index_bytes = sizeof(key_index) + slot_count(*count) * sizeof(uint32_t);
    return true;
}

/* Copy nodes from the stack to the end of the block; offsets become distances. */
static void place(builder *b, const fl_json *nodes, size_t count) {
    assert(nodes || count == 0);
    fl_json *to = (void *)(b->block.data + b->block.size);
    for (size_t i = 0; i < count; i++) {
        to[i]      = nodes[i];
        to[i].back = (uint32_t)(b->block.size + i * sizeof *nodes) - nodes[i].back;
    }
    b->block.size += count * sizeof *nodes;
}

/* The innermost level is over: its children leave the stack, and it takes their place there as one value. */
static bool close_level(builder *b, bool object) {
    size_t   first       = b->first[b->in.depth + 1];
    size_t   children    = open_count(b) - first;
    size_t   count       = object ? children / 2 : children;
    size_t   index_bytes = 0;
    fl_json *nodes       = open_at(b, first);
    if (object && !resolve_keys(b, nodes, &count, &index_bytes))
        return false;
    children = object ? 2 * count : count;
    if (!reserve(b, &b->block, children * sizeof *nodes + index_bytes))
        return false;
    size_t at = b->block.size;
    place(b, nodes, children);
    b->block.size += index_bytes;
    b->open.size = first * sizeof *nodes;
    return push(b, object ? FL_JSON_OBJECT : FL_JSON_ARRAY, at, count);
}

/* Is the next value the member "vocab" or "merges" of an object inside the root? Its key is the last of the stack. */
static bool is_table(const builder *b) {
    if ((b->flags & FL_JSON_TABLES_LATER) == 0 || b->in.depth != 2 || (b->in.objects & 3) != 3)
        return false;
    const fl_json *key  = open_at(b, open_count(b) - 1);
    fl_span        name = {b->block.data + key->back, key->count};
    return fl_span_is(name, "vocab") || fl_span_is(name, "merges");
}

/* The next value onto the stack; of an array or object the beginning. */
static bool read_value(builder *b) {
    fl_json_type type = fl_json_in_peek(&b->in);
    fl_span      span;
    bool         flag = false;
    if ((type == FL_JSON_OBJECT || type == FL_JSON_ARRAY) && is_table(b)) {
        return fl_json_in_skip(&b->in, &span) &&
               push(b, LATER, (size_t)(span.data - b->in.text), span.size);
    }
    switch (type) {
    case FL_JSON_OBJECT:
    case FL_JSON_ARRAY:
        if (!fl_json_in_enter(&b->in, type))
            return false;
        b->first[b->in.depth] = open_count(b);
        return true;
    case FL_JSON_STRING: return fl_json_in_string(&b->in, &span) && push_text(b, type, span);
    case FL_JSON_NUMBER: return fl_json_in_number(&b->in, &span) && push_text(b, type, span);
    case FL_JSON_BOOL: return fl_json_in_bool(&b->in, &flag) && push(b, type, 0, flag);
    case FL_JSON_NULL: return fl_json_in_null(&b->in) && push(b, type, 0, 0);
    default: return false;
    }
}

static bool read_key(builder *b) {
    fl_span key;
    if (!fl_json_in_key(&b->in, &key))
        return false;
    if (memchr(key.data, '\0', key.size) != NULL) { /* keys are C strings: two could become one */
        b->in.at = (size_t)(key.data - b->in.text) - 1;
        return fl_json_in_fail(&b->in, false, "a NUL character in a key");
    }
    return push_text(b, FL_JSON_STRING, key);
}

static bool read_tree(builder *b) {
    do {
        if (!read_value(b))
            return false;
        while (b->in.depth > 0) {
            bool object = (b->in.objects >> (b->in.depth - 1) & 1) != 0;
            if (object ? read_key(b) : fl_json_in_item(&b->in))
                break;
            if (b->in.failed || b->status < 0 || !close_level(b, object))
                return false;
        }
    } while (b->in.depth > 0);
    return fl_json_in_end(&b->in);
}

/* Takes block->data with size bytes of text over, whatever comes of it. */
static int build(fl_json **out, fl_buf *block, int flags, const char *source, fletch_error *error) {
    builder b    = {.flags = flags, .source = source, .error = error};
    size_t  text = block->size;
    fl_json_in_begin(&b.in, block->data, text);
    size_t nodes = (text / sizeof(fl_json) + 1) * sizeof(fl_json); /* after the text and a NUL */
    b.block      = *block;
    *block       = (fl_buf){0};
    if (reserve(&b, &b.block, nodes - text)) {
        b.block.size = nodes;
        if (!read_tree(&b) && b.status == 0) {
            b.status = fl_fail(error, FLETCH_EMODEL, b.in.at, "%s: byte %zu: %s", source, b.in.at,
                               b.in.message);
        }
    }
    if (b.status == 0 && reserve(&b, &b.block, 2 * sizeof(fl_json))) {
        uint64_t root = b.block.size;
        place(&b, open_at(&b, 0), 1);
        memcpy(b.block.data + b.block.size, &root, sizeof root);
        char *data   = fl_realloc_array(b.block.data, b.block.size + sizeof root, 1);
        b.block.data = data != NULL ? data : b.block.data;
        *out         = (void *)(b.block.data + root);
        b.block.data = NULL;
        if ((*out)->type == FL_JSON_NULL) {
            fl_json_free(*out);
            *out = NULL;
        }
    }
    fl_buf_free(&b.block);
    fl_buf_free(&b.open);
    return b.status;
}

int fl_json_take(fl_json **out, fl_buf *text, size_t size_max, int flags, const char *source,
                 fletch_error *error) {
    *out = NULL;
    if (text->size > size_max || text->size > INT_MAX) {
        int status =
            fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %zu bytes of JSON; the limit is %zu",
                    source, text->size, size_max < INT_MAX ? size_max : (size_t)INT_MAX);
        fl_buf_free(text);
        return status;
    }
    return build(out, text, flags, source, error);
}

int fl_json_parse(fl_json **out, const char *text, size_t size, size_t size_max, int flags,
                  const char *source, fletch_error *error) {
    fl_buf copy = {.size = size};
    *out        = NULL;
    if (size <= size_max && size <= INT_MAX) {
        copy.size = 0;
        (void)fl_buf_reserve(&copy, size);
        fl_buf_append(&copy, text, size);
    }
    return copy.failed ? fl_fail_nomem(error, size, source)
                       : fl_json_take(out, &copy, size_max, flags, source, error);
}

int fl_json_read(fl_json **out, const char *path, size_t size_max, fletch_error *error) {
    fl_buf text = {0};
    *out        = NULL;
    int status  = fl_file_read(path, size_max < INT_MAX ? size_max : INT_MAX, &text, error);
    if (status == 0) {
        status = build(out, &text, 0, path, error);
    } else if (status == FLETCH_EINVAL) { /* too large, or a folder: the file is at fault */
        status = FLETCH_EMODEL;
        if (error != NULL)
            error->code = status;
    }
    fl_buf_free(&text);
    return status;
}

void fl_json_free(fl_json *root) {
    if (root != NULL) {
        uint64_t offset;
        memcpy(&offset, root + 1, sizeof offset);
        fl_free((char *)root - offset);
    }
}

/* ---- Values ---------------------------------------------------------------------------------- */

static const char *text_of(const fl_json *json) {
    return (const char *)json - json->back;
}

fl_json_type fl_json_type_of(fl_json *json) {
    if (json != NULL && json->type == LATER)
        return *text_of(json) == '{' ? FL_JSON_OBJECT : FL_JSON_ARRAY;
    return json == NULL ? FL_JSON_NULL : (fl_json_type)json->type;
}

bool fl_json_is(fl_json *json, fl_json_type type) {
    return fl_json_type_of(json) == type;
}

const char *fl_json_kind(fl_json *json) {
    return fl_json_type_text(fl_json_type_of(json));
}

/* Is it of this type, with its items or members in the tree? */
static bool has_children(const fl_json *json, unsigned type) {
    return json != NULL && json->type == type;
}

size_t fl_json_count(fl_json *json) {
    return has_children(json, FL_JSON_ARRAY) || has_children(json, FL_JSON_OBJECT) ? json->count
                                                                                   : 0;
}

bool fl_json_later(fl_json *json, fl_json_in *in) {
    if (json == NULL || json->type != LATER)
        return false;
    fl_json_in_again(in, (char *)json - json->back, json->count);
    return true;
}

static fl_json *child(fl_json *level, size_t index) {
    fl_json *first = (void *)((char *)level - level->back);
    return first[index].type == FL_JSON_NULL ? NULL : &first[index];
}

fl_json *fl_json_item(fl_json *array, size_t index) {
    return has_children(array, FL_JSON_ARRAY) && index < array->count ? child(array, index) : NULL;
}

const char *fl_json_member(fl_json *object, size_t index, fl_json **value) {
    if (!has_children(object, FL_JSON_OBJECT) || index >= object->count)
        return NULL;
    *value = child(object, 2 * index + 1);
    return text_of(child(object, 2 * index));
}

bool fl_json_find(fl_json *object, const char *key, fl_json **value) {
    assert(key);
    if (!has_children(object, FL_JSON_OBJECT) || object->count == 0)
        return false;
    size_t         count = object->count, size = strlen(key);
    const fl_json *keys = child(object, 0);
    size_t         i    = 0;
    if (count <= SMALL) {
        while (i < count && !same_key(text_of(&keys[2 * i]), keys[2 * i].count, key, size))
            i++;
    } else {
        const key_index *index = (const void *)(keys + 2 * count);
        size_t           mask  = slot_count(count) - 1;
        size_t           at    = fl_hash(key, size, index->seed) & mask;
        for (;; at = (at + 1) & mask) {
            i = index->slot[at] == 0 ? count : index->slot[at] - 1;
            if (i == count || same_key(text_of(&keys[2 * i]), keys[2 * i].count, key, size))
                break;
        }
    }
    if (i < count && value != NULL)
        *value = child(object, 2 * i + 1);
    return i < count;
}

fl_json *fl_json_get(fl_json *object, const char *key) {
    assert(key);
    fl_json *value = NULL;
    (void)fl_json_find(object, key, &value);
    return value;
}

const char *fl_json_text(fl_json *json) {
    return fl_json_is(json, FL_JSON_STRING) ? text_of(json) : NULL;
}

size_t fl_json_text_size(fl_json *json) {
    return fl_json_is(json, FL_JSON_STRING) ? json->count : 0;
}

bool fl_json_true(fl_json *json) {
    return fl_json_is(json, FL_JSON_BOOL) && json->count != 0;
}

bool fl_json_flag(fl_json *object, const char *key, bool fallback) {
    fl_json *value = fl_json_get(object, key);
    return value != NULL ? fl_json_true(value) : fallback;
}

static fl_span number_of(fl_json *json) {
    return fl_json_is(json, FL_JSON_NUMBER) ? (fl_span){text_of(json), json->count}
                                            : (fl_span){"", 0};
}

bool fl_json_is_int(fl_json *json) {
    return fl_span_is_int(number_of(json));
}

int64_t fl_json_int64(fl_json *json) {
    return fl_json_is_int(json) ? fl_span_int64(number_of(json)) : 0;
}

double fl_json_f64(fl_json *json) {
    return fl_span_f64(number_of(json));
}

bool fl_span_is_int(fl_span number) {
    for (size_t i = 0; i < number.size; i++)
        if (number.data[i] == '.' || (number.data[i] | 0x20) == 'e')
            return false;
    return number.size > 0;
}

int64_t fl_span_int64(fl_span number) {
    assert(fl_span_is_int(number));
    bool    minus = number.data[0] == '-';
    int64_t value = 0; /* below zero, which reaches one further */
    for (size_t i = minus; i < number.size; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, number.data[i] - '0', &value))
            return minus ? INT64_MIN : INT64_MAX;
    return minus ? value : value == INT64_MIN ? INT64_MAX : -value;
}

double fl_span_f64(fl_span number) {
    /* It ends where the number does: at , ] } or space. */
    return number.size == 0 ? 0.0 : fl_os_strtod(number.data);
}

/* ---- Typed getters --------------------------------------------------------------------------- */

static void fail_kind(fl_json_reader *reader, const char *key, fl_json *value,
                      const char *expected) {
    reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                             "%s: \"%s\" is %s where %s is expected", reader->source, key,
                             fl_json_kind(value), expected);
}

/* The value of a key; NULL when absent, null, or after an error. */
static fl_json *lookup(fl_json_reader *reader, const char *key) {
    assert(key);
    if (reader->status < 0 || reader->object == NULL)
        return NULL;
    if (!fl_json_is(reader->object, FL_JSON_OBJECT)) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: %s where an object with \"%s\" is expected", reader->source,
                                 fl_json_kind(reader->object), key);
        return NULL;
    }
    return fl_json_get(reader->object, key);
}

/* The same, with its type checked. */
static fl_json *lookup_kind(fl_json_reader *reader, const char *key, fl_json_type kind,
                            const char *expected) {
    fl_json *value = lookup(reader, key);
    if (value != NULL && !fl_json_is(value, kind)) {
        fail_kind(reader, key, value, expected);
        return NULL;
    }
    return value;
}

bool fl_json_has(const fl_json_reader *reader, const char *key) {
    return reader->status == 0 && fl_json_get(reader->object, key) != NULL;
}

fl_json *fl_json_object(fl_json_reader *reader, const char *key) {
    return lookup_kind(reader, key, FL_JSON_OBJECT, "an object");
}

fl_json *fl_json_array(fl_json_reader *reader, const char *key) {
    return lookup_kind(reader, key, FL_JSON_ARRAY, "an array");
}

fl_json_reader fl_json_inside(const fl_json_reader *reader, fl_json *object) {
    return (fl_json_reader){object, reader->source, reader->error, reader->status};
}

fl_json_reader fl_json_below(fl_json_reader *reader, const char *key) {
    fl_json *object = fl_json_object(reader, key);
    return fl_json_inside(reader, object);
}

void fl_json_settle(fl_json_reader *reader, const fl_json_reader *inner) {
    assert(reader != inner);
    if (reader->status == 0)
        reader->status = inner->status;
}

const char *fl_json_string(fl_json_reader *reader, const char *key, const char *fallback) {
    fl_json *value = lookup_kind(reader, key, FL_JSON_STRING, "a string");
    if (value == NULL)
        return fallback;
    const char *text = fl_json_text(value);
    if (strlen(text) != fl_json_text_size(value)) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: \"%s\" contains a NUL character", reader->source, key);
        return fallback;
    }
    return text;
}

int64_t fl_json_int(fl_json_reader *reader, const char *key, int64_t fallback, int64_t min,
                    int64_t max) {
    fl_json *value = lookup(reader, key);
    if (value == NULL)
        return fallback;
    /* Both saturate: 1e30 and 1000000000000000019884624838656 (which real files hold for "no
     * limit") read as INT64_MAX. */
    int64_t number = fl_json_int64(value);
    if (!fl_json_is(value, FL_JSON_NUMBER)) {
        fail_kind(reader, key, value, "an integer");
        return fallback;
    }
    if (!fl_json_is_int(value)) {
        double real = fl_json_f64(value);
        if (real != trunc(real)) {
            fail_kind(reader, key, value, "an integer");
            return fallback;
        }
        number = real >= 0x1p63 ? INT64_MAX : real < -0x1p63 ? INT64_MIN : (int64_t)real;
    }
    if (number < min || number > max) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: \"%s\" is %lld; it must be %lld to %lld", reader->source, key,
                                 (long long)number, (long long)min, (long long)max);
        return fallback;
    }
    return number;
}

double fl_json_double(fl_json_reader *reader, const char *key, double fallback) {
    fl_json *value = lookup_kind(reader, key, FL_JSON_NUMBER, "a number");
    if (value == NULL)
        return fallback;
    double number = fl_json_f64(value);
    if (!isfinite(number)) {
        fail_kind(reader, key, value, "a number that a double can hold");
        return fallback;
    }
    return number;
}

bool fl_json_bool(fl_json_reader *reader, const char *key, bool fallback) {
    fl_json *value = lookup_kind(reader, key, FL_JSON_BOOL, "true or false");
    return value == NULL ? fallback : fl_json_true(value);
}

bool fl_json_is_blank(const char *line, size_t size) {
    size_t at = 0;
    while (at < size && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r'))
        at++;
    return at == size;
}

/* ---- Writing --------------------------------------------------------------------------------- */

void fl_json_quote(fl_buf *out, const char *text, size_t size) {
    assert(text || size == 0);
    static const char digits[] = "0123456789abcdef";
    size_t            start    = 0; /* of the run that needs no escape */
    fl_buf_putc(out, '"');
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        fl_buf_append(out, text + start, i - start);
        start = i + 1;
        switch (c) {
        case '"': fl_buf_puts(out, "\\\""); break;
        case '\\': fl_buf_puts(out, "\\\\"); break;
        case '\n': fl_buf_puts(out, "\\n"); break;
        case '\r': fl_buf_puts(out, "\\r"); break;
        case '\t': fl_buf_puts(out, "\\t"); break;
        default: {
            char escape[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
            fl_buf_append(out, escape, sizeof escape);
        }
        }
    }
    fl_buf_append(out, text + start, size - start);
    fl_buf_putc(out, '"');
}

size_t fl_json_quoted_size(const char *text, size_t size) {
    size_t quoted = size + 2;
    for (size_t i = 0; i < size; i++) {
        unsigned char c    = (unsigned char)text[i];
        bool          pair = c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t';
        quoted += pair ? 1 : c < 0x20 ? 5 : 0;
    }
    return quoted;
}

void fl_json_compact(fl_buf *out, const char *raw, size_t size) {
    size_t from   = 0;
    bool   quoted = false;
    for (size_t at = 0; at < size; at++) {
        char c = raw[at];
        if (!quoted && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
            fl_buf_append(out, raw + from, at - from);
            from = at + 1;
        }
        quoted ^= c == '"';
        at += quoted && c == '\\';
    }
    fl_buf_append(out, raw + from, size - from);
}
