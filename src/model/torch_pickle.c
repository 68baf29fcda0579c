/* SPDX-License-Identifier: Apache-2.0 */
/* torch_pickle.c - a pickle of torch.save becomes descriptions of tensors; nothing of it is run.
 *
 * Role    torch_file.c gives it the programs of a file, one after another.
 * In/Out  A pickle of protocol 2 -> tensors by name, each as a view of a storage.
 * Method  A pickle is a program for a machine with a stack, which may call any function of Python. The
 *         machine here knows the opcodes that a state_dict comes out as, and four calls: an empty OrderedDict,
 *         the two makers of tensors, and that of parameters. Whatever else the program asks for ends the
 *         reading, by name. Of the dictionaries only the first made, which must be the result, may hold
 *         tensors; what the others hold (hooks, versions) changes none. A tensor must lie inside its storage.
 * Memory  stack, memo and tuples while it reads, bounded by the file's size and the limits below.
 * Threads reentrant.
 * Proof   tests/golden/test_torch_files.py, test_token_heads.py, tests/fuzz/fuzz_torch_file.c. */
#include "model/torch_pickle.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

enum {
    VALUES_MAX  = 1 << 20, /* on the stack, in tuples and in the memo, each */
    TENSORS_MAX = 1 << 16,
    NAME_MAX    = 512
};

typedef enum value_kind {
    MARK,
    NOTHING,
    NUMBER,
    FLAG,
    TEXT,
    TUPLE, /* n items, from `first` on */
    LIST,  /* likewise */
    DICTIONARY,
    MAKES_DICTIONARY, /* functions … */
    REBUILDS_TENSOR,
    REBUILDS_OLD_TENSOR,
    REBUILDS_PARAMETER,
    STORAGE_TYPE, /* … and the classes of storages */
    STORAGE,
    TENSOR
} value_kind;

typedef struct value {
    value_kind     kind;
    int64_t        n; /* number; items; place of a dictionary or tensor; elements of a storage */
    size_t         first; /* of a tuple */
    fl_torch_bytes text;  /* a text; the key of a storage */
    fl_dtype       dtype; /* of a storage */
} value;

typedef struct values {
    value *at; /* owned */
    size_t count, room;
} values;

typedef struct machine {
    fl_torch_reading *r;
    values            stack, items, memo;
    int64_t           dictionaries; /* made so far; that of tensors is number 0 */
} machine;

static bool add(machine *m, values *list, const value *v) {
    if (list->count == VALUES_MAX)
        return fl_torch_damage(m->r, "its pickle has too many values");
    if (!fl_array_reserve(&list->at, &list->room, list->count + 1, sizeof *list->at))
        return fl_torch_no_memory(m->r, (list->count + 1) * sizeof *list->at);
    list->at[list->count++] = *v;
    return true;
}

static bool push(machine *m, value_kind kind, int64_t n) {
    const value v = {.kind = kind, .n = n};
    return add(m, &m->stack, &v);
}

static bool absent(machine *m) {
    return fl_torch_damage(m->r, "its pickle takes a missing value");
}

/* The value on top; a mark is not one. */
static bool pop(machine *m, value *out) {
    if (m->stack.count == 0 || m->stack.at[m->stack.count - 1].kind == MARK)
        return absent(m);
    *out = m->stack.at[--m->stack.count];
    return true;
}

/* ---- What the program consists of ------------------------------------------------------------ */

static bool take(machine *m, size_t size, fl_torch_bytes *out) {
    fl_torch_bytes *program = &m->r->program;
    if (program->size < size)
        return fl_torch_damage(m->r, "its pickle is truncated");
    *out     = (fl_torch_bytes){program->data, size};
    *program = (fl_torch_bytes){program->data + size, program->size - size};
    return true;
}

static bool take_number(machine *m, size_t size, int64_t *out) {
    fl_torch_bytes raw;
    if (!take(m, size, &raw))
        return false;
    *out = (int64_t)fl_torch_little(raw.data, size);
    return true;
}

/* A number of as many bytes as the first one says, in two's complement. */
static bool push_long(machine *m) {
    fl_torch_bytes raw;
    int64_t        size, n = 0;
    if (!take_number(m, 1, &size) || !take(m, (size_t)size, &raw))
        return false;
    if (size > 8)
        return fl_torch_refuse(m->r, "its pickle has a number of more than 8 bytes");
    if (size > 0)
        n = (int64_t)(fl_torch_little(raw.data, raw.size) << (64 - 8 * size)) >> (64 - 8 * size);
    return push(m, NUMBER, n);
}

