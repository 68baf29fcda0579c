/* SPDX-License-Identifier: Apache-2.0 */
/* torch_pickle.h - the pickles of a file that torch.save wrote, read without running what they ask for.
 *
 * Private to this room: torch_file.c finds the pickles and the storages that they name. Everything borrows from
 * the bytes of the file. */
#ifndef FL_MODEL_TORCH_PICKLE_H
#define FL_MODEL_TORCH_PICKLE_H

#include <stdbool.h>

#include "fletch.h"
#include "model/tensor.h"

typedef struct fl_torch_bytes {
    const unsigned char *data;
    size_t               size;
} fl_torch_bytes;

/* A tensor as the program describes it: elements of a storage, of which the file says elsewhere where it lies. */
typedef struct fl_torch_tensor {
    fl_torch_bytes       key;              /* of the storage */
    const unsigned char *storage;          /* NULL: not found yet */
    uint64_t             elements, offset; /* of the storage; of the first element */
    uint64_t             stride[FL_RANK_MAX];
    fl_tensor            view; /* type and shape */
} fl_torch_tensor;

typedef struct fl_torch_name {
    fl_torch_bytes name;
    size_t         tensor; /* several names may share one */
} fl_torch_name;

typedef struct fl_torch_reading {
    const char      *source; /* for messages */
    fletch_error    *error;
    int              status;  /* 0 or the first failure */
    fl_torch_bytes   program; /* what is left to read */
    fl_torch_tensor *tensors; /* owned [tensor_count] */
    size_t           tensor_count, tensor_room;
    fl_torch_name   *names; /* owned [name_count] */
    size_t           name_count, name_room;
    fl_torch_bytes  *keys; /* owned [key_count]: a list of texts, where that was the result */
    size_t           key_count, key_room;
} fl_torch_reading;

/* Keep the first failure (EMODEL, EUNSUPPORTED, ENOMEM); false, to be passed on. */
bool fl_torch_damage(fl_torch_reading *r, const char *what);
bool fl_torch_refuse(fl_torch_reading *r, const char *what);
bool fl_torch_no_memory(fl_torch_reading *r, size_t size);

bool fl_torch_is(fl_torch_bytes text, const char *word);
/* A number of `size` bytes, the lowest first. */
uint64_t fl_torch_little(const unsigned char *at, size_t size);

/* What one pickle must be. */
typedef enum fl_torch_result {
    FL_TORCH_TENSORS, /* a dictionary of tensors: r->tensors and r->names */
    FL_TORCH_SYSTEM,  /* a dictionary of facts about the machine that wrote it */
    FL_TORCH_KEYS     /* a list of texts: r->keys */
} fl_torch_result;

/* Read the pickle at the beginning of r->program, which afterwards is what follows it. */
bool fl_torch_run(fl_torch_reading *r, fl_torch_result what);
void fl_torch_free(fl_torch_reading *r);

#endif
