/* SPDX-License-Identifier: Apache-2.0 */
/* fl_kernels.c - every kernel of every instruction set of this machine against the reference, or
 * timed.
 *
 *     fl-kernels test [-o gemm|attention|layer_norm|rms_norm|rotate|activation|gating|quantize_q8|
 *                      gemm_q8|quantize_q16|gemm_q16|round_bf16|gemm_bf16|attention_bf16|widen|bits] [-i avx2]
 *     fl-kernels perf [-o …] [-i …]
 *     fl-kernels list
 *
 * test  odd sizes and all tails; values within the tolerances below, padding untouched or zero as
 *       kernels.h says, and the same bits for a row whatever its place and the number of rows.
 *       Instruction sets that this machine lacks are named as skipped. Exit status 1 when anything
 *       failed.
 * perf  GFLOP/s and share of the FMA peak measured just before, or nanoseconds per element.
 * list  the sets of this machine, the best first, each with "float32" where it has such kernels of its own
 *       and "narrow" where it takes those of a set in front of it.
 *
 * A failing case prints its shape, so that it can be run alone under a debugger. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu_peak.h"
#include "base/mem.h"
#include "engines/cpu/kernels.h"
#include "engines/cpu/kernels/narrow.h"
#include "judge.h"

enum { GUARD = 32 }; /* floats behind every row range that must stay as they are */

#define SEED 88172645463325252U

static const fl_cpu_kernels *kernels;
static size_t                cases, failures;
static uint64_t              state; /* of draw; every operation of every table begins at SEED, so
                                        that what fails among others fails alone */

static float draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)((state >> 20) % 2001) * 1e-3f - 1.0f;
}

static float *fresh(size_t count) {
    void *block = fl_alloc_aligned((count + GUARD) * sizeof(float), 64);
    if (block == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return block;
}

static float *random_floats(size_t count) {
    float *block = fresh(count);
    for (size_t i = 0; i < count + GUARD; i++)
        block[i] = draw();
    return block;
}

static float *copy_of(const float *from, size_t count) {
    float *block = fresh(count);
    memcpy(block, from, (count + GUARD) * sizeof(float));
    return block;
}

static bool same(const float *a, const float *b, size_t count) {
    return memcmp(a, b, count * sizeof(float)) == 0;
}

static void check(bool ok, const char *op, const char *what, size_t a, size_t b, size_t c) {
    cases++;
    if (!ok) {
        failures++;
        printf("FAIL %s %s: %s at %zu, %zu, %zu\n", kernels->isa, op, what, a, b, c);
    }
}

static double distance(const float *a, const float *b, size_t count) {
    double most = 0.0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most     = d > most || isnan(d) ? d : most;
    }
    return isnan(most) ? INFINITY : most;
}

/* ---- gemm ------------------------------------------------------------------------------------ */

/* No tolerance: the chain of FMAs is the specification (kernels.h), so the bits must agree. */

typedef struct gemm_case {
    size_t rows, panels, k, stride;
    float *a, *b, *c, *bias, *residual;
} gemm_case;

static gemm_case gemm_new(size_t rows, size_t panels, size_t k) {
    size_t wide = panels * FL_CPU_LANES;
    return (gemm_case){.rows     = rows,
                       .panels   = panels,
                       .k        = k,
                       .stride   = wide + FL_CPU_LANES,
                       .a        = random_floats(rows * (k + 3)),
                       .b        = random_floats(k * wide),
                       .c        = random_floats(rows * (wide + FL_CPU_LANES)),
                       .bias     = random_floats(wide),
                       .residual = random_floats(rows * wide)};
}

static void gemm_free(gemm_case *g) {
    fl_free(g->a), fl_free(g->b), fl_free(g->c), fl_free(g->bias), fl_free(g->residual);
}

static fl_gemm gemm_args(const gemm_case *g, float *c, int accumulate, int bias, int residual) {
    return (fl_gemm){.a               = g->a,
                     .a_stride        = (g->k + 3) * sizeof *g->a,
                     .b               = g->b,
                     .b_stride        = g->k * FL_CPU_LANES * sizeof *g->b,
                     .c               = c,
                     .c_stride        = g->stride,
                     .bias            = bias ? g->bias : NULL,
                     .residual        = residual ? g->residual : NULL,
                     .residual_stride = g->panels * FL_CPU_LANES,
                     .rows            = g->rows,
                     .panels          = g->panels,
                     .k               = g->k,
                     .accumulate      = accumulate};
}

static void gemm_against_ref(const gemm_case *g) {
    size_t count = g->rows * g->stride;
    for (int mode = 0; mode < 8; mode++) {
        float  *ours = copy_of(g->c, count), *want = copy_of(g->c, count);
        fl_gemm args = gemm_args(g, ours, mode & 1, mode & 2, mode & 4);
        kernels->gemm(&args);
        args.c = want;
        fl_cpu_kernels_ref.gemm(&args);
        check(same(ours, want, count + GUARD), "gemm", "bits of values or guard", g->rows,
              g->panels, g->k);
        fl_free(ours), fl_free(want);
    }
}

