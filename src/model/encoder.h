/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.h - what an encoder is, as data: sizes and switches, the layers, and the weights by name.
 *
 *     x = word[id] * embed_scale (+ position) (+ type[0 or 1]);  embed_norm: x = norm(x)
 *     embedding != hidden: x = x P + b
 *     post:  x = norm(x + attention(x));  x = norm(x + mlp(x))
 *     pre:   x = x + attention(norm(x));  x = x + mlp(norm(x));  final_norm, at the end: x =
 *     norm(x) mlp:   plain down(act(up(x)));  GLU down(act(gate(x)) * up(x))
 *
 * A family (model/families) translates config.json into a fl_encoder_desc and says which tensor has
 * which name; engines have one forward loop that reads only this. A switch of config.json that
 * changes the maths and is not expressed here is refused by name, never approximated. What no
 * family varies from layer to layer stands once in the descriptor; what varies is in fl_layer_desc.
 * A descriptor of zeros, sizes apart, is BERT.
 *
 * Weights are [out, in] row-major as in the files: y = x Wᵀ + b. Views point into the mapped files
 * (owned by fl_model); an engine packs or converts them once when it opens. */
#ifndef FL_MODEL_ENCODER_H
#define FL_MODEL_ENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"
#include "model/tensor.h"

typedef enum fl_position { FL_POSITION_NONE, FL_POSITION_LEARNED } fl_position;

/* Layer norm: (x - mean) / √(var + eps) w + b. RMS: x / √(mean(x²) + eps) w, or (1 + w), without
 * bias. */
typedef enum fl_norm { FL_NORM_LAYER, FL_NORM_RMS, FL_NORM_RMS_PLUS_ONE } fl_norm;
typedef enum fl_norm_place { FL_NORM_POST, FL_NORM_PRE } fl_norm_place;

/* Norms besides the two that each layer has.
 * BRANCH    pre-norm: x = x + extra(branch(norm(x))), attention and MLP alike (Gemma)
 * RESIDUAL  post-norm: x = extra(x + norm(x + attention(x))); the MLP has none (JinaBERT with q/k
 *           norm) */
typedef enum fl_extra_norm {
    FL_EXTRA_NORM_NONE,
    FL_EXTRA_NORM_BRANCH,
    FL_EXTRA_NORM_RESIDUAL
} fl_extra_norm;

/* What happens to q and k before RoPE, with norm_eps. */
typedef enum fl_qk_norm {
    FL_QK_NORM_NONE,
    FL_QK_NORM_HEAD, /* each head by itself, of the kind of `norm`: weights [head_dim] */
    FL_QK_NORM_WIDE /* a layer norm over all heads together: weights and biases [heads * head_dim] */
} fl_qk_norm;

typedef enum fl_mlp { FL_MLP_PLAIN, FL_MLP_GLU } fl_mlp;
typedef enum fl_activation {
    FL_ACT_GELU_ERF,  /* 0.5 x (1 + erf(x / √2)): "gelu" */
    FL_ACT_GELU_TANH, /* "gelu_new", "gelu_pytorch_tanh", "gelu_fast" */
    FL_ACT_SILU,
    FL_ACT_RELU,
    FL_ACT_QUICK_GELU /* x / (1 + exp(-1.702 x)): CLIP */
} fl_activation;
enum { FL_ACTIVATIONS = FL_ACT_QUICK_GELU + 1 };

/* Rotary positions, halves (NeoX): of each head the first `dims` dimensions turn, x[i] with
 * x[i + dims / 2]. */
typedef enum fl_rope_scaling {
    FL_ROPE_DEFAULT,
    FL_ROPE_LINEAR,
    FL_ROPE_LLAMA3,
    FL_ROPE_YARN,
    FL_ROPE_FACTORS /* longrope: each pair by a factor of its own */
} fl_rope_scaling;
enum { FL_ROPE_PAIRS = 64 }; /* that may have factors */
typedef struct fl_rope {
    double          theta; /* as the reference holds it, in double */
    uint32_t        dims;  /* even, <= head_dim */
    fl_rope_scaling scaling;
    double          factor;                  /* of all but the default */
    double          low_factor, high_factor; /* llama3; yarn: pairs before the first are left, those
                                                behind the second are stretched */
    double          size;                    /* of cosines and sines, 0 for 1: yarn */
    bool            ends;    /* at `trained`: what comes behind is another formula */
    uint32_t        trained; /* llama3, yarn: positions before scaling; default: those beyond which
                                angles would change (dynamic), 0 for none */
    uint32_t longer; /* texts of more than `trained` tokens turn by desc.rope[longer - 1] from their
                                first token on; 0: by this one */
    float    factors[FL_ROPE_PAIRS];
} fl_rope;

