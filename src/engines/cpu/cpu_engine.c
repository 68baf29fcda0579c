/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_engine.c - the CPU engine as engine.h wants it: open packs and reserves, forward only computes.
 *
 * Role     registry.c lists it; the runtime opens one per replica.
 * Method   open checks the descriptor (a switch that is not handled is refused by name), chooses
 *          kernels, sizes blocks from the L2 cache and reserves everything; forward plans the batch
 *          and lets the team run it (cpu_plan.c, cpu_forward.c).
 * Memory   Two big blocks: packed weights, unless they are mapped from a file, and scratch of all threads
 *          with the plan; a third one for prompts of causal models; nothing afterwards.
 * Threads  The caller of forward is thread 0 of the team; one forward at a time.
 * Proof    tests/unit/test_engine*.c; bench/engine.c for the speed. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "engines/cpu/cpu_engine.h"
#include "model/calibration.h"

enum {
    L2_FALLBACK    = 512 * 1024, /* when the machine does not say */
    ROWS_LEAST     = 24,
    ROWS_MOST      = 192,
    Q_RUN_MAX      = 4,  /* query heads of a group at a time: they read the keys' panels in turn */
    EXPERT_ROWS    = 48, /* 192 rows are 48 for each of 8 experts of which 2 are used */
    BATCH_BLOCKS   = 12, /* a thread: a batch of 8 loses 1 to 2 % where threads wait at its end */
    NARROW_LONGEST = 65536 /* 255 * 127 * 65536 < 2^31 (fl_gemm) */
};

