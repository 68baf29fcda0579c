/* SPDX-License-Identifier: Apache-2.0 */
/* torch_file.c - a state_dict that torch.save wrote becomes a table of tensors; nothing of it is run.
 *
 * Role    safetensors.c calls it for files called .pt: bge-m3 has its sparse and its colbert head in two.
 * In/Out  A zip archive whose members are stored as they are: NAME/data.pkl, a pickle, and NAME/data/KEY,
 *         the bytes of a storage each -> names and tensors.
 * Method  A pickle is a program for a machine with a stack, which may call any function of Python. The
 *         machine here knows the opcodes that a state_dict comes out as, and two calls: an empty OrderedDict
 *         and torch._utils._rebuild_tensor_v2. Whatever else the program asks for ends the reading, by
 *         name. Of the dictionaries only the first made, which must be the result, may hold tensors; what the
 *         others hold (hooks, versions) changes none. A tensor must be row-major and lie inside its
 *         storage, and a storage must have the bytes that its type and number ask for.
 * Memory  the table (freed by fl_table_free); stack, memo and tuples while it reads, bounded by the file's
 *         size and the limits below. Threads: reentrant.
 * Proof   tests/golden/test_token_heads.py, tests/fuzz/fuzz_torch_file.c. */
#include "model/torch_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

enum {
    VALUES_MAX  = 1 << 20, /* on the stack, in tuples and in the memo, each */
    TENSORS_MAX = 1 << 16,
    NAME_MAX    = 512
};

typedef struct bytes {
    const unsigned char *data;
    size_t               size;
} bytes;

typedef enum value_kind {
    MARK,
    NUMBER,
    FLAG,
    TEXT,
    TUPLE, /* n items, from `first` on */
    DICTIONARY,
    MAKES_DICTIONARY, /* the two functions … */
    REBUILDS_TENSOR,
    STORAGE_TYPE, /* … and the classes of storages */
    STORAGE,
    TENSOR
} value_kind;

typedef struct value {
    value_kind kind;
    int64_t    n;     /* number; items; place of a dictionary or tensor; elements of a storage */
    size_t     first; /* of a tuple */
    bytes      text;  /* a text; the bytes of a storage */
    fl_dtype   dtype; /* of a storage */
} value;

static uint64_t width_of(fl_dtype dtype) {
    return fl_dtypes[dtype].bits / 8;
}

typedef struct values {
    value *at; /* owned */
    size_t count, room;
} values;

/* A tensor with the name that it is stored under. */
typedef struct entry {
    bytes     name; /* data NULL: not yet */
    fl_tensor tensor;
} entry;

typedef struct reading {
    const char     *source;
    fletch_error   *error;
    int             status;
    bytes           program; /* what is left of it */
    fl_tensor_table members; /* files of the archive */
    size_t          folder;  /* length of "NAME/" */
    values          stack, items, memo;
    entry          *entries; /* owned */
    size_t          entry_count, entry_room;
    int64_t         dictionaries;
} reading;

