/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_engine.h - what the files of the CUDA module share: the open engine and its parts.
 *
 * Role    cuda_engine.c opens and closes; cuda_weights.c brings the model to the device; tiers.c sizes
 *         everything; product.c speaks to cublasLt; cuda_layers.c is the forward pass as launches;
 *         cuda_forward.c takes a batch up and its rows down; cuda_graph.c keeps captured launches; cuda_memory.c
 *         has the device's blocks and their account, pinned.c the host's buffers; cuda_calibrate.c makes
 *         the gains of int8, rescue.c runs a text again that overflowed.
 * Sizes   A batch is computed at its tier: its tokens rounded up to one of at most FL_CUDA_TIERS
 *         sizes, at most 1/8 more. The tier fixes every grid, product and address; the true counts
 *         are on the device. That is what a captured graph needs, and the same launches are made
 *         without one.
 * State   Experimental: proven on a simulated device alone (docs/cuda.md). No figure of a real one stands behind a
 *         choice that is made here, so that none is made for speed alone: what the first device shows to be
 *         slow is worth its code then.
 * Memory  On the device: one block, taken in open, from the driver's pool: the weights, and per slot
 *         an arena and a cublasLt workspace. On the host: pinned blocks per slot. Nothing is
 *         allocated by forward but captured graphs, a bounded number, and what rescue.c opens once.
 * Threads A slot belongs to one thread at a time; plans are made under a lock. */
#ifndef FL_ENGINES_CUDA_CUDA_ENGINE_H
#define FL_ENGINES_CUDA_CUDA_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "engines/cuda/driver.h"
#include "engines/cuda/kernels/cuda_kernels.h"
#include "engines/engine.h"

enum {
    FL_CUDA_TIERS      = 128, /* more than tiers up to 2^20 tokens */
    FL_CUDA_TIER_LEAST = 32,
    FL_CUDA_GRAPHS     = 48,   /* captured graphs of a slot; the least used one gives way */
    FL_CUDA_GRAPH_MOST = 2048, /* tokens: above, launches hide behind what they launch */
    FL_CUDA_SLOTS      = 64,
    FL_CUDA_STAGES     = 2,
    FL_CUDA_MARKS      = 1024 /* launches of a batch that cuda_profile.c tells apart */
};

/* The element types, and what a product may take instead of them. */
typedef enum fl_cuda_type {
    FL_CUDA_F32,
    FL_CUDA_F16,
    FL_CUDA_BF16,
    FL_CUDA_Q8,   /* int8, a scale per row: engine int8 */
    FL_CUDA_E4M3, /* 8-bit float, a scale per matrix: engine fp8 */
    FL_CUDA_TYPES
} fl_cuda_type;

typedef enum fl_cuda_kernel {
    FL_CUDA_EMBED,
    FL_CUDA_ROTATE,
    FL_CUDA_ATTENTION_SHORT,
    FL_CUDA_ATTENTION_LONG,
    FL_CUDA_ATTENTION_SHORT_RULED,
    FL_CUDA_ATTENTION_LONG_RULED,
    FL_CUDA_RESIDUAL_NORM,
    FL_CUDA_BIAS_ACT,
    FL_CUDA_GLU,
    FL_CUDA_POOL,
    FL_CUDA_QUANTIZE,
    FL_CUDA_DEQUANTIZE,
    FL_CUDA_KERNELS
} fl_cuda_kernel;

/* The four products of a layer; those of one shape and type in several layers share their plans, and
 * are of one kind. */
typedef enum fl_cuda_product {
    FL_CUDA_QKV,
    FL_CUDA_OUT,
    FL_CUDA_UP,
    FL_CUDA_DOWN,
    FL_CUDA_PRODUCTS,
    FL_CUDA_KINDS = 2 * FL_CUDA_PRODUCTS /* the second four: in e4m3 */
} fl_cuda_product;

