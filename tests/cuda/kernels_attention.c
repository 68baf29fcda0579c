/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_attention.c - fl-cuda-kernels: the work lists, rotary positions, attention over the lists.
 *
 * Method  The host's lists are compared with what they must do: every short text in one tile, every 64
 *         rows of a long text in one, nothing twice, within the promised capacity. Attention runs
 *         over them, short and long kernels into one output, and is compared with
 *         softmax in double over the text's own keys.
 * Bounds  With weights that sum to 1 an output is off by at most the rounding of the weights and of
 *         itself: a few units of the type times the largest value; scores of 16-bit factors are
 *         summed in float. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"

static void tiles_case(const char *what, const uint32_t *lengths, uint32_t texts) {
    begin("lists of tiles, %s", what);
    batch     b      = batch_of(lengths, texts, 0);
    uint32_t  shorts = fl_cuda_short_capacity(b.tokens), longs = fl_cuda_long_capacity(b.tokens);
    uint32_t *seen      = scratch((b.tokens / 64 + texts + 1) * sizeof *seen);
    fl_cuda_tile *tiles = scratch((shorts + longs) * sizeof *tiles);
    fl_cuda_meta  meta;
    download(&meta, b.meta_device, sizeof meta);
    expect(meta.texts == texts && meta.tokens == b.tokens, "%u texts, %u tokens", meta.texts,
           meta.tokens);
    expect(meta.short_tiles <= shorts && meta.long_tiles <= longs, "%u and %u tiles",
           meta.short_tiles, meta.long_tiles);
    download(tiles, b.short_tiles, shorts * sizeof *tiles);
    for (uint32_t i = 0; i < meta.short_tiles; i++) {
        expect(tiles[i].count > 0 &&
                   b.cu[tiles[i].first + tiles[i].count - 1] / 64 == b.cu[tiles[i].first] / 64,
               "tile %u begins in two windows", i);
        for (uint32_t text = tiles[i].first; text < tiles[i].first + tiles[i].count; text++)
            seen[text]++;
    }
    download(tiles, b.long_tiles, longs * sizeof *tiles);
    for (uint32_t i = 0; i < meta.long_tiles; i++) {
        uint32_t n = lengths[tiles[i].first];
        expect(n > FL_CUDA_SHORT_TOKENS && tiles[i].count * FL_CUDA_TILE < n, "long tile %u", i);
        seen[tiles[i].first] += 1u << (tiles[i].count + 8);
    }
    for (uint32_t i = 0; i < texts; i++) {
        uint32_t n = lengths[i], tiles_of = (n + 63) / 64;
        uint32_t want = n <= FL_CUDA_SHORT_TOKENS ? 1 : ((1u << tiles_of) - 1) << 8;
        expect(seen[i] == want, "text %u of %u tokens is worked on as %x, not %x", i, n, seen[i],
               want);
    }
    release_all();
}

void test_tiles(void) {
    static const uint32_t edges[] = {64, 64, 65, 1, 64, 128, 129, 63, 1, 512, 2, 2};
    uint32_t              lengths[1500];
    tiles_case("edges", edges, sizeof edges / sizeof *edges);
    tiles_case("one text", edges, 1);
    for (int round = 0; round < 6; round++) {
        uint32_t texts = 1 + below(1500), most = round % 2 ? 20 : 200;
        for (uint32_t i = 0; i < texts; i++)
            lengths[i] = round == 5 ? 65 : 1 + below(most);
        tiles_case("random", lengths, texts);
    }
    for (uint32_t i = 0; i < 1500; i++)
        lengths[i] = 1;
    tiles_case("single tokens", lengths, 1500);
}

/* Attention. */

typedef struct setting {
    type     t;
    uint32_t d, heads, kv_heads, max_distance; /* 0: no bias */
    int32_t  before, after;
    bool     ruled; /* a bias or bounds: its own kernels */
    float    scale;
    double   spread; /* of q and k */
    tensor   bias;
} setting;

