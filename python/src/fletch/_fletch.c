/* SPDX-License-Identifier: Apache-2.0 */
/* _fletch.c - the door between Python and libfletch: texts in without copies, rows out where Python owns them.
 *
 * Role    the package's Python files are the interface; this file is what they stand on. On fletch.h and
 *         CPython's limited API (3.11 and later) alone.
 * Law     No thread of the library ever enters Python. A done callback fills a struct of C, wakes a waiting
 *         thread or writes an eventfd; log lines go to a ring that the next call from Python empties. So the
 *         interpreter's lock, its end, and fork stay simple.
 * Types   Texts    str, sequences of str and Arrow columns as fletch_texts; keeps what it points into alive.
 *         Handle   an open model. Callers inside the library are counted, and the last one out of a closed
 *                  handle closes the model, so that close() beside embed() is no race.
 *         Channel  an eventfd and a list of requests that ended: what an asyncio loop listens to.
 *         Job      one such request, with all that it borrows.
 * Ctrl-C  A call of more than a handful of texts goes in windows, two of them in flight, and its thread looks
 *         at Python's signals every 100 ms: an interrupt cancels and raises.
 * Fork    A child must not touch its parent's model, whose threads it has not: fork_child() marks a new
 *         generation, enter() refuses handles of older ones, and Model opens its own again. An eventfd is one
 *         for both processes: a channel of an older generation is closed, never read.
 * Proof   python/tests. */
#define PY_SSIZE_T_CLEAN
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "fletch.h"

enum {
    DIRECT_TEXTS = 32,        /* up to here one blocking call: the caller's thread carries the batch */
    DIRECT_BYTES = 64 * 1024, /* and short enough that nobody waits to interrupt it */
    WINDOW_TEXTS = 4096,
    WINDOW_BYTES = 4 * 1024 * 1024,
    FLIGHTS      = 2,
    POLL_MS      = 100,
    LOG_LINES    = 64
};

/* ---- Errors ---------------------------------------------------------------------------------------- */

static PyObject *errors; /* {code: class}, given by errors.py */

static PyObject *make_error(int code, size_t where, const char *message) {
    PyObject *key   = PyLong_FromLong(code);
    PyObject *class = errors != NULL && key != NULL ? PyDict_GetItemWithError(errors, key) : NULL;
    PyObject *made  = PyObject_CallFunction(class != NULL ? class : PyExc_RuntimeError, "s", message);
    PyObject *place = where == FLETCH_NOWHERE ? Py_NewRef(Py_None) : PyLong_FromSize_t(where);
    PyObject *name  = PyUnicode_FromString(fletch_status_name(code));
    if (made != NULL && class != NULL && place != NULL && name != NULL) {
        (void)PyObject_SetAttrString(made, "where", place);
        (void)PyObject_SetAttrString(made, "code", name);
    }
    Py_XDECREF(key);
    Py_XDECREF(place);
    Py_XDECREF(name);
    return made;
}

static void *raise_error(int code, size_t where, const char *message) {
    PyObject *made = make_error(code, where, message);
    if (made != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(made), made);
        Py_DECREF(made);
    }
    return NULL;
}

static void *raise_fletch(const fletch_error *error) {
    return raise_error(error->code, error->where, error->message);
}

/* ---- Log lines, kept until Python comes by ------------------------------------------------------------ */

static struct {
    pthread_mutex_t lock;
    atomic_uint     count;
    struct {
        int  level;
        char text[512];
    } line[LOG_LINES];
} lines = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_log(void *user, int level, const char *message) {
    (void)user;
    pthread_mutex_lock(&lines.lock);
    unsigned count = atomic_load(&lines.count);
    if (count < LOG_LINES) {
        lines.line[count].level = level;
        snprintf(lines.line[count].text, sizeof lines.line[count].text, "%s", message);
        atomic_store(&lines.count, count + 1);
    } /* else: 64 lines that nobody fetched say enough */
    pthread_mutex_unlock(&lines.lock);
}

/* [(level, text), …]. Copied out first: making objects may run anything, a close that logs among it. */
static PyObject *take_log(PyObject *self, PyObject *none) {
    PyObject *list = PyList_New(0);
    void     *copy = malloc(sizeof lines.line);
    (void)self, (void)none;
    if (list == NULL || copy == NULL) {
        free(copy);
        return list;
    }
    __typeof__(&lines.line[0]) line = copy;
    pthread_mutex_lock(&lines.lock);
    unsigned count = atomic_exchange(&lines.count, 0);
    memcpy(copy, lines.line, count * sizeof lines.line[0]);
    pthread_mutex_unlock(&lines.lock);
    for (unsigned i = 0; i < count; i++) {
        PyObject *text = PyUnicode_DecodeUTF8(line[i].text, (Py_ssize_t)strlen(line[i].text), "replace");
        PyObject *pair = text != NULL ? Py_BuildValue("(iN)", line[i].level, text) : NULL;
        if (pair == NULL || PyList_Append(list, pair) < 0) {
            PyErr_Clear();
        }
        Py_XDECREF(pair);
    }
    free(copy);
    return list;
}

static PyObject *log_waits(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return PyBool_FromLong(atomic_load(&lines.count) != 0);
}

/* ---- Fork ---------------------------------------------------------------------------------------------- */

static unsigned generation;

/* Jobs whose loop went away first: ended, and freed at the next submit. */
static struct {
    pthread_mutex_t lock;
    struct Job     *first;
} orphans = {.lock = PTHREAD_MUTEX_INITIALIZER};

static PyObject *fork_child(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    generation++;
    pthread_mutex_init(&lines.lock, NULL); /* another thread of the parent may have held it */
    pthread_mutex_init(&orphans.lock, NULL);
    orphans.first = NULL;
    Py_RETURN_NONE;
}

/* ---- Arrow's C data interface: the published structs ---------------------------------------------------- */

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t     flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t             length, null_count, offset, n_buffers, n_children;
    const void        **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

/* ---- Texts ---------------------------------------------------------------------------------------------- */

typedef struct Texts {
    PyObject_HEAD
    fletch_texts       view;
    PyObject          *owner; /* the str, or a tuple of them */
    const char        *one;   /* a single text needs no arrays */
    size_t             one_size;
    const char       **pointers; /* owned, or NULL */
    size_t            *lengths;
    struct ArrowArray *chunks; /* owned [chunk_count], moved in */
    size_t             chunk_count;
    uint8_t           *nulls; /* owned [count]; NULL: no row is null */
    size_t             null_count;
} Texts;

static PyTypeObject *texts_type;

