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

#include "engines/engine.h"

typedef struct toy_spec {
    uint32_t      layers, hidden, heads, head_dim, mlp, vocab, positions, offset;
    bool          type, t5;
    fl_activation activation;
    fl_dtype      dtype;
    fl_pooling    pooling[FL_POOL_COUNT];
    uint32_t      pooling_count;
} toy_spec;

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

static inline void toy_layer(toy *t, const toy_spec *s, fl_tensor *slot) {
    uint32_t inner = s->heads * s->head_dim;
    float    w     = 1.7f / sqrtf((float)s->hidden);
    for (int at = FL_LAYER_Q_W; at <= FL_LAYER_V_W; at += 2) {
        slot[at]     = toy_tensor(t, s->dtype, inner, s->hidden, -w, w);
        slot[at + 1] = toy_tensor(t, s->dtype, 1, inner, -0.2f, 0.2f);
    }
    slot[FL_LAYER_O_W]              = toy_tensor(t, s->dtype, s->hidden, inner, -w, w);
    slot[FL_LAYER_O_B]              = toy_tensor(t, s->dtype, 1, s->hidden, -0.2f, 0.2f);
    slot[FL_LAYER_ATTENTION_NORM_W] = toy_tensor(t, s->dtype, 1, s->hidden, 0.7f, 1.3f);
    slot[FL_LAYER_ATTENTION_NORM_B] = toy_tensor(t, s->dtype, 1, s->hidden, -0.2f, 0.2f);
    slot[FL_LAYER_UP_W]             = toy_tensor(t, s->dtype, s->mlp, s->hidden, -w, w);
    slot[FL_LAYER_UP_B]             = toy_tensor(t, s->dtype, 1, s->mlp, -0.2f, 0.2f);
    slot[FL_LAYER_DOWN_W]           = toy_tensor(t, s->dtype, s->hidden, s->mlp, -w, w);
    slot[FL_LAYER_DOWN_B]           = toy_tensor(t, s->dtype, 1, s->hidden, -0.2f, 0.2f);
    slot[FL_LAYER_MLP_NORM_W]       = toy_tensor(t, s->dtype, 1, s->hidden, 0.7f, 1.3f);
    slot[FL_LAYER_MLP_NORM_B]       = toy_tensor(t, s->dtype, 1, s->hidden, -0.2f, 0.2f);
}

static inline void toy_make(toy *t, const toy_spec *s, uint64_t seed) {
    memset(t, 0, sizeof *t);
    t->state                = seed * 0x9E3779B97F4A7C15U + 1;
    fl_encoder       *e     = &t->encoder;
    fl_attention_bias bias  = s->t5 ? FL_BIAS_T5_BUCKETS : FL_BIAS_NONE;
    float             scale = 1.0f / sqrtf((float)s->head_dim);
    e->desc                 = (fl_encoder_desc){.architecture      = "toy",
                                                .layers            = s->layers,
                                                .hidden            = s->hidden,
                                                .heads             = s->heads,
                                                .kv_heads          = s->heads,
                                                .head_dim          = s->head_dim,
                                                .intermediate      = s->mlp,
                                                .vocab             = s->vocab,
                                                .positions         = s->positions,
                                                .norm_eps          = 1e-5f,
                                                .position          = FL_POSITION_LEARNED,
                                                .position_offset   = s->offset,
                                                .token_type        = s->type,
                                                .attention_scale   = scale,
                                                .attention_bias    = bias,
                                                .bias_buckets      = 32,
                                                .bias_max_distance = 128,
                                                .activation        = s->activation};
    memcpy(e->pooling, s->pooling, sizeof e->pooling);
    e->pooling_count        = s->pooling_count;
    e->global[FL_SLOT_WORD] = toy_tensor(t, s->dtype, s->vocab, s->hidden, -1.0f, 1.0f);
    e->global[FL_SLOT_POSITION] =
        toy_tensor(t, s->dtype, s->positions + s->offset, s->hidden, -0.5f, 0.5f);
    if (s->type) {
        e->global[FL_SLOT_TYPE] = toy_tensor(t, s->dtype, 2, s->hidden, -0.5f, 0.5f);
    }
    e->global[FL_SLOT_EMBED_NORM_W] = toy_tensor(t, s->dtype, 1, s->hidden, 0.7f, 1.3f);
    e->global[FL_SLOT_EMBED_NORM_B] = toy_tensor(t, s->dtype, 1, s->hidden, -0.2f, 0.2f);
    if (s->t5) {
        e->global[FL_SLOT_ATTENTION_BIAS] = toy_tensor(t, s->dtype, 32, s->heads, -2.0f, 2.0f);
    }
    e->layer = calloc(s->layers, sizeof *e->layer);
    for (uint32_t i = 0; i < s->layers; i++) {
        toy_layer(t, s, e->layer[i]);
    }
}

