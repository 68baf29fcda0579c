/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - the one symbol that libfletch_cuda.so shows.
 *
 * Role    The core's loader (loader.c) reads abi, layout and version before it calls anything.
 * Method  Static data: opening the module runs no code and needs nothing of CUDA.
 * Memory  none. Threads: constant. */
#include "engines/cuda/module.h"
#include "engines/cuda/cuda_loader.h"

extern const fl_cuda_door fl_cuda_module;

const fl_cuda_door fl_cuda_module = {.abi     = FL_ENGINE_ABI,
                                     .layout  = FL_CUDA_LAYOUT,
                                     .version = FLETCH_VERSION,
                                     .ops     = &fl_cuda_module_ops};