/* One product's weights [n, k], of the type that it takes. */
typedef struct fl_cuda_matrix {
    CUdeviceptr          weights, scales; /* scales: float32 [n] of int8, else 0 */
    float                alpha;           /* what the sums are multiplied by: 1, or e4m3's scales */
    CUdeviceptr          gain;            /* int8 of qkv and up: float32 [k], for its input; or 0 */
    CUdeviceptr          bias;            /* [n] of the element type when `fused`, else float32 */
    fl_cuda_type         takes;           /* the type of weights and input */
    bool                 fused;           /* cublasLt adds the bias (and activates) */
    bool                 act_apart;       /* of up: fused, but fl_bias_act activates */
    bool                 adds;            /* of out and down: to what stands in the output */
    cublasLtMatmulDesc_t desc;            /* owned; knows epilogue and bias */
} fl_cuda_matrix;

typedef struct fl_cuda_norm {
    CUdeviceptr weight, bias; /* float32 [hidden] */
    float       e4m3_scale;   /* e4m3 * e4m3_scale ~ value; 0: no product behind takes it */
} fl_cuda_norm;

typedef struct fl_cuda_layer {
    fl_cuda_matrix product[FL_CUDA_PRODUCTS];
    fl_cuda_norm   attention_norm, mlp_norm;
    CUdeviceptr    q_norm, k_norm; /* float32 [head_dim], or 0 */
} fl_cuda_layer;

/* Tables of the rules that layers share: desc.rope and desc.distance. float32. */
typedef struct fl_cuda_rope {
    CUdeviceptr cosines, sines; /* [max_length, dims / 2], or 0 */
} fl_cuda_rope;
typedef struct fl_cuda_bias {
    CUdeviceptr table; /* [2 * most + 1, heads], or 0 */
    uint32_t    most;  /* the distance it ends at */
} fl_cuda_bias;

/* How cublasLt runs a product at a tier. */
typedef struct fl_cuda_plan {
    cublasLtMatrixLayout_t in, out; /* owned: [tokens, k] and [tokens, n] */
    cublasLtMatmulAlgo_t   algo;
} fl_cuda_plan;

typedef struct fl_cuda_tier {
    atomic_bool  ready;
    uint32_t     tokens, texts; /* most texts it takes */
    fl_cuda_plan plan[FL_CUDA_KINDS];
} fl_cuda_tier;

/* In front of which products of a layer cuda_calibrate.c looks at x. */
typedef enum fl_cuda_watched {
    FL_CUDA_BEFORE_QKV,
    FL_CUDA_BEFORE_UP,
    FL_CUDA_WATCHED
} fl_cuda_watched;

/* Where everything of a forward at one tier lies in a slot's arena (tiers.c). The parts up to
 * `input_bytes` come up in one copy, `bad` and `rows` go down in one. */
typedef struct fl_cuda_place {
    CUdeviceptr meta, cu, skip, segment, ids; /* segment: 0 without desc.segments */
    CUdeviceptr short_tiles, long_tiles;
    CUdeviceptr places;                     /* [tokens] uint32, or 0: nothing turns */
    CUdeviceptr x, y, qkv, context, middle; /* middle lies over qkv and context; y: 0 where every
                                               product reads x and adds to it */
    CUdeviceptr narrow;                     /* a product's input as int8 or e4m3, or 0 */
    CUdeviceptr row_scales, sums;           /* int8 only */
    CUdeviceptr bad, rows;                  /* over qkv and context, written by pooling alone */
    size_t cu_at, skip_at, segment_at, short_at, long_at, ids_at, input_bytes; /* in the input */
    size_t rows_at, output_bytes;                                              /* from bad */
    size_t bytes;
} fl_cuda_place;

/* Which attention a batch needs; a graph is captured for one answer. */
enum {
    FL_CUDA_HAS_SHORT = 1, /* a text of up to FL_CUDA_SHORT_TOKENS */
    FL_CUDA_HAS_LONG  = 2,
    FL_CUDA_MIXES     = 4
};