/* Only the first failure is kept. False, so that callers can pass it on. */
static bool damage(reading *r, const char *what) {
    if (r->status == 0)
        r->status = fl_fail(r->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %s.", r->source, what);
    return false;
}

static bool refuse(reading *r, const char *what) {
    if (r->status == 0)
        r->status = fl_fail(
            r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s: %s; fletch reads a dictionary of tensors that torch.save wrote, and runs no "
            "program. Save its tensors with safetensors.torch.save_file.",
            r->source, what);
    return false;
}

static bool no_memory(reading *r, size_t size) {
    if (r->status == 0)
        r->status = fl_fail_nomem(r->error, size, r->source);
    return false;
}

static uint64_t little(const unsigned char *at, size_t size) {
    uint64_t number = 0;
    for (size_t i = size; i-- > 0;)
        number = number << 8 | at[i];
    return number;
}

static bool is(bytes text, const char *word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

/* ---- The archive ----------------------------------------------------------------------------- */

enum { END_SIZE = 22, MEMBER_SIZE = 46, LOCAL_SIZE = 30, COMMENT_MAX = 65535 };

/* The record at the end of an archive: how many members, and the span of their list. */
static bool find_list(reading *r, bytes file, bytes *list, size_t *count) {
    size_t at = file.size - END_SIZE, first = at > COMMENT_MAX ? at - COMMENT_MAX : 0;
    if (file.size < END_SIZE || little(file.data, 4) != 0x04034b50)
        return refuse(r, "not a zip archive, as torch.save writes since version 1.6");
    while (at > first && (little(file.data + at, 4) != 0x06054b50 ||
                          little(file.data + at + 20, 2) != file.size - at - END_SIZE))
        at--;
    const unsigned char *end = file.data + at;
    if (little(end, 4) != 0x06054b50)
        return damage(r, "the archive has no end: it is cut off");
    uint64_t size = little(end + 12, 4), begin = little(end + 16, 4);
    *count = (size_t)little(end + 10, 2);
    if (little(end + 4, 4) != 0 || little(end + 8, 2) != *count || *count == 0xffff ||
        begin == 0xffffffff || begin > at || size > at - begin)
        return damage(r, "the list of the archive's members does not lie in it");
    *list = (bytes){file.data + begin, (size_t)size};
    return true;
}

/* The bytes of the member that the list's record describes; its own header must agree. */
static bool find_member(reading *r, bytes file, const unsigned char *record, bytes name,
                        bytes *out) {
    const uint64_t at = little(record + 42, 4), size = little(record + 24, 4);
    if ((little(record + 8, 2) & 1) != 0 || little(record + 10, 2) != 0 ||
        little(record + 20, 4) != size)
        return damage(r, "a member of the archive is compressed or encrypted");
    if (at > file.size || file.size - at < LOCAL_SIZE)
        return damage(r, "a member of the archive does not lie in it");
    const unsigned char *own  = file.data + at;
    const uint64_t       head = LOCAL_SIZE + little(own + 26, 2) + little(own + 28, 2);
    if (little(own, 4) != 0x04034b50 || head > file.size - at || size > file.size - at - head ||
        little(own + 26, 2) != name.size || memcmp(own + LOCAL_SIZE, name.data, name.size) != 0)
        return damage(r, "a member of the archive does not lie in it");
    *out = (bytes){own + head, (size_t)size};
    return true;
}

/* Every member by name. */
static bool read_archive(reading *r, bytes file) {
    bytes  list  = {0};
    size_t count = 0, used = 0;
    if (!find_list(r, file, &list, &count))
        return false;
    r->members.text = fl_alloc(list.size + count);
    if (r->members.text == NULL)
        return no_memory(r, list.size + count);
    for (size_t i = 0; i < count; i++) {
        const unsigned char *record = list.data;
        if (list.size < MEMBER_SIZE || little(record, 4) != 0x02014b50)
            return damage(r, "the list of the archive's members is damaged");
        bytes  name = {record + MEMBER_SIZE, (size_t)little(record + 28, 2)}, content = {0};
        size_t all = MEMBER_SIZE + name.size + (size_t)little(record + 30, 2) +
                     (size_t)little(record + 32, 2);
        if (all > list.size || memchr(name.data, '\0', name.size) != NULL)
            return damage(r, "the list of the archive's members is damaged");
        if (!find_member(r, file, record, name, &content))
            return false;
        char *text = r->members.text + used;
        memcpy(text, name.data, name.size);
        text[name.size] = '\0';
        used += name.size + 1;
        const fl_tensor member = {.data = content.data, .bytes = content.size};
        int             status = fl_table_add(&r->members, text, &member);
        if (status != 0)
            return status < 0 ? no_memory(r, sizeof member)
                              : damage(r, "two members of the archive have one name");
        if (i == 0 && (r->folder = strcspn(text, "/") + 1) > name.size)
            return refuse(r, "its members have no folder");
        list = (bytes){list.data + all, list.size - all};
    }
    return count > 0 || damage(r, "the archive is empty");
}

/* NAME/`folder``key`, or none. */
static const fl_tensor *member(const reading *r, const char *folder, bytes key) {
    char   name[NAME_MAX];
    size_t size = strlen(folder);
    if (r->folder + size + key.size >= sizeof name || r->members.count == 0 ||
        memchr(key.data, '\0', key.size) != NULL)
        return NULL;
    memcpy(name, r->members.names[0], r->folder);
    memcpy(name + r->folder, folder, size);
    memcpy(name + r->folder + size, key.data, key.size);
    name[r->folder + size + key.size] = '\0';
    return fl_table_find(&r->members, name);
}

/* ---- The machine ----------------------------------------------------------------------------- */

static bool add(reading *r, values *list, const value *v) {
    if (list->count == VALUES_MAX)
        return damage(r, "its pickle has too many values");
    if (!fl_array_reserve(&list->at, &list->room, list->count + 1, sizeof *list->at))
        return no_memory(r, (list->count + 1) * sizeof *list->at);
    list->at[list->count++] = *v;
    return true;
}

static bool push(reading *r, value_kind kind, int64_t n) {
    const value v = {.kind = kind, .n = n};
    return add(r, &r->stack, &v);
}

/* The value on top; a mark is none. */
static bool pop(reading *r, value *out) {
    if (r->stack.count == 0 || r->stack.at[r->stack.count - 1].kind == MARK)
        return damage(r, "its pickle takes a value that is not there");
    *out = r->stack.at[--r->stack.count];
    return true;
}

static bool take(reading *r, size_t size, bytes *out) {
    if (r->program.size < size)
        return damage(r, "its pickle is cut off");
    *out       = (bytes){r->program.data, size};
    r->program = (bytes){r->program.data + size, r->program.size - size};
    return true;
}

static bool take_number(reading *r, size_t size, int64_t *out) {
    bytes raw;
    if (!take(r, size, &raw))
        return false;
    *out = (int64_t)little(raw.data, size);
    return true;
}

static bool take_line(reading *r, bytes *out) {
    const unsigned char *end = memchr(r->program.data, '\n', r->program.size);
    bytes                newline;
    if (end == NULL)
        return damage(r, "its pickle is cut off");
    return take(r, (size_t)(end - r->program.data), out) && take(r, 1, &newline);
}

/* The values above the last mark become a tuple; `count` of them without one. */
static bool make_tuple(reading *r, size_t count, bool marked) {
    size_t top = r->stack.count, first = top;
    while (marked && first > 0 && r->stack.at[first - 1].kind != MARK)
        first--;
    if (marked ? first == 0 : count > top)
        return damage(r, "its pickle takes a value that is not there");
    first         = marked ? first : top - count;
    const value v = {.kind = TUPLE, .n = (int64_t)(top - first), .first = r->items.count};
    for (size_t i = first; i < top; i++)
        if (r->stack.at[i].kind == MARK ? !damage(r, "its pickle takes a value that is not there")
                                        : !add(r, &r->items, &r->stack.at[i]))
            return false;
    r->stack.count = first - marked;
    return add(r, &r->stack, &v);
}

/* "MODULE\nNAME\n": a function or class, of which few are known. */
static bool take_global(reading *r) {
    static const struct {
        const char *module, *name;
        value_kind  kind;
        fl_dtype    dtype;
    } known[] = {{"collections", "OrderedDict", MAKES_DICTIONARY, FL_DTYPE_OTHER},
                 {"torch._utils", "_rebuild_tensor_v2", REBUILDS_TENSOR, FL_DTYPE_OTHER},
                 {"torch", "FloatStorage", STORAGE_TYPE, FL_DTYPE_F32},
                 {"torch", "HalfStorage", STORAGE_TYPE, FL_DTYPE_F16},
                 {"torch", "BFloat16Storage", STORAGE_TYPE, FL_DTYPE_BF16}};
    bytes module, name;
    if (!take_line(r, &module) || !take_line(r, &name))
        return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is(module, known[i].module) && is(name, known[i].name)) {
            const value v = {.kind = known[i].kind, .dtype = known[i].dtype};
            return add(r, &r->stack, &v);
        }
    char   what[96], text[60];
    size_t size = name.size < sizeof text ? name.size : sizeof text - 1;
    for (size_t i = 0; i < size; i++)
        text[i] = name.data[i] > ' ' && name.data[i] < 0x7f ? (char)name.data[i] : '?';
    text[size] = '\0';
    snprintf(what, sizeof what, "its pickle asks for %s", text);
    return refuse(r, what);
}

/* Item i of a tuple, if it is of that kind. */
static const value *item(const reading *r, const value *tuple, int64_t i, value_kind kind) {
    if (tuple->kind != TUPLE || i >= tuple->n)
        return NULL;
    const value *v = &r->items.at[tuple->first + (size_t)i];
    return v->kind == kind ? v : NULL;
}

/* ("storage", class, key, device, elements) -> the bytes of that member. */
static bool find_storage(reading *r) {
    value id;
    if (!pop(r, &id))
        return false;
    const value *word = item(r, &id, 0, TEXT), *type = item(r, &id, 1, STORAGE_TYPE),
                *key = item(r, &id, 2, TEXT), *elements = item(r, &id, 4, NUMBER);
    if (id.n != 5 || word == NULL || !is(word->text, "storage") || type == NULL || key == NULL ||
        item(r, &id, 3, TEXT) == NULL || elements == NULL || elements->n < 0)
        return refuse(r, "its pickle names something that is not a storage");
    const fl_tensor *found = member(r, "data/", key->text);
    const uint64_t   width = width_of(type->dtype);
    if (found == NULL || found->bytes / width != (uint64_t)elements->n || found->bytes % width != 0)
        return damage(r, "a storage is missing, or not as large as its tensors say");
    const value v = {.kind  = STORAGE,
                     .n     = elements->n,
                     .text  = {found->data, (size_t)found->bytes},
                     .dtype = type->dtype};
    return add(r, &r->stack, &v);
}

/* Sizes and strides of a row-major tensor; its number of elements. */
static bool read_shape(reading *r, const value *sizes, const value *strides, fl_tensor *out,
                       uint64_t *count) {
    *count = 1;
    if (sizes->n != strides->n || sizes->n > FL_RANK_MAX)
        return damage(r, "a tensor has sizes and strides that do not go together");
    out->rank = (uint32_t)sizes->n;
    for (int64_t i = sizes->n; i-- > 0;) {
        const value *size = item(r, sizes, i, NUMBER), *stride = item(r, strides, i, NUMBER);
        if (size == NULL || stride == NULL || size->n < 1)
            return damage(r, "a tensor has sizes and strides that do not go together");
        if (size->n > 1 && (uint64_t)stride->n != *count)
            return refuse(r, "a tensor is not row-major");
        out->shape[i] = (uint64_t)size->n;
        if (__builtin_mul_overflow(*count, out->shape[i], count))
            return damage(r, "a tensor is larger than its storage");
    }
    return true;
}

/* (storage, offset, sizes, strides, requires_grad, hooks) */
static bool rebuild(reading *r, const value *arguments) {
    const value *storage = item(r, arguments, 0, STORAGE), *offset = item(r, arguments, 1, NUMBER),
                *sizes = item(r, arguments, 2, TUPLE), *strides = item(r, arguments, 3, TUPLE);
    uint64_t count;
    if (arguments->n != 6 || storage == NULL || offset == NULL || sizes == NULL ||
        strides == NULL || item(r, arguments, 4, FLAG) == NULL ||
        item(r, arguments, 5, DICTIONARY) == NULL)
        return refuse(r, "its pickle makes a tensor in another way");
    if (r->entry_count == TENSORS_MAX)
        return damage(r, "it has too many tensors");
    if (!fl_array_reserve(&r->entries, &r->entry_room, r->entry_count + 1, sizeof *r->entries))
        return no_memory(r, (r->entry_count + 1) * sizeof *r->entries);
    entry *made = &r->entries[r->entry_count];
    *made       = (entry){.tensor = {.dtype = storage->dtype}};
    if (!read_shape(r, sizes, strides, &made->tensor, &count))
        return false;
    if (offset->n < 0 || offset->n > storage->n || count > (uint64_t)(storage->n - offset->n))
        return damage(r, "a tensor is larger than its storage");
    made->tensor.data  = storage->text.data + (uint64_t)offset->n * width_of(storage->dtype);
    made->tensor.bytes = count * width_of(storage->dtype);
    return push(r, TENSOR, (int64_t)r->entry_count++);
}

/* function(*arguments) */
static bool call(reading *r) {
    value arguments, function;
    if (!pop(r, &arguments) || !pop(r, &function))
        return false;
    if (function.kind == REBUILDS_TENSOR && arguments.kind == TUPLE)
        return rebuild(r, &arguments);
    if (function.kind == MAKES_DICTIONARY && arguments.kind == TUPLE && arguments.n == 0)
        return push(r, DICTIONARY, r->dictionaries++);
    return refuse(r, "its pickle makes a call");
}

/* dictionary[name] = v */
static bool put(reading *r, const value *dictionary, const value *name, const value *v) {
    if (dictionary->n > 0 ? v->kind == TENSOR || v->kind == MARK : v->kind != TENSOR)
        return refuse(r, "it holds something else than tensors");
    if (dictionary->n > 0)
        return true; /* versions */
    if (name->kind != TEXT || name->text.size == 0 || name->text.size >= NAME_MAX ||
        memchr(name->text.data, '\0', name->text.size) != NULL ||
        r->entries[v->n].name.data != NULL)
        return damage(r, "a tensor has no name, or more than one");
    r->entries[v->n].name = name->text;
    return true;
}

/* The pairs above the last mark, or the topmost two values, into the dictionary below. */
static bool put_all(reading *r, bool marked) {
    if (!make_tuple(r, 2, marked))
        return false;
    value tuple = r->stack.at[--r->stack.count], dictionary;
    if (!pop(r, &dictionary))
        return false;
    if (dictionary.kind != DICTIONARY || tuple.n % 2 != 0)
        return damage(r, "its pickle fills something that is not a dictionary");
    for (int64_t i = 0; i < tuple.n; i += 2) {
        const value *pair = &r->items.at[tuple.first + (size_t)i];
        if (!put(r, &dictionary, &pair[0], &pair[1]))
            return false;
    }
    r->items.count = tuple.first;
    return add(r, &r->stack, &dictionary);
}

/* Attributes of a dictionary (_metadata): they change no tensor. */
static bool build(reading *r) {
    value state, of;
    if (!pop(r, &state) || !pop(r, &of))
        return false;
    if (of.kind != DICTIONARY || state.kind != DICTIONARY)
        return refuse(r, "its pickle gives an object a state");
    return add(r, &r->stack, &of);
}

static bool remember(reading *r, int64_t place) {
    const value none = {.kind = MARK};
    if (place >= VALUES_MAX || r->stack.count == 0 || r->stack.at[r->stack.count - 1].kind == MARK)
        return damage(r, "its pickle remembers a value that is not there");
    while (r->memo.count <= (size_t)place)
        if (!add(r, &r->memo, &none))
            return false;
    r->memo.at[place] = r->stack.at[r->stack.count - 1];
    return true;
}

static bool recall(reading *r, int64_t place) {
    if (place < 0 || (uint64_t)place >= r->memo.count || r->memo.at[place].kind == MARK)
        return damage(r, "its pickle recalls a value that was never there");
    return add(r, &r->stack, &r->memo.at[place]);
}

static bool take_text(reading *r) {
    value   v = {.kind = TEXT};
    int64_t size;
    return take_number(r, 4, &size) && take(r, (size_t)size, &v.text) && add(r, &r->stack, &v);
}

/* One step; *over: the program ended well. */
static bool step(reading *r, bool *over) {
    bytes   opcode;
    int64_t n = 0;
    if (!take(r, 1, &opcode))
        return false;
    switch (opcode.data[0]) {
    case 0x80: /* PROTO */
        if (!take_number(r, 1, &n))
            return false;
        return n == 2 || refuse(r, "its pickle is not of protocol 2");
    case '.': *over = true; return true;
    case 'c': return take_global(r);
    case 'q': return take_number(r, 1, &n) && remember(r, n);
    case 'r': return take_number(r, 4, &n) && remember(r, n);
    case 'h': return take_number(r, 1, &n) && recall(r, n);
    case 'j': return take_number(r, 4, &n) && recall(r, n);
    case 'X': return take_text(r);
    case 'K': return take_number(r, 1, &n) && push(r, NUMBER, n);
    case 'M': return take_number(r, 2, &n) && push(r, NUMBER, n);
    case 'J': return take_number(r, 4, &n) && push(r, NUMBER, (int32_t)(uint32_t)n);
    case 0x88:
    case 0x89: return push(r, FLAG, opcode.data[0] == 0x88);
    case '(': return push(r, MARK, 0);
    case ')': return make_tuple(r, 0, false);
    case 0x85:
    case 0x86:
    case 0x87: return make_tuple(r, (size_t)(opcode.data[0] - 0x84), false);
    case 't': return make_tuple(r, 0, true);
    case '}': return push(r, DICTIONARY, r->dictionaries++);
    case 's': return put_all(r, false);
    case 'u': return put_all(r, true);
    case 'Q': return find_storage(r);
    case 'R': return call(r);
    case 'b': return build(r);
    default: break;
    }
    char what[48];
    snprintf(what, sizeof what, "its pickle has the opcode 0x%02x", opcode.data[0]);
    return refuse(r, what);
}

/* The result is the first dictionary, and every tensor in it. */
static bool run(reading *r) {
    bool  over = false;
    value result;
    while (!over)
        if (!step(r, &over))
            return false;
    if (!pop(r, &result))
        return false;
    if (result.kind != DICTIONARY || result.n != 0 || r->stack.count != 0)
        return refuse(r, "its pickle is not of a dictionary alone");
    return true;
}

/* ---- The table ------------------------------------------------------------------------------- */

static bool fill_table(reading *r, fl_tensor_table *out) {
    size_t room = 1;
    for (size_t i = 0; i < r->entry_count; i++)
        room += r->entries[i].name.size + 1;
    out->text = fl_alloc(room);
    if (out->text == NULL)
        return no_memory(r, room);
    char *text = out->text;
    for (size_t i = 0; i < r->entry_count; i++) {
        const bytes name = r->entries[i].name;
        if (name.data == NULL)
            continue; /* made and let go */
        memcpy(text, name.data, name.size);
        text[name.size] = '\0';
        int status      = fl_table_add(out, text, &r->entries[i].tensor);
        if (status != 0)
            return status < 0 ? no_memory(r, sizeof(fl_tensor))
                              : damage(r, "two tensors have one name");
        text += name.size + 1;
    }
    return true;
}

int fl_torch_read(fl_tensor_table *out, const unsigned char *data, size_t size, const char *source,
                  fletch_error *error) {
    reading r = {.source = source, .error = error};
    fl_table_init(out);
    fl_table_init(&r.members);
    if (read_archive(&r, (bytes){data, size})) {
        const fl_tensor *program = member(&r, "data.pkl", (bytes){data, 0});
        const fl_tensor *order   = member(&r, "byteorder", (bytes){data, 0});
        if (program == NULL)
            damage(&r, "the archive has no data.pkl");
        else if (order != NULL && !is((bytes){order->data, (size_t)order->bytes}, "little"))
            refuse(&r, "its numbers are big-endian");
        else
            r.program = (bytes){program->data, (size_t)program->bytes};
        if (r.status == 0 && run(&r))
            fill_table(&r, out);
    }
    fl_table_free(&r.members);
    fl_free(r.stack.at);
    fl_free(r.items.at);
    fl_free(r.memo.at);
    fl_free(r.entries);
    if (r.status != 0)
        fl_table_free(out);
    return r.status;
}