static bool push_text(machine *m, size_t width) {
    value   v = {.kind = TEXT};
    int64_t size;
    return take_number(m, width, &size) && take(m, (size_t)size, &v.text) && add(m, &m->stack, &v);
}

static bool take_line(machine *m, fl_torch_bytes *out) {
    const fl_torch_bytes *program = &m->r->program;
    const unsigned char  *end     = memchr(program->data, '\n', program->size);
    fl_torch_bytes        newline;
    if (end == NULL)
        return fl_torch_damage(m->r, "its pickle is truncated");
    return take(m, (size_t)(end - program->data), out) && take(m, 1, &newline);
}

/* "MODULE\nNAME\n": a function or class, of which few are known. */
static bool push_global(machine *m) {
    static const struct {
        const char *module, *name;
        value_kind  kind;
        fl_dtype    dtype;
    } known[] = {{"collections", "OrderedDict", MAKES_DICTIONARY, FL_DTYPE_OTHER},
                 {"torch._utils", "_rebuild_tensor_v2", REBUILDS_TENSOR, FL_DTYPE_OTHER},
                 {"torch._utils", "_rebuild_tensor", REBUILDS_OLD_TENSOR, FL_DTYPE_OTHER},
                 {"torch._utils", "_rebuild_parameter", REBUILDS_PARAMETER, FL_DTYPE_OTHER},
                 {"torch", "FloatStorage", STORAGE_TYPE, FL_DTYPE_F32},
                 {"torch", "HalfStorage", STORAGE_TYPE, FL_DTYPE_F16},
                 {"torch", "BFloat16Storage", STORAGE_TYPE, FL_DTYPE_BF16},
                 {"torch", "DoubleStorage", STORAGE_TYPE, FL_DTYPE_F64},
                 {"torch", "LongStorage", STORAGE_TYPE, FL_DTYPE_I64},
                 {"torch", "IntStorage", STORAGE_TYPE, FL_DTYPE_I32},
                 {"torch", "ShortStorage", STORAGE_TYPE, FL_DTYPE_I16},
                 {"torch", "CharStorage", STORAGE_TYPE, FL_DTYPE_I8},
                 {"torch", "ByteStorage", STORAGE_TYPE, FL_DTYPE_U8},
                 {"torch", "BoolStorage", STORAGE_TYPE, FL_DTYPE_BOOL}};
    fl_torch_bytes module, name;
    if (!take_line(m, &module) || !take_line(m, &name))
        return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fl_torch_is(module, known[i].module) && fl_torch_is(name, known[i].name)) {
            const value v = {.kind = known[i].kind, .dtype = known[i].dtype};
            return add(m, &m->stack, &v);
        }
    char   what[96], text[60];
    size_t size = name.size < sizeof text ? name.size : sizeof text - 1;
    for (size_t i = 0; i < size; i++)
        text[i] = name.data[i] > ' ' && name.data[i] < 0x7f ? (char)name.data[i] : '?';
    text[size] = '\0';
    snprintf(what, sizeof what, "its pickle asks for %s", text);
    return fl_torch_refuse(m->r, what);
}

/* ---- Tuples and lists ------------------------------------------------------------------------ */

/* The values above the last mark become a tuple; `count` of them without one. */
static bool make_tuple(machine *m, size_t count, bool marked) {
    size_t top = m->stack.count, first = top;
    while (marked && first > 0 && m->stack.at[first - 1].kind != MARK)
        first--;
    if (marked ? first == 0 : count > top)
        return absent(m);
    first         = marked ? first : top - count;
    const value v = {.kind = TUPLE, .n = (int64_t)(top - first), .first = m->items.count};
    for (size_t i = first; i < top; i++)
        if (m->stack.at[i].kind == MARK ? !absent(m) : !add(m, &m->items, &m->stack.at[i]))
            return false;
    m->stack.count = first - marked;
    return add(m, &m->stack, &v);
}

/* The values above the last mark, or the topmost one, go to the end of the list below. A list whose items do not lie
 * at the end of all items has been left for another in between, which torch.save does not do. */
static bool append(machine *m, bool marked) {
    value more, list;
    if (!make_tuple(m, 1, marked) || !pop(m, &more) || !pop(m, &list))
        return false;
    if (list.kind != LIST || (list.n > 0 && list.first + (size_t)list.n != more.first))
        return fl_torch_refuse(m->r, "its pickle fills a list in another way");
    const value longer = {
        .kind = LIST, .n = list.n + more.n, .first = list.n > 0 ? list.first : more.first};
    return add(m, &m->stack, &longer);
}