static tensor run_attention(const setting *s, const batch *b, const tensor *qkv) {
    char   name[64];
    tensor out = poison(s->t, (size_t)b->rows * s->heads * s->d);

    fl_cuda_attention p    = {.meta         = b->meta_device,
                              .cu           = b->cu_device,
                              .qkv          = qkv->device,
                              .out          = out.device,
                              .bias         = s->max_distance ? floats(&s->bias) : NULL,
                              .tiles        = b->short_tiles,
                              .heads        = s->heads,
                              .kv_heads     = s->kv_heads,
                              .max_distance = s->max_distance,
                              .before       = s->before,
                              .after        = s->after,
                              .scale        = s->scale};
    const char       *rule = s->ruled ? "ruled_" : "";
    snprintf(name, sizeof name, "fl_attention_short_%s%s_%u", rule, type_name[s->t], s->d);
    launch(name, fl_cuda_short_capacity(b->tokens), s->heads, FL_CUDA_ATTENTION_THREADS, &p,
           sizeof p);
    p.tiles = b->long_tiles;
    snprintf(name, sizeof name, "fl_attention_long_%s%s_%u", rule, type_name[s->t], s->d);
    launch(name, fl_cuda_long_capacity(b->tokens), s->heads, FL_CUDA_ATTENTION_THREADS, &p,
           sizeof p);
    fetch(&out);
    return out;
}

/* Weights of one query row over its text's keys. */
static void softmax_row(const setting *s, const double *q, const double *k, size_t stride,
                        uint32_t row, uint32_t head, uint32_t n, double *weights) {
    double top = -INFINITY, sum = 0.0;
    for (uint32_t j = 0; j < n; j++) {
        int32_t far = (int32_t)s->max_distance, away = (int32_t)j - (int32_t)row;
        away       = away < -far ? -far : away > far ? far : away;
        weights[j] = far ? s->bias.v[(size_t)(away + far) * s->heads + head] : 0.0;
        away       = (int32_t)j - (int32_t)row;
        if (away < -s->before || away > s->after)
            weights[j] = -INFINITY;
        for (uint32_t c = 0; c < s->d; c++)
            weights[j] += q[c] * k[j * stride + c] * (double)s->scale;
        top = fmax(top, weights[j]);
    }
    for (uint32_t j = 0; j < n; j++) {
        weights[j] = exp(weights[j] - top);
        sum += weights[j];
    }
    for (uint32_t j = 0; j < n; j++)
        weights[j] /= sum;
}

static void expect_attended(const setting *s, const batch *b, const tensor *qkv,
                            const tensor *out) {
    size_t width = (size_t)s->heads * s->d, kv = (size_t)s->kv_heads * s->d,
           stride   = width + 2 * kv;
    double *weights = scratch(512 * sizeof *weights), *sums = scratch(s->d * sizeof *sums);
    /* A score is a sum of d terms, rounded as floats are; a weight is off by as much. */
    double scores  = s->spread * s->spread * s->d / 4.0 * (double)s->scale;
    double allowed = 2e-6 + 4.0 * type_unit[F32] * scores;
    allowed += s->t == F32 ? 0.0 : 3.0 * type_unit[s->t];
    for (uint32_t text = 0; text < b->texts; text++) {
        uint32_t n = b->cu[text + 1] - b->cu[text];
        for (uint32_t row = 0; row < n; row += (n > 200 && row > 8 && row + 9 < n) ? 7 : 1) {
            for (uint32_t head = 0; head < s->heads; head++) {
                const double *first = qkv->v + b->cu[text] * stride;
                const double *keys  = first + width + head / (s->heads / s->kv_heads) * s->d;
                softmax_row(s, first + row * stride + head * s->d, keys, stride, row, head, n,
                            weights);
                memset(sums, 0, s->d * sizeof *sums);
                for (uint32_t j = 0; j < n; j++)
                    for (uint32_t c = 0; c < s->d; c++)
                        sums[c] += weights[j] * keys[kv + j * stride + c];
                for (uint32_t c = 0; c < s->d; c++) {
                    size_t at = (b->cu[text] + row) * width + head * s->d + c;
                    expect_near(out->v[at], sums[c], allowed, "out", b->cu[text] + row,
                                head * s->d + c);
                }
            }
        }
    }
    for (size_t i = b->tokens * width; i < b->rows * width; i++)
        expect(isnan(out->v[i]), "row %zu behind the batch was written", i / width);
}

