/* SPDX-License-Identifier: Apache-2.0 */
/* torch_file.c - a state_dict that torch.save wrote becomes a table of tensors; nothing of it is run.
 *
 * Role    safetensors.c calls it for pytorch_model.bin and files called .pt. The pickles are read by
 *         torch_pickle.c; this file knows where in a file they and the storages lie.
 * In/Out  Since torch 1.6 a zip archive whose members are stored as they are: NAME/data.pkl, a pickle, and
 *         NAME/data/KEY, the bytes of a storage each. Before, and on request still, five pickles in turn (a
 *         magic number, a version, facts about the machine, the tensors, the keys of the storages) and then each
 *         storage after its number of elements, in the order of the keys.
 * Method  Tensors are views of the file. Those that are not row-major (a transposed weight) are copied in order,
 *         all together never more than the file has bytes.
 * Memory  the table (freed by fl_table_free). Threads: reentrant.
 * Proof   tests/golden/test_torch_files.py, test_token_heads.py, tests/fuzz/fuzz_torch_file.c. */
#include "model/torch_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/torch_pickle.h"

enum { NAME_MAX = 512 };

typedef fl_torch_bytes bytes;

typedef struct archive {
    fl_torch_reading *r;
    bytes             file;
    fl_tensor_table   members; /* files of the archive */
    size_t            folder;  /* length of "NAME/" */
} archive;

/* ---- A zip archive --------------------------------------------------------------------------- */

enum {
    END_SIZE     = 22,
    END64_SIZE   = 56,
    LOCATOR_SIZE = 20,
    MEMBER_SIZE  = 46,
    LOCAL_SIZE   = 30,
    COMMENT_MAX  = 65535
};
#define IN_ZIP64 0xffffffffu /* the number stands in the record of 64 bits */

/* Numbers of the record that ends an archive, or of its elder of 64 bits where one does not hold them. */
typedef struct ending {
    uint64_t count, size, begin;
} ending;

static bool read_ending(archive *a, const unsigned char *end, ending *out) {
    const unsigned char *wide = end - LOCATOR_SIZE;
    *out                      = (ending){fl_torch_little(end + 10, 2), fl_torch_little(end + 12, 4),
                                         fl_torch_little(end + 16, 4)};
    if (fl_torch_little(end + 4, 4) != 0 || fl_torch_little(end + 8, 2) != out->count)
        return fl_torch_refuse(a->r, "its archive lies in several files");
    if (out->count != 0xffff && out->size != IN_ZIP64 && out->begin != IN_ZIP64)
        return true;
    const size_t room = (size_t)(end - a->file.data);
    uint64_t     at   = room < LOCATOR_SIZE ? room : fl_torch_little(wide + 8, 8);
    if (room < LOCATOR_SIZE + END64_SIZE || fl_torch_little(wide, 4) != 0x07064b50 ||
        at > room - LOCATOR_SIZE - END64_SIZE ||
        fl_torch_little(a->file.data + at, 4) != 0x06064b50)
        return fl_torch_damage(a->r, "the list of the archive's members does not lie in it");
    wide = a->file.data + at;
    *out = (ending){fl_torch_little(wide + 32, 8), fl_torch_little(wide + 40, 8),
                    fl_torch_little(wide + 48, 8)};
    return true;
}

/* The list of an archive's members: how many, and where. */
static bool find_list(archive *a, bytes *list, uint64_t *count) {
    const bytes file = a->file;
    if (file.size < END_SIZE)
        return fl_torch_damage(a->r, "the archive has no end: it is truncated");
    size_t at = file.size - END_SIZE, first = at > COMMENT_MAX ? at - COMMENT_MAX : 0;
    while (at > first && (fl_torch_little(file.data + at, 4) != 0x06054b50 ||
                          fl_torch_little(file.data + at + 20, 2) != file.size - at - END_SIZE))
        at--;
    ending end;
    if (fl_torch_little(file.data + at, 4) != 0x06054b50)
        return fl_torch_damage(a->r, "the archive has no end: it is truncated");
    if (!read_ending(a, file.data + at, &end))
        return false;
    if (end.begin > at || end.size > at - end.begin || end.count > end.size / MEMBER_SIZE)
        return fl_torch_damage(a->r, "the list of the archive's members does not lie in it");
    *list  = (bytes){file.data + end.begin, (size_t)end.size};
    *count = end.count;
    return true;
}

