/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.c - what the scheduler costs and gains: overhead, clients, open load, replicas, trace.
 *
 *     bench_runtime FOLDER [-s SECONDS] [-r ROUNDS] [-l TARGET_MS] [-c CLIENTS] [-o PART]
 *
 * PART is one of the five below; all of them without -o. Every result is one JSON object on a line of
 * standard output (bench/runtime.py makes the table, CSV and plot of them).
 *
 *   overhead  fletch_embed of one text on an idle model, against tokenise + forward called directly
 *   clients   CLIENTS threads with single texts, against one thread with one big call
 *   load      texts that arrive at random (Poisson) at 25, 50 and 80 % of saturation, whether the
 *             program keeps up or not; latency counts from the moment a text was due
 *   replicas  cpu.replicas = 1 against 2, of equal threads
 *   trace     profile.file on against off, and the cost of one span
 *
 * Texts are 14 common words, 16 tokens. What is compared runs in turn, round by round, and the ratio
 * is that of each round; the median is reported with the lowest and highest. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/trace.h"
#include "engines/engine.h"
#include "measure.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

enum { WORDS = 14, TOKENS = WORDS + 2, TEXTS = 1024, ROUNDS_MAX = 64, CLIENTS_MAX = 256 };

static struct {
    const char *folder;
    double      seconds;
    int         rounds, clients, target_ms;
} with = {.seconds = 2, .rounds = 7, .clients = 8, .target_ms = 25};

static char        text_bytes[TEXTS][WORDS * 12];
static const char *texts[TEXTS];
static size_t      dimensions;
static float      *rows; /* [TEXTS, dimensions] */

/* Words of one token each in every vocabulary that came out of English. */
static void make_texts(void) {
    static const char *const words[] = {
        "time",       "year",   "people", "way",     "day",    "man",     "thing",    "woman",
        "life",       "child",  "world",  "school",  "state",  "family",  "hand",     "part",
        "place",      "case",   "week",   "company", "system", "program", "question", "work",
        "government", "number", "night",  "point",   "home",   "water",   "room",     "mother"};
    enum { COUNT = sizeof words / sizeof words[0] };
    for (size_t i = 0; i < TEXTS; i++) {
        for (size_t w = 0; w < WORDS; w++) {
            strcat(text_bytes[i], w > 0 ? " " : "");
            strcat(text_bytes[i], words[draw(COUNT)]);
        }
        texts[i] = text_bytes[i];
    }
}

/* Open with keys "a=b", NULL-terminated; NULL when a key is not known to this version. */
static fletch_model *open_with(const char *const *keys) {
    fletch_error   error;
    fletch_model  *model  = NULL;
    fletch_config *config = fletch_config_new();
    for (; *keys != NULL; keys++) {
        if (set_key(config, *keys, &error) < 0) {
            fprintf(stderr, "bench_runtime: %s\n", error.message);
            fletch_config_free(config);
            return NULL;
        }
    }
    if (fletch_open(&model, with.folder, config, &error) < 0)
        stop(with.folder, error.message);
    fletch_config_free(config);
    dimensions = fletch_dimensions(model);
    if (rows == NULL)
        rows = malloc(TEXTS * dimensions * sizeof *rows);
    fletch_tokens *tokens;
    if (fletch_tokenize(model, texts[0], strlen(texts[0]), NULL, &tokens, &error) < 0)
        stop("tokenise", error.message);
    if (tokens->count != TOKENS)
        fprintf(stderr, "bench_runtime: texts have %zu tokens in this vocabulary, not %d\n",
                tokens->count, TOKENS);
    fletch_tokens_free(tokens);
    return model;
}

static void embed(fletch_model *model, size_t first, size_t count) {
    fletch_error  error;
    fletch_texts  in  = fletch_texts_from_strings(texts + first, count);
    fletch_matrix out = fletch_matrix_f32(rows + first * dimensions, count, dimensions);
    if (fletch_embed(model, &in, NULL, &out, &error) < 0)
        stop("embed", error.message);
}

/* "name":{"median":…,"low":…,"high":…} */
static void put_spread(const char *name, double *values, int count) {
    const double middle = quantile(values, (size_t)count, 0.5);
    printf(",\"%s\":{\"median\":%.4f,\"low\":%.4f,\"high\":%.4f}", name, middle, values[0],
           values[count - 1]);
}

/* ---- overhead -------------------------------------------------------------------------------- */

typedef struct direct {
    fl_model         *model;
    fl_engine        *engine;
    fl_tokenizer     *tokenizer;
    fl_token_scratch *scratch;
} direct;

