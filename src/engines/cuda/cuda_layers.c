/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_layers.c - the forward pass of one batch as launches into a slot's stream.
 *
 * Role    cuda_graph.c has it captured, or run directly; it neither copies nor waits.
 * Method  embed and tiles; then for each layer
 *
 *           qkv = x Wqkv' + b        context = attention(qkv), short texts and long ones
 *           y   = context Wo'        x = norm(x + y + b)
 *           m   = act(x Wup' + b)    y = m Wdown'    x = norm(x + y + b)
 *
 *         and pool. In int8 each product but the last has its input quantised by rows before and
 *         its sums put back in the element type behind, bias and activation on the way. In fp8 a
 *         norm gives its row in 8 bits as well, which the product behind it takes.
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
        "embed",      "tiles",   "short attention", "long attention", "norm",
        "activation", "pooling", "quantize",        "dequantize"};
    const fl_engine *e        = p->e;
    void            *params[] = {param};
    CUresult result = e->cuda->cu.launch(e->kernels[kernel], blocks, heads, 1, threads, 1, 1, 0,
                                         p->slot->stream, params, NULL);
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
                              .norm_w          = on_device(e->embed_norm.weight),
                              .norm_b          = on_device(e->embed_norm.bias),
                              .x               = on_device(p->at.x),
                              .e4m3            = e4m3_of(p, &e->embed_norm),
                              .hidden          = e->desc.hidden,
                              .position_offset = e->desc.position_offset,
                              .pad_token =
                               e->desc.position_skips_pad ? (int32_t)e->desc.pad_token : -1,
                              .eps = e->desc.norm_eps};
    return launch_rows(p, FL_CUDA_EMBED, &param);
}

static int tiles(const pass *p) {
    fl_cuda_tiles param = {.meta           = on_device(p->at.meta),
                           .cu             = on_device(p->at.cu),
                           .short_tiles    = on_device(p->at.short_tiles),
                           .long_tiles     = on_device(p->at.long_tiles),
                           .short_count    = on_device(p->at.counts),
                           .long_count     = on_device(p->at.counts + sizeof(uint32_t)),
                           .short_capacity = fl_cuda_short_capacity(p->sizes->tokens),
                           .long_capacity  = fl_cuda_long_capacity(p->sizes->tokens)};
    return launch(p, FL_CUDA_TILES, 1, 1, FL_CUDA_TILES_THREADS, &param);
}

static int attend(const pass *p, bool is_long) {
    const fl_engine  *e     = p->e;
    uint32_t          count = is_long ? fl_cuda_long_capacity(p->sizes->tokens)
                                      : fl_cuda_short_capacity(p->sizes->tokens);
    fl_cuda_attention param = {
        .meta         = on_device(p->at.meta),
        .cu           = on_device(p->at.cu),
        .qkv          = on_device(p->at.qkv),
        .out          = on_device(p->at.context),
        .bias         = on_device(e->attention_bias),
        .tiles        = on_device(is_long ? p->at.long_tiles : p->at.short_tiles),
        .tile_count   = on_device(p->at.counts + (is_long ? sizeof(uint32_t) : 0)),
        .heads        = e->desc.heads,
        .max_distance = e->attention_bias ? e->desc.distance[0].max_distance : 0,
        .scale        = e->desc.attention_scale};
    return launch(p, is_long ? FL_CUDA_ATTENTION_LONG : FL_CUDA_ATTENTION_SHORT, count,
                  e->desc.heads, FL_CUDA_ATTENTION_THREADS, &param);
}

static int residual_norm(const pass *p, const fl_cuda_matrix *before, const fl_cuda_norm *norm) {
    bool                  has_bias = before->scales != 0 || before->fused;
    fl_cuda_residual_norm param    = {.meta   = on_device(p->at.meta),
                                      .x      = on_device(p->at.x),
                                      .y      = on_device(p->at.y),
                                      .bias   = has_bias ? NULL : on_device(before->bias),
                                      .norm_w = on_device(norm->weight),
                                      .norm_b = on_device(norm->bias),
                                      .out    = on_device(p->at.x),
                                      .e4m3   = e4m3_of(p, norm),
                                      .hidden = p->e->desc.hidden,
                                      .eps    = p->e->desc.norm_eps};
    return launch_rows(p, FL_CUDA_RESIDUAL_NORM, &param);
}

