/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_engine.h - the CPU engine's own state, shared by its files and by nobody else.
 *
 *   cpu_engine.c    the vtable: open, close, describe
 *   pack.c      weights of the model files -> panels in the order in which cpu_forward.c reads them
 *   pack_cache.c  these panels in a file, for the processes that open the model next
 *   groups.c    weights that stay integers with a scale for each group
 *   quant.c     columns of weights -> int8 panels, quant16.c -> int16 and bf16; cpu_calibrate.c what the
 *               channels are scaled by
 *   disentangled.c  DeBERTa's attention
 *   cpu_cost.c      what a block costs one thread, and a split group
 *   cpu_plan.c      a batch -> blocks of whole texts, and who runs them
 *   cpu_forward.c   one block of texts, by one thread or by a split group (split.h): embedding, layers, pooling
 *   cpu_layers.c    the layers of a block, with cpu_attention.c, cpu_mlp.c, cpu_experts.c and what their products read,
 *               cpu_rows.c (layers.h)
 *   cpu_long.c      room for texts longer than what every thread has room for
 *   cpu_prompt.c    what texts of a causal model begin with alike
 *   vocabulary.c  the vocabulary head of a block, cpu_latent.c the latents behind the layers
 *   tables.c    what open computes once: positions, angles, biases by distance
 *   cpu_memory.c    what a batch takes, before it runs
 *   dispatch.c  the kernels for this machine
 *
 * Widths with a 16 at the end (hidden16 …) are padded to FL_CPU_LANES; see kernels.h. */
#ifndef FL_ENGINES_CPU_CPU_ENGINE_H
#define FL_ENGINES_CPU_CPU_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/file.h"
#include "base/pool.h"
#include "engines/cpu/kernels.h"
#include "engines/engine.h"

/* Columns between the two products of the MLP that are computed at a time: activations [rows, 384] stay in L2
 * between the two products. Part of the weight layout. */
enum { FL_CPU_MLP_TILE = 384 };

/* What a rule of distance (fl_distance) means here. */
typedef struct fl_cpu_window {
    size_t       before, after; /* keys that a token sees: fl_attention */
    const float *bias; /* [heads][bias_stride], distance 0 at max_length - 1; NULL for none */
} fl_cpu_window;

/* Angles of one RoPE for every position. */
typedef struct fl_cpu_rope {
    const float              *cosine, *sine; /* [max_length, dims / 2] */
    size_t                    dims;
    const struct fl_cpu_rope *longer;  /* that of texts of more than … */
    size_t                    trained; /* … tokens; NULL: the same */
} fl_cpu_rope;

/* Weight and bias of a norm; no weight: no norm. */
typedef struct fl_cpu_norm {
    const float *weight, *bias; /* of the width of its rows, padded */
} fl_cpu_norm;

#define FL_CPU_LATENT_EPS 1e-5f /* of torch's LayerNorm, which all norms around the latents are */

/* Latents behind the layers, float32 in every precision; width 0: there are none. cpu_latent.c */
typedef struct fl_cpu_latent {
    size_t width16, mlp16; /* latents, and columns of the MLP, padded */
    const float *
        scores; /* [heads][width16 / 16] panels with k = hidden16: what LN(x) says to each latent */
    const float *values;    /* [heads][hidden16 / 16] panels with k = width16 */
    const float *up;        /* [mlp16 / 16] x { a panel of the gate, one of up }, k = hidden16 */
    const float *up_bias;   /* [mlp16 / 16][2][16] */
    const float *down;      /* [hidden16 / 16] panels with k = mlp16 */
    const float *down_bias; /* [hidden16] */
    fl_cpu_norm  norm, mlp_norm; /* layer norms */
} fl_cpu_latent;

/* What of model.weights the engine obeys: matrices as their file has them, or rounded. */
typedef enum fl_cpu_weights {
    FL_CPU_WEIGHTS_FLOAT, /* all are widened */
    FL_CPU_WEIGHTS_AUTO,  /* those of a small model are, others stay as stored */
    FL_CPU_WEIGHTS_STORED,
    FL_CPU_WEIGHTS_Q8,
    FL_CPU_WEIGHTS_Q4
} fl_cpu_weights;

/* The panels of one product: in few bits, as stored or rounded; with 0 bits in the engine's format. */
typedef struct fl_cpu_form {
    fl_groups groups;
    bool      rounded;
} fl_cpu_form;

/* Packed weights of one layer; all pointers into one arena, matrices in the order of use. A panel is
 * 16 columns of a matrix: fl_cpu_panel(form, k) bytes. */
