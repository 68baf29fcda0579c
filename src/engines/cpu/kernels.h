/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the operations a CPU must offer, as one table of function pointers per instruction
 * set.
 *
 * Role     cpu_forward.c calls the table that dispatch.c chose; kernels/ref/ is it in plain C, the other
 *          folders say the same thing faster, fl-kernels compares them.
 * Shapes   Every width that a kernel sees is padded to FL_CPU_LANES (16) floats and the padding is
 *          zero: pack.c lays weights out so, and the kernels keep it so. A head of 24 dimensions is
 *          a head of 32 whose last 8 are zero; no kernel but the rotation has a tail in its inner
 *          direction. Rows may be any number, of attention at least one.
 * Memory   Pointers to packed panels and scratch are 64-byte aligned, row strides are multiples of
 *          16 floats. No kernel allocates or keeps state.
 * Bytes    A row of a result is computed by the same sequence of operations whatever the number of
 *          rows, its place among them and, in float32, the instruction set: same text, same bytes.
 * Proof    fl-kernels test (every table against ref and row independence bit by bit, values against
 *          tests/kernels/judge.c). */
#ifndef FL_ENGINES_CPU_KERNELS_H
#define FL_ENGINES_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "fletch.h"
#include "model/encoder.h"

enum {
    FL_CPU_LANES = 16, /* columns of a weight panel: two AVX2 registers, one AVX-512 register */
    FL_CPU_TILE  = 6,  /* rows of a register tile: 12 accumulators leave 4 registers free */
    FL_CPU_SCORE_ROWS = 24, /* rows of attention scores that exist at a time, at most */
    FL_CPU_KEYS       = 512 /* keys of a block of attention: 24 KiB of scores for 12 rows */
};

/* Smallest multiple of FL_CPU_LANES that holds n. */
static inline size_t fl_cpu_pad(size_t n) {
    return (n + FL_CPU_LANES - 1) / FL_CPU_LANES * FL_CPU_LANES;
}

/* C[rows, 16 panels] (+)= A[rows, k] B[k, 16 panels] (+ bias) (+ residual).
 *
 *   B is a run of panels; panel p is [k][16] floats and makes columns 16p … 16p+15 of C:
 *
 *      b:  k=0: c0 … c15 | k=1: c0 … c15 | …      panel 0, k * 16 floats
 *          k=0: c16 … c31 | …                     panel 1, b_stride bytes further
 *
 *   Each element is one chain over k, upwards, of fused multiply-adds that begins at 0, or at C's
 *   value when `accumulate` is set: a product cut into pieces of k equals the whole, bit by bit.
 *   Bias and then residual are added to the finished chain. What lies behind a panel may be fetched
 *   while it is computed: mostly it is what is read next.
 *
 *   Narrow numbers (below) are multiplied likewise; what they are is the kernel's:
 *
 *   int8, int16: sum = Σ_k (a[r][k] - a_zero[r]) b[k][c]            int32, exact; no zero in int16
 *   c = fmaf((float)sum, a_scale[r] * b_scale[c], accumulate ? c : 0) + bias[c] + residual[r][c]
 *
 *   int8   k <= 65536. AVX2 adds several products in 16 bits. So that nothing can saturate there, the
 *          weights are scaled when they are packed (quant.c): with group 4, of every eight k the
 *          positive weights among {0, 1, 4, 5} and {2, 3, 6, 7} sum to 128 at most, the negative ones
 *          to -128 at least; with group 2 the same of pairs {0, 1}, {2, 3} … only; with group 1
 *          nothing is promised. The table says which groups its gemm can take (q8_group).
 *   int16  The sum of |b| over a column is at most FL_CPU_Q16_SUM (quant16.c): no sum of products
 *          passes 32 bits in whatever order, so nothing is flushed on the way.
 *   bf16   With float32 rows: the chain of fused multiply-adds. With bfloat16 rows: sums in float32, k
 *          in pairs; instruction sets differ in the order and in what they round between. Then bias
 *          and residual are added. */