static inline void toy_free_tensor(fl_tensor *tensor) {
    if (tensor->data) {
        free((unsigned char *)(uintptr_t)tensor->data - 1);
    }
}

static inline void toy_free(toy *t) {
    for (int i = 0; i < FL_SLOT_COUNT; i++) {
        toy_free_tensor(&t->encoder.global[i]);
    }
    for (uint32_t l = 0; l < t->encoder.desc.layers; l++) {
        for (int i = 0; i < FL_LAYER_SLOT_COUNT; i++) {
            toy_free_tensor(&t->encoder.layer[l][i]);
        }
    }
    free(t->encoder.layer);
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
        for (size_t i = 0; i < in; i++) {
            row[i] = toy_at(w, o * in + i);
        }
        for (size_t r = 0; r < n; r++) {
            double sum = b->data ? toy_at(b, o) : 0.0;
            for (size_t i = 0; i < in; i++) {
                sum += x[r * in + i] * row[i];
            }
            y[r * out + o] = sum;
        }
    }
    free(row);
}

static inline void toy_norm(double *x, size_t n, size_t hidden, double eps, const fl_tensor *w,
                            const fl_tensor *b) {
    for (size_t r = 0; r < n; r++, x += hidden) {
        double mean = 0.0, square = 0.0;
        for (size_t i = 0; i < hidden; i++) {
            mean += x[i] / (double)hidden;
        }
        for (size_t i = 0; i < hidden; i++) {
            square += (x[i] - mean) * (x[i] - mean) / (double)hidden;
        }
        for (size_t i = 0; i < hidden; i++) {
            x[i] = (x[i] - mean) / sqrt(square + eps) * toy_at(w, i) + toy_at(b, i);
        }
    }
}

/* Where T5's buckets begin, from transformers' MPNetEncoder.relative_position_bucket (5.23.0, 32
 * buckets, max_distance 128): distances 0-7 count singly, then 8, 12, 16, 23, 32, 46, 64, 91. */
