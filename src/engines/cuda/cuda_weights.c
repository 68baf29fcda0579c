/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_weights.c - the model's tensors on the device: one block, converted on the way.
 *
 * Role    cuda_engine.c asks for the bytes, allocates the block and has it filled; afterwards the mapped
 *         files are not read again.
 * In/Out  fl_encoder's views (float32, half, bfloat16) -> tables and matrices of the engine's
 *         element type; or int8 rows with their scales, after the gains of their columns were taken
 *         out; or e4m3 matrices with one scale; norms and most biases in float32.
 * Method  A list of pieces: what, how converted, where to. The same walk over the descriptor counts
 *         the bytes and makes the list. q, k and v are laid behind each other, so that one product
 *         makes all three. Pieces are cut into runs of rows that fit a pinned stage; a team of
 *         threads converts a run while the one before is copied from the other stage.
 *         e4m3 divides a matrix by its largest value / 448, which is looked for first, and the
 *         norm's output before it by its bound / 448: a normed value is at most sqrt(hidden), so
 *         that no text can be cut off, whatever it says.
 * Memory  two stages of 16 MiB while it lasts, and a row's floats per thread.
 * Threads its own team, gone at the end.
 * Proof   tests/cuda/test_cuda_engine.c: vectors against the CPU engine in every precision. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/pool.h"
#include "engines/cuda/convert.h"
#include "engines/cuda/cuda_engine.h"

enum {
    ALIGN       = 256,
    STAGE_BYTES = 16 << 20,
    RUN_FLOATS  = 4096, /* converted at a time by one thread */
    TEAM_MOST   = 16
};

/* Of e4m3, also where all values are 0: its inverse is finite. */
static const float least_scale = 0x1p-100f;

typedef enum form { AS_F32, AS_F32_AND_ONE, AS_ELEMENT, AS_Q8, AS_E4M3 } form;

typedef struct piece {
    fl_tensor    tensor; /* data NULL: zeros */
    uint64_t     rows, cols;
    form         as;
    CUdeviceptr  at;
    float       *scales; /* AS_Q8: [rows], filled when it was copied; AS_E4M3: the matrix's */
    const float *gain;   /* AS_Q8: [cols] what the input was multiplied by, or NULL */
    float       *made;   /* owned: what the tensor views, where no file has it */
} piece;

/* The walk: `pieces` NULL only counts bytes and pieces. */
typedef struct walk {
    const fl_engine  *e;
    const fl_encoder *encoder; /* NULL when counting */
    uint64_t          used;
    CUdeviceptr       base;
    piece            *pieces;
    size_t            count;
    bool              failed; /* no memory for a table */
} walk;

static uint64_t size_of(const fl_engine *e, form as) {
    return as == AS_F32 || as == AS_F32_AND_ONE ? sizeof(float) : as == AS_ELEMENT ? e->element : 1;
}

static void read_floats(const fl_tensor *t, uint64_t first, uint64_t count, float *out) {
    if (t->data == NULL)
        memset(out, 0, count * sizeof *out);
    else
        fl_tensor_to_f32(t, first, count, out);
}

static CUdeviceptr reserve(walk *w, uint64_t bytes) {
    uint64_t at = (w->used + ALIGN - 1) / ALIGN * ALIGN;
    w->used     = at + bytes;
    return w->base + at;
}

static void add(walk *w, const fl_tensor *tensor, uint64_t rows, uint64_t cols, form as,
                CUdeviceptr at) {
    w->count++;
    if (w->pieces == NULL)
        return;
    w->pieces[w->count - 1] = (piece){.tensor = tensor ? *tensor : (fl_tensor){0},
                                      .rows   = rows,
                                      .cols   = cols,
                                      .as     = as,
                                      .at     = at};
}