typedef struct fl_gemm {
    const void    *a;        /* [rows, k] */
    size_t         a_stride; /* bytes from row to row */
    const float   *a_scale;  /* [rows]; int8, int16 */
    const int32_t *a_zero;   /* [rows]; int8 */
    const void    *b;        /* [panels][k][16], narrow: of fl_cpu_narrow_panel(format, k) bytes */
    size_t         b_stride; /* bytes from panel to panel */
    float         *c;        /* [rows, 16 panels] */
    size_t         c_stride; /* floats */
    const float   *bias;     /* [16 panels] or NULL */
    const float   *residual; /* [rows, 16 panels] or NULL; must not overlap c */
    size_t         residual_stride;
    size_t         rows, panels, k;
    bool           accumulate; /* begin at C's value */
    int            group;      /* int8: 4, 2 or 1, see above */
} fl_gemm;

/* Attention over one text of the query heads that share a key and value head.
 *
 *   s[i][j] = q[i] · k[j] + (bias ? bias[(i - first) bias_row + j] : 0)   1/√d is in the query weights
 *   s       = cap tanh(s / cap)                           where there is a cap
 *   out[i]  = Σ_j softmax(s[i])[j] v[j]                   over the keys j that token i sees
 *
 *   Token i sees the keys from i - before to i + after that exist: before = after = FL_CPU_ALL is the
 *   whole text, after = 0 is causal. A key that it does not see has the weight 0 exactly, and costs
 *   nothing unless it lies in a panel or a group of rows with one that is seen.
 *   Queries may be a part of the text, tokens first … first + rows - 1: a row's bits stay the same.
 *   Keys are taken FL_CPU_KEYS at a time, and at most FL_CPU_SCORE_ROWS rows of scores exist. */
typedef struct fl_attention {
    const float *q;         /* [heads][rows, d], d a multiple of 16 */
    size_t       q_stride;  /* floats from row to row … */
    size_t       q_head;    /* … and from head to head */
    const float *k, *v;     /* [n, d] */
    size_t       kv_stride; /* floats from row to row of k and v */
    float       *out;       /* [heads][rows, d] */
    size_t       out_stride, out_head;
    const float
             *bias; /* of query `first` and key 0, readable to key n + 15 of every query; or NULL */
    ptrdiff_t bias_row;  /* to the next query's: -1 where distance alone decides, j - i … */
    float     cap;       /* of scores; 0: none */
    size_t    bias_head; /* … and to the next head's */
    float    *scratch;   /* fl_cpu_attention_scratch(heads, rows, n, d) floats */
    size_t    heads, n, d, first, rows, before, after;
} fl_attention;

#define FL_CPU_ALL SIZE_MAX

/* Keys of a block transposed into panels [16][d], rows of scores over them; where there are several
 * blocks, also the largest score and the sum of weights that every query has so far; at the end, queries
 * in bfloat16 (fl_cpu_narrow). */
static inline size_t fl_cpu_attention_scratch(size_t heads, size_t rows, size_t n, size_t d) {
    size_t keys = n < FL_CPU_KEYS ? fl_cpu_pad(n) : FL_CPU_KEYS;
    return keys * (d + FL_CPU_SCORE_ROWS) + (n > FL_CPU_KEYS ? fl_cpu_pad(2 * heads * rows) : 0) +
           FL_CPU_SCORE_ROWS / 2 * d;
}

/* Rows of a norm; x and y are [rows, pad(n)] and may be the same, the padding of x is zero. weight and
 * bias are [pad(n)] with zero padding, which makes the padding of y zero.
 *
 *   layer_norm  y[rows, n] = (x - mean) / √(variance + eps) * weight + bias, variance biased
 *   rms_norm    y[rows, n] = x / √(mean of x² + eps) * weight; bias is not read */
typedef struct fl_row_norm {
    const float *x;
    size_t       x_stride;
    float       *y;
    size_t       y_stride;
    const float *weight, *bias;
    size_t       rows, n;
    float        eps;
} fl_row_norm;

/* Rotary positions in place: of every row the first `dims`, in two halves whose elements i are a pair.
 *
 *   x[i], x[i + dims/2] = x[i] cos[i] - x[i + dims/2] sin[i], x[i + dims/2] cos[i] + x[i] sin[i]
 *
 *   Row r of the angles belongs to row r of x. dims is even. */