static inline size_t toy_bucket(ptrdiff_t distance) {
    static const ptrdiff_t edge[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
    size_t                 bucket = distance > 0 ? 16 : 0;
    for (size_t i = 0; i < sizeof edge / sizeof *edge; i++) {
        bucket += llabs((long long)distance) >= edge[i];
    }
    return bucket;
}

static inline void toy_attention(const fl_encoder *e, const double *q, const double *k,
                                 const double *v, size_t n, double *out) {
    size_t  d = e->desc.head_dim, inner = d * e->desc.heads;
    double *s = malloc(n * sizeof *s);
    for (size_t h = 0; h < e->desc.heads; h++) {
        for (size_t i = 0; i < n; i++) {
            double top = -INFINITY, sum = 0.0;
            for (size_t j = 0; j < n; j++) {
                s[j] = 0.0;
                for (size_t c = 0; c < d; c++) {
                    s[j] += q[i * inner + h * d + c] * k[j * inner + h * d + c];
                }
                s[j] /= sqrt((double)d);
                if (e->desc.attention_bias == FL_BIAS_T5_BUCKETS) {
                    s[j] += toy_at(&e->global[FL_SLOT_ATTENTION_BIAS],
                                   toy_bucket((ptrdiff_t)j - (ptrdiff_t)i) * e->desc.heads + h);
                }
                top = fmax(top, s[j]);
            }
            for (size_t j = 0; j < n; j++) {
                s[j] = exp(s[j] - top);
                sum += s[j];
            }
            for (size_t c = 0; c < d; c++) {
                double value = 0.0;
                for (size_t j = 0; j < n; j++) {
                    value += s[j] / sum * v[j * inner + h * d + c];
                }
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
    default: return x > 0.0 ? x : 0.0;
    }
}

static inline void toy_run_layer(const fl_encoder *e, const fl_tensor *w, size_t n, double *x) {
    size_t  hidden = e->desc.hidden, inner = (size_t)e->desc.heads * e->desc.head_dim;
    size_t  mlp = e->desc.intermediate;
    double *q = malloc(n * inner * 8), *k = malloc(n * inner * 8), *v = malloc(n * inner * 8);
    double *a = malloc(n * inner * 8), *y = malloc(n * hidden * 8), *m = malloc(n * mlp * 8);
    toy_linear(x, n, hidden, inner, &w[FL_LAYER_Q_W], &w[FL_LAYER_Q_B], q);
    toy_linear(x, n, hidden, inner, &w[FL_LAYER_K_W], &w[FL_LAYER_K_B], k);
    toy_linear(x, n, hidden, inner, &w[FL_LAYER_V_W], &w[FL_LAYER_V_B], v);
    toy_attention(e, q, k, v, n, a);
    toy_linear(a, n, inner, hidden, &w[FL_LAYER_O_W], &w[FL_LAYER_O_B], y);
    for (size_t i = 0; i < n * hidden; i++) {
        x[i] += y[i];
    }
    toy_norm(x, n, hidden, e->desc.norm_eps, &w[FL_LAYER_ATTENTION_NORM_W],
             &w[FL_LAYER_ATTENTION_NORM_B]);
    toy_linear(x, n, hidden, mlp, &w[FL_LAYER_UP_W], &w[FL_LAYER_UP_B], m);
    for (size_t i = 0; i < n * mlp; i++) {
        m[i] = toy_activate(e->desc.activation, m[i]);
    }
    toy_linear(m, n, mlp, hidden, &w[FL_LAYER_DOWN_W], &w[FL_LAYER_DOWN_B], y);
    for (size_t i = 0; i < n * hidden; i++) {
        x[i] += y[i];
    }
    toy_norm(x, n, hidden, e->desc.norm_eps, &w[FL_LAYER_MLP_NORM_W], &w[FL_LAYER_MLP_NORM_B]);
    free(q), free(k), free(v), free(a), free(y), free(m);
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

static inline void toy_forward(const fl_encoder *e, const int32_t *ids, size_t n, size_t skip,
                               double *out) {
    size_t  hidden = e->desc.hidden;
    double *x      = malloc(n * hidden * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < hidden; c++) {
            x[i * hidden + c] =
                toy_at(&e->global[FL_SLOT_WORD], (size_t)ids[i] * hidden + c) +
                toy_at(&e->global[FL_SLOT_POSITION], (i + e->desc.position_offset) * hidden + c);
            if (e->desc.token_type) {
                x[i * hidden + c] += toy_at(&e->global[FL_SLOT_TYPE], c);
            }
        }
    }
    toy_norm(x, n, hidden, e->desc.norm_eps, &e->global[FL_SLOT_EMBED_NORM_W],
             &e->global[FL_SLOT_EMBED_NORM_B]);
    for (uint32_t l = 0; l < e->desc.layers; l++) {
        toy_run_layer(e, e->layer[l], n, x);
    }
    for (uint32_t p = 0; p < e->pooling_count; p++) {
        for (size_t c = 0; c < hidden; c++) {
            out[p * hidden + c] = toy_pool(e->pooling[p], x, hidden, n, skip, c);
        }
    }
    free(x);
}

static inline fl_engine *toy_open_as(const toy *t, const char *precision, unsigned threads,
                                     const char *isa, uint32_t texts, uint32_t max_length,
                                     fletch_error *error) {
    fl_engine        *engine  = NULL;
    fl_engine_options options = {.threads      = threads,
                                 .batch_tokens = 16384,
                                 .batch_texts  = texts,
                                 .max_length   = max_length,
                                 .isa          = isa,
                                 .precision    = precision};
    fl_engine_find("cpu")->open(&engine, &t->encoder, &options, error);
    return engine;
}

static inline fl_engine *toy_open(const toy *t, unsigned threads, const char *isa, uint32_t texts,
                                  uint32_t max_length, fletch_error *error) {
    return toy_open_as(t, "fp32", threads, isa, texts, max_length, error);
}

#endif
