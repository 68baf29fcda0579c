/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c - the matrices of the model files become panels in one arena, in the order of their use.
 *
 * Role     pack_cache.c calls it once when an engine opens whose panels are in no file.
 * Method   W [out, in] row-major becomes, for every 16 rows of W (columns of the product), one
 *          panel [in][16]; 16 x 128 pieces are converted to float32 and transposed through L1. Odd
 *          sizes are padded with zeros: head_dim to a multiple of 16 inside every head (q, k, v
 *          rows and the input columns of Wo), the MLP's columns and the hidden width likewise. 1/√d
 *          is folded into the query's weights and bias, or where queries are normed, into the weights of
 *          that norm. Norms of 1 + w get the sum. A gate's panels stand in front of those of up, one
 *          by one, so that a product of two panels makes what is multiplied.
 *          DeBERTa's keys and queries of distances are computed here, once, in float32.
 *          Narrow formats: the same panels column by column through quant.c or quant16.c; weights that stay in
 *          groups through groups.c.
 * Memory   One fl_big_alloc arena (huge pages). The source pages of a matrix are given back as soon
 *          as it is packed, so that the peak is one copy of the weights and not two.
 * Threads  The team packs pieces (a layer's attention matrices, a tile of its MLP) from one
 *          counter.
 * Proof    tests/unit/test_engine*.c: odd sizes, F16 and BF16 sources. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/number.h"
#include "engines/cpu/pack.h"

enum {
    PIECE       = 128,             /* steps of k transposed at a time: 16 x 128 floats are 8 KiB */
    COLUMN_ROWS = FL_CPU_LANES + 1 /* a panel's columns and one row of the source */
};

/* ---- Layout ---------------------------------------------------------------------------------- */

typedef struct cursor {
    float *base; /* NULL while counting */
    size_t used; /* floats; always a multiple of 16 */
} cursor;

static float *take(cursor *at, size_t floats) {
    assert(at->used % FL_CPU_LANES == 0);
    float *place = at->base ? at->base + at->used : NULL;
    at->used += fl_cpu_pad(floats);
    return place;
}

static const uint8_t *take_bytes(cursor *at, size_t bytes) {
    assert(bytes % sizeof(float) == 0);
    return (const uint8_t *)take(at, bytes / sizeof(float));
}

static fl_cpu_norm take_norm(cursor *at, size_t width) {
    fl_cpu_norm norm;
    norm.weight = take(at, width);
    norm.bias   = take(at, width);
    return norm;
}

static bool has_own_bias(const fl_engine *e, uint32_t index) {
    assert(index < e->desc.layers);
    return fl_t5_by_layer(&e->desc, &e->desc.distance[e->desc.layer[index].distance]);
}

static void lay_out_layer(const fl_engine *e, uint32_t index, fl_cpu_layer *layer, cursor *at) {
    assert(index < e->desc.layers);
    const fl_encoder_desc *d      = &e->desc;
    const fl_layer_desc   *rules  = &d->layer[index];
    const size_t           groups = rules->convolves ? d->heads : d->kv_heads;
    const size_t           parts = d->heads + 2 * groups, experts = rules->experts;
    layer->group  = d->heads / groups;
    layer->window = &e->window[rules->distance];
    layer->bias =
        has_own_bias(e, index) ? take(at, d->heads * e->bias_stride) : layer->window->bias;
    layer->rope = rules->rope > 0 ? &e->rope[rules->rope - 1] : NULL;
    if (e->format == FL_CPU_INT8) {
        layer->qkv_gain = take(at, e->hidden16);
        layer->up_gain  = take(at, e->hidden16);
    }
    layer->qkv = take_bytes(at, parts * e->head16 / FL_CPU_LANES *
                                    fl_cpu_panel(e, &layer->qkv_form, e->hidden16));
    layer->out =
        take_bytes(at, e->hidden16 / FL_CPU_LANES * fl_cpu_panel(e, &layer->out_form, e->inner));
    layer->mlp = take_bytes(at, (experts > 0 ? experts : 1) * fl_cpu_mlp(e, layer));
    if (e->relative16 > 0) {
        layer->pos_k = take(at, e->relative16 * e->inner);
        layer->pos_q = take(at, e->relative16 * e->inner);
    }
    layer->qkv_bias = take(at, parts * e->head16);
    layer->out_bias = take(at, e->hidden16);
    if (rules->convolves) {
        layer->conv      = take(at, d->taps * e->inner);
        layer->conv_bias = take(at, e->inner);
    } else if (d->qk_norm != FL_QK_NORM_NONE) {
        layer->q_norm = take_norm(at, e->q_joint > 0 ? e->q_joint : e->head16);
        layer->k_norm = take_norm(at, e->k_joint > 0 ? e->k_joint : e->head16);
    }
    if (experts > 0) {
        layer->experts      = experts;
        layer->experts_used = rules->experts_used;
        layer->router       = take(at, fl_cpu_pad(experts) * e->hidden16);
    }
    if (!rules->skips_attention_norm)
        layer->attention_norm = take_norm(at, e->hidden16);
    layer->up_bias   = take(at, (e->gated ? 2 : 1) * e->mlp16);
    layer->down_bias = take(at, e->hidden16);
    layer->mlp_norm  = take_norm(at, e->hidden16);
    if (d->extra_norm != FL_EXTRA_NORM_NONE)
        layer->attention_extra = take_norm(at, e->hidden16);
    if (d->extra_norm == FL_EXTRA_NORM_BRANCH)
        layer->mlp_extra = take_norm(at, e->hidden16);
}

/* A layer with the weights of the one before (ALBERT) is packed once; not int8's, which is measured for each. */
static bool is_repeated(const fl_engine *e, const fl_encoder *encoder, size_t index) {
    bool same =
        e->format != FL_CPU_INT8 && index > 0 &&
        memcmp(&e->desc.layer[index], &e->desc.layer[index - 1], sizeof *e->desc.layer) == 0;
    for (size_t i = 0; same && i < FL_LAYER_SLOT_COUNT; i++) {
        const fl_tensor *a = &encoder->layer[index][i], *b = &encoder->layer[index - 1][i];
        same = a->data == b->data && a->adapter == b->adapter;
    }
    return same;
}

static void lay_out_latent(fl_engine *e, cursor *at) {
    fl_cpu_latent *l = &e->latent;
    l->scores        = take(at, e->desc.latent_heads * l->width16 * e->hidden16);
    l->values        = take(at, e->desc.latent_heads * l->width16 * e->hidden16);
    l->up            = take(at, 2 * l->mlp16 * e->hidden16);
    l->up_bias       = take(at, 2 * l->mlp16);
    l->down          = take(at, l->mlp16 * e->hidden16);
    l->down_bias     = take(at, e->hidden16);
    l->norm          = take_norm(at, e->hidden16);
    l->mlp_norm      = take_norm(at, e->hidden16);
}

static size_t lay_out(fl_engine *e, const fl_encoder *encoder, float *base) {
    cursor at = {.base = base, .used = fl_cpu_lay_out_tables(e, encoder, base)};
    if (encoder->global[FL_SLOT_EMBED_NORM_W].data)
        e->embed_norm = take_norm(&at, e->embed16);
    if (e->desc.final_norm)
        e->final_norm = take_norm(&at, e->hidden16);
    if (e->desc.embedding != e->desc.hidden) {
        e->project      = take(&at, e->hidden16 * e->embed16);
        e->project_bias = take(&at, e->hidden16);
    }
    if (e->desc.mlm && !e->desc.mlm_bare) {
        e->mlm      = take(&at, e->embed16 * e->hidden16);
        e->mlm_bias = take(&at, e->embed16);
        e->mlm_norm = take_norm(&at, e->embed16);
    }
    if (e->desc.mlm) {
        e->decoder      = take(&at, fl_cpu_pad(e->desc.vocab) * e->embed16);
        e->decoder_bias = take(&at, fl_cpu_pad(e->desc.vocab));
    }
    if (e->latent.width16 > 0)
        lay_out_latent(e, &at);
    for (uint32_t i = 0; i < e->desc.layers; i++)
        if (is_repeated(e, encoder, i))
            e->layers[i] = e->layers[i - 1];
        else
            lay_out_layer(e, i, &e->layers[i], &at);
    return at.used;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

typedef fl_cpu_source source;

/* 16 rows x up to PIECE columns of w -> piece[16][PIECE], zero where there is nothing. */
static void read_piece(const source *s, size_t row, size_t col, float piece[FL_CPU_LANES][PIECE]) {
    size_t cols = s->cols > col ? s->cols - col : 0;
    cols        = cols < PIECE ? cols : PIECE;
    if (cols < PIECE || row + FL_CPU_LANES > s->rows)
        memset(piece, 0, sizeof(float) * FL_CPU_LANES * PIECE);
    for (size_t r = 0; cols > 0 && r < FL_CPU_LANES && row + r < s->rows; r++)
        fl_tensor_to_f32(s->w, (uint64_t)(s->row + row + r) * s->in + s->col + col, cols, piece[r]);
}

/* Steps [first, first + steps) of one panel of a turned matrix, which has them side by side. */
static void read_turned(const source *s, size_t row, size_t first, size_t steps, float *out) {
    size_t rows = s->rows > row ? s->rows - row : 0;
    memset(out, 0, steps * FL_CPU_LANES * sizeof *out);
    for (size_t i = first; i < first + steps && i < s->cols; i++, out += FL_CPU_LANES) {
        fl_tensor_to_f32(s->w, (uint64_t)(s->col + i) * s->in + s->row + row,
                         rows < FL_CPU_LANES ? rows : FL_CPU_LANES, out);
    }
}

void fl_cpu_pack_floats(const source *s, size_t panels, size_t k, float *out) {
    assert(k > 0 && panels > 0);
    float piece[FL_CPU_LANES][PIECE];
    for (size_t p = 0; p < panels; p++) {
        for (size_t first = 0; first < k; first += PIECE) {
            size_t steps = k - first < PIECE ? k - first : PIECE;
            if (s->turned) {
                read_turned(s, p * FL_CPU_LANES, first, steps, out);
                out += steps * FL_CPU_LANES;
                continue;
            }
            read_piece(s, p * FL_CPU_LANES, first, piece);
            for (size_t i = 0; i < steps; i++, out += FL_CPU_LANES)
                for (size_t lane = 0; lane < FL_CPU_LANES; lane++)
                    out[lane] = piece[lane][i] * s->scale;
        }
    }
}

/* Columns of one panel -> columns[k][16], divided by their gains; behind them is room for a row. */
static void read_columns(const source *s, size_t row, size_t k, float *columns) {
    size_t runs = s->runs ? s->runs : 1, span = k / runs;
    float *one = columns + FL_CPU_LANES * k;
    memset(columns, 0, (FL_CPU_LANES + 1) * k * sizeof *columns);
    for (size_t r = 0; r < FL_CPU_LANES && row + r < s->rows; r++) {
        uint64_t at = (uint64_t)(s->row + row + r) * s->in + s->col;
        for (size_t run = 0; run < runs; run++)
            fl_tensor_to_f32(s->w, at + run * s->cols, s->cols, one + run * span);
        for (size_t i = 0; i < k; i++)
            columns[i * FL_CPU_LANES + r] = one[i] * s->scale;
    }
    for (size_t i = 0; s->gain && i < k; i++) {
        float factor = 1.0f / s->gain[i];
        for (size_t lane = 0; lane < FL_CPU_LANES; lane++)
            columns[i * FL_CPU_LANES + lane] *= factor;
    }
}

static void narrow_panel(const fl_engine *e, const float *columns, size_t k, uint8_t *panel) {
    if (e->format == FL_CPU_INT8)
        fl_cpu_quantize_panel(columns, k, e->narrow.group, panel);
    else if (e->format == FL_CPU_BF16)
        fl_cpu_round_panel16(columns, k, panel);
    else
        fl_cpu_quantize_panel16(columns, k, panel);
}

/* A panel of blocks as they are: its k steps are neighbours in the file. */
static void keep_panel(const source *s, const fl_groups *groups, size_t row, size_t k,
                       uint8_t *panel) {
    for (size_t r = 0; r < FL_CPU_LANES && row + r < s->rows; r++) {
        uint64_t first = fl_tensor_row(s->w, s->row + row + r) * s->in + s->col;
        fl_cpu_keep_column(groups, s->w, first, k, r, panel);
    }
}

/* Panels of fl_cpu_panel(form, k) bytes from s; `columns` is room for 17 k floats where numbers are rounded. */
static void pack_panels(const fl_engine *e, const fl_cpu_form *form, const source *s, size_t panels,
                        size_t k, float *columns, const uint8_t *out) {
    const bool grouped = form->groups.bits > 0;
    if (fl_cpu_is_float(e, form)) {
        fl_cpu_pack_floats(s, panels, k, (float *)(uintptr_t)out);
        return;
    }
    for (size_t p = 0; p < panels; p++) {
        uint8_t *panel = (uint8_t *)(uintptr_t)out + p * fl_cpu_panel(e, form, k);
        if (grouped && !form->rounded) {
            keep_panel(s, &form->groups, p * FL_CPU_LANES, k, panel);
            continue;
        }
        read_columns(s, p * FL_CPU_LANES, k, columns);
        if (grouped)
            fl_cpu_round_columns(&form->groups, columns, k, panel);
        else
            narrow_panel(e, columns, k, panel);
    }
}

void fl_cpu_pack_vector(const fl_tensor *v, size_t first, size_t count, float scale, float *out) {
    if (v->data == NULL)
        return; /* the arena starts zeroed */
    fl_tensor_to_f32(v, first, count, out);
    for (size_t i = 0; scale != 1.0f && i < count; i++)
        out[i] *= scale;
}

/* One head of q, k or v: `row` is its first row of the matrix, `at` its place among the packed ones. */
static void pack_head(const fl_engine *e, const fl_tensor *w, const fl_tensor *bias, size_t row,
                      float scale, const fl_cpu_layer *layer, size_t at, float *columns) {
    size_t panels = e->head16 / FL_CPU_LANES, d = e->desc.head_dim;
    source s = {.w     = w,
                .in    = e->desc.hidden,
                .row   = row,
                .rows  = d,
                .cols  = e->desc.hidden,
                .scale = layer->qkv_form.groups.bits > 0 ? 1.0f : scale,
                .gain  = layer->qkv_gain};
    pack_panels(e, &layer->qkv_form, &s, panels, e->hidden16, columns,
                layer->qkv + at * panels * fl_cpu_panel(e, &layer->qkv_form, e->hidden16));
    fl_cpu_pack_vector(bias, row, d, scale, fl_cpu_mutable(layer->qkv_bias) + at * e->head16);
}

static void pack_attention(const fl_engine *e, const fl_tensor *slot, const fl_cpu_layer *layer,
                           float *columns) {
    size_t d = e->desc.head_dim, group = layer->group;
    float  scale = fl_cpu_query_scale(e, layer);
    for (size_t kv = 0; kv < e->desc.heads / group; kv++) {
        size_t at = kv * (group + 2);
        for (size_t i = 0; i < group; i++) {
            pack_head(e, &slot[FL_LAYER_Q_W], &slot[FL_LAYER_Q_B], (kv * group + i) * d, scale,
                      layer, at + i, columns);
        }
        pack_head(e, &slot[FL_LAYER_K_W], &slot[FL_LAYER_K_B], kv * d, 1.0f, layer, at + group,
                  columns);
        pack_head(e, &slot[FL_LAYER_V_W], &slot[FL_LAYER_V_B], kv * d, 1.0f, layer, at + group + 1,
                  columns);
    }
}

/* Wo's input columns come head by head, each padded to head16: every head is a piece of k. */
static void pack_out(const fl_engine *e, const fl_tensor *slot, const fl_cpu_layer *layer,
                     float *columns) {
    size_t d = e->desc.head_dim, panels = e->hidden16 / FL_CPU_LANES;
    if (!fl_cpu_is_float(e, &layer->out_form)) {
        source s = {.w     = &slot[FL_LAYER_O_W],
                    .in    = e->desc.heads * d,
                    .rows  = e->desc.hidden,
                    .cols  = d,
                    .scale = 1.0f,
                    .runs  = e->desc.heads};
        pack_panels(e, &layer->out_form, &s, panels, e->inner, columns, layer->out);
        return;
    }
    for (size_t p = 0; p < panels; p++) {
        for (size_t head = 0; head < e->desc.heads; head++) {
            size_t row = p * FL_CPU_LANES;
            source s   = {.w     = &slot[FL_LAYER_O_W],
                          .in    = e->desc.heads * d,
                          .row   = row,
                          .rows  = e->desc.hidden > row ? e->desc.hidden - row : 0,
                          .col   = head * d,
                          .cols  = d,
                          .scale = 1.0f};
            fl_cpu_pack_floats(&s, 1, e->head16,
                               (float *)(uintptr_t)layer->out +
                                   (p * e->inner + head * e->head16) * FL_CPU_LANES);
        }
    }
}

/* Panels of up from `first` on; gated: a panel of the gate and one of up by turns. */
static void pack_up(const fl_engine *e, const fl_tensor *slot, const fl_cpu_layer *layer,
                    size_t first, size_t panels, float *columns, const uint8_t *out) {
    static const fl_layer_slot weights[] = {FL_LAYER_GATE_W, FL_LAYER_UP_W};
    static const fl_layer_slot biases[]  = {FL_LAYER_GATE_B, FL_LAYER_UP_B};
    size_t                     mlp       = e->desc.intermediate;
    for (size_t p = 0; p < panels; p++) {
        size_t row  = first + p * FL_CPU_LANES;
        size_t rows = mlp - row < FL_CPU_LANES ? mlp - row : FL_CPU_LANES;
        for (size_t part = e->gated ? 0 : 1; part < 2; part++) {
            size_t at = e->gated ? 2 * p + part : p;
            source s  = {.w     = &slot[weights[part]],
                         .in    = e->desc.hidden,
                         .row   = row,
                         .rows  = rows,
                         .cols  = e->desc.hidden,
                         .scale = 1.0f,
                         .gain  = layer->up_gain};
            float *bias =
                fl_cpu_mutable(layer->up_bias) + (e->gated ? 2 : 1) * first + at * FL_CPU_LANES;
            pack_panels(e, &layer->up_form, &s, 1, e->hidden16, columns,
                        out + at * fl_cpu_panel(e, &layer->up_form, e->hidden16));
            fl_cpu_pack_vector(&slot[biases[part]], row, rows, 1.0f, bias);
        }
    }
}

static void pack_tile(const fl_engine *e, const fl_tensor *slot, const fl_cpu_layer *layer,
                      size_t col, float *columns, bool again) {
    size_t         hidden = e->desc.hidden, mlp = e->desc.intermediate;
    size_t         width  = e->mlp16 - col < FL_CPU_MLP_TILE ? e->mlp16 - col : FL_CPU_MLP_TILE;
    size_t         panels = width / FL_CPU_LANES;
    const uint8_t *at =
        layer->mlp + col / FL_CPU_MLP_TILE * fl_cpu_mlp_tile(e, layer, FL_CPU_MLP_TILE);
    source down = {.w     = &slot[FL_LAYER_DOWN_W],
                   .in    = mlp,
                   .rows  = hidden,
                   .col   = col,
                   .cols  = mlp - col < width ? mlp - col : width,
                   .scale = 1.0f};
    pack_up(e, slot, layer, col, panels, columns, at);
    if (!again) {
        pack_panels(e, &layer->down_form, &down, e->hidden16 / FL_CPU_LANES, width, columns,
                    at + fl_cpu_up(e, layer, width));
    }
}

/* The same of an expert, which has no gate; always in float32. */
static void pack_expert_tile(const fl_engine *e, const fl_tensor *slot, const fl_cpu_layer *layer,
                             size_t expert, size_t col) {
    size_t hidden = e->desc.hidden, mlp = e->desc.intermediate;
    size_t width = e->mlp16 - col < FL_CPU_MLP_TILE ? e->mlp16 - col : FL_CPU_MLP_TILE;
    size_t real = mlp - col < width ? mlp - col : width, panels = width / FL_CPU_LANES;
    float *at = (float *)(uintptr_t)layer->mlp +
                (expert * fl_cpu_mlp(e, layer) +
                 col / FL_CPU_MLP_TILE * fl_cpu_mlp_tile(e, layer, FL_CPU_MLP_TILE)) /
                    sizeof(float);
    source up   = {.w     = &slot[FL_LAYER_EXPERTS_UP],
                   .in    = hidden,
                   .row   = expert * mlp + col,
                   .rows  = real,
                   .cols  = hidden,
                   .scale = 1.0f};
    source down = {.w = &slot[FL_LAYER_EXPERTS_DOWN], .rows = hidden, .cols = real};
    if (e->desc.experts_upright) {
        down.in    = mlp;
        down.row   = expert * hidden;
        down.col   = col;
        down.scale = 1.0f;
    } else {
        down.in     = hidden;
        down.col    = expert * mlp + col;
        down.turned = true;
    }
    fl_cpu_pack_floats(&up, panels, e->hidden16, at);
    fl_cpu_pack_floats(&down, e->hidden16 / FL_CPU_LANES, width, at + width * e->hidden16);
}

/* The taps of a layer that convolves, head by head. */
static void pack_convolution(const fl_engine *e, const fl_tensor *slot, const fl_cpu_layer *layer) {
    const size_t d = e->desc.head_dim, taps = e->desc.taps;
    for (size_t i = 0; layer->conv && i < e->desc.hidden * taps; i++) {
        size_t channel = i / taps, at = channel / d * taps + i % taps;
        fl_tensor_to_f32(&slot[FL_LAYER_CONV_W], i, 1,
                         fl_cpu_mutable(layer->conv) + at * e->head16 + channel % d);
    }
    for (size_t head = 0; layer->conv && head < e->desc.heads; head++) {
        fl_cpu_pack_vector(&slot[FL_LAYER_CONV_B], head * d, d, 1.0f,
                           fl_cpu_mutable(layer->conv_bias) + head * e->head16);
    }
}

static void pack_router(const fl_engine *e, const fl_tensor *slot, const fl_cpu_layer *layer) {
    source s = {.w     = &slot[FL_LAYER_ROUTER_W],
                .in    = e->desc.hidden,
                .rows  = layer->experts,
                .cols  = e->desc.hidden,
                .scale = 1.0f};
    if (layer->router) {
        fl_cpu_pack_floats(&s, fl_cpu_pad(layer->experts) / FL_CPU_LANES, e->hidden16,
                           fl_cpu_mutable(layer->router));
    }
}

/* A norm that is not there has no place either. */
void fl_cpu_pack_norm(const fl_tensor *weight, const fl_tensor *bias, bool plus_one, size_t width,
                      float scale, const fl_cpu_norm *out) {
    if (out->weight == NULL)
        return;
    fl_tensor_to_f32(weight, 0, width, fl_cpu_mutable(out->weight));
    for (size_t i = 0; i < width; i++)
        fl_cpu_mutable(out->weight)[i] = (out->weight[i] + (plus_one ? 1.0f : 0.0f)) * scale;
    fl_cpu_pack_vector(bias, 0, width, scale, fl_cpu_mutable(out->bias));
}

static void pack_norms(const fl_engine *e, const fl_tensor *slot, const fl_cpu_layer *layer) {
    const struct {
        fl_layer_slot      weight, bias;
        size_t             width;
        float              scale;
        const fl_cpu_norm *out;
    } norms[] = {
        {FL_LAYER_Q_NORM_W, FL_LAYER_Q_NORM_B, fl_qk_norm_width(&e->desc, e->desc.heads),
         e->desc.attention_scale, &layer->q_norm},
        {FL_LAYER_K_NORM_W, FL_LAYER_K_NORM_B, fl_qk_norm_width(&e->desc, e->desc.kv_heads), 1.0f,
         &layer->k_norm},
        {FL_LAYER_ATTENTION_NORM_W, FL_LAYER_ATTENTION_NORM_B, e->desc.hidden, 1.0f,
         &layer->attention_norm},
        {FL_LAYER_ATTENTION_EXTRA_W, FL_LAYER_ATTENTION_EXTRA_B, e->desc.hidden, 1.0f,
         &layer->attention_extra},
        {FL_LAYER_MLP_NORM_W, FL_LAYER_MLP_NORM_B, e->desc.hidden, 1.0f, &layer->mlp_norm},
        {FL_LAYER_MLP_EXTRA_W, FL_LAYER_MLP_EXTRA_B, e->desc.hidden, 1.0f, &layer->mlp_extra}};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        bool wide = i < 2 && e->q_joint > 0; /* a layer norm whatever the others are */
        fl_cpu_pack_norm(&slot[norms[i].weight], &slot[norms[i].bias],
                         e->desc.norm == FL_NORM_RMS_PLUS_ONE && !wide, norms[i].width,
                         norms[i].scale, norms[i].out);
    }
    fl_cpu_pack_vector(&slot[FL_LAYER_O_B], 0, e->desc.hidden, 1.0f,
                       fl_cpu_mutable(layer->out_bias));
    fl_cpu_pack_vector(&slot[FL_LAYER_DOWN_B], 0, e->desc.hidden, 1.0f,
                       fl_cpu_mutable(layer->down_bias));
}

/* The vocabulary head, all of it float32 in every precision. */
static void pack_vocabulary(const fl_engine *e, const fl_tensor *global) {
    const fl_tensor *decoder = &global[e->desc.mlm_tied ? FL_SLOT_WORD : FL_SLOT_MLM_DECODER];
    source           head    = {.w     = &global[FL_SLOT_MLM_W],
                                .in    = e->desc.hidden,
                                .rows  = e->desc.embedding,
                                .cols  = e->desc.hidden,
                                .scale = 1.0f};
    source           words   = {.w     = decoder,
                                .in    = e->desc.embedding,
                                .rows  = e->desc.vocab,
                                .cols  = e->desc.embedding,
                                .scale = 1.0f};
    if (e->mlm) {
        fl_cpu_pack_floats(&head, e->embed16 / FL_CPU_LANES, e->hidden16, fl_cpu_mutable(e->mlm));
        fl_cpu_pack_vector(&global[FL_SLOT_MLM_B], 0, e->desc.embedding, 1.0f,
                           fl_cpu_mutable(e->mlm_bias));
        fl_cpu_pack_norm(&global[FL_SLOT_MLM_NORM_W], &global[FL_SLOT_MLM_NORM_B], false,
                         e->desc.embedding, 1.0f, &e->mlm_norm);
    }
    fl_cpu_pack_floats(&words, fl_cpu_pad(e->desc.vocab) / FL_CPU_LANES, e->embed16,
                       fl_cpu_mutable(e->decoder));
    fl_cpu_pack_vector(&global[e->desc.mlm_tied ? FL_SLOT_MLM_BIAS : FL_SLOT_MLM_DECODER_B], 0,
                       e->desc.vocab, 1.0f, fl_cpu_mutable(e->decoder_bias));
}

/* ---- DeBERTa's distances --------------------------------------------------------------------- */

/* The table of distances from its end, normed: [relative16, hidden16]; NULL: no memory. */
static float *read_relative(const fl_engine *e, const fl_tensor *global) {
    const size_t n = fl_relative_rows(&e->desc), values = e->relative16 * e->hidden16;
    float       *table = fl_big_alloc((values + 2 * e->hidden16) * sizeof *table);
    fl_cpu_norm  norm  = {table + values, table + values + e->hidden16};
    if (table == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        fl_tensor_to_f32(&global[FL_SLOT_RELATIVE], (n - 1 - i) * e->desc.hidden, e->desc.hidden,
                         table + i * e->hidden16);
    }
    if (e->desc.relative_norm) {
        fl_row_norm of = {.x        = table,
                          .x_stride = e->hidden16,
                          .y        = table,
                          .y_stride = e->hidden16,
                          .weight   = norm.weight,
                          .bias     = norm.bias,
                          .rows     = n,
                          .n        = e->desc.hidden,
                          .eps      = e->desc.norm_eps};
        fl_cpu_pack_norm(&global[FL_SLOT_RELATIVE_NORM_W], &global[FL_SLOT_RELATIVE_NORM_B], false,
                         e->desc.hidden, 1.0f, &norm);
        e->kernels->layer_norm(&of);
    }
    return table;
}

/* One head's panels of table · wᵀ + bias, scaled; room: a head of w, and what the product makes. */
static void project_relative(const fl_engine *e, const float *table, const fl_tensor *w,
                             const fl_tensor *bias, size_t head, float scale, float *room,
                             float *out) {
    size_t  d = e->desc.head_dim, panels = e->head16 / FL_CPU_LANES;
    float  *added = room + e->head16 * e->hidden16, *rows = added + e->head16;
    source  s = {.w     = w,
                 .in    = e->desc.hidden,
                 .row   = head * d,
                 .rows  = d,
                 .cols  = e->desc.hidden,
                 .scale = scale};
    fl_gemm g = {.a        = table,
                 .a_stride = e->hidden16 * sizeof *table,
                 .b        = room,
                 .b_stride = e->hidden16 * FL_CPU_LANES * sizeof *room,
                 .c        = rows,
                 .c_stride = e->head16,
                 .bias     = added,
                 .rows     = e->relative16,
                 .panels   = panels,
                 .k        = e->hidden16};
    memset(added, 0, e->head16 * sizeof *added);
    fl_cpu_pack_floats(&s, panels, e->hidden16, room);
    fl_cpu_pack_vector(bias, head * d, d, scale, added);
    e->kernels->gemm(&g);
    for (size_t i = 0; i < e->relative16; i++) {
        float *to = out + (i / FL_CPU_LANES * e->head16) * FL_CPU_LANES + i % FL_CPU_LANES;
        for (size_t k = 0; k < e->head16; k++)
            to[k * FL_CPU_LANES] = rows[i * e->head16 + k];
    }
}

/* Floats that project_relative has room in. */
static size_t relative_room(const fl_engine *e) {
    return e->head16 * (e->hidden16 + 1 + e->relative16);
}

static void pack_relative(const fl_engine *e, const float *table, const fl_tensor *slot,
                          const fl_cpu_layer *layer, float *room) {
    const bool   shared = e->desc.relative_shared;
    const size_t values = e->relative16 * e->head16;
    for (size_t head = 0; head < e->desc.heads; head++) {
        project_relative(e, table, &slot[shared ? FL_LAYER_K_W : FL_LAYER_RELATIVE_K_W],
                         &slot[shared ? FL_LAYER_K_B : FL_LAYER_RELATIVE_K_B], head, 1.0f, room,
                         fl_cpu_mutable(layer->pos_k) + head * values);
        project_relative(e, table, &slot[shared ? FL_LAYER_Q_W : FL_LAYER_RELATIVE_Q_W],
                         &slot[shared ? FL_LAYER_Q_B : FL_LAYER_RELATIVE_Q_B], head,
                         e->desc.attention_scale, room,
                         fl_cpu_mutable(layer->pos_q) + head * values);
    }
}

/* What exists once, beside the tables. */
static void pack_global(const fl_engine *e, const fl_tensor *global) {
    fl_cpu_pack_norm(&global[FL_SLOT_EMBED_NORM_W], &global[FL_SLOT_EMBED_NORM_B], false,
                     e->desc.embedding, 1.0f, &e->embed_norm);
    fl_cpu_pack_norm(&global[FL_SLOT_FINAL_NORM_W], &global[FL_SLOT_FINAL_NORM_B],
                     e->desc.norm == FL_NORM_RMS_PLUS_ONE, e->desc.hidden, 1.0f, &e->final_norm);
    if (e->decoder)
        pack_vocabulary(e, global);
    if (e->project) {
        source s = {.w     = &global[FL_SLOT_PROJECT_W],
                    .in    = e->desc.embedding,
                    .rows  = e->desc.hidden,
                    .cols  = e->desc.embedding,
                    .scale = 1.0f};
        fl_cpu_pack_floats(&s, e->hidden16 / FL_CPU_LANES, e->embed16, fl_cpu_mutable(e->project));
        fl_cpu_pack_vector(&global[FL_SLOT_PROJECT_B], 0, e->desc.hidden, 1.0f,
                           fl_cpu_mutable(e->project_bias));
    }
}

/* ---- The work -------------------------------------------------------------------------------- */

/* Piece 0 of a layer is its attention and norms, piece 1 + t tile t of its MLP, expert after expert.
 * Whoever finishes a layer's last tile gives the pages of the MLP's matrices back. */
typedef struct packing {
    fl_engine        *engine;
    const fl_encoder *encoder;
    size_t            tiles;
    atomic_size_t     next;
    atomic_uint      *left; /* [layers] tiles to do */
    float         *columns; /* where numbers are rounded: [threads][17 * most], see read_columns */
    size_t         most;    /* steps of k of the longest product */
    float         *relative, *room; /* DeBERTa: its table, and relative_room for each thread */
    fl_cpu_folding folding;         /* latents */
    bool           again;           /* only what x goes into */
} packing;

static void release(const fl_tensor *slot, fl_layer_slot which) {
    if (slot[which].map)
        fl_map_release(slot[which].map, slot[which].data, fl_tensor_span(&slot[which]));
}

static void pack_attention_piece(const packing *work, uint32_t index, float *columns, float *room) {
    const fl_engine    *e     = work->engine;
    const fl_cpu_layer *layer = &e->layers[index];
    const fl_tensor    *slot  = work->encoder->layer[index];
    pack_attention(e, slot, layer, columns);
    if (work->relative)
        pack_relative(e, work->relative, slot, layer, room);
    if (!work->again) {
        pack_out(e, slot, layer, columns);
        pack_norms(e, slot, layer);
        pack_router(e, slot, layer);
        pack_convolution(e, slot, layer);
    }
    if (has_own_bias(e, index) && !work->again) {
        fl_cpu_spread_bias(e, work->encoder, e->desc.layer[index].distance, index,
                           fl_cpu_mutable(layer->bias));
    }
    release(slot, FL_LAYER_Q_W);
    release(slot, FL_LAYER_K_W);
    release(slot, FL_LAYER_V_W);
    release(slot, FL_LAYER_O_W);
    release(slot, FL_LAYER_RELATIVE_Q_W);
    release(slot, FL_LAYER_RELATIVE_K_W);
}

static void pack_mlp_piece(const packing *work, const fl_tensor *slot, size_t index, size_t piece,
                           float *columns) {
    const fl_engine    *e     = work->engine;
    const fl_cpu_layer *layer = &e->layers[index];
    size_t              col   = piece % work->tiles * FL_CPU_MLP_TILE;
    if (piece / work->tiles >= (layer->experts > 0 ? layer->experts : 1))
        return; /* others have more experts */
    if (layer->experts > 0)
        pack_expert_tile(e, slot, layer, piece / work->tiles, col);
    else
        pack_tile(e, slot, layer, col, columns, work->again);
    if (atomic_fetch_sub(&work->left[index], 1) == 1) {
        release(slot, FL_LAYER_GATE_W);
        release(slot, FL_LAYER_UP_W);
        release(slot, FL_LAYER_DOWN_W);
        release(slot, FL_LAYER_EXPERTS_UP);
        release(slot, FL_LAYER_EXPERTS_DOWN);
    }
}

static void pack_some(void *arg, unsigned member, unsigned size) {
    packing   *work    = arg;
    fl_engine *e       = work->engine;
    size_t     experts = e->experts16 > 0 ? e->experts16 : 1;
    size_t     per = work->tiles * experts + 1, pieces = per * e->desc.layers;
    float     *columns = work->columns ? work->columns + member * COLUMN_ROWS * work->most : NULL;
    (void)size;
    if (member == 0 && !work->again) {
        fl_cpu_fill_tables(e, work->encoder);
        pack_global(e, work->encoder->global);
        if (work->folding.rows)
            fl_cpu_pack_latents(e, work->encoder->global, &work->folding);
    }
    for (size_t i = atomic_fetch_add(&work->next, 1); i < pieces;
         i        = atomic_fetch_add(&work->next, 1)) {
        size_t           l    = i / per;
        const fl_tensor *slot = work->encoder->layer[l];
        if (l > 0 && e->layers[l].qkv == e->layers[l - 1].qkv)
            continue; /* is_repeated */
        if (i % per == 0) {
            pack_attention_piece(work, (uint32_t)l, columns,
                                 work->room ? work->room + member * relative_room(e) : NULL);
        } else {
            pack_mlp_piece(work, slot, l, i % per - 1, columns);
        }
    }
}

static void free_packing(packing *work) {
    const fl_engine *e = work->engine;
    fl_free(work->left);
    fl_free(work->columns);
    fl_big_free(work->relative, (e->relative16 + 2) * e->hidden16 * sizeof(float));
    fl_big_free(work->room, e->threads * relative_room(e) * sizeof(float));
    fl_cpu_folding_close(&work->folding);
}

/* All pieces, by the whole team. */
static int pack_all(fl_engine *engine, const fl_encoder *encoder, bool again, fletch_error *error) {
    packing work = {
        .engine = engine, .encoder = encoder, .tiles = engine->mlp_tiles, .again = again};
    work.left = fl_alloc_array(engine->desc.layers + 1, sizeof *work.left);
    const bool rounds =
        engine->format != FL_CPU_FP32 || engine->weights_kept > FL_CPU_WEIGHTS_STORED;
    if (rounds) {
        work.most    = engine->inner > engine->hidden16 ? engine->inner : engine->hidden16;
        work.most    = work.most > FL_CPU_MLP_TILE ? work.most : FL_CPU_MLP_TILE;
        work.columns = fl_alloc_array(engine->threads * COLUMN_ROWS * work.most, sizeof(float));
    }
    if (engine->relative16 > 0 && !again) {
        work.relative = read_relative(engine, encoder->global);
        work.room     = fl_big_alloc(engine->threads * relative_room(engine) * sizeof(float));
    }
    const bool folds = engine->latent.width16 > 0 && !again;
    if (work.left == NULL || (rounds && work.columns == NULL) ||
        (folds && !fl_cpu_folding_open(engine, &work.folding)) ||
        (engine->relative16 > 0 && !again && (work.relative == NULL || work.room == NULL))) {
        free_packing(&work);
        return fl_fail_nomem(error, engine->threads * COLUMN_ROWS * work.most * sizeof(float),
                             "packing weights");
    }
    for (uint32_t i = 0; i < engine->desc.layers; i++) {
        size_t experts = engine->layers[i].experts;
        atomic_init(&work.left[i], (unsigned)(work.tiles * (experts > 0 ? experts : 1)));
    }
    fl_team_run(engine->team, pack_some, &work);
    free_packing(&work);
    return FLETCH_OK;
}

/* A logit that is not a number is no largest one: it would go unseen later. */
static int check_decoder(const fl_engine *e, fletch_error *error) {
    size_t ids = fl_cpu_pad(e->desc.vocab);
    if (fl_all_finite(e->decoder, ids * e->embed16) && fl_all_finite(e->decoder_bias, ids))
        return FLETCH_OK;
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "the decoder of the vocabulary head holds values that are not finite. Run "
                   "`fletch model verify` or pull the model again");
}