static void Texts_dealloc(PyObject *self) {
    Texts        *texts = (Texts *)self;
    PyTypeObject *type  = Py_TYPE(self);
    Py_XDECREF(texts->owner);
    for (size_t i = 0; i < texts->chunk_count; i++) {
        if (texts->chunks[i].release != NULL) {
            texts->chunks[i].release(&texts->chunks[i]);
        }
    }
    free(texts->chunks);
    free(texts->pointers);
    free(texts->lengths);
    free(texts->nulls);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static bool make_room(Texts *texts, size_t count) {
    texts->pointers = malloc((count + 1) * sizeof *texts->pointers);
    texts->lengths  = malloc((count + 1) * sizeof *texts->lengths);
    if (texts->pointers == NULL || texts->lengths == NULL) {
        PyErr_NoMemory();
        return false;
    }
    texts->view = (fletch_texts){.count = count, .pointers = texts->pointers, .lengths = texts->lengths};
    return true;
}

/* Row `row` of `count` has no text. Refused, unless the caller takes null rows. */
static bool mark_null(Texts *texts, size_t row, size_t count, bool allowed) {
    if (!allowed) {
        PyErr_Format(PyExc_ValueError,
                     "text %zu is null; fill the nulls, drop them, or ask for on_error='null'", row);
        return false;
    }
    if (texts->nulls == NULL && (texts->nulls = calloc(count + 1, 1)) == NULL) {
        PyErr_NoMemory();
        return false;
    }
    texts->nulls[row] = 1;
    texts->null_count++;
    texts->pointers[row] = "";
    texts->lengths[row]  = 0;
    return true;
}

/* The bytes of a str; they live as long as it does. */
static const char *utf8_of(PyObject *item, size_t index, size_t *size) {
    Py_ssize_t  length = 0;
    const char *bytes  = PyUnicode_AsUTF8AndSize(item, &length);
    *size              = (size_t)length;
    if (bytes == NULL && PyErr_ExceptionMatches(PyExc_UnicodeError)) {
        char message[160];
        PyErr_Clear();
        snprintf(message, sizeof message,
                 "text %zu holds a lone surrogate, which no UTF-8 can say; "
                 "text.encode('utf-8', 'replace').decode() drops it", index);
        raise_error(FLETCH_EUTF8, index, message);
    }
    return bytes;
}

static bool take_tuple(Texts *texts, bool nulls) {
    size_t count = (size_t)PyTuple_Size(texts->owner);
    if (!make_room(texts, count)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(texts->owner, (Py_ssize_t)i); /* ours holds it */
        if (PyUnicode_Check(item)) {
            texts->pointers[i] = utf8_of(item, i, &texts->lengths[i]);
            if (texts->pointers[i] == NULL) {
                return false;
            }
        } else if (item == Py_None && nulls) {
            if (!mark_null(texts, i, count, true)) {
                return false;
            }
        } else {
            PyObject *name = PyType_GetName(Py_TYPE(item));
            PyErr_Format(PyExc_TypeError, "text %zu is %U, not str", i, name);
            Py_XDECREF(name);
            return false;
        }
    }
    return true;
}

/* How a column's values are laid out: the first letters of Arrow's formats. */
static bool is_text_format(const char *format) {
    return strcmp(format, "u") == 0 || strcmp(format, "U") == 0 || strcmp(format, "vu") == 0;
}

static bool is_valid(const struct ArrowArray *array, int64_t index) {
    const uint8_t *bits = array->n_buffers > 0 && array->null_count != 0 ? array->buffers[0] : NULL;
    return bits == NULL || (bits[(array->offset + index) / 8] >> ((array->offset + index) % 8) & 1);
}

static void value_at(const struct ArrowArray *array, const char *format, int64_t index, const char **text,
                     size_t *size) {
    int64_t at = array->offset + index;
    if (format[0] == 'v') {
        const unsigned char *view = (const unsigned char *)array->buffers[1] + 16 * at;
        int32_t              word[4]; /* length, prefix, buffer, offset */
        memcpy(word, view, sizeof word);
        *size = (size_t)word[0];
        *text = word[0] <= 12 ? (const char *)view + 4 : (const char *)array->buffers[2 + word[2]] + word[3];
    } else if (format[0] == 'u') {
        const int32_t *offsets = array->buffers[1];
        *text                  = (const char *)array->buffers[2] + offsets[at];
        *size                  = (size_t)(offsets[at + 1] - offsets[at]);
    } else {
        const int64_t *offsets = array->buffers[1];
        *text                  = (const char *)array->buffers[2] + offsets[at];
        *size                  = (size_t)(offsets[at + 1] - offsets[at]);
    }
}

/* A dictionary's index, which has one of eight widths. */
static int64_t key_at(const struct ArrowArray *array, char format, int64_t index) {
    int64_t     at   = array->offset + index;
    const void *keys = array->buffers[1];
    switch (format) {
    case 'c': return ((const int8_t *)keys)[at];
    case 'C': return ((const uint8_t *)keys)[at];
    case 's': return ((const int16_t *)keys)[at];
    case 'S': return ((const uint16_t *)keys)[at];
    case 'i': return ((const int32_t *)keys)[at];
    case 'I': return ((const uint32_t *)keys)[at];
    default: return ((const int64_t *)keys)[at];
    }
}

static bool take_chunk(Texts *texts, const struct ArrowArray *array, const struct ArrowSchema *schema,
                       size_t first, size_t count, bool nulls) {
    const struct ArrowArray *values = schema->dictionary != NULL ? array->dictionary : array;
    const char              *format = schema->dictionary != NULL ? schema->dictionary->format : schema->format;
    for (int64_t i = 0; i < array->length; i++) {
        size_t  row   = first + (size_t)i;
        int64_t index = i;
        bool    valid = is_valid(array, i);
        if (valid && values != array) {
            index = key_at(array, schema->format[0], i);
            if (index < 0 || index >= values->length) {
                PyErr_Format(PyExc_ValueError, "text %zu: its dictionary has no entry %lld", row, (long long)index);
                return false;
            }
            valid = is_valid(values, index);
        }
        if (valid) {
            value_at(values, format, index, &texts->pointers[row], &texts->lengths[row]);
        } else if (!mark_null(texts, row, count, nulls)) {
            return false;
        }
    }
    return true;
}

static bool take_chunks(Texts *texts, const struct ArrowSchema *schema, bool nulls) {
    const char *format = schema->dictionary != NULL ? schema->dictionary->format : schema->format;
    size_t      count  = 0;
    if (!is_text_format(format) || (schema->dictionary != NULL && strchr("cCsSiIlL", schema->format[0]) == NULL)) {
        PyErr_Format(PyExc_TypeError,
                     "an Arrow column of format '%s' is not text (string, large_string, string_view, or a "
                     "dictionary of these)%s", format,
                     schema->format[0] == '+' ? "; pass one column of a table, not the table" : "; cast it to string");
        return false;
    }
    for (size_t i = 0; i < texts->chunk_count; i++) {
        count += (size_t)texts->chunks[i].length;
    }
    const struct ArrowArray *only = texts->chunk_count == 1 ? texts->chunks : NULL;
    if (only != NULL && count > 0 && schema->dictionary == NULL && format[0] != 'v' &&
        (only->null_count == 0 || only->buffers[0] == NULL)) {
        texts->view = (fletch_texts){.count = count, .bytes = only->buffers[2]};
        if (format[0] == 'u') {
            texts->view.offsets32 = (const int32_t *)only->buffers[1] + only->offset;
        } else {
            texts->view.offsets64 = (const int64_t *)only->buffers[1] + only->offset;
        }
        if (texts->view.bytes == NULL) {
            texts->view.bytes = ""; /* all of them are empty */
        }
        return true;
    }
    if (!make_room(texts, count)) {
        return false;
    }
    for (size_t i = 0, first = 0; i < texts->chunk_count; i++) {
        if (!take_chunk(texts, &texts->chunks[i], schema, first, count, nulls)) {
            return false;
        }
        first += (size_t)texts->chunks[i].length;
    }
    return true;
}

static void *capsule(PyObject *object, const char *name) {
    void *pointer = PyCapsule_GetPointer(object, name);
    if (pointer == NULL) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "not an Arrow capsule named '%s'", name);
    }
    return pointer;
}

static bool take_array(Texts *texts, PyObject *pair, bool nulls) {
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "__arrow_c_array__ must give a schema and an array");
        return false;
    }
    struct ArrowSchema *schema = capsule(PyTuple_GetItem(pair, 0), "arrow_schema");
    struct ArrowArray  *array  = schema != NULL ? capsule(PyTuple_GetItem(pair, 1), "arrow_array") : NULL;
    if (array == NULL) {
        return false;
    }
    if (schema->release == NULL || array->release == NULL) {
        PyErr_SetString(PyExc_ValueError, "the Arrow capsule was consumed already");
        return false;
    }
    if ((texts->chunks = malloc(sizeof *texts->chunks)) == NULL) {
        PyErr_NoMemory();
        return false;
    }
    texts->chunks[0]   = *array;
    texts->chunk_count = 1;
    array->release     = NULL; /* moved */
    return take_chunks(texts, schema, nulls);
}

