/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels.h - what host code and kernels of the CUDA engine agree on: names, arguments, layouts.
 *
 * Role     cuda_forward.c fills one argument structure per launch and starts the kernel by name; the .cu
 *          files define `extern "C" __global__ void NAME(const STRUCT p)`, one name per element
 *          type: fl_embed_f32, fl_embed_f16, fl_embed_bf16. C and CUDA C++ read this file alike.
 * Layouts  T = tokens of the batch, no padding; H = hidden; row-major. Activations have the element
 *          type of the kernel's name; norms, biases, tables of attention bias and pooled rows are
 *          float32; sums are made in float32.
 * Counts   The true number of texts and tokens is on the device (`meta`), since a captured graph is
 *          launched with a grid for its whole tier: a block whose token or text is beyond returns.
 *          Rows of activations beyond meta->tokens hold anything; no kernel lets them reach a row
 *          before it.
 * Bytes    A row depends on its own text alone: no atomics, the order of every sum is fixed by the
 *          text's length and not by its place in the batch.
 * Proof    tests/cuda: every kernel against plain C on the simulated device, odd sizes; on a GPU by
 *          fl-cuda-kernels. */
#ifndef FL_ENGINES_CUDA_KERNELS_H
#define FL_ENGINES_CUDA_KERNELS_H

#include <stdint.h>

enum {
    FL_CUDA_WARP         = 32,
    FL_CUDA_ROW_THREADS  = 256, /* block of the row kernels: 8 warps, a row each */
    FL_CUDA_ROW_ROWS     = 8,
    FL_CUDA_MAX_HIDDEN   = 4096, /* a row kept in registers: 128 values a lane */
    FL_CUDA_SHORT_TOKENS = 64,   /* texts up to this are several to a block in fl_attention_short */
    FL_CUDA_TILE         = 64,   /* query rows of a block in fl_attention_long */
    FL_CUDA_ATTENTION_THREADS = 128,
    FL_CUDA_POOL_THREADS      = 256,
    FL_CUDA_EVERY             = 1 << 30 /* a distance that no text has */
};

/* No kernel takes dynamic shared memory: launch with 0 bytes. Every pointer to rows of activations,
 * to a table and to a norm is aligned to 16 bytes; hidden and width are multiples of 8. */

/* The most tiles that tile_lists.c makes of so many tokens. Short: texts that begin in the same window
 * of 64 tokens share a tile, and a long text between two short ones is longer than a window. Long:
 * a text of 65 tokens has two tiles, and no other wastes more. */
static inline uint32_t fl_cuda_short_capacity(uint32_t tokens) {
    return tokens / FL_CUDA_SHORT_TOKENS + 1;
}
static inline uint32_t fl_cuda_long_capacity(uint32_t tokens) {
    return 2 * (tokens / (FL_CUDA_TILE + 1)) + 2;
}

/* What the batch is, copied to the device with it. */
typedef struct fl_cuda_meta {
    uint32_t texts, tokens;
    uint32_t short_tiles, long_tiles; /* in the lists of fl_cuda_tile */
} fl_cuda_meta;

/* Rows of 8-bit floats (e4m3) for the product that follows a norm, beside the norm's own. */
typedef struct fl_cuda_e4m3 {
    uint8_t *rows;   /* [T, H] out, or NULL: none are wanted */
    float    factor; /* rows = x * factor, cut off at 448, to nearest and ties to even; NaN stays.
                        Compute capability 8.9 or newer. */
} fl_cuda_e4m3;

/* fl_embed_T: x[t] = LayerNorm(word[ids[t]] + position[p(t)] + type[0 or 1]); a warp per token.
 * Grid: ceil(tier tokens / FL_CUDA_ROW_ROWS), block FL_CUDA_ROW_THREADS. The token's text is found
 * by searching cu. */
typedef struct fl_cuda_embed {
    const fl_cuda_meta *meta;
    const int32_t      *ids;      /* [T] */
    const uint32_t     *cu;       /* [texts + 1] */
    const void         *word;     /* [vocab, H] of the kernel's type */
    const void         *position; /* [positions + offset, H], or NULL */
    const void         *type;     /* [1 or 2, H] of the type table, or NULL */
    const uint32_t     *segment; /* [texts] the first token of type 1, or NULL: type 0 throughout */
    const float        *norm_w, *norm_b; /* [H]; NULL: no norm */
    void               *x;               /* [T, H] out */
    uint32_t           *places;          /* [T] out: a token's place in its text, or NULL */
    fl_cuda_e4m3        e4m3;            /* x once more */
    uint32_t            hidden;
    uint32_t            position_offset;
    int32_t             pad_token; /* >= 0: RoBERTa's and MPNet's rule, see encoder.h; -1: none */
    float               eps;
} fl_cuda_embed;

/* fl_residual_norm_T: v = x + y, sum = v, out = norm(v): LayerNorm, or RMS where the mean is not
 * taken off. out and sum may be x or y. A warp per row; grid and block as fl_embed. */
typedef struct fl_cuda_residual_norm {
    const fl_cuda_meta *meta;
    const void         *x, *y; /* [T, H]; y NULL: a product has added it already */
    void               *sum;   /* [T, H], or NULL: not wanted */
    const float        *norm_w, *norm_b;
    void               *out;  /* [T, H] */
    fl_cuda_e4m3        e4m3; /* out once more */
    uint32_t            hidden, rms;
    float               eps;
} fl_cuda_residual_norm;

/* fl_rotate_T_D, D as for attention: the q and k heads of qkv in place: norm of the head (LayerNorm
 * without bias, or RMS), then the turn of its first `dims` values by the token's place:
 *     y[i] = x[i] cos - x[i + dims/2] sin;  y[i + dims/2] = x[i + dims/2] cos + x[i] sin
 * A warp per token; grid and block as fl_embed. */
