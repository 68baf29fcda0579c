/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_narrow.c - the narrow kernels of a table against ref: in int8 and int16 integers and floats
 * must agree to the bit, in bf16 as far as the instruction set promises.
 *
 * Shapes   1 to 26 rows (all tile heights), panels 1 to 3, k from one step to several hundred.
 * Limits   Weights at the very bound that a group or a column may have (kernels.h) meet the largest
 *          activations: whoever adds in too few bits is found out here.
 * Guard    Bytes behind every row range must stay as they are; each row alone gives the same bits. */
#include "kernels_narrow.h"

#include "base/mem.h"
#include "engines/cpu/kernels/narrow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 32 };

static uint64_t state = 1442695040888963407U;

static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 24) % below;
}

static float draw_float(void) {
    return (float)draw(20001) * 1e-4f - 1.0f;
}

static void *fresh(size_t bytes) {
    void *block = fl_alloc_aligned(bytes + GUARD * sizeof(float), 64);
    if (block == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    memset(block, 0x5a, bytes + GUARD * sizeof(float));
    return block;
}

static float *fresh_floats(size_t count, float size) {
    float *block = fresh(count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        block[i] = size * draw_float();
    return block;
}

/* ---- quantize -------------------------------------------------------------------------------- */

typedef struct quantized {
    uint8_t *q;
    float   *scale;
    int32_t *zero;
} quantized;

static size_t unit(fl_cpu_format format) {
    return format == FL_CPU_INT8 ? 1 : 2;
}

static const char *quantize_name(fl_cpu_format format) {
    return format == FL_CPU_INT8    ? "quantize_q8"
           : format == FL_CPU_INT16 ? "quantize_q16"
                                    : "round_bf16";
}

static const char *gemm_name(fl_cpu_format format) {
    return format == FL_CPU_INT8 ? "gemm_q8" : format == FL_CPU_INT16 ? "gemm_q16" : "gemm_bf16";
}

/* What quantize must do; ref's own table takes float32 rows in bf16 and has none. */
static void quantize_ref(fl_cpu_format format, const fl_quantize *z) {
    format == FL_CPU_BF16 ? fl_bf16_round_ref(z) : fl_cpu_kernels_ref.narrow[format].quantize(z);
}

static quantized quantized_new(size_t rows, size_t stride) {
    return (quantized){fresh(rows * stride), fresh(rows * sizeof(float)),
                       fresh(rows * sizeof(int32_t))};
}

static void quantized_free(quantized *z) {
    fl_free(z->q), fl_free(z->scale), fl_free(z->zero);
}

static bool quantized_same(const quantized *a, const quantized *b, size_t rows, size_t stride) {
    return memcmp(a->q, b->q, rows * stride + GUARD) == 0 &&
           memcmp(a->scale, b->scale, rows * sizeof(float) + GUARD) == 0 &&
           memcmp(a->zero, b->zero, rows * sizeof(int32_t) + GUARD) == 0;
}

static void quantize_case(const fl_cpu_kernels *kernels, fl_cpu_format format,
                          narrow_check_fn check, size_t rows, size_t n, float lift, bool gains) {
    size_t      stride = n + 16, q_stride = (n + 64) * unit(format);
    float      *x = fresh_floats(rows * stride, 3.0f), *gain = fresh_floats(n, 2.0f);
    const char *name = quantize_name(format);
    fl_quantize args = {.x        = x,
                        .x_stride = stride,
                        .gain     = gains ? gain : NULL,
                        .q_stride = q_stride,
                        .rows     = rows,
                        .n        = n};
    quantized   kept[3];
    quantized  *ours = &kept[0], *want = &kept[1], *alone = &kept[2];
    for (size_t i = 0; i < rows * stride; i++)
        x[i] += lift;
    for (size_t i = 0; i < 3; i++)
        kept[i] = quantized_new(rows, q_stride);
    args.q = ours->q, args.scale = ours->scale, args.zero = ours->zero;
    kernels->narrow[format].quantize(&args);
    args.q = want->q, args.scale = want->scale, args.zero = want->zero;
    quantize_ref(format, &args);
    args.rows = 1;
    for (size_t r = 0; r < rows; r++) {
        args.x = x + r * stride, args.q = alone->q + r * q_stride;
        args.scale = alone->scale + r, args.zero = alone->zero + r;
        kernels->narrow[format].quantize(&args);
    }
    check(quantized_same(ours, want, rows, q_stride), name, "bits or guard", rows, n, gains);
    check(quantized_same(ours, alone, rows, q_stride), name, "bits of rows alone", rows, n, gains);
    fl_free(x), fl_free(gain);
    for (size_t i = 0; i < 3; i++)
        quantized_free(&kept[i]);
}

/* One row of zeros with `value` at place `at`. */
static void quantize_edge(const fl_cpu_kernels *kernels, fl_cpu_format format,
                          narrow_check_fn check, float value, size_t at) {
    float       x[48] = {0.0f}, scale = 0.0f, want_scale = 0.0f;
    int32_t     zero = 77, want_zero = 77;
    uint8_t     q[96] = {0}, want[96] = {0};
    bool        finite = isfinite(value);
    const char *name   = quantize_name(format);
    fl_quantize args   = {.x        = x,
                          .x_stride = 48,
                          .q        = q,
                          .q_stride = 48 * unit(format),
                          .scale    = &scale,
                          .zero     = &zero,
                          .rows     = 1,
                          .n        = 48};
    x[at]              = value;
    kernels->narrow[format].quantize(&args);
    args.q = want, args.scale = &want_scale, args.zero = &want_zero;
    quantize_ref(format, &args);
    check(zero == want_zero, name, "zero of an edge value", at, 0, 0);
    check(format == FL_CPU_BF16 || isnan(scale) == !finite, name,
          "NaN scale of what is not finite, alone", at, 0, 0);
    bool same = scale == want_scale && memcmp(q, want, sizeof q) == 0;
    check(same || (!finite && format != FL_CPU_BF16), name, "edge value", at, 0, 0);
}

void narrow_test_quantize(const fl_cpu_kernels *kernels, fl_cpu_format format,
                          narrow_check_fn check) {
    static const float edges[] = {0.0f,  -0.0f, 1e-40f, 1e-31f,   1e-29f,    -1e-29f, 1.0f,
                                  -1.0f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN};
    for (size_t rows = 1; rows <= 9; rows++) {
        for (size_t n = 16; n <= 400; n += rows * 16) {
            quantize_case(kernels, format, check, rows, n, 0.0f,
                          format != FL_CPU_BF16 && n / 16 % 2);
            quantize_case(kernels, format, check, rows, n, n % 32 ? 40.0f : -40.0f, false);
        }
    }
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        for (size_t at = 0; at < 48; at += 5)
            quantize_edge(kernels, format, check, edges[i], at);
}

/* ---- gemm ------------------------------------------------------------------------------------ */

typedef struct gemm_case {
    fl_cpu_format format;
    size_t        rows, panels, k, stride, b_stride;
    uint8_t      *a, *b;
    float        *scale, *c, *bias, *residual;
    int32_t      *zero;
} gemm_case;

/* A weight that keeps the promise of its group whatever its neighbours are. */
static int8_t draw_weight(int group, bool extreme) {
    int limit = group == 4 ? 32 : group == 2 ? 64 : 127;
    int value = extreme ? limit : (int)draw((uint32_t)limit + 1);
    return (int8_t)(draw(2) ? value : -value);
}

/* Runs of one sign, so that whole groups stand at their bound: 4 x 32 or 2 x 64. */
static void fill_panel(uint8_t *panel, size_t k, int group, bool extreme) {
    for (size_t lane = 0; lane < FL_CPU_LANES; lane++) {
        int32_t sum   = 0;
        float   scale = draw_float();
        int8_t  run   = 0;
        for (size_t i = 0; i < k; i++) {
            run = extreme && i % 8 != 0 ? run : draw_weight(group, extreme);
            panel[(i / 4 * FL_CPU_LANES + lane) * 4 + i % 4] = (uint8_t)run;
            sum += run;
        }
        memcpy(panel + k * FL_CPU_LANES + lane * sizeof scale, &scale, sizeof scale);
        memcpy(panel + k * FL_CPU_LANES + (FL_CPU_LANES + lane) * sizeof sum, &sum, sizeof sum);
    }
}

/* Weights whose sizes sum to the bound, in runs of one sign; in column 0 all are positive, so that
 * with row 0 of equal activations the sum itself is as large as it can be. */
static void fill_panel16(uint8_t *panel, size_t k, bool extreme) {
    int most = FL_CPU_Q16_SUM / (int)k < INT16_MAX ? FL_CPU_Q16_SUM / (int)k : INT16_MAX;
    for (size_t lane = 0; lane < FL_CPU_LANES; lane++) {
        float scale = draw_float();
        for (size_t i = 0; i < k; i++) {
            int     size  = extreme ? most : (int)draw((uint32_t)most + 1);
            bool    minus = extreme ? lane > 0 && (i / 8 + lane) % 2 : draw(2);
            int16_t q     = (int16_t)(minus ? -size : size);
            memcpy(panel + ((i / 2 * FL_CPU_LANES + lane) * 2 + i % 2) * sizeof q, &q, sizeof q);
        }
        memcpy(panel + (k * 2 + lane / FL_CPU_LANES) * FL_CPU_LANES + lane * sizeof scale, &scale,
               sizeof scale);
    }
}

static void fill_rows(gemm_case *g, bool extreme) {
    size_t count = g->rows * (g->k + 64);
    for (size_t i = 0; i < count; i++) {
        if (g->format == FL_CPU_INT8) {
            g->a[i] = (uint8_t)(extreme ? 255 * (i / 64 % 3 != 0) : draw(256));
            continue;
        }
        int     most  = FL_CPU_Q16_MOST;
        bool    minus = i >= g->k + 64 && i / 16 % 3 == 0;
        int16_t q     = (int16_t)(extreme ? (minus ? -most : most) : (int)draw(8191) - most);
        memcpy(g->a + 2 * i, &q, sizeof q);
    }
    for (size_t r = 0; r < g->rows; r++)
        g->zero[r] = extreme ? (int32_t)(r % 2) * 255 : (int32_t)draw(256);
}

static gemm_case gemm_new(fl_cpu_format format, size_t rows, size_t panels, size_t k, int group,
                          bool extreme) {
    size_t    wide = panels * FL_CPU_LANES;
    gemm_case g    = {.format   = format,
                      .rows     = rows,
                      .panels   = panels,
                      .k        = k,
                      .stride   = wide + FL_CPU_LANES,
                      .b_stride = fl_cpu_narrow_panel(format, k),
                      .a        = fresh(rows * (k + 64) * unit(format)),
                      .b        = fresh(panels * fl_cpu_narrow_panel(format, k)),
                      .scale    = fresh_floats(rows, 0.1f),
                      .c        = fresh_floats(rows * (wide + FL_CPU_LANES), 9.0f),
                      .bias     = fresh_floats(wide, 5.0f),
                      .residual = fresh_floats(rows * wide, 5.0f),
                      .zero     = fresh(rows * sizeof(int32_t))};
    fill_rows(&g, extreme);
    for (size_t p = 0; p < panels; p++) {
        uint8_t *panel = g.b + p * g.b_stride;
        format == FL_CPU_INT8 ? fill_panel(panel, k, group, extreme)
                              : fill_panel16(panel, k, extreme);
    }
    return g;
}

static void gemm_free(gemm_case *g) {
    fl_free(g->a), fl_free(g->b), fl_free(g->scale), fl_free(g->c), fl_free(g->bias),
        fl_free(g->residual);
    fl_free(g->zero);
}

static fl_gemm gemm_args(const gemm_case *g, float *c, int mode, int group) {
    return (fl_gemm){.a               = g->a,
                     .a_stride        = (g->k + 64) * unit(g->format),
                     .a_scale         = g->scale,
                     .a_zero          = g->zero,
                     .b               = g->b,
                     .b_stride        = g->b_stride,
                     .c               = c,
                     .c_stride        = g->stride,
                     .bias            = mode & 2 ? g->bias : NULL,
                     .residual        = mode & 4 ? g->residual : NULL,
                     .residual_stride = g->panels * FL_CPU_LANES,
                     .rows            = g->rows,
                     .panels          = g->panels,
                     .k               = g->k,
                     .accumulate      = mode & 1,
                     .group           = group};
}

static void gemm_rows(const fl_cpu_kernels *kernels, const gemm_case *g, float *c, int mode,
                      int group) {
    for (size_t r = 0; r < g->rows; r++) {
        fl_gemm row = gemm_args(g, c + r * g->stride, mode, group);
        row.a       = g->a + r * row.a_stride;
        row.a_scale += r;
        row.a_zero += r;
        row.residual = row.residual ? row.residual + r * row.residual_stride : NULL;
        row.rows     = 1;
        kernels->narrow[g->format].gemm(&row);
    }
}

static void gemm_check(const fl_cpu_kernels *kernels, narrow_check_fn check, const gemm_case *g,
                       int group) {
    size_t bytes = g->rows * g->stride * sizeof(float) + GUARD;
    float *ours = fresh(bytes), *want = fresh(bytes), *alone = fresh(bytes);
    for (int mode = 0; mode < 8; mode++) {
        memcpy(ours, g->c, bytes), memcpy(want, g->c, bytes), memcpy(alone, g->c, bytes);
        fl_gemm args = gemm_args(g, ours, mode, group);
        kernels->narrow[g->format].gemm(&args);
        args.c = want;
        fl_cpu_kernels_ref.narrow[g->format].gemm(&args);
        gemm_rows(kernels, g, alone, mode, group);
        check(memcmp(ours, want, bytes) == 0, gemm_name(g->format), "bits of values or guard",
              g->rows, g->panels, g->k);
        check(memcmp(ours, alone, bytes) == 0, gemm_name(g->format), "bits of rows alone", g->rows,
              g->panels, g->k);
    }
    fl_free(ours), fl_free(want), fl_free(alone);
}

static void test_gemm_group(const fl_cpu_kernels *kernels, fl_cpu_format format,
                            narrow_check_fn check, int group) {
    static const size_t ks[] = {16, 32, 48, 112, 384};
    for (size_t rows = 0; rows <= 26; rows++) {
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
            gemm_case g =
                gemm_new(format, rows, 1 + (rows + i) % 3, ks[i], group, (rows + i) % 4 == 0);
            gemm_check(kernels, check, &g, group);
            gemm_free(&g);
        }
    }
}

static void test_gemm_integers(const fl_cpu_kernels *kernels, fl_cpu_format format,
                               narrow_check_fn check) {
    if (format != FL_CPU_INT8) {
        test_gemm_group(kernels, format, check, 0);
        return;
    }
    /* a table that adds in 16 bits is never given weights without a bound */
    int least = kernels->narrow[format].group > 1 ? 2 : 1;
    for (int group = 4; group >= least; group /= 2)
        test_gemm_group(kernels, format, check, group);
}

/* ---- gemm of bf16 ---------------------------------------------------------------------------- */

/* Rows are made both ways: floats that bfloat16 holds exactly, and those. A table that takes float32
 * rows must give ref's bits; one that multiplies bfloat16 adds in an order of its own. */
typedef struct bf16_case {
    size_t    rows, panels, k;
    float    *x, *c, *bias, *residual;
    uint16_t *half;
    uint8_t  *b;
} bf16_case;

/* Sums of up to 384 products below 1 with 2^-24 for each of 384 additions, and as much once more. */
static const float bf16_tolerance = 1e-4f;

static bf16_case bf16_new(size_t rows, size_t panels, size_t k) {
    size_t      wide = panels * FL_CPU_LANES, stride = k + 32;
    bf16_case   g = {.rows     = rows,
                     .panels   = panels,
                     .k        = k,
                     .x        = fresh_floats(rows * stride, 1.0f),
                     .c        = fresh_floats(rows * (wide + FL_CPU_LANES), 9.0f),
                     .bias     = fresh_floats(wide, 5.0f),
                     .residual = fresh_floats(rows * wide, 5.0f),
                     .half     = fresh(rows * stride * sizeof(uint16_t)),
                     .b        = fresh(panels * fl_cpu_narrow_panel(FL_CPU_BF16, k))};
    float      *w = fresh_floats(k * wide, 1.0f);
    fl_quantize z = {.x        = g.x,
                     .x_stride = stride,
                     .q        = g.half,
                     .q_stride = 2 * stride,
                     .rows     = rows,
                     .n        = stride};
    fl_bf16_round_ref(&z);
    for (size_t i = 0; i < rows * stride; i++) {
        uint32_t bits = (uint32_t)g.half[i] << 16;
        memcpy(&g.x[i], &bits, sizeof bits);
    }
    z = (fl_quantize){
        .x = w, .x_stride = k * wide, .q = g.b, .q_stride = 0, .rows = 1, .n = k * wide};
    fl_bf16_round_ref(&z); /* any bfloat16 in any order */
    fl_free(w);
    return g;
}

static void bf16_free(bf16_case *g) {
    fl_free(g->x), fl_free(g->c), fl_free(g->bias), fl_free(g->residual), fl_free(g->half),
        fl_free(g->b);
}

static fl_gemm bf16_args(const bf16_case *g, bool floats, float *c, int mode, size_t row,
                         size_t rows) {
    size_t wide = g->panels * FL_CPU_LANES, stride = g->k + 32;
    return (fl_gemm){.a = floats ? (const void *)(g->x + row * stride) : g->half + row * stride,
                     .a_stride        = stride * (floats ? sizeof(float) : sizeof(uint16_t)),
                     .b               = g->b,
                     .b_stride        = fl_cpu_narrow_panel(FL_CPU_BF16, g->k),
                     .c               = c + row * (wide + FL_CPU_LANES),
                     .c_stride        = wide + FL_CPU_LANES,
                     .bias            = mode & 2 ? g->bias : NULL,
                     .residual        = mode & 4 ? g->residual + row * wide : NULL,
                     .residual_stride = wide,
                     .rows            = rows,
                     .panels          = g->panels,
                     .k               = g->k,
                     .accumulate      = mode & 1};
}

static bool bf16_near(const float *ours, const float *want, size_t count) {
    bool near = true;
    for (size_t i = 0; i < count; i++)
        near = near && fabsf(ours[i] - want[i]) <= bf16_tolerance;
    return near;
}

static void bf16_check(const fl_cpu_narrow *narrow, narrow_check_fn check, const bf16_case *g) {
    size_t count = g->rows * (g->panels + 1) * FL_CPU_LANES, bytes = count * sizeof(float) + GUARD;
    float *ours = fresh(bytes), *want = fresh(bytes), *alone = fresh(bytes);
    bool   floats = narrow->quantize == NULL;
    for (int mode = 0; mode < 8; mode++) {
        memcpy(ours, g->c, bytes), memcpy(want, g->c, bytes), memcpy(alone, g->c, bytes);
        fl_gemm args = bf16_args(g, floats, ours, mode, 0, g->rows);
        narrow->gemm(&args);
        args = bf16_args(g, true, want, mode, 0, g->rows);
        fl_bf16_gemm_ref(&args);
        for (size_t r = 0; r < g->rows; r++) {
            args = bf16_args(g, floats, alone, mode, r, 1);
            narrow->gemm(&args);
        }
        bool same = memcmp(ours, want, bytes) == 0;
        check(same || (!floats && bf16_near(ours, want, count)), "gemm_bf16", "values", g->rows,
              g->panels, g->k);
        check(memcmp(ours, alone, bytes) == 0, "gemm_bf16", "bits of rows alone or guard", g->rows,
              g->panels, g->k);
    }
    fl_free(ours), fl_free(want), fl_free(alone);
}

static void test_gemm_bf16(const fl_cpu_narrow *narrow, narrow_check_fn check) {
    static const size_t ks[] = {16, 32, 48, 112, 384};
    for (size_t rows = 0; rows <= 26; rows++) {
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
            bf16_case g = bf16_new(rows, 1 + (rows + i) % 3, ks[i]);
            bf16_check(narrow, check, &g);
            bf16_free(&g);
        }
    }
}

