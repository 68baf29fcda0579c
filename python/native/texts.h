/* SPDX-License-Identifier: Apache-2.0 */
/* texts.h - the texts of a call: a fletch_texts and all that keeps its bytes alive. */
#ifndef FP_TEXTS_H
#define FP_TEXTS_H
#include "arrow.h"
#include "extension.h"

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

/* pointers and lengths for `count` texts, and the view on them. False: raised, as everywhere here. */
bool fp_texts_make_room(Texts *texts, size_t count);

/* Row `row` of `count` has no text. Refused, unless the caller takes null rows. */
bool fp_texts_mark_null(Texts *texts, size_t row, size_t count, bool allowed);

/* The pair that __arrow_c_array__ gives; the capsule of __arrow_c_stream__ (arrow_texts.c). */
bool fp_texts_take_array(Texts *texts, PyObject *pair, bool nulls);
bool fp_texts_take_stream(Texts *texts, PyObject *object, bool nulls);

/* The bytes of a str, which live as long as it does; NULL: raised, with `index` as its place. */
const char *fp_utf8_of(PyObject *item, size_t index, size_t *size);

/* Texts [first, first + count) of a view. */
fletch_texts fp_part(const fletch_texts *all, size_t first, size_t count);

/* How many texts from `first` make a window of at most so many texts, and so many bytes beyond the first. */
size_t fp_window_at(const fletch_texts *texts, size_t first, size_t texts_max, size_t bytes_max);

#endif