/* A producer may run for long, or come back into Python from a thread of its own: the GIL is let go. */
static bool take_stream(Texts *texts, PyObject *object, bool nulls) {
    struct ArrowArrayStream *stream = capsule(object, "arrow_array_stream");
    struct ArrowSchema       schema = {.release = NULL};
    size_t                   room   = 0;
    int                      failed;
    if (stream == NULL) {
        return false;
    }
    if (stream->release == NULL) {
        PyErr_SetString(PyExc_ValueError, "the Arrow stream was consumed already");
        return false;
    }
    Py_BEGIN_ALLOW_THREADS
    failed = stream->get_schema(stream, &schema);
    while (failed == 0) {
        if (texts->chunk_count == room) {
            struct ArrowArray *grown = realloc(texts->chunks, (room = room * 2 + 4) * sizeof *grown);
            if (grown == NULL) {
                failed = ENOMEM;
                break;
            }
            texts->chunks = grown;
        }
        struct ArrowArray *next = &texts->chunks[texts->chunk_count];
        next->release           = NULL;
        failed                  = stream->get_next(stream, next);
        if (failed != 0 || next->release == NULL) {
            break;
        }
        texts->chunk_count++;
    }
    Py_END_ALLOW_THREADS
    bool good = false;
    if (failed != 0) {
        const char *words = stream->get_last_error(stream);
        PyErr_Format(PyExc_ValueError, "the Arrow stream failed: %s", words != NULL ? words : strerror(failed));
    } else {
        good = take_chunks(texts, &schema, nulls);
    }
    if (schema.release != NULL) {
        schema.release(&schema);
    }
    stream->release(stream);
    return good;
}

/* make_texts(texts, nulls, arrow): a str or a sequence of str; or, where `arrow` says so, the pair that
 * __arrow_c_array__ gives or the capsule of __arrow_c_stream__. */
static PyObject *make_texts(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "make_texts takes texts, nulls and arrow");
        return NULL;
    }
    Texts *texts = (Texts *)((allocfunc)PyType_GetSlot(texts_type, Py_tp_alloc))(texts_type, 0);
    bool   nulls = args[1] == Py_True, good = false;
    if (texts == NULL) {
        return NULL;
    }
    if (args[2] == Py_True) {
        good = PyTuple_Check(args[0]) ? take_array(texts, args[0], nulls) : take_stream(texts, args[0], nulls);
    } else if (PyUnicode_Check(args[0])) {
        texts->owner = Py_NewRef(args[0]);
        texts->one   = utf8_of(args[0], 0, &texts->one_size);
        texts->view  = (fletch_texts){.count = 1, .pointers = &texts->one, .lengths = &texts->one_size};
        good         = texts->one != NULL;
    } else {
        texts->owner = PySequence_Tuple(args[0]); /* a snapshot: others may change the list meanwhile */
        good         = texts->owner != NULL && take_tuple(texts, nulls);
    }
    if (!good) {
        Py_DECREF((PyObject *)texts);
        return NULL;
    }
    return (PyObject *)texts;
}

static Py_ssize_t Texts_length(PyObject *self) {
    return (Py_ssize_t)((Texts *)self)->view.count;
}

/* The rows that are null as bytes of 0 and 1, or None. */
static PyObject *Texts_nulls(PyObject *self, void *closure) {
    const Texts *texts = (Texts *)self;
    (void)closure;
    if (texts->null_count == 0) {
        Py_RETURN_NONE;
    }
    return PyBytes_FromStringAndSize((const char *)texts->nulls, (Py_ssize_t)texts->view.count);
}

static PyGetSetDef Texts_getset[] = {{"nulls", Texts_nulls, NULL, NULL, NULL}, {NULL}};
static PyType_Slot Texts_slots[]  = {{Py_tp_dealloc, Texts_dealloc}, {Py_sq_length, Texts_length},
                                     {Py_tp_getset, Texts_getset}, {0, NULL}};
static PyType_Spec Texts_spec     = {"fletch._fletch.Texts", sizeof(Texts), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, Texts_slots};

/* Texts [first, first + count) of a view. */
static fletch_texts part(const fletch_texts *all, size_t first, size_t count) {
    fletch_texts texts = *all;
    texts.count        = count;
    texts.pointers     = all->pointers != NULL ? all->pointers + first : NULL;
    texts.lengths      = all->lengths != NULL ? all->lengths + first : NULL;
    texts.offsets32    = all->offsets32 != NULL ? all->offsets32 + first : NULL;
    texts.offsets64    = all->offsets64 != NULL ? all->offsets64 + first : NULL;
    return texts;
}

static size_t size_of(const fletch_texts *texts, size_t i) {
    return texts->lengths != NULL     ? texts->lengths[i]
           : texts->offsets32 != NULL ? (size_t)(texts->offsets32[i + 1] - texts->offsets32[i])
                                      : (size_t)(texts->offsets64[i + 1] - texts->offsets64[i]);
}

/* How many texts from `first` make a window. */
static size_t window_at(const fletch_texts *texts, size_t first, size_t texts_max, size_t bytes_max) {
    size_t count = 0, bytes = 0;
    while (first + count < texts->count && count < texts_max && (count == 0 || bytes < bytes_max)) {
        bytes += size_of(texts, first + count);
        count++;
    }
    return count;
}

/* ---- Handle: an open model -------------------------------------------------------------------------------- */

typedef struct Handle {
    PyObject_HEAD
    fletch_model   *model;
    pthread_mutex_t lock;
    unsigned        callers;    /* inside the library now */
    unsigned        generation; /* of fork_child */
    bool            closed;
} Handle;

static PyTypeObject *handle_type;

static bool enter(Handle *handle) {
    if (handle->generation != generation) {
        PyErr_SetString(PyExc_RuntimeError, "this model belongs to the parent process");
        return false;
    }
    pthread_mutex_lock(&handle->lock);
    bool open = !handle->closed;
    handle->callers += open;
    pthread_mutex_unlock(&handle->lock);
    if (!open) {
        raise_error(FLETCH_ECANCELLED, FLETCH_NOWHERE, "the model is closed");
    }
    return open;
}

static void leave(Handle *handle) {
    pthread_mutex_lock(&handle->lock);
    bool last = --handle->callers == 0 && handle->closed;
    pthread_mutex_unlock(&handle->lock);
    if (last) {
        Py_BEGIN_ALLOW_THREADS
        fletch_close(handle->model);
        Py_END_ALLOW_THREADS
    }
}

static PyObject *Handle_close(PyObject *self, PyObject *none) {
    Handle *handle = (Handle *)self;
    (void)none;
    if (handle->generation == generation) {
        pthread_mutex_lock(&handle->lock);
        bool ours      = !handle->closed;
        handle->closed = true;
        handle->callers += ours; /* leave() closes, when nobody else is inside */
        pthread_mutex_unlock(&handle->lock);
        if (ours) {
            leave(handle);
        }
    }
    Py_RETURN_NONE;
}