/* What fixes all launches of a batch. */
typedef struct fl_cuda_shape {
    uint32_t tier, mix;
} fl_cuda_shape;

typedef struct fl_cuda_graph {
    CUgraphExec   exec; /* owned; NULL: free */
    fl_cuda_shape shape;
    uint64_t      used; /* when last, in launches of the slot */
} fl_cuda_graph;

typedef struct fl_cuda_marks fl_cuda_marks; /* cuda_profile.c */

typedef struct fl_cuda_slot {
    CUstream       stream;
    CUevent        uploaded, done;
    CUdeviceptr    arena, workspace; /* in the engine's block */
    unsigned char *input, *output;   /* owned, pinned */
    fl_cuda_marks *marks;            /* owned; NULL: kernels are not timed */
    fl_cuda_graph  graphs[FL_CUDA_GRAPHS];
    uint64_t       launches;
    bool           seen[FL_CUDA_TIERS][FL_CUDA_MIXES]; /* launched singly: may be captured */
    bool           no_graph[FL_CUDA_TIERS];            /* capturing failed once */
} fl_cuda_slot;

/* Where blocks of a device come from, and their account (cuda_memory.c). */
typedef struct fl_cuda_blocks {
    CUmemoryPool handle;  /* NULL: blocks are taken one by one */
    unsigned     engines; /* that share it */
    uint64_t     used, peak, takes, hits;
} fl_cuda_blocks;

struct fl_engine {
    const fl_cuda *cuda;
    const fl_log  *log;
    /* as it was opened, for rescue.c; of the options what lives as long as the replica is read */
    const fl_encoder *encoder;
    fl_engine_options options;
    bool              aside; /* fl_cuda_open_aside opened it */
    fl_trace         *trace;
    CUdevice          device;
    CUcontext         context; /* retained */
    CUmodule          module;
    CUfunction        kernels[FL_CUDA_KERNELS];
    char              name[96], bus[32];
    int               major, minor; /* compute capability */
    /* the model */
    fl_encoder_desc desc;
    fl_pooling      pooling[FL_POOL_COUNT];
    uint32_t        pooling_count, width;
    uint32_t        inner, qkv_width; /* heads * head_dim; with both times kv_heads * head_dim */
    uint32_t        up_width;         /* intermediate, twice where there is a gate */
    fl_cuda_type    type, narrow;     /* of elements; of products where it can be: fl_cuda_takes */
    uint32_t        element;          /* bytes of the type */
    bool            deterministic, use_graphs;
    bool            chooses; /* nobody asked for a size of batches */
    char            precision[8];
    CUdeviceptr     block;   /* owned: all that the engine has of the device */
    CUdeviceptr     weights; /* at its head */
    uint64_t        weights_bytes;
    CUdeviceptr     word, position, token_type;
    fl_cuda_rope    rope[FL_RULES_MAX];
    fl_cuda_bias    bias[FL_RULES_MAX];
    fl_cuda_norm    embed_norm, final_norm; /* weight 0: there is none */
    fl_cuda_layer  *layers;                 /* owned */
    float *gains; /* owned; int8: [layers][FL_CUDA_WATCHED][hidden], see cuda_calibrate.c */
    /* running */
    fl_cuda_blocks        *pool; /* of the device, or `own` */
    fl_cuda_blocks         own;
    fl_engine             *next_open; /* pinned.c; of one kept aside, hang.c */
    uint64_t               patience_ns;
    atomic_bool            hangs;                 /* hang.c: its device does not answer */
    unsigned char         *stage[FL_CUDA_STAGES]; /* owned, pinned: weights on their way */
    unsigned char         *watch; /* pinned: x in front of products goes there (cuda_calibrate.c) */
    pthread_mutex_t        rescue_lock;
    fl_engine             *rescue; /* owned; NULL until a text needs it */
    uint32_t               batch_texts, max_length, slot_count, tier_count;
    uint64_t               arena_bytes, workspace_bytes, host_bytes;
    cublasLtHandle_t       lt;
    const fl_cuda_matrix  *first[FL_CUDA_KINDS];         /* of each kind; NULL: there is none */
    cublasLtMatrixLayout_t weight_layout[FL_CUDA_KINDS]; /* owned */
    cublasLtMatmulAlgo_t   fixed[FL_CUDA_KINDS];         /* deterministic: one for all tiers */
    pthread_mutex_t        lock;                         /* of making plans */
    fl_cuda_tier           tiers[FL_CUDA_TIERS];
    CUstream               transfer; /* NULL: copies go by the slot's own stream */
    atomic_uint            running;  /* forwards in flight */
    atomic_uint            captured;
    atomic_uint_fast64_t   batches, graph_launches, direct_batches;
    fl_cuda_slot          *slots; /* owned [slot_count] */
};

