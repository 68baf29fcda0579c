/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_mlp.c - the MLP of a block: y = act(z Wup + b) Wdown + b + x, some tiles at a time.
 *
 * Role     cpu_layers.c calls it for rows of the block, cpu_experts.c for the rows of an expert.
 * Method   A tile is FL_CPU_MLP_TILE columns between the two products; its rows are all that exists of them. A thread
 *          alone makes one and multiplies it into y; a split group makes as many as its ranks have room for, since a
 *          barrier stands between the two products, and deals out panels.
 * Bytes    Tiles continue one chain of FMAs (kernels.h): groups and blocks of any size agree bit by bit.
 * Proof    tests/unit/test_engine*.c. */
#include "engines/cpu/layers.h"

/* Some tiles of an MLP, which exist at the same time. */
typedef struct tiles {
    const fl_cpu_mlp_work *work;
    size_t                 first, count;
} tiles;

static size_t width_of(const fl_engine *e, size_t tile) {
    return fl_cpu_min(FL_CPU_MLP_TILE, e->mlp16 - tile * FL_CPU_MLP_TILE);
}

/* Where a tile's panels begin: only the last tile may be short. */
static const uint8_t *panels_of(const fl_engine *e, const fl_cpu_mlp_work *work, size_t tile) {
    return work->panels + tile * fl_cpu_mlp_tile(e, work->layer, FL_CPU_MLP_TILE);
}

/* Who keeps a tile's rows, and from which row on: a rank has room for rows_max rows. */
static const fl_cpu_scratch *tile_owner(const fl_cpu_split *c, const tiles *t, size_t tile,
                                        size_t *row) {
    size_t fit = c->engine->rows_max / t->work->rows, place = tile - t->first;
    *row = place % fit * t->work->rows;
    return c->ranks == 1 ? &c->scratch : &c->engine->scratch[c->first + place / fit];
}

static fl_cpu_operand rows_of_tile(const fl_cpu_split *c, const tiles *t, size_t tile) {
    size_t                row;
    const fl_cpu_scratch *owner = tile_owner(c, t, tile, &row);
    fl_cpu_operand        all   = {
                 .narrow = owner->mlp_narrow, .floats = owner->mlp, .width = FL_CPU_MLP_TILE};
    return fl_cpu_rows_from(c->engine, &all, row);
}

/* Panels [panel, panel + run) of a tile: act(z Wup + b). */
static void up_plain(const fl_cpu_split *c, const fl_cpu_mlp_work *work, const uint8_t *b,
                     const float *bias, size_t run, float *strip) {
    const fl_engine *e = c->engine;
    fl_cpu_multiply(e, &work->z, &work->layer->up_form, 1.0f,
                    (fl_gemm){.b        = b,
                              .c        = strip,
                              .c_stride = FL_CPU_MLP_TILE,
                              .bias     = bias,
                              .rows     = work->rows,
                              .panels   = run,
                              .k        = e->hidden16});
    e->kernels->activation[e->desc.activation](strip, FL_CPU_MLP_TILE, work->rows,
                                               run * FL_CPU_LANES);
}

/* One panel of a tile, which are two of weights, of the gate and of up: act(z Wgate + b) (z Wup + b). */
static void up_gated(const fl_cpu_split *c, const fl_cpu_mlp_work *work, const uint8_t *b,
                     const float *bias, float *strip) {
    const fl_engine *e    = c->engine;
    fl_gating        gate = {.gate     = c->scratch.pair,
                             .up       = c->scratch.pair + FL_CPU_LANES,
                             .stride   = 2 * FL_CPU_LANES,
                             .y        = strip,
                             .y_stride = FL_CPU_MLP_TILE,
                             .rows     = work->rows,
                             .cols     = FL_CPU_LANES};
    fl_cpu_multiply(e, &work->z, &work->layer->up_form, 1.0f,
                    (fl_gemm){.b        = b,
                              .c        = c->scratch.pair,
                              .c_stride = 2 * FL_CPU_LANES,
                              .bias     = bias,
                              .rows     = work->rows,
                              .panels   = 2,
                              .k        = e->hidden16});
    e->kernels->gating[e->desc.activation](&gate);
}