typedef struct fl_cpu_layer {
    fl_cpu_form    qkv_form, out_form, up_form, down_form;
    size_t         group; /* query heads that share a key and value head; 1 where it convolves */
    const uint8_t *qkv;   /* [kv_heads] x { q of every head of the group, k, v: head16 / 16 panels
                                each with k = hidden16 } */
    const float   *qkv_bias;       /* [kv_heads][group + 2][head16] */
    fl_cpu_norm    q_norm, k_norm; /* of a head, or of all heads side by side */
    const uint8_t *out;            /* [hidden16 / 16] panels with k = inner */
    const float   *out_bias;       /* [hidden16] */
    fl_cpu_norm    attention_norm, attention_extra, mlp_norm, mlp_extra;
    const uint8_t *mlp; /* per tile: up panels with k = hidden16 (gated: one of the gate in front of
                           each), then down panels with k = tile; expert after expert */
    const float   *up_bias;   /* [mlp16], gated: [mlp16 / 16][2][16] */
    const float   *down_bias; /* [hidden16]; of all experts together */
    const float   *router;    /* [experts16 / 16] float32 panels with k = hidden16; NULL: one MLP */
    size_t         experts, experts_used;
    const float   *qkv_gain, *up_gain; /* int8: [hidden16] what x is multiplied by, channel by
                                          channel; the weights hold the inverse */
    const fl_cpu_window *window;
    const float         *bias; /* what it adds to scores: of `window`, or of this layer alone */
    const fl_cpu_rope   *rope; /* NULL: none */
    const float         *pos_k, *pos_q; /* DeBERTa: disentangled.c */
    const float         *conv;          /* of a layer that convolves: [heads][taps][head16] */
    const float         *conv_bias;     /* [heads][head16] */
} fl_cpu_layer;

/* Rows of narrow numbers (fl_quantize). */
typedef struct fl_cpu_rows {
    uint8_t *q;     /* NULL where products take float32 rows as they are */
    float   *scale; /* int8 and int16 */
    int32_t *zero;  /* int8 */
} fl_cpu_rows;

/* Rows on their way through the experts, some of those that chose one at a time. */
typedef struct fl_cpu_expert_rows {
    float *gates;    /* [rows_max, experts16] what an expert's result counts */
    float *in, *out; /* [expert_rows, hidden16] */
} fl_cpu_expert_rows;

/* What texts of a causal model begin with alike, and what it gave: cpu_prompt.c. */
enum {
    FL_CPU_PROMPT      = 128,        /* tokens that are kept, at most */
    FL_CPU_PROMPT_TEXT = FL_CPU_KEYS /* a longer text computes all of its tokens */
};
typedef struct fl_cpu_prompt {
    float    *rows;  /* [layers][kv_max][k, v][FL_CPU_PROMPT][head16]; NULL: nothing is ever kept */
    void     *block; /* owned: rows and what every thread joins them with */
    size_t    bytes;
    int32_t   ids[FL_CPU_PROMPT]; /* whose they are */
    uint32_t  length;
    uint32_t *shared;  /* [batch_texts] of the batch under way: a text's tokens that are kept */
    uint32_t  saved;   /* the sum of these */
    uint32_t  spared;  /* of all runs of the last forward */
    bool      keeping; /* the text under way is a prompt */
    int32_t   before[FL_CPU_PROMPT]; /* how the first text of the forward before began */
    uint32_t  before_length;
} fl_cpu_prompt;

/* What one thread writes while it runs a block. */
typedef struct fl_cpu_scratch {
    float *x;         /* [block_max, hidden16] the residual stream */
    float *z;         /* [block_max, hidden16] pre-norm: what products read, x after its norm */
    float *context;   /* [block_max, inner] attention's output */
    float *joint_qk;  /* norms over all heads: q [·, q_joint] and k [·, k_joint] of all tokens */
    float *head;      /* [2 + q_run][block_max, head16] k, v, and q of some heads of a group */
    float *y;         /* [rows_max, wide16] sums before a norm */
    float *pair;      /* gated MLPs: [rows_max, 32] a panel of the gate and one of up */
    float *mlp;       /* [rows_max, FL_CPU_MLP_TILE] */
    float *attention; /* fl_cpu_attention_scratch */
    float *relative;  /* fl_cpu_disentangled_scratch */
    float *joined;    /* [k, v][FL_CPU_PROMPT_TEXT, head16] of a text with a prompt that is kept */
    fl_cpu_expert_rows expert; /* where some layer has experts */
    float             *latent; /* latents: [rows_max, latent.width16] what a head says to them */
    float *max_logits; /* vocabulary head: [rows_max, wide16] the largest logits of so many texts */
    /* narrow formats */
    fl_cpu_rows x_narrow;       /* [block_max, hidden16] */
    fl_cpu_rows context_narrow; /* [rows_max, inner or hidden16, the wider one] */
    fl_cpu_rows mlp_narrow;     /* [rows_max, FL_CPU_MLP_TILE] */
} fl_cpu_scratch;

