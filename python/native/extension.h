/* SPDX-License-Identifier: Apache-2.0 */
/* extension.h - what every file of the package's compiled half stands on: CPython's limited API (3.11 and later)
 * and fletch.h, nothing else.
 *
 * Role    the package's Python files are the interface; this folder is what they stand on: texts in without
 *         copies, rows out where Python owns them.
 * Law     No thread of the library ever enters Python. A done callback fills a struct of C, wakes a waiting
 *         thread or sends a wakeup; log lines go to a ring that the next call from Python empties. So the
 *         interpreter's lock, its end, and fork stay simple.
 * Files   texts      str and sequences of str as fletch_texts; arrow_texts Arrow columns
 *         handle     an open model, and who is inside it
 *         work       the arguments of one embedding, and what they borrow
 *         windows    embed(): the call that waits, in windows, that Ctrl-C ends
 *         channel    submit(): what an asyncio loop listens to; wakeup what wakes it
 *         scores_lists  rerank, classify, vectors of tokens, sparse vectors, several outputs
 *         about      tokens, chunks, properties, statistics; hub_door the hub cache; arrow_rows rows in Arrow
 *         failure    exceptions; log_lines what the library said; extension.c the tables of it all
 * A call  Python's arguments are taken with the GIL, the library is entered without it (fp_enter, then
 *         Py_BEGIN_ALLOW_THREADS), fp_leave goes out again. A new method: its function in the file of its job,
 *         its declaration below, its row in handle.c, its line in _fletch.pyi.
 * Fork    A child must not touch its parent's model, whose threads it has not: fork_child() marks a new
 *         generation, fp_enter refuses handles of older ones, and Model opens its own again. A wakeup is one
 *         for both processes: a channel of an older generation is closed, never read.
 * Proof   python/tests. */
#ifndef FP_EXTENSION_H
#define FP_EXTENSION_H
#define PY_SSIZE_T_CLEAN
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

extern unsigned
    fp_generation; /* forks between the first process and this one; changed by fork_child alone */

/* Functions of the module. */
PyObject *make_texts(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *open_model(PyObject *self, PyObject *args);
PyObject *make_channel(PyObject *self, PyObject *none);
PyObject *hub_path(PyObject *self, PyObject *args);
PyObject *export_rows(PyObject *self, PyObject *args);
PyObject *take_log(PyObject *self, PyObject *none);
PyObject *log_waits(PyObject *self, PyObject *none);
PyObject *set_errors(PyObject *self, PyObject *table);
PyObject *move_message(PyObject *self, PyObject *args);

/* Methods of Handle; Handle's own file has those that open and close. */
PyObject *Handle_embed(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *Handle_submit(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *Handle_tokenize(PyObject *self, PyObject *args);
PyObject *Handle_chunk(PyObject *self, PyObject *args);
PyObject *Handle_decode(PyObject *self, PyObject *args);
PyObject *Handle_token_text(PyObject *self, PyObject *id);
PyObject *Handle_describe(PyObject *self, PyObject *none);
PyObject *Handle_fingerprint(PyObject *self, PyObject *none);
PyObject *canary_texts(PyObject *module, PyObject *none);
PyObject *Handle_vector_id(PyObject *self, PyObject *none);
PyObject *Handle_vector_parts(PyObject *self, PyObject *none);
PyObject *Handle_stats(PyObject *self, PyObject *none);
PyObject *Handle_close(PyObject *self, PyObject *none);
PyObject *Handle_scores(PyObject *self, PyObject *args);
PyObject *Handle_lists(PyObject *self, PyObject *args);
PyObject *Handle_outputs(PyObject *self, PyObject *args);
PyObject *Handle_labels(PyObject *self, PyObject *none);
PyObject *Handle_dimensions(PyObject *self, void *closure);
PyObject *Handle_sparse(PyObject *self, void *closure);
PyObject *Handle_usable(PyObject *self, void *closure);

/* The types, each made from its spec when the module is. */
extern PyTypeObject *fp_texts_type, *fp_handle_type, *fp_job_type, *fp_channel_type;
extern PyType_Spec   fp_texts_spec, fp_handle_spec, fp_job_spec, fp_channel_spec;

#endif
