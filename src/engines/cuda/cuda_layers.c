/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_layers.c - the forward pass of one batch as launches into a slot's stream.
 *
 * Role    cuda_graph.c has it captured, or run directly; it neither copies nor waits.
 * Method  embed; then for each layer
 *
 *           post-norm:  qkv = x Wqkv' + b      context = attention(qkv), short texts and long ones
 *                       x += context Wo' + b   x = norm(x)
 *                       m = act(x Wup' + b)    x += m Wdown' + b    x = norm(x)
 *           pre-norm:   y = norm(x), which qkv and up read; x is never normed but at the end
 *
 *         and pool. q and k are normed and turned in between where the model wants it; of a gated MLP
 *         m = act(gate) * up. In int8 each product but the last has its input quantised by rows before
 *         and its sums put back in the element type behind, bias and activation on the way; out's go to
 *         y, which the next norm adds to x. In fp8 a norm gives its row in 8 bits as well, which the
 *         product behind it takes.
 * Bytes   Grids and addresses follow from the tier; the true counts are read on the device.
 * Memory  none. Threads: one per slot.
 * Proof   tests/cuda/test_cuda_engine.c. */
#include "base/error.h"
#include "engines/cuda/cuda_engine.h"

typedef struct pass {
    const fl_engine    *e;
    const fl_cuda_slot *slot;
    uint32_t            tier, mix;
    const fl_cuda_tier *sizes;
    fl_cuda_place       at;
    fletch_error       *error;
} pass;

/* An address of the device, for a kernel's argument. */
static void *on_device(CUdeviceptr at) {
    return (void *)(uintptr_t)at;
}

static int launch(const pass *p, fl_cuda_kernel kernel, uint32_t blocks, uint32_t heads,
                  uint32_t threads, void *param) {
    static const char *const names[FL_CUDA_KERNELS] = {
        [FL_CUDA_EMBED]                 = "embed",
        [FL_CUDA_ROTATE]                = "rotary positions",
        [FL_CUDA_ATTENTION_SHORT]       = "short attention",
        [FL_CUDA_ATTENTION_LONG]        = "long attention",
        [FL_CUDA_ATTENTION_SHORT_RULED] = "short attention by rules",
        [FL_CUDA_ATTENTION_LONG_RULED]  = "long attention by rules",
        [FL_CUDA_RESIDUAL_NORM]         = "norm",
        [FL_CUDA_BIAS_ACT]              = "activation",
        [FL_CUDA_GLU]                   = "gate",
        [FL_CUDA_POOL]                  = "pooling",
        [FL_CUDA_QUANTIZE]              = "quantize",
        [FL_CUDA_DEQUANTIZE]            = "dequantize"};
    const fl_engine *e        = p->e;
    void            *params[] = {param};
    CUresult result = e->cuda->cu.launch(e->kernels[kernel], blocks, heads, 1, threads, 1, 1, 0,
                                         p->slot->stream, params, NULL);
    fl_cuda_mark(e, p->slot, names[kernel]);
    return fl_cuda_check(e->cuda, result, FLETCH_EINTERNAL, p->error, names[kernel]);
}

static int launch_rows(const pass *p, fl_cuda_kernel kernel, void *param) {
    uint32_t blocks = (p->sizes->tokens + FL_CUDA_ROW_ROWS - 1) / FL_CUDA_ROW_ROWS;
    return launch(p, kernel, blocks, 1, FL_CUDA_ROW_THREADS, param);
}

/* ---- The steps ------------------------------------------------------------------------------- */

/* What a norm gives the product behind it in 8 bits. */
static fl_cuda_e4m3 e4m3_of(const pass *p, const fl_cuda_norm *norm) {
    if (norm->e4m3_scale == 0.0f)
        return (fl_cuda_e4m3){0};
    return (fl_cuda_e4m3){on_device(p->at.narrow), 1.0f / norm->e4m3_scale};
}

static int embed(const pass *p) {
    const fl_engine *e     = p->e;
    fl_cuda_embed    param = {.meta            = on_device(p->at.meta),
                              .ids             = on_device(p->at.ids),
                              .cu              = on_device(p->at.cu),
                              .word            = on_device(e->word),
                              .position        = on_device(e->position),
                              .type            = on_device(e->token_type),
                              .segment         = on_device(p->at.segment),
                              .norm_w          = on_device(e->embed_norm.weight),
                              .norm_b          = on_device(e->embed_norm.bias),
                              .x               = on_device(p->at.x),
                              .places          = on_device(p->at.places),
                              .e4m3            = e4m3_of(p, &e->embed_norm),
                              .hidden          = e->desc.hidden,
                              .position_offset = e->desc.position_offset,
                              .pad_token =
                               e->desc.position_skips_pad ? (int32_t)e->desc.pad_token : -1,
                              .eps = e->desc.norm_eps};
    return launch_rows(p, FL_CUDA_EMBED, &param);
}

/* Norms and rotary positions of q and k, where the layer has them. */
static int rotate(const pass *p, const fl_cuda_layer *layer) {
    const fl_engine     *e     = p->e;
    const fl_layer_desc *desc  = &e->desc.layer[layer - e->layers];
    fl_cuda_rotate       param = {.meta     = on_device(p->at.meta),
                                  .places   = on_device(p->at.places),
                                  .qkv      = on_device(p->at.qkv),
                                  .q_norm   = on_device(layer->q_norm),
                                  .k_norm   = on_device(layer->k_norm),
                                  .heads    = e->desc.heads,
                                  .kv_heads = e->desc.kv_heads,
                                  .rms      = e->desc.norm != FL_NORM_LAYER,
                                  .eps      = e->desc.norm_eps};
    if (desc->rope == 0 && layer->q_norm == 0)
        return FLETCH_OK;
    if (desc->rope > 0) {
        const fl_cuda_rope *rope = &e->rope[desc->rope - 1];
        param.cosines            = on_device(rope->cosines);
        param.sines              = on_device(rope->sines);
        param.dims               = e->desc.rope[desc->rope - 1].dims;
    }
    return launch_rows(p, FL_CUDA_ROTATE, &param);
}

/* A distance as the kernels have it. */
static int32_t bound(ptrdiff_t distance) {
    return distance < FL_CUDA_EVERY ? (int32_t)distance : FL_CUDA_EVERY;
}

static int attend(const pass *p, const fl_cuda_layer *layer, bool is_long) {
    const fl_engine   *e     = p->e;
    uint8_t            which = e->desc.layer[layer - e->layers].distance;
    const fl_distance *rule  = &e->desc.distance[which];
    uint32_t           count = is_long ? fl_cuda_long_capacity(p->sizes->tokens)
                                       : fl_cuda_short_capacity(p->sizes->tokens);
    fl_cuda_attention  param = {.meta  = on_device(p->at.meta),
                                .cu    = on_device(p->at.cu),
                                .qkv   = on_device(p->at.qkv),
                                .out   = on_device(p->at.context),
                                .bias  = on_device(e->bias[which].table),
                                .tiles = on_device(is_long ? p->at.long_tiles : p->at.short_tiles),
                                .heads = e->desc.heads,
                                .kv_heads     = e->desc.kv_heads,
                                .max_distance = e->bias[which].most,
                                .before       = bound(-fl_distance_first(rule)),
                                .after        = bound(fl_distance_last(rule)),
                                .scale        = e->desc.attention_scale};
    /* A window that holds every short text is none to them. */
    int32_t least = is_long ? FL_CUDA_EVERY : FL_CUDA_SHORT_TOKENS - 1;
    bool    ruled = param.bias != NULL || param.before < least || param.after < least;
    return launch(p,
                  (is_long ? FL_CUDA_ATTENTION_LONG : FL_CUDA_ATTENTION_SHORT) +
                      (ruled ? FL_CUDA_ATTENTION_SHORT_RULED - FL_CUDA_ATTENTION_SHORT : 0),
                  count, e->desc.heads, FL_CUDA_ATTENTION_THREADS, &param);
}

/* out = norm(x + y), and x = x + y where `sums`. `y` 0: x has it already. */
static int norm(const pass *p, const fl_cuda_norm *norm, CUdeviceptr x, CUdeviceptr y, bool sums,
                CUdeviceptr out) {
    fl_cuda_residual_norm param = {.meta   = on_device(p->at.meta),
                                   .x      = on_device(x),
                                   .y      = on_device(y),
                                   .sum    = sums ? on_device(x) : NULL,
                                   .norm_w = on_device(norm->weight),
                                   .norm_b = on_device(norm->bias),
                                   .out    = on_device(out),
                                   .e4m3   = e4m3_of(p, norm),
                                   .hidden = p->e->desc.hidden,
                                   .rms    = p->e->desc.norm != FL_NORM_LAYER,
                                   .eps    = p->e->desc.norm_eps};
    return launch_rows(p, FL_CUDA_RESIDUAL_NORM, &param);
}

static int activate(const pass *p, const fl_cuda_matrix *up) {
    bool             done  = up->fused || up->scales != 0; /* the bias is added */
    fl_cuda_bias_act param = {.meta       = on_device(p->at.meta),
                              .x          = on_device(p->at.middle),
                              .bias       = done ? NULL : on_device(up->bias),
                              .width      = p->e->desc.intermediate,
                              .activation = (int32_t)p->e->desc.activation};
    fl_cuda_glu      gated = {.meta       = param.meta,
                              .x          = param.x,
                              .bias       = param.bias,
                              .width      = param.width,
                              .activation = param.activation};
    return p->e->desc.mlp == FL_MLP_GLU ? launch_rows(p, FL_CUDA_GLU, &gated)
                                        : launch_rows(p, FL_CUDA_BIAS_ACT, &param);
}

static int pool(const pass *p) {
    const fl_engine *e     = p->e;
    fl_cuda_pool     param = {.meta   = on_device(p->at.meta),
                              .cu     = on_device(p->at.cu),
                              .skip   = on_device(p->at.skip),
                              .x      = on_device(p->at.x),
                              .rows   = on_device(p->at.rows),
                              .bad    = on_device(p->at.bad),
                              .hidden = e->desc.hidden,
                              .kinds  = e->pooling_count};
    for (uint32_t i = 0; i < e->pooling_count; i++)
        param.kind[i] = (int32_t)e->pooling[i];
    return launch(p, FL_CUDA_POOL, p->sizes->texts, 1, FL_CUDA_POOL_THREADS, &param);
}

/* ---- Products -------------------------------------------------------------------------------- */

static int multiply_q8(const pass *p, const fl_cuda_layer *layer, fl_cuda_product which,
                       CUdeviceptr in, CUdeviceptr out) {
    const fl_cuda_matrix *m     = &layer->product[which];
    bool                  gated = p->e->desc.mlp == FL_MLP_GLU;
    uint32_t              n, k;
    fl_cuda_product_size(p->e, which, &n, &k);
    fl_cuda_quantize   before = {.meta   = on_device(p->at.meta),
                                 .x      = on_device(in),
                                 .gain   = on_device(m->gain),
                                 .q      = on_device(p->at.narrow),
                                 .scales = on_device(p->at.row_scales),
                                 .width  = k};
    fl_cuda_dequantize behind = {
        .meta          = on_device(p->at.meta),
        .sums          = on_device(p->at.sums),
        .row_scales    = on_device(p->at.row_scales),
        .column_scales = on_device(m->scales),
        .bias          = on_device(m->bias),
        .out           = on_device(out),
        .width         = n,
        .activation    = which == FL_CUDA_UP && !gated ? (int32_t)p->e->desc.activation : -1};
    FL_TRY(launch_rows(p, FL_CUDA_QUANTIZE, &before));
    FL_TRY(
        fl_cuda_multiply(p->e, p->slot, p->tier, layer, which, p->at.narrow, p->at.sums, p->error));
    FL_TRY(launch_rows(p, FL_CUDA_DEQUANTIZE, &behind));
    return which == FL_CUDA_UP && gated ? activate(p, m) : FLETCH_OK;
}

static int multiply(const pass *p, const fl_cuda_layer *layer, fl_cuda_product which,
                    CUdeviceptr in, CUdeviceptr out) {
    const fl_cuda_matrix *m = &layer->product[which];
    if (m->scales != 0)
        return multiply_q8(p, layer, which, in, out);
    in        = m->takes == FL_CUDA_E4M3 ? p->at.narrow : in;
    bool done = which != FL_CUDA_UP || (m->fused && !m->act_apart);
    FL_TRY(fl_cuda_multiply(p->e, p->slot, p->tier, layer, which, in, out, p->error));
    return done ? FLETCH_OK : activate(p, m);
}

/* While cuda_calibrate.c looks: what a product reads to the host. */
static int watch(const pass *p, const fl_cuda_layer *layer, fl_cuda_watched place, CUdeviceptr in) {
    const fl_engine *e     = p->e;
    size_t           bytes = (size_t)p->sizes->tokens * e->desc.hidden * e->element;
    if (e->watch == NULL)
        return FLETCH_OK;
    size_t   at     = (size_t)(layer - e->layers) * FL_CUDA_WATCHED + place;
    CUresult result = e->cuda->cu.copy_down(e->watch + at * bytes, in, bytes, p->slot->stream);
    return fl_cuda_check(e->cuda, result, FLETCH_EPROVIDER, p->error, "looking at the channels");
}

static int attention_block(const pass *p, const fl_cuda_layer *layer) {
    const fl_cuda_matrix *out = &layer->product[FL_CUDA_OUT];
    bool                  pre = p->e->desc.norm_place == FL_NORM_PRE;
    CUdeviceptr           in = p->at.x, y = out->adds ? 0 : p->at.y;
    if (pre && layer->attention_norm.weight != 0) {
        in = p->at.y;
        FL_TRY(norm(p, &layer->attention_norm, p->at.x, 0, false, in));
    }
    FL_TRY(watch(p, layer, FL_CUDA_BEFORE_QKV, in));
    FL_TRY(multiply(p, layer, FL_CUDA_QKV, in, p->at.qkv));
    FL_TRY(rotate(p, layer));
    if (p->mix & FL_CUDA_HAS_SHORT)
        FL_TRY(attend(p, layer, false));
    if (p->mix & FL_CUDA_HAS_LONG)
        FL_TRY(attend(p, layer, true));
    FL_TRY(multiply(p, layer, FL_CUDA_OUT, p->at.context, out->adds ? p->at.x : p->at.y));
    return pre ? FLETCH_OK : norm(p, &layer->attention_norm, p->at.x, y, false, p->at.x);
}

static int mlp_block(const pass *p, const fl_cuda_layer *layer) {
    bool        pre   = p->e->desc.norm_place == FL_NORM_PRE;
    bool        added = layer->product[FL_CUDA_OUT].adds; /* else its branch stands in y */
    CUdeviceptr in    = p->at.x;
    if (pre) {
        in = p->at.y;
        FL_TRY(norm(p, &layer->mlp_norm, p->at.x, added ? 0 : p->at.y, !added, in));
    }
    FL_TRY(watch(p, layer, FL_CUDA_BEFORE_UP, in));
    FL_TRY(multiply(p, layer, FL_CUDA_UP, in, p->at.middle));
    FL_TRY(multiply(p, layer, FL_CUDA_DOWN, p->at.middle, p->at.x));
    return pre ? FLETCH_OK : norm(p, &layer->mlp_norm, p->at.x, 0, false, p->at.x);
}

int fl_cuda_enqueue(const fl_engine *e, const fl_cuda_slot *slot, fl_cuda_shape shape,
                    fletch_error *error) {
    pass p = {.e     = e,
              .slot  = slot,
              .tier  = shape.tier,
              .mix   = shape.mix,
              .sizes = &e->tiers[shape.tier],
              .error = error};
    fl_cuda_lay_out(e, shape.tier, slot->arena, &p.at);
    FL_TRY(embed(&p));
    for (uint32_t i = 0; i < e->desc.layers; i++) {
        FL_TRY(attention_block(&p, &e->layers[i]));
        FL_TRY(mlp_block(&p, &e->layers[i]));
    }
    if (e->final_norm.weight != 0)
        FL_TRY(norm(&p, &e->final_norm, p.at.x, 0, false, p.at.x));
    return pool(&p);
}