static direct open_direct(uint32_t threads) {
    direct            d;
    fletch_error      error;
    fl_buf            json    = {0};
    fl_model_options  options = {.pooling = ""};
    fl_engine_options engine  = {.provider     = "cpu",
                                 .folder       = with.folder,
                                 .threads      = threads,
                                 .batch_tokens = 16384,
                                 .batch_texts  = 64,
                                 .max_length   = 256,
                                 .isa          = "auto",
                                 .precision    = "auto"};
    if (fl_model_open(&d.model, with.folder, &options, &error) < 0 ||
        fl_file_read(d.model->tokenizer_path, (size_t)256 << 20, &json, &error) < 0 ||
        fl_tokenizer_open(&d.tokenizer, &json, &(fl_tokenizer_options){0}, &error) < 0 ||
        fl_engine_find("cpu")->open(&d.engine, &d.model->encoder, &engine, &error) < 0)
        stop(with.folder, error.message);
    d.scratch = fl_token_scratch_new(d.tokenizer);
    fl_buf_free(&json);
    return d;
}

static void embed_direct(direct *d, size_t index) {
    fletch_error            error;
    int32_t                 ids[256];
    size_t                  count;
    bool                    truncated;
    float                  *row    = rows + index * dimensions;
    const fl_encode_options encode = {.max_length = 256};
    if (fl_tokenizer_encode(d->tokenizer, d->scratch, texts[index], strlen(texts[index]), &encode,
                            ids, 256, &count, &truncated, &error) < 0)
        stop("encode", error.message);
    const uint32_t cu[2] = {0, (uint32_t)count};
    const fl_batch batch = {
        .ids = ids, .cu = cu, .texts = 1, .tokens = (uint32_t)count, .rows = &row};
    if (fl_engine_find("cpu")->forward(d->engine, 0, &batch, &error) < 0)
        stop("forward", error.message);
}