typedef struct fl_cuda_rotate {
    const fl_cuda_meta *meta;
    const uint32_t     *places;          /* [T] */
    void               *qkv;             /* [T, (heads + 2 * kv_heads) * D] */
    const float        *q_norm, *k_norm; /* [D], or NULL: no norm */
    const float        *cosines, *sines; /* [positions, dims / 2], or NULL: no turn */
    uint32_t            heads, kv_heads;
    uint32_t            dims; /* a multiple of 16, at most D */
    uint32_t            rms;
    float               eps;
} fl_cuda_rotate;

/* fl_bias_act_T: x[t][j] = act(x[t][j] + bias[j]) in place, where the product's epilogue cannot.
 * Grid: (ceil(tier tokens / FL_CUDA_ROW_ROWS), any y >= 1: the columns are dealt over it, 256 at a
 * time; width / 256 for a small batch, 1 for a large), block FL_CUDA_ROW_THREADS. */
typedef struct fl_cuda_bias_act {
    const fl_cuda_meta *meta;
    void               *x;    /* [T, width] */
    const float        *bias; /* [width], or NULL */
    uint32_t            width;
    int32_t             activation; /* fl_activation of encoder.h, or -1: bias alone */
} fl_cuda_bias_act;

/* fl_glu_T: x[t][j] = act(x[t][j] + bias[j]) * (x[t][width + j] + bias[width + j]) for j < width, in
 * place in rows of 2 * width. Grid and block as fl_bias_act. */
typedef struct fl_cuda_glu {
    const fl_cuda_meta *meta;
    void               *x;    /* [T, 2 * width] */
    const float        *bias; /* [2 * width], or NULL */
    uint32_t            width;
    int32_t             activation; /* fl_activation */
} fl_cuda_glu;

/* fl_attention_short_T_D and fl_attention_long_T_D, D = 32, 64, 128: softmax(q k' scale) v, per text
 * and head, all keys of the text, no mask. fl_attention_short_ruled_T_D and _long_ruled_: with a bias
 * by distance or a bound on it (causal, windows). qkv is one fused product: row t holds q of all
 * heads, then k and v of kv_heads; heads / kv_heads neighbours in q share a key head. Scale > 0.
 * short: for texts of up to FL_CUDA_SHORT_TOKENS tokens, several to a block.
 *   long: one tile of FL_CUDA_TILE query rows of one text to a block, keys in a loop with a running
 *   maximum.
 * Grid: (fl_cuda_short_capacity or fl_cuda_long_capacity of the tier, heads), block
 * FL_CUDA_ATTENTION_THREADS. `tiles` lists the work; a block beyond the list's count ends. bf16 needs
 * compute capability 8.0 or newer: older tensor cores do not know it. */
typedef struct fl_cuda_tile {
    uint32_t first; /* short: first text; long: the text */
    uint32_t count; /* short: texts in the tile; long: first query row / FL_CUDA_TILE */
} fl_cuda_tile;

typedef struct fl_cuda_attention {
    const fl_cuda_meta *meta;
    const uint32_t     *cu;
    const void         *qkv;   /* [T, (heads + 2 * kv_heads) * D] */
    void               *out;   /* [T, heads * D] */
    const float        *bias;  /* [2 * max_distance + 1, heads], by key - query + max_distance,
                                       clamped at both ends (unfolded by the host); or NULL */
    const fl_cuda_tile *tiles; /* made by tile_lists.c */
    uint32_t            heads, kv_heads;
    uint32_t            max_distance;
    int32_t             before, after; /* keys with -before <= key - query <= after are seen, the
                                          query's own always; FL_CUDA_EVERY: no bound */
    float               scale;
} fl_cuda_attention;

/* fl_pool_T: one row per text and kind: rows[text][kind * H ...], float32. Grid: texts of the tier,
 * block FL_CUDA_POOL_THREADS. */
typedef struct fl_cuda_pool {
    const fl_cuda_meta *meta;
    const uint32_t     *cu;
    const uint32_t     *skip; /* [texts] tokens left out at the head, or NULL */
    const void         *x;    /* [T, H] */
    float              *rows; /* [texts, kinds * H] */
    uint32_t           *bad;  /* [texts] out: 1 where a value is not finite */
    uint32_t            hidden;
    uint32_t            kinds;   /* 1..6 */
    int32_t             kind[6]; /* fl_pooling of encoder.h, concatenated in this order */
} fl_cuda_pool;

/* fl_quantize_T: int8 rows and their scales (largest absolute value / 127), after each column was
 * multiplied by its gain; a row that holds a value that is not finite has the scale NaN, so that
 * the product shows it. A warp per row; grid and block as fl_embed. */
typedef struct fl_cuda_quantize {
    const fl_cuda_meta *meta;
    const void         *x;      /* [T, width] */
    const float        *gain;   /* [width], or NULL */
    int8_t             *q;      /* [T, width] */
    float              *scales; /* [T] */
    uint32_t            width;
} fl_cuda_quantize;

/* fl_dequantize_T: out[t][j] = act(sum[t][j] * row_scale[t] * column_scale[j] + bias[j]); bias may
 * be NULL. Grid and block as fl_bias_act. */
typedef struct fl_cuda_dequantize {
    const fl_cuda_meta *meta;
    const int32_t      *sums; /* [T, width] */
    const float        *row_scales, *column_scales, *bias;
    void               *out; /* [T, width] */
    uint32_t            width;
    int32_t             activation; /* fl_activation, or -1 */
} fl_cuda_dequantize;

#endif