static int activate(const pass *p, const fl_cuda_matrix *up) {
    fl_cuda_bias_act param = {.meta       = on_device(p->at.meta),
                              .x          = on_device(p->at.middle),
                              .bias       = up->fused ? NULL : on_device(up->bias),
                              .width      = p->e->desc.intermediate,
                              .activation = (int32_t)p->e->desc.activation};
    return launch_rows(p, FL_CUDA_BIAS_ACT, &param);
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
    const fl_cuda_matrix *m = &layer->product[which];
    uint32_t              n, k;
    fl_cuda_product_size(p->e, which, &n, &k);
    fl_cuda_quantize   before = {.meta   = on_device(p->at.meta),
                                 .x      = on_device(in),
                                 .gain   = on_device(m->gain),
                                 .q      = on_device(p->at.narrow),
                                 .scales = on_device(p->at.row_scales),
                                 .width  = k};
    fl_cuda_dequantize behind = {.meta          = on_device(p->at.meta),
                                 .sums          = on_device(p->at.sums),
                                 .row_scales    = on_device(p->at.row_scales),
                                 .column_scales = on_device(m->scales),
                                 .bias          = on_device(m->bias),
                                 .out           = on_device(out),
                                 .width         = n,
                                 .activation =
                                     which == FL_CUDA_UP ? (int32_t)p->e->desc.activation : -1};
    int                status = launch_rows(p, FL_CUDA_QUANTIZE, &before);
    if (status == FLETCH_OK)
        status = fl_cuda_multiply(p->e, p->slot, p->tier, layer, which, p->at.narrow, p->at.sums,
                                  p->error);
    return status < 0 ? status : launch_rows(p, FL_CUDA_DEQUANTIZE, &behind);
}

static int multiply(const pass *p, const fl_cuda_layer *layer, fl_cuda_product which,
                    CUdeviceptr in, CUdeviceptr out) {
    const fl_cuda_matrix *m = &layer->product[which];
    if (m->scales != 0)
        return multiply_q8(p, layer, which, in, out);
    in          = m->takes == FL_CUDA_E4M3 ? p->at.narrow : in;
    int  status = fl_cuda_multiply(p->e, p->slot, p->tier, layer, which, in, out, p->error);
    bool done   = which != FL_CUDA_UP || (m->fused && !m->act_apart);
    return status < 0 || done ? status : activate(p, m);
}

/* While cuda_calibrate.c looks: x to the host. */
static int watch(const pass *p, const fl_cuda_layer *layer, fl_cuda_watched place) {
    const fl_engine *e     = p->e;
    size_t           bytes = (size_t)p->sizes->tokens * e->desc.hidden * e->element;
    if (e->watch == NULL)
        return FLETCH_OK;
    size_t   at     = (size_t)(layer - e->layers) * FL_CUDA_WATCHED + place;
    CUresult result = e->cuda->cu.copy_down(e->watch + at * bytes, p->at.x, bytes, p->slot->stream);
    return fl_cuda_check(e->cuda, result, FLETCH_EPROVIDER, p->error, "looking at the channels");
}

static int attention_block(const pass *p, const fl_cuda_layer *layer) {
    int status = watch(p, layer, FL_CUDA_BEFORE_QKV);
    if (status == FLETCH_OK)
        status = multiply(p, layer, FL_CUDA_QKV, p->at.x, p->at.qkv);
    if (status == FLETCH_OK && p->mix & FL_CUDA_HAS_SHORT)
        status = attend(p, false);
    if (status == FLETCH_OK && p->mix & FL_CUDA_HAS_LONG)
        status = attend(p, true);
    if (status == FLETCH_OK)
        status = multiply(p, layer, FL_CUDA_OUT, p->at.context, p->at.y);
    return status < 0 ? status
                      : residual_norm(p, &layer->product[FL_CUDA_OUT], &layer->attention_norm);
}

static int mlp_block(const pass *p, const fl_cuda_layer *layer) {
    int status = watch(p, layer, FL_CUDA_BEFORE_UP);
    if (status == FLETCH_OK)
        status = multiply(p, layer, FL_CUDA_UP, p->at.x, p->at.middle);
    if (status == FLETCH_OK)
        status = multiply(p, layer, FL_CUDA_DOWN, p->at.middle, p->at.y);
    return status < 0 ? status : residual_norm(p, &layer->product[FL_CUDA_DOWN], &layer->mlp_norm);
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
    int status = embed(&p);
    if (status == FLETCH_OK)
        status = tiles(&p);
    for (uint32_t i = 0; i < e->desc.layers && status == FLETCH_OK; i++) {
        status = attention_block(&p, &e->layers[i]);
        if (status == FLETCH_OK)
            status = mlp_block(&p, &e->layers[i]);
    }
    return status < 0 ? status : pool(&p);
}