/* Texts order[first] … order[last - 1] laid end to end. */
typedef struct fl_cpu_block {
    uint32_t first, last, tokens;
    double   cost; /* in tokens' worth of the linear layers */
} fl_cpu_block;

/* Room for the longest text so far that no thread alone has room for: cpu_long.c. */
typedef struct fl_cpu_long {
    fl_cpu_scratch *scratch; /* owned [threads]; what all share lies in one place */
    void           *arena;   /* owned */
    size_t          bytes, length;
} fl_cpu_long;

typedef struct fl_cpu_plan {
    uint32_t     *order;  /* [batch_texts] text indices, longest first */
    fl_cpu_block *blocks; /* [batch_texts] */
    uint32_t     *count;  /* [max_length + 2] counting sort */
    double       *load;   /* [threads] */
    uint32_t      block_count;
    uint32_t      shared;        /* so many blocks first by groups, the others by one thread each */
    unsigned      ranks, groups; /* of a split group, which has as many threads; and of them */
    unsigned      threads;       /* that have something to do: the first ones */
} fl_cpu_plan;

/* What blocks cost: cpu_cost.c. In what a token takes of the linear layers. */
typedef struct fl_cpu_cost {
    double attention; /* a token's of a key that it sees */
    double heads;     /* of a token, what lies in products that are shared by heads */
    double barrier, arrival;
} fl_cpu_cost;

/* Packed weights, for all engines that were opened alike on a NUMA node. */
typedef struct fl_cpu_panels {
    atomic_uint users;
    void       *block; /* owned: fl_big_alloc; NULL: they lie in `file` */
    size_t      bytes;
    fl_map      file; /* mapped; empty: none */
} fl_cpu_panels;

struct fl_engine {
    fl_encoder_desc       desc;
    fl_pooling            pooling[FL_POOL_COUNT];
    uint32_t              pooling_count;
    const fl_cpu_kernels *kernels;
    fl_cpu_narrow         narrow;          /* of the format, as provider.numerics has it */
    char                  why[160];        /* why these kernels */
    fl_cpu_format         format;          /* of products */
    fl_cpu_weights        weights_kept;    /* float32 products only */
    char                  why_format[160]; /* "": it was asked for, or is auto's */
    /* shapes */
    size_t hidden16, embed16, head16, mlp16;
    size_t wide16; /* the wider one of hidden16 and embed16 */
    size_t group;  /* query heads that share a key and value head, where a layer attends */
    size_t kv_max; /* key and value heads of a layer, at most */
    size_t q_run;  /* of which so many are computed at a time */
    size_t inner;  /* heads * head16 */
    size_t q_joint, k_joint; /* norms over all heads: heads * head_dim, padded; else 0 */
    size_t relative16;       /* columns of distances, padded (DeBERTa); else 0 */
    size_t experts16;        /* of the layer with most experts; 0: none has any */
    size_t expert_rows;      /* rows that an expert takes at a time */
    bool   gated, pre_norm;  /* the MLP; norms in front of the blocks */
    size_t max_length;       /* longest text */
    size_t rows_max;         /* rows that go through a product at a time: what L2 holds */
    size_t block_size;       /* tokens of a usual block */
    size_t block_max;        /* tokens of a thread's largest block: block_size or one usual text */
    size_t mlp_tiles;        /* of FL_CPU_MLP_TILE columns between the two products of the MLP */
    size_t batch_texts;
    /* weights */
    fl_tensor    word;                 /* read in place */
    fl_tensor    word_map, word_scale; /* static models: likewise */
    const float *positions; /* [max_length + 1, embed16], type row 0 added; NULL: none. With
                                segments the same follows with type row 1 */
    fl_cpu_norm  embed_norm, final_norm;
    const float *project, *project_bias; /* embed16 to hidden16, float32 panels; NULL for none */
    const float *mlm,
        *mlm_bias; /* vocabulary head: hidden16 to embed16, float32 panels; NULL: none, or a bare one */
    fl_cpu_norm   mlm_norm;
    fl_cpu_latent latent;
    const float  *decoder, *decoder_bias; /* embed16 to the vocabulary; NULL: no head */
    fl_cpu_rope   rope[FL_RULES_MAX];     /* as the descriptor has them */
    fl_cpu_window window[FL_RULES_MAX];
    size_t        bias_stride;
    const int32_t
        *column; /* DeBERTa: [2 max_length - 1] of a distance, 0 at max_length - 1; rising */
    fl_cpu_layer  *layers;  /* owned [layers] */
    fl_cpu_panels *panels;  /* a share of it */
    bool           borrows; /* another engine counts them */
    size_t         weights_bytes;
    char           pack_note[1024]; /* its path, or why there is none; "": nobody asked for it */
    /* running */
    char            device[64]; /* the processor's name */
    unsigned        threads;
    fl_trace       *trace;    /* borrowed; NULL: off */
    bool            pinned;   /* to cores; then forward keeps to the replica's own thread */
    fl_team        *team;     /* owned */
    fl_barrier     *barriers; /* owned [threads], one a split group */
    fl_cpu_scratch *scratch;  /* owned [threads] */
    void           *arena;    /* owned: what scratch and plan point into */
    size_t          arena_bytes;
    size_t          page_bytes; /* of the kernel, the small ones */
    bool            huge_pages; /* big blocks are backed by them */
    fl_cpu_plan     plan;
    fl_cpu_cost     cost;
    unsigned        long_ranks; /* of the split group that runs texts longer than block_max */
    fl_cpu_prompt   prompt;
    fl_cpu_long     longer;
    /* the forward under way */
    const fl_batch *batch;
    atomic_uint     next_block;
    double         *watch;     /* while calibrating: [layers][2][hidden16] sums of squares */
    atomic_uint     bad_text;  /* lowest index whose pooled row is not finite; UINT32_MAX: none */
    atomic_bool     no_memory; /* for a text's terms */
};

