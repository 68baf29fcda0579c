/* SPDX-License-Identifier: Apache-2.0 */
/* torch_file.h - the tensors of a file that torch.save wrote, without running the program in it.
 *
 * Private to this room: safetensors.c reads files that are called .pt so; the fuzzer calls it. */
#ifndef FL_MODEL_TORCH_FILE_H
#define FL_MODEL_TORCH_FILE_H

#include "model/safetensors_header.h"

/* Read and check the whole of a file in memory. Tensors point into `data`. `source` is for messages. EMODEL
 * for damage, EUNSUPPORTED for what is no dictionary of tensors. */
int fl_torch_read(fl_tensor_table *out, const unsigned char *data, size_t size, const char *source,
                  fletch_error *error);

#endif
