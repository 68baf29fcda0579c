/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_latent.c - latent attention behind the layers (NV-Embed): each token asks the same learnt rows.
 *
 * Role     cpu_forward.c calls it between the layers and the pooling of a block.
 * Method   The latents never change, and so keys and values are folded into what makes queries and output
 *          when the model opens (pack_latent.c): LN(x) times a row for each head and latent is a score, and
 *          scores times as many rows are what is added. Heads of 4096 dimensions with 512 latents take a
 *          ninth of the multiplications so. Then a gated MLP, some of whose columns exist at a time.
 * Bytes    float32 in every precision. A row is alone; columns of the MLP are one chain of FMAs (kernels.h).
 * Memory   Only what cpu_engine.c reserved; z is free behind the layers.
 * Threads  A split group deals out rows. Proof tests/golden/test_folders.py, test_families.py. */
#include <string.h>

#include "base/elementary.h"
#include "engines/cpu/layers.h"

static void norm(const fl_engine *e, const fl_cpu_norm *of, const float *x, float *z, size_t rows) {
    fl_row_norm n = {.x        = x,
                     .x_stride = e->hidden16,
                     .y        = z,
                     .y_stride = e->hidden16,
                     .weight   = of->weight,
                     .bias     = of->bias,
                     .rows     = rows,
                     .n        = e->desc.hidden,
                     .eps      = FL_CPU_LATENT_EPS};
    e->kernels->layer_norm(&n);
}

/* Shares of the latents from what a head says to them; what stands behind them becomes 0. */
static void softmax(float *scores, size_t latents, size_t width) {
    float max = scores[0], sum = 0.0f;
    for (size_t i = 1; i < latents; i++)
        max = scores[i] > max ? scores[i] : max;
    for (size_t i = 0; i < latents; i++) {
        scores[i] = (float)fl_math_exp((double)(scores[i] - max));
        sum += scores[i];
    }
    for (size_t i = 0; i < latents; i++)
        scores[i] /= sum;
    memset(scores + latents, 0, (width - latents) * sizeof *scores);
}

/* y = x + what the heads find */
static void attend(const fl_cpu_split *c, const float *x, const float *z, size_t rows) {
    const fl_engine     *e      = c->engine;
    const fl_cpu_latent *latent = &e->latent;
    const size_t         size   = latent->width16 * e->hidden16; /* of a head's panels */
    memcpy(c->scratch.y, x, rows * e->hidden16 * sizeof *x);
    for (size_t head = 0; head < e->desc.latent_heads; head++) {
        fl_gemm ask  = {.a        = z,
                        .a_stride = e->hidden16 * sizeof *z,
                        .b        = latent->scores + head * size,
                        .b_stride = e->hidden16 * FL_CPU_LANES * sizeof *z,
                        .c        = c->scratch.latent,
                        .c_stride = latent->width16,
                        .rows     = rows,
                        .panels   = latent->width16 / FL_CPU_LANES,
                        .k        = e->hidden16};
        fl_gemm find = {.a          = c->scratch.latent,
                        .a_stride   = latent->width16 * sizeof *z,
                        .b          = latent->values + head * size,
                        .b_stride   = latent->width16 * FL_CPU_LANES * sizeof *z,
                        .c          = c->scratch.y,
                        .c_stride   = e->hidden16,
                        .rows       = rows,
                        .panels     = e->hidden16 / FL_CPU_LANES,
                        .k          = latent->width16,
                        .accumulate = true};
        e->kernels->gemm(&ask);
        for (size_t i = 0; i < rows; i++)
            softmax(c->scratch.latent + i * latent->width16, e->desc.latents, latent->width16);
        e->kernels->gemm(&find);
    }
}

/* Columns [first, first + count) of the MLP: gelu(gate(z)) up(z) */
static void up(const fl_cpu_split *c, const float *z, size_t first, size_t count, size_t rows) {
    const fl_engine *e    = c->engine;
    float           *pair = c->scratch.pair;
    for (size_t col = 0; col < count; col += FL_CPU_LANES) {
        fl_gemm   g    = {.a        = z,
                          .a_stride = e->hidden16 * sizeof *z,
                          .b        = e->latent.up + 2 * (first + col) * e->hidden16,
                          .b_stride = e->hidden16 * FL_CPU_LANES * sizeof *z,
                          .c        = pair,
                          .c_stride = 2 * FL_CPU_LANES,
                          .bias     = e->latent.up_bias + 2 * (first + col),
                          .rows     = rows,
                          .panels   = 2,
                          .k        = e->hidden16};
        fl_gating gate = {.gate     = pair,
                          .up       = pair + FL_CPU_LANES,
                          .stride   = 2 * FL_CPU_LANES,
                          .y        = c->scratch.mlp + col,
                          .y_stride = FL_CPU_MLP_TILE,
                          .rows     = rows,
                          .cols     = FL_CPU_LANES};
        e->kernels->gemm(&g);
        e->kernels->gating[FL_ACT_GELU_ERF](&gate);
    }
}

/* y = x + mlp(z), some columns between the two products at a time. */
static void mlp(const fl_cpu_split *c, const float *x, const float *z, size_t rows) {
    const fl_engine     *e      = c->engine;
    const fl_cpu_latent *latent = &e->latent;
    for (size_t first = 0, count; first < latent->mlp16; first += count) {
        count             = fl_cpu_min(FL_CPU_MLP_TILE, latent->mlp16 - first);
        const bool last   = first + count == latent->mlp16;
        fl_gemm    narrow = {.a               = c->scratch.mlp,
                             .a_stride        = FL_CPU_MLP_TILE * sizeof *z,
                             .b               = latent->down + first * FL_CPU_LANES,
                             .b_stride        = latent->mlp16 * FL_CPU_LANES * sizeof *z,
                             .c               = c->scratch.y,
                             .c_stride        = e->hidden16,
                             .bias            = last ? latent->down_bias : NULL,
                             .residual        = last ? x : NULL,
                             .residual_stride = e->hidden16,
                             .rows            = rows,
                             .panels          = e->hidden16 / FL_CPU_LANES,
                             .k               = count,
                             .accumulate      = first > 0};
        up(c, z, first, count, rows);
        e->kernels->gemm(&narrow);
    }
}

void fl_cpu_latents(const fl_cpu_split *c, size_t rows) {
    const fl_engine *e    = c->engine;
    const size_t     last = fl_cpu_share(c, rows, c->rank + 1);
    const size_t     step = fl_cpu_rows_step(e, rows);
    for (size_t row = fl_cpu_share(c, rows, c->rank), n; row < last; row += n) {
        n        = fl_cpu_min(step, last - row);
        float *x = c->scratch.x + row * e->hidden16, *z = c->scratch.z + row * e->hidden16;
        fl_cpu_norm_rows(e, &e->final_norm, x, x, n);
        norm(e, &e->latent.norm, x, z, n);
        attend(c, x, z, n);
        memcpy(x, c->scratch.y, n * e->hidden16 * sizeof *x);
        norm(e, &e->latent.mlp_norm, x, z, n);
        mlp(c, x, z, n);
        memcpy(x, c->scratch.y, n * e->hidden16 * sizeof *x);
    }
}
