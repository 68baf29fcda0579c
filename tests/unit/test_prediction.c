/* SPDX-License-Identifier: Apache-2.0 */
/* test_prediction.c - what the cpu engine says a batch takes is what it takes: at most 10 % off.
 *
 * Every shape is measured in a process of its own: a fresh engine is opened there, the anonymous pages
 * of the process are counted (/proc/self/smaps_rollup), the batch runs, and they are counted again. Which of
 * two threads takes a block is a matter of luck, and the prediction is for the worst: so each is given all
 * of them. Small pages and huge ones are measured where the kernel has them, and blocks as the caches of
 * several processors make them, whichever this one has. The fixed part allows for what belongs to no
 * array: stacks, the allocator, counters. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "engines/cpu/cpu_engine.h"
#include "measured.h"

enum {
    FIXED   = 40 * 1024, /* bytes that are nobody's: stacks of threads, allocator */
    STARTED = 96 * 1024  /* the same when opening, with all that starting threads touches */
};

/* L2 of a core: what processors have. */
static const uint32_t caches[] = {512 << 10, 1 << 20, 2 << 20};

typedef struct result {
    int64_t  opened, resident; /* growth by open, and what info says of it */
    int64_t  ran, predicted;   /* growth by forward, and what memory says of it */
    uint32_t tokens;
} result;

typedef struct job {
    const toy  *toy;
    shape       shape;
    unsigned    threads;
    bool        huge;
    const char *precision;
    uint32_t    usual; /* length, 0 for the longest */
    uint32_t    l2_bytes;
} job;

static bool agree(int64_t told, int64_t real, int64_t nobodys) {
    int64_t off = llabs((long long)(told - real));
    return off * 10 <= real || off <= nobodys;
}

static bool near(const result *r) {
    return agree(r->predicted, r->ran, FIXED) && agree(r->resident, r->opened, STARTED);
}

/* Where lengths differ and there are two threads, two plans may take about as long: the dearer one is promised. */
static bool holds(const result *r, const job *j) {
    bool dearer = j->threads == 2 && j->shape.lengths == MIXED;
    return near(r) || (dearer && agree(r->resident, r->opened, STARTED) && r->ran < r->predicted &&
                       r->ran * 2 >= r->predicted);
}

/* The blocks of the forward that was, by each thread that might have taken them; of those of one size, which
 * write the same places, the first. */
static void run_all_by_each(fl_engine *e) {
    const fl_cpu_plan *plan    = &e->plan;
    unsigned           threads = plan->block_count > 1 ? e->threads : 1;
    for (uint32_t b = plan->shared; b < plan->block_count; b++) {
        const fl_cpu_block *at = &plan->blocks[b], *before = at - 1;
        bool                again = b > plan->shared && at->tokens == before->tokens &&
                     at->last - at->first == before->last - before->first;
        for (unsigned thread = 0; !again && thread < threads; thread++)
            fl_cpu_run_block(e, at, thread, 1);
    }
}

static void measure(const void *one, void *out) {
    const job           *j     = one;
    result              *r     = out;
    const fl_engine_ops *ops   = fl_engine_find("cpu");
    fl_batch             batch = make_batch(j->toy, &j->shape);
    fl_engine_info       info;
    fletch_error         error;
    prctl(PR_SET_THP_DISABLE, !j->huge, 0, 0, 0);
    (void)anonymous_bytes(); /* stdio's buffer is there now */
    int64_t    begin = anonymous_bytes();
    fl_engine *engine =
        toy_open_sized(j->toy, j->precision, j->threads, "auto", 256,
                       j->toy->encoder.desc.positions, j->usual, j->l2_bytes, &error);
    int64_t opened = anonymous_bytes();
    if (engine == NULL || begin < 0)
        _exit(1);
    ops->info(engine, &info);
    r->opened    = opened - begin;
    r->resident  = (int64_t)info.resident_bytes;
    r->tokens    = batch.tokens;
    r->predicted = (int64_t)ops->memory(engine, batch.texts, batch.tokens, j->shape.longest);
    if (ops->forward(engine, 0, &batch, &error) < 0)
        _exit(1);
    run_all_by_each(engine);
    r->ran = anonymous_bytes() - opened;
}