void narrow_test_gemm(const fl_cpu_kernels *kernels, fl_cpu_format format, narrow_check_fn check) {
    if (format == FL_CPU_BF16) {
        test_gemm_bf16(&kernels->narrow[format], check);
        return;
    }
    test_gemm_integers(kernels, format, check);
}

/* ---- perf ------------------------------------------------------------------------------------ */

typedef struct timed {
    const fl_cpu_narrow *narrow;
    fl_gemm              gemm;
    fl_quantize          quantize;
} timed;

static void call_gemm(void *arg) {
    const timed *t = arg;
    t->narrow->gemm(&t->gemm);
}

static void call_quantize(void *arg) {
    const timed *t = arg;
    t->narrow->quantize(&t->quantize);
}

static void perf_gemm_bf16(const fl_cpu_kernels *kernels, narrow_time_fn best, double peak) {
    static const size_t rows[] = {1, 4, 7, 16, 48, 96, 128};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bf16_case g  = bf16_new(rows[i], 24, 384);
        timed     t  = {.narrow = &kernels->narrow[FL_CPU_BF16]};
        t.gemm       = bf16_args(&g, t.narrow->quantize == NULL, g.c, 2, 0, rows[i]);
        double flops = 2.0 * (double)rows[i] * 384.0 * 384.0 / best(call_gemm, &t);
        printf("%-6s gemm_bf16 %3zu x 384 x 384   %8.1f GFLOP/s", kernels->isa, rows[i],
               flops * 1e-9);
        printf(peak > 0.0 ? "  %5.2f of the FMA peak\n" : "\n", flops / peak);
        bf16_free(&g);
    }
}