typedef struct fl_rotation {
    float       *x;
    size_t       stride;
    const float *cosine, *sine; /* [rows, dims / 2] */
    size_t       rows, dims;
} fl_rotation;

/* A gated sum over neighbours, each channel by itself:
 *
 *   out[r] = gate[r] * (bias + Σ_k weights[k] x[first + r - before + k]), k < taps
 *
 *   What lies outside x counts as 0. An element is one chain of fused multiply-adds over k, upwards, that begins at
 *   the bias. Queries may be a part of the text, as in attention. cols is a multiple of 16. */
typedef struct fl_convolution {
    const float *x;      /* [n, cols] */
    const float *gate;   /* [rows, cols] */
    size_t       stride; /* floats from row to row of both */
    float       *out;    /* [rows, cols] */
    size_t       out_stride;
    const float *weights; /* [taps, cols] */
    const float *bias;    /* [cols] */
    size_t       n, first, rows, taps, before, cols;
} fl_convolution;

/* y[rows, cols] = f(gate) * up, an activation that gates; cols a multiple of 16. y may be either. */
typedef struct fl_gating {
    const float *gate, *up;
    size_t       stride; /* floats from row to row of both */
    float       *y;
    size_t       y_stride;
    size_t       rows, cols;
} fl_gating;

/* ---- Narrow numbers: int8, int16 and bf16 products, all else stays float32 -------------------------
 *
 *   int8    x ~ scale (q - zero)   a row of activations: q in 0 … 255, zero is the q of 0.0
 *           w ~ scale q            a column of weights: q in -127 … 127, symmetric
 *   int16   x ~ scale q            q in -FL_CPU_Q16_MOST … FL_CPU_Q16_MOST, 13 bits with the sign
 *           w ~ scale q            q as large as a column's sum of |q| lets it be, see fl_gemm
 *   bf16    x and w rounded to bfloat16, ties to even; where an instruction set multiplies no
 *           bfloat16, x stays float32 and only the weights are narrow
 *
 *   Sums of integer products are exact and the float operations around them are spelled out, so in
 *   int8 and int16 every instruction set gives the same bits for the same numbers. bf16 is summed in
 *   float32, in the order in which the instruction does it: bits are an instruction set's own. */
typedef enum fl_cpu_format { FL_CPU_FP32, FL_CPU_INT8, FL_CPU_INT16, FL_CPU_BF16 } fl_cpu_format;

/* Bytes that a panel of 16 columns and k steps takes: groups of [16 columns][4 bytes], each a cache
 * line and what vpdpbusd, vpmaddwd, vdpbf16ps, the tiles of AMX and sdot take as it is; then what
 * belongs to the columns.
 *
 *      int8   k=0..3: c0 c0 c0 c0 c1 c1 c1 c1 … c15 | k=4..7: c0 … | … | 16 scales | 16 sums
 *      int16  k=0..1: c0 c0 c1 c1 … c15 c15         | k=2..3: c0 … | … | 16 scales
 *      bf16   likewise                                                 | nothing
 *
 *   Scales are float, the sums of a column's weights int32. k is a multiple of 16; weights past a
 *   matrix's last row are 0. */
static inline size_t fl_cpu_narrow_panel(fl_cpu_format format, size_t k) {
    size_t column = format == FL_CPU_INT8    ? k + sizeof(float) + sizeof(int32_t)
                    : format == FL_CPU_INT16 ? 2 * k + sizeof(float)
                                             : 2 * k;
    return FL_CPU_LANES * column;
}

enum { FL_CPU_Q8_GROUP = 4 }; /* the largest group of weights that sums in 16 bits need (fl_gemm) */

#define FL_CPU_Q8_TINY 1e-30f /* rows and columns that are smaller than this count as zeros */

enum {
    FL_CPU_Q16_MOST = 4095,                       /* an activation */
    FL_CPU_Q16_SUM  = INT32_MAX / FL_CPU_Q16_MOST /* a column's sum of |q| */
};