/* Each row alone, and k cut in two, must give the bits of the whole. */
static void gemm_bits(const gemm_case *g) {
    size_t  count = g->rows * g->stride, half = g->k / 3;
    float  *whole = copy_of(g->c, count), *other = copy_of(g->c, count);
    fl_gemm args = gemm_args(g, whole, 0, 1, 1);
    kernels->gemm(&args);
    for (size_t r = 0; r < g->rows; r++) {
        fl_gemm row  = gemm_args(g, other + r * g->stride, 0, 1, 1);
        row.a        = g->a + r * (g->k + 3);
        row.residual = g->residual + r * row.residual_stride;
        row.rows     = 1;
        kernels->gemm(&row);
    }
    check(same(whole, other, count), "gemm", "bits of rows alone", g->rows, g->panels, g->k);
    fl_gemm first = gemm_args(g, other, 0, 0, 0), second = gemm_args(g, other, 1, 1, 1);
    first.k = half;
    second.k -= half;
    second.a = g->a + half;
    second.b = g->b + half * FL_CPU_LANES;
    kernels->gemm(&first);
    kernels->gemm(&second);
    check(same(whole, other, count), "gemm", "bits of k in two pieces", g->rows, g->panels, g->k);
    fl_free(whole), fl_free(other);
}

static void test_gemm(void) {
    static const size_t ks[] = {1, 2, 3, 5, 16, 33, 100, 384};
    for (size_t rows = 0; rows <= 26; rows++) {
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
            gemm_case g = gemm_new(rows, 1 + (rows + i) % 3, ks[i]);
            gemm_against_ref(&g);
            gemm_bits(&g);
            gemm_free(&g);
        }
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Rows are averages of values in [-1, 1]; a score of size up to 6 is off by some 1e-6, of 256 dimensions
 * by twice that, and so then is its weight; sums of n weights add 6e-8 each. */
static const double f32_tolerance = 5e-6;

/* In bfloat16 numbers that it holds exactly are compared: what remains is that weights are rounded by up to
 * 2^-9 and the exponential is off by 9e-5. */
static const double bf16_tolerance = 2.2e-3;

/* What is under test. */
static void (*attend)(const fl_attention *);
static const char *attention_name;
static double      attention_tolerance;
static bool        halves;

/* The nearest number to 0 that the attention under test need not round. */
static float held(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= halves ? 0xffff0000U : 0xffffffffU;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static float *held_floats(size_t count) {
    float *block = random_floats(count);
    for (size_t i = 0; i < count; i++)
        block[i] = held(block[i]);
    return block;
}

/* All of one head over one text. */
static fl_attention attention_of(float *qkv, size_t stride, size_t n, size_t d, float *out,
                                 size_t out_stride) {
    return (fl_attention){.q          = qkv,
                          .q_stride   = stride,
                          .k          = qkv + n * stride,
                          .v          = qkv + 2 * n * stride,
                          .kv_stride  = stride,
                          .out        = out,
                          .out_stride = out_stride,
                          .scratch    = fresh(fl_cpu_attention_scratch(1, n, n, d)),
                          .heads      = 1,
                          .n          = n,
                          .d          = d,
                          .rows       = n,
                          .before     = FL_CPU_ALL,
                          .after      = FL_CPU_ALL};
}

static void attention_case(size_t n, size_t d, int with_bias) {
    size_t       stride = d + 16, out_stride = d + 32;
    float       *qkv = held_floats(3 * n * stride), *bias = random_floats(2 * n + 16);
    float       *ours = random_floats(n * out_stride), *want = copy_of(ours, n * out_stride);
    fl_attention at = attention_of(qkv, stride, n, d, ours, out_stride);
    at.bias         = with_bias ? bias + n - 1 : NULL;
    at.bias_row     = -1;
    attend(&at);
    at.out = want;
    judge.attention(&at);
    double most = attention_tolerance * (d > 128 ? 2.0 : 1.0);
    check(distance(ours, want, n * out_stride + GUARD) <= most, attention_name,
          with_bias ? "value with bias" : "value", n, d, 0);
    fl_free(qkv), fl_free(bias), fl_free(ours), fl_free(want), fl_free(at.scratch);
}

/* Several heads over the same keys, of which a token sees `before` and `after` itself: values; a part
 * of the queries has the bits of all of them; and what a token does not see may be anything. Without bias, with one
 * by distance, and with a row of its own for each query; some capped. */
static void attention_sight(size_t heads, size_t n, size_t d, size_t before, size_t after) {
    size_t       stride = heads * d, count = n * stride;
    size_t       row_bias = n % 3 == 2 ? n + 16 : 0, of_head = row_bias ? n * row_bias : 2 * n + 16;
    float       *q = held_floats(count), *kv = held_floats(2 * n * d);
    float       *bias = random_floats(heads * of_head);
    float       *ours = random_floats(count), *want = copy_of(ours, count);
    float       *part = copy_of(ours, count);
    fl_attention at   = {.q          = q,
                         .q_stride   = stride,
                         .q_head     = d,
                         .k          = kv,
                         .v          = kv + n * d,
                         .kv_stride  = d,
                         .out        = ours,
                         .out_stride = stride,
                         .out_head   = d,
                         .bias       = n % 3 == 0 ? NULL
                                       : row_bias ? bias
                                                  : bias + n - 1,
                         .bias_row   = row_bias ? (ptrdiff_t)row_bias : -1,
                         .bias_head  = of_head,
                         .cap        = n % 4 == 1 ? 2.0f : 0.0f,
                         .scratch    = fresh(fl_cpu_attention_scratch(heads, n, n, d)),
                         .heads      = heads,
                         .n          = n,
                         .d          = d,
                         .rows       = n,
                         .before     = before,
                         .after      = after};
    attend(&at);
    at.out = want;
    judge.attention(&at);
    check(distance(ours, want, count + GUARD) <= attention_tolerance, attention_name,
          "value of what is seen", n, before, after);
    at.out = part;
    for (size_t row = 0, rows = 1; row < n; row += rows, rows = 1 + rows * 7 % 31) {
        rows     = rows < n - row ? rows : n - row;
        at.q     = q + row * stride;
        at.out   = part + row * stride;
        at.first = row;
        at.rows  = rows;
        attend(&at);
        at.bias = at.bias ? at.bias + (ptrdiff_t)rows * at.bias_row : NULL;
    }
    check(same(ours, part, count), attention_name, "bits of a part of the queries", n, before,
          after);
    /* the keys that no token after the middle sees, made large */
    size_t middle = n / 2, blind = middle > before ? middle - before : 0;
    for (size_t i = 0; i < blind * d; i++)
        kv[i] = kv[n * d + i] = 1e8f;
    at.q = q, at.out = part, at.first = 0, at.rows = n;
    at.bias = at.bias ? at.bias - (ptrdiff_t)n * at.bias_row : NULL;
    attend(&at);
    check(same(ours + middle * stride, part + middle * stride, count - middle * stride),
          attention_name, "weights of keys that are not seen", n, before, after);
    fl_free(q), fl_free(kv), fl_free(bias), fl_free(ours), fl_free(want), fl_free(part),
        fl_free(at.scratch);
}

/* Scores so far apart that all weight falls on one key, and equal ones. */
static void attention_extremes(size_t n, size_t d) {
    size_t       count = n * d;
    float       *q = fresh(count), *k = fresh(count), *v = held_floats(count), *out = fresh(count);
    float       *want = fresh(count);
    fl_attention at   = attention_of(v, d, n, d, out, d);
    at.q = q, at.k = k, at.v = v;
    for (float size = 0.0f; size <= 40.0f; size += 20.0f) {
        for (size_t i = 0; i < count; i++) {
            q[i] = held(size * draw());
            k[i] = held(size * draw());
        }
        at.out = out;
        attend(&at);
        at.out = want;
        judge.attention(&at);
        /* scores of several thousand have a spacing of 2e-4 and more */
        check(distance(out, want, count) <= attention_tolerance + (double)size * 1e-3,
              attention_name, "extreme scores", n, d, (size_t)size);
    }
    fl_free(q), fl_free(k), fl_free(v), fl_free(out), fl_free(want), fl_free(at.scratch);
}

/* Damage shows: a query that is NaN makes its row NaN, a key every row, a value its column; what they
 * do not reach keeps its bits. */
static void attention_damage(size_t n, size_t d) {
    size_t       count = n * d;
    float       *qkv = held_floats(3 * count), *whole = fresh(count), *out = fresh(count);
    fl_attention at = attention_of(qkv, d, n, d, whole, d);
    attend(&at);
    at.out = out;
    for (size_t part = 0; part < 3; part++) {
        size_t hurt = part * count + n / 2 * d + d / 2;
        float  was  = qkv[hurt];
        qkv[hurt]   = NAN;
        attend(&at);
        qkv[hurt]  = was;
        bool shows = true;
        for (size_t i = 0; i < count; i++) {
            bool bad = part == 0 ? i / d == n / 2 : part == 1 || i % d == d / 2;
            shows    = shows && (bad ? isnan(out[i]) : same(out + i, whole + i, 1));
        }
        check(shows, attention_name, "NaN in a query, key or value", n, d, part);
    }
    fl_free(qkv), fl_free(whole), fl_free(out), fl_free(at.scratch);
}

/* One key: its value comes out, rounded like the weights of bf16 products. */
static void attention_rounds(size_t d) {
    float       *qkv = random_floats(3 * d), *out = fresh(d), *want = copy_of(qkv + 2 * d, d);
    uint16_t    *half = fl_alloc_zero(d, sizeof *half);
    fl_attention at   = attention_of(qkv, d, 1, d, out, d);
    fl_quantize  z    = {.x = want, .x_stride = d, .q = half, .q_stride = 2 * d, .rows = 1, .n = d};
    attend(&at);
    fl_bf16_round_ref(&z);
    for (size_t i = 0; i < d; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(&want[i], &bits, sizeof bits);
    }
    check(same(out, want, d), attention_name, "value of the only key", 1, d, 0);
    fl_free(qkv), fl_free(out), fl_free(want), fl_free(half), fl_free(at.scratch);
}

static void attention_cases(void) {
    static const size_t dims[] = {16, 32, 48, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        for (size_t n = 1; n <= 37; n++)
            attention_case(n, dims[i], n % 2 == 0);
        attention_case(127, dims[i], 1);
        attention_case(300, dims[i], 0);
        attention_extremes(19, dims[i]);
        attention_damage(19, dims[i]);
        attention_damage(200, dims[i]);
    }
    static const size_t sight[][2] = {
        {FL_CPU_ALL, 0}, {4, 4}, {8, 0}, {0, 0}, {64, 64}, {100, 3}, {FL_CPU_ALL, FL_CPU_ALL}};
    for (size_t i = 0; i < sizeof sight / sizeof *sight; i++) {
        for (size_t n = 1; n <= 70; n += 1 + n / 5)
            attention_sight(1 + n % 3, n, 32, sight[i][0], sight[i][1]);
        attention_sight(2, 511, 64, sight[i][0], sight[i][1]);
        attention_sight(2, 1300, 64, sight[i][0], sight[i][1]); /* several blocks of keys */
    }
}

static void test_attention(void) {
    attend         = kernels->attention;
    attention_name = "attention";
    halves = false, attention_tolerance = f32_tolerance;
    attention_cases();
}

static void test_attention_bf16(void) {
    attend         = kernels->narrow[FL_CPU_BF16].attention;
    attention_name = "attention_bf16";
    halves = true, attention_tolerance = bf16_tolerance;
    attention_cases();
    for (size_t d = 16; d <= 256; d += 16)
        attention_rounds(d);
}

/* ---- layer_norm ------------------------------------------------------------------------------ */

/* Values of size 1 to 4 after scaling; mean and variance carry 6e-8 per step of sums over n /
 * 16. */
static const double norm_tolerance = 5e-6;

typedef void (*norm_fn)(const fl_row_norm *);

static void norm_case(norm_fn ours_fn, norm_fn want_fn, const char *op, size_t rows, size_t n,
                      float shift) {
    size_t stride = fl_cpu_pad(n) + 16, count = rows * stride;
    float *x = random_floats(count), *w = fresh(stride), *b = fresh(stride);
    for (size_t i = 0; i < count; i++)
        x[i] = i % stride < n ? x[i] + shift : 0.0f;
    for (size_t i = 0; i < stride; i++) {
        w[i] = i < n ? draw() : 0.0f;
        b[i] = i < n ? draw() : 0.0f;
    }
    float      *ours = copy_of(x, count), *want = copy_of(x, count), *alone = copy_of(x, count);
    fl_row_norm norm = {.x        = ours,
                        .x_stride = stride,
                        .y        = ours,
                        .y_stride = stride,
                        .weight   = w,
                        .bias     = b,
                        .rows     = rows,
                        .n        = n,
                        .eps      = 1e-12f};
    ours_fn(&norm);
    norm.x = x, norm.y = want;
    want_fn(&norm);
    norm.rows = 1;
    for (size_t r = 0; r < rows; r++) {
        norm.x = x + r * stride, norm.y = alone + r * stride;
        ours_fn(&norm);
    }
    double spread = n == 1 ? 0.0 : norm_tolerance * (1.0 + fabs((double)shift));
    check(distance(ours, want, count + GUARD) <= spread || n == 1, op, "value or guard", rows, n,
          (size_t)shift);
    check(same(ours, alone, count), op, "bits in place and alone", rows, n, (size_t)shift);
    fl_free(x), fl_free(w), fl_free(b), fl_free(ours), fl_free(want), fl_free(alone);
}

static void test_norm(norm_fn ours, norm_fn want, const char *op) {
    static const size_t widths[] = {1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 64, 128, 384, 401, 768};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        norm_case(ours, want, op, 1, widths[i], 0.0f);
        norm_case(ours, want, op, 5, widths[i], 10.0f); /* a mean far from 0 must not cost digits */
    }
}

static void test_layer_norm(void) {
    test_norm(kernels->layer_norm, judge.layer_norm, "layer_norm");
}
static void test_rms_norm(void) {
    test_norm(kernels->rms_norm, judge.rms_norm, "rms_norm");
}

/* ---- widen ----------------------------------------------------------------------------------- */

static bool same_or_nan(const float *a, const float *b, size_t count) {
    bool all = true;
    for (size_t i = 0; i < count; i++)
        all = all && ((isnan(a[i]) && isnan(b[i])) || same(a + i, b + i, 1));
    return all;
}

/* Any bytes: halves are subnormal, infinite and no number, too. */
static void widen_case(const fl_groups *g, size_t steps) {
    size_t   bytes = fl_cpu_groups_bytes(g, steps), count = steps * FL_CPU_LANES;
    uint8_t *panel = (uint8_t *)fresh(bytes / sizeof(float) + 1);
    float   *ours = random_floats(count), *want = copy_of(ours, count);
    for (size_t i = 0; i < bytes; i++)
        panel[i] = (uint8_t)(draw() * 1000.0f + 1000.0f);
    for (size_t i = 0; g->coded && i < steps; i += FL_CPU_STRETCH) {
        for (size_t c = 0; c < (g->least ? 2 : 1) * FL_CPU_LANES; c++) {
            float whole = draw();
            memcpy(panel + fl_cpu_groups_bytes(g, i) + c * sizeof whole, &whole, sizeof whole);
        }
    }
    kernels->widen(&(fl_widen){g, panel, steps, 0.0883883461f /* 1/√128 */, ours});
    judge.widen(&(fl_widen){g, panel, steps, 0.0883883461f, want});
    check(same_or_nan(ours, want, count + GUARD), "widen", "bits or guard", steps,
          g->bits * 100U + g->run, g->rounded * 4U + (g->least || g->zero) * 2U + g->coded);
    fl_free(panel), fl_free(ours), fl_free(want);
}

static void widen_cases(const fl_groups *g) {
    static const size_t steps[] = {16, 32, 48, 112, 128, 144, 160, 256, 384, 400};
    for (size_t n = 0; n < sizeof steps / sizeof *steps; n++)
        widen_case(g, steps[n]);
}

static void test_widen(void) {
    for (unsigned i = 0; i < 64; i++) {
        const bool first = i & 8U, second = i & 16U, rounded = i & 32U;
        widen_cases(&(fl_groups){.bits    = i & 1U ? 4 : 8,
                                 .run     = (uint8_t)(16U << (i >> 1 & 3U)),
                                 .least   = !rounded && first,
                                 .coded   = !rounded && second,
                                 .rounded = rounded,
                                 .zero    = rounded && first,
                                 .half    = rounded && second});
    }
    widen_cases(&(fl_groups){.bits = 16, .half = false});
    widen_cases(&(fl_groups){.bits = 16, .half = true});
}

/* ---- rotate ---------------------------------------------------------------------------------- */

/* Two products of values in [-1, 1], rounded. */
static void rotate_case(size_t rows, size_t dims, size_t stride) {
    size_t      count = rows * stride;
    float      *x = random_floats(count), *table = random_floats(rows * dims);
    float      *ours = copy_of(x, count), *want = copy_of(x, count), *alone = copy_of(x, count);
    size_t      half = dims / 2;
    fl_rotation at   = {.x      = ours,
                        .stride = stride,
                        .cosine = table,
                        .sine   = table + rows * half,
                        .rows   = rows,
                        .dims   = dims};
    kernels->rotate(&at);
    at.x = want;
    judge.rotate(&at);
    at.rows = 1;
    for (size_t r = 0; r < rows; r++) {
        at.x      = alone + r * stride;
        at.cosine = table + r * half;
        at.sine   = table + (rows + r) * half;
        kernels->rotate(&at);
    }
    bool rest = true; /* what is not rotated stays */
    for (size_t i = 0; i < count; i++)
        rest = rest && (i % stride < dims || same(ours + i, x + i, 1));
    check(distance(ours, want, count + GUARD) <= 3e-7, "rotate", "value or guard", rows, dims, 0);
    check(same(ours, alone, count), "rotate", "bits of rows alone", rows, dims, 0);
    check(rest, "rotate", "what lies past the rotated dimensions", rows, dims, stride);
    fl_free(x), fl_free(table), fl_free(ours), fl_free(want), fl_free(alone);
}

static void test_rotate(void) {
    static const size_t dims[] = {2, 4, 8, 14, 16, 24, 32, 40, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        rotate_case(1, dims[i], fl_cpu_pad(dims[i]));
        rotate_case(7, dims[i], fl_cpu_pad(dims[i]) + 32);
    }
}

/* ---- activation ------------------------------------------------------------------------------ */

static const char *const act_name[] = {"gelu", "gelu_tanh", "silu", "relu", "quick_gelu"};

/* The polynomial of erf-GELU is within 4e-7; the others carry the exponential's 1.2e-7 of their
 * value. */
static double act_tolerance(double x) {
    return 5e-7 + 4e-7 * fabs(x);
}

static void activation_case(int act, size_t rows, size_t cols) {
    size_t stride = cols + 16, count = rows * stride;
    float *x = random_floats(count);
    for (size_t i = 0; i < count; i++)
        x[i] *= 12.0f;
    x[0]        = 0.0f;
    float *ours = copy_of(x, count), *want = copy_of(x, count), *alone = copy_of(x, count);
    kernels->activation[act](ours, stride, rows, cols);
    judge.activation[act](want, stride, rows, cols);
    for (size_t r = 0; r < rows; r++)
        kernels->activation[act](alone + r * stride, stride, 1, cols);
    bool near = ours[0] == 0.0f || fabs((double)ours[0]) < 1e-6;
    for (size_t i = 0; i < count + GUARD; i++)
        near = near && fabs((double)ours[i] - (double)want[i]) <= act_tolerance((double)x[i]);
    check(near, "activation", act_name[act], rows, cols, 0);
    check(same(ours, alone, count), "activation", "bits of rows alone", rows, cols, (size_t)act);
    fl_free(x), fl_free(ours), fl_free(want), fl_free(alone);
}

/* Beyond the range of the polynomial and the exponential, and numbers that are none. */
static void activation_extremes(int act) {
    const float edge[16] = {-1e30f, -300.0f, -90.0f, -88.0f, -20.0f, -5.6f, -5.5f,  -5.4f,
                            5.4f,   5.5f,    5.6f,   20.0f,  88.0f,  90.0f, 300.0f, 1e30f};
    float       ours[16], want[16];
    memcpy(ours, edge, sizeof ours);
    memcpy(want, edge, sizeof want);
    kernels->activation[act](ours, 16, 1, 16);
    judge.activation[act](want, 16, 1, 16);
    for (size_t i = 0; i < 16; i++) {
        double error = fabs((double)ours[i] - (double)want[i]);
        check(error <= 5e-7 + 4e-7 * fabs((double)want[i]), "activation", act_name[act], i, 0, 1);
    }
    float bad[16] = {NAN, NAN};
    kernels->activation[act](bad, 16, 1, 16);
    check(isnan(bad[0]) && isnan(bad[1]) && !isnan(bad[2]), "activation", "NaN must stay NaN", 0, 0,
          0);
}

/* Gates are the activation times the other column, in place of either or apart. */
static void gating_case(int act, size_t rows, size_t cols) {
    size_t stride = 2 * cols, count = rows * stride;
    float *x = random_floats(count);
    for (size_t i = 0; i < count; i++)
        x[i] *= 12.0f;
    float    *ours = copy_of(x, count), *want = fresh(rows * cols), *alone = fresh(rows * cols);
    fl_gating at = {ours, ours + cols, stride, ours, stride, rows, cols};
    kernels->gating[act](&at);
    fl_gating ref = {x, x + cols, stride, want, cols, rows, cols};
    judge.gating[act](&ref);
    bool near = true, bits = true;
    for (size_t r = 0; r < rows; r++) {
        fl_gating row = {
            x + r * stride, x + r * stride + cols, stride, alone + r * cols, cols, 1, cols};
        kernels->gating[act](&row);
        for (size_t c = 0; c < cols; c++) {
            double gate = (double)x[r * stride + c], up = (double)x[r * stride + cols + c];
            double most  = act_tolerance(gate) * (1.0 + fabs(up)),
                   value = (double)want[r * cols + c];
            near         = near && fabs((double)ours[r * stride + c] - value) <= most;
        }
        bits = bits && same(ours + r * stride, alone + r * cols, cols) &&
               same(ours + r * stride + cols, x + r * stride + cols, cols);
    }
    check(near, "gating", act_name[act], rows, cols, 0);
    check(bits, "gating", "bits in place and alone", rows, cols, (size_t)act);
    fl_free(x), fl_free(ours), fl_free(want), fl_free(alone);
}

static void test_gating(void) {
    for (int act = 0; act < FL_ACTIVATIONS; act++) {
        for (size_t rows = 1; rows <= 9; rows++) {
            gating_case(act, rows, 16);
            gating_case(act, rows, 48);
        }
    }
}

static void test_activation(void) {
    for (int act = 0; act < FL_ACTIVATIONS; act++) {
        for (size_t rows = 1; rows <= 9; rows++) {
            activation_case(act, rows, 16);
            activation_case(act, rows, 80);
        }
        activation_extremes(act);
    }
}

/* ---- perf ------------------------------------------------------------------------------------ */

static double peak;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); /* others have their own */
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Best seconds of a call, of processor time, over a second of it. */
static double best_time(void (*call)(void *), void *arg) {
    double best = 1e9;
    call(arg);
    for (double end = now() + 1.0; now() < end;) {
        double start = now();
        for (int i = 0; i < 8; i++)
            call(arg);
        double time = (now() - start) / 8.0;
        best        = time < best ? time : best;
    }
    return best;
}