/* Where a member lies and how large it is by its record in the list; numbers of 64 bits stand in its extra field. */
typedef struct span {
    uint64_t at, size, stored;
} span;

static span span_of(const unsigned char *record) {
    span                 s      = {fl_torch_little(record + 42, 4), fl_torch_little(record + 24, 4),
                                   fl_torch_little(record + 20, 4)};
    uint64_t *const      wide[] = {&s.size, &s.stored, &s.at}; /* in the order of the field */
    const unsigned char *field  = record + MEMBER_SIZE + fl_torch_little(record + 28, 2);
    size_t               left   = fl_torch_little(record + 30, 2);
    while (left >= 4 && fl_torch_little(field + 2, 2) <= left - 4) {
        const size_t         size = 4 + fl_torch_little(field + 2, 2);
        const unsigned char *at = field + 4, *end = field + size;
        for (size_t i = 0; fl_torch_little(field, 2) == 1 && i < 3; i++)
            if (*wide[i] == IN_ZIP64 && end - at >= 8) {
                *wide[i] = fl_torch_little(at, 8);
                at += 8;
            }
        field = end;
        left -= size;
    }
    return s;
}

/* The bytes of the member that the list's record describes; its own header must agree. */
static bool find_member(archive *a, const unsigned char *record, bytes name, bytes *out) {
    const bytes file = a->file;
    const span  s    = span_of(record);
    if ((fl_torch_little(record + 8, 2) & 1) != 0 || fl_torch_little(record + 10, 2) != 0 ||
        s.stored != s.size)
        return fl_torch_damage(a->r, "a member of the archive is compressed or encrypted");
    if (s.at > file.size || file.size - s.at < LOCAL_SIZE)
        return fl_torch_damage(a->r, "a member of the archive does not lie in it");
    const unsigned char *own = file.data + s.at;
    const uint64_t head = LOCAL_SIZE + fl_torch_little(own + 26, 2) + fl_torch_little(own + 28, 2);
    if (fl_torch_little(own, 4) != 0x04034b50 || head > file.size - s.at ||
        s.size > file.size - s.at - head || fl_torch_little(own + 26, 2) != name.size ||
        memcmp(own + LOCAL_SIZE, name.data, name.size) != 0)
        return fl_torch_damage(a->r, "a member of the archive does not lie in it");
    *out = (bytes){own + head, (size_t)s.size};
    return true;
}

/* Every member by name. */
static bool read_archive(archive *a) {
    bytes    list  = {0};
    uint64_t count = 0;
    size_t   used  = 0;
    if (!find_list(a, &list, &count))
        return false;
    a->members.text = fl_alloc(list.size + count);
    if (a->members.text == NULL)
        return fl_torch_no_memory(a->r, list.size + count);
    for (uint64_t i = 0; i < count; i++) {
        const unsigned char *record = list.data;
        if (list.size < MEMBER_SIZE || fl_torch_little(record, 4) != 0x02014b50)
            return fl_torch_damage(a->r, "the list of the archive's members is damaged");
        bytes name = {record + MEMBER_SIZE, (size_t)fl_torch_little(record + 28, 2)}, content = {0};
        size_t all = MEMBER_SIZE + name.size + (size_t)fl_torch_little(record + 30, 2) +
                     (size_t)fl_torch_little(record + 32, 2);
        if (all > list.size || memchr(name.data, '\0', name.size) != NULL)
            return fl_torch_damage(a->r, "the list of the archive's members is damaged");
        if (!find_member(a, record, name, &content))
            return false;
        char *text = a->members.text + used;
        memcpy(text, name.data, name.size);
        text[name.size] = '\0';
        used += name.size + 1;
        const fl_tensor member = {.data = content.data, .bytes = content.size};
        int             status = fl_table_add(&a->members, text, &member);
        if (status != 0)
            return status < 0 ? fl_torch_no_memory(a->r, sizeof member)
                              : fl_torch_damage(a->r, "two members of the archive have one name");
        if (i == 0 && (a->folder = strcspn(text, "/") + 1) > name.size)
            return fl_torch_refuse(a->r, "its members have no folder");
        list = (bytes){list.data + all, list.size - all};
    }
    return count > 0 || fl_torch_damage(a->r, "the archive is empty");
}