/* pack.c: what the panels take, once their forms are chosen; where everything is in such a block; and a block of the
 * engine's own, filled. Whoever changes a byte of it raises FL_CPU_PACK_VERSION: files of other versions are packed
 * anew (test_engine_pack.c). */
enum { FL_CPU_PACK_VERSION = 1 };
void fl_cpu_pack_size(fl_engine *engine, const fl_encoder *encoder);
void fl_cpu_pack_place(fl_engine *engine, const fl_encoder *encoder, const void *weights);
int  fl_cpu_pack(fl_engine *engine, const fl_encoder *encoder, fletch_error *error);

/* pack_cache.c: the packed weights, those of an engine like this one, mapped from the cache or made. */
int  fl_cpu_weights_open(fl_engine *engine, const fl_encoder *encoder,
                         const fl_engine_options *options, fletch_error *error);
void fl_cpu_weights_close(fl_engine *engine);

/* tables.c; where an id's row is in the word table, and EMODEL when the file's map leaves the table */
uint64_t fl_cpu_word_row(const fl_tensor *map, int32_t id);
int      fl_cpu_check_word_map(const fl_encoder *encoder, fletch_error *error);
size_t   fl_cpu_lay_out_tables(fl_engine *engine, const fl_encoder *encoder, float *base);
/* [heads][bias_stride] of a rule; `layer` counts where each has its own table. */
void fl_cpu_spread_bias(const fl_engine *engine, const fl_encoder *encoder, size_t rule,
                        uint32_t layer, float *out);
void fl_cpu_fill_tables(const fl_engine *engine, const fl_encoder *encoder);
/* Floats of scratch.pair. */
static inline size_t fl_cpu_pair(const fl_engine *e, size_t rows) {
    return e->gated || e->latent.width16 > 0 ? rows * 2 * FL_CPU_LANES : 0;
}

/* The row of `positions` at which those of type 1 begin. */
static inline size_t fl_cpu_segment_row(const fl_engine *e) {
    return e->max_length + 1;
}

/* Whether a product's panels are float32. */
static inline bool fl_cpu_is_float(const fl_engine *e, const fl_cpu_form *form) {
    return e->format == FL_CPU_FP32 && form->groups.bits == 0;
}