static void probe(const fl_engine_options *options, fl_probe *out) {
    const fl_cpu_kernels *kernels;
    fl_cpu                cpu;
    fletch_error          error;
    fl_cpu_detect(&cpu);
    out->usable = fl_cpu_kernels_choose(options->isa, &cpu, &kernels, NULL, 0, &error) == FLETCH_OK;
    if (out->usable) {
        snprintf(out->reason, sizeof out->reason, "%s: %s; %u threads",
                 cpu.name[0] ? cpu.name : "processor", kernels->name, options->threads);
    } else {
        snprintf(out->reason, sizeof out->reason, "%.250s", error.message);
    }
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static const fl_encoder_caps caps = {
    .engine   = "the cpu engine",
    .instead  = "use an engine or a folder with an .onnx file that can",
    .features = FL_CAN(NO_LAYERS) | FL_CAN(WORD_MAP) | FL_CAN(PROJECTION) | FL_CAN(EMBED_SCALE) |
                FL_CAN(NO_EMBED_NORM) | FL_CAN(RMS_NORM) | FL_CAN(PRE_NORM) | FL_CAN(EXTRA_NORM) |
                FL_CAN(FINAL_NORM) | FL_CAN(QK_NORM) | FL_CAN(QK_NORM_WIDE) | FL_CAN(GROUPED) |
                FL_CAN(WIDE_HEADS) | FL_CAN(GLU) | FL_CAN(QUICK_GELU) | FL_CAN(ROPE) |
                FL_CAN(CAUSAL) | FL_CAN(WINDOW) | FL_CAN(T5) | FL_CAN(LAYER_BIAS) | FL_CAN(ALIBI) |
                FL_CAN(DISENTANGLED) | FL_CAN(CAPPED) | FL_CAN(MIXED_RULES) | FL_CAN(EXPERTS) |
                FL_CAN(CONVOLUTION) | FL_CAN(SEGMENTS) | FL_CAN(TASK_TYPE) | FL_CAN(VOCABULARY) |
                FL_CAN(ADAPTERS) | FL_CAN(LATE) | FL_CAN(LONGER_ROPE) | FL_CAN(LATENTS) |
                FL_CAN(PARALLEL)};

/* ---- Sizes and scratch ----------------------------------------------------------------------- */

/* How many rows go through a product at a time: x, y and the tile of the MLP share L2 with the
 * panels that pass through it. */
static size_t rows_for(const fl_engine *e, uint32_t l2_bytes) {
    size_t l2 = l2_bytes ? l2_bytes : L2_FALLBACK;
    size_t rows =
        l2 / 5 * 4 / (sizeof(float) * ((e->pre_norm ? 3 : 2) * e->hidden16 + FL_CPU_MLP_TILE));
    rows = rows < ROWS_LEAST ? ROWS_LEAST : rows > ROWS_MOST ? ROWS_MOST : rows;
    return rows / FL_CPU_TILE * FL_CPU_TILE;
}

static size_t most_experts(const fl_encoder_desc *d) {
    size_t most = 0;
    for (uint32_t i = 0; i < d->layers; i++)
        most = d->layer[i].experts > most ? d->layer[i].experts : most;
    return most;
}

static bool convolves(const fl_encoder_desc *d) {
    bool any = false;
    for (uint32_t i = 0; i < d->layers; i++)
        any = any || d->layer[i].convolves;
    return any;
}

/* A thread has room for a usual block, and alone for what cpu_calibrate.c runs. */
static size_t least_room(const fl_engine *e) {
    return e->block_size > FL_CALIBRATION_LONGEST ? e->block_size : FL_CALIBRATION_LONGEST;
}

static void size_up(fl_engine *e, const fl_encoder *encoder, const fl_engine_options *options,
                    uint32_t l2_bytes) {
    const fl_encoder_desc *d       = &encoder->desc;
    uint32_t               longest = options->max_length ? options->max_length : d->positions;
    size_t                 usual   = options->usual_length ? options->usual_length : longest;
    e->desc                        = *d;
    e->pooling_count               = encoder->pooling_count;
    memcpy(e->pooling, encoder->pooling, sizeof e->pooling);
    e->word           = encoder->global[FL_SLOT_WORD];
    e->word_map       = encoder->global[FL_SLOT_WORD_MAP];
    e->word_scale     = encoder->global[FL_SLOT_WORD_SCALE];
    e->gated          = d->mlp == FL_MLP_GLU;
    e->pre_norm       = d->norm_place == FL_NORM_PRE;
    e->threads        = options->threads ? options->threads : 1;
    e->max_length     = longest < d->positions ? longest : d->positions;
    e->batch_texts    = options->batch_texts ? options->batch_texts : 1;
    e->hidden16       = fl_cpu_pad(d->hidden);
    e->embed16        = fl_cpu_pad(d->embedding);
    e->wide16         = e->embed16 > e->hidden16 ? e->embed16 : e->hidden16;
    e->group          = d->layers > 0 ? d->heads / d->kv_heads : 1;
    e->kv_max         = convolves(d) ? d->heads : d->kv_heads;
    e->q_run          = e->group < Q_RUN_MAX ? e->group : Q_RUN_MAX;
    e->head16         = fl_cpu_pad(d->head_dim);
    e->mlp16          = fl_cpu_pad(d->intermediate);
    e->inner          = d->heads * e->head16;
    e->q_joint        = d->qk_norm == FL_QK_NORM_WIDE ? fl_cpu_pad(fl_q_width(d)) : 0;
    e->k_joint        = d->qk_norm == FL_QK_NORM_WIDE ? fl_cpu_pad(fl_kv_width(d)) : 0;
    e->relative16     = fl_cpu_pad(fl_relative_rows(d));
    e->experts16      = fl_cpu_pad(most_experts(d));
    e->latent.width16 = fl_cpu_pad(d->latents);
    e->latent.mlp16   = d->latents > 0 ? fl_cpu_pad(fl_latent_mlp(d)) : 0;
    e->mlp_tiles      = (e->mlp16 + FL_CPU_MLP_TILE - 1) / FL_CPU_MLP_TILE;
    e->rows_max       = rows_for(e, l2_bytes);
    e->expert_rows = e->experts16 > 0 ? EXPERT_ROWS < e->rows_max ? EXPERT_ROWS : e->rows_max : 0;
    e->block_size  = 2 * e->rows_max;
    usual          = usual < e->max_length ? usual : e->max_length;
    e->block_max   = usual > least_room(e) ? usual : least_room(e);
}

void *fl_cpu_place(char *base, size_t *used, size_t count, size_t size) {
    assert(size > 0);
    void *place = base ? base + *used : NULL;
    *used += (count * size + 63) / 64 * 64;
    return place;
}

fl_cpu_rows fl_cpu_place_rows(const fl_engine *e, char *base, size_t *used, size_t rows,
                              size_t width) {
    fl_cpu_rows b = {0};
    if (e->narrow.quantize)
        b.q = fl_cpu_place(base, used, rows * width, fl_cpu_unit(e));
    if (e->format == FL_CPU_INT8 || e->format == FL_CPU_INT16)
        b.scale = fl_cpu_place(base, used, rows, sizeof *b.scale);
    if (e->format == FL_CPU_INT8)
        b.zero = fl_cpu_place(base, used, rows, sizeof *b.zero);
    return b;
}

static void lay_out_narrow(const fl_engine *e, fl_cpu_scratch *s, char *base, size_t *used) {
    s->x_narrow       = fl_cpu_place_rows(e, base, used, e->block_max, e->hidden16);
    s->context_narrow = fl_cpu_place_rows(e, base, used, e->rows_max,
                                          e->inner > e->hidden16 ? e->inner : e->hidden16);
    s->mlp_narrow     = fl_cpu_place_rows(e, base, used, e->rows_max, FL_CPU_MLP_TILE);
}

static size_t lay_out_scratch(fl_engine *e, char *base) {
    size_t used = 0, real = sizeof(float);
    size_t longest = e->block_max > FL_CPU_KEYS ? e->block_max : FL_CPU_KEYS; /* with a prompt */
    longest        = longest < e->max_length ? longest : e->max_length;
    for (unsigned i = 0; i < e->threads; i++) {
        fl_cpu_scratch *s = &e->scratch[i];
        s->x              = fl_cpu_place(base, &used, e->block_max * e->hidden16, real);
        s->z        = fl_cpu_place(base, &used, e->pre_norm ? e->block_max * e->hidden16 : 0, real);
        s->context  = fl_cpu_place(base, &used, e->block_max * e->inner, real);
        s->joint_qk = fl_cpu_place(base, &used, e->block_max * (e->q_joint + e->k_joint), real);
        s->head     = fl_cpu_place(base, &used, (2 + e->q_run) * e->block_max * e->head16, real);
        s->y        = fl_cpu_place(base, &used, e->rows_max * e->wide16, real);
        s->pair     = fl_cpu_place(base, &used, fl_cpu_pair(e, e->rows_max), real);
        s->mlp      = fl_cpu_place(base, &used, e->rows_max * FL_CPU_MLP_TILE, real);
        s->attention = fl_cpu_place(
            base, &used, fl_cpu_attention_scratch(e->q_run, longest, longest, e->head16), real);
        s->relative = fl_cpu_place(base, &used, fl_cpu_disentangled_scratch(e, e->block_max), real);
        s->expert.gates =
            fl_cpu_place(base, &used, e->experts16 > 0 ? e->rows_max * e->experts16 : 0, real);
        s->expert.in  = fl_cpu_place(base, &used, e->expert_rows * e->hidden16, real);
        s->expert.out = fl_cpu_place(base, &used, e->expert_rows * e->hidden16, real);
        s->latent     = fl_cpu_place(base, &used, e->rows_max * e->latent.width16, real);
        s->max_logits = fl_cpu_place(base, &used, e->desc.mlm ? e->rows_max * e->wide16 : 0, real);
        if (e->format != FL_CPU_FP32)
            lay_out_narrow(e, s, base, &used);
    }
    e->plan.order  = fl_cpu_place(base, &used, e->batch_texts, sizeof *e->plan.order);
    e->plan.blocks = fl_cpu_place(base, &used, e->batch_texts, sizeof *e->plan.blocks);
    e->plan.count  = fl_cpu_place(base, &used, e->max_length + 2, sizeof *e->plan.count);
    e->plan.load   = fl_cpu_place(base, &used, e->threads, sizeof *e->plan.load);
    return used;
}

/* Where memory is short: longer texts by all threads together, then fewer threads. */
static bool do_with_less(fl_engine *e) {
    size_t least = least_room(e), half = e->block_max / 2;
    if (e->block_max > least) {
        e->block_max = half > least ? half : least;
        return true;
    }
    if (e->threads > 1) {
        e->threads /= 2;
        return true;
    }
    return false;
}

static int reserve_all(fl_engine *e, const fl_log *log, fletch_error *error) {
    const unsigned threads = e->threads;
    e->layers              = fl_alloc_zero(e->desc.layers + 1, sizeof *e->layers);
    e->scratch             = fl_alloc_zero(threads, sizeof *e->scratch);
    e->barriers            = fl_alloc_aligned(threads * sizeof *e->barriers, _Alignof(fl_barrier));
    if (e->layers == NULL || e->scratch == NULL || e->barriers == NULL)
        return fl_fail_nomem(error, e->desc.layers * sizeof *e->layers, "the cpu engine");
    do { /* twice as much must be there: weights and stacks are still to come */
        e->arena_bytes = lay_out_scratch(e, NULL);
        e->arena       = fl_big_alloc(2 * e->arena_bytes);
    } while (e->arena == NULL && do_with_less(e));
    if (e->arena == NULL)
        return fl_fail_nomem(error, e->arena_bytes, "the scratch of one thread of the cpu engine");
    if (e->threads < threads) {
        fl_log_write(log, FL_LOG_WARNING,
                     "low on memory: the cpu engine has scratch for %u threads instead of %u; free "
                     "memory, or set cpu.intra_op_threads to %u",
                     e->threads, threads, e->threads);
    }
    fl_big_trim(e->arena, 2 * e->arena_bytes, e->arena_bytes);
    lay_out_scratch(e, e->arena);
    e->huge_pages = fl_big_pages(&e->page_bytes);
    return FLETCH_OK;
}

/* ---- The vtable ------------------------------------------------------------------------------ */

static void close_engine(fl_engine *e) {
    if (e == NULL)
        return;
    fl_team_close(e->team);
    fl_cpu_prompt_close(e);
    fl_cpu_long_close(e);
    fl_cpu_weights_close(e);
    fl_big_free(e->arena, e->arena_bytes);
    fl_free(e->barriers);
    fl_free(e->scratch);
    fl_free(e->layers);
    fl_free(e);
}

const char *const fl_cpu_format_name[] = {[FL_CPU_FP32]  = "fp32",
                                          [FL_CPU_INT8]  = "int8",
                                          [FL_CPU_INT16] = "int16",
                                          [FL_CPU_BF16]  = "bf16"};

static int check_format(const fl_engine *e, fl_cpu_format format, fletch_error *error) {
    const char *precision = fl_cpu_format_name[format];
    if (format != FL_CPU_FP32 && e->kernels->narrow[format].gemm == NULL) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "provider.precision %s: the %s kernels have no %s; use fp32, or another "
                       "cpu.isa",
                       precision, e->kernels->isa, precision);
    }
    if (format != FL_CPU_FP32 && (e->hidden16 > NARROW_LONGEST || e->inner > NARROW_LONGEST)) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "provider.precision %s: products of more than %d steps overflow 32 bits; "
                       "use fp32",
                       precision, NARROW_LONGEST);
    }
    if ((format == FL_CPU_INT8 || format == FL_CPU_INT16) && e->desc.layers == 0) {
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "provider.precision %s: %s has no layers that could be computed in it; use fp32",
            precision, e->desc.architecture);
    }
    if (format != FL_CPU_FP32 && e->experts16 > 0) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "provider.precision %s: rounding sends tokens to other experts, and some "
                       "vectors of %s are far off; use fp32",
                       precision, e->desc.architecture);
    }
    return FLETCH_OK;
}