static void Handle_dealloc(PyObject *self) {
    PyTypeObject *type   = Py_TYPE(self);
    Handle       *handle = (Handle *)self;
    if (handle->model != NULL) {
        Py_XDECREF(Handle_close(self, NULL)); /* nothing in a child: it is the parent's */
    }
    pthread_mutex_destroy(&handle->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int set_options(fletch_config *config, PyObject *options, fletch_error *error) {
    int status = FLETCH_OK;
    for (Py_ssize_t i = 0; status == FLETCH_OK && i < PyTuple_Size(options); i++) {
        const char *key, *value;
        if (!PyArg_ParseTuple(PyTuple_GetItem(options, i), "ss", &key, &value)) {
            return 1;
        }
        status = strcmp(key, "preset") == 0  ? fletch_config_preset(config, value, error)
                 : strcmp(key, "env") == 0   ? fletch_config_load_env(config, error)
                 : strcmp(key, "file") == 0  ? fletch_config_load(config, value, error)
                                             : fletch_config_set(config, key, value, error);
    }
    return status;
}

/* A configuration of (key, value) pairs, of which preset, env and file are calls of their own; NULL: raised. */
static fletch_config *make_config(PyObject *options) {
    fletch_error   error  = {0};
    fletch_config *config = fletch_config_new();
    if (config == NULL) {
        return PyErr_NoMemory(), NULL;
    }
    int status = set_options(config, options, &error);
    if (status != FLETCH_OK) {
        fletch_config_free(config);
        return status < 0 ? raise_fletch(&error) : NULL;
    }
    fletch_config_set_log(config, on_log, NULL);
    return config;
}

/* open_model(name or None, ((key, value), …), tokenizer_only) -> Handle */
static PyObject *open_model(PyObject *self, PyObject *args) {
    const char   *name;
    PyObject     *options;
    int           tokenizer_only, status;
    fletch_error  error = {0};
    fletch_model *model = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "zOp", &name, &options, &tokenizer_only)) {
        return NULL;
    }
    fletch_config *config = make_config(options);
    if (config == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = tokenizer_only ? fletch_open_tokenizer(&model, name, config, &error)
                            : fletch_open(&model, name, config, &error);
    Py_END_ALLOW_THREADS
    fletch_config_free(config);
    if (status < 0) {
        return raise_fletch(&error);
    }
    Handle *handle = (Handle *)((allocfunc)PyType_GetSlot(handle_type, Py_tp_alloc))(handle_type, 0);
    if (handle == NULL) {
        fletch_close(model);
        return NULL;
    }
    handle->model      = model;
    handle->generation = generation;
    pthread_mutex_init(&handle->lock, NULL);
    return (PyObject *)handle;
}

/* ---- What an embedding borrows ----------------------------------------------------------------------------- */

typedef struct work {
    Handle              *handle; /* owned, as all here */
    Texts               *texts;
    PyObject            *prompt, *prompt_name; /* the str whose bytes the request points at */
    Py_buffer            out, tokens, truncated, status;
    fletch_request       request;
    fletch_embed_options options; /* the request's */
} work;

static void work_free(work *w) {
    Py_XDECREF((PyObject *)w->handle);
    Py_XDECREF((PyObject *)w->texts);
    Py_XDECREF(w->prompt);
    Py_XDECREF(w->prompt_name);
    Py_buffer *views[] = {&w->out, &w->tokens, &w->truncated, &w->status};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        if (views[i]->obj != NULL) {
            PyBuffer_Release(views[i]);
        }
    }
}

/* The caller's matrix: writable, one row a text, values of a row side by side. */
static bool take_out(work *w, PyObject *out, fletch_dtype dtype, size_t cols) {
    static const char *const formats[] = {"f", "b", "B", "b", "B"};
    Py_buffer               *view      = &w->out;
    if (PyObject_GetBuffer(out, view, PyBUF_WRITABLE | PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            PyErr_SetString(PyExc_ValueError, "out cannot be written: it is read-only");
        }
        return false;
    }
    size_t      count  = w->texts->view.count, width = fletch_row_bytes(cols, dtype);
    size_t      item   = dtype == FLETCH_FLOAT32 ? sizeof(float) : 1;
    const char *format = view->format != NULL ? view->format : "B";
    format += *format == '<' || *format == '=' || *format == '@';
    if (strcmp(format, formats[dtype]) != 0 || (size_t)view->itemsize != item) {
        PyErr_Format(PyExc_ValueError, "out holds items of format '%s'; this dtype needs '%s'", view->format,
                     formats[dtype]);
        return false;
    }
    bool   flat = view->ndim == 1 && count == 1;
    size_t rows = flat ? 1 : view->ndim == 2 ? (size_t)view->shape[0] : 0;
    size_t wide = view->ndim > 0 ? (size_t)view->shape[view->ndim - 1] * item : 0;
    if ((!flat && view->ndim != 2) || rows != count || wide != width) {
        PyErr_Format(PyExc_ValueError, "out must have the shape (%zu, %zu)", count, width / item);
        return false;
    }
    Py_ssize_t stride = flat || rows == 1 ? (Py_ssize_t)width : view->strides[0];
    if ((size_t)view->strides[view->ndim - 1] != item || stride < (Py_ssize_t)width) {
        PyErr_SetString(PyExc_ValueError, "the values of a row of out must lie side by side, row after row");
        return false;
    }
    w->request.out = (fletch_matrix){view->buf, count, cols, (size_t)stride, dtype};
    return true;
}

static void *take_facts(Py_buffer *view, PyObject *object, size_t bytes) {
    if (object == Py_None || PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    if ((size_t)view->len < bytes) {
        PyErr_SetString(PyExc_ValueError, "a buffer for facts about texts is too small");
        return NULL;
    }
    return view->buf;
}

/* A prompt is a C string for the library. */
static const char *take_prompt(PyObject **owner, PyObject *text, const char *what) {
    Py_ssize_t  size  = 0;
    const char *bytes = text == Py_None ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL) {
        return NULL;
    }
    if (strlen(bytes) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "a NUL character cannot be part of %s", what);
        return NULL;
    }
    *owner = Py_NewRef(text);
    return bytes;
}

/* (handle, texts, out, dtype, cols, prompt, prompt_name, dimensions, max_length, normalize, truncate, tokens,
 * truncated, status) to a request; false: raised. */
enum { WORK_ARGS = 13 };

static bool work_take(work *w, PyObject *handle, PyObject *const *args, Py_ssize_t count) {
    memset(w, 0, sizeof *w);
    if (count < WORK_ARGS || Py_TYPE(args[0]) != texts_type) {
        PyErr_SetString(PyExc_TypeError, "embed is called by Model alone");
        return false;
    }
    w->handle  = (Handle *)Py_NewRef(handle);
    w->texts   = (Texts *)Py_NewRef(args[0]);
    w->request = (fletch_request)FLETCH_REQUEST_INIT;
    fletch_embed_options *options = &w->options;
    w->request.options            = options;
    *options                      = (fletch_embed_options)FLETCH_EMBED_OPTIONS_INIT;
    size_t n                      = w->texts->view.count;
    w->request.texts              = w->texts->view;
    fletch_dtype dtype            = (fletch_dtype)PyLong_AsLong(args[2]);
    size_t       cols             = PyLong_AsSize_t(args[3]);
    options->prompt               = take_prompt(&w->prompt, args[4], "a prompt");
    options->prompt_name          = take_prompt(&w->prompt_name, args[5], "a prompt's name");
    options->dimensions           = (uint32_t)PyLong_AsUnsignedLong(args[6]);
    options->max_length           = (uint32_t)PyLong_AsUnsignedLong(args[7]);
    options->normalize            = (int)PyLong_AsLong(args[8]);
    options->truncate             = (fletch_truncate)PyLong_AsLong(args[9]);
    if (PyErr_Occurred() || !take_out(w, args[1], dtype, cols)) {
        return false;
    }
    options->tokens    = take_facts(&w->tokens, args[10], n * sizeof(uint32_t));
    options->truncated = take_facts(&w->truncated, args[11], n);
    options->status    = take_facts(&w->status, args[12], n * sizeof(int32_t));
    return !PyErr_Occurred();
}

/* `options` are the part's own. */
static fletch_request work_part(const work *w, size_t first, size_t count, fletch_embed_options *options) {
    fletch_request request = w->request;
    *options               = w->options;
    request.options        = options;
    request.texts          = part(&w->request.texts, first, count);
    request.out.data       = (char *)request.out.data + first * request.out.stride;
    request.out.rows       = count;
    options->tokens += options->tokens != NULL ? first : 0;
    options->truncated += options->truncated != NULL ? first : 0;
    options->status += options->status != NULL ? first : 0;
    return request;
}

