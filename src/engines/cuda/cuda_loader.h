/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_loader.h - the seam between the core and the CUDA module, libfletch_cuda.so.
 *
 * Role     The core knows fl_cuda_engine_ops alone (loader.c): its functions find and open the module and
 *          forward to the table that the module's one symbol, fl_cuda_module, leads to.
 * Method   Core and module exchange structures of fletch's own headers, so that they must be of the
 *          same build: abi, version and layout are compared before anything is called. */
#ifndef FL_ENGINES_CUDA_CUDA_LOADER_H
#define FL_ENGINES_CUDA_CUDA_LOADER_H

#include "engines/engine.h"

/* A number that changes with the structures which pass the seam. */
#define FL_CUDA_LAYOUT                                                                             \
    ((uint32_t)((((sizeof(fl_engine_options) * 31 + sizeof(fl_encoder)) * 31 + sizeof(fl_batch)) * \
                     31 +                                                                          \
                 sizeof(fl_engine_info)) *                                                         \
                    31 +                                                                           \
                FL_KEY_COUNT))

/* What the module exports. The first three members stay where they are for ever. */
typedef struct fl_cuda_door {
    uint32_t             abi;     /* FL_ENGINE_ABI */
    uint32_t             layout;  /* FL_CUDA_LAYOUT */
    const char          *version; /* FLETCH_VERSION */
    const fl_engine_ops *ops;
} fl_cuda_door;

/* module.c: the one symbol that the module shows. */
#define FL_CUDA_SYMBOL "fl_cuda_module"
__attribute__((visibility("default"))) extern const fl_cuda_door fl_cuda_module;

/* loader.c: the vtable, for registry.c. */
extern const fl_engine_ops fl_cuda_engine_ops;

#endif