/* A tensor of its own; 0 when `present` is false. */
static CUdeviceptr place(walk *w, bool present, int slot, uint64_t rows, uint64_t cols, form as) {
    if (!present)
        return 0;
    CUdeviceptr at = reserve(w, rows * cols * size_of(w->e, as));
    add(w, w->encoder ? &w->encoder->global[slot] : NULL, rows, cols, as, at);
    return at;
}

/* ---- The walk over the descriptor ------------------------------------------------------------ */

/* Where the weights of each product come from; qkv has three sources, up of a gated MLP two. */
typedef struct part {
    fl_layer_slot weight, bias;
    uint32_t      rows;
} part;

static uint32_t parts_of(const fl_engine *e, fl_cuda_product p, part out[3]) {
    const fl_encoder_desc *d = &e->desc;
    uint32_t               q = e->inner, kv = d->kv_heads * d->head_dim;
    bool                   gated = d->mlp == FL_MLP_GLU;
    switch (p) {
    case FL_CUDA_QKV:
        out[0] = (part){FL_LAYER_Q_W, FL_LAYER_Q_B, q};
        out[1] = (part){FL_LAYER_K_W, FL_LAYER_K_B, kv};
        out[2] = (part){FL_LAYER_V_W, FL_LAYER_V_B, kv};
        return 3;
    case FL_CUDA_OUT: out[0] = (part){FL_LAYER_O_W, FL_LAYER_O_B, d->hidden}; return 1;
    case FL_CUDA_UP:
        out[0]     = (part){FL_LAYER_GATE_W, FL_LAYER_GATE_B, d->intermediate};
        out[gated] = (part){FL_LAYER_UP_W, FL_LAYER_UP_B, d->intermediate};
        return gated ? 2 : 1;
    default: out[0] = (part){FL_LAYER_DOWN_W, FL_LAYER_DOWN_B, d->hidden}; return 1;
    }
}

/* What the input of a product of layer i is multiplied by on its way into bytes; NULL: nothing. */
static const float *gain_of(const fl_engine *e, uint32_t i, fl_cuda_product p) {
    if (e->gains == NULL || (p != FL_CUDA_QKV && p != FL_CUDA_UP))
        return NULL;
    uint32_t place = p == FL_CUDA_QKV ? FL_CUDA_BEFORE_QKV : FL_CUDA_BEFORE_UP;
    return e->gains + ((size_t)i * FL_CUDA_WATCHED + place) * e->desc.hidden;
}

static void walk_gain(walk *w, const float *gain, fl_cuda_matrix *m) {
    fl_tensor tensor = {.data = gain, .dtype = FL_DTYPE_F32};
    m->gain          = gain ? reserve(w, w->e->desc.hidden * sizeof *gain) : 0;
    if (gain != NULL)
        add(w, &tensor, 1, w->e->desc.hidden, AS_F32, m->gain);
}

static void walk_product(walk *w, uint32_t layer, fl_cuda_product p, const fl_tensor *slots,
                         fl_cuda_matrix *m) {
    const fl_engine *e    = w->e;
    const float     *gain = gain_of(e, layer, p);
    part             from[3];
    uint32_t         n, k, parts = parts_of(e, p, from);
    fl_cuda_product_size(e, p, &n, &k);
    fl_cuda_takes(e, layer, p, m);
    bool     is_q8   = m->takes == FL_CUDA_Q8;
    form     as      = is_q8 ? AS_Q8 : m->takes == FL_CUDA_E4M3 ? AS_E4M3 : AS_ELEMENT;
    form     bias_as = m->fused ? AS_ELEMENT : AS_F32;
    uint64_t row     = 0;
    m->alpha         = as == AS_E4M3 ? least_scale : 1.0f; /* e4m3: measure_piece finds it */
    m->weights       = reserve(w, (uint64_t)n * k * size_of(e, as));
    m->bias          = reserve(w, n * size_of(e, bias_as));
    m->scales        = is_q8 ? reserve(w, n * sizeof(float)) : 0;
    walk_gain(w, gain, m);
    for (uint32_t i = 0; i < parts; row += from[i++].rows) {
        uint64_t rows = from[i].rows;
        add(w, slots ? &slots[from[i].weight] : NULL, rows, k, as,
            m->weights + row * k * size_of(e, as));
        if (w->pieces != NULL) {
            w->pieces[w->count - 1].gain   = gain;
            w->pieces[w->count - 1].scales = as == AS_E4M3 ? &m->alpha : NULL;
        }
        if (is_q8) /* known once the weights before it were converted: see prepare_pieces */
            add(w, NULL, 1, rows, AS_F32, m->scales + row * sizeof(float));
        add(w, slots ? &slots[from[i].bias] : NULL, 1, rows, bias_as,
            m->bias + row * size_of(e, bias_as));
    }
}