static void perf_gemm_group(const fl_cpu_kernels *kernels, fl_cpu_format format,
                            narrow_time_fn best, double peak, int group) {
    static const size_t rows[] = {1, 4, 7, 16, 48, 96, 128};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gemm_case g = gemm_new(format, rows[i], 24, 384, group, false);
        timed     t = {.narrow = &kernels->narrow[format], .gemm = gemm_args(&g, g.c, 2, group)};
        double    flops = 2.0 * (double)rows[i] * 384.0 * 384.0 / best(call_gemm, &t);
        printf("%-6s %s, groups of %d, %3zu x 384 x 384   %8.1f Gop/s", kernels->isa,
               gemm_name(format), group, rows[i], flops * 1e-9);
        printf(peak > 0.0 ? "  %5.2f of the FMA peak\n" : "\n", flops / peak);
        gemm_free(&g);
    }
}

void narrow_perf_gemm(const fl_cpu_kernels *kernels, fl_cpu_format format, narrow_time_fn best,
                      double peak) {
    if (format == FL_CPU_BF16) {
        perf_gemm_bf16(kernels, best, peak);
        return;
    }
    for (int group = 4; group >= (format == FL_CPU_INT8 ? 2 : 4); group /= 2)
        perf_gemm_group(kernels, format, best, peak, group);
}

void narrow_perf_quantize(const fl_cpu_kernels *kernels, fl_cpu_format format,
                          narrow_time_fn best) {
    size_t    rows = 96, n = 384;
    float    *x = fresh_floats(rows * n, 1.0f);
    quantized z = quantized_new(rows, n * unit(format));
    timed     t = {.narrow   = &kernels->narrow[format],
                   .quantize = {.x        = x,
                                .x_stride = n,
                                .q        = z.q,
                                .q_stride = n * unit(format),
                                .scale    = z.scale,
                                .zero     = z.zero,
                                .rows     = rows,
                                .n        = n}};
    printf("%-6s %s of 384: %.1f ns a row\n", kernels->isa, quantize_name(format),
           best(call_quantize, &t) * 1e9 / (double)rows);
    fl_free(x);
    quantized_free(&z);
}
