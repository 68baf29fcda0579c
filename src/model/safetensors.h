/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - open the weights of a folder by mmap: model.safetensors or all shards of its index, else
 * pytorch_model.bin likewise.
 *
 * Every check of the format's reference reader is made before a byte of data is used: header
 * length against the file, JSON without duplicate names, dtype and shape product against the byte
 * range (with overflow checks), ranges sorted without hole or overlap and ending at the end of
 * the file. */
#ifndef FL_MODEL_SAFETENSORS_H
#define FL_MODEL_SAFETENSORS_H

#include "fletch.h"
#include "model/tensor.h"

typedef struct fl_safetensors fl_safetensors;

/* One file; what begins as GGUF or as torch.save's is that, a GGUF with its further parts. */
int fl_safetensors_open(fl_safetensors **out, const char *path, fletch_error *error);
/* The weights of a folder. */
int  fl_safetensors_open_folder(fl_safetensors **out, const char *folder, fletch_error *error);
void fl_safetensors_close(fl_safetensors *file); /* NULL is a no-op */

/* NULL when there is none of that name. Borrowed until close. */
const fl_tensor *fl_safetensors_find(const fl_safetensors *file, const char *name);
/* A tensor made of those that are there, under a name that outlives the file; before any is found. ENOMEM. */
int         fl_safetensors_put(fl_safetensors *file, char *name, const fl_tensor *tensor,
                               fletch_error *error);
size_t      fl_safetensors_count(const fl_safetensors *file);
const char *fl_safetensors_name(const fl_safetensors *file, size_t index);
/* Path of mapped file `index`; NULL past the last. Borrowed until close. */
const char *fl_safetensors_path(const fl_safetensors *file, size_t index);
/* Give the pages of all files back; they come again when they are read. Any thread. */
void fl_safetensors_release(const fl_safetensors *file);

#endif