/* Which keys a query sees and what is added to their scores, by key - query alone. */
typedef enum fl_attention_bias {
    FL_BIAS_NONE,
    FL_BIAS_T5_BUCKETS, /* a learnt table: FL_SLOT_ATTENTION_BIAS, or FL_LAYER_ATTENTION_BIAS */
    FL_BIAS_ALIBI,      /* -slope(head) * |key - query| */
    FL_BIAS_DISENTANGLED /* DeBERTa: query · KP[row] + key · QP[row], scaled as query · key, where KP and
                            QP are the keys and queries of a learnt table: FL_SLOT_RELATIVE; its row is
                            fl_distance_row. All heads, all layers; rule 0 */
} fl_attention_bias;
typedef struct fl_distance {
    bool              causal; /* no key after the query */
    uint32_t          window; /* keys with |key - query| <= window; 0: all */
    fl_attention_bias bias;
    uint32_t buckets, max_distance; /* T5: rows of the table (32), 128. DeBERTa: 256 of as many
                                                rows to each side, 0 for one a distance; 512 */
} fl_distance;

enum { FL_RULES_MAX = 4 }; /* different RoPEs, and different rules of distance, in one encoder */

/* With experts each MLP is plain, and a token goes to the experts_used most probable of them:
 *     y = Σ softmax(router x)[e] * down_e(act(up_e(x))) + DOWN_B, probabilities as they are. */
typedef struct fl_layer_desc {
    uint8_t  rope;                  /* 0: none; else desc.rope[rope - 1] */
    uint8_t  distance;              /* desc.distance[distance] */
    bool     skips_attention_norm;  /* pre-norm: attention reads x as it is (ModernBERT, layer 0) */
    bool     convolves;             /* fl_encoder_desc.taps in the place of attention */
    uint32_t experts, experts_used; /* 0: one MLP */
} fl_layer_desc;

typedef struct fl_encoder_desc {
    const char    *architecture; /* the family's name, static: "bert" */
    uint32_t       layers;       /* 0: the pooled embeddings are the result (static models) */
    fl_layer_desc *layer;        /* [layers], owned by whoever made the descriptor */
    uint32_t       hidden, heads, kv_heads, head_dim, intermediate;
    uint32_t embedding; /* width of the word table; PROJECT_W makes hidden of it if they differ */
    uint32_t vocab;     /* ids that a text may have */
    uint32_t word_rows; /* rows of the word table: vocab, unless word_map */
    uint32_t positions; /* usable: the longest text in tokens with specials */
    float    norm_eps;
    /* embeddings */
    bool        word_map, word_scale; /* static models: row = WORD[WORD_MAP[id]] * WORD_SCALE[id] */
    float       embed_scale;          /* of the word's row; 0 and 1: none */
    fl_position position;
    uint32_t    position_offset;    /* row of the first token: 0 BERT, pad + 1 RoBERTa and MPNet */
    bool        position_skips_pad; /* a literal pad token in a text takes row pad_token and
                                        does not count: RoBERTa, MPNet (tables with a padding row) */
    uint32_t    pad_token;
    bool        token_type; /* add row 0 of the type table */
    uint32_t    types;      /* rows of the type table */
    bool        segments;   /* pairs of texts come too, the second with row 1 of that table */
    bool        task_type;  /* add row 0 of the table of tasks (ERNIE) */
    uint32_t    tasks;      /* rows of that table */
    bool        embed_norm; /* always a layer norm */
    /* norms */
    fl_norm       norm;
    fl_norm_place norm_place;
    fl_extra_norm extra_norm;
    bool          final_norm;
    bool
        parallel; /* pre-norm: x = x + attention(norm(x)) + mlp(norm(x)), both of the same x (GPT-NeoX) */
    /* attention */
    fl_qk_norm  qk_norm;
    float       attention_scale;        /* 1/√head_dim */
    float       score_cap;              /* scores are cap tanh(s / cap); 0: as they are (Gemma 2) */
    fl_rope     rope[FL_RULES_MAX];     /* those in use come first; dims 0: none */
    fl_distance distance[FL_RULES_MAX]; /* likewise; zero: every key, nothing added */
    bool        bias_by_layer;          /* each layer has a T5 table of its own (UMT5) */
    bool        relative_norm;          /* DeBERTa's table is normed, by a layer norm */
    bool        relative_shared;        /* it goes through those of q and k, else its own */
    bool        keys_unbiased; /* no bias makes keys, of tokens or distances (DeBERTa v1) */
    /* What some layers have instead: a sum over a token and its neighbours, channel by channel, q, k and v as
     * wide as the model: y[t] = q[t] (b + Σ_i w[i] k[t - before + i] v[t - before + i]), i < taps; what lies
     * outside the text is 0. before: taps - 1, or centred taps / 2 */
    uint32_t taps;
    bool     taps_centred, conv_bias; /* biases of all its matrices and of the sum */
    /* mlp */
    bool          experts_unbiased; /* DOWN_B is not there */
    bool          experts_upright;  /* each down_e is [hidden, intermediate], not transposed */
    fl_mlp        mlp;
    fl_activation activation;
    /* Behind the final norm, of every token, by `latents` rows L of its own (NV-Embed); layer norms, eps 1e-5:
     *     x = x + Σ_h softmax(LN(x) Qᵀ (LN(L) Kᵀ)ᵀ / √dims) LN(L) Vᵀ Oᵀ;  x = x + down(gelu(gate(LN(x))) up(LN(x))) */
    uint32_t latents; /* 0: nothing is there */
    uint32_t latent_heads, latent_dims;
    /* vocabulary head: z = LN(act(x W + b)), as wide as the word table, with a weight for each id:
     * z · decoder[id] + bias[id] */
    bool          mlm;
    bool          mlm_bare;                   /* z is x itself (EuroBERT) */
    bool          mlm_tied;                   /* the decoder is the word table */
    bool          mlm_bias, mlm_decoder_bias; /* which of these there are */
    fl_activation mlm_activation;
    bool          late;     /* what is wanted is a vector a token, some of them no keys */
    bool          adapters; /* added to matrices: fl_tensor.adapter */
    /* which biases there are */
    bool qkv_bias, out_bias, up_bias, down_bias, norm_bias;
} fl_encoder_desc;