/* NAME/`folder``key`, or NULL. */
static const fl_tensor *find(const archive *a, const char *folder, bytes key) {
    char   name[NAME_MAX];
    size_t size = strlen(folder);
    if (a->folder + size + key.size >= sizeof name || memchr(key.data, '\0', key.size) != NULL)
        return NULL;
    memcpy(name, a->members.names[0], a->folder);
    memcpy(name + a->folder, folder, size);
    memcpy(name + a->folder + size, key.data, key.size);
    name[a->folder + size + key.size] = '\0';
    return fl_table_find(&a->members, name);
}

static bool read_members(archive *a) {
    fl_torch_reading *r    = a->r;
    const bytes       none = {a->file.data, 0};
    if (!read_archive(a))
        return false;
    const fl_tensor *program = find(a, "data.pkl", none), *order = find(a, "byteorder", none);
    if (program == NULL)
        return fl_torch_damage(r, "the archive has no data.pkl");
    if (order != NULL && !fl_torch_is((bytes){order->data, (size_t)order->bytes}, "little"))
        return fl_torch_refuse(r, "its numbers are big-endian");
    r->program = (bytes){program->data, (size_t)program->bytes};
    if (!fl_torch_run(r, FL_TORCH_TENSORS))
        return false;
    for (size_t i = 0; i < r->tensor_count; i++) {
        fl_torch_tensor *t      = &r->tensors[i];
        const fl_tensor *stored = find(a, "data/", t->key);
        const uint64_t   width  = fl_dtype_bytes(t->view.dtype, 1);
        if (stored == NULL || stored->bytes / width != t->elements || stored->bytes % width != 0)
            return fl_torch_damage(r, "a storage is missing, or not as large as its tensors say");
        t->storage = stored->data;
    }
    return true;
}

static bool read_zip(fl_torch_reading *r, bytes file) {
    archive a = {.r = r, .file = file};
    fl_table_init(&a.members);
    bool read = read_members(&a);
    fl_table_free(&a.members);
    return read;
}

/* ---- The older format ------------------------------------------------------------------------ */

/* Pickles of the magic number and of version 1001, as every torch wrote them. */
static const unsigned char magic[]   = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                        0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
static const unsigned char version[] = {0x80, 2, 'M', 0xe9, 3, '.'};

static int by_key(const void *a, const void *b) {
    const fl_torch_tensor *const *one = a, *const *two = b;
    const bytes                   x = (*one)->key, y = (*two)->key;
    const int                     order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order != 0 ? order : (x.size > y.size) - (x.size < y.size);
}

/* The storage of `key` is what comes next; every tensor of it is told so. */
static bool take_storage(fl_torch_reading *r, fl_torch_tensor **sorted, bytes key) {
    fl_torch_tensor         wanted = {.key = key}, *want = &wanted;
    fl_torch_tensor *const *found = bsearch(&want, sorted, r->tensor_count, sizeof *sorted, by_key);
    if (found == NULL)
        return fl_torch_refuse(r, "it has a storage that no tensor names");
    while (found > sorted && by_key(found - 1, found) == 0)
        found--;
    const fl_torch_tensor *first = *found;
    const uint64_t         width = fl_dtype_bytes(first->view.dtype, 1);
    if (r->program.size < 8 || fl_torch_little(r->program.data, 8) != first->elements ||
        first->elements > (r->program.size - 8) / width || first->storage != NULL)
        return fl_torch_damage(r, "a storage is missing, or not as large as its tensors say");
    for (; found < sorted + r->tensor_count && by_key(found, (const void *)&want) == 0; found++) {
        if ((*found)->view.dtype != first->view.dtype || (*found)->elements != first->elements)
            return fl_torch_damage(r, "two tensors disagree on the storage that they share");
        (*found)->storage = r->program.data + 8;
    }
    const size_t size = 8 + (size_t)(first->elements * width);
    r->program        = (bytes){r->program.data + size, r->program.size - size};
    return true;
}

static bool read_old(fl_torch_reading *r, bytes file) {
    if (file.size < sizeof magic + sizeof version ||
        memcmp(file.data + sizeof magic, version, sizeof version) != 0)
        return fl_torch_refuse(r, "its format has another version than 1001");
    const size_t head = sizeof magic + sizeof version;
    r->program        = (bytes){file.data + head, file.size - head};
    if (!fl_torch_run(r, FL_TORCH_SYSTEM) || !fl_torch_run(r, FL_TORCH_TENSORS) ||
        !fl_torch_run(r, FL_TORCH_KEYS))
        return false;
    fl_torch_tensor **sorted = fl_alloc_array(r->tensor_count + 1, sizeof *sorted);
    if (sorted == NULL)
        return fl_torch_no_memory(r, (r->tensor_count + 1) * sizeof *sorted);
    for (size_t i = 0; i < r->tensor_count; i++)
        sorted[i] = &r->tensors[i];
    qsort(sorted, r->tensor_count, sizeof *sorted, by_key);
    for (size_t i = 0; i < r->key_count && take_storage(r, sorted, r->keys[i]); i++) {
    }
    fl_free(sorted);
    return r->status == 0;
}

