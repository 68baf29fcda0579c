/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - the CPU engine alone: tokens per second, share of the FMA peak, latency of one text.
 *
 *     bench_engine [FOLDER|minilm|mpnet] [-t THREADS] [-s SECONDS] [-i ISA] [-p PRECISION]
 *                  [-o short|long|latency] [-n TEXTS [-l LENGTH] [-d]]
 *
 * FOLDER is a model folder; the two names are random weights of those shapes, which run at the same
 * speed. Lengths are drawn from the histograms of STS-B sentences (short, mean 14.7) and of
 * Cranfield abstracts (long, mean 176); ids are random. GFLOP/s count 2 per multiply-add of the
 * matrices and of the pairs of tokens that a layer lets see each other (src/model/flops.c). The floor is the
 * time that these take at the peak of the instruction set that the engine chose, measured on one thread first
 * (peak.h): the matrices' in the precision, the pairs' in that of attention, which is bf16 where the kernels of a
 * reduced precision have that, else fp32. A share is the floor over the time.
 * The figure is the best and the median of passes: other work on the machine only ever makes a pass
 * slower. Processor time is that of all threads, also where they are more than cores. -n: so many texts of 16
 * tokens, or LENGTH, at a time, and nothing else; -d: how they would be dealt out, as JSON (bench/cores.py). */
#include "base/clock.h"
#include "engines/cpu/cpu_engine.h"
#include "measure.h"
#include "model/model.h"
#include "peak.h"

enum { BATCH_TOKENS = 1 << 19, BATCH_TEXTS = 4096, PASSES_MAX = 4096, PEAK_PASSES = 40 };

typedef struct bench {
    fl_encoder  encoder;
    fl_model   *model;
    fl_engine  *engine;
    unsigned    threads;
    uint32_t    together, length; /* -n, -l */
    bool        dry;
    double      seconds, peak, pair_peak; /* GFLOP/s of a thread: of matrices, of attention */
    const char *isa, *precision;
    float      *out;
    float      *rows[BATCH_TEXTS];
    int32_t     ids[BATCH_TOKENS];
    uint32_t    cu[BATCH_TEXTS + 1];
} bench;

/* Upper ends of the bins and how many texts fall into each. */
static const uint32_t bin_end[]   = {8, 12, 16, 24, 32, 64, 128, 192, 255, 256};
static const uint32_t short_bin[] = {1141, 4581, 2114, 1418, 825, 456, 1, 0, 0, 0};
static const uint32_t long_bin[]  = {2, 0, 0, 0, 2, 51, 344, 380, 267, 354};

static uint32_t draw_length(const uint32_t *bin) {
    uint32_t total = 0, at = 0;
    for (int i = 0; i < 10; i++)
        total += bin[i];
    uint32_t pick = draw(total);
    while (pick >= bin[at])
        pick -= bin[at++];
    uint32_t low = at == 0 ? 5 : bin_end[at - 1] + 1;
    if (bin == short_bin && at == 5)
        return low + draw(16); /* the tail of STS-B is thin: 33 to 48 */
    return low + draw(bin_end[at] - low + 1);
}