/* The tiles' rows, this rank's panels; a strip as wide as the kernel's tile is activated while it is in L1. */
static void up(const fl_cpu_split *c, const tiles *t) {
    const fl_engine       *e    = c->engine;
    const fl_cpu_mlp_work *work = t->work;
    size_t                 per = FL_CPU_MLP_TILE / FL_CPU_LANES, last = t->first + t->count - 1;
    size_t                 panels = (t->count - 1) * per + width_of(e, last) / FL_CPU_LANES;
    size_t                 end    = fl_cpu_share(c, panels, c->rank + 1), run;
    for (size_t i = fl_cpu_share(c, panels, c->rank); i < end; i += run) {
        size_t         tile = t->first + i / per, panel = i % per, col = panel * FL_CPU_LANES, row;
        float         *strip   = tile_owner(c, t, tile, &row)->mlp + row * FL_CPU_MLP_TILE + col;
        size_t         column  = tile * FL_CPU_MLP_TILE + col; /* of the whole MLP */
        const uint8_t *weights = panels_of(e, work, tile) + fl_cpu_up(e, work->layer, col);
        if (e->gated) {
            run = 1;
            up_gated(c, work, weights, work->up_bias + 2 * column, strip);
        } else {
            run = fl_cpu_min(e->kernels->panels, fl_cpu_min(end - i, per - panel));
            up_plain(c, work, weights, work->up_bias + column, run, strip);
        }
    }
}

/* y (+)= m Wdown, this rank's columns; the last tile adds bias and residual. */
static void down(const fl_cpu_split *c, const tiles *t, size_t tile) {
    const fl_engine       *e      = c->engine;
    const fl_cpu_mlp_work *work   = t->work;
    const fl_cpu_form     *form   = &work->layer->down_form;
    size_t                 panels = e->hidden16 / FL_CPU_LANES, width = width_of(e, tile);
    size_t                 first = fl_cpu_share(c, panels, c->rank), col = first * FL_CPU_LANES;
    const uint8_t         *b    = panels_of(e, work, tile) + fl_cpu_up(e, work->layer, width);
    fl_cpu_operand         rows = rows_of_tile(c, t, tile);
    fl_gemm                g    = {.b               = b + first * fl_cpu_panel(e, form, width),
                                   .c               = c->scratch.y + col,
                                   .c_stride        = e->hidden16,
                                   .residual_stride = e->hidden16,
                                   .rows            = work->rows,
                                   .panels          = fl_cpu_share(c, panels, c->rank + 1) - first,
                                   .k               = width,
                                   .accumulate      = tile > 0};
    if (tile + 1 == e->mlp_tiles) {
        g.bias     = work->down_bias ? work->down_bias + col : NULL;
        g.residual = work->residual ? work->residual + col : NULL;
    }
    fl_cpu_multiply(e, &rows, form, 1.0f, g);
}

void fl_cpu_run_mlp(const fl_cpu_split *c, const fl_cpu_mlp_work *work) {
    const fl_engine *e   = c->engine;
    size_t           fit = c->ranks == 1 ? 1 : c->ranks * (e->rows_max / work->rows);
    for (size_t first = 0; first < e->mlp_tiles; first += fit) {
        tiles  t   = {work, first, fl_cpu_min(fit, e->mlp_tiles - first)};
        size_t end = first + t.count;
        up(c, &t);
        fl_cpu_wait(c);
        if (c->scratch.mlp_narrow.q) {
            for (size_t tile = first; tile < end; tile++) {
                fl_cpu_operand rows = rows_of_tile(c, &t, tile);
                fl_cpu_quantize_rows(c, &rows, work->rows, width_of(e, tile), NULL);
            }
            fl_cpu_wait(c);
        }
        for (size_t tile = first; tile < end; tile++)
            down(c, &t, tile);
        fl_cpu_wait(c); /* the next tiles take the room of these */
    }
}
