/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_bits.c - the float32 kernels of a table give ref's bits: one written order of every sum, one formula of every
 * function, whatever the width of the vectors. So vectors are the same bytes on every machine.
 *
 * Shapes  All tails: widths that are no multiple of a vector, keys at the edges of panels and blocks, windows, causal,
 *         biases and caps. Values spread over several sizes, so that another order shows in the last bit.
 * Judge   Values and rows alone of the convolution, too; of the others in fl_kernels.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "judge.h"

static uint64_t state;

static float draw(void) {
    state      = state * 6364136223846793005U + 1442695040888963407U;
    float part = (float)(int32_t)(state >> 32) * 0x1p-31f; /* all 24 bits of it */
    return state >> 20 & 1 ? part : 8.0f * part;
}

static float *drawn(size_t count) {
    float *block = fl_alloc_aligned((count + FL_CPU_LANES) * sizeof(float), 64);
    if (block == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    for (size_t i = 0; i < count + FL_CPU_LANES; i++)
        block[i] = draw();
    return block;
}

/* What a case computes into `out`, with the table that it is given. */
typedef struct bits_case {
    const char   *op;
    const float  *in, *other; /* drawn */
    float        *out;
    size_t        size; /* floats of each */
    size_t        a, b, c;
    fl_activation act;
} bits_case;

typedef void (*bits_run)(const fl_cpu_kernels *kernels, const bits_case *z);

static void compare(const fl_cpu_kernels *kernels, narrow_check_fn check, bits_run run,
                    bits_case z) {
    float *in = drawn(z.size), *other = drawn(z.size), *ours = drawn(z.size), *want = drawn(z.size);
    memcpy(want, ours, z.size * sizeof *want);
    z.in = in, z.other = other, z.out = ours;
    run(kernels, &z);
    z.out = want;
    run(&fl_cpu_kernels_ref, &z);
    check(memcmp(ours, want, z.size * sizeof *want) == 0, z.op, "ref's bits", z.a, z.b, z.c);
    fl_free(in), fl_free(other), fl_free(ours), fl_free(want);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* a rows of b; the padding is zero. */
static fl_row_norm norm_of(const bits_case *z) {
    size_t stride = fl_cpu_pad(z->b);
    float *x      = (float *)(uintptr_t)z->in;
    for (size_t i = 0; i < z->a * stride; i++)
        x[i] = i % stride < z->b ? x[i] : 0.0f;
    return (fl_row_norm){.x        = x,
                         .x_stride = stride,
                         .y        = z->out,
                         .y_stride = stride,
                         .weight   = z->other,
                         .bias     = z->other + stride,
                         .rows     = z->a,
                         .n        = z->b,
                         .eps      = 1e-6f};
}
static void run_layer_norm(const fl_cpu_kernels *kernels, const bits_case *z) {
    fl_row_norm norm = norm_of(z);
    kernels->layer_norm(&norm);
}
static void run_rms_norm(const fl_cpu_kernels *kernels, const bits_case *z) {
    fl_row_norm norm = norm_of(z);
    kernels->rms_norm(&norm);
}

static void run_rotate(const fl_cpu_kernels *kernels, const bits_case *z) {
    size_t stride = fl_cpu_pad(z->b);
    memcpy(z->out, z->in, z->a * stride * sizeof(float));
    kernels->rotate(&(fl_rotation){.x      = z->out,
                                   .stride = stride,
                                   .cosine = z->other,
                                   .sine   = z->other + z->a * z->b / 2,
                                   .rows   = z->a,
                                   .dims   = z->b});
}

/* a tokens of b channels, c taps. */
static fl_convolution convolution_of(const bits_case *z) {
    return (fl_convolution){.x          = z->in,
                            .gate       = z->other,
                            .stride     = z->b,
                            .out        = z->out,
                            .out_stride = z->b,
                            .weights    = z->other + z->a * z->b,
                            .bias       = z->in + z->a * z->b,
                            .n          = z->a,
                            .rows       = z->a,
                            .taps       = z->c,
                            .before     = z->a % 2 ? z->c - 1 : z->c / 2,
                            .cols       = z->b};
}
static void run_convolve(const fl_cpu_kernels *kernels, const bits_case *z) {
    fl_convolution at = convolution_of(z);
    kernels->convolve(&at);
}

/* Values of up to 8, eight of them a sum: the judge's, and those of each row alone. */
static void judge_convolve(const fl_cpu_kernels *kernels, narrow_check_fn check, bits_case z) {
    float *in = drawn(z.size), *other = drawn(z.size), *ours = drawn(z.size), *want = drawn(z.size);
    double off = 0.0;
    z.in = in, z.other = other, z.out = want;
    run_convolve(&judge, &z);
    z.out = ours;
    run_convolve(kernels, &z);
    for (size_t i = 0; i < z.a * z.b; i++) {
        double error = fabs((double)(ours[i] - want[i]));
        off = error > off ? error : off; /* fmax: gcc 12 for aarch64 cannot compile it here */
    }
    check(off <= 1e-3, z.op, "value", z.a, z.b, z.c); /* of products of up to 4,096 */
    fl_convolution at = convolution_of(&z);
    for (at.rows = 1, at.out = want; at.first < z.a; at.first++, at.gate += z.b, at.out += z.b)
        kernels->convolve(&at);
    check(memcmp(ours, want, z.a * z.b * sizeof *want) == 0, z.op, "bits of rows alone", z.a, z.b,
          z.c);
    fl_free(in), fl_free(other), fl_free(ours), fl_free(want);
}

static void run_activation(const fl_cpu_kernels *kernels, const bits_case *z) {
    memcpy(z->out, z->in, z->size * sizeof(float));
    kernels->activation[z->act](z->out, z->b, z->a, z->b);
}
static void run_gating(const fl_cpu_kernels *kernels, const bits_case *z) {
    kernels->gating[z->act](&(fl_gating){z->in, z->other, z->b, z->out, z->b, z->a, z->b});
}

/* ---- Attention ------------------------------------------------------------------------------- */

enum { HEADS = 2 };

/* a tokens, heads of b dimensions; c: how far a token sees to both sides, 0 everything, 1 what is before it. */
static void run_attention(const fl_cpu_kernels *kernels, const bits_case *z) {
    size_t       n = z->a, d = z->b;
    float       *scratch = drawn(fl_cpu_attention_scratch(HEADS, n, n, d));
    fl_attention at      = {.q          = z->in,
                            .q_stride   = HEADS * d,
                            .q_head     = d,
                            .k          = z->other,
                            .v          = z->other + n * d,
                            .kv_stride  = d,
                            .out        = z->out,
                            .out_stride = HEADS * d,
                            .out_head   = d,
                            .bias       = n % 3 == 1 ? z->in + n - 1 : NULL,
                            .bias_row   = -1,
                            .bias_head  = 3,
                            .cap        = n % 4 == 1 ? 2.0f : 0.0f,
                            .scratch    = scratch,
                            .heads      = HEADS,
                            .n          = n,
                            .d          = d,
                            .rows       = n,
                            .before     = z->c > 1 ? z->c : FL_CPU_ALL,
                            .after      = z->c > 1    ? z->c
                                          : z->c == 1 ? 0
                                                      : FL_CPU_ALL};
    kernels->attention(&at);
    fl_free(scratch);
}

static void attention_cases(const fl_cpu_kernels *kernels, narrow_check_fn check) {
    static const size_t lengths[] = {1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 100, 257, 511, 530};
    static const size_t sights[]  = {0, 1, 8, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i], d = i % 2 ? 32 : 64;
        for (size_t k = 0; k < sizeof sights / sizeof *sights; k++) {
            compare(kernels, check, run_attention,
                    (bits_case){"attention", .size = HEADS * n * d + 2 * n + FL_CPU_LANES, .a = n,
                                .b = d, .c = sights[k]});
        }
    }
}

void bits_test(const fl_cpu_kernels *kernels, narrow_check_fn check) {
    static const size_t widths[] = {1,  2,  8,  15, 16, 17,  30,  32,  40,
                                    48, 63, 64, 80, 96, 100, 384, 400, 768};
    state                        = 1;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        size_t rows = 1 + i % 6, size = (rows + 2) * fl_cpu_pad(widths[i]);
        compare(kernels, check, run_layer_norm,
                (bits_case){"layer_norm", .size = size, .a = rows, .b = widths[i]});
        compare(kernels, check, run_rms_norm,
                (bits_case){"rms_norm", .size = size, .a = rows, .b = widths[i]});
        compare(kernels, check, run_rotate,
                (bits_case){"rotate", .size = size, .a = rows, .b = widths[i] / 2 * 2});
    }
    for (size_t taps = 1; taps <= 7; taps++) {
        size_t    rows = 1 + taps % 4 * 3;
        bits_case z    = {"convolve", .size = (rows + 8) * 48, .a = rows, .b = 48, .c = taps};
        compare(kernels, check, run_convolve, z);
        judge_convolve(kernels, check, z);
    }
    for (int act = 0; act < FL_ACTIVATIONS; act++) {
        for (size_t rows = 1; rows <= 5; rows++) {
            bits_case z = {"activation", .size = rows * 48, .a = rows, .b = 48,
                           .act = (fl_activation)act};
            compare(kernels, check, run_activation, z);
            z.op = "gating";
            compare(kernels, check, run_gating, z);
        }
    }
    attention_cases(kernels, check);
}