void fl_cpu_pack_size(fl_engine *engine, const fl_encoder *encoder) {
    for (uint32_t i = 0; i < engine->desc.layers; i++)
        fl_cpu_choose_forms(engine, encoder->layer[i], &engine->layers[i]);
    engine->weights_bytes = lay_out(engine, encoder, NULL) * sizeof(float);
}

void fl_cpu_pack_place(fl_engine *engine, const fl_encoder *encoder, const void *weights) {
    assert(weights);
    lay_out(engine, encoder, fl_cpu_mutable(weights));
}

int fl_cpu_pack(fl_engine *engine, const fl_encoder *encoder, fletch_error *error) {
    void *block = engine->panels->block = fl_big_alloc(engine->weights_bytes);
    if (block == NULL)
        return fl_fail_nomem(error, engine->weights_bytes, "packed weights");
    fl_cpu_pack_place(engine, encoder, block);
    for (size_t i = 0; engine->format == FL_CPU_INT8 && i < engine->desc.layers; i++) {
        for (size_t k = 0; k < engine->hidden16; k++) {
            fl_cpu_mutable(engine->layers[i].qkv_gain)[k] = 1.0f;
            fl_cpu_mutable(engine->layers[i].up_gain)[k]  = 1.0f;
        }
    }
    int status = pack_all(engine, encoder, false, error);
    return status == FLETCH_OK && engine->decoder ? check_decoder(engine, error) : status;
}

int fl_cpu_pack_again(fl_engine *engine, const fl_encoder *encoder, fletch_error *error) {
    return pack_all(engine, encoder, true, error);
}
