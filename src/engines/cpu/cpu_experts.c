/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_experts.c - a layer of experts: each row goes through some of many MLPs.
 *
 * Role     cpu_layers.c calls it instead of fl_cpu_run_mlp.
 * Method   Every row's gate weights are a softmax over the experts; the largest are chosen. Then expert after expert,
 *          the rows that chose it are gathered, some at a time, go through its MLP, and gate weight times result is
 *          added to their sums. A split group deals out rows, since each reads but a few of the experts' weights.
 * Bytes    float32 alone: where numbers are rounded, a token may go to other experts, and its vector is another one.
 *          A row adds up its experts by their number, whichever rows go with it.
 * Proof    tests/unit/test_engine*.c, tests/golden/test_families.py. */
#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "engines/cpu/layers.h"

/* Gate weights of a row from its logits: softmax over the experts. */
static void softmax(float *gates, size_t experts) {
    float max = gates[0], sum = 0.0f;
    for (size_t i = 1; i < experts; i++)
        max = gates[i] > max ? gates[i] : max;
    for (size_t i = 0; i < experts; i++) {
        gates[i] = (float)fl_math_exp((double)(gates[i] - max));
        sum += gates[i];
    }
    for (size_t i = 0; i < experts; i++)
        gates[i] = fabsf(gates[i] / sum);
}

/* The sign is set of the `used` largest. Of equal ones the first counts; what is not a number is chosen like a
 * number. */
static void mark_largest(float *gates, size_t experts, size_t used) {
    for (size_t k = 0; k < used; k++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < experts; i++)
            if (!signbit(gates[i]) && (best == SIZE_MAX || gates[i] > gates[best]))
                best = i;
        gates[best] = -gates[best];
    }
}

/* gates[rows, experts16] of z's rows, those negative that a row goes to. */
static void choose_experts(const fl_engine *e, const fl_cpu_layer *layer, const float *z,
                           size_t rows, float *gates) {
    fl_gemm g = {.a        = z,
                 .a_stride = e->hidden16 * sizeof *z,
                 .b        = layer->router,
                 .b_stride = e->hidden16 * FL_CPU_LANES * sizeof *layer->router,
                 .c        = gates,
                 .c_stride = e->experts16,
                 .rows     = rows,
                 .panels   = fl_cpu_pad(layer->experts) / FL_CPU_LANES,
                 .k        = e->hidden16};
    e->kernels->gemm(&g);
    for (size_t row = 0; row < rows; row++, gates += e->experts16) {
        softmax(gates, layer->experts);
        mark_largest(gates, layer->experts, layer->experts_used);
    }
}

/* y += gate weight * mlp(z) of the rows that chose an expert, some at a time. */
static void run_expert(const fl_cpu_split *c, const fl_cpu_layer *layer, size_t number,
                       const float *z, size_t rows, float *y) {
    const fl_engine          *e    = c->engine;
    const fl_cpu_expert_rows *own  = &c->scratch.expert;
    const float              *gate = own->gates + number; /* of row 0; the next is experts16 on */
    fl_cpu_mlp_work           work = {.layer   = layer,
                                      .panels  = layer->mlp + number * fl_cpu_mlp(e, layer),
                                      .up_bias = layer->up_bias,
                                      .z       = {.floats = own->in, .width = e->hidden16}};
    for (size_t row = 0, first = 0; row < rows; first = row) {
        /* gather */
        for (work.rows = 0; row < rows && work.rows < e->expert_rows; row++) {
            if (signbit(gate[row * e->experts16])) {
                memcpy(own->in + work.rows++ * e->hidden16, z + row * e->hidden16,
                       e->hidden16 * sizeof *z);
            }
        }
        if (work.rows == 0)
            return;
        fl_cpu_run_mlp(c, &work);
        /* and back to where they came from */
        const float *out = own->out;
        for (size_t to = first; to < row; to++) {
            float weight = gate[to * e->experts16];
            if (!signbit(weight))
                continue;
            for (size_t k = 0; k < e->hidden16; k++)
                y[to * e->hidden16 + k] += fabsf(weight) * out[k];
            out += e->hidden16;
        }
    }
}

void fl_cpu_run_experts(const fl_cpu_split *c, const fl_cpu_layer *layer, size_t row, size_t rows) {
    const fl_engine *e     = c->engine;
    size_t           first = fl_cpu_share(c, rows, c->rank);
    size_t           count = fl_cpu_share(c, rows, c->rank + 1) - first;
    const float     *z     = fl_cpu_z_from(c, row + first).floats;
    const float     *x     = fl_cpu_residual(c, row + first);
    float           *y     = c->scratch.y + first * e->hidden16;
    fl_cpu_split     alone = *c; /* runs its rows without the others, into expert.out */
    alone.scratch.y        = c->scratch.expert.out;
    alone.rank             = 0;
    alone.ranks            = 1;
    if (count == 0) /* more ranks than rows */
        return;
    for (size_t i = 0; i < count * e->hidden16; i++)
        y[i] = layer->down_bias[i % e->hidden16] + (x ? x[i] : 0.0f);
    choose_experts(e, layer, z, count, c->scratch.expert.gates);
    for (size_t i = 0; i < layer->experts; i++)
        run_expert(&alone, layer, i, z, count, y);
}