static void run_case(setting *s, uint32_t most) {
    begin("attention %s D %u, %u of %u heads, texts to %u, bias %u, seen %d to %d, spread %g",
          type_name[s->t], s->d, s->kv_heads, s->heads, most, s->max_distance, -s->before, s->after,
          s->spread);
    batch  b = mixed_batch(most), back = reversed(&b);
    size_t inner = (size_t)s->heads * s->d, kv = (size_t)s->kv_heads * s->d, wide = inner + 2 * kv;
    s->scale   = 1.0f / sqrtf((float)s->d);
    s->bias    = numbers(F32, (2 * s->max_distance + 1) * s->heads, 3.0);
    tensor qkv = activations(s->t, &b, wide, 1.0);
    for (size_t i = 0; i < b.tokens * wide; i++) /* q and k wider than v */
        qkv.v[i] *= i % wide < inner + kv ? s->spread : 1.0;
    send(&qkv);
    tensor qkv_back = reversed_rows(&qkv, &b, &back, wide);
    tensor out = run_attention(s, &b, &qkv), out_back = run_attention(s, &back, &qkv_back);
    expect_attended(s, &b, &qkv, &out);
    expect_same_rows(&out, &b, &out_back, &back, inner, "out");
    release_all();
}

static void attention_case(type t, uint32_t d, uint32_t heads, uint32_t most, uint32_t max_distance,
                           double spread) {
    setting s = {.t            = t,
                 .d            = d,
                 .heads        = heads,
                 .kv_heads     = heads,
                 .max_distance = max_distance,
                 .before       = FL_CUDA_EVERY,
                 .after        = FL_CUDA_EVERY,
                 .ruled        = max_distance > 0,
                 .spread       = spread};
    run_case(&s, most);
}

/* Keys that are not seen, on either side; several query heads to a key head. */
static void bounded_case(type t, uint32_t d, uint32_t kv_heads, uint32_t most, int32_t before,
                         int32_t after, uint32_t max_distance) {
    setting s = {.t            = t,
                 .d            = d,
                 .heads        = 2 * kv_heads,
                 .kv_heads     = kv_heads,
                 .max_distance = max_distance,
                 .before       = before,
                 .after        = after,
                 .ruled        = true,
                 .spread       = 3.0};
    run_case(&s, most);
}

/* A text of NaN says so in all its rows and in no other's. */
static void nan_case(type t, uint32_t d, uint32_t length) {
    begin("attention %s D %u, a text of %u tokens with NaN", type_name[t], d, length);
    uint32_t lengths[] = {5, length, 20, 70};
    batch    b         = batch_of(lengths, 4, 3);
    setting  s         = {.t        = t,
                          .d        = d,
                          .heads    = 1,
                          .kv_heads = 1,
                          .before   = FL_CUDA_EVERY,
                          .after    = FL_CUDA_EVERY,
                          .scale    = 0.2f};
    tensor   qkv       = activations(t, &b, 3 * d, 1.0);
    for (size_t i = 0; i < 3 * d; i++)
        qkv.v[b.cu[1] * 3 * d + i] = (double)NAN;
    send(&qkv);
    tensor out = run_attention(&s, &b, &qkv);
    for (size_t i = 0; i < b.tokens * d; i++) {
        bool inside = i / d >= b.cu[1] && i / d < b.cu[2];
        expect(isnan(out.v[i]) == inside, "row %zu is %g", i / d, out.v[i]);
    }
    release_all();
}

/* Norms and rotary positions. */

typedef struct turning {
    type     t;
    uint32_t d, heads, kv_heads, dims; /* 0: no turn */
    bool     norms, rms;
} turning;

/* One head, as the formulas have it. */
static void turn_head(const turning *s, const double *w, const double *cosines, const double *sines,
                      double *x) {
    double mean = 0.0, square = 0.0, eps = 1e-6, half[64];
    for (uint32_t i = 0; i < s->d && !s->rms; i++)
        mean += x[i] / s->d;
    for (uint32_t i = 0; i < s->d; i++)
        square += (x[i] - mean) * (x[i] - mean) / s->d;
    for (uint32_t i = 0; i < s->d && s->norms; i++)
        x[i] = (x[i] - mean) / sqrt(square + eps) * w[i];
    memcpy(half, x, s->dims / 2 * sizeof *half);
    for (uint32_t i = 0; i < s->dims / 2; i++) {
        double b           = x[i + s->dims / 2];
        x[i]               = half[i] * cosines[i] - b * sines[i];
        x[i + s->dims / 2] = b * cosines[i] + half[i] * sines[i];
    }
}