/* ---- The table ------------------------------------------------------------------------------- */

static bool is_row_major(const fl_torch_tensor *t) {
    uint64_t count = 1;
    for (uint32_t i = t->view.rank; i-- > 0; count *= t->view.shape[i])
        if (t->view.shape[i] > 1 && t->stride[i] != count)
            return false;
    return true;
}

/* The elements in row-major order to `out`. */
static void copy_in_order(const fl_torch_tensor *t, unsigned char *out) {
    const size_t width           = fl_dtype_bytes(t->view.dtype, 1);
    uint64_t     at[FL_RANK_MAX] = {0}, place = t->offset;
    for (uint64_t left = t->view.bytes / width; left > 0; left--, out += width) {
        memcpy(out, t->storage + place * width, width);
        for (uint32_t i = t->view.rank; i-- > 0;) {
            place += t->stride[i];
            if (++at[i] < t->view.shape[i])
                break;
            place -= t->stride[i] * t->view.shape[i];
            at[i] = 0;
        }
    }
}

/* Every tensor with a name gets its place: in the file, or in out->copies. */
static bool place_tensors(fl_torch_reading *r, fl_tensor_table *out, size_t size) {
    uint64_t total = 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        fl_torch_tensor *t = &r->tensors[i];
        if (t->storage == NULL)
            return fl_torch_damage(r, "a storage is missing, or not as large as its tensors say");
        t->view.data = t->storage + fl_dtype_bytes(t->view.dtype, t->offset);
        if (is_row_major(t))
            continue;
        t->view.data = NULL;
        if (t->view.bytes > size - total)
            return fl_torch_refuse(r, "its tensors repeat their storages");
        total += t->view.bytes;
    }
    unsigned char *copy = out->copies = total > 0 ? fl_alloc((size_t)total) : NULL;
    if (total > 0 && copy == NULL)
        return fl_torch_no_memory(r, (size_t)total);
    for (size_t i = 0; i < r->tensor_count; i++) {
        fl_torch_tensor *t = &r->tensors[i];
        if (t->view.data == NULL) {
            copy_in_order(t, copy);
            t->view.data = copy;
            copy += t->view.bytes;
        }
    }
    return true;
}

static bool fill_table(fl_torch_reading *r, fl_tensor_table *out) {
    size_t room = 1;
    for (size_t i = 0; i < r->name_count; i++)
        room += r->names[i].name.size + 1;
    out->text = fl_alloc(room);
    if (out->text == NULL)
        return fl_torch_no_memory(r, room);
    char *text = out->text;
    for (size_t i = 0; i < r->name_count; i++) {
        const bytes name = r->names[i].name;
        memcpy(text, name.data, name.size);
        text[name.size] = '\0';
        int status      = fl_table_add(out, text, &r->tensors[r->names[i].tensor].view);
        if (status != 0)
            return status < 0 ? fl_torch_no_memory(r, sizeof(fl_tensor))
                              : fl_torch_damage(r, "two tensors have one name");
        text += name.size + 1;
    }
    return true;
}

bool fl_torch_begins(const unsigned char *data, size_t size) {
    return (size >= 4 && fl_torch_little(data, 4) == 0x04034b50) ||
           (size >= sizeof magic && memcmp(data, magic, sizeof magic) == 0);
}

int fl_torch_read(fl_tensor_table *out, const unsigned char *data, size_t size, const char *source,
                  fletch_error *error) {
    fl_torch_reading r    = {.source = source, .error = error};
    const bytes      file = {data, size};
    fl_table_init(out);
    bool read = !fl_torch_begins(data, size)
                    ? fl_torch_refuse(&r, "it does not begin as a file of torch.save")
                : data[0] == magic[0] ? read_old(&r, file)
                                      : read_zip(&r, file);
    if (read && place_tensors(&r, out, size))
        fill_table(&r, out);
    fl_torch_free(&r);
    if (r.status != 0)
        fl_table_free(out);
    return r.status;
}
