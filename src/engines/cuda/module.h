/* SPDX-License-Identifier: Apache-2.0 */
/* module.h - the two ends of the CUDA module: the table it gives out, the kernels inside it. */
#ifndef FL_ENGINES_CUDA_MODULE_H
#define FL_ENGINES_CUDA_MODULE_H

#include "engines/engine.h"

extern const fl_engine_ops fl_cuda_module_ops; /* cuda_engine.c */

/* image.c: the compiled kernels, as the driver wants them. */
extern const unsigned char fl_cuda_image[];
extern const unsigned      fl_cuda_image_size;

#endif