/* "fast": int16, which is nearer to fp32 than bf16 and on no table slower, where the kernels gain by it. By what
 * table and model are alone, so bytes are the machine's and not the moment's. */
static void choose_fast(fl_engine *e) {
    const char  *found = "gain by it";
    fletch_error ignored;
    if (!e->kernels->narrow[FL_CPU_INT16].pays)
        found = "gain nothing from lower precision";
    else if (e->desc.layers == 0)
        found = "have nothing to gain in this model";
    else if (check_format(e, FL_CPU_INT16, &ignored) != FLETCH_OK)
        found = "are close enough to this model's vectors only in fp32";
    else
        e->format = FL_CPU_INT16;
    snprintf(e->why_format, sizeof e->why_format, "fast: the %s kernels %s", e->kernels->isa,
             found);
}

/* "auto" is fp32: what a machine is asked without more words is exact. */
static int choose_precision(fl_engine *e, const char *precision, fletch_error *error) {
    size_t format = 0, formats = FL_CPU_BF16 + 1;
    if (fl_engine_chooses(precision)) {
        if (precision != NULL && strcmp(precision, "fast") == 0)
            choose_fast(e);
        return FLETCH_OK;
    }
    while (format < formats && strcmp(precision, fl_cpu_format_name[format]) != 0)
        format++;
    if (format == formats) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "provider.precision %s: the cpu engine computes in fp32, bf16, int16 and "
                       "int8; use one of them, fast or auto",
                       precision);
    }
    FL_TRY(check_format(e, (fl_cpu_format)format, error));
    e->format = (fl_cpu_format)format;
    return FLETCH_OK;
}

