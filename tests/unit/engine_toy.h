/* SPDX-License-Identifier: Apache-2.0 */
/* engine_toy.h - small encoders with random weights, and their forward pass in plain double loops.
 *
 * The double forward is written from the papers' formulas, shares nothing with the engine but the
 * descriptor, and knows no padding, block or thread. Used by test_engine.c and
 * test_engine_bytes.c. */
#ifndef TEST_ENGINE_TOY_H
#define TEST_ENGINE_TOY_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engines/cpu/cpu_engine.h"

/* Zeros, sizes apart, are BERT without token types. */
typedef struct toy_spec {
    uint32_t layers, hidden, heads, head_dim, mlp, vocab, positions, offset;
    bool     type, segments, tasks, t5, own_tables; /* T5's bias: one for all layers, or for each */
    fl_activation activation;
    fl_dtype      dtype;
    fl_pooling    pooling[FL_POOL_COUNT];
    uint32_t      pooling_count;
    uint32_t      kv_heads, embedding; /* 0: as heads, as hidden */
    fl_norm       norm;
    fl_norm_place place;
    fl_extra_norm extra;
    fl_mlp        glu;
    fl_qk_norm    qk_norm;
    uint32_t      experts, experts_used; /* of every other layer, from the first on */
    bool          experts_of_gguf;       /* upright, without a bias */
    bool          final_norm, bare_embeddings, skips_first, no_bias, no_positions;
    float         embed_scale;
    uint32_t      rope_dims; /* 0: none */
    double        theta;
    bool          causal, alibi, map;
    uint32_t      window;
    bool          sparse, untied, bare_head; /* a vocabulary head, without biases */
    fl_activation head_activation;
    uint32_t
        relative; /* DeBERTa: 16 buckets over 64, or so many distances with projections of their own */
    float    cap;  /* of scores */
    uint32_t taps; /* of the convolutions of every other layer, from the first on; 0: all attend */
    bool     centred;
    bool     alternate; /* every other layer sees all keys, and turns by another angle */
} toy_spec;

/* A layer of MiniLM-L6: scratch and plans do not depend on how many there are. */
#define TOY_MINILM                                                                                 \
    .layers = 1, .hidden = 384, .heads = 12, .head_dim = 32, .mlp = 1536, .vocab = 100,            \
    .positions = 512, .activation = FL_ACT_GELU_ERF, .dtype = FL_DTYPE_F32,                        \
    .pooling = {FL_POOL_MEAN}, .pooling_count = 1

/* What Llama, Qwen and their like have in common, in a toy_spec. */
#define TOY_DECODER                                                                                \
    .norm = FL_NORM_RMS, .place = FL_NORM_PRE, .final_norm = true, .glu = FL_MLP_GLU,              \
    .theta = 10000.0, .no_positions = true, .bare_embeddings = true

typedef struct toy {
    fl_encoder encoder;
    uint64_t   state;
} toy;

static inline uint32_t toy_draw(uint64_t *state, uint32_t bound) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 20) % bound);
}

static inline float toy_uniform(uint64_t *state, float low, float high) {
    return low + (high - low) * (float)toy_draw(state, 1 << 20) / (float)(1 << 20);
}

/* Values that all three types hold exactly: 8 significant bits. */
static inline fl_tensor toy_tensor(toy *t, fl_dtype dtype, uint64_t rows, uint64_t cols, float low,
                                   float high) {
    size_t         count = rows * cols, size = dtype == FL_DTYPE_F32 ? 4 : 2;
    unsigned char *block = malloc(count * size + 1), *data = block + 1; /* unaligned on purpose */
    for (size_t i = 0; i < count; i++) {
        float    value = roundf(toy_uniform(&t->state, low, high) * 64.0f) / 64.0f;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        /* 1/64 is a normal half, so a shift and a new bias make one */
        uint16_t half  = (uint16_t)(value == 0.0f ? 0
                                                  : (bits >> 16 & 0x8000) |
                                                       ((bits & 0x7FFFFFFF) - (112U << 23)) >> 13);
        uint16_t brain = (uint16_t)(bits >> 16);
        switch (dtype) {
        case FL_DTYPE_F16: memcpy(data + 2 * i, &half, 2); break;
        case FL_DTYPE_BF16: memcpy(data + 2 * i, &brain, 2); break;
        default: memcpy(data + 4 * i, &value, 4); break;
        }
    }
    return (fl_tensor){
        .data = data, .bytes = count * size, .dtype = dtype, .rank = 2, .shape = {rows, cols}};
}

/* Every tensor that the descriptor calls for: matrices, norms and what is added, each of a size that
 * leaves rows of size 1. */
