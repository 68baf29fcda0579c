/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_few.c - fl-cuda-kernels: fl_few and fl_few_wide, a product with its norm and its residual.
 *
 * Method  The norm's rows are compared with the norm in double; the product, its activation, gate and
 *         residual with sums in double over the rows as the kernel rounded them, so that nothing but the
 *         order of the sums is between the two.
 * Bounds  Sums in float: a unit of float for every term, at its own size. */
#include <math.h>
#include <stdio.h>

#include "kernels.h"

typedef struct few {
    type     t;
    bool     wide, normed, rms, gated, bias_f32, residual;
    uint32_t k, width;
    int      activation;
    /* made */
    tensor x, w, norm_w, norm_b, bias, from;
} few;

static void make(few *f, const batch *b) {
    uint32_t n = f->gated ? 2 * f->width : f->width;
    f->x       = activations(f->t, b, f->k, 2.0);
    f->w       = numbers(f->t, (size_t)n * f->k, 0.2);
    f->norm_w  = numbers(F32, f->k, 2.0);
    f->norm_b  = numbers(F32, f->k, 0.5);
    f->bias    = numbers(f->bias_f32 ? F32 : f->t, n, 1.0);
    f->from    = activations(f->t, b, f->width, 3.0);
}

/* `normed` and the product; `in_place`: over the residual. */
static void run(const few *f, const batch *b, bool in_place, tensor *normed, tensor *out) {
    char name[64];
    snprintf(name, sizeof name, "fl_few_%s%s", f->wide ? "wide_" : "", type_name[f->t]);
    *normed       = poison(f->t, (size_t)b->rows * f->k);
    *out          = poison(f->t, (size_t)b->rows * f->width);
    out->device   = in_place ? f->from.device : out->device;
    fl_cuda_few p = {.meta       = b->meta_device,
                     .x          = f->x.device,
                     .norm_w     = f->normed ? floats(&f->norm_w) : NULL,
                     .norm_b     = f->normed ? floats(&f->norm_b) : NULL,
                     .normed     = f->normed ? normed->device : NULL,
                     .weights    = f->w.device,
                     .bias       = f->bias_f32 ? NULL : f->bias.device,
                     .bias_f32   = f->bias_f32 ? floats(&f->bias) : NULL,
                     .residual   = f->residual ? f->from.device : NULL,
                     .out        = out->device,
                     .k          = f->k,
                     .width      = f->width,
                     .gated      = f->gated,
                     .blocks     = fl_cuda_few_blocks(f->width, f->wide, f->gated),
                     .activation = f->activation,
                     .rms        = f->rms,
                     .eps        = 1e-5f};
    launch(name, p.blocks, 1, FL_CUDA_FEW_THREADS, &p, sizeof p);
    fetch(normed);
    fetch(out);
}

/* The row's product with one row of the weights; *size: the sum of the terms' sizes. */
static double product(const few *f, const double *row, uint32_t column, double *size) {
    double sum = f->bias.v[column];
    *size      = fabs(sum);
    for (uint32_t i = 0; i < f->k; i++) {
        double term = row[i] * f->w.v[(size_t)column * f->k + i];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void expect_row(const few *f, const double *row, const double *from, const tensor *out,
                       uint32_t at) {
    double unit = f->k * type_unit[F32];
    for (uint32_t j = 0; j < f->width; j++) {
        double size, up_size, sum = product(f, row, j, &size);
        double want = activation_of(f->activation, sum), allowed = 2.0 * unit * size + 1e-6;
        if (f->gated) {
            double up = product(f, row, f->width + j, &up_size);
            allowed   = allowed * fabs(up) + 2.0 * unit * up_size * fabs(want) + 1e-6;
            want *= up;
        }
        want += f->residual ? from[j] : 0.0;
        expect_near(out->v[(size_t)at * f->width + j], want,
                    allowed + 1.01 * type_unit[f->t] * fabs(want), "out", at, j);
    }
}

static void few_case(few f, uint32_t tokens, bool in_place) {
    begin("fl_few%s_%s %u rows, %u to %u%s%s%s%s, activation %d", f.wide ? "_wide" : "",
          type_name[f.t], tokens, f.k, f.width, f.normed ? ", norm" : "", f.rms ? ", RMS" : "",
          f.gated ? ", gate" : "", f.residual ? ", residual" : "", f.activation);
    uint32_t lengths[2] = {tokens / 3, tokens - tokens / 3};
    bool     two        = lengths[0] > 0;
    batch    b = batch_of(lengths + !two, 1 + two, FL_CUDA_SMALL - tokens), back = reversed(&b);
    tensor   normed, out, other_normed, other;
    make(&f, &b);
    few g  = f;
    g.x    = reversed_rows(&f.x, &b, &back, f.k);
    g.from = reversed_rows(&f.from, &b, &back, f.width);
    run(&f, &b, in_place, &normed, &out);
    for (uint32_t row = 0; row < tokens; row++) {
        const double *x = f.x.v + (size_t)row * f.k;
        if (f.normed) {
            expect_norm(x, &f.norm_w, &f.norm_b, 1e-5, f.k, f.rms, &normed, row);
            x = normed.v + (size_t)row * f.k;
        }
        expect_row(&f, x, f.from.v + (size_t)row * f.width, &out, row);
    }
    expect_untouched(&out, &b, f.width);
    run(&g, &back, in_place, &other_normed, &other);
    expect_same_rows(&out, &b, &other, &back, f.width, "out");
    release_all();
}

void test_few(void) {
    for (type t = F16; t < types_tested; t++) {
        if (t == BF16 && !device_bf16()) {
            printf("few bf16: skipped, the device's tensor core does not know it\n");
            continue;
        }
        const few qkv = {.t = t, .normed = true, .k = 64, .width = 96, .activation = -1};
        few_case(qkv, 1, false);
        few_case(qkv, 16, false);
        few rms = qkv, wide = qkv, up = qkv, gate = qkv, out = qkv;
        rms.rms = true;
        few_case(rms, 17, false);
        wide.wide = true, wide.k = 416; /* more than the warps take at once */
        few_case(wide, 33, false);
        for (up.activation = 0; up.activation < 4; up.activation++) {
            up.bias_f32 = up.activation == 2;
            up.wide     = up.activation % 2;
            few_case(up, 5, false);
        }
        gate.wide = gate.gated = gate.bias_f32 = true;
        gate.width = 40, gate.activation = 2; /* not of 16 */
        few_case(gate, 31, false);
        few_case(gate, 64, false);
        out.normed = false, out.residual = true, out.k = 288, out.width = 72;
        few_case(out, 64, true);
        few_case(out, 48, false);
        few_case(out, 2, true);
    }
}
