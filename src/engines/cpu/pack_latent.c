/* SPDX-License-Identifier: Apache-2.0 */
/* pack_latent.c - the latents' panels: what never changes is multiplied when the model opens.
 *
 * Role     pack.c calls it once; cpu_latent.c reads the panels.
 * Method   Of a head, with the normed latents L: scores of LN(x) are LN(x) (L Kᵀ Q)ᵀ / √dims, and what is added
 *          for them L Vᵀ Oᵀ. Both products are the kernels' own, so that their bytes are the same everywhere.
 * Memory   One head's matrix at a time, in float32.
 * Proof    tests/golden/test_families.py. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engines/cpu/pack.h"

bool fl_cpu_folding_open(const fl_engine *e, fl_cpu_folding *f) {
    const size_t wide = e->latent.width16 * e->hidden16;
    f->dims16         = fl_cpu_pad(e->desc.latent_dims);
    f->floats         = 2 * wide + (e->latent.width16 + e->hidden16) * f->dims16 + 2 * e->hidden16;
    f->rows           = fl_big_alloc(f->floats * sizeof *f->rows);
    if (f->rows == NULL)
        return false;
    f->outer  = f->rows + wide;
    f->inner  = f->outer + wide;
    f->panels = f->inner + e->latent.width16 * f->dims16;
    f->norm   = f->panels + e->hidden16 * f->dims16;
    return true;
}

void fl_cpu_folding_close(fl_cpu_folding *f) {
    fl_big_free(f->rows, f->floats * sizeof *f->rows);
}

static void norm_latents(const fl_engine *e, const fl_tensor *global, fl_cpu_folding *f) {
    fl_cpu_norm norm = {f->norm, f->norm + e->hidden16};
    fl_row_norm of   = {.x        = f->rows,
                        .x_stride = e->hidden16,
                        .y        = f->rows,
                        .y_stride = e->hidden16,
                        .weight   = norm.weight,
                        .bias     = norm.bias,
                        .rows     = e->desc.latents,
                        .n        = e->desc.hidden,
                        .eps      = FL_CPU_LATENT_EPS};
    for (size_t i = 0; i < e->desc.latents; i++) {
        fl_tensor_to_f32(&global[FL_SLOT_LATENTS], i * e->desc.hidden, e->desc.hidden,
                         f->rows + i * e->hidden16);
    }
    fl_cpu_pack_norm(&global[FL_SLOT_LATENT_NORM_W], &global[FL_SLOT_LATENT_NORM_B], false,
                     e->desc.hidden, 1.0f, &norm);
    e->kernels->layer_norm(&of);
}

/* to[width16, panels 16] = from[width16, k] times panels. */
static void fold(const fl_engine *e, const float *from, size_t k, const float *panels, size_t count,
                 float *to) {
    fl_gemm g = {.a        = from,
                 .a_stride = k * sizeof *from,
                 .b        = panels,
                 .b_stride = k * FL_CPU_LANES * sizeof *panels,
                 .c        = to,
                 .c_stride = count * FL_CPU_LANES,
                 .rows     = e->latent.width16,
                 .panels   = count,
                 .k        = k};
    e->kernels->gemm(&g);
}

/* Rows of a head's keys or values: its rows of w. */
static void fold_inner(const fl_engine *e, const fl_tensor *w, size_t head, float scale,
                       fl_cpu_folding *f) {
    const size_t  dims = e->desc.latent_dims;
    fl_cpu_source s    = {.w     = w,
                          .in    = e->desc.hidden,
                          .row   = head * dims,
                          .rows  = dims,
                          .cols  = e->desc.hidden,
                          .scale = scale};
    fl_cpu_pack_floats(&s, f->dims16 / FL_CPU_LANES, e->hidden16, f->panels);
    fold(e, f->rows, e->hidden16, f->panels, f->dims16 / FL_CPU_LANES, f->inner);
}