/* Sizes that tensors.def speaks of. */
static inline uint64_t fl_q_width(const fl_encoder_desc *d) {
    return (uint64_t)d->heads * d->head_dim;
}
static inline uint64_t fl_kv_width(const fl_encoder_desc *d) {
    return (uint64_t)d->kv_heads * d->head_dim;
}
/* Of one layer, which may convolve. */
static inline uint64_t fl_kv_rows(const fl_encoder_desc *d, const fl_layer_desc *l) {
    return l->convolves ? d->hidden : fl_kv_width(d);
}
static inline bool fl_has_qkv_bias(const fl_encoder_desc *d, const fl_layer_desc *l) {
    return l->convolves ? d->conv_bias : d->qkv_bias;
}
static inline uint64_t fl_qk_norm_width(const fl_encoder_desc *d, uint32_t heads) {
    return d->qk_norm == FL_QK_NORM_WIDE ? (uint64_t)heads * d->head_dim : d->head_dim;
}
/* Of the heads that ask the latents, side by side, and of the MLP behind them. */
static inline uint64_t fl_latent_width(const fl_encoder_desc *d) {
    return (uint64_t)d->latent_heads * d->latent_dims;
}
static inline uint64_t fl_latent_mlp(const fl_encoder_desc *d) {
    return 4 * (uint64_t)d->hidden;
}
/* Rows of the T5 table; 0 without one. It is always rule 0. */
static inline uint32_t fl_t5_rows(const fl_encoder_desc *d) {
    return d->distance[0].bias == FL_BIAS_T5_BUCKETS ? d->distance[0].buckets : 0;
}
/* Whether that table is another one in each layer. */
static inline bool fl_t5_by_layer(const fl_encoder_desc *d, const fl_distance *rule) {
    return d->bias_by_layer && rule->bias == FL_BIAS_T5_BUCKETS;
}
/* Distances to each side that DeBERTa's table tells apart, and its rows; 0 without one. */
static inline uint32_t fl_relative_span(const fl_encoder_desc *d) {
    const fl_distance *rule = &d->distance[0];
    return rule->bias != FL_BIAS_DISENTANGLED ? 0
           : rule->buckets > 0                ? rule->buckets
                                              : rule->max_distance;
}
static inline uint64_t fl_relative_rows(const fl_encoder_desc *d) {
    return 2 * (uint64_t)fl_relative_span(d);
}

#include "model/tensors.def"

