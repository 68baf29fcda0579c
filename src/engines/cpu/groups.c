/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - weights that stay small: in 16 bits, or integers whose groups share scales (kernels.h).
 *
 * Role     pack.c asks which matrices are kept so and fills their panels here; cpu_layers.c multiplies by them.
 * In/Out   model.weights and the matrices of a layer -> the form of each product; rows of a file -> panels.
 * Method   A matrix whose file holds bfloat16, halves or blocks (GGUF) keeps them, to the last bit. Where tensors of
 *          one product differ, its groups are those that can hold all of them; where there are none, they are widened.
 *          q8 and q4 round what is not stored in as few bits: 32 steps share a half-precision scale, with q4 that of
 *          several whose squared error is least. stored rounds nothing; auto is stored, but widens when opening
 *          a small model, which lies in the caches and gains nothing by fewer bytes (MiniLM: one query 2.5 ms widened,
 *          3.1 in groups; 28 layers of Qwen3-0.6B 152 and 69), and 16 bits, which cost a batch of these layers 16 %
 *          for half of the memory, where groups of bytes cost 13 for a quarter.
 *          A product widens FL_CPU_STRETCH steps of as many panels as a tile is wide, and multiplies them by all rows
 *          while they are in L1: rows share what widening costs.
 * Bytes    Those of the same weights widened when opening.
 * Proof    fl-kernels test, tests/golden/test_gguf_weights.py. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "engines/cpu/cpu_engine.h"

/* ---- Which ----------------------------------------------------------------------------------- */

/* What a matrix is in its file; no bits: float32, or not in the file alone. */
static fl_groups stored_of(const fl_tensor *w) {
    if (w->data == NULL || w->adapter != NULL)
        return (fl_groups){0};
    if (w->dtype == FL_DTYPE_F16 || w->dtype == FL_DTYPE_BF16)
        return (fl_groups){.bits = 16, .half = w->dtype == FL_DTYPE_F16};
    const fl_block_row *row = fl_block_of(w->dtype);
    return w->packed ? fl_packed_groups(w->packed) : row ? row->groups : (fl_groups){0};
}

/* Groups that hold both; no bits: there are none. Scales are bytes or halves, numbers of 16 bits are of one type; 4
 * bits without a least value count from -8, with one from 0. A zero is one of the values. */
static fl_groups merged(fl_groups a, fl_groups b) {
    if (a.bits == 0 || b.bits == 0 || a.coded != b.coded || a.half != b.half ||
        a.rounded != b.rounded || (a.bits == 16) != (b.bits == 16))
        return (fl_groups){0};
    uint8_t bits = a.bits > b.bits ? a.bits : b.bits;
    return (fl_groups){.bits    = a.least != b.least ? 8 : bits,
                       .run     = a.run < b.run ? a.run : b.run,
                       .least   = a.least || b.least,
                       .coded   = a.coded,
                       .rounded = a.rounded,
                       .zero    = a.zero || b.zero,
                       .half    = a.half};
}

/* The form of a product whose columns come of `count` matrices. `whole`: its steps are those of their rows. */
static fl_cpu_form choose(fl_cpu_weights kept, const fl_tensor *const w[], size_t count,
                          bool whole) {
    const fl_cpu_form rounded = {{.bits = kept == FL_CPU_WEIGHTS_Q4 ? 4 : 8, .run = 32}, true};
    fl_cpu_form       stored  = {.groups = whole ? stored_of(w[0]) : (fl_groups){0}};
    for (size_t i = 1; i < count; i++)
        stored.groups = merged(stored.groups, stored_of(w[i]));
    if (kept == FL_CPU_WEIGHTS_AUTO && stored.groups.bits == 16)
        return (fl_cpu_form){0};
    bool fits = stored.groups.bits > 0 && stored.groups.bits <= rounded.groups.bits;
    return kept <= FL_CPU_WEIGHTS_STORED || fits ? stored : rounded;
}

/* Whether the layers' matrices are more in float32 than a cache holds. */
static bool is_large(const fl_engine *e) {
    const size_t cached = (size_t)128 << 20, parts = e->desc.kv_heads * (e->group + 2);
    size_t       rows = parts * e->head16 + e->inner + (e->gated ? 3 : 2) * e->mlp16;
    return e->desc.layers * rows * e->hidden16 * sizeof(float) > cached;
}