/* ---- The call that waits -------------------------------------------------------------------------------------- */

typedef struct wait_room {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    size_t          rows;  /* written */
    unsigned        ended; /* windows that ended since they were looked at */
    fletch_error    error; /* of the first text to blame */
} wait_room;

typedef struct flight {
    wait_room    *room;
    fletch_ticket ticket;
    size_t        first, count;
    bool          busy; /* under the room's lock */
} flight;

/* Under the lock: the error of the earliest text is the one to tell, and a real one before "cancelled". */
static void keep_error(wait_room *room, const fletch_error *error, size_t first) {
    fletch_error own = *error;
    own.where += own.where != FLETCH_NOWHERE ? first : 0;
    bool better = room->error.code == 0 || (room->error.code == FLETCH_ECANCELLED && own.code != FLETCH_ECANCELLED) ||
                  (own.code != FLETCH_ECANCELLED && own.where < room->error.where);
    if (better) {
        room->error = own;
    }
}

static void on_flight_done(void *user, const fletch_outcome *outcome) {
    flight    *f    = user;
    wait_room *room = f->room;
    pthread_mutex_lock(&room->lock);
    f->busy = false;
    room->ended++;
    if (outcome->error.code == FLETCH_OK) {
        room->rows += f->count;
    } else {
        keep_error(room, &outcome->error, f->first);
    }
    pthread_cond_signal(&room->changed);
    pthread_mutex_unlock(&room->lock);
}

static bool send_window(work *w, flight *f, size_t first) {
    fletch_error         error = {0};
    fletch_embed_options options;
    size_t               count   = window_at(&w->request.texts, first, WINDOW_TEXTS, WINDOW_BYTES);
    fletch_request       request = work_part(w, first, count, &options);
    request.lane                 = FLETCH_LANE_BULK;
    f->first                     = first;
    f->count                     = count;
    f->busy                      = true;
    int status                   = fletch_submit(w->handle->model, &request, on_flight_done, f, &f->ticket, &error);
    if (status < 0) {
        f->busy = false;
        if (status != FLETCH_EBUSY) { /* too much waits already: this call waits, too */
            pthread_mutex_lock(&f->room->lock);
            keep_error(f->room, &error, first);
            pthread_mutex_unlock(&f->room->lock);
        }
    }
    return status == FLETCH_OK;
}

/* Until a window ended, or 100 ms; returns whether nothing is in flight, and the rows that are written. */
static bool wait_a_while(wait_room *room, const flight *flights, size_t *rows) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += POLL_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&room->lock);
    while (room->ended == 0 && pthread_cond_timedwait(&room->changed, &room->lock, &until) == 0) {
    }
    room->ended = 0;
    *rows       = room->rows;
    bool idle   = true;
    for (size_t i = 0; i < FLIGHTS; i++) {
        idle = idle && !flights[i].busy;
    }
    pthread_mutex_unlock(&room->lock);
    return idle;
}

/* Send what fits, then wait a while. True: all is over. Without the GIL. */
static bool step(work *w, flight *flights, size_t *next, bool *stop, size_t *rows) {
    wait_room *room = flights[0].room;
    for (size_t i = 0; i < FLIGHTS; i++) {
        pthread_mutex_lock(&room->lock);
        *stop     = *stop || room->error.code != FLETCH_OK;
        bool free = !flights[i].busy;
        pthread_mutex_unlock(&room->lock);
        if (*stop || *next == w->request.texts.count) {
            break;
        }
        if (free && send_window(w, &flights[i], *next)) {
            *next += flights[i].count;
        }
    }
    if (*stop) {
        for (size_t i = 0; i < FLIGHTS; i++) {
            (void)fletch_cancel(w->handle->model, flights[i].ticket); /* not found: it ended already */
        }
    }
    bool idle = wait_a_while(room, flights, rows);
    return idle && (*stop || *next == w->request.texts.count);
}

/* On the heap: a daemon thread that the interpreter ends while it waits takes its stack with it, and the
 * windows in flight still write here. */
typedef struct voyage {
    wait_room room;
    flight    flights[FLIGHTS];
} voyage;