/* With one thread its processor time counts. */
static uint64_t clock_of(const bench *b) {
    return read_clock(b->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

/* GFLOP/s of one thread that does nothing but such multiply-adds; 0: nothing measures them here. */
static double measure_peak(const char *isa, const char *precision) {
    peak_loop loop              = peak_of(isa, precision);
    double    rate[PEAK_PASSES] = {0};
    for (int pass = 0; loop && pass < PEAK_PASSES; pass++) {
        uint64_t start = read_clock(CLOCK_THREAD_CPUTIME_ID);
        double   done  = 2.0 * loop(200000);
        rate[pass]     = done / (double)(read_clock(CLOCK_THREAD_CPUTIME_ID) - start);
    }
    qsort(rate, PEAK_PASSES, sizeof *rate, by_value);
    return loop ? rate[PEAK_PASSES * 3 / 4] : 0.0; /* the clock of a virtual machine leaps */
}

static void measure_peaks(bench *b) {
    const char *isa = b->engine->kernels->isa;
    double      fma = measure_peak(isa, "fp32");
    b->peak         = measure_peak(isa, b->precision);
    b->pair_peak    = b->engine->narrow.attention ? measure_peak(isa, "bf16") : fma;
    printf("peak of %s with %s %.1f GFLOP/s a thread, of fp32 %.1f, of attention %.1f\n",
           b->precision, isa, b->peak, fma, b->pair_peak);
}

/* 2 for a multiply-add; and the ns that one thread needs at the peak. */
static double flops(const bench *b, uint32_t tokens) {
    return (double)fl_encoder_flops(&b->encoder.desc, tokens);
}
static double floor_of(const bench *b, uint32_t tokens) {
    double pairs = (double)fl_encoder_pair_flops(&b->encoder.desc, tokens);
    return (flops(b, tokens) - pairs) / b->peak + pairs / b->pair_peak;
}

static fl_batch make_batch(bench *b, const uint32_t *bin, uint32_t texts, uint32_t fixed) {
    fl_batch batch = {.ids = b->ids, .cu = b->cu, .rows = b->rows};
    for (; batch.texts < texts; batch.texts++) {
        uint32_t n = fixed ? fixed : draw_length(bin);
        if (batch.tokens + n > BATCH_TOKENS)
            break;
        for (uint32_t i = 0; i < n; i++)
            b->ids[batch.tokens + i] = (int32_t)draw(b->encoder.desc.vocab);
        batch.tokens += n;
        b->cu[batch.texts + 1] = batch.tokens;
    }
    return batch;
}

static void forward(bench *b, const fl_batch *batch) {
    fletch_error error;
    if (fl_engine_find("cpu")->forward(b->engine, 0, batch, &error) < 0)
        stop("forward", error.message);
}

static void throughput(bench *b, const char *name, const uint32_t *bin, uint32_t texts) {
    static double rate[PASSES_MAX];
    fl_batch      batch = make_batch(b, bin, texts, 0);
    double        work = 0.0, least = 0.0;
    size_t        passes = 0;
    for (uint32_t t = 0; t < batch.texts; t++) {
        work += flops(b, b->cu[t + 1] - b->cu[t]);
        least += floor_of(b, b->cu[t + 1] - b->cu[t]) / b->threads;
    }
    forward(b, &batch);
    for (uint64_t end = fl_clock_ns() + (uint64_t)(b->seconds * 1e9);
         passes < 3 || (fl_clock_ns() < end && passes < PASSES_MAX); passes++) {
        uint64_t start = clock_of(b);
        forward(b, &batch);
        rate[passes] = work / (double)(clock_of(b) - start);
    }
    qsort(rate, passes, sizeof *rate, by_value);
    double best = rate[passes - 1], middle = rate[passes / 2], share = 100 * least / work;
    printf("%-6s %u threads, %u texts, mean %.1f tokens: median %.0f tok/s, %.1f GFLOP/s, %.1f %% "
           "of the precision's peak; "
           "best %.0f tok/s, %.1f %%\n",
           name, b->threads, batch.texts, (double)batch.tokens / batch.texts,
           batch.tokens * middle * 1e9 / work, middle, share * middle,
           batch.tokens * best * 1e9 / work, share * best);
}

static void latency(bench *b, uint32_t texts, uint32_t tokens) {
    static double time[PASSES_MAX];
    size_t        passes = 0;
    fl_batch      batch  = make_batch(b, NULL, texts, tokens);
    forward(b, &batch);
    uint64_t before = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    for (uint64_t end = fl_clock_ns() + (uint64_t)(b->seconds * 1e9);
         passes < 3 || (fl_clock_ns() < end && passes < PASSES_MAX); passes++) {
        uint64_t start = clock_of(b);
        forward(b, &batch);
        time[passes] = (double)(clock_of(b) - start) * 1e-6;
    }
    double cpu   = 1e-6 * (double)(read_clock(CLOCK_PROCESS_CPUTIME_ID) - before) / (double)passes;
    double least = texts * floor_of(b, tokens) / b->threads * 1e-6;
    qsort(time, passes, sizeof *time, by_value);
    printf("latency %u threads, %u texts of %u tokens: best %.3f ms, p50 %.3f ms, p99 %.3f ms; "
           "floor %.3f ms, %.1f %% of the best; processor time %.3f ms\n",
           b->threads, texts, tokens, time[0], time[passes / 2], time[passes * 99 / 100], least,
           100 * least / time[0], cpu);
}

/* The plan of such a batch: blocks as [tokens, time by who runs it], in what a token takes alone. */
static void print_plan(bench *b, uint32_t texts, uint32_t tokens) {
    fl_batch           batch = make_batch(b, NULL, texts, tokens);
    fl_engine         *e     = b->engine;
    const fl_cpu_plan *p     = &e->plan;
    fl_cpu_plan_make(e, &batch);
    printf("{\"tokens\": %u, \"threads\": %u, \"ranks\": %u, \"groups\": %u, \"shared\": %u, "
           "\"weights\": %zu, \"blocks\": [",
           batch.tokens, p->threads, p->ranks, p->groups, p->shared, e->weights_bytes);
    for (uint32_t i = 0; i < p->block_count; i++) {
        unsigned ranks = i < p->shared ? p->ranks : 1;
        printf("%s[%u, %.4f]", i ? ", " : "", p->blocks[i].tokens,
               fl_cpu_group_time(e, &p->blocks[i], ranks));
    }
    printf("]}\n");
}

/* ---- Models ---------------------------------------------------------------------------------- */

static fl_tensor random_tensor(uint64_t rows, uint64_t cols, float scale) {
    float *data = malloc(rows * cols * sizeof *data);
    for (uint64_t i = 0; i < rows * cols; i++)
        data[i] = scale * ((float)draw(2001) * 1e-3f - 1.0f);
    return (fl_tensor){.data  = data,
                       .bytes = rows * cols * sizeof *data,
                       .dtype = FL_DTYPE_F32,
                       .rank  = 2,
                       .shape = {rows, cols}};
}

static void random_model(bench *b, uint32_t layers, uint32_t hidden, uint32_t heads, bool t5) {
    uint32_t        mlp = 4 * hidden, vocab = 30522, positions = 512;
    float           scale = 1.0f / sqrtf((float)hidden / (float)heads);
    fl_encoder_desc d     = {.architecture    = t5 ? "mpnet" : "bert",
                             .layers          = layers,
                             .hidden          = hidden,
                             .heads           = heads,
                             .kv_heads        = heads,
                             .head_dim        = hidden / heads,
                             .intermediate    = mlp,
                             .vocab           = vocab,
                             .positions       = positions,
                             .norm_eps        = 1e-12f,
                             .position        = FL_POSITION_LEARNED,
                             .attention_scale = scale,
                             .embedding       = hidden,
                             .word_rows       = vocab,
                             .embed_norm      = true};
    fl_encoder     *e     = &b->encoder;
    e->desc               = d;
    e->desc.layer         = calloc(layers, sizeof *e->desc.layer);
    if (t5)
        e->desc.distance[0] =
            (fl_distance){.bias = FL_BIAS_T5_BUCKETS, .buckets = 32, .max_distance = 128};
    e->pooling[0]                     = FL_POOL_MEAN;
    e->pooling_count                  = 1;
    e->global[FL_SLOT_WORD]           = random_tensor(vocab, hidden, 0.1f);
    e->global[FL_SLOT_POSITION]       = random_tensor(positions, hidden, 0.1f);
    e->global[FL_SLOT_EMBED_NORM_W]   = random_tensor(1, hidden, 1.0f);
    e->global[FL_SLOT_EMBED_NORM_B]   = random_tensor(1, hidden, 0.1f);
    e->global[FL_SLOT_ATTENTION_BIAS] = random_tensor(32, heads, 0.1f);
    e->layer                          = calloc(layers, sizeof *e->layer);
    for (uint32_t i = 0; i < layers; i++) {
        for (int s = FL_LAYER_Q_W; s <= FL_LAYER_O_W; s += 2) {
            e->layer[i][s]     = random_tensor(hidden, hidden, 0.05f);
            e->layer[i][s + 1] = random_tensor(1, hidden, 0.05f);
        }
        e->layer[i][FL_LAYER_ATTENTION_NORM_W] = random_tensor(1, hidden, 1.0f);
        e->layer[i][FL_LAYER_MLP_NORM_W]       = random_tensor(1, hidden, 1.0f);
        e->layer[i][FL_LAYER_UP_W]             = random_tensor(mlp, hidden, 0.05f);
        e->layer[i][FL_LAYER_DOWN_W]           = random_tensor(hidden, mlp, 0.05f);
    }
}

static void load(bench *b, const char *name) {
    fletch_error error;
    if (strcmp(name, "minilm") == 0 || strcmp(name, "mpnet") == 0) {
        bool t5 = name[1] == 'p';
        random_model(b, t5 ? 12 : 6, t5 ? 768 : 384, 12, t5);
    } else {
        fl_model_options options = {.pooling = ""};
        if (fl_model_open(&b->model, name, &options, &error) < 0)
            stop(name, error.message);
        b->encoder = b->model->encoder;
    }
    fl_engine_options options = {.threads      = b->threads,
                                 .batch_tokens = BATCH_TOKENS,
                                 .batch_texts  = BATCH_TEXTS,
                                 .max_length   = b->length > 512 ? b->length : 512,
                                 .isa          = b->isa,
                                 .precision    = b->precision};
    uint64_t          start   = fl_clock_ns();
    if (fl_engine_find("cpu")->open(&b->engine, &b->encoder, &options, &error) < 0)
        stop(name, error.message);
    printf("open %.1f ms\n", (double)(fl_clock_ns() - start) * 1e-6);
    b->out = malloc(sizeof(float) * BATCH_TEXTS * fl_encoder_width(&b->encoder));
    for (size_t i = 0; i < BATCH_TEXTS; i++)
        b->rows[i] = b->out + i * fl_encoder_width(&b->encoder);
}

static int print_property(void *user, const char *name, const char *value, const char *origin) {
    (void)user;
    printf("%-18s %s (%s)\n", name, value, origin);
    return 0;
}

int main(int argc, char **argv) {
    static bench b = {
        .threads = 1, .seconds = 2.0, .isa = "auto", .precision = "fp32", .length = 16};
    const char *name = "minilm", *only = "";
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-') {
            name = argv[i];
            continue;
        }
        switch (argv[i][1]) {
        case 't': b.threads = (unsigned)atoi(value); break;
        case 's': b.seconds = atof(value); break;
        case 'i': b.isa = value; break;
        case 'p': b.precision = value; break;
        case 'o': only = value; break;
        case 'n': b.together = (uint32_t)atoi(value); break;
        case 'l': b.length = (uint32_t)atoi(value); break;
        case 'd': b.dry = true; continue;
        default: stop("usage", "see the head of bench/engine.c");
        }
        i++;
    }
    load(&b, name);
    measure_peaks(&b);
    fl_engine_find("cpu")->describe(b.engine, print_property, NULL);
    if (b.together > 0 && b.dry)
        print_plan(&b, b.together, b.length);
    else if (b.together > 0)
        latency(&b, b.together, b.length);
    only = b.together > 0 ? "none" : only;
    if (*only == '\0' || *only == 's')
        throughput(&b, "short", short_bin, 96);
    if (*only == '\0' || strcmp(only, "long") == 0)
        throughput(&b, "long", long_bin, 10 * b.threads);
    if (*only == '\0' || strcmp(only, "latency") == 0) {
        latency(&b, 1, 16);
        latency(&b, 1, 128);
    }
    fl_engine_find("cpu")->close(b.engine);
    fl_model_close(b.model);
    return 0;
}