void fl_cpu_choose_forms(const fl_engine *e, const fl_tensor *slot, fl_cpu_layer *layer) {
    const fl_tensor *qkv[] = {&slot[FL_LAYER_Q_W], &slot[FL_LAYER_K_W], &slot[FL_LAYER_V_W]};
    const fl_tensor *out[] = {&slot[FL_LAYER_O_W]}, *down[] = {&slot[FL_LAYER_DOWN_W]};
    const fl_tensor *up[]   = {&slot[FL_LAYER_UP_W], &slot[FL_LAYER_GATE_W]};
    const bool       in_all = e->desc.hidden == e->hidden16;
    if (e->weights_kept == FL_CPU_WEIGHTS_FLOAT ||
        (e->weights_kept == FL_CPU_WEIGHTS_AUTO && !is_large(e)))
        return;
    layer->qkv_form  = choose(e->weights_kept, qkv, 3, in_all);
    layer->out_form  = choose(e->weights_kept, out, 1, e->head16 == e->desc.head_dim);
    layer->up_form   = choose(e->weights_kept, up, e->gated ? 2 : 1, in_all);
    layer->down_form = choose(e->weights_kept, down, 1, e->desc.intermediate == e->mlp16);
}

/* ---- Panels ---------------------------------------------------------------------------------- */

/* One run of a panel. */
typedef struct run_place {
    uint8_t *whole;  /* coded: the stretch's floats */
    uint8_t *scales; /* and behind them the least values */
    uint8_t *q;
} run_place;

static run_place place_of(const fl_groups *g, uint8_t *panel, size_t step) {
    size_t    inside = step % FL_CPU_STRETCH, scales = fl_cpu_groups_scales(g);
    run_place at = {.whole = panel + fl_cpu_groups_bytes(g, step - inside)};
    at.scales    = at.whole + fl_cpu_groups_floats(g) +
                inside / g->run * (scales + fl_cpu_groups_values(g, g->run));
    at.q = at.scales + scales;
    return at;
}

/* n values of column `lane`; an even number. */
static void put_values(const fl_groups *g, uint8_t *q, size_t lane, const int8_t *from, size_t n) {
    const int centre = g->least ? 0 : 8; /* nibbles from 0 on */
    q += lane;
    if (g->bits == 8) {
        for (size_t i = 0; i < n; i++)
            q[i * FL_CPU_LANES] = (uint8_t)from[i];
        return;
    }
    for (size_t i = 0; i < n; i += 2) {
        int even = from[i] + centre, odd = from[i + 1] + centre;
        q[i / 2 * FL_CPU_LANES] = (uint8_t)(even | odd << 4);
    }
}

static void put_half(uint8_t *at, size_t lane, uint16_t half) {
    memcpy(at + lane * sizeof half, &half, sizeof half);
}
static void put_float(uint8_t *at, size_t lane, float value) {
    memcpy(at + lane * sizeof value, &value, sizeof value);
}

/* Scale and least value of column `lane`, from run `run` of a block. */
static void put_scales(const fl_groups *g, const run_place *at, size_t lane, bool least,
                       const fl_block_parts *from, size_t run) {
    const size_t other = FL_CPU_LANES + lane;
    if (g->coded) {
        put_float(at->whole, lane, fl_half_to_f32(from->scale));
        at->scales[lane] = (uint8_t)from->scale_code[run];
    } else {
        put_half(at->scales, lane, from->scale);
    }
    if (g->least && g->coded) {
        put_float(at->whole, other, least ? -fl_half_to_f32(from->least) : 0.0f);
        at->scales[other] = least ? (uint8_t)from->least_code[run] : 0;
    } else if (g->least) {
        put_half(at->scales, other, least ? from->least : 0);
    }
}

static void keep_halves(const fl_groups *g, const fl_tensor *w, uint64_t first, size_t steps,
                        size_t lane, uint8_t *panel) {
    (void)g; /* the file's type is the panel's */
    const unsigned char *from = (const unsigned char *)w->data + first * sizeof(uint16_t);
    for (size_t i = 0; i < steps; i++) {
        memcpy(panel + (i * FL_CPU_LANES + lane) * sizeof(uint16_t), from + i * sizeof(uint16_t),
               sizeof(uint16_t));
    }
}