static const char *const kept_name[] = {[FL_CPU_WEIGHTS_FLOAT]  = "float",
                                        [FL_CPU_WEIGHTS_AUTO]   = "auto",
                                        [FL_CPU_WEIGHTS_STORED] = "stored",
                                        [FL_CPU_WEIGHTS_Q8]     = "q8",
                                        [FL_CPU_WEIGHTS_Q4]     = "q4"};

/* Groups are for float32 rows: the other precisions have small weights of their own. */
static int choose_weights(fl_engine *e, const char *precision, const char *weights,
                          fletch_error *error) {
    size_t kept = FL_CPU_WEIGHTS_Q4;
    while (kept > 0 && weights != NULL && strcmp(weights, kept_name[kept]) != 0)
        kept--;
    e->weights_kept = weights == NULL ? FL_CPU_WEIGHTS_AUTO : (fl_cpu_weights)kept;
    if (e->weights_kept <= FL_CPU_WEIGHTS_STORED) {
        e->weights_kept = e->format == FL_CPU_FP32 ? e->weights_kept : FL_CPU_WEIGHTS_FLOAT;
        return FLETCH_OK;
    }
    if (e->desc.layers == 0) {
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "model.weights %s: %s has no layers whose weights could be stored that way; use auto",
            weights, e->desc.architecture);
    }
    if (e->experts16 > 0) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "model.weights %s: rounding the weights sends tokens to other experts, and "
                       "some vectors of %s are far off; use auto",
                       weights, e->desc.architecture);
    }
    if (e->format != FL_CPU_FP32 && !fl_engine_chooses(precision)) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "model.weights %s is for fp32 products, and provider.precision is %s, which "
                       "has its own weights; leave one of the two at auto",
                       weights, precision);
    }
    if (e->format != FL_CPU_FP32) {
        e->format = FL_CPU_FP32;
        snprintf(e->why_format, sizeof e->why_format, "fast: weights kept in %s are multiplied so",
                 weights);
    }
    return FLETCH_OK;
}