/* Item i of a tuple, if it is of that kind. */
static const value *item(const machine *m, const value *tuple, int64_t i, value_kind kind) {
    if (tuple->kind != TUPLE || i >= tuple->n)
        return NULL;
    const value *v = &m->items.at[tuple->first + (size_t)i];
    return v->kind == kind ? v : NULL;
}

/* ---- Storages and tensors -------------------------------------------------------------------- */

/* ("storage", class, key, device, elements), of the older format with None for a part of another storage. */
static bool name_storage(machine *m) {
    value id;
    if (!pop(m, &id))
        return false;
    const value *word = item(m, &id, 0, TEXT), *type = item(m, &id, 1, STORAGE_TYPE),
                *key = item(m, &id, 2, TEXT), *elements = item(m, &id, 4, NUMBER);
    if (id.n == 6 && item(m, &id, 5, NOTHING) == NULL)
        return fl_torch_refuse(m->r, "a storage of it is a part of another one");
    if (id.n < 5 || id.n > 6 || word == NULL || !fl_torch_is(word->text, "storage") ||
        type == NULL || key == NULL || item(m, &id, 3, TEXT) == NULL || elements == NULL ||
        elements->n < 0)
        return fl_torch_refuse(m->r, "its pickle names something that is not a storage");
    const value v = {.kind = STORAGE, .n = elements->n, .text = key->text, .dtype = type->dtype};
    return add(m, &m->stack, &v);
}

/* Sizes and strides: every element must lie inside the storage. */
static bool read_shape(machine *m, const value *sizes, const value *strides, fl_torch_tensor *out) {
    uint64_t last = out->offset, count = 1;
    if (sizes->n != strides->n || sizes->n > FL_RANK_MAX)
        return fl_torch_damage(m->r, "a tensor has sizes and strides that do not go together");
    out->view.rank = (uint32_t)sizes->n;
    for (int64_t i = 0; i < sizes->n; i++) {
        const value *size = item(m, sizes, i, NUMBER), *stride = item(m, strides, i, NUMBER);
        uint64_t     reach;
        if (size == NULL || stride == NULL || size->n < 1 || stride->n < 0)
            return fl_torch_damage(m->r, "a tensor has sizes and strides that do not go together");
        out->view.shape[i] = (uint64_t)size->n;
        out->stride[i]     = (uint64_t)stride->n;
        if (__builtin_mul_overflow(out->view.shape[i] - 1, out->stride[i], &reach) ||
            __builtin_add_overflow(last, reach, &last) ||
            __builtin_mul_overflow(count, out->view.shape[i], &count))
            return fl_torch_damage(m->r, "a tensor is larger than its storage");
    }
    if (last >= out->elements ||
        __builtin_mul_overflow(count, fl_dtype_bytes(out->view.dtype, 1), &out->view.bytes))
        return fl_torch_damage(m->r, "a tensor is larger than its storage");
    return true;
}

/* (storage, offset, sizes, strides), and since 0.4 requires_grad and hooks. */
static bool rebuild(machine *m, const value *arguments, bool old) {
    fl_torch_reading *r  = m->r;
    const value *storage = item(m, arguments, 0, STORAGE), *offset = item(m, arguments, 1, NUMBER),
                *sizes = item(m, arguments, 2, TUPLE), *strides = item(m, arguments, 3, TUPLE);
    if (arguments->n != (old ? 4 : 6) || storage == NULL || offset == NULL || offset->n < 0 ||
        sizes == NULL || strides == NULL ||
        (!old &&
         (item(m, arguments, 4, FLAG) == NULL || item(m, arguments, 5, DICTIONARY) == NULL)))
        return fl_torch_refuse(r, "its pickle makes a tensor in another way");
    if (r->tensor_count == TENSORS_MAX)
        return fl_torch_damage(r, "it has too many tensors");
    if (!fl_array_reserve(&r->tensors, &r->tensor_room, r->tensor_count + 1, sizeof *r->tensors))
        return fl_torch_no_memory(r, (r->tensor_count + 1) * sizeof *r->tensors);
    fl_torch_tensor *made = &r->tensors[r->tensor_count];
    *made                 = (fl_torch_tensor){.key      = storage->text,
                                              .elements = (uint64_t)storage->n,
                                              .offset   = (uint64_t)offset->n,
                                              .view     = {.dtype = storage->dtype}};
    return read_shape(m, sizes, strides, made) && push(m, TENSOR, (int64_t)r->tensor_count++);
}