static void call_gemm(void *arg) {
    kernels->gemm(arg);
}
static void call_attention(void *arg) {
    attend(arg);
}
static void call_norm(void *arg) {
    kernels->layer_norm(arg);
}
static void call_rms(void *arg) {
    kernels->rms_norm(arg);
}
static void call_widen(void *arg) {
    kernels->widen(arg);
}
static void call_rotate(void *arg) {
    kernels->rotate(arg);
}

static void say_flops(const char *what, double flops, double seconds) {
    printf("%-6s %-32s %8.1f GFLOP/s", kernels->isa, what, flops / seconds * 1e-9);
    printf(peak > 0.0 ? "  %5.1f %% of peak\n" : "\n", 100.0 * flops / seconds / peak);
}

static void perf_gemm(void) {
    static const size_t rows[] = {1, 4, 7, 16, 48, 96, 128};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char      text[64];
        gemm_case g    = gemm_new(rows[i], 24, 384);
        fl_gemm   args = gemm_args(&g, g.c, 0, 1, 0);
        snprintf(text, sizeof text, "gemm %zu x 384 x 384", rows[i]);
        say_flops(text, 2.0 * (double)rows[i] * 384.0 * 384.0, best_time(call_gemm, &args));
        gemm_free(&g);
    }
}

/* `pairs` of a query and a key that it sees. */
static void perf_sight(const char *what, size_t n, size_t d, size_t before, size_t after) {
    char         text[64];
    float       *qkv = random_floats(3 * n * d), *out = fresh(n * d);
    fl_attention at    = attention_of(qkv, d, n, d, out, d);
    double       pairs = 0.0;
    at.before = before, at.after = after;
    for (size_t i = 0; i < n; i++)
        pairs += (double)((n - i > after ? i + after + 1 : n) - (i > before ? i - before : 0));
    snprintf(text, sizeof text, "%s%s %zu tokens, head of %zu", attention_name, what, n, d);
    say_flops(text, 4.0 * pairs * (double)d, best_time(call_attention, &at));
    fl_free(qkv), fl_free(out), fl_free(at.scratch);
}