/* Bytes of a panel of k steps; a whole number of cache lines. */
static inline size_t fl_cpu_panel(const fl_engine *e, const fl_cpu_form *form, size_t k) {
    return form->groups.bits > 0      ? (fl_cpu_groups_bytes(&form->groups, k) + 63) / 64 * 64
           : e->format == FL_CPU_FP32 ? FL_CPU_LANES * k * sizeof(float)
                                      : fl_cpu_narrow_panel(e->format, k);
}

/* What a query's weights are multiplied by; where queries are normed, that norm's are. */
static inline float fl_cpu_query_scale(const fl_engine *e, const fl_cpu_layer *layer) {
    bool own = e->desc.qk_norm == FL_QK_NORM_NONE && layer->conv == NULL;
    return own ? e->desc.attention_scale : 1.0f;
}

/* Bytes of the up panels of `width` columns between the two products of the MLP, and of these with the down panels
 * after them. */
static inline size_t fl_cpu_up(const fl_engine *e, const fl_cpu_layer *layer, size_t width) {
    return (e->gated ? 2 : 1) * (width / FL_CPU_LANES) *
           fl_cpu_panel(e, &layer->up_form, e->hidden16);
}
static inline size_t fl_cpu_mlp_tile(const fl_engine *e, const fl_cpu_layer *layer, size_t width) {
    return fl_cpu_up(e, layer, width) +
           e->hidden16 / FL_CPU_LANES * fl_cpu_panel(e, &layer->down_form, width);
}

/* Bytes of a whole MLP, or of one expert. */
static inline size_t fl_cpu_mlp(const fl_engine *e, const fl_cpu_layer *layer) {
    return e->mlp16 / FL_CPU_MLP_TILE * fl_cpu_mlp_tile(e, layer, FL_CPU_MLP_TILE) +
           fl_cpu_mlp_tile(e, layer, e->mlp16 % FL_CPU_MLP_TILE);
}

/* pack.c, int8: once more the matrices that x goes into, after their gains changed. */
int fl_cpu_pack_again(fl_engine *engine, const fl_encoder *encoder, fletch_error *error);

/* Bytes of a number in the rows of a narrow product; bf16 may take float32 rows as they are. */
static inline size_t fl_cpu_unit(const fl_engine *e) {
    return e->narrow.quantize == NULL ? sizeof(float)
           : e->format == FL_CPU_INT8 ? sizeof(uint8_t)
                                      : sizeof(int16_t);
}

/* quant.c: columns[k][16] -> one int8 panel; k a multiple of 16, `group` as in fl_gemm. */
void fl_cpu_quantize_panel(const float *columns, size_t k, int group, uint8_t *panel);

/* quant16.c: the same for int16 and bf16. */
void fl_cpu_quantize_panel16(const float *columns, size_t k, uint8_t *panel);
void fl_cpu_round_panel16(const float *columns, size_t k, uint8_t *panel);

/* groups.c: the forms of a layer's products; one column of a panel as blocks have it, from the `first` value of w on;
 * a panel rounded from columns[steps][16]; and a product of float32 rows and
 * weights in groups, which are multiplied by `factor`. */
void fl_cpu_choose_forms(const fl_engine *engine, const fl_tensor *slot, fl_cpu_layer *layer);
void fl_cpu_keep_column(const fl_groups *groups, const fl_tensor *w, uint64_t first, size_t steps,
                        size_t lane, uint8_t *panel);
void fl_cpu_round_columns(const fl_groups *groups, const float *columns, size_t steps,
                          uint8_t *panel);
void fl_cpu_multiply_groups(const fl_cpu_kernels *kernels, const fl_groups *groups, float factor,
                            const fl_gemm *g);

/* cpu_calibrate.c: find the gains with a short forward of the packed engine, then pack again. */
int fl_cpu_calibrate(fl_engine *engine, const fl_encoder *encoder, fletch_error *error);

/* cpu_prompt.c: open takes memory where the model allows it. prepare says how much of each text of a batch
 * is known already, after it computed what many begin with and was not. */
int  fl_cpu_prompt_open(fl_engine *engine, fletch_error *error);
void fl_cpu_prompt_close(fl_engine *engine);
void fl_cpu_prompt_prepare(fl_engine *engine, const fl_batch *batch);
/* Whether the batch is better run in pieces, each with its own prompt; the end of the one from text `first` on. */
bool     fl_cpu_prompt_divides(const fl_engine *engine, const fl_batch *batch);
uint32_t fl_cpu_prompt_run(const fl_engine *engine, const fl_batch *batch, uint32_t first);