#define FL_NAME(name, words, rows, columns, when) FL_SLOT_##name,
typedef enum fl_slot { FL_GLOBAL_TENSORS(FL_NAME) FL_SLOT_COUNT } fl_slot; /* exist once */
#undef FL_NAME
#define FL_NAME(name, words, rows, columns, when) FL_LAYER_##name,
typedef enum fl_layer_slot {
    FL_LAYER_TENSORS(FL_NAME) FL_LAYER_SLOT_COUNT
} fl_layer_slot; /* in each layer */
#undef FL_NAME

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
    bool
        projected; /* the first stage behind is the network's own, of every token: these are not kept */
    bool own_row; /* of an .onnx file pooler_output counts, and no mask is asked for (SigLIP) */
} fl_encoder;

/* What slot `slot` of a layer (NULL: of the whole) should hold; false when the descriptor calls
 * for none. */
typedef struct fl_shape {
    uint64_t    rows, columns; /* columns 0: a vector */
    const char *words;         /* for messages, static */
} fl_shape;
bool fl_encoder_shape(const fl_encoder_desc *desc, const fl_layer_desc *layer, int slot,
                      fl_shape *out);

/* flops.c: floating-point operations, 2 for a multiply and an add, of the products for one text; and
 * those of them that queries, keys and values make with each other. */
uint64_t fl_encoder_flops(const fl_encoder_desc *desc, uint32_t tokens);
uint64_t fl_encoder_pair_flops(const fl_encoder_desc *desc, uint32_t tokens);

/* slots.c: EMODEL when a size is zero or odd where it may not be, or a layer speaks of a rule
 * that is not there. */
int fl_encoder_check_sizes(const fl_encoder_desc *desc, fletch_error *error);

/* EMODEL with the layer in error->where when a tensor that the descriptor calls for is missing, of
 * a type other than F32, F16 and BF16, or smaller than it says; so is one that is there without
 * being called for. `encoder->layer` is not NULL unless there are no layers. */
int fl_encoder_check_slots(const fl_encoder *encoder, fletch_error *error);

/* support.c: what an engine can run. A switch that is not BERT's plain form is a feature; each has
 * a name in messages.
 *     X(NAME, "words", condition over the descriptor d and any layer l) */
#define FL_FEATURES(X)                                                                             \
    X(NO_LAYERS, "models without layers (static embeddings)", d->layers == 0)                      \
    X(WORD_MAP, "word tables with a map or weights", d->word_map || d->word_scale)                 \
    X(PROJECTION, "embeddings narrower than the model", d->embedding != d->hidden)                 \
    X(EMBED_SCALE, "scaled embeddings", d->embed_scale != 0 && d->embed_scale != 1)                \
    X(NO_EMBED_NORM, "embeddings without a norm", !d->embed_norm)                                  \
    X(RMS_NORM, "RMS norms", d->norm != FL_NORM_LAYER)                                             \
    X(PRE_NORM, "norms before the blocks (pre-norm)", d->norm_place == FL_NORM_PRE)                \
    X(EXTRA_NORM, "further norms in a layer", d->extra_norm != FL_EXTRA_NORM_NONE)                 \
    X(FINAL_NORM, "a final norm", d->final_norm)                                                   \
    X(QK_NORM, "norms of queries and keys", d->qk_norm == FL_QK_NORM_HEAD)                         \
    X(QK_NORM_WIDE, "norms of queries and keys over all heads", d->qk_norm == FL_QK_NORM_WIDE)     \
    X(GROUPED, "fewer key than query heads (grouped-query attention)", d->kv_heads != d->heads)    \
    X(WIDE_HEADS, "heads that together are not as wide as the model", fl_q_width(d) != d->hidden)  \
    X(GLU, "gated MLPs", d->mlp == FL_MLP_GLU)                                                     \
    X(QUICK_GELU, "quick GELU", d->activation == FL_ACT_QUICK_GELU)                                \
    X(ROPE, "rotary positions", l->rope > 0)                                                       \
    X(CAUSAL, "causal attention", d->distance[l->distance].causal)                                 \
    X(WINDOW, "attention in a window", d->distance[l->distance].window > 0)                        \
    X(T5, "relative attention", d->distance[l->distance].bias == FL_BIAS_T5_BUCKETS)               \
    X(LAYER_BIAS, "relative attention by a table for each layer", d->bias_by_layer)                \
    X(ALIBI, "ALiBi", d->distance[l->distance].bias == FL_BIAS_ALIBI)                              \
    X(DISENTANGLED, "scores of content and distance (DeBERTa)",                                    \
      d->distance[l->distance].bias == FL_BIAS_DISENTANGLED)                                       \
    X(CAPPED, "capped scores", d->score_cap > 0)                                                   \
    X(MIXED_RULES, "layers that see different keys", l->distance != d->layer[0].distance)          \
    X(EXPERTS, "mixtures of experts", l->experts > 0)                                              \
    X(CONVOLUTION, "gated convolutions (LFM2)", l->convolves)                                      \
    X(VOCABULARY, "weights of the vocabulary (SPLADE)", d->mlm)                                    \
    X(SEGMENTS, "pairs of texts with token types", d->segments)                                    \
    X(TASK_TYPE, "embeddings of tasks (ERNIE)", d->task_type)                                      \
    X(ADAPTERS, "adapters", d->adapters)                                                           \
    X(LATE, "a vector for every token (late interaction)", d->late)                                \
    X(LONGER_ROPE, "other angles in longer texts (longrope)", d->rope[0].longer > 0)               \
    X(LATENTS, "attention to latents (NV-Embed)", d->latents > 0)                                  \
    X(PARALLEL, "attention and MLP side by side (GPT-NeoX)", d->parallel)