static void perf_heads(void) {
    static const size_t lengths[] = {4, 8, 12, 16, 24, 48, 128, 256, 512, 2048};
    for (size_t d = 32; d <= 128; d *= 2) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            perf_sight("", lengths[i], d, FL_CPU_ALL, FL_CPU_ALL);
        perf_sight(", causal,", 2048, d, FL_CPU_ALL, 0);
        perf_sight(", window 64,", 2048, d, 64, 64);
    }
}

static void perf_attention(void) {
    attend = kernels->attention, attention_name = "attention";
    perf_heads();
}
static void perf_attention_bf16(void) {
    attend = kernels->narrow[FL_CPU_BF16].attention, attention_name = "attention_bf16";
    perf_heads();
}

static void perf_norm(const char *what, void (*call)(void *)) {
    size_t      rows = 96, n = 384;
    float      *x = random_floats(rows * n), *w = random_floats(n);
    fl_row_norm norm = {.x        = x,
                        .x_stride = n,
                        .y        = x,
                        .y_stride = n,
                        .weight   = w,
                        .bias     = w,
                        .rows     = rows,
                        .n        = n,
                        .eps      = 1e-12f};
    printf("%-6s %s of 384: %.1f ns a row\n", kernels->isa, what,
           best_time(call, &norm) * 1e9 / (double)rows);
    fl_free(x), fl_free(w);
}
static void perf_layer_norm(void) {
    perf_norm("layer_norm", call_norm);
}
static void perf_rms_norm(void) {
    perf_norm("rms_norm", call_rms);
}