static void fold_head(const fl_engine *e, const fl_tensor *global, size_t head, fl_cpu_folding *f) {
    const size_t  dims = e->desc.latent_dims, width = e->latent.width16;
    const size_t  panels = e->hidden16 / FL_CPU_LANES;
    float        *scores = fl_cpu_mutable(e->latent.scores) + head * width * e->hidden16;
    float        *values = fl_cpu_mutable(e->latent.values) + head * width * e->hidden16;
    fl_cpu_source query  = {.w      = &global[FL_SLOT_LATENT_Q_W],
                            .in     = e->desc.hidden,
                            .rows   = e->desc.hidden,
                            .col    = head * dims,
                            .cols   = dims,
                            .scale  = 1.0f,
                            .turned = true};
    fl_cpu_source output = {.w     = &global[FL_SLOT_LATENT_O_W],
                            .in    = (size_t)fl_latent_width(&e->desc),
                            .rows  = e->desc.hidden,
                            .col   = head * dims,
                            .cols  = dims,
                            .scale = 1.0f};
    fold_inner(e, &global[FL_SLOT_LATENT_K_W], head, 1.0f / sqrtf((float)dims), f);
    fl_cpu_pack_floats(&query, panels, f->dims16, f->panels);
    fold(e, f->inner, f->dims16, f->panels, panels, f->outer);
    for (size_t i = 0; i < width; i++) { /* a latent is a column of a panel */
        for (size_t k = 0; k < e->hidden16; k++) {
            scores[(i / FL_CPU_LANES * e->hidden16 + k) * FL_CPU_LANES + i % FL_CPU_LANES] =
                f->outer[i * e->hidden16 + k];
        }
    }
    fold_inner(e, &global[FL_SLOT_LATENT_V_W], head, 1.0f, f);
    fl_cpu_pack_floats(&output, panels, f->dims16, f->panels);
    fold(e, f->inner, f->dims16, f->panels, panels, f->outer);
    for (size_t i = 0; i < width; i++) { /* a latent is a step of k */
        for (size_t p = 0; p < panels; p++) {
            memcpy(values + (p * width + i) * FL_CPU_LANES,
                   f->outer + i * e->hidden16 + p * FL_CPU_LANES, FL_CPU_LANES * sizeof *values);
        }
    }
}

static void pack_latent_mlp(const fl_engine *e, const fl_tensor *global) {
    const fl_cpu_latent *l    = &e->latent;
    const size_t         mlp  = (size_t)fl_latent_mlp(&e->desc);
    const int            w[]  = {FL_SLOT_LATENT_GATE_W, FL_SLOT_LATENT_UP_W};
    fl_cpu_source        down = {.w     = &global[FL_SLOT_LATENT_DOWN_W],
                                 .in    = mlp,
                                 .rows  = e->desc.hidden,
                                 .cols  = mlp,
                                 .scale = 1.0f};
    for (size_t col = 0; col < l->mlp16; col += FL_CPU_LANES) {
        for (size_t i = 0; i < 2; i++) {
            const size_t  rows = mlp - col < FL_CPU_LANES ? mlp - col : FL_CPU_LANES;
            fl_cpu_source s    = {.w     = &global[w[i]],
                                  .in    = e->desc.hidden,
                                  .row   = col,
                                  .rows  = rows,
                                  .cols  = e->desc.hidden,
                                  .scale = 1.0f};
            fl_cpu_pack_floats(&s, 1, e->hidden16,
                               fl_cpu_mutable(l->up) + (2 * col + i * FL_CPU_LANES) * e->hidden16);
            fl_cpu_pack_vector(&global[w[i] + 1], col, rows, 1.0f,
                               fl_cpu_mutable(l->up_bias) + 2 * col + i * FL_CPU_LANES);
        }
    }
    fl_cpu_pack_floats(&down, e->hidden16 / FL_CPU_LANES, l->mlp16, fl_cpu_mutable(l->down));
    fl_cpu_pack_vector(&global[FL_SLOT_LATENT_DOWN_B], 0, e->desc.hidden, 1.0f,
                       fl_cpu_mutable(l->down_bias));
}

void fl_cpu_pack_latents(const fl_engine *e, const fl_tensor *global, fl_cpu_folding *f) {
    norm_latents(e, global, f);
    for (size_t head = 0; head < e->desc.latent_heads; head++)
        fold_head(e, global, head, f);
    pack_latent_mlp(e, global);
    fl_cpu_pack_norm(&global[FL_SLOT_LATENT_Q_NORM_W], &global[FL_SLOT_LATENT_Q_NORM_B], false,
                     e->desc.hidden, 1.0f, &e->latent.norm);
    fl_cpu_pack_norm(&global[FL_SLOT_LATENT_MLP_NORM_W], &global[FL_SLOT_LATENT_MLP_NORM_B], false,
                     e->desc.hidden, 1.0f, &e->latent.mlp_norm);
}
