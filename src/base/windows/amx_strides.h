/* SPDX-License-Identifier: Apache-2.0 */
/* amx_strides.h - gcc's intrinsics take the stride of a tile for a long, which is no register's width on
 * Windows: theirs again with one that is. Included before the AMX kernels of a build for Windows. */
#ifndef FL_BASE_WINDOWS_AMX_STRIDES_H
#define FL_BASE_WINDOWS_AMX_STRIDES_H

#include <immintrin.h>

#undef _tile_loadd
#undef _tile_stored
#define _tile_loadd(tile, base, stride)                                                            \
    __asm__ volatile("tileloadd\t(%0,%1,1), %%tmm" #tile ::"r"((const void *)(base)),              \
                     "r"((long long)(stride)))
#define _tile_stored(tile, base, stride)                                                           \
    __asm__ volatile("tilestored\t%%tmm" #tile ", (%0,%1,1)" ::"r"((void *)(base)),                \
                     "r"((long long)(stride))                                                      \
                     : "memory")

#endif