static void rotate_case(const turning *s, uint32_t most) {
    begin("fl_rotate_%s_%u, %u and %u heads, %u turn%s%s", type_name[s->t], s->d, s->heads,
          s->kv_heads, s->dims, s->norms ? ", norms" : "", s->rms ? ", RMS" : "");
    char      name[64];
    batch     b    = mixed_batch(most);
    uint32_t  wide = (s->heads + 2 * s->kv_heads) * s->d, turned = (s->heads + s->kv_heads) * s->d;
    uint32_t *places = scratch(b.rows * sizeof *places);
    tensor    qkv = activations(s->t, &b, wide, 2.0), out = qkv;
    tensor    w[2] = {numbers(F32, s->d, 1.5), numbers(F32, s->d, 1.5)};
    tensor cosines = numbers(F32, most * s->d / 2, 1.0), sines = numbers(F32, most * s->d / 2, 1.0);
    for (uint32_t text = 0; text < b.texts; text++)
        for (uint32_t i = b.cu[text]; i < b.cu[text + 1]; i++)
            places[i] = i - b.cu[text];
    fl_cuda_rotate p = {.meta     = b.meta_device,
                        .places   = upload(places, b.rows * sizeof *places),
                        .qkv      = qkv.device,
                        .q_norm   = s->norms ? floats(&w[0]) : NULL,
                        .k_norm   = s->norms ? floats(&w[1]) : NULL,
                        .cosines  = s->dims ? floats(&cosines) : NULL,
                        .sines    = s->dims ? floats(&sines) : NULL,
                        .heads    = s->heads,
                        .kv_heads = s->kv_heads,
                        .dims     = s->dims,
                        .rms      = s->rms,
                        .eps      = 1e-6f};
    snprintf(name, sizeof name, "fl_rotate_%s_%u", type_name[s->t], s->d);
    launch(name, (b.rows + FL_CUDA_ROW_ROWS - 1) / FL_CUDA_ROW_ROWS, 1, FL_CUDA_ROW_THREADS, &p,
           sizeof p);
    out.v = scratch(out.count * sizeof(double));
    fetch(&out);
    for (uint32_t token = 0; token < b.tokens; token++) {
        double *row = qkv.v + (size_t)token * wide;
        size_t  at  = (size_t)places[token] * (s->dims / 2);
        for (uint32_t head = 0; head < s->heads + s->kv_heads; head++)
            turn_head(s, w[head >= s->heads].v, cosines.v + at, sines.v + at, row + head * s->d);
        for (uint32_t i = 0; i < wide; i++) {
            double got = out.v[(size_t)token * wide + i];
            if (i >= turned) {
                expect(got == row[i], "a value of v was written");
            } else {
                expect_near(got, row[i], type_unit[s->t] * fabs(row[i]) * 1.01 + 1e-5, "x", token,
                            i);
            }
        }
    }
    for (size_t i = (size_t)b.tokens * wide; i < (size_t)b.rows * wide; i++)
        expect(isnan(out.v[i]), "row %zu behind the batch was written", i / wide);
    release_all();
}

void test_rotate(void) {
    for (type t = 0; t < types_tested; t++) {
        for (uint32_t d = 32; d <= 128; d *= 2) {
            const turning cases[] = {{t, d, 3, 3, d, false, false},
                                     {t, d, 4, 2, d, true, true},
                                     {t, d, 5, 1, d / 2, true, false},
                                     {t, d, 2, 1, 0, true, true}};
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                rotate_case(&cases[i], 33);
        }
    }
}

void test_attention(void) {
    for (type t = 0; t < types_tested; t++) {
        if (t == BF16 && !device_bf16()) {
            printf("attention bf16: skipped, the device's tensor core does not know it\n");
            continue;
        }
        for (uint32_t d = 32; d <= 128; d *= 2) {
            attention_case(t, d, 1, d == 32 ? 512 : 257, 0, 1.0);
            attention_case(t, d, 3, 65, 0, 4.0);
            attention_case(t, d, 2, 129, 128, 1.0);
            attention_case(t, d, 1, 129, 20, 8.0);
            bounded_case(t, d, 1, 257, FL_CUDA_EVERY, 0, 0);
            bounded_case(t, d, 1, 257, 30, 30, 0);
            bounded_case(t, d, 2, 129, 70, 0, 0);
            bounded_case(t, d, 1, 129, 0, 3, 20);
            nan_case(t, d, 3);
            nan_case(t, d, 100);
        }
    }
}