/* function(*arguments) */
static bool call(machine *m) {
    value arguments, function;
    if (!pop(m, &arguments) || !pop(m, &function))
        return false;
    const value *tensor = item(m, &arguments, 0, TENSOR);
    switch (arguments.kind == TUPLE ? function.kind : MARK) {
    case REBUILDS_TENSOR: return rebuild(m, &arguments, false);
    case REBUILDS_OLD_TENSOR: return rebuild(m, &arguments, true);
    case REBUILDS_PARAMETER: /* (tensor, requires_grad, hooks) */
        if (tensor != NULL && arguments.n == 3)
            return add(m, &m->stack, tensor);
        break;
    case MAKES_DICTIONARY:
        if (arguments.n == 0)
            return push(m, DICTIONARY, m->dictionaries++);
        break;
    default: break;
    }
    return fl_torch_refuse(m->r, "its pickle makes a call");
}

/* ---- Dictionaries ---------------------------------------------------------------------------- */

/* dictionary[name] = v */
static bool put(machine *m, const value *dictionary, const value *name, const value *v) {
    fl_torch_reading *r    = m->r;
    bool              main = dictionary->n == 0;
    if (main ? v->kind != TENSOR : v->kind == TENSOR || v->kind == MARK)
        return fl_torch_refuse(r, "it holds something other than tensors");
    if (!main && name->kind == TEXT && fl_torch_is(name->text, "little_endian") && v->n == 0)
        return fl_torch_refuse(r, "its numbers are big-endian");
    if (!main)
        return true; /* hooks, versions, sizes of types */
    if (name->kind != TEXT || name->text.size == 0 || name->text.size >= NAME_MAX ||
        memchr(name->text.data, '\0', name->text.size) != NULL)
        return fl_torch_damage(r, "a tensor has no name that can be read");
    if (r->name_count == TENSORS_MAX)
        return fl_torch_damage(r, "it has too many tensors");
    if (!fl_array_reserve(&r->names, &r->name_room, r->name_count + 1, sizeof *r->names))
        return fl_torch_no_memory(r, (r->name_count + 1) * sizeof *r->names);
    r->names[r->name_count++] = (fl_torch_name){name->text, (size_t)v->n};
    return true;
}

/* The pairs above the last mark, or the topmost two values, into the dictionary below. */
static bool put_all(machine *m, bool marked) {
    value tuple, dictionary;
    if (!make_tuple(m, 2, marked) || !pop(m, &tuple) || !pop(m, &dictionary))
        return false;
    if (dictionary.kind != DICTIONARY || tuple.n % 2 != 0)
        return fl_torch_damage(m->r, "its pickle fills something that is not a dictionary");
    for (int64_t i = 0; i < tuple.n; i += 2) {
        const value *pair = &m->items.at[tuple.first + (size_t)i];
        if (!put(m, &dictionary, &pair[0], &pair[1]))
            return false;
    }
    m->items.count = tuple.first;
    return add(m, &m->stack, &dictionary);
}

/* Attributes of a dictionary (_metadata): they change no tensor. */
static bool build(machine *m) {
    value state, of;
    if (!pop(m, &state) || !pop(m, &of))
        return false;
    if (of.kind != DICTIONARY || state.kind != DICTIONARY)
        return fl_torch_refuse(m->r, "its pickle gives an object a state");
    return add(m, &m->stack, &of);
}

/* ---- The memo -------------------------------------------------------------------------------- */

static bool remember(machine *m, int64_t place) {
    const value none = {.kind = MARK};
    if (place >= VALUES_MAX || m->stack.count == 0 || m->stack.at[m->stack.count - 1].kind == MARK)
        return fl_torch_damage(m->r, "its pickle remembers a missing value");
    while (m->memo.count <= (size_t)place)
        if (!add(m, &m->memo, &none))
            return false;
    m->memo.at[place] = m->stack.at[m->stack.count - 1];
    return true;
}

static bool recall(machine *m, int64_t place) {
    if (place < 0 || (uint64_t)place >= m->memo.count || m->memo.at[place].kind == MARK)
        return fl_torch_damage(m->r, "its pickle recalls a value that was never there");
    return add(m, &m->stack, &m->memo.at[place]);
}

/* ---- The machine ----------------------------------------------------------------------------- */

