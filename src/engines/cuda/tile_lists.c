/* SPDX-License-Identifier: Apache-2.0 */
/* tile_lists.c - which texts a block of attention takes: one walk over the lengths.
 *
 * Role    cuda_forward.c packs the lists with the batch, so that the device has no kernel for them.
 * Method  A short text joins the tile of the short text right before it where both begin in the same
 *         window of 64 tokens; a long text has a tile for each 64 of its rows.
 * Bytes   Which texts share a tile depends on the batch; no sum does: kernels/attention.cuh.
 * Memory  the caller's. Threads: a pure function.
 * Proof   tests/cuda/kernels_attention.c. */
#include "engines/cuda/tile_lists.h"

#include <stdbool.h>

fl_cuda_meta fl_cuda_list_tiles(const uint32_t *cu, uint32_t texts, fl_cuda_tile *short_tiles,
                                fl_cuda_tile *long_tiles) {
    fl_cuda_meta meta  = {.texts = texts, .tokens = cu[texts]};
    bool         joins = false; /* the text before this one is short */
    for (uint32_t text = 0; text < texts; text++) {
        uint32_t tokens   = cu[text + 1] - cu[text];
        bool     is_short = tokens <= FL_CUDA_SHORT_TOKENS;
        joins = joins && cu[text] / FL_CUDA_SHORT_TOKENS == cu[text - 1] / FL_CUDA_SHORT_TOKENS;
        if (is_short && joins)
            short_tiles[meta.short_tiles - 1].count++;
        else if (is_short)
            short_tiles[meta.short_tiles++] = (fl_cuda_tile){text, 1};
        for (uint32_t row = 0; !is_short && row < tokens; row += FL_CUDA_TILE)
            long_tiles[meta.long_tiles++] = (fl_cuda_tile){text, row / FL_CUDA_TILE};
        joins = is_short;
    }
    return meta;
}