/* Floats to narrow numbers: q[rows, n] and scale[rows], zero[rows] of x[rows, n]; n a multiple of 16.
 * Every step is rounded to float32.
 *
 *   y = x * gain                  NULL leaves the gain out
 *   int8:   low   = min(0, y …), high = max(0, y …)
 *           scale = (high - low) * (1/255)
 *           zero  = rint(-low * (255 / (high - low)))
 *           q     = clamp(rint(y * (255 / (high - low))) + zero, 0, 255)
 *   int16:  high  = max(|y| …)
 *           scale = high * (1/FL_CPU_Q16_MOST)
 *           q     = rint(y * (FL_CPU_Q16_MOST / high))             zero is not written
 *   bf16:   q     = y rounded to bfloat16, NaN stays NaN           scale and zero are not written
 *
 *   A row of high - low (int16: high) < FL_CPU_Q8_TINY counts as zeros: scale 1, zero and q 0. A row
 *   in which a y is not finite gets scale NaN, zero 0 and any q, so that the damage shows in every
 *   product. */
typedef struct fl_quantize {
    const float *x;
    size_t       x_stride;
    const float *gain; /* [n] or NULL */
    void        *q;
    size_t       q_stride; /* bytes */
    float       *scale;    /* [rows] */
    int32_t     *zero;     /* [rows] */
    size_t       rows, n;
} fl_quantize;

/* The kernels of one narrow format. */
typedef struct fl_cpu_narrow {
    void (*quantize)(const fl_quantize *); /* NULL: gemm takes float32 rows (bf16 only) */
    void (*gemm)(const fl_gemm *); /* NULL: this instruction set does not offer the format */
    int group; /* int8: largest group that gemm needs: 4 (fastest on AVX2); 1: adds in 32 bits */
    /* Queries, keys, values and weights rounded to bfloat16, scores, sums and softmax in float32; NULL:
     * the table's own. */
    void (*attention)(const fl_attention *);
    bool pays; /* its products outrun float32's: provider.precision fast may take it */
    void (*gemm_floats)(const fl_gemm *); /* bf16: of float32 rows, where gemm takes bfloat16 */
} fl_cpu_narrow;

/* ---- Weights in few bits: panels that a product widens as it goes -------------------------------------
 *
 *   What files hold (model/tensor.h: fl_groups), column by column, for float32 rows. A panel of 16 columns and k steps
 *   of 16 bits is [k][16]; in groups it is one stretch of FL_CPU_STRETCH steps after the other, the last may be short.
 *   A stretch:
 *
 *      coded:    16 float scales; with a least value 16 floats that it is multiplied by
 *      per run:  16 scales, halves, bfloat16 (rounded, not half) or coded bytes; with a least value 16 of these as
 *                well, with a zero 16 bytes; then the integers
 *                   8 bits   k=0: c0 … c15 | k=1: c0 … c15 | …
 *                   4 bits   k=0..1: c0 … c15, the even step in the lower nibble | k=2..3: …
 *
 *   Widened to a float32 panel [steps][16], each operation rounded to float32:
 *
 *      w = (scale q + least) factor       scale and least: a half, or the stretch's float times the run's byte
 *      w = rounded((q - zero) scale) factor   rounded to the type of the scale; without a zero q is from 0 on
 *      w = number factor                  of 16 bits
 *
 *   and multiplied by the table's gemm: every bit is that of weights widened when the model was opened. */
enum { FL_CPU_STRETCH = 128 };

typedef struct fl_widen {
    const fl_groups *groups;
    const uint8_t   *panel; /* at the beginning of a stretch */
    size_t           steps; /* a multiple of 16; whole stretches, or up to the panel's end */
    float            factor;
    float           *out; /* [steps][16] */
} fl_widen;

/* Of a stretch its floats, of a run its scales and of so many steps their integers. */
static inline size_t fl_cpu_groups_floats(const fl_groups *g) {
    return g->coded ? (size_t)(g->least ? 2 : 1) * FL_CPU_LANES * sizeof(float) : 0;
}
static inline size_t fl_cpu_groups_scales(const fl_groups *g) {
    return ((size_t)(g->least ? 2 : 1) * (g->coded ? 1 : 2) + (g->zero ? 1 : 0)) * FL_CPU_LANES;
}
static inline size_t fl_cpu_groups_values(const fl_groups *g, size_t steps) {
    return steps * FL_CPU_LANES * g->bits / 8;
}