/* One step; *over: the program ended well. */
static bool step(machine *m, bool *over) {
    fl_torch_bytes opcode;
    int64_t        n = 0;
    if (!take(m, 1, &opcode))
        return false;
    switch (opcode.data[0]) {
    case 0x80: /* PROTO */
        if (!take_number(m, 1, &n))
            return false;
        return n == 2 || fl_torch_refuse(m->r, "its pickle is not of protocol 2");
    case '.': *over = true; return true;
    case 'c': return push_global(m);
    case 'q': return take_number(m, 1, &n) && remember(m, n);
    case 'r': return take_number(m, 4, &n) && remember(m, n);
    case 'h': return take_number(m, 1, &n) && recall(m, n);
    case 'j': return take_number(m, 4, &n) && recall(m, n);
    case 'X':
    case 'T': return push_text(m, 4);
    case 'U': return push_text(m, 1);
    case 'K': return take_number(m, 1, &n) && push(m, NUMBER, n);
    case 'M': return take_number(m, 2, &n) && push(m, NUMBER, n);
    case 'J': return take_number(m, 4, &n) && push(m, NUMBER, (int32_t)(uint32_t)n);
    case 0x8a: return push_long(m);
    case 'N': return push(m, NOTHING, 0);
    case 0x88:
    case 0x89: return push(m, FLAG, opcode.data[0] == 0x88);
    case '(': return push(m, MARK, 0);
    case ')': return make_tuple(m, 0, false);
    case 0x85:
    case 0x86:
    case 0x87: return make_tuple(m, (size_t)(opcode.data[0] - 0x84), false);
    case 't': return make_tuple(m, 0, true);
    case ']': return push(m, LIST, 0);
    case 'a': return append(m, false);
    case 'e': return append(m, true);
    case '}': return push(m, DICTIONARY, m->dictionaries++);
    case 's': return put_all(m, false);
    case 'u': return put_all(m, true);
    case 'Q': return name_storage(m);
    case 'R': return call(m);
    case 'b': return build(m);
    default: break;
    }
    char what[48];
    snprintf(what, sizeof what, "its pickle has the opcode 0x%02x", opcode.data[0]);
    return fl_torch_refuse(m->r, what);
}

static bool keep_keys(machine *m, const value *list) {
    fl_torch_reading *r = m->r;
    r->key_count        = 0;
    if (!fl_array_reserve(&r->keys, &r->key_room, (size_t)list->n, sizeof *r->keys))
        return fl_torch_no_memory(r, (size_t)list->n * sizeof *r->keys);
    for (int64_t i = 0; i < list->n; i++) {
        const value *key = &m->items.at[list->first + (size_t)i];
        if (key->kind != TEXT)
            return fl_torch_damage(r, "the list of its storages holds something else than texts");
        r->keys[r->key_count++] = key->text;
    }
    return true;
}

static bool run(machine *m, fl_torch_result what) {
    bool  over = false;
    value result;
    while (!over)
        if (!step(m, &over))
            return false;
    if (!pop(m, &result))
        return false;
    if (result.kind != (what == FL_TORCH_KEYS ? LIST : DICTIONARY) || m->stack.count != 0)
        return fl_torch_refuse(m->r, "its pickle is not of a dictionary alone");
    if (what == FL_TORCH_KEYS)
        return keep_keys(m, &result);
    return what == FL_TORCH_SYSTEM || result.n == 0 ||
           fl_torch_refuse(m->r, "its pickle is not of a dictionary alone");
}

bool fl_torch_run(fl_torch_reading *r, fl_torch_result what) {
    machine m = {.r = r, .dictionaries = what == FL_TORCH_TENSORS ? 0 : 1};
    run(&m, what);
    fl_free(m.stack.at);
    fl_free(m.items.at);
    fl_free(m.memo.at);
    return r->status == 0;
}

void fl_torch_free(fl_torch_reading *r) {
    fl_free(r->tensors);
    fl_free(r->names);
    fl_free(r->keys);
}

/* ---- Failures and small helpers -------------------------------------------------------------- */

bool fl_torch_damage(fl_torch_reading *r, const char *what) {
    if (r->status == 0)
        r->status = fl_fail(r->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %s.", r->source, what);
    return false;
}

bool fl_torch_refuse(fl_torch_reading *r, const char *what) {
    if (r->status == 0)
        r->status = fl_fail(r->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                            "%s: %s; fletch reads a dictionary of tensors that torch.save wrote, "
                            "and runs no code. Save its tensors with safetensors.torch.save_file.",
                            r->source, what);
    return false;
}

bool fl_torch_no_memory(fl_torch_reading *r, size_t size) {
    if (r->status == 0)
        r->status = fl_fail_nomem(r->error, size, r->source);
    return false;
}

bool fl_torch_is(fl_torch_bytes text, const char *word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

uint64_t fl_torch_little(const unsigned char *at, size_t size) {
    uint64_t number = 0;
    for (size_t i = size; i-- > 0;)
        number = number << 8 | at[i];
    return number;
}
