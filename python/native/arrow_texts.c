/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_texts.c - Arrow columns as texts: string, large_string, string_view and dictionaries of these, sliced and
 * chunked. One chunk of plain strings without nulls is handed over as it lies; the others get a pointer a row. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "texts.h"

/* How a column's values are laid out: the first letters of Arrow's formats. */
static bool is_text_format(const char *format) {
    return strcmp(format, "u") == 0 || strcmp(format, "U") == 0 || strcmp(format, "vu") == 0;
}

static bool is_valid(const struct ArrowArray *array, int64_t index) {
    const uint8_t *bits = array->n_buffers > 0 && array->null_count != 0 ? array->buffers[0] : NULL;
    return bits == NULL || (bits[(array->offset + index) / 8] >> ((array->offset + index) % 8) & 1);
}

static void value_at(const struct ArrowArray *array, const char *format, int64_t index,
                     const char **text, size_t *size) {
    int64_t at = array->offset + index;
    if (format[0] == 'v') {
        const unsigned char *view = (const unsigned char *)array->buffers[1] + 16 * at;
        int32_t              word[4]; /* length, prefix, buffer, offset */
        memcpy(word, view, sizeof word);
        *size = (size_t)word[0];
        *text = word[0] <= 12 ? (const char *)view + 4
                              : (const char *)array->buffers[2 + word[2]] + word[3];
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

static bool take_chunk(Texts *texts, const struct ArrowArray *array,
                       const struct ArrowSchema *schema, size_t first, size_t count, bool nulls) {
    const struct ArrowArray *values = schema->dictionary != NULL ? array->dictionary : array;
    const char *format = schema->dictionary != NULL ? schema->dictionary->format : schema->format;
    for (int64_t i = 0; i < array->length; i++) {
        size_t  row   = first + (size_t)i;
        int64_t index = i;
        bool    valid = is_valid(array, i);
        if (valid && values != array) {
            index = key_at(array, schema->format[0], i);
            if (index < 0 || index >= values->length) {
                PyErr_Format(PyExc_ValueError, "text %zu: its dictionary has no entry %lld", row,
                             (long long)index);
                return false;
            }
            valid = is_valid(values, index);
        }
        if (valid)
            value_at(values, format, index, &texts->pointers[row], &texts->lengths[row]);
        else if (!fp_texts_mark_null(texts, row, count, nulls))
            return false;
    }
    return true;
}

static bool take_chunks(Texts *texts, const struct ArrowSchema *schema, bool nulls) {
    const char *format = schema->dictionary != NULL ? schema->dictionary->format : schema->format;
    size_t      count  = 0;
    if (!is_text_format(format) ||
        (schema->dictionary != NULL && strchr("cCsSiIlL", schema->format[0]) == NULL)) {
        PyErr_Format(
            PyExc_TypeError,
            "an Arrow column of format '%s' is not text (string, large_string, string_view, or a "
            "dictionary of these)%s",
            format,
            schema->format[0] == '+' ? "; pass one column of a table, not the table"
                                     : "; cast it to string");
        return false;
    }
    for (size_t i = 0; i < texts->chunk_count; i++)
        count += (size_t)texts->chunks[i].length;
    const struct ArrowArray *only = texts->chunk_count == 1 ? texts->chunks : NULL;
    if (only != NULL && count > 0 && schema->dictionary == NULL && format[0] != 'v' &&
        (only->null_count == 0 || only->buffers[0] == NULL)) {
        texts->view = (fletch_texts){.count = count, .bytes = only->buffers[2]};
        if (format[0] == 'u')
            texts->view.offsets32 = (const int32_t *)only->buffers[1] + only->offset;
        else
            texts->view.offsets64 = (const int64_t *)only->buffers[1] + only->offset;
        if (texts->view.bytes == NULL)
            texts->view.bytes = ""; /* all of them are empty */
        return true;
    }
    if (!fp_texts_make_room(texts, count))
        return false;
    for (size_t i = 0, first = 0; i < texts->chunk_count; i++) {
        if (!take_chunk(texts, &texts->chunks[i], schema, first, count, nulls))
            return false;
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

bool fp_texts_take_array(Texts *texts, PyObject *pair, bool nulls) {
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "__arrow_c_array__ must give a schema and an array");
        return false;
    }
    struct ArrowSchema *schema = capsule(PyTuple_GetItem(pair, 0), "arrow_schema");
    struct ArrowArray  *array =
        schema != NULL ? capsule(PyTuple_GetItem(pair, 1), "arrow_array") : NULL;
    if (array == NULL)
        return false;
    if (schema->release == NULL || array->release == NULL) {
        PyErr_SetString(PyExc_ValueError, "the Arrow capsule has already been consumed");
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
bool fp_texts_take_stream(Texts *texts, PyObject *object, bool nulls) {
    struct ArrowArrayStream *stream = capsule(object, "arrow_array_stream");
    struct ArrowSchema       schema = {.release = NULL};
    size_t                   room   = 0;
    int                      failed;
    if (stream == NULL)
        return false;
    if (stream->release == NULL) {
        PyErr_SetString(PyExc_ValueError, "the Arrow stream has already been consumed");
        return false;
    }
    Py_BEGIN_ALLOW_THREADS failed = stream->get_schema(stream, &schema);
    while (failed == 0) {
        if (texts->chunk_count == room) {
            struct ArrowArray *grown =
                realloc(texts->chunks, (room = room * 2 + 4) * sizeof *grown);
            if (grown == NULL) {
                failed = ENOMEM;
                break;
            }
            texts->chunks = grown;
        }
        struct ArrowArray *next = &texts->chunks[texts->chunk_count];
        next->release           = NULL;
        failed                  = stream->get_next(stream, next);
        if (failed != 0 || next->release == NULL)
            break;
        texts->chunk_count++;
    }
    Py_END_ALLOW_THREADS bool good = false;
    if (failed != 0) {
        const char *words = stream->get_last_error(stream);
        PyErr_Format(PyExc_ValueError, "the Arrow stream failed: %s",
                     words != NULL ? words : strerror(failed));
    } else {
        good = take_chunks(texts, &schema, nulls);
    }
    if (schema.release != NULL)
        schema.release(&schema);
    stream->release(stream);
    return good;
}