/* What was saved with scales and zeros of its own (model/packed.c). Of 16 bits each is one exactly. */
static void keep_packed(const fl_groups *g, const fl_tensor *w, uint64_t first, size_t steps,
                        size_t lane, uint8_t *panel) {
    const uint64_t columns   = w->packed->columns;
    const bool     is_signed = w->packed->layout == FL_PACKED_BYTES;
    const int      centre    = is_signed ? 0 : 1 << (w->packed->bits - 1);
    fl_packed_part part;
    for (size_t step = 0, run; step < steps; step += run) {
        uint64_t  row = (first + step) / columns, column = (first + step) % columns;
        run_place at = place_of(g, panel, step);
        int8_t    q[FL_PACKED_RUN];
        run = steps - step < g->run ? steps - step : g->run;
        fl_packed_read(w, row, column, run, &part);
        for (size_t i = 0; i < run; i++)
            q[i] = (int8_t)(part.q[i] - centre);
        put_half(at.scales, lane, part.scale_bits);
        if (g->zero)
            at.scales[FL_CPU_LANES * sizeof(uint16_t) + lane] = (uint8_t)(part.zero - centre);
        put_values(g, at.q, lane, q, run);
    }
}

/* Widened, and each to 16 bits, which it has in the file or was rounded to. */
static void keep_exact(const fl_groups *g, const fl_tensor *w, uint64_t first, size_t steps,
                       size_t lane, uint8_t *panel) {
    float some[FL_CPU_STRETCH];
    for (size_t step = 0, n; step < steps; step += n) {
        n = steps - step < FL_CPU_STRETCH ? steps - step : FL_CPU_STRETCH;
        fl_tensor_to_f32(w, first + step, n, some);
        for (size_t i = 0; i < n; i++) {
            put_half(panel + (step + i) * FL_CPU_LANES * sizeof(uint16_t), lane,
                     g->half ? fl_half_of(some[i]) : fl_bfloat16_of(some[i]));
        }
    }
}

/* A stretch never lies in two blocks: columns begin at multiples of one. */
void fl_cpu_keep_column(const fl_groups *g, const fl_tensor *w, uint64_t first, size_t steps,
                        size_t lane, uint8_t *panel) {
    const fl_block_row  *type = fl_block_of(w->dtype);
    const unsigned char *data = w->data;
    fl_block_parts       parts;
    if (g->bits == 16) {
        (w->packed || w->across > 0 ? keep_exact : keep_halves)(g, w, first, steps, lane, panel);
        return;
    }
    if (w->packed) {
        keep_packed(g, w, first, steps, lane, panel);
        return;
    }
    for (size_t step = 0, run; step < steps; step += run) {
        size_t block = (size_t)((first + step) / type->values),
               in    = (size_t)((first + step) % type->values);
        run_place at = place_of(g, panel, step);
        run          = steps - step < g->run ? steps - step : g->run;
        if (step == 0 || in == 0)
            type->split(data + block * type->bytes, &parts);
        put_scales(g, &at, lane, type->groups.least, &parts, in / type->groups.run);
        put_values(g, at.q, lane, parts.q + in, run);
    }
}

/* A run of a panel's 16 columns, side by side. */
enum { RUN = 32, TRIES = 9, NOT_A_NUMBER = 0x7E00 };
typedef float lanes[FL_CPU_LANES];

/* To the nearest, ties to even, of what is smaller than 2^22: added to 1.5 * 2^23 nothing behind the point is left. */
static float nearest(float x) {
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

/* q of n steps by the scales, from `low` to `high`, and the sums of squares that they are off. */
static void round_to(const float *columns, size_t n, const float *scale, float low, float high,
                     lanes *q, float *error) {
    lanes inverse;
    for (size_t c = 0; c < FL_CPU_LANES; c++) {
        inverse[c] = scale[c] != 0.0f ? 1.0f / scale[c] : 0.0f;
        error[c]   = 0.0f;
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < FL_CPU_LANES; c++) {
            float w = columns[i * FL_CPU_LANES + c], value = w * inverse[c];
            value   = value > low ? value : low;
            value   = nearest(value < high ? value : high);
            q[i][c] = value;
            error[c] += (w - value * scale[c]) * (w - value * scale[c]);
        }
    }
}

/* The scales of a run: in 8 bits the largest value is 127; in 4 the best of those at which it lies from -8.5 to
 * -6.5. */