static inline void toy_fill(toy *t, fl_dtype dtype, const fl_layer_desc *layer, fl_tensor *slots) {
    const fl_encoder_desc *d     = &t->encoder.desc;
    int                    count = layer ? (int)FL_LAYER_SLOT_COUNT : (int)FL_SLOT_COUNT;
    for (int i = 0; i < count; i++) {
        fl_shape shape;
        if (!fl_encoder_shape(d, layer, i, &shape))
            continue;
        bool  norm = strstr(shape.words, "norm") && !strstr(shape.words, "bias");
        bool  t5   = i == (layer ? (int)FL_LAYER_ATTENTION_BIAS : (int)FL_SLOT_ATTENTION_BIAS);
        float w    = shape.columns > 0 ? 1.7f / sqrtf((float)d->hidden) : 0.2f;
        w          = layer == NULL && shape.columns > 0 ? (i == FL_SLOT_WORD ? 1.0f : 0.5f) : w;
        w          = t5 ? 2.0f : w;
        float from = norm ? (d->norm == FL_NORM_RMS_PLUS_ONE ? -0.3f : 0.7f) : -w;
        float to   = norm ? (d->norm == FL_NORM_RMS_PLUS_ONE ? 0.3f : 1.3f) : w;
        bool  all  = norm && layer == NULL && i == FL_SLOT_EMBED_NORM_W; /* always a layer norm */
        slots[i]   = toy_tensor(t, dtype, shape.columns ? shape.rows : 1,
                              shape.columns ? shape.columns : shape.rows, all ? 0.7f : from,
                              all ? 1.3f : to);
    }
}

/* Ids of a mapped word table fall on any of its rows. */
static inline void toy_map(toy *t) {
    fl_tensor *map = &t->encoder.global[FL_SLOT_WORD_MAP];
    free((unsigned char *)(uintptr_t)map->data - 1);
    unsigned char *block = malloc(t->encoder.desc.vocab * 8 + 1);
    for (uint32_t i = 0; i < t->encoder.desc.vocab; i++) {
        int64_t row = toy_draw(&t->state, t->encoder.desc.word_rows);
        memcpy(block + 1 + 8 * i, &row, 8);
    }
    *map =
        (fl_tensor){.data = block + 1, .bytes = t->encoder.desc.vocab * 8, .dtype = FL_DTYPE_I64};
}

static inline void toy_make(toy *t, const toy_spec *s, uint64_t seed) {
    memset(t, 0, sizeof *t);
    t->state      = seed * 0x9E3779B97F4A7C15U + 1;
    fl_encoder *e = &t->encoder;
    e->desc =
        (fl_encoder_desc){.architecture = "toy",
                          .layers       = s->layers,
                          .hidden       = s->hidden,
                          .heads        = s->heads,
                          .kv_heads     = s->kv_heads ? s->kv_heads : s->heads,
                          .head_dim     = s->head_dim,
                          .intermediate = s->mlp,
                          .vocab        = s->vocab,
                          .positions    = s->positions,
                          .norm_eps     = 1e-5f,
                          .position     = s->no_positions ? FL_POSITION_NONE : FL_POSITION_LEARNED,
                          .position_offset  = s->offset,
                          .token_type       = s->type,
                          .types            = 2,
                          .segments         = s->segments,
                          .task_type        = s->tasks,
                          .tasks            = 3,
                          .attention_scale  = 1.0f / sqrtf((float)s->head_dim),
                          .score_cap        = s->cap,
                          .taps             = s->taps,
                          .taps_centred     = s->centred,
                          .conv_bias        = !s->no_bias,
                          .bias_by_layer    = s->own_tables,
                          .embedding        = s->embedding ? s->embedding : s->hidden,
                          .word_rows        = s->map ? s->vocab / 2 : s->vocab,
                          .word_map         = s->map,
                          .word_scale       = s->map,
                          .embed_norm       = !s->bare_embeddings,
                          .embed_scale      = s->embed_scale,
                          .norm             = s->norm,
                          .norm_place       = s->place,
                          .extra_norm       = s->extra,
                          .final_norm       = s->final_norm,
                          .qk_norm          = s->qk_norm,
                          .mlp              = s->glu,
                          .activation       = s->activation,
                          .mlm              = s->sparse,
                          .mlm_tied         = !s->untied,
                          .mlm_activation   = s->head_activation,
                          .mlm_bias         = !s->bare_head,
                          .mlm_decoder_bias = !s->bare_head,
                          .qkv_bias         = !s->no_bias,
                          .out_bias         = !s->no_bias,
                          .up_bias          = !s->no_bias,
                          .down_bias        = !s->no_bias,
                          .norm_bias        = !s->no_bias && s->norm == FL_NORM_LAYER};
    if (s->relative > 0) {
        e->desc.relative_norm   = true;
        e->desc.relative_shared = s->relative == 16;
        e->desc.attention_scale = 1.0f / sqrtf(3.0f * (float)s->head_dim);
    }
    e->desc.layer       = calloc(s->layers + 1, sizeof *e->desc.layer);
    e->desc.distance[0] = (fl_distance){.causal       = s->causal,
                                        .window       = s->window,
                                        .bias         = s->t5         ? FL_BIAS_T5_BUCKETS
                                                        : s->alibi    ? FL_BIAS_ALIBI
                                                        : s->relative ? FL_BIAS_DISENTANGLED
                                                                      : FL_BIAS_NONE,
                                        .buckets      = s->t5               ? 32
                                                        : s->relative == 16 ? 16
                                                                            : 0,
                                        .max_distance = s->t5               ? 128
                                                        : s->relative == 16 ? 64
                                                                            : s->relative};
    if (s->rope_dims > 0) {
        e->desc.rope[0] = (fl_rope){.theta = s->theta, .dims = s->rope_dims};
        e->desc.rope[1] = (fl_rope){.theta = s->theta * 16.0, .dims = s->rope_dims};
    }
    e->desc.experts_unbiased = e->desc.experts_upright = s->experts_of_gguf;
    for (uint32_t i = 0; i < s->layers; i++) {
        bool other                 = s->alternate && i % 2 == 1;
        e->desc.layer[i].distance  = other;
        e->desc.layer[i].convolves = s->taps > 0 && i % 2 == 0;
        e->desc.layer[i].rope    = s->rope_dims > 0 && !e->desc.layer[i].convolves ? 1 + other : 0;
        e->desc.layer[i].experts = i % 2 == 0 ? s->experts : 0;
        e->desc.layer[i].experts_used         = i % 2 == 0 ? s->experts_used : 0;
        e->desc.layer[i].skips_attention_norm = s->skips_first && i == 0;
    }
    memcpy(e->pooling, s->pooling, sizeof e->pooling);
    e->pooling_count = s->pooling_count;
    e->layer         = calloc(s->layers + 1, sizeof *e->layer);
    toy_fill(t, s->dtype, NULL, e->global);
    if (s->map)
        toy_map(t);
    for (uint32_t i = 0; i < s->layers; i++)
        toy_fill(t, s->dtype, &e->desc.layer[i], e->layer[i]);
}