/* Bytes of `steps` steps from a stretch's beginning on. */
static inline size_t fl_cpu_groups_bytes(const fl_groups *g, size_t steps) {
    size_t stretches = (steps + FL_CPU_STRETCH - 1) / FL_CPU_STRETCH;
    size_t runs      = g->run > 0 ? (steps + g->run - 1) / g->run : 0;
    return stretches * fl_cpu_groups_floats(g) + runs * fl_cpu_groups_scales(g) +
           fl_cpu_groups_values(g, steps);
}

/* x[rows, cols] = f(x) in place; cols a multiple of 16. f(0) must be 0: padding stays zero. */
typedef void (*fl_cpu_activation_fn)(float *x, size_t stride, size_t rows, size_t cols);

typedef struct fl_cpu_kernels {
    const char *isa;  /* "avx2" */
    const char *name; /* "6x16 tiles, AVX2 + FMA" for describe */
    size_t panels; /* that a tile of its products is wide: fewer at a time run below their speed */
    void (*gemm)(const fl_gemm *);
    void (*widen)(const fl_widen *);
    void (*attention)(const fl_attention *);
    void (*layer_norm)(const fl_row_norm *);
    void (*rms_norm)(const fl_row_norm *);
    void (*rotate)(const fl_rotation *);
    void (*convolve)(const fl_convolution *);
    fl_cpu_activation_fn activation[FL_ACTIVATIONS]; /* by fl_activation */
    void (*gating[FL_ACTIVATIONS])(const fl_gating *);
    fl_cpu_narrow narrow[FL_CPU_BF16 + 1]; /* by fl_cpu_format; [FL_CPU_FP32] is empty */
} fl_cpu_kernels;

/* One row of dispatch.c's ordered list, best first. `kernels` is NULL where the compiler's target
 * lacks the instruction set (an ARM build has no avx2). */
typedef struct fl_cpu_isa {
    const char *name;
    const char *needs; /* "avx2, fma, bmi2" for messages */
    int (*usable)(const fl_cpu *);
    const fl_cpu_kernels *kernels;
} fl_cpu_isa;

const fl_cpu_isa *fl_cpu_isa_at(size_t index); /* NULL past the end */

/* Choose by option: "auto" takes the fastest that this machine has, a name takes that one or fails
 * with EUNSUPPORTED (this machine lacks it, or it is not built) or EINVAL (no such name). `why`
 * gets a line for describe and may be NULL. */
int fl_cpu_kernels_choose(const char *isa, const fl_cpu *cpu, const fl_cpu_kernels **out, char *why,
                          size_t why_size, fletch_error *error);

/* The format by operations that every instruction set has, so that bits are the same on all: bytes are scaled for sums
 * in 16 bits, bfloat16 is widened, attention is float32's. */
fl_cpu_narrow fl_cpu_narrow_portable(fl_cpu_narrow format);

/* What its bits depend on: "portable", "dot" (bytes scaled for sums in 32 bits), or the instruction set `isa`. */
const char *fl_cpu_narrow_numerics(const fl_cpu_narrow *format, const char *isa);

extern const fl_cpu_kernels fl_cpu_kernels_ref;
extern const fl_cpu_kernels fl_cpu_kernels_avx2;    /* only where the target is x86-64 */
extern const fl_cpu_kernels fl_cpu_kernels_avxvnni; /* likewise, and the next four */
extern const fl_cpu_kernels fl_cpu_kernels_avx512;
extern const fl_cpu_kernels fl_cpu_kernels_avx512vnni;
extern const fl_cpu_kernels fl_cpu_kernels_avx512bf16;
extern const fl_cpu_kernels fl_cpu_kernels_amx;
extern const fl_cpu_kernels fl_cpu_kernels_neon; /* only where it is AArch64 */
extern const fl_cpu_kernels fl_cpu_kernels_neondot;
extern const fl_cpu_kernels fl_cpu_kernels_neonmm;

#endif
