/* SPDX-License-Identifier: Apache-2.0 */
/* failure.h - the library's errors as exceptions of errors.py, with code and the index of the text. */
#ifndef FP_FAILURE_H
#define FP_FAILURE_H
#include "extension.h"

/* A new exception for a status; `where` is a text's index or FLETCH_NOWHERE. NULL: raised. */
PyObject *fp_make_error(int code, size_t where, const char *message);

/* Raise it. Always NULL, to be returned. */
void *fp_raise(int code, size_t where, const char *message);
void *fp_raise_fletch(const fletch_error *error);

/* What the library said of a part of the texts, said of all: the text to blame stands `first` texts further on. */
void fp_move_error(fletch_error *error, size_t first);

#endif