static void perf_rotate(void) {
    size_t      rows = 96, d = 64;
    float      *x = random_floats(rows * d), *table = random_floats(rows * d);
    fl_rotation at = {.x      = x,
                      .stride = d,
                      .cosine = table,
                      .sine   = table + rows * d / 2,
                      .rows   = rows,
                      .dims   = d};
    printf("%-6s rotate a head of 64: %.1f ns a row\n", kernels->isa,
           best_time(call_rotate, &at) * 1e9 / (double)rows);
    fl_free(x), fl_free(table);
}

/* Of 8 and of 4 bits, as they are rounded. */
static void perf_widen(void) {
    const size_t steps = 1024;
    for (uint8_t bits = 16; bits >= 4; bits = (uint8_t)(bits / 2)) {
        fl_groups g     = {.bits = bits, .run = bits < 16 ? 32 : 0};
        float    *panel = random_floats(fl_cpu_groups_bytes(&g, steps) / sizeof(float)),
              *out      = fresh(steps * FL_CPU_LANES);
        fl_widen z      = {&g, (const uint8_t *)panel, steps, 1.0f, out};
        printf("%-6s widen %d bits: %.2f ns a step of 16 columns\n", kernels->isa, bits,
               best_time(call_widen, &z) * 1e9 / (double)steps);
        fl_free(panel), fl_free(out);
    }
}