static void show(const job *j, const result *r) {
    fprintf(
        stderr,
        "%s, L2 of %u KiB, %s pages, %u threads, %3u texts up to %3u (%s), %5u tokens: took %7ld, "
        "predicted %7ld (%+.1f %%); open took %ld, info says %ld\n",
        j->precision, j->l2_bytes >> 10, j->huge ? "huge" : "small", j->threads, j->shape.texts,
        j->shape.longest, j->shape.lengths == EQUAL ? "equal" : "mixed", r->tokens, (long)r->ran,
        (long)r->predicted, 100.0 * (double)(r->predicted - r->ran) / (double)r->ran,
        (long)r->opened, (long)r->resident);
}

/* How many of the jobs `like` with these shapes took something else than was said. */
static int wrong_of(job like, const shape *shapes, size_t count) {
    int wrong = 0;
    for (size_t i = 0; i < count; i++) {
        result r;
        int    status;
        like.shape = shapes[i];
        cr_assert(run_apart(measure, &like, &r, sizeof r, &status), "the measured process failed");
        if (!holds(&r, &like) || getenv("FLETCH_SHOW"))
            show(&like, &r);
        wrong += !holds(&r, &like);
    }
    return wrong;
}

/* Each cache with one thread and with two, with small pages and with huge ones; in check-full each pair of these. */
static void check_usual(const toy_spec *spec, const char *precision, uint32_t usual,
                        const shape *shapes, size_t count) {
    toy t;
    toy_make(&t, spec, 5);
    int wrong = 0;
    for (size_t c = 0; c < sizeof caches / sizeof *caches; c++) {
        for (unsigned way = 0; way < 4; way++) {
            if (!toy_rounds(0, 1) && (way % 2 != way / 2) != c % 2)
                continue;
            wrong += wrong_of((job){.toy       = &t,
                                    .threads   = 1 + way % 2,
                                    .huge      = way >= 2,
                                    .precision = precision,
                                    .usual     = usual,
                                    .l2_bytes  = caches[c]},
                              shapes, count);
        }
    }
    toy_free(&t);
    cr_assert_eq(wrong, 0, "%d predictions are more than 10 %% off", wrong);
}

static void check_all(const toy_spec *spec, const char *precision, const shape *shapes,
                      size_t count) {
    check_usual(spec, precision, 0, shapes, count);
}

Test(prediction, toy_encoder) {
    const toy_spec spec   = {.layers        = 2,
                             .hidden        = 48,
                             .heads         = 3,
                             .head_dim      = 16,
                             .mlp           = 100,
                             .vocab         = 50,
                             .positions     = 512,
                             .activation    = FL_ACT_GELU_ERF,
                             .dtype         = FL_DTYPE_F32,
                             .pooling       = {FL_POOL_MEAN},
                             .pooling_count = 1};
    const shape    toys[] = {{1, 1, EQUAL},    {1, 16, EQUAL},  {1, 128, EQUAL}, {1, 512, EQUAL},
                             {2, 100, EQUAL},  {3, 33, MIXED},  {8, 16, EQUAL},  {8, 512, MIXED},
                             {17, 200, MIXED}, {64, 1, EQUAL},  {64, 32, EQUAL}, {64, 128, MIXED},
                             {256, 1, EQUAL},  {256, 8, EQUAL}, {256, 64, MIXED}};
    check_all(&spec, "fp32", toys, sizeof toys / sizeof *toys);
}