/* Ranks of the group that the longest text is worth. */
static unsigned longest_group(const fl_engine *e) {
    double       cost = fl_cpu_text_cost(e, (double)e->max_length);
    fl_cpu_block text = {0, 1, (uint32_t)e->max_length, cost};
    return fl_cpu_group_size(e, &text);
}

static int prepare(fl_engine *e, const fl_encoder *encoder, const fl_engine_options *options,
                   fletch_error *error) {
    fl_cpu cpu;
    fl_cpu_detect(&cpu);
    FL_TRY(fl_cpu_kernels_choose(options->isa, &cpu, &e->kernels, e->why, sizeof e->why, error));
    size_up(e, encoder, options, options->l2_bytes ? options->l2_bytes : cpu.l2_bytes);
    FL_TRY(choose_precision(e, options->precision, error));
    FL_TRY(choose_weights(e, options->precision, options->weights, error));
    e->narrow = e->kernels->narrow[e->format];
    e->narrow = options->portable ? fl_cpu_narrow_portable(e->narrow) : e->narrow;
    FL_TRY(reserve_all(e, options->log, error));
    snprintf(e->device, sizeof e->device, "%s", cpu.name[0] ? cpu.name : "processor");
    e->pinned = options->cores != NULL;
    e->trace  = options->trace;
    FL_TRY(fl_team_open(&e->team, e->threads, options->cores, error));
    FL_TRY(fl_cpu_prompt_open(e, error));
    fl_cpu_cost_open(e);
    FL_TRY(fl_cpu_weights_open(e, encoder, options, error));
    e->long_ranks = longest_group(e);
    return FLETCH_OK;
}

static int open_engine(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                       fletch_error *error) {
    *out = NULL;
    FL_TRY(fl_encoder_supported(&encoder->desc, &caps, error));
    FL_TRY(fl_encoder_check_slots(encoder, error));
    FL_TRY(fl_cpu_check_word_map(encoder, error));
    fl_engine *e = fl_alloc_aligned(sizeof *e, _Alignof(fl_engine));
    if (e == NULL)
        return fl_fail_nomem(error, sizeof *e, "the cpu engine");
    memset(e, 0, sizeof *e);
    int status = prepare(e, encoder, options, error);
    if (status < 0) {
        close_engine(e);
        return status;
    }
    *out = e;
    return FLETCH_OK;
}