typedef struct act_arg {
    float *x;
    int    act;
} act_arg;
static void call_act(void *arg) {
    act_arg *a = arg;
    kernels->activation[a->act](a->x, 16, 96, 16);
}

static void perf_activation(void) {
    for (int act = 0; act < FL_ACTIVATIONS; act++) {
        act_arg a = {random_floats(96 * 16), act};
        printf("%-6s %s: %.3f ns an element\n", kernels->isa, act_name[act],
               best_time(call_act, &a) * 1e9 / (96 * 16));
        fl_free(a.x);
    }
}

static void call_gating(void *arg) {
    act_arg  *a  = arg;
    fl_gating at = {a->x, a->x + 16, 32, a->x, 32, 96, 16};
    kernels->gating[a->act](&at);
}

static void perf_gating(void) {
    for (int act = 0; act < FL_ACTIVATIONS; act++) {
        act_arg a = {random_floats(96 * 32), act};
        printf("%-6s gate of %s: %.3f ns an element\n", kernels->isa, act_name[act],
               best_time(call_gating, &a) * 1e9 / (96 * 16));
        fl_free(a.x);
    }
}

/* ---- narrow formats (kernels_narrow.c) ------------------------------------------------------- */

#define NARROW(name, format)                                                                       \
    static void test_quantize_##name(void) {                                                       \
        narrow_test_quantize(kernels, format, check);                                              \
    }                                                                                              \
    static void test_gemm_##name(void) {                                                           \
        narrow_test_gemm(kernels, format, check);                                                  \
    }                                                                                              \
    static void perf_quantize_##name(void) {                                                       \
        narrow_perf_quantize(kernels, format, best_time);                                          \
    }                                                                                              \
    static void perf_gemm_##name(void) {                                                           \
        narrow_perf_gemm(kernels, format, best_time, peak);                                        \
    }