#define FL_NAME(name, words, condition) FL_FEATURE_##name,
enum { FL_FEATURES(FL_NAME) FL_FEATURE_COUNT };
#undef FL_NAME
_Static_assert(FL_FEATURE_COUNT <= 64, "a feature is a bit");
#define FL_CAN(name) (UINT64_C(1) << FL_FEATURE_##name)

typedef struct fl_encoder_caps {
    const char *engine;        /* "the cuda engine" */
    const char *instead;       /* "use provider.order cpu" */
    uint64_t    features;      /* FL_CAN(…) | … */
    uint32_t    head_dims[4];  /* the only ones; {0}: any */
    uint32_t    size_multiple; /* of hidden and intermediate; 0: any */
    uint32_t    hidden_max, intermediate_max, t5_distance_max; /* 0: any */
} fl_encoder_caps;

/* Sizes are checked as fl_encoder_check_sizes does (EMODEL). Then EPROVIDER, so that the next
 * provider may run the model, names what the engine cannot do. */
int fl_encoder_supported(const fl_encoder_desc *desc, const fl_encoder_caps *caps,
                         fletch_error *error);

/* The features a descriptor uses, in words: "gated MLPs, rotary positions"; "" for BERT's plain
 * form. */
void fl_encoder_switches(const fl_encoder_desc *desc, char *out, size_t room);

/* distance.c: the score that key - query = `distance` gets on top of q·k: -INFINITY when the
 * query does not see the key. `layer` counts where each has its own table (bias_by_layer). */
float fl_distance_value(const fl_encoder *encoder, const fl_distance *rule, uint32_t layer,
                        uint32_t head, ptrdiff_t distance);
/* DeBERTa's row of key - query = `distance`. */
uint32_t fl_distance_row(const fl_encoder_desc *desc, ptrdiff_t distance);
/* The keys that are seen: first <= key - query <= last. Without bound: ∓PTRDIFF_MAX. */
ptrdiff_t fl_distance_first(const fl_distance *rule);
ptrdiff_t fl_distance_last(const fl_distance *rule);

/* rope.c: cosines and sines of positions [first, first + count) as torch computes them in float32:
 * [count][dims / 2] each. y[i] = x[i] cos - x[i + dims/2] sin;  y[i + dims/2] = x[i + dims/2]
 * cos + x[i] sin. */
void fl_rope_table(const fl_rope *rope, uint32_t first, uint32_t count, float *cosines,
                   float *sines);

/* pool_rows.c: n rows -> out[hidden * count], the modes side by side; the first `skip` rows are left out
 * as sentence-transformers masks them. False: a value is not finite. Row i is x + i * stride, or, with ids,
 * x + ids[i] * stride. */
typedef struct fl_rows {
    const float   *x;
    size_t         stride;
    const int32_t *ids;
} fl_rows;
bool fl_pool_rows(const fl_pooling *modes, uint32_t count, const fl_rows *rows, size_t hidden,
                  uint32_t n, uint32_t skip, float *out);

/* terms.c: entries of a text that are found one after the other, ids rising. Zero is empty; kept and
 * filled again. False: out of memory. */
typedef struct fl_terms {
    int32_t *ids;    /* owned [capacity] */
    float   *values; /* owned [capacity] */
    uint32_t count, capacity;
} fl_terms;
bool fl_terms_add(fl_terms *terms, int32_t id, float value);
void fl_terms_free(fl_terms *terms); /* empty again, without memory */

/* Width of the pooled row: hidden * pooling_count. */
static inline uint32_t fl_encoder_width(const fl_encoder *encoder) {
    return encoder->desc.hidden * encoder->pooling_count;
}

#endif