/* Pre-norm, gated, grouped; texts of several blocks of keys, and rows that pooling reads alone. */
Test(prediction, long_texts_of_other_layers) {
    toy_spec    spec     = {.layers    = 2,
                            .hidden    = 96,
                            .heads     = 6,
                            .kv_heads  = 1,
                            .head_dim  = 32,
                            .mlp       = 400,
                            .vocab     = 50,
                            .positions = 4096,
                            TOY_DECODER,
                            .rope_dims     = 32,
                            .window        = 200,
                            .alternate     = true,
                            .embedding     = 40,
                            .pooling       = {FL_POOL_CLS},
                            .pooling_count = 1};
    const shape shapes[] = {{1, 4096, EQUAL}, {1, 700, EQUAL}, {2, 1500, EQUAL},
                            {8, 64, EQUAL},   {64, 12, EQUAL}, {6, 1200, MIXED}};
    check_all(&spec, "fp32", shapes, sizeof shapes / sizeof *shapes);
    check_all(&spec, "int8", shapes, sizeof shapes / sizeof *shapes);
    check_all(&spec, "int16", shapes, sizeof shapes / sizeof *shapes);
    check_all(&spec, "bf16", shapes, sizeof shapes / sizeof *shapes);
}

/* Texts that no thread alone has room for, with others and without. */
Test(prediction, longer_than_usual) {
    const toy_spec pre       = {.layers    = 2,
                                .hidden    = 96,
                                .heads     = 6,
                                .kv_heads  = 2,
                                .head_dim  = 32,
                                .mlp       = 400,
                                .vocab     = 50,
                                .positions = 4096,
                                TOY_DECODER,
                                .rope_dims     = 32,
                                .pooling       = {FL_POOL_MEAN},
                                .pooling_count = 1};
    const shape    longer[]  = {{1, 4096, EQUAL}, {1, 900, EQUAL}, {2, 1500, EQUAL}};
    const shape    between[] = {{1, 500, EQUAL}, {64, 12, EQUAL}, {64, 60, MIXED}};
    check_usual(&pre, "fp32", 128, longer, sizeof longer / sizeof *longer);
    check_usual(&pre, "bf16", 128, longer, sizeof longer / sizeof *longer);
    check_usual(&pre, "fp32", 128, between, sizeof between / sizeof *between);
}

/* What is kept of prompts is taken when opening. */
Test(prediction, causal_layers) {
    const toy_spec spec     = {.layers    = 3,
                               .hidden    = 96,
                               .heads     = 6,
                               .kv_heads  = 2,
                               .head_dim  = 32,
                               .mlp       = 400,
                               .vocab     = 50,
                               .positions = 1024,
                               TOY_DECODER,
                               .rope_dims     = 32,
                               .causal        = true,
                               .pooling       = {FL_POOL_LAST_TOKEN},
                               .pooling_count = 1};
    const shape    shapes[] = {{1, 1024, EQUAL}, {1, 20, EQUAL}, {2, 700, EQUAL}, {64, 100, MIXED}};
    check_all(&spec, "fp32", shapes, sizeof shapes / sizeof *shapes);
}

/* Scores of content and distance, of texts longer than the queries that are taken at a time. */
Test(prediction, disentangled_layers) {
    const toy_spec spec     = {.layers        = 2,
                               .hidden        = 96,
                               .heads         = 3,
                               .head_dim      = 32,
                               .mlp           = 400,
                               .vocab         = 50,
                               .positions     = 1024,
                               .relative      = 256,
                               .no_positions  = true,
                               .pooling       = {FL_POOL_MEAN},
                               .pooling_count = 1};
    const shape    longer[] = {{1, 1024, EQUAL}, {1, 300, EQUAL}};
    const shape    shapes[] = {
           {1, 1024, EQUAL}, {1, 20, EQUAL}, {2, 700, EQUAL}, {64, 12, EQUAL}, {64, 100, MIXED}};
    check_all(&spec, "fp32", shapes, sizeof shapes / sizeof *shapes);
    check_all(&spec, "int8", shapes, sizeof shapes / sizeof *shapes);
    check_usual(&spec, "fp32", 128, longer, sizeof longer / sizeof *longer);
}

/* Rows on their way through experts, and heads that are normed side by side. */
Test(prediction, experts_and_norms_over_all_heads) {
    const toy_spec spec     = {.layers        = 2,
                               .hidden        = 96,
                               .heads         = 6,
                               .head_dim      = 20,
                               .mlp           = 400,
                               .vocab         = 50,
                               .positions     = 1024,
                               .qk_norm       = FL_QK_NORM_WIDE,
                               .experts       = 4,
                               .experts_used  = 2,
                               .alibi         = true,
                               .no_positions  = true,
                               .pooling       = {FL_POOL_MEAN},
                               .pooling_count = 1};
    const shape    shapes[] = {
           {1, 1024, EQUAL}, {1, 20, EQUAL}, {2, 700, EQUAL}, {64, 12, EQUAL}, {64, 100, MIXED}};
    check_all(&spec, "fp32", shapes, sizeof shapes / sizeof *shapes);
}

