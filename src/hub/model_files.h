/* SPDX-License-Identifier: Apache-2.0 */
/* model_files.h - what a model's files are called, and how large they may be: the hub chooses by it, the model opens
 * by it. */
#ifndef FL_HUB_MODEL_FILES_H
#define FL_HUB_MODEL_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* Larger than any tokenizer in use (a 256k-piece vocabulary is 33 MB of JSON). */
enum { FL_TOKENIZER_BYTES_MAX = 256 << 20 };

/* How a folder may have its weights, the first that is there counting. */
enum { FL_WEIGHT_FORMS = 2 };
typedef struct fl_weight_form {
    const char *single, *index; /* one file; the index of several */
    const char *ending;         /* of those */
} fl_weight_form;
extern const fl_weight_form fl_weight_forms[FL_WEIGHT_FORMS];

/* Whether bytes begin as GGUF; whether a file is GGUF, by its name or its first bytes. */
bool fl_gguf_begins(const unsigned char *data, size_t size);
bool fl_gguf_is_file(const char *path);
/* Whether a file of that name is one of several parts and not their first. */
bool fl_gguf_is_later_part(const char *name);

#endif