/* tiers.c */
uint32_t fl_cuda_tier_of(uint32_t tokens); /* index of the least tier that holds them */
void     fl_cuda_lay_out(const fl_engine *e, uint32_t tier, CUdeviceptr base, fl_cuda_place *out);
/* Chooses the largest tier that fits and the sizes that follow; ENOMEM when not one text does. */
int fl_cuda_fit(fl_engine *e, uint32_t tokens, uint64_t limit, fletch_error *error);

uint64_t fl_cuda_resident(const fl_engine *e); /* bytes of its block, once it is fitted */
void     fl_cuda_share_out(fl_engine *e);      /* the block among weights and slots */

/* cuda_memory.c. The context is current but for the account. */
void     fl_cuda_memory_open(fl_engine *e, bool pooled);
void     fl_cuda_memory_close(fl_engine *e);
CUresult fl_cuda_take(fl_engine *e, CUdeviceptr *out, size_t bytes);
/* What a block of so many takes of the device: what is asked for, so that nothing is lost. */
uint64_t fl_cuda_mapped(const fl_engine *e, uint64_t bytes);
/* *block becomes 0; false: the driver does not take it back now. */
bool     fl_cuda_give(fl_engine *e, CUdeviceptr *block, size_t bytes);
uint64_t fl_cuda_spare(const fl_engine *e); /* what the pool has and nobody uses */
void     fl_cuda_account(const fl_engine *e, fl_device_load *out);

/* pinned.c: host_alloc and host_free of engine.h, and whether the driver copies there by itself. */
void  fl_cuda_pinned_open(fl_engine *e);
void  fl_cuda_pinned_close(fl_engine *e); /* no forward of it runs; never opened is a no-op */
void  fl_cuda_pinned_leave(fl_engine *e); /* the same for one that hangs: the driver is not asked */
void *fl_cuda_host_alloc(size_t bytes);
void  fl_cuda_host_free(void *block, size_t bytes);
bool  fl_cuda_is_pinned(const void *at, size_t bytes);

/* hang.c. Waits of the engine, its context being current: an event or, where that is NULL, all of a stream;
 * the first `poll_ns` without sleeping. CUDA_ERROR_LAUNCH_TIMEOUT: the device does not answer. */
void     fl_cuda_hang_open(fl_engine *e, const fl_config *config);
CUresult fl_cuda_await(fl_engine *e, CUstream stream, CUevent event, uint64_t poll_ns);
/* fl_cuda_check of what a wait gave */
int fl_cuda_awaited(const fl_engine *e, CUresult result, int code, fletch_error *error,
                    const char *what);