/* A vector of a norm: Gemma's rule adds 1 to its weights, but not to those of the embeddings. */
static form form_of_norm(const fl_engine *e) {
    return e->desc.norm == FL_NORM_RMS_PLUS_ONE ? AS_F32_AND_ONE : AS_F32;
}

static void walk_norm(walk *w, const fl_tensor *slots, int weight, int bias, form as,
                      fl_cuda_norm *norm) {
    uint32_t hidden = w->e->desc.hidden;
    norm->weight    = reserve(w, hidden * sizeof(float));
    norm->bias      = reserve(w, hidden * sizeof(float));
    add(w, slots ? &slots[weight] : NULL, 1, hidden, as, norm->weight);
    add(w, slots ? &slots[bias] : NULL, 1, hidden, AS_F32, norm->bias);
}

static CUdeviceptr walk_head_norm(walk *w, const fl_tensor *slots, int weight) {
    const fl_encoder_desc *d  = &w->e->desc;
    CUdeviceptr            at = reserve(w, d->head_dim * sizeof(float));
    add(w, slots ? &slots[weight] : NULL, 1, d->head_dim, form_of_norm(w->e), at);
    return at;
}

/* ---- Tables that are made when the pieces are listed ----------------------------------------- */

/* Floats for the piece that add() listed last; NULL while counting, or when there are none. */
static float *make_table(walk *w, size_t count) {
    if (w->pieces == NULL)
        return NULL;
    piece *p  = &w->pieces[w->count - 1];
    p->made   = fl_alloc_array(count, sizeof *p->made);
    p->tensor = (fl_tensor){.data = p->made, .dtype = FL_DTYPE_F32};
    w->failed = w->failed || p->made == NULL;
    return p->made;
}

static void walk_rope(walk *w, const fl_rope *rope, fl_cuda_rope *to) {
    uint64_t count = (uint64_t)w->e->max_length * (rope->dims / 2);
    to->cosines    = reserve(w, count * sizeof(float));
    to->sines      = reserve(w, count * sizeof(float));
    add(w, NULL, w->e->max_length, rope->dims / 2, AS_F32, to->cosines);
    float *cosines = make_table(w, count);
    add(w, NULL, w->e->max_length, rope->dims / 2, AS_F32, to->sines);
    float *sines = make_table(w, count);
    if (cosines != NULL && sines != NULL)
        fl_rope_table(rope, 0, w->e->max_length, cosines, sines);
}

/* By distance: no bucket's logarithm and no slope on the device. The kernels clamp beyond `most`: T5's
 * last bucket has no end, ALiBi's table holds every distance that a text can have. */
static void walk_bias(walk *w, const fl_distance *rule, fl_cuda_bias *to) {
    uint32_t heads = w->e->desc.heads;
    to->most       = rule->bias == FL_BIAS_T5_BUCKETS ? rule->max_distance : w->e->max_length;
    uint64_t count = 2ULL * to->most + 1;
    to->table      = reserve(w, count * heads * sizeof(float));
    add(w, NULL, count, heads, AS_F32, to->table);
    float      *table = make_table(w, count * heads);
    fl_distance all   = *rule; /* bounds are the kernel's */
    all.causal        = false;
    all.window        = 0;
    for (uint64_t i = 0; table != NULL && i < count; i++)
        for (uint32_t head = 0; head < heads; head++)
            table[i * heads + head] =
                fl_distance_value(w->encoder, &all, 0, head, (ptrdiff_t)i - (ptrdiff_t)to->most);
}

