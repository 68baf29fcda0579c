/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.h - what an encoder is, as data: the descriptor and its weights in named slots.
 *
 * An architecture file (arch_bert.c, arch_mpnet.c …) translates config.json into a
 * fl_encoder_desc and says which tensor fills which slot; engines have one forward loop that
 * reads only this. A switch in config.json that changes the maths and is not expressed here is
 * refused by name, never approximated.
 *
 * Weights are [out, in] row-major as in the files: y = x Wᵀ + b. Views point into the mapped
 * files (owned by fl_model); an engine packs or converts them once when it opens. */
#ifndef FL_MODEL_ENCODER_H
#define FL_MODEL_ENCODER_H

#include <stdbool.h>
#include <stdint.h>

#include "fletch.h"
#include "model/tensor.h"

typedef enum fl_position { FL_POSITION_NONE, FL_POSITION_LEARNED } fl_position;
typedef enum fl_norm { FL_NORM_LAYER, FL_NORM_RMS } fl_norm;
typedef enum fl_norm_place { FL_NORM_POST, FL_NORM_PRE } fl_norm_place;
typedef enum fl_attention_bias {
    FL_BIAS_NONE,
    FL_BIAS_T5_BUCKETS,
    FL_BIAS_ALIBI
} fl_attention_bias;
typedef enum fl_attention_mask { FL_MASK_FULL, FL_MASK_CAUSAL } fl_attention_mask;
typedef enum fl_mlp { FL_MLP_PLAIN, FL_MLP_GLU } fl_mlp;
typedef enum fl_activation {
    FL_ACT_GELU_ERF,  /* 0.5 x (1 + erf(x / √2)): "gelu" */
    FL_ACT_GELU_TANH, /* "gelu_new", "gelu_pytorch_tanh", "gelu_fast" */
    FL_ACT_SILU,
    FL_ACT_RELU
} fl_activation;

typedef struct fl_encoder_desc {
    const char *architecture; /* model_type, static: "bert" */
    uint32_t    layers, hidden, heads, kv_heads, head_dim, intermediate;
    uint32_t    vocab;     /* rows of the word table */
    uint32_t    positions; /* usable: the longest text in tokens with specials */
    float       norm_eps;
    /* embeddings */
    fl_position position;
    uint32_t    position_offset;    /* row of the first token: 0 BERT, pad + 1 RoBERTa and MPNet */
    bool        position_skips_pad; /* a literal pad token in a text takes row pad_token and
                                        does not count: RoBERTa, MPNet (tables with a padding row) */
    uint32_t    pad_token;
    bool        token_type; /* add row 0 of the type table */
    uint32_t    types;      /* rows of the type table */
    /* norms */
    fl_norm       norm;
    fl_norm_place norm_place;
    bool          final_norm;
    /* attention */
    float             attention_scale; /* 1/√head_dim */
    fl_attention_bias attention_bias;
    uint32_t          bias_buckets;      /* T5: rows of the table (32) */
    uint32_t          bias_max_distance; /* T5: 128 */
    fl_attention_mask attention_mask;
    /* mlp */
    fl_mlp        mlp;
    fl_activation activation;
} fl_encoder_desc;

/* Tensors that exist once. Shapes in [] use the descriptor's names. */
typedef enum fl_slot {
    FL_SLOT_WORD,           /* [vocab, hidden] */
    FL_SLOT_POSITION,       /* [positions + position_offset, hidden] */
    FL_SLOT_TYPE,           /* [types, hidden] */
    FL_SLOT_EMBED_NORM_W,   /* [hidden] */
    FL_SLOT_EMBED_NORM_B,   /* [hidden] */
    FL_SLOT_ATTENTION_BIAS, /* T5: [bias_buckets, heads] */
    FL_SLOT_FINAL_NORM_W,
    FL_SLOT_FINAL_NORM_B,
    FL_SLOT_COUNT
} fl_slot;

/* Tensors of one layer. */
typedef enum fl_layer_slot {
    FL_LAYER_Q_W,
    FL_LAYER_Q_B, /* [heads * head_dim, hidden], [heads * head_dim] */
    FL_LAYER_K_W,
    FL_LAYER_K_B, /* [kv_heads * head_dim, hidden] */
    FL_LAYER_V_W,
    FL_LAYER_V_B,
    FL_LAYER_O_W,
    FL_LAYER_O_B, /* [hidden, heads * head_dim], [hidden] */
    FL_LAYER_ATTENTION_NORM_W,
    FL_LAYER_ATTENTION_NORM_B, /* [hidden] */
    FL_LAYER_UP_W,
    FL_LAYER_UP_B, /* [intermediate, hidden], [intermediate] */
    FL_LAYER_GATE_W,
    FL_LAYER_GATE_B, /* GLU only */
    FL_LAYER_DOWN_W,
    FL_LAYER_DOWN_B, /* [hidden, intermediate], [hidden] */
    FL_LAYER_MLP_NORM_W,
    FL_LAYER_MLP_NORM_B,
    FL_LAYER_SLOT_COUNT
} fl_layer_slot;

typedef enum fl_pooling {
    FL_POOL_CLS,
    FL_POOL_MAX,
    FL_POOL_MEAN,
    FL_POOL_MEAN_SQRT_LEN,
    FL_POOL_WEIGHTED_MEAN,
    FL_POOL_LAST_TOKEN,
    FL_POOL_COUNT
} fl_pooling;

typedef struct fl_encoder {
    fl_encoder_desc desc;
    fl_tensor       global[FL_SLOT_COUNT];   /* data NULL where the architecture has none */
    fl_tensor (*layer)[FL_LAYER_SLOT_COUNT]; /* owned by fl_model: [layers]; NULL when the folder
                                                holds no weights but an .onnx file */
    fl_pooling pooling[FL_POOL_COUNT];       /* concatenated in this order */
    uint32_t   pooling_count;                /* >= 1 */
} fl_encoder;

/* slots.c: EMODEL when a size is zero, or the buckets of relative attention make none. */
int fl_encoder_check_sizes(const fl_encoder_desc *desc, fletch_error *error);

/* EMODEL with the layer in error->where when a tensor that the descriptor calls for is missing, of
 * a type other than F32, F16 and BF16, or smaller than it says. `encoder->layer` is not NULL. */
int fl_encoder_check_slots(const fl_encoder *encoder, fletch_error *error);

/* Width of the pooled row: hidden * pooling_count. */
static inline uint32_t fl_encoder_width(const fl_encoder *encoder) {
    return encoder->desc.hidden * encoder->pooling_count;
}

#endif