NARROW(q8, FL_CPU_INT8)
NARROW(q16, FL_CPU_INT16)
NARROW(bf16, FL_CPU_BF16)
#undef NARROW

static void test_bits(void) {
    bits_test(kernels, check);
}

/* ---- main ------------------------------------------------------------------------------------ */

static const struct {
    const char   *name;
    fl_cpu_format format;
    void (*test)(void), (*perf)(void);
} ops[] = {{"gemm", FL_CPU_FP32, test_gemm, perf_gemm},
           {"attention", FL_CPU_FP32, test_attention, perf_attention},
           {"layer_norm", FL_CPU_FP32, test_layer_norm, perf_layer_norm},
           {"rms_norm", FL_CPU_FP32, test_rms_norm, perf_rms_norm},
           {"rotate", FL_CPU_FP32, test_rotate, perf_rotate},
           {"activation", FL_CPU_FP32, test_activation, perf_activation},
           {"gating", FL_CPU_FP32, test_gating, perf_gating},
           {"quantize_q8", FL_CPU_INT8, test_quantize_q8, perf_quantize_q8},
           {"gemm_q8", FL_CPU_INT8, test_gemm_q8, perf_gemm_q8},
           {"quantize_q16", FL_CPU_INT16, test_quantize_q16, perf_quantize_q16},
           {"gemm_q16", FL_CPU_INT16, test_gemm_q16, perf_gemm_q16},
           {"round_bf16", FL_CPU_BF16, test_quantize_bf16, perf_quantize_bf16},
           {"gemm_bf16", FL_CPU_BF16, test_gemm_bf16, perf_gemm_bf16},
           {"attention_bf16", FL_CPU_BF16, test_attention_bf16, perf_attention_bf16},
           {"widen", FL_CPU_FP32, test_widen, perf_widen},
           {"bits", FL_CPU_FP32, test_bits, NULL}};