static void run_overhead(void) {
    enum { CALLS = 100 };
    static double through[CALLS], straight[CALLS];
    double        over[ROUNDS_MAX], both[ROUNDS_MAX], alone[ROUNDS_MAX];
    double        least_through = HUGE_VAL, least_straight = HUGE_VAL; /* of all calls */
    fletch_model *model = open_with((const char *[]){"batch.throughput=false", NULL});
    direct        d     = open_direct((uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
    for (int r = -1; r < with.rounds; r++) { /* the first is warm-up */
        for (size_t i = 0; i < CALLS; i++) {
            const uint64_t start = fl_clock_ns();
            embed(model, i, 1);
            through[i] = (double)(fl_clock_ns() - start) / 1e3;
        }
        for (size_t i = 0; i < CALLS; i++) {
            const uint64_t start = fl_clock_ns();
            embed_direct(&d, i);
            straight[i] = (double)(fl_clock_ns() - start) / 1e3;
        }
        if (r < 0)
            continue;
        both[r]        = quantile(through, CALLS, 0.5);
        alone[r]       = quantile(straight, CALLS, 0.5);
        over[r]        = both[r] - alone[r];
        least_through  = fmin(least_through, through[0]);
        least_straight = fmin(least_straight, straight[0]);
    }
    printf("{\"part\":\"overhead\"");
    put_spread("embed_us", both, with.rounds);
    put_spread("direct_us", alone, with.rounds);
    put_spread("overhead_us", over, with.rounds);
    printf(",\"overhead_best_us\":%.4f}\n", least_through - least_straight);
    fl_engine_find("cpu")->close(d.engine);
    fl_token_scratch_free(d.scratch);
    fl_tokenizer_close(d.tokenizer);
    fl_model_close(d.model);
    fletch_close(model);
}

/* ---- clients --------------------------------------------------------------------------------- */

typedef struct client {
    pthread_t     thread;
    fletch_model *model;
    atomic_bool  *over;
    size_t        first, done;
} client;

static void *client_main(void *arg) {
    client      *c     = arg;
    const size_t share = (size_t)(TEXTS / with.clients);
    while (!atomic_load_explicit(c->over, memory_order_relaxed)) {
        embed(c->model, c->first + c->done % share, 1);
        c->done++;
    }
    return NULL;
}

static double rate_of_clients(fletch_model *model, int count, double seconds) {
    static client  clients[CLIENTS_MAX];
    atomic_bool    over  = false;
    size_t         done  = 0;
    const uint64_t start = fl_clock_ns();
    for (int i = 0; i < count; i++) {
        clients[i] = (client){.model = model, .over = &over, .first = (size_t)(TEXTS / count * i)};
        pthread_create(&clients[i].thread, NULL, client_main, &clients[i]);
    }
    nap(seconds);
    atomic_store(&over, true);
    for (int i = 0; i < count; i++) {
        pthread_join(clients[i].thread, NULL);
        done += clients[i].done;
    }
    return (double)done * 1e9 / (double)(fl_clock_ns() - start);
}

static double rate_of_big_calls(fletch_model *model, double seconds) {
    const uint64_t start = fl_clock_ns(), end = start + (uint64_t)(seconds * 1e9);
    size_t         done = 0;
    do {
        embed(model, 0, TEXTS);
        done += TEXTS;
    } while (fl_clock_ns() < end);
    return (double)done * 1e9 / (double)(fl_clock_ns() - start);
}

static void run_clients(void) {
    double        many[ROUNDS_MAX], big[ROUNDS_MAX], ratio[ROUNDS_MAX];
    fletch_model *model = open_with((const char *[]){NULL});
    rate_of_big_calls(model, 0.3);
    for (int r = 0; r < with.rounds; r++) {
        many[r]  = rate_of_clients(model, with.clients, with.seconds);
        big[r]   = rate_of_big_calls(model, with.seconds);
        ratio[r] = many[r] / big[r];
    }
    printf("{\"part\":\"clients\",\"clients\":%d", with.clients);
    put_spread("clients_texts_s", many, with.rounds);
    put_spread("big_call_texts_s", big, with.rounds);
    put_spread("ratio", ratio, with.rounds);
    puts("}");
    fletch_close(model);
}

/* ---- load ------------------------------------------------------------------------------------ */

typedef struct arrival {
    uint64_t due_ns, done_ns;
    int      status;
} arrival;

static atomic_size_t arrivals_open;

static void on_done(void *user, const fletch_outcome *outcome) {
    arrival *a = user;
    a->done_ns = fl_clock_ns();
    a->status  = outcome->error.code;
    atomic_fetch_sub(&arrivals_open, 1);
}

/* Submit texts at `rate` a second for a while; returns how many, all answered. */
static size_t offer(fletch_model *model, double rate, double seconds, arrival *list, size_t most) {
    uint64_t     due = fl_clock_ns() + 1000000, end = due + (uint64_t)(seconds * 1e9);
    size_t       count = 0;
    fletch_error error;
    for (; due < end && count < most; count++) {
        arrival       *a       = &list[count];
        const size_t   text    = count % TEXTS;
        fletch_request request = FLETCH_REQUEST_INIT;
        request.texts          = fletch_texts_from_strings(texts + text, 1);
        request.out            = fletch_matrix_f32(rows + text * dimensions, 1, dimensions);
        request.lane           = FLETCH_LANE_INTERACTIVE;
        *a                     = (arrival){.due_ns = due};
        wait_until(due);
        atomic_fetch_add(&arrivals_open, 1);
        if (fletch_submit(model, &request, on_done, a, NULL, &error) < 0) {
            atomic_fetch_sub(&arrivals_open, 1);
            a->status  = error.code;
            a->done_ns = fl_clock_ns();
        }
        const double u = ((double)draw(1000000) + 0.5) / 1e6;
        due += (uint64_t)(-log(u) / rate * 1e9);
    }
    while (atomic_load(&arrivals_open) > 0)
        nap(0.001);
    return count;
}

static void run_load(void) {
    enum { MOST = 1 << 20 };
    static const int percents[] = {25, 50, 80};
    char             target[64];
    snprintf(target, sizeof target, "batch.target_latency_ms=%d", with.target_ms);
    fletch_model *model      = open_with((const char *[]){target, NULL});
    arrival      *list       = malloc(MOST * sizeof *list);
    double       *ms         = malloc(MOST * sizeof *ms);
    const double  saturation = rate_of_clients(model, 64, with.seconds);
    const double  seconds    = with.seconds * (double)with.rounds / 2;
    printf("{\"part\":\"saturation\",\"texts_s\":%.1f}\n", saturation);
    for (size_t p = 0; p < sizeof percents / sizeof percents[0]; p++) {
        const double rate   = saturation * percents[p] / 100;
        size_t       failed = 0;
        offer(model, rate, with.seconds, list, MOST); /* the budget adapts to the new load */
        const size_t count = offer(model, rate, seconds, list, MOST);
        for (size_t i = 0; i < count; i++) {
            ms[i] = (double)(list[i].done_ns - list[i].due_ns) / 1e6;
            failed += list[i].status != 0;
        }
        const double p99 = quantile(ms, count, 0.99);
        printf("{\"part\":\"load\",\"percent\":%d,\"texts_s\":%.1f,\"texts\":%zu,\"failed\":%zu,"
               "\"target_ms\":%d,\"p50_ms\":%.3f,\"p90_ms\":%.3f,\"p95_ms\":%.3f,\"p99_ms\":%.3f,"
               "\"p999_ms\":%.3f,\"max_ms\":%.3f,\"p99_in_target\":%s}\n",
               percents[p], rate, count, failed, with.target_ms, quantile(ms, count, 0.5),
               quantile(ms, count, 0.9), quantile(ms, count, 0.95), p99, quantile(ms, count, 0.999),
               ms[count - 1],
               with.target_ms == 0     ? "null"
               : p99 <= with.target_ms ? "true"
                                       : "false");
    }
    free(list);
    free(ms);
    fletch_close(model);
}

/* ---- replicas and trace ---------------------------------------------------------------------- */

/* Two models in turn; values[r] is the ratio of second to first. False when one cannot be opened. */
static bool compare(const char *const *first, const char *const *second, double *a, double *b,
                    double *ratio, int clients) {
    fletch_model *one = open_with(first), *two = open_with(second);
    for (int r = -1; one != NULL && two != NULL && r < with.rounds; r++) {
        const double x = clients > 0 ? rate_of_clients(one, clients, with.seconds)
                                     : rate_of_big_calls(one, with.seconds);
        const double y = clients > 0 ? rate_of_clients(two, clients, with.seconds)
                                     : rate_of_big_calls(two, with.seconds);
        if (r >= 0) {
            a[r]     = x;
            b[r]     = y;
            ratio[r] = y / x;
        }
    }
    const bool done = one != NULL && two != NULL;
    fletch_close(one);
    fletch_close(two);
    return done;
}

static void run_replicas(void) {
    double      one[ROUNDS_MAX], two[ROUNDS_MAX], ratio[ROUNDS_MAX];
    char        half[64];
    const long  cores   = sysconf(_SC_NPROCESSORS_ONLN);
    const char *first[] = {"cpu.replicas=1", half, NULL}, *second[] = {"cpu.replicas=2", NULL};
    if (cores < 2) {
        puts("{\"part\":\"replicas\",\"skipped\":\"one core only\"}");
        return;
    }
    /* Replicas share the cores: of two, each has half of them. */
    snprintf(half, sizeof half, "cpu.intra_op_threads=%ld", cores / 2);
    if (!compare(first, second, one, two, ratio, 0)) {
        puts("{\"part\":\"replicas\",\"skipped\":\"no such key\"}");
        return;
    }
    for (int r = 0; r < with.rounds; r++)
        ratio[r] /= 2;
    printf("{\"part\":\"replicas\",\"threads_each\":%ld", cores / 2);
    put_spread("one_texts_s", one, with.rounds);
    put_spread("two_texts_s", two, with.rounds);
    put_spread("linear", ratio, with.rounds);
    puts("}");
}

static double span_ns(void) {
    enum { SPANS = 1000000 };
    fl_trace    *trace;
    fletch_error error;
    if (fl_trace_open(&trace, "/dev/null", true, &error) < 0)
        stop("trace", error.message);
    fl_trace_end(trace, "first", fl_trace_begin(trace), NULL, 0);
    const uint64_t start = fl_clock_ns();
    for (int i = 0; i < SPANS; i++)
        fl_trace_end(trace, "span", fl_trace_begin(trace), "number", i);
    const double ns = (double)(fl_clock_ns() - start) / SPANS;
    (void)fl_trace_close(trace, &error);
    return ns;
}

static void run_trace(void) {
    double            off[ROUNDS_MAX], on[ROUNDS_MAX], ratio[ROUNDS_MAX];
    const char *const none[] = {NULL}, *const some[] = {"profile.file=/dev/null", NULL};
    printf("{\"part\":\"trace\",\"span_ns\":%.1f", span_ns());
    if (compare(none, some, off, on, ratio, 0)) {
        put_spread("off_texts_s", off, with.rounds);
        put_spread("on_texts_s", on, with.rounds);
        put_spread("ratio", ratio, with.rounds);
    }
    puts("}");
}

int main(int argc, char **argv) {
    const char *only = "";
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-') {
            with.folder = argv[i];
            continue;
        }
        switch (argv[i][1]) {
        case 's': with.seconds = atof(value); break;
        case 'r': with.rounds = atoi(value); break;
        case 'l': with.target_ms = atoi(value); break;
        case 'c': with.clients = atoi(value); break;
        case 'o': only = value; break;
        default: with.folder = NULL; break;
        }
        i++;
    }
    if (with.folder == NULL || with.rounds < 1 || with.rounds > ROUNDS_MAX || with.clients < 1 ||
        with.clients > CLIENTS_MAX || with.seconds <= 0)
        stop("usage", "see the head of bench/runtime.c");
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"overhead", run_overhead},
                 {"clients", run_clients},
                 {"load", run_load},
                 {"replicas", run_replicas},
                 {"trace", run_trace}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    make_texts();
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (*only == '\0' || strcmp(only, parts[i].name) == 0)
            parts[i].run();
    free(rows);
    return 0;
}