static inline void toy_free_tensor(fl_tensor *tensor) {
    if (tensor->data)
        free((unsigned char *)(uintptr_t)tensor->data - 1);
}

static inline void toy_free(toy *t) {
    for (int i = 0; i < FL_SLOT_COUNT; i++)
        toy_free_tensor(&t->encoder.global[i]);
    for (uint32_t l = 0; l < t->encoder.desc.layers; l++)
        for (int i = 0; i < FL_LAYER_SLOT_COUNT; i++)
            toy_free_tensor(&t->encoder.layer[l][i]);
    free(t->encoder.layer);
    free(t->encoder.desc.layer);
}

/* ---- The forward pass in double -------------------------------------------------------------- */

static inline double toy_at(const fl_tensor *t, size_t i) {
    float value;
    fl_tensor_to_f32(t, i, 1, &value);
    return (double)value;
}

/* y[n][out] = x[n][in] Wᵀ + b */
static inline void toy_linear(const double *x, size_t n, size_t in, size_t out, const fl_tensor *w,
                              const fl_tensor *b, double *y) {
    double *row = malloc(in * sizeof *row);
    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++)
            row[i] = toy_at(w, o * in + i);
        for (size_t r = 0; r < n; r++) {
            double sum = b && b->data ? toy_at(b, o) : 0.0;
            for (size_t i = 0; i < in; i++)
                sum += x[r * in + i] * row[i];
            y[r * out + o] = sum;
        }
    }
    free(row);
}

/* Rows of `hidden`, `stride` apart, by one of the kinds of norm. */
static inline void toy_norm(fl_norm kind, double *x, size_t n, size_t stride, size_t hidden,
                            double eps, const fl_tensor *w, const fl_tensor *b) {
    for (size_t r = 0; r < n; r++, x += stride) {
        double mean = 0.0, square = 0.0;
        for (size_t i = 0; kind == FL_NORM_LAYER && i < hidden; i++)
            mean += x[i] / (double)hidden;
        for (size_t i = 0; i < hidden; i++)
            square += (x[i] - mean) * (x[i] - mean) / (double)hidden;
        for (size_t i = 0; i < hidden; i++) {
            double weight = toy_at(w, i) + (kind == FL_NORM_RMS_PLUS_ONE ? 1.0 : 0.0);
            x[i]          = (x[i] - mean) / sqrt(square + eps) * weight;
            x[i] += b->data ? toy_at(b, i) : 0.0;
        }
    }
}

/* Where T5's buckets begin, from transformers' MPNetEncoder.relative_position_bucket (5.23.0, 32
 * buckets, max_distance 128): distances 0-7 count singly, then 8, 12, 16, 23, 32, 46, 64, 91. */
