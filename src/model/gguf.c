/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c - read and check the header of a GGUF file.
 *
 * Role    safetensors.c takes the tensors of a .gguf from here; the metadata says what model it is.
 * In/Out  magic, version, counts, {key, type, value} …, {name, dims, type, offset} …, padding, data -> fl_gguf.
 * Method  The file comes from strangers. Every length is held against the bytes that are left before anything
 *         is sized or skipped by it, so that a text of 2^60 bytes is told and not allocated; keys and names may be
 *         there once; tensors lie one after the other with nothing but padding between, as every writer of the
 *         format has them and as llama.cpp demands: none can overlap or lie outside the file. Dimensions are
 *         stored the other way round: the first is that of a row.
 * Memory  a table of values and one of tensors, in proportion to the file's own counts. Threads: reentrant.
 * Proof   tests/golden/test_gguf_file.py, tests/fuzz/fuzz_gguf.c. */
#include "model/gguf.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "hub/model_files.h"

enum {
    KEYS_MAX      = 4096, /* a published file has some dozens */
    NAME_SIZE_MAX = 255,
    DIMS_MAX      = 4,
    ALIGN_USUAL   = 32,
    ALIGN_MAX     = 1 << 20
};

/* Bytes of a value of each type; 0: of its own length. */
static const uint8_t sizes[FL_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* The format's numbers of the types that are read. */
static const struct {
    uint32_t number;
    fl_dtype dtype;
} types[] = {
    {0, FL_DTYPE_F32},   {1, FL_DTYPE_F16},   {2, FL_DTYPE_Q4_0},  {3, FL_DTYPE_Q4_1},
    {6, FL_DTYPE_Q5_0},  {7, FL_DTYPE_Q5_1},  {8, FL_DTYPE_Q8_0},  {12, FL_DTYPE_Q4_K},
    {13, FL_DTYPE_Q5_K}, {14, FL_DTYPE_Q6_K}, {30, FL_DTYPE_BF16},
};

uint32_t fl_gguf_number_of(fl_dtype dtype) {
    size_t i = 0;
    while (types[i].dtype != dtype)
        i++;
    return types[i].number;
}

typedef struct cursor {
    const unsigned char *at, *end;
    const char          *source;
    fletch_error        *error;
    int                  status;
} cursor;

static void damage(cursor *c, const char *what) {
    if (c->status == 0)
        c->status = fl_fail(c->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %s.", c->source, what);
}

/* The next bytes; NULL, and the status says why, when the file ends before. */
static const unsigned char *take(cursor *c, uint64_t size) {
    const unsigned char *at = c->at;
    if (c->status == 0 && size > (uint64_t)(c->end - c->at))
        damage(c, "the file ends inside its header");
    if (c->status != 0)
        return NULL;
    c->at += size;
    return at;
}

static uint64_t number(cursor *c, size_t size) {
    const unsigned char *at    = take(c, size);
    uint64_t             value = 0;
    if (at != NULL)
        memcpy(&value, at, size); /* little-endian, as the machine */
    return value;
}

static fl_span text(cursor *c) {
    uint64_t             size = number(c, sizeof size);
    const unsigned char *at   = take(c, size);
    return (fl_span){(const char *)at, at != NULL ? (size_t)size : 0};
}

/* ---- Metadata -------------------------------------------------------------------------------- */

/* Pass over the items of a value, so that they are known to be there. */
static void skip_items(cursor *c, const fl_gguf_value *v) {
    uint64_t bytes;
    if (v->type != FL_GGUF_TEXT) {
        if (__builtin_mul_overflow(v->count, (uint64_t)sizes[v->type], &bytes))
            bytes = UINT64_MAX;
        take(c, bytes);
        return;
    }
    for (uint64_t i = 0; c->status == 0 && i < v->count; i++)
        text(c);
}

static void refuse(cursor *c, const char *what, uint64_t value) {
    if (c->status == 0)
        c->status =
            fl_fail(c->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE, "%s: %s %llu is not supported.",
                    c->source, what, (unsigned long long)value);
}

static void read_value(cursor *c, fl_gguf *file) {
    fl_gguf_value v    = {.key = text(c), .count = 1};
    uint64_t      type = number(c, sizeof(uint32_t));
    if (c->status == 0 && (v.key.size == 0 || memchr(v.key.data, '\0', v.key.size) != NULL))
        damage(c, "a metadata key is empty or holds a zero byte");
    for (size_t i = 0; c->status == 0 && i < file->count; i++)
        if (file->values[i].key.size == v.key.size &&
            memcmp(file->values[i].key.data, v.key.data, v.key.size) == 0)
            c->status = fl_fail(c->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                "%s: duplicate metadata key \"%.*s\".", c->source,
                                (int)(v.key.size < 80 ? v.key.size : 80), v.key.data);
    v.array = type == FL_GGUF_ARRAY;
    if (v.array) {
        type    = number(c, sizeof(uint32_t));
        v.count = number(c, sizeof v.count);
    }
    if (type >= FL_GGUF_TYPES || type == FL_GGUF_ARRAY)
        refuse(c, v.array ? "an array of metadata type" : "metadata type", type);
    v.type = (fl_gguf_type)type;
    v.data = c->at;
    if (c->status == 0)
        skip_items(c, &v);
    if (c->status != 0)
        return;
    if (!fl_array_reserve(&file->values, &file->room, file->count + 1, sizeof v)) {
        c->status = fl_fail_nomem(c->error, (file->count + 1) * sizeof v, "metadata");
        return;
    }
    file->values[file->count++] = v;
}

const fl_gguf_value *fl_gguf_find(const fl_gguf *file, const char *key) {
    assert(key);
    for (size_t i = 0; i < file->count; i++)
        if (fl_span_is(file->values[i].key, key))
            return &file->values[i];
    return NULL;
}

bool fl_gguf_whole(const fl_gguf_value *value, uint64_t index, uint64_t *out) {
    if (value == NULL || index >= value->count || value->type == FL_GGUF_TEXT ||
        value->type == FL_GGUF_F32 || value->type == FL_GGUF_F64 || value->type == FL_GGUF_BOOL)
        return false;
    const size_t size      = sizes[value->type];
    const bool   is_signed = value->type == FL_GGUF_I8 || value->type == FL_GGUF_I16 ||
                           value->type == FL_GGUF_I32 || value->type == FL_GGUF_I64;
    *out = 0;
    memcpy(out, value->data + index * size, size);
    return !is_signed || *out >> (8 * size - 1) == 0; /* nothing that is read may be negative */
}

bool fl_gguf_real(const fl_gguf_value *value, uint64_t index, double *out) {
    float narrow;
    if (value == NULL || index >= value->count ||
        (value->type != FL_GGUF_F32 && value->type != FL_GGUF_F64))
        return false;
    if (value->type == FL_GGUF_F64) {
        memcpy(out, value->data + index * sizeof *out, sizeof *out);
        return true;
    }
    memcpy(&narrow, value->data + index * sizeof narrow, sizeof narrow);
    *out = (double)narrow;
    return true;
}

bool fl_gguf_flag(const fl_gguf_value *value, bool *out) {
    if (value == NULL || value->array || value->type != FL_GGUF_BOOL)
        return false;
    *out = value->data[0] != 0;
    return true;
}

fl_span fl_gguf_next(const unsigned char **at) {
    uint64_t size;
    memcpy(&size, *at, sizeof size);
    fl_span text = {(const char *)*at + sizeof size, (size_t)size};
    *at += sizeof size + size;
    return text;
}

size_t fl_gguf_bytes(const fl_gguf_value *value) {
    const unsigned char *end = value->data;
    if (value->type != FL_GGUF_TEXT)
        return (size_t)value->count * sizes[value->type];
    for (uint64_t i = 0; i < value->count; i++)
        fl_gguf_next(&end);
    return (size_t)(end - value->data);
}

bool fl_gguf_text(const fl_gguf_value *value, fl_span *out) {
    const unsigned char *at = value != NULL ? value->data : NULL;
    if (value == NULL || value->array || value->type != FL_GGUF_TEXT)
        return false;
    *out = fl_gguf_next(&at);
    return true;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static void fail_tensor(cursor *c, int status, fl_span name, const char *what) {
    if (c->status == 0)
        c->status = fl_fail(c->error, status, FLETCH_NOWHERE, "%s: tensor %.*s %s.", c->source,
                            (int)(name.size < 80 ? name.size : 80), name.data, what);
}

static void read_dtype(cursor *c, fl_span name, fl_tensor *tensor) {
    char     what[120];
    uint64_t type = number(c, sizeof(uint32_t));
    tensor->dtype = FL_DTYPE_OTHER;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == type)
            tensor->dtype = types[i].dtype;
    if (tensor->dtype != FL_DTYPE_OTHER)
        return;
    snprintf(what, sizeof what,
             "is of type %llu of the format; read are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
             "Q5_1, Q4_K, Q5_K and Q6_K",
             (unsigned long long)type);
    fail_tensor(c, FLETCH_EUNSUPPORTED, name, what);
}

/* One tensor, whose data must begin at *offset, which is moved to where the next must. */
static void read_tensor(cursor *c, fl_span name, uint64_t align, uint64_t *offset,
                        fl_tensor *tensor) {
    uint64_t rank = number(c, sizeof(uint32_t)), count = 1, dims[DIMS_MAX] = {0};
    if (rank == 0 || rank > DIMS_MAX)
        fail_tensor(c, FLETCH_EMODEL, name, "has no or more than 4 dimensions");
    for (uint64_t i = 0; c->status == 0 && i < rank; i++) {
        dims[i] = number(c, sizeof *dims);
        if (dims[i] == 0 || __builtin_mul_overflow(count, dims[i], &count) || count > 1ULL << 48)
            fail_tensor(c, FLETCH_EMODEL, name, "has a dimension of 0, or too many elements");
    }
    read_dtype(c, name, tensor);
    uint64_t at = number(c, sizeof at);
    if (c->status != 0)
        return;
    const fl_block_row *block = fl_block_of(tensor->dtype);
    if (block != NULL && dims[0] % block->values != 0)
        fail_tensor(c, FLETCH_EMODEL, name, "has rows that are not whole blocks of its type");
    if (at != *offset)
        fail_tensor(c, FLETCH_EMODEL, name, "does not begin where the tensor before it ends");
    tensor->rank  = (uint32_t)rank;
    tensor->bytes = fl_dtype_bytes(tensor->dtype, count);
    for (uint64_t i = 0; i < rank; i++)
        tensor->shape[i] = dims[rank - 1 - i];
    tensor->data = (const void *)(uintptr_t)at; /* until the data's begin is known */
    *offset      = at + (tensor->bytes + align - 1) / align * align;
}

/* Names are copied to one text, each with its end. */
static char *keep_name(cursor *c, char *at, fl_span name) {
    if (name.size == 0 || name.size > NAME_SIZE_MAX || memchr(name.data, '\0', name.size) != NULL)
        damage(c, "the name of a tensor is empty, too long, or holds a zero byte");
    if (c->status != 0)
        return at;
    memcpy(at, name.data, name.size);
    at[name.size] = '\0';
    return at + name.size + 1;
}

static void read_tensors(cursor *c, uint64_t count, uint64_t align, fl_tensor_table *table) {
    /* a tensor takes more bytes of the header than its name here */
    size_t   room   = (size_t)(c->end - c->at) < count * (NAME_SIZE_MAX + 1)
                          ? (size_t)(c->end - c->at)
                          : (size_t)count * (NAME_SIZE_MAX + 1);
    uint64_t offset = 0;
    table->text     = fl_alloc(room + 1);
    if (table->text == NULL)
        c->status = fl_fail_nomem(c->error, room + 1, "the tensor table");
    char *at = table->text;
    for (uint64_t i = 0; c->status == 0 && i < count; i++) {
        fl_tensor tensor = {0};
        char     *kept   = at;
        fl_span   name   = text(c);
        if (c->status == 0)
            at = keep_name(c, at, name);
        if (c->status == 0)
            read_tensor(c, name, align, &offset, &tensor);
        int added = c->status == 0 ? fl_table_add(table, kept, &tensor) : 0;
        if (added > 0)
            fail_tensor(c, FLETCH_EMODEL, name, "is a duplicate");
        else if (added < 0)
            c->status = fl_fail_nomem(c->error, sizeof tensor, "the tensor table");
    }
}

/* Where the data begins is known only now. */
static void place_tensors(cursor *c, const unsigned char *begin, uint64_t align,
                          fl_tensor_table *table) {
    uint64_t header = (uint64_t)(c->at - begin), size = (uint64_t)(c->end - begin);
    uint64_t first = (header + align - 1) / align * align;
    for (size_t i = 0; c->status == 0 && i < table->count; i++) {
        fl_tensor *tensor = &table->tensors[i];
        uint64_t   at     = (uint64_t)(uintptr_t)tensor->data;
        if (first > size || at > size - first || tensor->bytes > size - first - at) {
            fail_tensor(c, FLETCH_EMODEL, (fl_span){table->names[i], strlen(table->names[i])},
                        "extends past the end of the file, which is truncated");
            return;
        }
        tensor->data = begin + first + at;
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

static uint64_t read_alignment(cursor *c, const fl_gguf *file) {
    const fl_gguf_value *value = fl_gguf_find(file, "general.alignment");
    uint64_t             align = ALIGN_USUAL;
    if (value != NULL && (value->array || !fl_gguf_whole(value, 0, &align) || align < 1 ||
                          align > ALIGN_MAX || (align & (align - 1)) != 0))
        damage(c, "general.alignment is not a power of two up to 1048576");
    return align;
}

static void read_all(cursor *c, const unsigned char *begin, fl_gguf *file) {
    const unsigned char *magic = take(c, 4);
    if (magic != NULL && !fl_gguf_begins(magic, 4))
        damage(c, "this is not a GGUF file");
    uint64_t version = number(c, sizeof(uint32_t));
    if (version != 2 && version != 3) /* a big-endian file has it the other way round */
        refuse(c, "version", version);
    uint64_t tensors = number(c, sizeof tensors), keys = number(c, sizeof keys);
    if (tensors > FL_TENSOR_COUNT_MAX || keys > KEYS_MAX)
        damage(c, "it has more than 1000000 tensors or 4096 metadata keys");
    for (uint64_t i = 0; c->status == 0 && i < keys; i++)
        read_value(c, file);
    uint64_t align = c->status == 0 ? read_alignment(c, file) : ALIGN_USUAL;
    if (c->status == 0)
        read_tensors(c, tensors, align, &file->tensors);
    if (c->status == 0)
        place_tensors(c, begin, align, &file->tensors);
}

int fl_gguf_read(fl_gguf *out, const unsigned char *data, size_t size, const char *source,
                 fletch_error *error) {
    static const unsigned char nothing[1];
    const unsigned char       *begin = data != NULL ? data : nothing;
    cursor c = {.at = begin, .end = begin + size, .source = source, .error = error};
    memset(out, 0, sizeof *out);
    fl_table_init(&out->tensors);
    read_all(&c, begin, out);
    if (c.status != 0)
        fl_gguf_free(out);
    return c.status;
}

void fl_gguf_free(fl_gguf *file) {
    fl_free(file->values);
    fl_table_free(&file->tensors);
    memset(file, 0, sizeof *file);
}