static const toy_spec minilm = {TOY_MINILM, .type = true};

static const shape shapes[] = {{1, 1, EQUAL},    {1, 24, EQUAL},  {1, 200, EQUAL},  {1, 512, EQUAL},
                               {2, 12, EQUAL},   {4, 64, EQUAL},  {4, 512, EQUAL},  {7, 77, MIXED},
                               {16, 16, EQUAL},  {8, 512, MIXED}, {32, 100, EQUAL}, {64, 24, MIXED},
                               {64, 100, MIXED}, {256, 1, EQUAL}, {256, 16, MIXED}};

Test(prediction, minilm_shape, .timeout = 1800) {
    check_all(&minilm, "fp32", shapes, sizeof shapes / sizeof *shapes);
}

/* Split groups side by side, each with rows of its own. */
Test(prediction, many_threads, .timeout = 1800) {
    static const shape few[] = {{1, 24, EQUAL}, {1, 512, EQUAL}, {6, 40, EQUAL}, {8, 16, EQUAL}};
    toy                t;
    int                wrong = 0;
    toy_make(&t, &minilm, 5);
    for (unsigned threads = 16; threads <= 48; threads += 32) {
        wrong += wrong_of(
            (job){.toy = &t, .threads = threads, .precision = "fp32", .l2_bytes = caches[1]}, few,
            sizeof few / sizeof *few);
    }
    toy_free(&t);
    cr_assert_eq(wrong, 0, "%d predictions are more than 10 %% off", wrong);
}

/* Narrow rows and their scales are arrays of their own. */
Test(prediction, narrow_formats, .timeout = 1800) {
    static const shape few[] = {{1, 24, EQUAL}, {1, 512, EQUAL}, {16, 16, EQUAL}, {64, 100, MIXED}};
    check_all(&minilm, "int8", few, sizeof few / sizeof *few);
    check_all(&minilm, "int16", few, sizeof few / sizeof *few);
    check_all(&minilm, "bf16", few, sizeof few / sizeof *few);
}

/* What an engine for 64 threads and long texts is like where so much address space is left. */
typedef struct found {
    unsigned threads;
    size_t   block_max;
} found;

static void open_in_little(const void *left, void *to) {
    toy            t;
    found         *out   = to;
    const rlim_t   bytes = *(const rlim_t *)left;
    const toy_spec spec  = {.layers        = 1,
                            .hidden        = 256,
                            .heads         = 4,
                            .head_dim      = 64,
                            .mlp           = 512,
                            .vocab         = 50,
                            .positions     = 32768,
                            .no_positions  = true,
                            .pooling       = {FL_POOL_MEAN},
                            .pooling_count = 1};
    unsigned long  pages = 0;
    fletch_error   error;
    toy_make(&t, &spec, 1);
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu", &pages) != 1)
        _exit(1);
    struct rlimit limit = {pages * (rlim_t)sysconf(_SC_PAGESIZE) + bytes, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    fl_engine *engine = toy_open_sized(&t, "fp32", 64, "auto", 64, 32768, 32768, caches[0], &error);
    if (engine == NULL)
        _exit(1);
    *out = (found){engine->threads, engine->block_max};
}

Test(prediction, a_smaller_scratch_where_memory_is_short) {
    found  out;
    int    status;
    rlim_t much = (rlim_t)64 << 30, some = (rlim_t)1200 << 20;
    cr_assert(run_apart(open_in_little, &much, &out, sizeof out, &status));
    cr_expect_eq(out.block_max, 32768);
    cr_expect_eq(out.threads, 64);
    cr_assert(run_apart(open_in_little, &some, &out, sizeof out, &status));
    cr_expect_lt(out.block_max, 32768);
    cr_expect_eq(out.threads, 64);
}