/* True: the engine must not be closed yet, and hang.c has it now. */
bool fl_cuda_keep_aside(fl_engine *e);
void fl_cuda_hang_close(fl_engine *e);
/* Whether engines are kept aside on the device; those that are done are closed. */
bool fl_cuda_device_hangs(CUdevice device);
bool fl_cuda_hangs(void); /* any engine of the process */
/* A forward, from the first that it puts on a stream to the last that it waits for. */
typedef struct fl_cuda_work {
    struct fl_cuda_work *next;
    uint64_t             number;
} fl_cuda_work;
void fl_cuda_work_begin(fl_cuda_work *work);
void fl_cuda_work_end(fl_cuda_work *work);
/* Waits for the works under way, before what frees, which would wait for them without a limit. False: an engine
 * other than `e` and its rescue hangs. */
bool fl_cuda_others_end(const fl_engine *e);

/* cuda_weights.c: count the bytes, a multiple of 256, then, with the block there, convert and copy all. */
uint64_t fl_cuda_weights_bytes(fl_engine *e);
void     fl_cuda_stages_close(fl_engine *e);
int fl_cuda_upload(fl_engine *e, const fl_encoder *encoder, uint32_t threads, fletch_error *error);

/* product.c */
extern const char *const fl_cuda_product_names[FL_CUDA_PRODUCTS];
void fl_cuda_product_size(const fl_engine *e, fl_cuda_product p, uint32_t *n, uint32_t *k);
/* What product p of a layer takes, and whether cublasLt adds its bias: into *m. */
void fl_cuda_takes(const fl_engine *e, uint32_t layer, fl_cuda_product p, fl_cuda_matrix *m);
int  fl_cuda_products_open(fl_engine *e, fletch_error *error);
void fl_cuda_products_close(fl_engine *e);
int fl_cuda_plan_tier(fl_engine *e, uint32_t tier, fletch_error *error); /* quick when it is made */
int fl_cuda_multiply(const fl_engine *e, const fl_cuda_slot *slot, uint32_t tier,
                     const fl_cuda_layer *layer, fl_cuda_product p, CUdeviceptr in, CUdeviceptr out,
                     fletch_error *error);

/* cuda_layers.c: the whole forward pass of a shape into the slot's stream. */
int fl_cuda_enqueue(const fl_engine *e, const fl_cuda_slot *slot, fl_cuda_shape shape,
                    fletch_error *error);

/* cuda_profile.c: kernels' times into the trace, where there is one and no graphs. `name` is static. */
void fl_cuda_marks_begin(const fl_engine *e, fl_cuda_slot *slot);
void fl_cuda_mark(const fl_engine *e, const fl_cuda_slot *slot, const char *name);
void fl_cuda_marks_tell(const fl_engine *e, const fl_cuda_slot *slot, uint32_t tokens);
void fl_cuda_marks_close(const fl_engine *e, fl_cuda_slot *slot);

/* cuda_graph.c */
int  fl_cuda_run_shape(fl_engine *e, fl_cuda_slot *slot, fl_cuda_shape shape, fletch_error *error);
void fl_cuda_graphs_close(const fl_engine *e, fl_cuda_slot *slot);

/* cuda_forward.c */
int fl_cuda_forward(fl_engine *e, uint32_t slot, const fl_batch *batch, fletch_error *error);
int fl_cuda_warm(fl_engine *e, fletch_error *error);

/* cuda_engine.c: a second engine on the same device for the module's own use: one slot, no graphs. */
int fl_cuda_open_aside(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                       fletch_error *error);
void fl_cuda_close(fl_engine *e); /* NULL is a no-op */

/* cuda_calibrate.c: e->gains. */
int fl_cuda_calibrate(fl_engine *e, const fl_encoder *encoder, const fl_engine_options *options,
                      fletch_error *error);

/* rescue.c: text i of the batch, whose row came out not finite, alone in fp32 into its row; EMODEL at
 * i when that is not finite either. The context is current. */
int fl_cuda_rescue(fl_engine *e, const fl_batch *batch, uint32_t i, fletch_error *error);

/* cuda_describe.c */
int  fl_cuda_describe(const fl_engine *e, fletch_property_fn fn, void *user);
void fl_cuda_load(const fl_engine *e, fl_device_load *out);

#endif