static inline size_t toy_bucket(ptrdiff_t distance) {
    static const ptrdiff_t edge[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
    size_t                 bucket = distance > 0 ? 16 : 0;
    for (size_t i = 0; i < sizeof edge / sizeof *edge; i++)
        bucket += llabs((long long)distance) >= edge[i];
    return bucket;
}

/* What is added to the score of a key at this distance; -inf: it is not seen. Slopes of ALiBi are those
 * of transformers' BLOOM (5.23.0): 2^(-8 i / n) for a power of two, else those of the power below and
 * every other one of twice that. */
static inline double toy_distance(const fl_encoder *e, const fl_layer_desc *l, size_t head,
                                  ptrdiff_t distance) {
    const fl_distance *rule  = &e->desc.distance[l->distance];
    double             far   = fabs((double)distance);
    size_t             heads = e->desc.heads, power = 1;
    while (power * 2 <= heads)
        power *= 2;
    if ((rule->causal && distance > 0) || (rule->window > 0 && far > (double)rule->window))
        return -INFINITY;
    if (rule->bias == FL_BIAS_T5_BUCKETS) {
        const fl_tensor *table = e->desc.bias_by_layer
                                     ? &e->layer[l - e->desc.layer][FL_LAYER_ATTENTION_BIAS]
                                     : &e->global[FL_SLOT_ATTENTION_BIAS];
        return toy_at(table, toy_bucket(distance) * heads + head);
    }
    double turn = head < power ? (double)(head + 1) / (double)power
                               : (double)(2 * (head - power) + 1) / (double)(2 * power);
    return rule->bias == FL_BIAS_ALIBI ? -pow(2.0, -8.0 * turn) * far : 0.0;
}

/* The angle is a float32 product, as the reference has it. */
static inline void toy_rotate(const fl_rope *rope, double *x, size_t position) {
    size_t half = rope->dims / 2;
    for (size_t i = 0; i < half; i++) {
        float  turn = 1.0f / (float)pow(rope->theta, (double)(2.0f * (float)i / (float)rope->dims));
        double angle = (double)((float)position * turn), a = x[i], b = x[i + half];
        x[i]        = a * cos(angle) - b * sin(angle);
        x[i + half] = b * cos(angle) + a * sin(angle);
    }
}

/* Norms and angles of the heads of q or k. */
static inline void toy_heads(const fl_encoder *e, const fl_layer_desc *l, double *x, size_t n,
                             size_t heads, const fl_tensor *norm) {
    size_t d = e->desc.head_dim;
    if (e->desc.qk_norm == FL_QK_NORM_WIDE) {
        toy_norm(FL_NORM_LAYER, x, n, heads * d, heads * d, (double)e->desc.norm_eps, norm,
                 norm + 1);
    }
    for (size_t i = 0; i < n * heads; i++, x += d) {
        if (e->desc.qk_norm == FL_QK_NORM_HEAD) {
            fl_tensor none = {0};
            toy_norm(e->desc.norm, x, 1, d, d, e->desc.norm_eps, norm, &none);
        }
        if (l->rope > 0)
            toy_rotate(&e->desc.rope[l->rope - 1], x, i / heads);
    }
}

/* DeBERTa's row of key - query, from transformers' make_log_bucket_position (5.24.0, 16 buckets over
 * 64): distances to 9 count singly, then 11, 15, 20, 27, 35, 47, 64. */
static inline size_t toy_row(const fl_encoder *e, ptrdiff_t distance) {
    static const ptrdiff_t edge[] = {11, 15, 20, 27, 35, 47, 64};
    const bool             log    = e->desc.distance[0].buckets == 16;
    ptrdiff_t span = log ? 16 : (ptrdiff_t)e->desc.distance[0].max_distance, step = labs(distance);
    if (log) {
        step = step < 10 ? step : 9;
        for (size_t i = 0; i < sizeof edge / sizeof *edge; i++)
            step += labs(distance) >= edge[i];
    }
    ptrdiff_t row = distance < 0 ? span + step : span - step;
    return (size_t)(row < 0 ? 0 : row < 2 * span ? row : 2 * span - 1);
}

/* Keys and queries of its table: [rows, heads * head_dim] each. */
static inline void toy_relative(const fl_encoder *e, const fl_tensor *w, double *k, double *q) {
    const fl_encoder_desc *d    = &e->desc;
    size_t                 rows = fl_relative_rows(d), inner = (size_t)d->heads * d->head_dim;
    double                *table = malloc(rows * d->hidden * 8);
    for (size_t i = 0; i < rows * d->hidden; i++)
        table[i] = toy_at(&e->global[FL_SLOT_RELATIVE], i);
    toy_norm(FL_NORM_LAYER, table, rows, d->hidden, d->hidden, d->norm_eps,
             &e->global[FL_SLOT_RELATIVE_NORM_W], &e->global[FL_SLOT_RELATIVE_NORM_B]);
    const fl_tensor *of_k = &w[d->relative_shared ? FL_LAYER_K_W : FL_LAYER_RELATIVE_K_W];
    const fl_tensor *of_q = &w[d->relative_shared ? FL_LAYER_Q_W : FL_LAYER_RELATIVE_Q_W];
    toy_linear(table, rows, d->hidden, inner, of_k, of_k + 1, k);
    toy_linear(table, rows, d->hidden, inner, of_q, of_q + 1, q);
    free(table);
}

static inline void toy_attention(const fl_encoder *e, const fl_layer_desc *l, const double *q,
                                 const double *k, const double *v, const double *pos_k,
                                 const double *pos_q, size_t n, double *out) {
    size_t  d = e->desc.head_dim, heads = e->desc.heads, kv_heads = e->desc.kv_heads;
    size_t  inner = d * heads, kv_inner = d * kv_heads;
    double *s = malloc(n * sizeof *s);
    for (size_t h = 0; h < heads; h++) {
        size_t kv = h / (heads / kv_heads);
        for (size_t i = 0; i < n; i++) {
            double top = -INFINITY, sum = 0.0;
            for (size_t j = 0; j < n; j++) {
                size_t row = pos_k ? toy_row(e, (ptrdiff_t)j - (ptrdiff_t)i) * inner + h * d : 0;
                s[j]       = 0.0;
                for (size_t c = 0; c < d; c++) {
                    double of_q = q[i * inner + h * d + c], of_k = k[j * kv_inner + kv * d + c];
                    s[j] += of_q * of_k;
                    s[j] += pos_k ? of_q * pos_k[row + c] + of_k * pos_q[row + c] : 0.0;
                }
                s[j] = s[j] * (double)e->desc.attention_scale +
                       toy_distance(e, l, h, (ptrdiff_t)j - (ptrdiff_t)i);
                if (e->desc.score_cap > 0.0f && s[j] > -INFINITY)
                    s[j] = (double)e->desc.score_cap * tanh(s[j] / (double)e->desc.score_cap);
                top = fmax(top, s[j]);
            }
            for (size_t j = 0; j < n; j++) {
                s[j] = exp(s[j] - top);
                sum += s[j];
            }
            for (size_t c = 0; c < d; c++) {
                double value = 0.0;
                for (size_t j = 0; j < n; j++)
                    value += s[j] / sum * v[j * kv_inner + kv * d + c];
                out[i * inner + h * d + c] = value;
            }
        }
    }
    free(s);
}

static inline double toy_activate(fl_activation a, double x) {
    switch (a) {
    case FL_ACT_GELU_ERF: return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case FL_ACT_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case FL_ACT_SILU: return x / (1.0 + exp(-x));
    case FL_ACT_QUICK_GELU: return x / (1.0 + exp(-1.702 * x));
    default: return x > 0.0 ? x : 0.0;
    }
}

/* a[t] = q[t] (b + sum of w[i] k[t - before + i] v[t - before + i]) */
static inline void toy_convolve(const fl_encoder *e, const fl_tensor *w, const double *q,
                                const double *k, const double *v, size_t n, double *a) {
    ptrdiff_t taps = (ptrdiff_t)e->desc.taps, before = e->desc.taps_centred ? taps / 2 : taps - 1;
    size_t    hidden = e->desc.hidden;
    for (size_t t = 0; t < n * hidden; t++) {
        double sum = w[FL_LAYER_CONV_B].data ? toy_at(&w[FL_LAYER_CONV_B], t % hidden) : 0.0;
        for (ptrdiff_t i = 0; i < taps; i++) {
            ptrdiff_t at = (ptrdiff_t)(t / hidden) - before + i;
            if (at >= 0 && at < (ptrdiff_t)n) {
                size_t from = (size_t)at * hidden + t % hidden;
                sum += toy_at(&w[FL_LAYER_CONV_W], t % hidden * (size_t)taps + (size_t)i) *
                       k[from] * v[from];
            }
        }
        a[t] = q[t] * sum;
    }
}

/* out = attention(z) or out = mlp(z) */
static inline void toy_attend(const fl_encoder *e, const fl_layer_desc *l, const fl_tensor *w,
                              const double *z, size_t n, double *out) {
    size_t  hidden = e->desc.hidden, inner = (size_t)e->desc.heads * e->desc.head_dim;
    size_t  kv_inner = fl_kv_rows(&e->desc, l);
    double *q = malloc(n * inner * 8), *k = malloc(n * kv_inner * 8), *v = malloc(n * kv_inner * 8);
    double *a = malloc(n * inner * 8);
    toy_linear(z, n, hidden, inner, &w[FL_LAYER_Q_W], &w[FL_LAYER_Q_B], q);
    toy_linear(z, n, hidden, kv_inner, &w[FL_LAYER_K_W], &w[FL_LAYER_K_B], k);
    toy_linear(z, n, hidden, kv_inner, &w[FL_LAYER_V_W], &w[FL_LAYER_V_B], v);
    if (l->convolves) {
        toy_convolve(e, w, q, k, v, n, a);
        toy_linear(a, n, inner, hidden, &w[FL_LAYER_O_W], &w[FL_LAYER_O_B], out);
        free(q), free(k), free(v), free(a);
        return;
    }
    toy_heads(e, l, q, n, e->desc.heads, &w[FL_LAYER_Q_NORM_W]);
    toy_heads(e, l, k, n, e->desc.kv_heads, &w[FL_LAYER_K_NORM_W]);
    double *pos_k = NULL, *pos_q = NULL;
    if (e->desc.distance[0].bias == FL_BIAS_DISENTANGLED) {
        pos_k = malloc(fl_relative_rows(&e->desc) * inner * 8);
        pos_q = malloc(fl_relative_rows(&e->desc) * inner * 8);
        toy_relative(e, w, pos_k, pos_q);
    }
    toy_attention(e, l, q, k, v, pos_k, pos_q, n, a);
    free(pos_k), free(pos_q);
    toy_linear(a, n, inner, hidden, &w[FL_LAYER_O_W], &w[FL_LAYER_O_B], out);
    free(q), free(k), free(v), free(a);
}

static inline void toy_mlp(const fl_encoder *e, const fl_tensor *w, const double *z, size_t n,
                           double *out) {
    size_t  hidden = e->desc.hidden, mlp = e->desc.intermediate;
    bool    glu = e->desc.mlp == FL_MLP_GLU;
    double *m = malloc(n * mlp * 8), *gate = malloc(n * mlp * 8);
    toy_linear(z, n, hidden, mlp, &w[FL_LAYER_UP_W], &w[FL_LAYER_UP_B], m);
    if (glu)
        toy_linear(z, n, hidden, mlp, &w[FL_LAYER_GATE_W], &w[FL_LAYER_GATE_B], gate);
    for (size_t i = 0; i < n * mlp; i++) {
        m[i] = glu ? m[i] * toy_activate(e->desc.activation, gate[i])
                   : toy_activate(e->desc.activation, m[i]);
    }
    toy_linear(m, n, mlp, hidden, &w[FL_LAYER_DOWN_W], &w[FL_LAYER_DOWN_B], out);
    free(m), free(gate);
}

/* Each row to the most probable of the experts, whose second matrix is [intermediate, hidden] unless upright. */
static inline void toy_experts(const fl_encoder *e, const fl_layer_desc *l, const fl_tensor *w,
                               const double *z, size_t n, double *out) {
    size_t  hidden = e->desc.hidden, mlp = e->desc.intermediate, count = l->experts;
    double *p = malloc(count * 8), *m = malloc(mlp * 8);
    for (size_t r = 0; r < n; r++, z += hidden, out += hidden) {
        double top = -INFINITY, sum = 0.0;
        toy_linear(z, 1, hidden, count, &w[FL_LAYER_ROUTER_W], NULL, p);
        for (size_t i = 0; i < count; i++)
            top = fmax(top, p[i]);
        for (size_t i = 0; i < count; i++)
            sum += exp(p[i] - top);
        for (size_t i = 0; i < hidden; i++)
            out[i] = e->desc.experts_unbiased ? 0.0 : toy_at(&w[FL_LAYER_DOWN_B], i);
        for (size_t k = 0; k < l->experts_used; k++) {
            size_t best = 0;
            for (size_t i = 1; i < count; i++)
                best = p[i] > p[best] ? i : best;
            double chance = exp(p[best] - top) / sum;
            p[best]       = -INFINITY;
            for (size_t j = 0; j < mlp; j++) {
                size_t row = best * mlp + j;
                m[j]       = 0.0;
                for (size_t i = 0; i < hidden; i++)
                    m[j] += z[i] * toy_at(&w[FL_LAYER_EXPERTS_UP], row * hidden + i);
                m[j] = toy_activate(e->desc.activation, m[j]);
                for (size_t i = 0; i < hidden; i++) {
                    size_t at =
                        e->desc.experts_upright ? (best * hidden + i) * mlp + j : row * hidden + i;
                    out[i] += chance * m[j] * toy_at(&w[FL_LAYER_EXPERTS_DOWN], at);
                }
            }
        }
    }
    free(p), free(m);
}

/* One block, attention or MLP, with the norms that belong to it; see the head of encoder.h. */
static inline void toy_block(const fl_encoder *e, const fl_layer_desc *l, const fl_tensor *w,
                             bool attention, size_t n, double *x) {
    const fl_encoder_desc *d     = &e->desc;
    size_t                 count = n * d->hidden;
    double                *z = malloc(count * 8), *y = malloc(count * 8);
    int                    own   = attention ? FL_LAYER_ATTENTION_NORM_W : FL_LAYER_MLP_NORM_W;
    int                    extra = attention ? FL_LAYER_ATTENTION_EXTRA_W : FL_LAYER_MLP_EXTRA_W;
    bool pre = d->norm_place == FL_NORM_PRE, skip = attention && l->skips_attention_norm;
    memcpy(z, x, count * 8);
    if (pre && !skip)
        toy_norm(d->norm, z, n, d->hidden, d->hidden, d->norm_eps, &w[own], &w[own + 1]);
    if (attention)
        toy_attend(e, l, w, z, n, y);
    else if (l->experts > 0)
        toy_experts(e, l, w, z, n, y);
    else
        toy_mlp(e, w, z, n, y);
    if (d->extra_norm == FL_EXTRA_NORM_BRANCH)
        toy_norm(d->norm, y, n, d->hidden, d->hidden, d->norm_eps, &w[extra], &w[extra + 1]);
    for (size_t i = 0; i < count; i++)
        y[i] += x[i];
    if (!pre)
        toy_norm(d->norm, y, n, d->hidden, d->hidden, d->norm_eps, &w[own], &w[own + 1]);
    if (attention && d->extra_norm == FL_EXTRA_NORM_RESIDUAL) {
        for (size_t i = 0; i < count; i++)
            y[i] += x[i];
        toy_norm(d->norm, y, n, d->hidden, d->hidden, d->norm_eps, &w[extra], &w[extra + 1]);
    }
    memcpy(x, y, count * 8);
    free(z), free(y);
}

/* sentence-transformers' Pooling over tokens [skip, n), weights by place in the text. */
static inline double toy_pool(fl_pooling mode, const double *x, size_t hidden, size_t n,
                              size_t skip, size_t c) {
    double sum = 0.0, weights = 0.0, top = -1e9;
    for (size_t i = skip; i < n; i++) {
        double weight = mode == FL_POOL_WEIGHTED_MEAN ? (double)(i + 1) : 1.0;
        sum += weight * x[i * hidden + c];
        weights += weight;
        top = fmax(top, x[i * hidden + c]);
    }
    switch (mode) {
    case FL_POOL_CLS: return x[(skip < n ? skip : 0) * hidden + c];
    case FL_POOL_MAX: return top;
    case FL_POOL_MEAN_SQRT_LEN: return sum / sqrt(weights);
    case FL_POOL_LAST_TOKEN: return x[(n - 1) * hidden + c];
    default: return sum / weights;
    }
}

/* x[hidden] of one token in front of the layers. */
static inline void toy_embed(const fl_encoder *e, int32_t id, size_t position, size_t type,
                             double *x) {
    const fl_encoder_desc *d     = &e->desc;
    const fl_tensor       *g     = e->global;
    size_t                 width = d->embedding, row = (size_t)id;
    double                 scale = d->embed_scale != 0.0f ? (double)d->embed_scale : 1.0;
    double                *w     = malloc(width * sizeof *w);
    if (d->word_map) {
        int64_t mapped;
        memcpy(&mapped, (const char *)g[FL_SLOT_WORD_MAP].data + 8 * (size_t)id, 8);
        row   = (size_t)mapped;
        scale = toy_at(&g[FL_SLOT_WORD_SCALE], (size_t)id);
    }
    for (size_t c = 0; c < width; c++) {
        w[c] = toy_at(&g[FL_SLOT_WORD], row * width + c) * scale;
        if (d->position == FL_POSITION_LEARNED)
            w[c] += toy_at(&g[FL_SLOT_POSITION], (position + d->position_offset) * width + c);
        w[c] += d->task_type ? toy_at(&g[FL_SLOT_TASK], c) : 0.0;
        w[c] += d->token_type ? toy_at(&g[FL_SLOT_TYPE], type * width + c) : 0.0;
    }
    if (d->embed_norm) {
        toy_norm(FL_NORM_LAYER, w, 1, width, width, d->norm_eps, &g[FL_SLOT_EMBED_NORM_W],
                 &g[FL_SLOT_EMBED_NORM_B]);
    }
    if (d->embedding != d->hidden)
        toy_linear(w, 1, width, d->hidden, &g[FL_SLOT_PROJECT_W], &g[FL_SLOT_PROJECT_B], x);
    else
        memcpy(x, w, width * sizeof *w);
    free(w);
}

/* The rows [n, hidden] of all tokens, to be freed; those from `segment` on have type 1. */
static inline double *toy_rows(const fl_encoder *e, const int32_t *ids, size_t n, size_t segment) {
    size_t  hidden = e->desc.hidden;
    double *x      = malloc(n * hidden * sizeof *x);
    for (size_t i = 0; i < n; i++)
        toy_embed(e, ids[i], i, i >= segment, x + i * hidden);
    for (uint32_t l = 0; l < e->desc.layers; l++) {
        toy_block(e, &e->desc.layer[l], e->layer[l], true, n, x);
        toy_block(e, &e->desc.layer[l], e->layer[l], false, n, x);
    }
    if (e->desc.final_norm) {
        toy_norm(e->desc.norm, x, n, hidden, hidden, e->desc.norm_eps,
                 &e->global[FL_SLOT_FINAL_NORM_W], &e->global[FL_SLOT_FINAL_NORM_B]);
    }
    return x;
}

/* most[vocab]: the largest logit of each id over the tokens. */
static inline void toy_vocabulary(const fl_encoder *e, const int32_t *ids, size_t n, double *most) {
    const fl_tensor       *g       = e->global;
    const fl_encoder_desc *d       = &e->desc;
    const fl_tensor       *decoder = &g[d->mlm_tied ? FL_SLOT_WORD : FL_SLOT_MLM_DECODER];
    const fl_tensor       *bias    = &g[d->mlm_tied ? FL_SLOT_MLM_BIAS : FL_SLOT_MLM_DECODER_B];
    size_t                 width   = d->embedding;
    double                *x = toy_rows(e, ids, n, n), *z = malloc(n * width * sizeof *z);
    toy_linear(x, n, d->hidden, width, &g[FL_SLOT_MLM_W], &g[FL_SLOT_MLM_B], z);
    for (size_t i = 0; i < n * width; i++)
        z[i] = toy_activate(d->mlm_activation, z[i]);
    toy_norm(FL_NORM_LAYER, z, n, width, width, d->norm_eps, &g[FL_SLOT_MLM_NORM_W],
             &g[FL_SLOT_MLM_NORM_B]);
    for (size_t v = 0; v < d->vocab; v++) {
        most[v] = -INFINITY;
        for (size_t i = 0; i < n; i++) {
            double logit = bias->data ? toy_at(bias, v) : 0.0;
            for (size_t c = 0; c < width; c++)
                logit += z[i * width + c] * toy_at(decoder, v * width + c);
            most[v] = fmax(most[v], logit);
        }
    }
    free(x), free(z);
}

static inline void toy_forward_pair(const fl_encoder *e, const int32_t *ids, size_t n,
                                    size_t segment, size_t skip, double *out) {
    size_t  hidden = e->desc.hidden;
    double *x      = toy_rows(e, ids, n, segment);
    for (uint32_t p = 0; p < e->pooling_count; p++)
        for (size_t c = 0; c < hidden; c++)
            out[p * hidden + c] = toy_pool(e->pooling[p], x, hidden, n, skip, c);
    free(x);
}

static inline void toy_forward(const fl_encoder *e, const int32_t *ids, size_t n, size_t skip,
                               double *out) {
    toy_forward_pair(e, ids, n, n, skip, out);
}

/* Whether set `index` has the fp32 kernels of one in front of it: avx512vnni differs from avx512 in its narrow
 * formats alone. */
static inline bool toy_isa_repeats(size_t index, const fl_cpu *cpu) {
    enum { FROM = offsetof(fl_cpu_kernels, panels), TO = offsetof(fl_cpu_kernels, narrow) };
    const fl_cpu_isa *own = fl_cpu_isa_at(index);
    for (size_t i = 0; i < index; i++) {
        const fl_cpu_isa *isa = fl_cpu_isa_at(i);
        if (isa->kernels && isa->usable(cpu) &&
            memcmp((const char *)isa->kernels + FROM, (const char *)own->kernels + FROM,
                   TO - FROM) == 0)
            return true;
    }
    return false;
}

/* Of a test that could go on for ever: `make check` has a part, `make check-full` all. */
static inline int toy_rounds(int part, int all) {
    return getenv("FLETCH_TEST_FULL") ? all : part;
}

/* Kernels that this machine has; true while there are more. */
static inline bool toy_each_isa(size_t *at, const char **name) {
    fl_cpu cpu;
    fl_cpu_detect(&cpu);
    const fl_cpu_isa *isa = fl_cpu_isa_at((*at)++);
    while (isa && (isa->kernels == NULL || !isa->usable(&cpu) || toy_isa_repeats(*at - 1, &cpu)))
        isa = fl_cpu_isa_at((*at)++);
    *name = isa ? isa->name : NULL;
    return isa != NULL;
}

/* "auto" is what FLETCH_CPU_ISA says, as for the program: `make check` comes by again with narrower sets. But
 * for ref, which takes a hundred times as long and is named where it is to be tested. */
static inline const char *toy_isa(const char *isa) {
    const char *capped = getenv("FLETCH_CPU_ISA");
    bool        obeys  = capped && strcmp(capped, "ref") != 0 && strcmp(isa, "auto") == 0;
    return obeys ? capped : isa;
}

static inline fl_engine *toy_open_sized(const toy *t, const char *precision, unsigned threads,
                                        const char *isa, uint32_t texts, uint32_t max_length,
                                        uint32_t usual_length, uint32_t l2_bytes,
                                        fletch_error *error) {
    fl_engine        *engine  = NULL;
    fl_engine_options options = {.threads      = threads,
                                 .batch_tokens = 16384,
                                 .batch_texts  = texts,
                                 .max_length   = max_length,
                                 .usual_length = usual_length,
                                 .isa          = toy_isa(isa),
                                 .l2_bytes     = l2_bytes,
                                 .precision    = precision};
    fl_engine_find("cpu")->open(&engine, &t->encoder, &options, error);
    if (engine !=
        NULL) /* toys are split over threads as models are, whose barriers are little beside them */
        engine->cost.barrier = engine->cost.arrival = 0.0;
    return engine;
}

static inline fl_engine *toy_open_as(const toy *t, const char *precision, unsigned threads,
                                     const char *isa, uint32_t texts, uint32_t max_length,
                                     fletch_error *error) {
    return toy_open_sized(t, precision, threads, isa, texts, max_length, 0, 0, error);
}

static inline fl_engine *toy_open(const toy *t, unsigned threads, const char *isa, uint32_t texts,
                                  uint32_t max_length, fletch_error *error) {
    return toy_open_as(t, "fp32", threads, isa, texts, max_length, error);
}

#endif