/* ---- The walk -------------------------------------------------------------------------------- */

static void walk_globals(walk *w, fl_engine *to, const fl_tensor *globals) {
    const fl_encoder_desc *d    = &w->e->desc;
    uint64_t               rows = (uint64_t)d->positions + d->position_offset;
    to->word                    = place(w, true, FL_SLOT_WORD, d->vocab, d->hidden, AS_ELEMENT);
    to->position =
        place(w, d->position == FL_POSITION_LEARNED, FL_SLOT_POSITION, rows, d->hidden, AS_ELEMENT);
    to->token_type =
        place(w, d->token_type, FL_SLOT_TYPE, d->segments ? 2 : 1, d->hidden, AS_ELEMENT);
    if (d->embed_norm)
        walk_norm(w, globals, FL_SLOT_EMBED_NORM_W, FL_SLOT_EMBED_NORM_B, AS_F32, &to->embed_norm);
    if (d->final_norm)
        walk_norm(w, globals, FL_SLOT_FINAL_NORM_W, FL_SLOT_FINAL_NORM_B, form_of_norm(w->e),
                  &to->final_norm);
    for (int i = 0; i < FL_RULES_MAX; i++) {
        if (d->rope[i].dims > 0)
            walk_rope(w, &d->rope[i], &to->rope[i]);
        if (d->distance[i].bias != FL_BIAS_NONE)
            walk_bias(w, &d->distance[i], &to->bias[i]);
    }
}

static void walk_all(walk *w, fl_engine *to) {
    const fl_encoder_desc *d = &w->e->desc;
    walk_globals(w, to, w->encoder ? w->encoder->global : NULL);
    for (uint32_t i = 0; i < d->layers; i++) {
        const fl_tensor *slots = w->encoder ? w->encoder->layer[i] : NULL;
        fl_cuda_layer   *layer = &to->layers[i];
        for (int p = 0; p < FL_CUDA_PRODUCTS; p++)
            walk_product(w, i, (fl_cuda_product)p, slots, &layer->product[p]);
        if (!d->layer[i].skips_attention_norm)
            walk_norm(w, slots, FL_LAYER_ATTENTION_NORM_W, FL_LAYER_ATTENTION_NORM_B,
                      form_of_norm(w->e), &layer->attention_norm);
        walk_norm(w, slots, FL_LAYER_MLP_NORM_W, FL_LAYER_MLP_NORM_B, form_of_norm(w->e),
                  &layer->mlp_norm);
        if (d->qk_norm == FL_QK_NORM_HEAD) {
            layer->q_norm = walk_head_norm(w, slots, FL_LAYER_Q_NORM_W);
            layer->k_norm = walk_head_norm(w, slots, FL_LAYER_K_NORM_W);
        }
    }
}