static void scales_of(int bits, const float *columns, size_t n, uint16_t *half, lanes *q) {
    lanes most = {0}, least_error = {0}, error, scale;
    for (size_t i = 0; i < n * FL_CPU_LANES; i++) {
        size_t c = i % FL_CPU_LANES;
        most[c]  = fabsf(columns[i]) > fabsf(most[c]) ? columns[i] : most[c];
    }
    for (size_t c = 0; c < FL_CPU_LANES; c++) { /* not rounded down: the largest would be cut */
        half[c] = fl_half_of(fabsf(most[c]) / 127.0f);
        half[c] = (uint16_t)(half[c] + (fl_half_to_f32(half[c]) * 127.0f < fabsf(most[c])));
    }
    for (int t = 0; bits == 4 && t < TRIES; t++) {
        uint16_t tried[FL_CPU_LANES];
        for (size_t c = 0; c < FL_CPU_LANES; c++) {
            tried[c] = fl_half_of(most[c] / (0.25f * (float)t - 8.5f));
            scale[c] = fl_half_to_f32(tried[c]);
        }
        round_to(columns, n, scale, -8.0f, 7.0f, q, error);
        for (size_t c = 0; c < FL_CPU_LANES; c++) {
            bool better    = t == 0 || error[c] < least_error[c];
            half[c]        = better ? tried[c] : half[c];
            least_error[c] = better ? error[c] : least_error[c];
        }
    }
}

/* Where a weight is no number the scale is none either, and shows in every product. */
static void round_run(const fl_groups *g, const float *columns, size_t n, const run_place *at) {
    const bool nibbles = g->bits == 4;
    uint16_t   half[FL_CPU_LANES];
    lanes      q[RUN], scale, error;
    scales_of(g->bits, columns, n, half, q);
    for (size_t c = 0; c < FL_CPU_LANES; c++)
        scale[c] = fl_half_to_f32(half[c]);
    round_to(columns, n, scale, nibbles ? -8.0f : -127.0f, nibbles ? 7.0f : 127.0f, q, error);
    for (size_t c = 0; c < FL_CPU_LANES; c++) {
        int8_t column[RUN];
        bool   finite = true;
        for (size_t i = 0; i < n; i++) {
            finite    = finite && isfinite(columns[i * FL_CPU_LANES + c]);
            column[i] = (int8_t)(finite ? q[i][c] : 0.0f);
        }
        put_half(at->scales, c, finite ? half[c] : NOT_A_NUMBER);
        put_values(g, at->q, c, column, n);
    }
}

void fl_cpu_round_columns(const fl_groups *g, const float *columns, size_t steps, uint8_t *panel) {
    for (size_t step = 0, run; step < steps; step += run) {
        run_place at = place_of(g, panel, step);
        run          = steps - step < g->run ? steps - step : g->run;
        round_run(g, columns + step * FL_CPU_LANES, run, &at);
    }
}

/* ---- Products -------------------------------------------------------------------------------- */

void fl_cpu_multiply_groups(const fl_cpu_kernels *kernels, const fl_groups *groups, float factor,
                            const fl_gemm *g) {
    enum { WIDE = 2 };
    _Alignas(64) float piece[WIDE][FL_CPU_STRETCH * FL_CPU_LANES];
    for (size_t p = 0, width; p < g->panels; p += width) {
        const size_t col = p * FL_CPU_LANES;
        width            = kernels->panels < WIDE ? kernels->panels : WIDE;
        width            = width < g->panels - p ? width : g->panels - p;
        for (size_t k = 0, steps; k < g->k; k += steps) {
            steps = g->k - k < FL_CPU_STRETCH ? g->k - k : FL_CPU_STRETCH;
            for (size_t i = 0; i < width; i++) {
                const uint8_t *from = (const uint8_t *)g->b + (p + i) * g->b_stride;
                fl_widen       z    = {groups, from + fl_cpu_groups_bytes(groups, k), steps, factor,
                                       piece[i]};
                kernels->widen(&z);
            }
            bool    end  = k + steps == g->k;
            fl_gemm part = {.a               = (const float *)g->a + k,
                            .a_stride        = g->a_stride,
                            .b               = piece,
                            .b_stride        = sizeof piece[0],
                            .c               = g->c + col,
                            .c_stride        = g->c_stride,
                            .bias            = end && g->bias ? g->bias + col : NULL,
                            .residual        = end && g->residual ? g->residual + col : NULL,
                            .residual_stride = g->residual_stride,
                            .rows            = g->rows,
                            .panels          = width,
                            .k               = steps,
                            .accumulate      = g->accumulate || k > 0};
            kernels->gemm(&part);
        }
    }
}
