/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_rows.c - rows as products read them: float32, or made narrow in front of the product.
 *
 * Role     The files of a layer (layers.h) multiply through here, whatever the precision.
 * Method   In front of every product its rows become narrow, each with a scale (int8: and a zero) of
 *          its own: x once after every norm, the attention's output, and each tile of the MLP by
 *          itself, so that one large value spoils 384 neighbours and not thousands. int8 only:
 *          channels of x that are large in every text were tamed when opening (cpu_calibrate.c): x is
 *          multiplied by a gain per channel, the weights hold the inverse. Sums, norms, attention and
 *          what is added to x stay float32. Where products take float32 rows (fp32, and bf16 on most
 *          machines), nothing is made narrow on the way.
 * Bytes    A row's scale depends on that row alone.
 * Proof    tests/unit/test_engine*.c, tests/golden/test_precision.py. */
#include "engines/cpu/layers.h"

/* Bytes of a row of `width` numbers as products take it. */
static size_t bytes_of(const fl_engine *e, size_t width) {
    return width * fl_cpu_unit(e);
}

void fl_cpu_multiply(const fl_engine *e, const fl_cpu_operand *a, const fl_cpu_form *form,
                     float factor, fl_gemm g) {
    g.a        = a->narrow.q ? (const void *)a->narrow.q : a->floats;
    g.a_stride = bytes_of(e, a->width);
    g.a_scale  = a->narrow.scale;
    g.a_zero   = a->narrow.zero;
    g.b_stride = fl_cpu_panel(e, form, g.k);
    g.group    = e->narrow.group;
    if (form->groups.bits > 0)
        fl_cpu_multiply_groups(e->kernels, &form->groups, factor, &g);
    else
        (e->format == FL_CPU_FP32 ? e->kernels->gemm : e->narrow.gemm)(&g);
}

fl_cpu_operand fl_cpu_rows_from(const fl_engine *e, const fl_cpu_operand *a, size_t row) {
    const fl_cpu_rows *n      = &a->narrow;
    fl_cpu_rows        narrow = {.q     = n->q ? n->q + row * bytes_of(e, a->width) : NULL,
                                 .scale = n->scale ? n->scale + row : NULL,
                                 .zero  = n->zero ? n->zero + row : NULL};
    return (fl_cpu_operand){
        .narrow = narrow, .floats = a->floats + row * a->width, .width = a->width};
}

fl_cpu_operand fl_cpu_z_from(const fl_cpu_split *c, size_t row) {
    const fl_engine *e = c->engine;
    fl_cpu_operand   z = {.narrow = c->scratch.x_narrow,
                          .floats = e->pre_norm ? c->scratch.z : c->scratch.x,
                          .width  = e->hidden16};
    return fl_cpu_rows_from(e, &z, row);
}

const float *fl_cpu_residual(const fl_cpu_split *c, size_t row) {
    bool norm_first = c->engine->desc.extra_norm == FL_EXTRA_NORM_BRANCH;
    return norm_first ? NULL : c->scratch.x + row * c->engine->hidden16;
}

void fl_cpu_quantize_rows(const fl_cpu_split *c, const fl_cpu_operand *at, size_t rows, size_t n,
                          const float *gain) {
    size_t         first = fl_cpu_share(c, rows, c->rank);
    fl_cpu_operand own   = fl_cpu_rows_from(c->engine, at, first);
    if (own.narrow.q == NULL)
        return;
    fl_quantize z = {.x        = own.floats,
                     .x_stride = own.width,
                     .gain     = gain,
                     .q        = own.narrow.q,
                     .q_stride = bytes_of(c->engine, own.width),
                     .scale    = own.narrow.scale,
                     .zero     = own.narrow.zero,
                     .rows     = fl_cpu_share(c, rows, c->rank + 1) - first,
                     .n        = n};
    c->engine->narrow.quantize(&z);
}

/* Squares of z for cpu_calibrate.c; place 0 is in front of a layer's attention, 1 of its MLP. */
static void watch(const fl_engine *e, const float *x, size_t rows, size_t layer, size_t place) {
    double *sums = e->watch + (layer * 2 + place) * e->hidden16;
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < e->desc.hidden; i++) {
            double value = (double)x[r * e->hidden16 + i];
            sums[i] += value * value;
        }
    }
}

void fl_cpu_quantize_for_attention(const fl_cpu_split *c, size_t row, size_t rows, size_t layer) {
    const fl_engine *e = c->engine;
    fl_cpu_operand   z = fl_cpu_z_from(c, row);
    if (e->watch)
        watch(e, z.floats, rows, layer, 0);
    fl_cpu_quantize_rows(c, &z, rows, e->hidden16, e->layers[layer].qkv_gain);
}

void fl_cpu_quantize_for_mlp(const fl_cpu_split *c, size_t row, size_t rows, size_t layer) {
    const fl_engine *e = c->engine;
    fl_cpu_operand   z = fl_cpu_z_from(c, row);
    if (e->watch)
        watch(e, z.floats, rows, layer, 1);
    fl_cpu_quantize_rows(c, &z, rows, e->hidden16, e->layers[layer].up_gain);
}