/* cpu_long.c: room for a text of `length` tokens, where it is longer than block_max; and what that takes. */
int    fl_cpu_long_reserve(fl_engine *engine, size_t length, fletch_error *error);
size_t fl_cpu_long_bytes(const fl_engine *engine, size_t length);
void   fl_cpu_long_close(fl_engine *engine);

/* cpu_engine.c: room for `count` things of `size` bytes at a multiple of 64, and for rows of narrow numbers; NULL
 * base only counts. */
void       *fl_cpu_place(char *base, size_t *used, size_t count, size_t size);
fl_cpu_rows fl_cpu_place_rows(const fl_engine *engine, char *base, size_t *used, size_t rows,
                              size_t width);

/* cpu_engine.c: a batch through plan and team; `bad_text` tells. */
void fl_cpu_run_batch(fl_engine *engine, const fl_batch *batch);

/* disentangled.c: the attention of `all`, whose bias it makes, from query head `head` on, by the kernel `run`; and
 * the floats of scratch for texts of n tokens. */
enum { FL_CPU_RELATIVE_ROWS = 96 /* queries that the kernel is given at a time */ };
void   fl_cpu_attend_disentangled(const fl_engine *engine, const fl_cpu_layer *layer, size_t head,
                                  const fl_attention *all, void (*run)(const fl_attention *),
                                  float              *scratch);
size_t fl_cpu_disentangled_scratch(const fl_engine *engine, size_t n);

/* cpu_cost.c: what does not depend on a batch; a text of n tokens on one thread, a block on a split group, and
 * how often that meets in a layer; and the largest split group of which each rank is worth having. */
void     fl_cpu_cost_open(fl_engine *engine);
double   fl_cpu_text_cost(const fl_engine *engine, double n);
double   fl_cpu_group_time(const fl_engine *engine, const fl_cpu_block *block, unsigned ranks);
unsigned fl_cpu_group_waits(const fl_engine *engine, size_t tokens, unsigned ranks);
unsigned fl_cpu_group_size(const fl_engine *engine, const fl_cpu_block *block);

/* cpu_plan.c */
void fl_cpu_plan_make(fl_engine *engine, const fl_batch *batch);

/* What the plan of such a batch would be if its lengths fell evenly from the longest: the plan that is
 * chosen then and, where lengths differ and another would take about as long, that one too. */
enum { FL_CPU_GUESSES = 2 };
typedef struct fl_cpu_guess {
    uint32_t
        tokens; /* of the largest block of a thread or split group; texts longer than block_max aside */
    uint32_t rows; /* of one that go through a product at a time, at most: see fl_cpu_rows_step */
    uint32_t longest; /* text */
    uint32_t blocks;
    unsigned threads; /* that work */
    unsigned ranks;   /* of a split group that they are; 1: each has blocks of its own */
} fl_cpu_guess;
unsigned fl_cpu_plan_guess(const fl_engine *engine, uint32_t texts, uint32_t tokens,
                           uint32_t longest, fl_cpu_guess out[FL_CPU_GUESSES]);

/* cpu_memory.c: the bytes of scratch that a batch writes; see engine.h. */
uint64_t fl_cpu_memory(const fl_engine *engine, uint32_t texts, uint32_t tokens, uint32_t longest);

/* cpu_forward.c: `thread` runs a block alone (ranks 1), or its part of it as one of a split group: then
 * all of its threads, those from a multiple of `ranks` on, call it with the same block. */
void fl_cpu_run_block(fl_engine *engine, const fl_cpu_block *block, unsigned thread,
                      unsigned ranks);

/* Rows of a block of `tokens` that go through a product at a time: equal steps of at most rows_max,
 * whole tiles. */
size_t fl_cpu_rows_step(const fl_engine *engine, size_t tokens);

/* cpu_layers.c: whether a split group splits a block by rows where it can. Ranks then read all weights each, but
 * wait twice a layer, not a dozen times, and leave what they write in their own L2: from 24 tokens on
 * two threads 1.05 to 1.1 times as fast in fp32, from 12 tokens 1.1 to 1.3 times in int8 (AVX2). */
bool fl_cpu_by_rows(const fl_engine *engine, size_t tokens, unsigned ranks);

/* Rows of x whose value depends on nothing but one row of the last layer: a text is pooled to it alone.
 * SIZE_MAX: pooling reads more. */
size_t fl_cpu_pooled_row(const fl_engine *engine, size_t n, size_t skip);

/* The vtable, for registry.c; and what formats are called, by fl_cpu_format. */
extern const char *const   fl_cpu_format_name[];
extern const fl_engine_ops fl_cpu_engine_ops;

#endif
