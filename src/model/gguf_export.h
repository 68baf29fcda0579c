/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_export.h - an open model as one GGUF file.
 *
 * Role    session/gguf_write.c: open, which makes the metadata and refuses what GGUF cannot say; compare the tokenizer
 *         that the file has with the model's; write.
 * Memory  An export owns its lists and the metadata, and borrows the model, which must outlive it.
 * Errors  EUNSUPPORTED names what has no place in such a file. Threads: an export belongs to one. */
#ifndef FL_MODEL_GGUF_EXPORT_H
#define FL_MODEL_GGUF_EXPORT_H

#include "model/model.h"

/* What the matrices become; the word table may keep more bits. `file_type` is llama.cpp's number of the whole. */
typedef struct fl_gguf_form {
    const char *name;
    fl_dtype    dtype, table;
    uint32_t    file_type;
} fl_gguf_form;
extern const fl_gguf_form fl_gguf_forms[]; /* .name NULL ends them */

/* Ids of tokens; -1: none. */
typedef struct fl_gguf_specials {
    int64_t first, last, padding, mask; /* the first two stand around a text */
} fl_gguf_specials;

typedef struct fl_gguf_export fl_gguf_export;

/* `tokenizer` is the text of the tokenizer.json, which is taken over; of a model that is a GGUF file, whose own
 * metadata is kept, it and `specials` are not read. */
int fl_gguf_export_open(fl_gguf_export **out, const fl_model *model, const fl_gguf_form *form,
                        fl_buf *tokenizer, const fl_gguf_specials *specials, fletch_error *error);
/* The text of the tokenizer.json that a reader makes of the file. */
int fl_gguf_export_tokenizer(const fl_gguf_export *made, fl_buf *out, fletch_error *error);
/* Replaces `path` when all is written; `progress` counts bytes, and a non-zero answer is ECANCELLED. */
int  fl_gguf_export_write(const fl_gguf_export *made, const char *path, fletch_progress_fn progress,
                          void *user, fletch_error *error);
void fl_gguf_export_close(fl_gguf_export *made); /* NULL is a no-op */

#endif
