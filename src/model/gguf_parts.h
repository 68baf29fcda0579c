/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_parts.h - what gguf_export.c, which makes the metadata, and gguf_parts.c, which writes the tensors, share. */
#ifndef FL_MODEL_GGUF_PARTS_H
#define FL_MODEL_GGUF_PARTS_H

#include "model/gguf_arch.h"

/* A tensor of the file: the rows of one to three of the model's, one after the other. */
typedef struct fl_gguf_item {
    char             name[FL_NAME_BYTES];
    const fl_tensor *part[FL_FUSED_MAX];
    uint32_t         parts;
    uint64_t         skipped; /* rows of the first part, which stay out */
    bool             turned;  /* rows of a head go in turns */
    bool             shifted; /* 1 is added */
    fl_tensor        out;     /* type and shape; no data */
} fl_gguf_item;

struct fl_gguf_export {
    const fl_model     *model;
    const fl_gguf_form *form;
    const fl_gguf_arch *arch; /* NULL: the model is a GGUF file */
    fl_gguf_writer      w;
    fl_gguf_item       *items; /* owned [count] */
    size_t              count, room;
    fl_tensor           dense[FL_GGUF_DENSE]; /* the stages' matrices as tensors */
};

/* All tensors of the model's slots by the names of x->arch; all those of its file as they are. */
int fl_gguf_list_slots(fl_gguf_export *x, fletch_error *error);
int fl_gguf_list_file(fl_gguf_export *x, fletch_error *error);

#endif