/* Entries that a table may lack are named as skipped. */
static bool offers(size_t op) {
    const fl_cpu_narrow *narrow = &kernels->narrow[ops[op].format];
    bool                 gemm   = strncmp(ops[op].name, "gemm", 4) == 0;
    bool                 heads  = strncmp(ops[op].name, "attention", 9) == 0;
    return ops[op].format == FL_CPU_FP32 || (heads  ? narrow->attention != NULL
                                             : gemm ? narrow->gemm != NULL
                                                    : narrow->quantize != NULL);
}

/* The set in front of `isa` that has its very functions of this format: avx512bf16 adds to avx512vnni what it
 * has of its own. NULL: none. */
static const fl_cpu_isa *tested_as(const fl_cpu_isa *isa, const fl_cpu *cpu, fl_cpu_format format) {
    enum { PANELS = offsetof(fl_cpu_kernels, panels), NARROW = offsetof(fl_cpu_kernels, narrow) };
    size_t from = format == FL_CPU_FP32 ? PANELS : NARROW + format * sizeof(fl_cpu_narrow);
    size_t size = format == FL_CPU_FP32 ? NARROW - PANELS : sizeof(fl_cpu_narrow);
    for (size_t i = 0; fl_cpu_isa_at(i) != isa; i++) {
        const fl_cpu_isa *other = fl_cpu_isa_at(i);
        if (other->kernels != NULL && other->usable(cpu) &&
            memcmp((const char *)other->kernels + from, (const char *)isa->kernels + from, size) ==
                0)
            return other;
    }
    return NULL;
}

static void run_isa(const fl_cpu_isa *isa, bool perf, const char *only, const fl_cpu *cpu) {
    kernels = isa->kernels;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (*only && strcmp(only, ops[i].name) != 0)
            continue;
        if (!offers(i) || (perf && ops[i].perf == NULL)) {
            printf("skipped: %s %s (not offered)\n", isa->name, ops[i].name);
            continue;
        }
        const fl_cpu_isa *same = cpu ? tested_as(isa, cpu, ops[i].format) : NULL;
        if (same != NULL) {
            printf("same %s %s as %s\n", isa->name, ops[i].name, same->name);
            continue;
        }
        cases         = 0;
        state         = SEED;
        size_t before = failures;
        perf ? ops[i].perf() : ops[i].test();
        if (!perf) {
            printf("%s %s %s: %zu checks\n", failures == before ? "ok  " : "FAIL", isa->name,
                   ops[i].name, cases);
        }
    }
}

static void list(const fl_cpu *cpu) {
    for (size_t i = 0; fl_cpu_isa_at(i) != NULL; i++) {
        const fl_cpu_isa *isa = fl_cpu_isa_at(i);
        if (isa->kernels != NULL && isa->usable(cpu))
            printf("%s %s\n", isa->name, tested_as(isa, cpu, FL_CPU_FP32) ? "narrow" : "float32");
    }
}

int main(int argc, char **argv) {
    const char *only = "", *isa_name = "";
    bool        perf = argc > 1 && strcmp(argv[1], "perf") == 0;
    fl_cpu      cpu;
    fl_cpu_detect(&cpu);
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        list(&cpu);
        return 0;
    }
    if (argc < 2 || argc % 2 != 0 || (!perf && strcmp(argv[1], "test") != 0)) {
        fputs("usage: fl-kernels list|test|perf [-o OPERATION] [-i ISA]\n", stderr);
        return 2;
    }
    for (int i = 2; i + 1 < argc; i += 2)
        *(strcmp(argv[i], "-o") == 0 ? &only : &isa_name) = argv[i + 1];
    if (perf) {
        peak = fl_cpu_peak(1);
        printf("FMA peak %.1f GFLOP/s\n", peak * 1e-9);
    }
    for (size_t i = 0; fl_cpu_isa_at(i) != NULL; i++) {
        const fl_cpu_isa *isa = fl_cpu_isa_at(i);
        if (*isa_name && strcmp(isa_name, isa->name) != 0)
            continue;
        if (isa->kernels == NULL || !isa->usable(&cpu)) {
            printf("skipped: %s (%s %s)\n", isa->name,
                   isa->kernels ? "this machine lacks" : "not built for this target; it needs",
                   isa->needs);
            continue;
        }
        /* ref too: it must keep the padding and row rules like the others. Functions that sets share are
         * tested once, and all of them where one set is asked for. */
        run_isa(isa, perf, only, perf || *isa_name ? NULL : &cpu);
    }
    return failures == 0 ? 0 : 1;
}