uint64_t fl_cuda_weights_bytes(fl_engine *e) {
    walk w = {.e = e};
    walk_all(&w, e); /* addresses from 0 on, replaced when the block is there */
    return (w.used + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- Conversion ------------------------------------------------------------------------------ */

/* One run of rows of one piece into a stage, by all threads of the team. */
typedef struct job {
    const fl_engine *e;
    const piece     *piece;
    uint64_t         first, rows;
    unsigned char   *out;
    float           *floats; /* [team][row_floats] */
    size_t           row_floats;
    float            largest[TEAM_MOST]; /* measure only */
} job;

static void write_elements(const job *j, const float *in, uint64_t count, uint64_t at) {
    if (j->piece->as == AS_E4M3)
        fl_cuda_to_e4m3(in, count, *j->piece->scales, j->out + at);
    else if (j->piece->as == AS_F32_AND_ONE)
        for (uint64_t i = 0; i < count; i++)
            ((float *)(void *)j->out)[at + i] = in[i] + 1.0f;
    else if (j->piece->as == AS_F32 || j->e->type == FL_CUDA_F32)
        memcpy(j->out + at * sizeof(float), in, count * sizeof(float));
    else if (j->e->type == FL_CUDA_F16)
        fl_cuda_to_f16(in, count, (uint16_t *)(void *)j->out + at);
    else
        fl_cuda_to_bf16(in, count, (uint16_t *)(void *)j->out + at);
}

static void convert(void *arg, unsigned member, unsigned size) {
    const job   *j      = arg;
    const piece *p      = j->piece;
    float       *floats = j->floats + member * j->row_floats;
    if (p->as == AS_Q8) {
        for (uint64_t r = member; r < j->rows; r += size) {
            read_floats(&p->tensor, (j->first + r) * p->cols, p->cols, floats);
            for (uint64_t c = 0; p->gain != NULL && c < p->cols; c++)
                floats[c] /= p->gain[c];
            p->scales[j->first + r] =
                fl_cuda_to_q8(floats, p->cols, (int8_t *)(j->out + r * p->cols));
        }
        return;
    }
    uint64_t count = j->rows * p->cols, step = j->row_floats;
    for (uint64_t at = member * step; at < count; at += size * step) {
        uint64_t run = count - at < step ? count - at : step;
        read_floats(&p->tensor, j->first * p->cols + at, run, floats);
        write_elements(j, floats, run, at);
    }
}

/* The largest absolute value of each member's share. */
static void measure(void *arg, unsigned member, unsigned size) {
    job     *j      = arg;
    float   *floats = j->floats + member * j->row_floats, most = 0.0f;
    uint64_t count = j->rows * j->piece->cols, step = j->row_floats;
    for (uint64_t at = member * step; at < count; at += size * step) {
        uint64_t run = count - at < step ? count - at : step;
        read_floats(&j->piece->tensor, at, run, floats);
        most = fl_cuda_largest(floats, run, most);
    }
    j->largest[member] = most;
}

/* ---- Copying --------------------------------------------------------------------------------- */

typedef struct mover {
    fl_engine *e;
    fl_team   *team;
    CUevent    free[FL_CUDA_STAGES];
    unsigned   next;
    float     *floats;
    size_t     row_floats;
} mover;

void fl_cuda_stages_close(fl_engine *e) {
    for (unsigned i = 0; i < FL_CUDA_STAGES; i++) {
        if (e->stage[i] != NULL)
            e->cuda->cu.host_free(e->stage[i]);
        e->stage[i] = NULL;
    }
}

/* The stages are what the stream copies from: they stay where it does not end. */
static void close_mover(mover *m) {
    const fl_cuda_calls *cu = &m->e->cuda->cu;
    if (fl_cuda_await(m->e, m->e->slots[0].stream, NULL, 0) != CUDA_ERROR_LAUNCH_TIMEOUT)
        fl_cuda_stages_close(m->e);
    for (unsigned i = 0; i < FL_CUDA_STAGES; i++)
        if (m->free[i] != NULL)
            cu->event_destroy(m->free[i]);
    fl_team_close(m->team);
    fl_free(m->floats);
}

static int open_mover(mover *m, uint32_t threads, size_t row_floats, fletch_error *error) {
    const fl_cuda_calls *cu   = &m->e->cuda->cu;
    uint32_t             size = threads < 1 ? 1 : threads < TEAM_MOST ? threads : TEAM_MOST;
    m->row_floats             = row_floats > RUN_FLOATS ? row_floats : RUN_FLOATS;
    m->floats                 = fl_alloc_array(size * m->row_floats, sizeof *m->floats);
    if (m->floats == NULL)
        return fl_fail_nomem(error, size * m->row_floats * sizeof *m->floats, "the cuda engine");
    FL_TRY(fl_team_open(&m->team, size, NULL, error));
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < FL_CUDA_STAGES && result == CUDA_SUCCESS; i++) {
        result = cu->host_alloc((void **)&m->e->stage[i], STAGE_BYTES, CU_MEMHOSTALLOC_PORTABLE);
        if (result == CUDA_SUCCESS)
            result = cu->event_create(&m->free[i], CU_EVENT_DISABLE_TIMING);
    }
    return fl_cuda_check(m->e->cuda, result, FLETCH_EPROVIDER, error,
                         "no pinned memory to load the weights through");
}

/* The parts of a product share a scale: that of the largest. (NaN stays in the numbers.) */
static void measure_piece(mover *m, const piece *p) {
    job j = {
        .e = m->e, .piece = p, .rows = p->rows, .floats = m->floats, .row_floats = m->row_floats};
    fl_team_run(m->team, measure, &j);
    for (unsigned i = 0; i < fl_team_size(m->team); i++)
        *p->scales = fmaxf(*p->scales, j.largest[i] / FL_CUDA_E4M3_MOST);
}

static int move_piece(mover *m, const piece *p, fletch_error *error) {
    const fl_cuda_calls *cu     = &m->e->cuda->cu;
    CUstream             stream = m->e->slots[0].stream; /* which runs nothing yet */
    uint64_t row_bytes = p->cols * size_of(m->e, p->as), per_stage = STAGE_BYTES / row_bytes;
    for (uint64_t row = 0; row < p->rows; row += per_stage) {
        uint64_t rows = p->rows - row < per_stage ? p->rows - row : per_stage;
        unsigned s    = m->next++ % FL_CUDA_STAGES;
        CUresult result =
            fl_cuda_await(m->e, NULL, m->free[s], 0); /* what it held is on the device */
        job j = {.e          = m->e,
                 .piece      = p,
                 .first      = row,
                 .rows       = rows,
                 .out        = m->e->stage[s],
                 .floats     = m->floats,
                 .row_floats = m->row_floats};
        if (result == CUDA_SUCCESS) {
            fl_team_run(m->team, convert, &j);
            result = cu->copy_up(p->at + row * row_bytes, m->e->stage[s], rows * row_bytes, stream);
        }
        if (result == CUDA_SUCCESS)
            result = cu->event_record(m->free[s], stream);
        FL_TRY(fl_cuda_awaited(m->e, result, FLETCH_EPROVIDER, error,
                               "the weights cannot be copied to the device"));
    }
    return FLETCH_OK;
}

/* The scales of int8 rows. */
static float *prepare_pieces(walk *w, size_t *widest) {
    uint64_t scales = 0;
    *widest         = 0;
    for (size_t i = 0; i < w->count; i++) {
        bool run = w->pieces[i].as == AS_Q8; /* a thread takes a row of it as a whole */
        scales += run ? w->pieces[i].rows : 0;
        *widest = run && w->pieces[i].cols > *widest ? w->pieces[i].cols : *widest;
    }
    float *block = fl_alloc_array(scales + 1, sizeof *block), *next = block;
    for (size_t i = 0; block != NULL && i < w->count; i++) {
        piece *p = &w->pieces[i];
        if (p->as != AS_Q8)
            continue;
        p->scales                    = next;
        w->pieces[i + 1].tensor.data = next; /* walk_product put the scales' piece behind it */
        next += p->rows;
    }
    return block;
}

/* The scale of what a norm gives product m, whose sums get it too: no value of a norm is larger than
 * sqrt(hidden) w + b. `one` is what is added to the weights. */
static void scale_norm(const fl_engine *e, const fl_tensor *weight, const fl_tensor *bias,
                       float one, fl_cuda_norm *norm, fl_cuda_matrix *m) {
    float most = 0.0f, root = sqrtf((float)e->desc.hidden);
    if (m->takes != FL_CUDA_E4M3)
        return;
    for (uint32_t i = 0; i < e->desc.hidden; i++) {
        float w, b;
        read_floats(weight, i, 1, &w);
        read_floats(bias, i, 1, &b);
        most = fmaxf(most, fabsf(w + one) * root + fabsf(b));
    }
    norm->e4m3_scale = fmaxf(most / FL_CUDA_E4M3_MOST, least_scale);
    m->alpha *= norm->e4m3_scale;
}

/* Of post-norm models: the norm before qkv is the last layer's, or that of the embeddings. */
static void scale_norms(fl_engine *e, const fl_encoder *encoder) {
    float            one = e->desc.norm == FL_NORM_RMS_PLUS_ONE ? 1.0f : 0.0f;
    const fl_tensor *all = encoder->global;
    for (uint32_t i = 0; i < e->desc.layers; i++) {
        fl_cuda_layer   *layer = &e->layers[i];
        const fl_tensor *own = encoder->layer[i], *last = encoder->layer[i > 0 ? i - 1 : 0];
        fl_cuda_matrix  *qkv = &layer->product[FL_CUDA_QKV], *up = &layer->product[FL_CUDA_UP];
        if (i == 0)
            scale_norm(e, &all[FL_SLOT_EMBED_NORM_W], &all[FL_SLOT_EMBED_NORM_B], 0.0f,
                       &e->embed_norm, qkv);
        else
            scale_norm(e, &last[FL_LAYER_MLP_NORM_W], &last[FL_LAYER_MLP_NORM_B], one,
                       &layer[-1].mlp_norm, qkv);
        scale_norm(e, &own[FL_LAYER_ATTENTION_NORM_W], &own[FL_LAYER_ATTENTION_NORM_B], one,
                   &layer->attention_norm, up);
    }
}

static int move_all(walk *w, mover *m, fletch_error *error) {
    int status = FLETCH_OK;
    for (size_t i = 0; i < w->count; i++)
        if (w->pieces[i].as == AS_E4M3)
            measure_piece(m, &w->pieces[i]);
    for (size_t i = 0; status == FLETCH_OK && i < w->count; i++)
        status = move_piece(m, &w->pieces[i], error);
    return status < 0
               ? status
               : fl_cuda_awaited(m->e, fl_cuda_await(m->e, m->e->slots[0].stream, NULL, 0),
                                 FLETCH_EPROVIDER, error, "the weights did not reach the device");
}

int fl_cuda_upload(fl_engine *e, const fl_encoder *encoder, uint32_t threads, fletch_error *error) {
    walk   counted = {.e = e}, w = {.e = e, .encoder = encoder, .base = e->weights};
    mover  m      = {.e = e};
    float *scales = NULL;
    size_t widest = 0;
    int    status = FLETCH_OK;
    walk_all(&counted, e);
    w.pieces = fl_alloc_zero(counted.count, sizeof *w.pieces);
    if (w.pieces != NULL) {
        walk_all(&w, e);
        scales = prepare_pieces(&w, &widest);
    }
    if (w.pieces == NULL || scales == NULL || w.failed)
        status =
            fl_fail_nomem(error, counted.count * sizeof *w.pieces, "the cuda engine's weights");
    if (status == FLETCH_OK)
        status = open_mover(&m, threads, widest, error);
    if (status == FLETCH_OK)
        status = move_all(&w, &m, error);
    close_mover(&m);
    if (status == FLETCH_OK)
        scale_norms(e, encoder);
    fl_free(scales);
    for (size_t i = 0; i < w.count && w.pieces != NULL; i++)
        fl_free(w.pieces[i].made);
    fl_free(w.pieces);
    return status;
}