static voyage *voyage_new(void) {
    pthread_condattr_t monotonic;
    voyage            *v = calloc(1, sizeof *v);
    if (v == NULL) {
        return NULL;
    }
    v->room.error.where = FLETCH_NOWHERE;
    pthread_mutex_init(&v->room.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&v->room.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (size_t i = 0; i < FLIGHTS; i++) {
        v->flights[i].room = &v->room;
    }
    return v;
}

static PyObject *embed_windows(work *w, PyObject *progress) {
    voyage            *v    = voyage_new();
    size_t             next = 0, rows = 0, told = 0;
    bool               over = false, stop = false, raised = false;
    if (v == NULL) {
        return PyErr_NoMemory();
    }
    while (!over) {
        Py_BEGIN_ALLOW_THREADS
        over = step(w, v->flights, &next, &stop, &rows);
        Py_END_ALLOW_THREADS
        raised = raised || PyErr_CheckSignals() < 0;
        if (!raised && progress != Py_None && rows > told) {
            PyObject *result = PyObject_CallFunction(progress, "n", (Py_ssize_t)(rows - told));
            raised           = result == NULL;
            told             = rows;
            Py_XDECREF(result);
        }
        pthread_mutex_lock(&w->handle->lock);
        stop = stop || raised || w->handle->closed;
        pthread_mutex_unlock(&w->handle->lock);
    }
    fletch_error error = v->room.error;
    pthread_cond_destroy(&v->room.changed);
    pthread_mutex_destroy(&v->room.lock);
    free(v);
    if (raised) {
        return NULL;
    }
    if (error.code != FLETCH_OK) {
        return raise_fletch(&error);
    }
    if (stop && rows < w->request.texts.count) {
        return raise_error(FLETCH_ECANCELLED, FLETCH_NOWHERE, "the model was closed meanwhile");
    }
    Py_RETURN_NONE;
}

/* embed(texts, out, dtype, cols, prompt, prompt_name, dimensions, max_length, normalize, truncate, tokens,
 * truncated, status, progress) */
static PyObject *Handle_embed(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    work      w;
    PyObject *result = NULL;
    if (!work_take(&w, self, args, count) || !enter(w.handle)) {
        work_free(&w);
        return NULL;
    }
    size_t n     = w.request.texts.count;
    bool   small = n <= DIRECT_TEXTS && window_at(&w.request.texts, 0, n, DIRECT_BYTES) == n;
    if (small) {
        fletch_error error = {0};
        int          status;
        Py_BEGIN_ALLOW_THREADS
        status = fletch_embed(w.handle->model, &w.request.texts, &w.options, &w.request.out, &error);
        Py_END_ALLOW_THREADS
        result = status < 0 ? raise_fletch(&error) : Py_NewRef(Py_None);
    } else {
        result = embed_windows(&w, count > WORK_ARGS ? args[WORK_ARGS] : Py_None);
    }
    leave(w.handle);
    work_free(&w);
    return result;
}

/* ---- Channel and Job: embedding without waiting ------------------------------------------------------------------ */

/* Lives until its Channel and all its jobs are gone. */
typedef struct channel {
    pthread_mutex_t lock;
    unsigned        references;
    unsigned        generation; /* of fork_child */
    int             fd;
    bool            dead; /* no loop listens any more */
    struct Job     *first, **last;
} channel;

typedef struct Job {
    PyObject_HEAD
    work           work;
    channel       *channel;
    PyObject      *user; /* given back by take_done */
    fletch_ticket  ticket;
    fletch_outcome outcome;
    struct Job    *next;
} Job;

typedef struct Channel {
    PyObject_HEAD
    channel *channel;
} Channel;

static PyTypeObject *channel_type, *job_type;

/* In a forked child nothing, for a thread of the parent may have held the lock: the few bytes stay. */
static void channel_drop(channel *c) {
    if (c->generation != generation) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    bool last = --c->references == 0;
    pthread_mutex_unlock(&c->lock);
    if (last) {
        close(c->fd);
        pthread_mutex_destroy(&c->lock);
        free(c);
    }
}

/* On a thread of the library, or inside a call on the model: no Python here. The job's own reference, taken
 * when it was submitted, goes with it into the list. */
static void on_job_done(void *user, const fletch_outcome *outcome) {
    Job     *job = user;
    channel *c   = job->channel;
    job->outcome = *outcome;
    job->next    = NULL;
    pthread_mutex_lock(&c->lock);
    bool dead = c->dead;
    if (!dead) {
        bool wake = c->first == NULL;
        *c->last  = job;
        c->last   = &job->next;
        if (wake) {
            (void)!write(c->fd, &(uint64_t){1}, sizeof(uint64_t));
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (dead) {
        pthread_mutex_lock(&orphans.lock);
        job->next     = orphans.first;
        orphans.first = job;
        pthread_mutex_unlock(&orphans.lock);
    }
}

static void free_orphans(void) {
    pthread_mutex_lock(&orphans.lock);
    Job *job      = orphans.first;
    orphans.first = NULL;
    pthread_mutex_unlock(&orphans.lock);
    while (job != NULL) {
        Job *next = job->next;
        Py_DECREF((PyObject *)job);
        job = next;
    }
}

static void Job_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Job          *job  = (Job *)self;
    work_free(&job->work);
    Py_XDECREF(job->user);
    if (job->channel != NULL) {
        channel_drop(job->channel);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *Job_cancel(PyObject *self, PyObject *none) {
    Job *job = (Job *)self;
    int  status;
    (void)none;
    if (job->work.handle->generation != generation || !enter(job->work.handle)) {
        PyErr_Clear(); /* closed: it ended with that */
        Py_RETURN_FALSE;
    }
    Py_BEGIN_ALLOW_THREADS
    status = fletch_cancel(job->work.handle->model, job->ticket);
    Py_END_ALLOW_THREADS
    leave(job->work.handle);
    return PyBool_FromLong(status == FLETCH_OK);
}

/* submit(channel, user, lane, deadline_ms, texts, out, …) -> Job */
static PyObject *Handle_submit(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    enum { OWN = 4 };
    if (count < OWN + WORK_ARGS || Py_TYPE(args[0]) != channel_type) {
        PyErr_SetString(PyExc_TypeError, "submit is called by Model alone");
        return NULL;
    }
    if (((Channel *)args[0])->channel->generation != generation) {
        PyErr_SetString(PyExc_RuntimeError, "this channel belongs to the parent process");
        return NULL;
    }
    free_orphans();
    Job *job = (Job *)((allocfunc)PyType_GetSlot(job_type, Py_tp_alloc))(job_type, 0);
    if (job == NULL) {
        return NULL;
    }
    if (!work_take(&job->work, self, args + OWN, count - OWN) || !enter(job->work.handle)) {
        Py_DECREF((PyObject *)job);
        return NULL;
    }
    fletch_request *request = &job->work.request;
    fletch_error    error   = {0};
    int             status;
    request->lane        = (fletch_lane)PyLong_AsLong(args[2]);
    request->deadline_ms = (uint32_t)PyLong_AsUnsignedLong(args[3]);
    job->user            = Py_NewRef(args[1]);
    job->channel         = ((Channel *)args[0])->channel;
    pthread_mutex_lock(&job->channel->lock);
    job->channel->references++;
    pthread_mutex_unlock(&job->channel->lock);
    Py_INCREF((PyObject *)job); /* the request's, until take_done */
    Py_BEGIN_ALLOW_THREADS
    status = fletch_submit(job->work.handle->model, request, on_job_done, job, &job->ticket, &error);
    Py_END_ALLOW_THREADS
    leave((Handle *)self);
    if (status < 0) {
        Py_DECREF((PyObject *)job);
        Py_DECREF((PyObject *)job);
        return raise_fletch(&error);
    }
    return (PyObject *)job;
}

static PyObject *make_channel(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    Channel *made = (Channel *)((allocfunc)PyType_GetSlot(channel_type, Py_tp_alloc))(channel_type, 0);
    channel *c    = made != NULL ? calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        Py_XDECREF((PyObject *)made);
        return PyErr_NoMemory();
    }
    c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->fd < 0) {
        free(c);
        Py_DECREF((PyObject *)made);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    pthread_mutex_init(&c->lock, NULL);
    c->references = 1;
    c->generation = generation;
    c->last       = &c->first;
    made->channel = c;
    return (PyObject *)made;
}

/* Nothing in a forked child: the jobs are the parent's, and a read would eat its wake-up. */
static Job *take_list(channel *c, bool dead) {
    uint64_t count;
    if (c->generation != generation) {
        return NULL;
    }
    pthread_mutex_lock(&c->lock);
    (void)!read(c->fd, &count, sizeof count);
    Job *job = c->first;
    c->first = NULL;
    c->last  = &c->first;
    c->dead  = c->dead || dead;
    pthread_mutex_unlock(&c->lock);
    return job;
}

static void Channel_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    channel      *c    = ((Channel *)self)->channel;
    if (c != NULL) {
        for (Job *job = take_list(c, true), *next; job != NULL; job = next) {
            next = job->next;
            Py_DECREF((PyObject *)job);
        }
        if (c->generation != generation) {
            close(c->fd); /* the child's copy: no job of the parent's ends here and writes it */
        }
        channel_drop(c);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *Channel_fileno(PyObject *self, PyObject *none) {
    (void)none;
    return PyLong_FromLong(((Channel *)self)->channel->fd);
}

/* [(user, None or error), …] of the requests that ended. */
static PyObject *Channel_take_done(PyObject *self, PyObject *none) {
    PyObject *list = PyList_New(0);
    (void)none;
    for (Job *job = take_list(((Channel *)self)->channel, false), *next; job != NULL; job = next) {
        const fletch_error *error = &job->outcome.error;
        PyObject *what = error->code == FLETCH_OK ? Py_NewRef(Py_None)
                                                  : make_error(error->code, error->where, error->message);
        PyObject *pair = what != NULL ? Py_BuildValue("(ON)", job->user, what) : NULL;
        if (list == NULL || pair == NULL || PyList_Append(list, pair) < 0) {
            PyErr_WriteUnraisable(job->user);
        }
        Py_XDECREF(pair);
        next = job->next;
        Py_DECREF((PyObject *)job);
    }
    return list;
}

/* ---- Tokens and what a model says of itself ------------------------------------------------------------------------ */

/* tokenize(text, max_length, truncate, special) -> (ids, offsets, special, truncated), the first three bytes */
static PyObject *Handle_tokenize(PyObject *self, PyObject *args) {
    PyObject               *text;
    unsigned                max_length;
    int                     truncate, special, status;
    fletch_tokenize_options options = FLETCH_TOKENIZE_OPTIONS_INIT;
    fletch_tokens          *tokens  = NULL;
    fletch_error            error   = {0};
    size_t                  size;
    if (!PyArg_ParseTuple(args, "UIip", &text, &max_length, &truncate, &special)) {
        return NULL;
    }
    const char *bytes = utf8_of(text, 0, &size);
    if (bytes == NULL || !enter((Handle *)self)) {
        return NULL;
    }
    options.max_length        = max_length;
    options.truncate          = (fletch_truncate)truncate;
    options.no_special_tokens = !special;
    Py_BEGIN_ALLOW_THREADS
    status = fletch_tokenize(((Handle *)self)->model, bytes, size, &options, &tokens, &error);
    Py_END_ALLOW_THREADS
    leave((Handle *)self);
    if (status < 0) {
        return raise_fletch(&error);
    }
    Py_ssize_t count  = (Py_ssize_t)tokens->count;
    PyObject  *result = Py_BuildValue("(y#y#y#O)", (const char *)tokens->ids, count * 4,
                                      (const char *)tokens->offsets, count * 8, (const char *)tokens->special,
                                      count, tokens->truncated ? Py_True : Py_False);
    fletch_tokens_free(tokens);
    return result;
}

/* decode(ids as bytes of int32, skip_special_tokens) -> str */
static PyObject *Handle_decode(PyObject *self, PyObject *args) {
    const char  *ids;
    Py_ssize_t   size;
    int          skip;
    fletch_error error = {0};
    if (!PyArg_ParseTuple(args, "y#p", &ids, &size, &skip) || !enter((Handle *)self)) {
        return NULL;
    }
    size_t   capacity = 256, count = (size_t)size / 4;
    char    *text     = NULL;
    int64_t  length   = (int64_t)capacity;
    int32_t *own      = malloc((size_t)size + 4); /* bytes need not lie at a multiple of 4 */
    if (own != NULL) {
        memcpy(own, ids, (size_t)size);
    }
    while (own != NULL && length >= (int64_t)capacity) {
        capacity = (size_t)length + 1;
        free(text);
        text   = malloc(capacity);
        length = text == NULL ? -1 : fletch_decode(((Handle *)self)->model, own, count, skip, text, capacity, &error);
    }
    PyObject *result = text == NULL ? PyErr_NoMemory()
                       : length < 0 ? raise_fletch(&error)
                                    : PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
    free(text);
    free(own);
    leave((Handle *)self);
    return result;
}

static PyObject *Handle_token_text(PyObject *self, PyObject *id) {
    long number = PyLong_AsLong(id);
    if ((number == -1 && PyErr_Occurred()) || !enter((Handle *)self)) {
        return NULL;
    }
    const char *text   = number == (int32_t)number ? fletch_token_text(((Handle *)self)->model, (int32_t)number) : NULL;
    PyObject   *result = text != NULL ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace")
                                      : Py_NewRef(Py_None);
    leave((Handle *)self);
    return result;
}

static int on_property(void *user, const char *name, const char *value, const char *origin) {
    PyObject *pair = Py_BuildValue("(ss)", value, origin);
    int       bad  = pair == NULL || PyDict_SetItemString(user, name, pair) < 0;
    Py_XDECREF(pair);
    return bad;
}

/* {name: (value, origin)} */
static PyObject *Handle_describe(PyObject *self, PyObject *none) {
    (void)none;
    if (!enter((Handle *)self)) {
        return NULL;
    }
    PyObject *found = PyDict_New();
    if (found != NULL && fletch_model_describe(((Handle *)self)->model, on_property, found) != 0) {
        Py_CLEAR(found);
    }
    leave((Handle *)self);
    return found;
}

static PyObject *Handle_fingerprint(PyObject *self, PyObject *none) {
    char         hex[65];
    fletch_error error = {0};
    int          status;
    (void)none;
    if (!enter((Handle *)self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = fletch_model_fingerprint(((Handle *)self)->model, hex, &error);
    Py_END_ALLOW_THREADS
    leave((Handle *)self);
    return status < 0 ? raise_fletch(&error) : PyUnicode_FromString(hex);
}

static PyObject *Handle_stats(PyObject *self, PyObject *none) {
    fletch_error error    = {0};
    size_t       capacity = 32 * 1024;
    int64_t      length   = (int64_t)capacity;
    char        *text     = NULL;
    (void)none;
    if (!enter((Handle *)self)) {
        return NULL;
    }
    while (length >= (int64_t)capacity) {
        capacity = (size_t)length + 1024;
        free(text);
        text   = malloc(capacity);
        length = text == NULL ? -1 : fletch_stats_json(((Handle *)self)->model, text, capacity, &error);
    }
    leave((Handle *)self);
    PyObject *result = text == NULL ? PyErr_NoMemory()
                       : length < 0 ? raise_fletch(&error)
                                    : PyUnicode_FromStringAndSize(text, (Py_ssize_t)length);
    free(text);
    return result;
}

static PyObject *Handle_dimensions(PyObject *self, void *closure) {
    (void)closure;
    if (!enter((Handle *)self)) {
        return NULL;
    }
    size_t dimensions = fletch_dimensions(((Handle *)self)->model);
    leave((Handle *)self);
    return PyLong_FromSize_t(dimensions);
}

/* Whether calls may go to it: it is open, and of this process. */
static PyObject *Handle_usable(PyObject *self, void *closure) {
    const Handle *handle = (Handle *)self;
    (void)closure;
    return PyBool_FromLong(handle->generation == generation);
}

/* ---- The hub cache -------------------------------------------------------------------------------------------------- */

/* On the calling thread, which let the GIL go. */
static int on_progress(void *user, const char *file, uint64_t done, uint64_t total) {
    PyGILState_STATE state  = PyGILState_Ensure();
    PyObject        *result = user == Py_None || PyErr_Occurred()
                                  ? Py_NewRef(Py_None)
                                  : PyObject_CallFunction(user, "sKK", file, (unsigned long long)done,
                                                          (unsigned long long)total);
    int stop = result == NULL || PyErr_CheckSignals() < 0 || PyErr_Occurred() != NULL;
    Py_XDECREF(result);
    PyGILState_Release(state);
    return stop;
}

/* hub_path(name, options, pull, progress) -> folder */
static PyObject *hub_path(PyObject *self, PyObject *args) {
    const char  *name;
    PyObject    *options, *progress;
    int          pull, status;
    char         path[4096];
    fletch_error error = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "sOpO", &name, &options, &pull, &progress)) {
        return NULL;
    }
    fletch_config *config = make_config(options);
    if (config == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = pull ? fletch_hub_pull(config, name, on_progress, progress, path, sizeof path, &error)
                  : fletch_hub_path(config, name, path, sizeof path, &error);
    Py_END_ALLOW_THREADS
    fletch_config_free(config);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return status < 0 ? raise_fletch(&error) : PyUnicode_DecodeFSDefault(path);
}

/* ---- Rows as an Arrow column ------------------------------------------------------------------------------------------ */

typedef struct rows {
    Py_buffer         view;
    PyObject         *valid; /* bytes of bits, or NULL */
    struct ArrowArray child, *child_pointer;
    const void       *buffers[1], *child_buffers[2];
} rows;

static void release_nothing(struct ArrowArray *array) {
    array->release = NULL;
}

/* From any thread, whenever the consumer is done. */
static void release_rows(struct ArrowArray *array) {
    rows *held     = array->private_data;
    array->release = NULL;
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        PyBuffer_Release(&held->view);
        Py_XDECREF(held->valid);
        PyGILState_Release(state);
    }
    free(held);
}

typedef struct row_schema {
    char               format[32];
    struct ArrowSchema child, *child_pointer;
} row_schema;

static void release_child_schema(struct ArrowSchema *schema) {
    schema->release = NULL;
}

static void release_schema(struct ArrowSchema *schema) {
    schema->release = NULL;
    free(schema->private_data);
}

static void drop_schema(PyObject *object) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(object, "arrow_schema");
    if (schema->release != NULL) {
        schema->release(schema);
    }
    free(schema);
}

static void drop_array(PyObject *object) {
    struct ArrowArray *array = PyCapsule_GetPointer(object, "arrow_array");
    if (array->release != NULL) {
        array->release(array);
    }
    free(array);
}

static PyObject *export_schema(const char *item, Py_ssize_t width) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    row_schema         *own    = calloc(1, sizeof *own);
    if (schema == NULL || own == NULL) {
        free(schema);
        free(own);
        return PyErr_NoMemory();
    }
    snprintf(own->format, sizeof own->format, "+w:%zd", width);
    own->child         = (struct ArrowSchema){.format = item, .name = "item", .flags = 2, .release = release_child_schema};
    own->child_pointer = &own->child;
    *schema            = (struct ArrowSchema){.format     = own->format,
                                              .name       = "",
                                              .flags      = 2, /* nullable */
                                              .n_children = 1,
                                              .children   = &own->child_pointer,
                                              .release    = release_schema,
                                              .private_data = own};
    PyObject *capsule = PyCapsule_New(schema, "arrow_schema", drop_schema);
    if (capsule == NULL) {
        schema->release(schema);
        free(schema);
    }
    return capsule;
}

/* export_rows(matrix [n, width], valid as bytes of bits or None, null_count) -> (schema, array) capsules of a
 * FixedSizeList over the matrix's own memory. */
static PyObject *export_rows(PyObject *self, PyObject *args) {
    PyObject  *matrix, *valid;
    Py_ssize_t null_count;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOn", &matrix, &valid, &null_count)) {
        return NULL;
    }
    rows              *held  = calloc(1, sizeof *held);
    struct ArrowArray *array = calloc(1, sizeof *array);
    if (held == NULL || array == NULL || PyObject_GetBuffer(matrix, &held->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        free(held);
        free(array);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    static const char *const formats[] = {"f", "f", "b", "c", "B", "C"}; /* numpy's and Arrow's */
    const char              *item      = NULL;
    for (size_t i = 0; i < 6; i += 2) {
        item = strcmp(held->view.format, formats[i]) == 0 ? formats[i + 1] : item;
    }
    if (held->view.ndim != 2 || item == NULL || (valid != Py_None && !PyBytes_Check(valid))) {
        PyErr_SetString(PyExc_TypeError, "rows of this type have no Arrow form");
        PyBuffer_Release(&held->view);
        free(held);
        free(array);
        return NULL;
    }
    int64_t length = held->view.shape[0], width = held->view.shape[1];
    held->valid            = valid != Py_None ? Py_NewRef(valid) : NULL;
    held->buffers[0]       = held->valid != NULL ? PyBytes_AsString(valid) : NULL;
    held->child_buffers[1] = held->view.buf;
    held->child_pointer    = &held->child;
    held->child = (struct ArrowArray){.length = length * width, .n_buffers = 2, .buffers = held->child_buffers,
                                      .release = release_nothing};
    *array      = (struct ArrowArray){.length = length, .null_count = null_count, .n_buffers = 1, .n_children = 1,
                                      .buffers = held->buffers, .children = &held->child_pointer,
                                      .release = release_rows, .private_data = held};
    PyObject *capsule = PyCapsule_New(array, "arrow_array", drop_array);
    if (capsule == NULL) {
        array->release(array);
        free(array);
        return NULL;
    }
    PyObject *schema = export_schema(item, (Py_ssize_t)width);
    PyObject *pair   = schema != NULL ? PyTuple_Pack(2, schema, capsule) : NULL;
    Py_XDECREF(schema);
    Py_DECREF(capsule);
    return pair;
}

/* ---- The module -------------------------------------------------------------------------------------------------------- */

static PyMethodDef Handle_methods[] = {
    {"embed", (PyCFunction)(void (*)(void))Handle_embed, METH_FASTCALL, NULL},
    {"submit", (PyCFunction)(void (*)(void))Handle_submit, METH_FASTCALL, NULL},
    {"tokenize", Handle_tokenize, METH_VARARGS, NULL},
    {"decode", Handle_decode, METH_VARARGS, NULL},
    {"token_text", Handle_token_text, METH_O, NULL},
    {"describe", Handle_describe, METH_NOARGS, NULL},
    {"fingerprint", Handle_fingerprint, METH_NOARGS, NULL},
    {"stats", Handle_stats, METH_NOARGS, NULL},
    {"close", Handle_close, METH_NOARGS, NULL},
    {NULL}};
static PyGetSetDef Handle_getset[] = {{"dimensions", Handle_dimensions, NULL, NULL, NULL},
                                      {"usable", Handle_usable, NULL, NULL, NULL},
                                      {NULL}};
static PyType_Slot Handle_slots[]  = {{Py_tp_dealloc, Handle_dealloc}, {Py_tp_methods, Handle_methods},
                                      {Py_tp_getset, Handle_getset}, {0, NULL}};
static PyType_Spec Handle_spec     = {"fletch._fletch.Handle", sizeof(Handle), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, Handle_slots};

static PyMethodDef Job_methods[] = {{"cancel", Job_cancel, METH_NOARGS, NULL}, {NULL}};
static PyType_Slot Job_slots[]   = {{Py_tp_dealloc, Job_dealloc}, {Py_tp_methods, Job_methods}, {0, NULL}};
static PyType_Spec Job_spec      = {"fletch._fletch.Job", sizeof(Job), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, Job_slots};

static PyMethodDef Channel_methods[] = {{"fileno", Channel_fileno, METH_NOARGS, NULL},
                                        {"take_done", Channel_take_done, METH_NOARGS, NULL},
                                        {NULL}};
static PyType_Slot Channel_slots[]   = {{Py_tp_dealloc, Channel_dealloc}, {Py_tp_methods, Channel_methods}, {0, NULL}};
static PyType_Spec Channel_spec      = {"fletch._fletch.Channel", sizeof(Channel), 0,
                                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, Channel_slots};

static PyObject *set_errors(PyObject *self, PyObject *table) {
    (void)self;
    if (!PyDict_Check(table)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return NULL;
    }
    Py_XDECREF(errors);
    errors = Py_NewRef(table);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"make_texts", (PyCFunction)(void (*)(void))make_texts, METH_FASTCALL, NULL},
    {"open_model", open_model, METH_VARARGS, NULL},
    {"make_channel", make_channel, METH_NOARGS, NULL},
    {"hub_path", hub_path, METH_VARARGS, NULL},
    {"export_rows", export_rows, METH_VARARGS, NULL},
    {"take_log", take_log, METH_NOARGS, NULL},
    {"log_waits", log_waits, METH_NOARGS, NULL},
    {"fork_child", fork_child, METH_NOARGS, NULL},
    {"set_errors", set_errors, METH_O, NULL},
    {NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fletch._fletch", "libfletch, for the package fletch", -1,
                                    functions};

PyMODINIT_FUNC PyInit__fletch(void) {
    PyObject *made = PyModule_Create(&module);
    texts_type     = (PyTypeObject *)PyType_FromSpec(&Texts_spec);
    handle_type    = (PyTypeObject *)PyType_FromSpec(&Handle_spec);
    job_type       = (PyTypeObject *)PyType_FromSpec(&Job_spec);
    channel_type   = (PyTypeObject *)PyType_FromSpec(&Channel_spec);
    PyObject *codes = PyDict_New();
    bool      good  = made != NULL && texts_type != NULL && handle_type != NULL && job_type != NULL && channel_type != NULL &&
                codes != NULL && PyModule_AddStringConstant(made, "version", fletch_version()) == 0 &&
                PyModule_AddObjectRef(made, "codes", codes) == 0 &&
                PyModule_AddObjectRef(made, "Texts", (PyObject *)texts_type) == 0 &&
                PyModule_AddObjectRef(made, "Handle", (PyObject *)handle_type) == 0 &&
                PyModule_AddObjectRef(made, "Job", (PyObject *)job_type) == 0 &&
                PyModule_AddObjectRef(made, "Channel", (PyObject *)channel_type) == 0;
#define ADD_CODE(name, value, text)                                                                                  \
    if (good) {                                                                                                      \
        PyObject *number = PyLong_FromLong(value);                                                                   \
        good             = number != NULL && PyDict_SetItemString(codes, #name, number) == 0;                        \
        Py_XDECREF(number);                                                                                          \
    }
    FLETCH_STATUS_MAP(ADD_CODE)
    Py_XDECREF(codes);
    if (!good) {
        Py_XDECREF(made);
        return NULL;
    }
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED); /* every object has its own lock */
#endif
    return made;
}