/* Every thread: walk through its group's blocks with the others, then take blocks until none is left. */
static void run(void *arg, unsigned thread, unsigned size) {
    fl_engine         *e     = arg;
    const fl_cpu_plan *plan  = &e->plan;
    unsigned           group = thread / plan->ranks;
    (void)size;
    for (uint32_t b = group; group < plan->groups && b < plan->shared; b += plan->groups)
        fl_cpu_run_block(e, &plan->blocks[b], thread, plan->ranks);
    for (unsigned b = atomic_fetch_add(&e->next_block, 1); b < e->plan.block_count;
         b          = atomic_fetch_add(&e->next_block, 1))
        fl_cpu_run_block(e, &e->plan.blocks[b], thread, 1);
}

void fl_cpu_run_batch(fl_engine *e, const fl_batch *batch) {
    assert(batch->texts > 0);
    e->batch = batch;
    fl_cpu_plan_make(e, batch);
    atomic_store(&e->next_block, e->plan.shared);
    atomic_store(&e->bad_text, UINT32_MAX);
    atomic_store(&e->no_memory, false);
    for (unsigned group = 0; group < e->plan.groups; group++)
        fl_barrier_init(&e->barriers[group], e->team, e->plan.ranks);
    fl_team_run_some(e->team, e->plan.threads, run, e);
}

/* Texts [first, last) of a batch. */
static fl_batch part_of(const fl_batch *batch, uint32_t first, uint32_t last) {
    assert(first < last && last <= batch->texts);
    fl_batch part  = *batch;
    part.cu        = batch->cu + first; /* into the same ids */
    part.texts     = last - first;
    part.tokens    = batch->cu[last] - batch->cu[first];
    part.rows      = batch->rows ? batch->rows + first : NULL;
    part.each      = batch->each ? batch->each + first : NULL;
    part.segment   = batch->segment ? batch->segment + first : NULL;
    part.pool_skip = batch->pool_skip ? batch->pool_skip + first : NULL;
    return part;
}

/* `first`: of the texts that were run. */
static int result_of(fl_engine *e, uint32_t first, fletch_error *error) {
    unsigned bad = atomic_load(&e->bad_text);
    if (bad != UINT32_MAX) {
        return fl_fail(
            error, FLETCH_EMODEL, first + bad,
            "the vector of a text is not finite: the weights hold NaN or infinite values, or "
            "overflow float32. Run `fletch model verify` or pull the model again");
    }
    return atomic_load(&e->no_memory)
               ? fl_fail_nomem(error, e->desc.vocab * sizeof(float), "the weights of a text")
               : FLETCH_OK;
}

static int run_parts(fl_engine *e, const fl_batch *batch, fletch_error *error) {
    e->prompt.spared = 0;
    for (uint32_t first = 0, last; first < batch->texts; first = last) {
        last                = fl_cpu_prompt_run(e, batch, first);
        const fl_batch part = part_of(batch, first, last);
        fl_cpu_prompt_prepare(e, &part);
        fl_cpu_run_batch(e, &part);
        e->prompt.spared += e->prompt.saved;
        FL_TRY(result_of(e, first, error));
    }
    return FLETCH_OK;
}

static int forward(fl_engine *e, uint32_t slot, const fl_batch *batch, fletch_error *error) {
    assert(batch->texts > 0 && batch->cu[0] == 0 && batch->cu[batch->texts] == batch->tokens);
    assert(batch->rows || batch->terms);
    (void)slot; /* there is one */
    if (batch->texts == 0)
        return FLETCH_OK;
    if (batch->texts > e->batch_texts) {
        return fl_fail(error, FLETCH_EINTERNAL, FLETCH_NOWHERE, "batch of %u texts, opened for %zu",
                       batch->texts, e->batch_texts);
    }
    uint32_t longest = 0;
    for (uint32_t t = 0; t < batch->texts; t++) {
        uint32_t length = batch->cu[t + 1] - batch->cu[t];
        longest         = length > longest ? length : longest;
        if (length == 0 || length > e->max_length) {
            return fl_fail(error, FLETCH_EINTERNAL, t, "text of %u tokens, opened for 1 to %zu",
                           length, e->max_length);
        }
    }
    FL_TRY(fl_cpu_long_reserve(e, longest, error));
    if (fl_cpu_prompt_divides(e, batch))
        return run_parts(e, batch, error);
    fl_cpu_prompt_prepare(e, batch);
    fl_cpu_run_batch(e, batch);
    e->prompt.spared = e->prompt.saved;
    return result_of(e, 0, error);
}

