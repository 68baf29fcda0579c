/* SPDX-License-Identifier: Apache-2.0 */
/* torch_file.h - the tensors of a file that torch.save wrote, without running the program in it.
 *
 * Private to this room: safetensors.c reads pytorch_model.bin and files that are called .pt so; the fuzzer calls it. */
#ifndef FL_MODEL_TORCH_FILE_H
#define FL_MODEL_TORCH_FILE_H

#include "model/safetensors_header.h"

/* Whether bytes begin as such a file does, in either of its two formats. */
bool fl_torch_begins(const unsigned char *data, size_t size);

/* Read and check the whole of a file in memory. Tensors point into `data`, or into out->copies where they are not
 * row-major. `source` is for messages. EMODEL for damage, EUNSUPPORTED for what is not a dictionary of tensors. */
int fl_torch_read(fl_tensor_table *out, const unsigned char *data, size_t size, const char *source,
                  fletch_error *error);

#endif
