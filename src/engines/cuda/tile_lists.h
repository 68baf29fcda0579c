/* SPDX-License-Identifier: Apache-2.0 */
/* tile_lists.h - the work of the attention kernels as lists of tiles, made with the batch. */
#ifndef FL_ENGINES_CUDA_TILE_LISTS_H
#define FL_ENGINES_CUDA_TILE_LISTS_H

#include "engines/cuda/kernels/cuda_kernels.h"

/* Texts laid end to end, none empty: cu [texts + 1]. The lists have room for fl_cuda_short_capacity
 * and fl_cuda_long_capacity of cu[texts]. */
fl_cuda_meta fl_cuda_list_tiles(const uint32_t *cu, uint32_t texts, fl_cuda_tile *short_tiles,
                                fl_cuda_tile *long_tiles);

#endif