static uint32_t devices(const fl_engine_options *options) {
    assert(options);
    (void)options;
    return 1;
}

static void info(const fl_engine *e, fl_engine_info *out) {
    *out = (fl_engine_info){.device         = e->device,
                            .precision      = fl_cpu_format_name[e->format],
                            .slots          = 1,
                            .best_tokens    = e->threads * (uint32_t)e->block_size * BATCH_BLOCKS,
                            .any_thread     = !e->pinned,
                            .deterministic  = true,
                            .token_rows     = e->desc.layers > 0 && !e->desc.mlm,
                            .blind_tokens   = true,
                            .resident_bytes = (e->borrows ? 0 : e->weights_bytes) +
                                              e->prompt.bytes + (e->word.map ? e->word.bytes : 0)};
}

static bool has_groups(const fl_engine *e) {
    bool any = false;
    for (uint32_t i = 0; i < e->desc.layers; i++) {
        const fl_cpu_layer *l = &e->layers[i];
        any = any || l->qkv_form.groups.bits || l->out_form.groups.bits || l->up_form.groups.bits ||
              l->down_form.groups.bits;
    }
    return any;
}

static int describe(const fl_engine *e, fletch_property_fn fn, void *user) {
    char threads[16], weights[32], scratch[32], blocks[64], panels[120], reserved[80],
        precision[32];
    snprintf(threads, sizeof threads, "%u", e->threads);
    snprintf(weights, sizeof weights, "%zu", e->weights_bytes);
    snprintf(scratch, sizeof scratch, "%zu", e->arena_bytes);
    snprintf(blocks, sizeof blocks, "%zu rows at a time, %zu tokens a block", e->rows_max,
             e->block_size);
    snprintf(reserved, sizeof reserved, "reserved when opening, for texts of up to %zu tokens",
             e->block_max < e->max_length ? e->block_max : e->max_length);
    const bool rounded = e->weights_kept > FL_CPU_WEIGHTS_STORED;
    snprintf(panels, sizeof panels, "packed %s panels%s%s", fl_cpu_format_name[e->format],
             e->borrows ? ", those of another replica of the node" : "",
             rounded         ? ", weights rounded to groups"
             : has_groups(e) ? ", weights as stored"
                             : "");
    snprintf(precision, sizeof precision, "%s%s%s", fl_cpu_format_name[e->format],
             rounded ? " of weights in " : "", rounded ? kept_name[e->weights_kept] : "");
    const char *lines[][3] = {
        {"cpu.isa", e->kernels->isa, e->why},
        {"cpu.kernels", e->kernels->name, ""},
        {"cpu.numerics", fl_cpu_narrow_numerics(&e->narrow, e->kernels->isa), ""},
        {"cpu.threads", threads, ""},
        {"cpu.precision", precision, e->why_format},
        {"cpu.weights_bytes", weights, panels},
        {"cpu.scratch_bytes", scratch, reserved},
        {"cpu.blocking", blocks, "from the L2 cache"},
        {"cpu.pack_cache", e->panels->file.data ? "mapped" : "none", e->pack_note}};
    size_t count = sizeof lines / sizeof *lines - (e->pack_note[0] == '\0');
    int    stop  = 0;
    for (size_t i = 0; i < count && stop == 0; i++)
        stop = fn(user, lines[i][0], lines[i][1], lines[i][2]);
    return stop;
}

const fl_engine_ops fl_cpu_engine_ops = {.abi            = FL_ENGINE_ABI,
                                         .name           = "cpu",
                                         .rounds_weights = true,
                                         .portable       = true,
                                         .probe          = probe,
                                         .open           = open_engine,
                                         .devices        = devices,
                                         .forward        = forward,
                                         .close          = close_engine,
                                         .info           = info,
                                         .memory         = fl_cpu_memory,
                                         .warm           = NULL,
                                         .describe       = describe};
